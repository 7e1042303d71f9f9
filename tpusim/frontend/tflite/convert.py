"""Which ONNX nodes a TFLite op is; `onnx_of_tflite` for a whole file."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx

from tpusim.errors import ImportModelError, UnsupportedError, first_line
from tpusim.frontend.tflite.file import DAMAGE, Graph, Operator, read_tflite
from tpusim.frontend.tflite.writer import NCHW_AXIS, Writer

SAME = 0
"""`Padding.SAME` of the schema: pads so that the result has ceil(input / stride) rows."""
ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH")
"""`ActivationFunctionType` of the schema, by number."""


def onnx_of_tflite(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """The network of a file as a QDQ model.

    Raises ConfigError without the package `tflite`, ImportModelError for a damaged file, UnsupportedError with one line
    per kind of op that cannot be taken.
    """
    label = f"model '{os.fspath(path)}'"
    try:
        return _written(read_tflite(path), label)
    except DAMAGE as error:
        raise ImportModelError(f"{label}: an op lacks operands, results or options ({first_line(error)})") from error


def _written(graph: Graph, label: str) -> onnx.ModelProto:
    refused: dict[str, list[str]] = {}
    writer = Writer(graph)
    for op in graph.operators:
        if why := _tried(writer, op):
            refused.setdefault(f"{op.kind}: {why}", []).append(graph.tensors[op.outputs[0]].name)
    if not refused:
        return writer.model()
    lines = [f"  {why} ({len(names)}, first '{names[0]}')" for why, names in refused.items()]
    raise UnsupportedError("\n".join([f"{label}: {len(lines)} kinds of op are not supported:", *lines]))


def _tried(writer: Writer, op: Operator) -> str:
    """Write an op; why it cannot be, "" if it could. What is behind one that cannot is looked at too."""
    why = "tpusim has no such op"
    try:
        if op.kind in OPS:
            OPS[op.kind](writer, op)
            return ""
    except UnsupportedError as error:
        why = str(error)
    for number in op.outputs:
        writer.stand_in(number)
    return why


def _activated(w: Writer, op: Operator, number: int) -> str:
    """The name that the op itself writes to, with its fused activation function behind it."""
    target = w.target(op.outputs[0])
    if not 0 <= number < len(ACTIVATIONS):
        known = ", ".join(f"{i} ({name})" for i, name in enumerate(ACTIVATIONS))
        raise UnsupportedError(
            f"fused activation function {number} is not one of {known}; convert the model with the activation as an op"
        )
    return target if number == 0 else f"{target}_linear"


def _activate(w: Writer, op: Operator, number: int, *, images: bool = True) -> None:
    """The fused activation function, and the end of the op."""
    target = w.target(op.outputs[0])
    if number:
        _function(w, ACTIVATIONS[number], f"{target}_linear", target)
    w.done(op.outputs[0], images=images)


CLIPS = {"RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0)}
FUNCTIONS = {"RELU": "Relu", "LOGISTIC": "Sigmoid", "TANH": "Tanh", "HARD_SWISH": "HardSwish"}


def _function(w: Writer, kind: str, x: str, y: str) -> None:
    if kind in CLIPS:
        least, most = (np.array(end, np.float32) for end in CLIPS[kind])
        w.node("Clip", [x, w.array(f"{y}_least", least), w.array(f"{y}_most", most)], y)
    else:
        w.node(FUNCTIONS[kind], [x], y)


def _unary(w: Writer, op: Operator) -> None:
    _function(w, op.kind, w.value(op.inputs[0], images=True), w.target(op.outputs[0]))
    w.done(op.outputs[0], images=True)


def _image(w: Writer, number: int) -> tuple[int, ...]:
    shape = w.tensor(number).shape
    if len(shape) != 4:
        raise UnsupportedError(f"an image of four axes is required, got {shape}")
    return shape


def _window(
    shape: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], padding: int
) -> dict[str, Any]:
    """Attributes of a window over NHWC; SAME gives the odd row to the end."""
    if min(*strides, *dilations) < 1:
        raise UnsupportedError(f"strides and dilations of 1 and more are required, got {strides} and {dilations}")
    before, after = [0, 0], [0, 0]
    for i in range(2 if padding == SAME else 0):
        steps = -(-shape[1 + i] // strides[i])
        total = max((steps - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 - shape[1 + i], 0)
        before[i], after[i] = total // 2, total - total // 2
    return {"kernel_shape": list(kernel), "strides": list(strides), "pads": [*before, *after]}


def _convolution(w: Writer, op: Operator) -> None:
    """Filters (oc, h, w, ic), of a depthwise one (1, h, w, oc)."""
    x, o = op.inputs[0], op.options
    filter, deep = w.tensor(op.inputs[1]), op.kind == "DEPTHWISE_CONV_2D"
    if filter.data is None:
        raise UnsupportedError("a constant filter is required")
    shape, kernel = _image(w, x), _image(w, op.inputs[1])[1:3]
    dilations = (o.DilationHFactor(), o.DilationWFactor())
    attributes = _window(shape, kernel, (o.StrideH(), o.StrideW()), dilations, o.Padding())
    order = (3, 0, 1, 2) if deep else (0, 3, 1, 2)
    data = filter.data.transpose(order)
    weight = w.constant(op.inputs[1], data, 0, "oihw")
    bias = [w.value(op.inputs[2], images=False)] if len(op.inputs) > 2 and op.inputs[2] >= 0 else []
    group, activation = shape[3] // data.shape[1], o.FusedActivationFunction()
    target = _activated(w, op, activation)
    w.node(
        "Conv", [w.value(x, images=True), weight, *bias], target, dilations=list(dilations), group=group, **attributes
    )
    _activate(w, op, activation)


def _fully_connected(w: Writer, op: Operator) -> None:
    """X (..., ic) by (oc, ic)."""
    weight, o = w.tensor(op.inputs[1]), op.options
    if weight.data is None or len(weight.shape) != 2 or o.WeightsFormat():
        raise UnsupportedError("a constant matrix in the plain form is required")
    y, activation = op.outputs[0], o.FusedActivationFunction()
    x, width, given = w.value(op.inputs[0], images=False), weight.shape[-1], w.tensor(op.inputs[0]).shape
    if len(given) != 2 or given[-1] != width:
        rows = w.array(f"{w.target(y)}_rows", np.array([-1, width]))
        x = w.node("Reshape", [x, rows], f"{w.target(y)}_input")
    matrix = w.constant(op.inputs[1], weight.data, 0)
    bias = [w.value(op.inputs[2], images=False)] if len(op.inputs) > 2 and op.inputs[2] >= 0 else []
    target, shape = _activated(w, op, activation), w.tensor(y).shape
    product = target if len(shape) == 2 else f"{target}_product"
    w.node("Gemm", [x, matrix, *bias], product, transB=1)
    if product != target:
        w.node("Reshape", [product, w.array(f"{target}_shape", np.array(shape))], target)
    _activate(w, op, activation, images=False)


def _pair(w: Writer, op: Operator) -> None:
    """Sums, differences and products with broadcasting from the last axis of NHWC."""
    rank = len(w.tensor(op.outputs[0]).shape)
    names = [_operand(w, number, rank) for number in op.inputs[:2]]
    activation = op.options.FusedActivationFunction() if op.options is not None else 0
    w.node({"ADD": "Add", "SUB": "Sub", "MUL": "Mul"}[op.kind], names, _activated(w, op, activation))
    _activate(w, op, activation)


def _operand(w: Writer, number: int, rank: int) -> str:
    """As NCHW; a constant of fewer axes gets those it lacks in front first."""
    tensor = w.tensor(number)
    if rank != 4 or len(tensor.shape) == 4:
        return w.value(number, images=True)
    if tensor.data is None:
        raise UnsupportedError(f"operands of one rank are required, '{tensor.name}' has {len(tensor.shape)}")
    wide = tensor.data.reshape((1,) * (4 - tensor.data.ndim) + tensor.data.shape)
    return w.constant(number, wide.transpose(0, 3, 1, 2), 1, "nchw")


def _pool(w: Writer, op: Operator) -> None:
    o, shape = op.options, _image(w, op.inputs[0])
    attributes = _window(shape, (o.FilterHeight(), o.FilterWidth()), (o.StrideH(), o.StrideW()), (1, 1), o.Padding())
    target = _activated(w, op, o.FusedActivationFunction())
    kind = "MaxPool" if op.kind == "MAX_POOL_2D" else "AveragePool"
    w.node(kind, [w.value(op.inputs[0], images=True)], target, **attributes)
    _activate(w, op, o.FusedActivationFunction())


def _softmax(w: Writer, op: Operator) -> None:
    if op.options.Beta() != 1.0:
        raise UnsupportedError(f"beta 1 is required, got {op.options.Beta()}")
    axis = 1 if len(w.tensor(op.inputs[0]).shape) == 4 else -1
    w.node("Softmax", [w.value(op.inputs[0], images=True)], w.target(op.outputs[0]), axis=axis)
    w.done(op.outputs[0], images=True)


def _reshape(w: Writer, op: Operator) -> None:
    """Reshape, Squeeze, ExpandDims: the result's shape says it all."""
    y = op.outputs[0]
    shape = w.array(f"{w.target(y)}_shape", np.array(w.tensor(y).shape, np.int64))
    w.node("Reshape", [w.value(op.inputs[0], images=False), shape], w.target(y))
    w.done(y, images=False)


def _transpose(w: Writer, op: Operator) -> None:
    order = [int(n) for n in w.integers(op.inputs[1]).reshape(-1)]
    w.node("Transpose", [w.value(op.inputs[0], images=False)], w.target(op.outputs[0]), perm=order)
    w.done(op.outputs[0], images=False)


def _pad(w: Writer, op: Operator) -> None:
    amounts = w.integers(op.inputs[1]).reshape(-1, 2)
    if len(amounts) == 4:
        amounts = amounts[[0, 3, 1, 2]]
    pads = w.array(f"{w.target(op.outputs[0])}_pads", amounts.T.reshape(-1))
    w.node("Pad", [w.value(op.inputs[0], images=True), pads], w.target(op.outputs[0]))
    w.done(op.outputs[0], images=True)


def _concat(w: Writer, op: Operator) -> None:
    rank, o = len(w.tensor(op.outputs[0]).shape), op.options
    axis = o.Axis() % rank
    target = _activated(w, op, o.FusedActivationFunction())
    names = [w.value(number, images=True) for number in op.inputs]
    w.node("Concat", names, target, axis=NCHW_AXIS[axis] if rank == 4 else axis)
    _activate(w, op, o.FusedActivationFunction())


def _resize(w: Writer, op: Operator) -> None:
    """Half-pixel centres, aligned corners, or neither; nearest takes the pixel that a point lies in."""
    o, target = op.options, w.target(op.outputs[0])
    n, h, wide, c = _image(w, op.outputs[0])
    mode = "align_corners" if o.AlignCorners() else "half_pixel" if o.HalfPixelCenters() else "asymmetric"
    sizes = w.array(f"{target}_sizes", np.array([n, c, h, wide], np.int64))
    nearest = op.kind == "RESIZE_NEAREST_NEIGHBOR"
    rounding = {"nearest_mode": "floor" if mode == "asymmetric" else "round_prefer_ceil"} if nearest else {}
    w.node(
        "Resize", [w.value(op.inputs[0], images=True), "", "", sizes], target,
        mode="nearest" if nearest else "linear", coordinate_transformation_mode=mode, **rounding,
    )  # fmt: skip
    w.done(op.outputs[0], images=True)


def _mean(w: Writer, op: Operator) -> None:
    """Over height and width of an image where it is; any other axes in the file's order."""
    rank, keep = len(w.tensor(op.inputs[0]).shape), int(op.options.KeepDims())
    axes = sorted({int(a) % rank for a in w.integers(op.inputs[1]).reshape(-1)})
    images = rank == 4 and axes == [1, 2]
    x = w.value(op.inputs[0], images=images)
    axes = [2, 3] if images else axes
    w.node("ReduceMean", [x], w.target(op.outputs[0]), axes=axes, keepdims=keep)
    w.done(op.outputs[0], images=images)


def _requantised(w: Writer, op: Operator) -> None:
    """Quantize and Dequantize: the same numbers; the result has a pair of its own."""
    w.node("Identity", [w.value(op.inputs[0], images=True)], w.target(op.outputs[0]))
    w.done(op.outputs[0], images=True)


OPS: dict[str, Callable[[Writer, Operator], None]] = {
    "CONV_2D": _convolution, "DEPTHWISE_CONV_2D": _convolution, "FULLY_CONNECTED": _fully_connected,
    "ADD": _pair, "SUB": _pair, "MUL": _pair, "AVERAGE_POOL_2D": _pool, "MAX_POOL_2D": _pool, "SOFTMAX": _softmax,
    "RESHAPE": _reshape, "SQUEEZE": _reshape, "EXPAND_DIMS": _reshape, "TRANSPOSE": _transpose, "PAD": _pad,
    "CONCATENATION": _concat, "RELU": _unary, "RELU6": _unary, "RELU_N1_TO_1": _unary, "LOGISTIC": _unary,
    "TANH": _unary, "HARD_SWISH": _unary, "RESIZE_BILINEAR": _resize, "RESIZE_NEAREST_NEIGHBOR": _resize,
    "MEAN": _mean, "QUANTIZE": _requantised, "DEQUANTIZE": _requantised,
}  # fmt: skip
"""TFLite op -> who writes it."""
