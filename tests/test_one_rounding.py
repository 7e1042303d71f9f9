"""F16 and BF16: what an op gives is its f32 (or double) formula, rounded once (numerics.md 8.2, 9.8).

The formulas are NumPy's, the roundings those of NumPy and ml_dtypes. Kernel and machine are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from bench import Bench
from compiling import to_tpu
from op_cases import CASES, OpCase
from rows import canonical
from tpusim_kernels.activation import activation_float
from tpusim_kernels.prim.smallfloat import narrowed

from tpusim.inference import run
from tpusim.ir.attrs import ints, op_name
from tpusim.ir.module import Model
from tpusim.ir.types import element_of, is_tensor, shape_of, storage_dtype
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.structure import TopWeight

Array = np.ndarray
NARROW: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
KINDS = pytest.mark.parametrize("kind", NARROW)


@KINDS
def test_functions_are_rounded_as_upstream(kind: str) -> None:
    """EXP, SIGMOID, SQUARE ... over every value of the type between 2^-6 and 2^3: the double by way of f32 (D16)."""
    codes = np.arange(1 << 16, dtype=np.uint16).view(NARROW[kind]).astype(np.float32)
    x = codes[np.isfinite(codes) & (np.abs(codes) >= 2.0**-6) & (np.abs(codes) <= 8)]
    x = x[:: 8 if kind == "f16" else 1]
    of_mode: dict[str, Callable[[Array], Array]] = {
        "SQUARE": lambda v: v * v,
        "SIGMOID": lambda v: 1 / (1 + np.exp(-v)),
        "EXP": np.exp,
        "TANH": np.tanh,
        "SOFT_SIGN": lambda v: v / (1 + np.abs(v)),
    }
    bench = Bench()
    for mode, function in of_mode.items():
        expected = function(x.astype(np.float64)).astype(np.float32).astype(NARROW[kind])
        found = np.asarray(narrowed(activation_float(x, mode=mode), np.dtype(NARROW[kind])))
        np.testing.assert_array_equal(found, expected, err_msg=mode)
        bench.top = 0
        image = x.astype(NARROW[kind]).reshape(1, 1, 1, -1)
        view = bench.put(image)
        wanted = functions.Active(mode)
        got = bench.run(isa.Fn, function=wanted, inputs=(view,), output=bench.space(image.shape, kind))
        np.testing.assert_array_equal(got.ravel(), expected, err_msg=mode)


# ----------------------------------------------------------------------------------------------------- rows of op_cases


def relu(op: Any, y: Array) -> Array:
    flag, limit = (getattr(op, name, None) for name in ("do_relu", "relu_limit"))
    if flag is None or not flag.value.data:
        return y
    y = np.maximum(y, np.float32(0))
    return np.minimum(y, np.float32(limit.value.data)) if limit is not None and limit.value.data >= 0 else y


def chain(combine: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    """One f32 operation after the other, from left to right."""

    def compute(op: Any, xs: Sequence[Array]) -> Array:
        first, *rest = xs
        for x in rest:
            first = combine(first, x)
        return relu(op, first)

    return compute


def const(combine: Callable[[Any, Array, np.float32], Array]) -> Callable[..., Array]:
    return lambda op, xs: relu(op, combine(op, xs[0], np.float32(op.const_val.value.data)))


def reverse(op: Any, x: Array, c: np.float32) -> Array:
    flag = op.attributes.get("is_reverse")
    return c - x if flag is not None and flag.value.data else x - c


def column(v: Array, rank: int) -> Array:
    return v.reshape(1, -1, *(1,) * (rank - 2))


FORMULAS: dict[str, Callable[..., Array]] = {
    "tpu.Add": chain(np.add),
    "tpu.Sub": chain(np.subtract),
    "tpu.Mul": chain(np.multiply),
    "tpu.Div": chain(np.divide),
    "tpu.Max": chain(np.maximum),
    "tpu.Min": chain(np.minimum),
    "tpu.AddConst": const(lambda op, x, c: x + c),
    "tpu.SubConst": const(reverse),
    "tpu.MulConst": const(lambda op, x, c: x * c),
    "tpu.MaxConst": const(lambda op, x, c: np.maximum(x, c)),
    "tpu.MinConst": const(lambda op, x, c: np.minimum(x, c)),
    "tpu.LeakyRelu": lambda op, xs: np.where(xs[0] > 0, xs[0], xs[0] * np.float32(op.alpha.value.data)),
    "tpu.PReluOp": lambda op, xs: np.where(xs[0] > 0, xs[0], xs[0] * column(xs[1], xs[0].ndim)),
    "tpu.Relu": lambda op, xs: relu_alone(op, xs[0]),
    "tpu.Cast": lambda op, xs: xs[0],
    "tpu.Concat": lambda op, xs: np.concatenate(xs, axis=op.axis.value.data),
    "tpu.Permute": lambda op, xs: np.transpose(xs[0], ints(op.order)),
    "tpu.Reshape": lambda op, xs: xs[0].reshape(shape_of(op.output)),
}


def relu_alone(op: Any, x: Array) -> Array:
    limit = getattr(op, "relu_limit", None)
    y = np.maximum(x, np.float32(0))
    return np.minimum(y, np.float32(limit.value.data)) if limit is not None and limit.value.data > 0 else y


@cache
def sixteen_bits(case_id: str, kind: str) -> Model:
    return to_tpu(canonical(case_id), "bm1688", kind)


def with_formula(model: Model) -> Iterator[TpuOp]:
    """The ops of 16-bit results that have a formula."""
    for op in model.ops:
        if isinstance(op, TpuOp) and op.name in FORMULAS and storage_dtype(element_of(op.results[0])).itemsize == 2:
            yield op


def sixteen_bit_ops(case: OpCase, kind: str) -> Iterator[tuple[TpuOp, list[Array], Array]]:
    """(op, its operands, what the flat executor made of them) for every op of a row with a formula."""
    model, feeds = sixteen_bits(case.id, kind), case.feeds()
    tensors = {**feeds, **run(model, feeds)}
    for op in with_formula(model):
        values = [
            model.weights[op_name(v.owner)] if isinstance(v.owner, TopWeight) else tensors[op_name(v.owner)]  # type: ignore[arg-type]
            for v in op.operands
            if is_tensor(v)
        ]
        yield op, values, tensors[op_name(op)]


ROWS = [c for c in CASES if set(c.result.split("|")) & set(FORMULAS)]


@KINDS
@pytest.mark.parametrize("case", ROWS, ids=lambda c: c.id)
def test_ops_are_rounded_once(case: OpCase, kind: str) -> None:
    """Every op of the row whose formula is a few f32 operations: bit for bit."""
    for op, values, found in sixteen_bit_ops(case, kind):
        with np.errstate(all="ignore"):
            wide = FORMULAS[op.name](op, [v.astype(np.float32) for v in values])
            expected = wide.astype(np.float32).astype(found.dtype)
        np.testing.assert_array_equal(found, expected, err_msg=f"{op.name} {op_name(op)}")


@KINDS
def test_most_formulas_are_reached(kind: str) -> None:
    reached = {op.name for case in ROWS for op in with_formula(sixteen_bits(case.id, kind))}
    assert len(reached) >= len(FORMULAS) - 2, set(FORMULAS) - reached
