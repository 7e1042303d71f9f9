"""Instructions that compute every element by itself."""

# the types of NumPy's ufuncs are partly unknown:
# pyright: reportUnknownVariableType=false

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from tpusim.errors import UnsupportedError
from tpusim.frontend.onnx.element_types import elem_type_of
from tpusim.frontend.stablehlo.products import divided
from tpusim.frontend.stablehlo.reading import Op, type_of
from tpusim.frontend.stablehlo.values import Computed, Constant, Value
from tpusim.frontend.stablehlo.writer import Writer, once

Numpy: TypeAlias = Callable[..., Any]


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _shift_right(x: np.ndarray, count: np.ndarray) -> np.ndarray:
    unsigned = f"u{x.itemsize}"
    return x.view(unsigned) >> count.astype(unsigned)


UNARY: Mapping[str, tuple[str, Numpy]] = {
    "abs": ("Abs", np.abs), "ceil": ("Ceil", np.ceil), "cosine": ("Cos", np.cos), "exponential": ("Exp", np.exp),
    "floor": ("Floor", np.floor), "log": ("Log", np.log), "negate": ("Neg", np.negative),
    "not": ("Not", np.bitwise_not),
    "round_nearest_even": ("Round", np.round), "sign": ("Sign", np.sign), "sine": ("Sin", np.sin),
    "sqrt": ("Sqrt", np.sqrt), "tan": ("Tan", np.tan), "tanh": ("Tanh", np.tanh),
    "logistic": ("Sigmoid", _sigmoid), "acos": ("Acos", np.arccos), "acosh": ("Acosh", np.arccosh),
    "asin": ("Asin", np.arcsin), "asinh": ("Asinh", np.arcsinh), "atan": ("Atan", np.arctan),
    "atanh": ("Atanh", np.arctanh), "cosh": ("Cosh", np.cosh), "sinh": ("Sinh", np.sinh),
}  # fmt: skip
"""Instruction -> the ONNX node, and the function of arrays."""
BINARY: Mapping[str, tuple[str, Numpy]] = {
    "add": ("Add", np.add), "subtract": ("Sub", np.subtract), "multiply": ("Mul", np.multiply),
    "divide": ("Div", np.divide), "maximum": ("Max", np.maximum), "minimum": ("Min", np.minimum),
    "power": ("Pow", np.power), "and": ("And", np.bitwise_and), "or": ("Or", np.bitwise_or),
    "xor": ("Xor", np.bitwise_xor),
}  # fmt: skip
DIRECTIONS: Mapping[str, tuple[str, Numpy]] = {
    "EQ": ("Equal", np.equal), "NE": ("", np.not_equal), "GT": ("Greater", np.greater),
    "GE": ("GreaterOrEqual", np.greater_equal), "LT": ("Less", np.less), "LE": ("LessOrEqual", np.less_equal),
}  # fmt: skip
BITS: Mapping[str, Numpy] = {
    "shift_left": np.left_shift, "shift_right_logical": _shift_right,
    "shift_right_arithmetic": np.right_shift,
}  # fmt: skip
BOOLS = ("and", "or", "xor", "not")
NEUTRAL = {
    "maximum": -np.inf, "minimum": np.inf, "add": 0, "subtract": 0, "multiply": 1, "divide": 1, "power": 1,
}  # fmt: skip
"""The number that changes nothing as an operand (`_unchanged`)."""


def unary(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """A function of one operand."""
    kind, function = UNARY[op.kind.rpartition(".")[2]]
    (x,) = operands
    require_bools(op, operands)
    if isinstance(x, Constant):
        return [Constant(_as(function(x.array), x.dtype))]
    return [w.together(kind, [x], x.shape, x.dtype)]


def binary(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """A function of two operands."""
    name = op.kind.rpartition(".")[2].removeprefix("broadcast_")
    kind, function = BINARY[name]
    require_bools(op, operands)
    if all(isinstance(v, Constant) for v in operands):
        arrays = [v.array for v in operands if isinstance(v, Constant)]
        if name == "divide" and arrays[0].dtype.kind in "iu":
            return [Constant(np.trunc(arrays[0] / arrays[1]).astype(arrays[0].dtype))]
        return [Constant(_as(function(*arrays), arrays[0].dtype))]
    if name == "divide" and (average := divided(w, operands)) is not None:
        return [average]
    left, right = operands
    if (only := _unchanged(name, left, right)) is not None:
        return [only]
    if name == "subtract" and isinstance(right, Constant) and right.dtype.kind == "f":
        kind, operands = "Add", [left, Constant(np.broadcast_to(-once(right.array), right.shape))]
    if (early := _before_reshape(w, kind, operands)) is not None:
        return [early]
    return [w.together(kind, operands, operands[0].shape, operands[0].dtype)]


def _unchanged(name: str, left: Value, right: Value) -> Value | None:
    """The operand that a float function gives back, as of x + 0 and x / 1."""
    pairs = ((left, right),) if name in ("subtract", "divide", "power") else ((left, right), (right, left))
    for value, number in pairs if name in NEUTRAL and left.dtype.kind == "f" else ():
        if isinstance(number, Constant) and (number.array == NEUTRAL[name]).all():
            return value
    return None


def _before_reshape(w: Writer, kind: str, operands: Sequence[Value]) -> Value | None:
    """A bias or factor per column of a MatMul, moved before the Reshape that splits the columns, as into heads."""
    constants = [v for v in operands if isinstance(v, Constant)]
    (x, *others) = [v for v in operands if isinstance(v, Computed)]
    made = w.maker(x.name, "Reshape")
    product = w.maker(made.input[0], "MatMul") if made is not None else None
    if others or made is None or product is None or x.spare or kind not in ("Add", "Mul"):
        return None
    array = once(constants[0].array).transpose(np.argsort(x.order))
    first = next((axis for axis, size in enumerate(array.shape) if size != 1), array.ndim)
    columns = w.initializers[product.input[1]].dims[-1] if product.input[1] in w.initializers else 0
    if array.shape[first:] != x.stored[first:] or array.size != columns:
        return None
    return replace(
        x, name=w.reshaped(w.node(kind, [made.input[0], w.constant(array.reshape(-1), constants[0].of)]), x.stored)
    )


def require_bools(op: Op, operands: Sequence[Value]) -> None:
    """Raises UnsupportedError for bitwise functions of integers."""
    of_bits = op.kind.rpartition(".")[2] in BOOLS and any(v.dtype != np.bool_ for v in operands)
    if of_bits and not all(isinstance(v, Constant) for v in operands):
        raise UnsupportedError("bools are required, got integers, whose bits no op combines")


def _as(array: Any, dtype: np.dtype) -> np.ndarray:
    return np.asarray(array).astype(dtype, copy=False)


def compare(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """A comparison, which gives bools."""
    kind, function = DIRECTIONS[op.word("comparison_direction")]
    if all(isinstance(v, Constant) for v in operands):
        return [Constant(np.asarray(function(*(v.array for v in operands if isinstance(v, Constant)))))]
    shape, dtype = operands[0].shape, np.dtype(np.bool_)
    if kind:
        return [w.together(kind, operands, shape, dtype)]
    return [w.together("Not", [w.together("Equal", operands, shape, dtype)], shape, dtype)]


def select(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """One of two values by a bool."""
    return [selected(w, *operands)]


def selected(w: Writer, chosen: Value, one: Value, other: Value) -> Value:
    """One of two values by a bool; a bool without axes chooses for all."""
    if isinstance(chosen, Constant):
        if chosen.array.all():
            return one
        if not chosen.array.any():
            return other
    if isinstance(chosen, Computed) and isinstance(one, Computed) and _is_filled(w, chosen, one, other):
        return one
    if chosen.shape != one.shape:
        chosen = w.broadcast(chosen, one.shape)
    if all(isinstance(v, Constant) for v in (chosen, one, other)):
        arrays = [v.array for v in (chosen, one, other) if isinstance(v, Constant)]
        return Constant(np.where(*arrays))
    return w.together("Where", [chosen, one, other], one.shape, one.dtype)


def _is_filled(w: Writer, chosen: Computed, one: Computed, other: Value) -> bool:
    """Whether it is what JAX writes for indices out of range: NaN, or the least integer, in place of an element.

    Only for indices that are inputs of the network: they must be in range, as in ONNX.
    """
    gather, both = w.maker(one.name, "Gather"), w.maker(w.source(chosen.name), "And")
    if not isinstance(other, Constant) or gather is None or both is None:
        return False
    filled = np.isnan(other.array) if other.dtype.kind == "f" else other.array == np.iinfo(other.dtype).min
    limits = [w.maker(name, kind) for name, kind in zip(both.input, ("GreaterOrEqual", "LessOrEqual"), strict=True)]
    if not filled.all() or any(limit is None for limit in limits):
        return False
    sizes = [w.number(limit.input[1]) for limit in limits if limit is not None]
    read = {w.input_of(limit.input[0], int(sizes[1] or 0) + 1) for limit in limits if limit is not None}
    return sizes[0] == 0 and read == {w.source(gather.input[1])} and "" not in read


def clamp(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """Limits below and above."""
    least, x, most = operands
    if isinstance(x, Constant) and isinstance(least, Constant) and isinstance(most, Constant):
        return [Constant(_as(np.clip(x.array, least.array, most.array), x.dtype))]
    y = w.together("Max", [w.broadcast(least, x.shape), x], x.shape, x.dtype)
    return [w.together("Min", [w.broadcast(most, x.shape), y], x.shape, x.dtype)]


def convert(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """Cast to another element type."""
    (x,), (_, dtype) = operands, type_of(op.results[0])
    if isinstance(x, Constant):
        return [Constant(x.array.astype(dtype), x.of)]
    if x.dtype == dtype or (x.dtype.kind == dtype.kind == "f"):
        return [x]
    return [w.together("Cast", [x], x.shape, dtype, to=elem_type_of(dtype))]


def composed(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """Functions that are several nodes."""
    (x,) = operands
    name = op.kind.rpartition(".")[2]
    one = Constant(np.broadcast_to(np.asarray(1, x.dtype), x.shape))

    def of(kind: str, *values: Value) -> Value:
        return w.together(kind, values, x.shape, x.dtype)

    if isinstance(x, Constant):
        return [Constant(_as(_COMPOSED[name](x.array), x.dtype))]
    match name:
        case "rsqrt":
            return [of("Reciprocal", of("Sqrt", x))]
        case "log_plus_one":
            return [of("Log", of("Add", x, one))]
        case "exponential_minus_one":
            return [of("Sub", of("Exp", x), one)]
        case "cbrt":
            return [of("Mul", of("Sign", x), of("Pow", of("Abs", x), _like(x, 1 / 3)))]
        case "round_nearest_afz":
            return [of("Mul", of("Sign", x), of("Floor", of("Add", of("Abs", x), _like(x, 0.5))))]
        case "square":
            return [of("Mul", x, x)]
        case "erfc":
            return [of("Sub", one, of("Erf", x))]
        case _:
            return [of("Erf", x)]


def _erf(x: np.ndarray) -> np.ndarray:
    from math import erf

    return np.vectorize(erf, otypes=[np.float64])(x)


def _away(x: np.ndarray) -> np.ndarray:
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


def _rsqrt(x: np.ndarray) -> np.ndarray:
    return 1 / np.sqrt(x)


def _erfc(x: np.ndarray) -> np.ndarray:
    return 1 - _erf(x)


_COMPOSED: Mapping[str, Numpy] = {
    "round_nearest_afz": _away, "square": np.square, "rsqrt": _rsqrt, "log_plus_one": np.log1p,
    "exponential_minus_one": np.expm1, "cbrt": np.cbrt, "erfc": _erfc, "erf": _erf,
}  # fmt: skip


def _like(x: Value, number: float) -> Constant:
    return Constant(np.broadcast_to(np.asarray(number, x.dtype), x.shape))


def remainder(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """The remainder with the sign of the dividend."""
    if all(isinstance(v, Constant) for v in operands):
        return [Constant(np.fmod(*(v.array for v in operands if isinstance(v, Constant))))]
    return [w.together("Mod", operands, operands[0].shape, operands[0].dtype, fmod=1)]


def is_finite(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """Whether elements are numbers, neither NaN nor infinite."""
    (x,) = operands
    if isinstance(x, Constant):
        return [Constant(np.isfinite(x.array))]
    size = w.together("Abs", [x], x.shape, x.dtype)
    return [w.together("Less", [size, _like(x, np.inf)], x.shape, np.dtype(np.bool_))]


def same(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """The operand: the network computes in f32."""
    return [operands[0]]


def bits(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """Shifts, and the bits of one type as another: of constants only, as of random numbers of a known key."""
    arrays = [v.array for v in operands if isinstance(v, Constant)]
    (shape, dtype), name = type_of(op.results[0]), op.kind.rpartition(".")[2]
    if len(arrays) < len(operands):
        raise UnsupportedError("constants are required, no op has the bits of computed numbers")
    if name in BITS:
        wide = 8 * dtype.itemsize
        inside = arrays[1].astype(np.uint64) < wide
        return [
            Constant(
                _as(np.where(inside, BITS[name](arrays[0], np.where(inside, arrays[1], 0).astype(dtype)), 0), dtype)
            )
        ]
    if arrays[0].dtype.itemsize != dtype.itemsize:
        raise UnsupportedError("types of equal size are required")
    return [Constant(np.ascontiguousarray(arrays[0]).view(dtype).reshape(shape))]


def broadcast_binary(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """A function of two operands of NumPy's broadcasting, all of them constants or of the result's shape."""
    shape, _ = type_of(op.results[0])
    whole = [w.broadcast(v, shape) if isinstance(v, Constant) or not v.shape else v for v in operands]
    if any(v.shape != shape for v in whole):
        raise UnsupportedError("operands of the result's shape, scalars or constants are required")
    return binary(w, op, whole)


FORMS: dict[str, Callable[[Writer, Op, Sequence[Value]], list[Value]]] = {
    **{f"stablehlo.{name}": unary for name in UNARY},
    **{f"stablehlo.{name}": binary for name in BINARY},
    **{f"{d}.{n}": composed for d, n in (
        ("stablehlo", "rsqrt"), ("stablehlo", "log_plus_one"), ("stablehlo", "exponential_minus_one"),
        ("stablehlo", "cbrt"), ("chlo", "erfc"), ("chlo", "erf"), ("chlo", "square"),
        ("stablehlo", "round_nearest_afz"),
    )},
    **{f"chlo.{name}": unary for name in UNARY},
    **{f"chlo.broadcast_{name}": broadcast_binary for name in BINARY},
    **{f"stablehlo.{name}": bits for name in BITS}, "stablehlo.bitcast_convert": bits,
    "stablehlo.is_finite": is_finite, "stablehlo.reduce_precision": same,
    "stablehlo.compare": compare, "stablehlo.select": select, "stablehlo.clamp": clamp, "stablehlo.convert": convert,
    "stablehlo.remainder": remainder,
}  # fmt: skip
"""Instruction -> the function that writes it."""
