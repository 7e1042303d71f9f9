"""ONNX nodes of quantised arithmetic, computed exactly with integers stored in floats."""

from collections.abc import Callable

import numpy as np
from onnx import TensorProto, helper

from tpusim.frontend.onnx.model_file import NUMBERS, type_text
from tpusim.frontend.onnx.parts import Parts

FLOAT = TensorProto.FLOAT


def _along(p: Parts, name: str, shape: tuple[int, ...], rank: int, axis: int) -> str:
    """A parameter per channel with the rank of its tensor."""
    if len(shape) != 1 or shape == (1,):
        return name
    return p.reshape(name, *[shape[0] if a == axis % rank else 1 for a in range(rank)])


def _parameter(p: Parts, index: int, x: tuple[int, ...], axis: int, block: int) -> str:
    """A scale or zero point in f32 that broadcasts with the operand."""
    shape, name = p.node.shape(index), p.op("Cast", p.input(index), to=FLOAT)
    if block and len(shape) == len(x):
        axis %= len(x)
        parts = p.op("Unsqueeze", name, np.array([axis + 1]))
        wide = p.op("Expand", parts, np.array([*shape[: axis + 1], block, *shape[axis + 1 :]]))
        name = p.reshape(wide, *shape[:axis], shape[axis] * block, *shape[axis + 1 :])
        return p.op("Slice", name, np.array([0]), np.array([x[axis]]), np.array([axis]))
    return _along(p, name, shape, len(x), axis)


def quantize(p: Parts) -> None:
    """Round half to even of x / scale, plus the zero point, saturated."""
    target = p.node.tensors.types.of(p.node.output)
    dtype, x = NUMBERS.get(target), p.node.shape(0)
    axis, block = int(p.node.take("axis", 1)), int(p.node.take("block_size", 0))
    for key in ("output_dtype", "saturate", "precision"):
        p.node.take(key)
    if dtype is None or dtype.kind not in "iu":
        raise ValueError(f"a result of 8 or 16 bits is required, got {type_text(target)}")
    scaled = p.op("Div", p.op("Cast", p.x, to=FLOAT), _parameter(p, 1, x, axis, block))
    y = p.op("Round", scaled)
    if p.input(2):
        y = p.op("Add", y, _parameter(p, 2, x, axis, block))
    p.result("Cast", _saturated(p, y, dtype), to=target)


def _saturated(p: Parts, x: str, dtype: np.dtype) -> str:
    limits = np.iinfo(dtype)
    return p.op("Clip", x, np.float32(limits.min), np.float32(limits.max))


def dequantize(p: Parts) -> None:
    """(x - zero point) * scale."""
    x, axis, block = p.node.shape(0), int(p.node.take("axis", 1)), int(p.node.take("block_size", 0))
    p.node.take("output_dtype")
    y = p.op("Cast", p.x, to=FLOAT)
    if p.input(2):
        y = p.op("Sub", y, _parameter(p, 2, x, axis, block))
    y = p.op("Mul", y, _parameter(p, 1, x, axis, block))
    p.result("Cast", y, to=p.node.tensors.types.of(p.node.output))


def _centred(p: Parts, index: int, zero: int, axis: int = 0) -> str:
    """An integer operand less its zero point, as f32."""
    x = p.op("Cast", p.input(index), to=FLOAT)
    if not p.input(zero):
        return x
    point = p.op("Cast", p.input(zero), to=FLOAT)
    return p.op("Sub", x, _along(p, point, p.node.shape(zero), len(p.node.shape(index)), axis))


def matmul_integer(p: Parts) -> None:
    """Products of integers less their zero points; those of the left operand are per row."""
    left = _centred(p, 0, 2, len(p.node.shape(0)) - 2)
    y = p.op("MatMul", left, _centred(p, 1, 3, len(p.node.shape(1)) - 1))
    p.result("Cast", y, to=TensorProto.INT32)


def conv_integer(p: Parts) -> None:
    """A Conv of integers less their zero points."""
    y = p.op("Conv", _centred(p, 0, 2), _centred(p, 1, 3), **_window(p))
    p.result("Cast", y, to=TensorProto.INT32)


def _window(p: Parts) -> dict[str, object]:
    keys = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    return {key: p.node.take(key) for key in keys}


def qlinear_matmul(p: Parts) -> None:
    """QLinearMatMul: a MatMul of dequantised operands, quantised."""
    rank = len(p.node.shape(0)), len(p.node.shape(3))
    left = p.op("Mul", _centred(p, 0, 2, rank[0] - 2), _scale(p, 1, rank[0], rank[0] - 2))
    right = p.op("Mul", _centred(p, 3, 5, rank[1] - 1), _scale(p, 4, rank[1], rank[1] - 1))
    _requantised(p, p.op("MatMul", left, right), 6)


def _scale(p: Parts, index: int, rank: int, axis: int) -> str:
    name = p.op("Cast", p.input(index), to=FLOAT)
    return _along(p, name, p.node.shape(index), rank, axis)


def qlinear_conv(p: Parts) -> None:
    """QLinearConv: a Conv of dequantised operands, quantised."""
    x = p.op("Mul", _centred(p, 0, 2), _scale(p, 1, 4, 1))
    rank = len(p.node.shape(3))
    w = p.op("Mul", _centred(p, 3, 5, 0), _scale(p, 4, rank, 0))
    y = p.op("Conv", x, w, **_window(p))
    if p.input(8):
        step = p.op("Mul", _scale(p, 1, 1, 0), _scale(p, 4, 1, 0))
        bias = p.op("Mul", p.op("Cast", p.input(8), to=FLOAT), step)
        y = p.op("Add", y, p.reshape(bias, 1, -1, *[1] * (rank - 2)))
    _requantised(p, y, 6)


def _requantised(p: Parts, y: str, scale: int) -> None:
    target = p.node.tensors.types.of(p.node.output)
    dtype = helper.tensor_dtype_to_np_dtype(target)
    y = p.op("Round", p.op("Div", y, p.op("Cast", p.input(scale), to=FLOAT)))
    y = p.op("Add", y, p.op("Cast", p.input(scale + 1), to=FLOAT))
    p.result("Cast", _saturated(p, y, dtype), to=target)


DECOMPOSITIONS: dict[str, Callable[[Parts], None]] = {
    "QuantizeLinear": quantize, "DequantizeLinear": dequantize, "MatMulInteger": matmul_integer,
    "ConvInteger": conv_integer, "QLinearMatMul": qlinear_matmul, "QLinearConv": qlinear_conv,
}  # fmt: skip
