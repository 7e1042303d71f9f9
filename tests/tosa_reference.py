"""TOSA 1.0 in NumPy, op by op after the specification, with its error conditions: what the tests run exports on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import erf
from typing import Any, cast

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import DenseArrayBase, DenseIntOrFPElementsAttr, FloatAttr, IntegerAttr
from xdsl.ir import Block, SSAValue

from tpusim.studies.export.tosa import TosaModule, as_given, as_stored

DTYPES = {
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "f32": np.float32, "f16": np.float16, "i1": np.bool_,
    "bf16": ml_dtypes.bfloat16,
}  # fmt: skip


def computed(tosa: TosaModule, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The results by name, of inputs as the module stores them."""
    (function,) = cast("list[Any]", list(tosa.module.ops))
    block: Block = function.regions[0].block
    last = block.last_op
    assert last is not None and last.name == "func.return"
    made = run(block, [as_given(feeds[p.name]) for p in tosa.inputs], last.operands)
    return {p.name: as_stored(y, p) for p, y in zip(tosa.results, made, strict=True)}


def run(block: Block, arguments: Sequence[np.ndarray], results: Sequence[SSAValue]) -> list[np.ndarray]:
    """The values of a block of TOSA ops."""
    values: dict[Any, Any] = dict(zip(block.args, arguments, strict=True))
    for op in cast("list[Any]", list(block.ops)):
        kind, operands = op.name.removeprefix("tosa."), [values[v] for v in op.operands]
        properties = {key: _plain(value) for key, value in op.properties.items()}
        if kind == "const_shape":
            values[op.results[0]] = tuple(op.properties["values"].get_values())
        elif op.results:
            shape, dtype = op.results[0].type.get_shape(), np.dtype(DTYPES[str(op.results[0].type.element_type)])
            constant = kind == "const"
            y = _constant(op.properties["values"], shape, dtype) if constant else OPS[kind](operands, properties, dtype)
            y = values[op.results[0]] = np.asarray(y)
            assert (y.shape, y.dtype) == (shape, dtype), (kind, y.shape, shape, y.dtype, dtype)
    return [values[v] for v in results]


def _plain(value: Any) -> Any:
    if isinstance(value, DenseArrayBase):
        return tuple(value.get_values())
    if isinstance(value, IntegerAttr | FloatAttr):
        return value.value.data
    return value


def _constant(values: DenseIntOrFPElementsAttr, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    flat = np.frombuffer(values.data.data, dtype)
    return np.broadcast_to(flat, shape) if flat.size == 1 else flat.reshape(shape)


def apply_scale_32(value: np.ndarray, multiplier: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Half up in 64 bits, for values that the shift allows."""
    assert (multiplier >= 0).all() and (shift >= 2).all() and (shift <= 62).all()
    assert (value >= -(1 << (shift - 1))).all() and (value < (1 << (shift - 1))).all()
    found = (value * multiplier + (np.int64(1) << (shift - 1))) >> shift
    assert np.abs(found).max(initial=0) < 1 << 31
    return found


def rescale(operands: list[np.ndarray], properties: Mapping[str, Any], dtype: np.dtype) -> np.ndarray:
    x, multiplier, shift, zero_in, zero_out = (o.astype(np.int64) for o in operands)
    assert properties["scale32"] and str(properties["rounding_mode"].data) == "SINGLE_ROUND"
    assert operands[0].dtype == np.int8 or not zero_in.any()
    assert dtype == np.int8 or not zero_out.any()
    assert multiplier.size == (x.shape[-1] if properties["per_channel"] else 1) == shift.size
    ends = np.iinfo(dtype)
    return np.clip(apply_scale_32(x - zero_in, multiplier, shift) + zero_out, ends.min, ends.max).astype(dtype)


def windows(x: np.ndarray, kernel: Sequence[int], properties: Mapping[str, Any], value: float) -> np.ndarray:
    """(n, places ..., c, kernel ...) of x (n, axes ..., c); strides must fit."""
    axes = len(kernel)
    pads, strides, dilations = properties["pad"], properties["stride"], properties.get("dilation", (1,) * axes)
    sides = [(0, 0), *((pads[2 * i], pads[2 * i + 1]) for i in range(axes)), (0, 0)]
    assert min(pads) >= 0
    x = np.pad(x, sides, constant_values=value)
    for i, (size, stride, dilation) in enumerate(zip(kernel, strides, dilations, strict=True)):
        assert (x.shape[1 + i] - (size - 1) * dilation - 1) % stride == 0
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    views = np.lib.stride_tricks.sliding_window_view(x, reach, axis=tuple(range(1, 1 + axes)))
    index = (
        slice(None),
        *(slice(None, None, s) for s in strides),
        slice(None),
        *(slice(None, None, d) for d in dilations),
    )
    return views[index]


def conv(operands: list[np.ndarray], properties: Mapping[str, Any], dtype: np.dtype) -> np.ndarray:
    x, w, bias, zero_x, zero_w = operands
    wide = np.float64 if dtype == np.float32 else np.int64
    axes = w.ndim - 2
    views = windows(x.astype(wide) - zero_x, w.shape[1:-1], properties, 0)
    filter = (w.astype(wide) - zero_w).transpose(axes + 1, *range(1, axes + 1), 0)
    return _sum32(np.tensordot(views, filter, axes + 1) + bias, dtype)


def depthwise(operands: list[np.ndarray], properties: Mapping[str, Any], dtype: np.dtype) -> np.ndarray:
    x, w, bias, zero_x, zero_w = operands
    wide = np.float64 if dtype == np.float32 else np.int64
    views = windows(x.astype(wide) - zero_x, w.shape[:2], properties, 0)
    y = np.einsum("nhwcij,ijcm->nhwcm", views, w.astype(wide) - zero_w)
    return _sum32(y.reshape(*y.shape[:3], -1) + bias, dtype)


def _sum32(y: np.ndarray, dtype: np.dtype) -> np.ndarray:
    assert dtype != np.int32 or np.abs(y).max(initial=0) < 1 << 31
    return y.astype(dtype)


def matmul(operands: list[np.ndarray], properties: Mapping[str, Any], dtype: np.dtype) -> np.ndarray:
    x, w, zero_x, zero_w = operands
    assert x.ndim == w.ndim == 3 and x.shape[0] == w.shape[0]
    wide = np.float64 if dtype == np.float32 else np.int64
    return _sum32((x.astype(wide) - zero_x) @ (w.astype(wide) - zero_w), dtype)


def max_pool(operands: list[np.ndarray], properties: Mapping[str, Any], dtype: np.dtype) -> np.ndarray:
    (x,) = operands
    assert all(p < properties["kernel"][i // 2] for i, p in enumerate(properties["pad"]))
    lowest = np.iinfo(dtype).min if dtype.kind == "i" else -np.inf
    return windows(x, properties["kernel"], properties, lowest).max(axis=(-2, -1)).astype(dtype)


def _i32(y: np.ndarray) -> np.ndarray:
    assert y.dtype != np.int64 or np.abs(y).max(initial=0) < 1 << 31
    return y.astype(np.int32) if y.dtype == np.int64 else y


def _pair(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    def run(operands: list[np.ndarray], properties: Mapping[str, Any], dtype: np.dtype) -> np.ndarray:
        a, b = operands
        assert a.ndim == b.ndim and a.dtype == b.dtype and a.dtype in (np.int32, np.float32, np.bool_)
        wide = (a.astype(np.int64), b.astype(np.int64)) if a.dtype == np.int32 else (a, b)
        return _i32(function(*wide))

    return run


def mul(operands: list[np.ndarray], properties: Mapping[str, Any], dtype: np.dtype) -> np.ndarray:
    a, b, shift = operands
    assert not shift.any()
    return _pair(np.multiply)([a, b], properties, dtype)


def intdiv(operands: list[np.ndarray], properties: Mapping[str, Any], dtype: np.dtype) -> np.ndarray:
    a, b = (o.astype(np.int64) for o in operands)
    return (np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(np.int32)


def table(operands: list[np.ndarray], properties: Mapping[str, Any], dtype: np.dtype) -> np.ndarray:
    x, entries = operands
    assert x.dtype == np.int8 and entries.shape == (256,)
    return entries[x.astype(np.int64) + 128]


def converted(operands: list[np.ndarray], properties: Mapping[str, Any], dtype: np.dtype) -> np.ndarray:
    (x,) = operands
    if dtype.kind == "i" and x.dtype.kind == "f":
        return np.clip(np.rint(x.astype(np.float64)), np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)
    return x.astype(dtype)


def gather(operands: list[np.ndarray], properties: Mapping[str, Any], dtype: np.dtype) -> np.ndarray:
    rows, places = operands
    assert rows.ndim == 3 and places.dtype == np.int32 and (places >= 0).all() and (places < rows.shape[1]).all()
    return np.take_along_axis(rows, places[:, :, None].astype(np.int64), axis=1)


def pad(operands: list[Any], properties: Mapping[str, Any], dtype: np.dtype) -> np.ndarray:
    x, sides, value = operands
    return np.pad(x, np.reshape(sides, (-1, 2)), constant_values=value[0])


def clamp(operands: list[np.ndarray], properties: Mapping[str, Any], dtype: np.dtype) -> np.ndarray:
    assert dtype in (np.int8, np.int16, np.float32)
    return np.clip(operands[0], dtype.type(properties["min_val"]), dtype.type(properties["max_val"]))


def _float(function: Callable[[np.ndarray], np.ndarray]) -> Callable[..., np.ndarray]:
    def run(operands: list[np.ndarray], properties: Mapping[str, Any], dtype: np.dtype) -> np.ndarray:
        (x,) = operands
        assert x.dtype == np.float32
        with np.errstate(all="ignore"):
            return np.asarray(function(x.astype(np.float64))).astype(np.float32)

    return run


def _reduced(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    def run(operands: list[np.ndarray], properties: Mapping[str, Any], dtype: np.dtype) -> np.ndarray:
        (x,) = operands
        wide = np.float64 if dtype == np.float32 else np.int64
        return _sum32(function(x.astype(wide), axis=properties["axis"], keepdims=True), dtype)

    return run


def reduce_slice(operands: list[Any], properties: Mapping[str, Any], dtype: np.dtype) -> np.ndarray:
    x, starts, sizes = operands
    y = x[tuple(slice(a, a + n) for a, n in zip(starts, sizes, strict=True))]
    assert y.shape == tuple(sizes)
    return y


OPS: Mapping[str, Callable[..., Any]] = {
    "rescale": rescale, "conv2d": conv, "conv3d": conv, "depthwise_conv2d": depthwise, "matmul": matmul,
    "max_pool2d": max_pool, "mul": mul, "intdiv": intdiv, "table": table, "cast": converted, "gather": gather,
    "pad": pad,
    "clamp": clamp, "slice": reduce_slice,
    "add": _pair(np.add), "sub": _pair(np.subtract), "maximum": _pair(np.maximum), "minimum": _pair(np.minimum),
    "pow": _pair(np.power), "equal": _pair(np.equal), "greater": _pair(np.greater),
    "greater_equal": _pair(np.greater_equal), "logical_and": _pair(np.logical_and), "logical_or": _pair(np.logical_or),
    "logical_xor": _pair(np.logical_xor),
    "arithmetic_right_shift": lambda o, h, d: o[0] >> o[1],
    "logical_left_shift": lambda o, h, d: o[0] << o[1],
    "logical_not": lambda o, h, d: ~o[0],
    "select": lambda o, h, d: np.where(*o),
    "abs": lambda o, h, d: np.abs(o[0]),
    "ceil": _float(np.ceil), "floor": _float(np.floor), "exp": _float(np.exp), "log": _float(np.log),
    "reciprocal": _float(np.reciprocal), "rsqrt": _float(lambda x: 1 / np.sqrt(x)), "sin": _float(np.sin),
    "cos": _float(np.cos), "tanh": _float(np.tanh), "sigmoid": _float(lambda x: 1 / (1 + np.exp(-x))),
    "erf": _float(np.vectorize(erf, otypes=[np.float64])),
    "reduce_sum": _reduced(np.sum), "reduce_max": _reduced(np.max), "reduce_min": _reduced(np.min),
    "reduce_product": _reduced(np.prod),
    "argmax": lambda o, h, d: np.argmax(o[0], axis=h["axis"]).astype(np.int32),
    "reshape": lambda o, h, d: o[0].reshape(o[1]),
    "transpose": lambda o, h, d: o[0].transpose(h["perms"]),
    "concat": lambda o, h, d: np.concatenate(o, axis=h["axis"]),
    "tile": lambda o, h, d: np.tile(*o),
    "reverse": lambda o, h, d: np.flip(o[0], h["axis"]),
}  # fmt: skip
