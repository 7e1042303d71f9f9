"""Integers of products with weights in a tpu module, and their scales."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue

from tpusim.ir.attrs import ints, op_name
from tpusim.ir.module import Model
from tpusim.ir.quantisation import QuantParams
from tpusim.ir.types import uniform_of
from tpusim.ir.upstream import FALLBACK
from tpusim.ops.conv.tpu import TpuConv2D
from tpusim.ops.framework.base import is_none
from tpusim.ops.framework.building import fitting
from tpusim.ops.framework.families import is_set
from tpusim.ops.matmul.tpu import TpuMatMul
from tpusim.ops.structure import TopWeight


@dataclass(frozen=True)
class IntegerProduct:
    """A product with constant weight. weight: (oc, ic/group, ...) of a Conv, (K, N) of a matrix.

    The weight has a scale for each output channel, or one. bias: int32 in steps of weight times input, without the term
    of the input's zero point.
    """

    name: str
    weight: np.ndarray
    scales: np.ndarray
    bias: np.ndarray | None
    bias_scales: np.ndarray
    is_matrix: bool


def products(model: Model) -> Iterator[IntegerProduct]:
    """Every Conv2D and MatMul of bytes with a constant filter or matrix that requantises itself."""
    for op in model.ops:
        if not isinstance(op, TpuConv2D | TpuMatMul):
            continue
        x, y, weight = _params(op.operands[0]), _params(op.results[0]), op.operands[1].owner
        with fitting(op, "cannot be exported"):
            factor = _factor(op)
        if x is not None and y is not None and factor is not None and isinstance(weight, TopWeight):
            yield _product(op, model, x, factor * y.scale / x.scale)


def _product(op: "TpuConv2D | TpuMatMul", model: Model, x: QuantParams, scales: np.ndarray) -> IntegerProduct:
    stored, matrix = _data(op.operands[1], model), isinstance(op, TpuMatMul)
    assert stored is not None  # checked by products
    if isinstance(op, TpuMatMul) and is_set(op.right_transpose):
        stored = np.swapaxes(stored, -1, -2)
    bias = None if is_none(op.operands[2]) else _data(op.operands[2], model)
    if bias is not None:
        wide = stored.astype(np.int64)
        sums = wide.sum(axis=-2).reshape(-1) if matrix else wide.reshape(len(wide), -1).sum(axis=1)
        bias = bias.reshape(-1).astype(np.int64) + x.zero_point * sums
        bias = bias if bias.any() else None
    return IntegerProduct(op_name(op), stored, scales, bias, scales * x.scale, matrix)


def _params(value: SSAValue) -> QuantParams | None:
    found = uniform_of(value)
    return found.params if found is not None and found.params.bits == 8 and found.params.axis is None else None


def _data(value: SSAValue, model: Model) -> np.ndarray | None:
    return model.weights[op_name(value.owner)] if isinstance(value.owner, TopWeight) else None


def _factor(op: Operation) -> np.ndarray | None:
    """The factor of accumulators, one number or one per channel; None for another form of requant."""
    m = getattr(op, "multiplier", getattr(op, "multipliers", None))
    r = getattr(op, "rshift", getattr(op, "rshifts", None))
    if not (isinstance(m, ArrayAttr) and isinstance(r, ArrayAttr)):
        return None
    m, r = cast("ArrayAttr[Attribute]", m), cast("ArrayAttr[Attribute]", r)
    mode = op.attributes.get("quant_mode")
    more = 31 if mode is not None and "QDM" in str(mode) else 0
    return np.asarray(ints(m), np.float64) * np.exp2(-np.asarray(ints(r), np.float64) - more)


def fallback_of(op: Operation) -> str:
    """The reason why an op is in float, "" if it is not."""
    why = op.attributes.get(FALLBACK)
    return why.data if isinstance(why, StringAttr) else ""
