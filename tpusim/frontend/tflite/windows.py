"""Windows over images: convolutions, pools, resizing, blocks of pixels."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tpusim.errors import UnsupportedError
from tpusim.frontend.tflite.activation import activate, activated
from tpusim.frontend.tflite.file import Operator
from tpusim.frontend.tflite.writer import Writer

SAME = 0
"""`Padding.SAME` of the schema: pads so that the result has ceil(input / stride) rows."""


def image(w: Writer, number: int) -> tuple[int, ...]:
    """The extents of an image as NHWC. Raises UnsupportedError for another rank."""
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


def _strides(op: Operator) -> tuple[int, int]:
    return op.option("StrideH", 0), op.option("StrideW", 0)


def _filter(w: Writer, number: int, order: Sequence[int], axis: int = 0) -> str:
    """A filter with its axes in ONNX's order; axis: the axis of several scales in that order."""
    tensor = w.tensor(number)
    if tensor.data is not None:
        return w.constant(number, tensor.data.transpose(order), axis, "oihw")
    return w.node("Transpose", [w.value(number, images=False)], f"{tensor.name}_oihw", perm=list(order))


def _bias(w: Writer, op: Operator, place: int) -> list[str]:
    given = len(op.inputs) > place and op.inputs[place] >= 0
    return [w.value(op.inputs[place], images=False)] if given else []


def convolution(w: Writer, op: Operator) -> None:
    """Filters (oc, h, w, ic), of a depthwise one (1, h, w, oc)."""
    x, deep = op.inputs[0], op.kind == "DEPTHWISE_CONV_2D"
    shape, filter = image(w, x), image(w, op.inputs[1])
    dilations = (op.option("DilationHFactor", 1), op.option("DilationWFactor", 1))
    attributes = _window(shape, filter[1:3], _strides(op), dilations, op.option("Padding", SAME))
    weight = _filter(w, op.inputs[1], (3, 0, 1, 2) if deep else (0, 3, 1, 2))
    group = shape[3] if deep else shape[3] // filter[3]
    w.node(
        "Conv", [w.value(x, images=True), weight, *_bias(w, op, 2)], activated(w, op),
        dilations=list(dilations), group=group, **attributes,
    )  # fmt: skip
    activate(w, op)


def transposed_convolution(w: Writer, op: Operator) -> None:
    """TransposeConv: operands are the result's extents, filters (oc, h, w, ic) and x."""
    x, y, strides = op.inputs[2], op.outputs[0], _strides(op)
    given, made, filter = image(w, x), image(w, y), image(w, op.inputs[1])
    if min(strides) < 1:
        raise UnsupportedError(f"strides of 1 and more are required, got {strides}")
    before, after, more = [0, 0], [0, 0], [0, 0]
    for i, (stride, size, out, kernel) in enumerate(zip(strides, given[1:3], made[1:3], filter[1:3], strict=True)):
        whole = (size - 1) * stride + kernel
        total = max(whole - out, 0) if op.option("Padding", SAME) == SAME else 0
        before[i], after[i], more[i] = total // 2, total - total // 2, out - whole + total
    if min(more) < 0 or any(m >= s for m, s in zip(more, strides, strict=True)):
        raise UnsupportedError(f"extents that the strides give are required, got {made[1:3]} of {given[1:3]}")
    w.node(
        "ConvTranspose", [w.value(x, images=True), _filter(w, op.inputs[1], (3, 0, 1, 2), 1), *_bias(w, op, 3)],
        activated(w, op), kernel_shape=list(filter[1:3]), strides=list(strides), pads=[*before, *after],
        output_padding=more,
    )  # fmt: skip
    activate(w, op)


def pool(w: Writer, op: Operator) -> None:
    """The largest, the mean, or the root of the mean of squares of each window; pads do not count."""
    shape, target = image(w, op.inputs[0]), activated(w, op)
    kernel = op.option("FilterHeight", 0), op.option("FilterWidth", 0)
    attributes = _window(shape, kernel, _strides(op), (1, 1), op.option("Padding", SAME))
    x = w.value(op.inputs[0], images=True)
    if op.kind == "L2_POOL_2D":
        squares = w.node("Mul", [x, x], f"{target}_squares")
        w.node("Sqrt", [w.node("AveragePool", [squares], f"{target}_mean", **attributes)], target)
    else:
        w.node("MaxPool" if op.kind == "MAX_POOL_2D" else "AveragePool", [x], target, **attributes)
    activate(w, op)


def resize(w: Writer, op: Operator) -> None:
    """Half-pixel centres, aligned corners, or neither; nearest takes the pixel that a point lies in."""
    target = w.target(op.outputs[0])
    n, h, wide, c = image(w, op.outputs[0])
    aligned, half = op.option("AlignCorners", 0), op.option("HalfPixelCenters", 0)
    mode = "align_corners" if aligned else "half_pixel" if half else "asymmetric"
    sizes = w.array(f"{target}_sizes", np.array([n, c, h, wide], np.int64))
    nearest = op.kind == "RESIZE_NEAREST_NEIGHBOR"
    rounding = {"nearest_mode": "floor" if mode == "asymmetric" else "round_prefer_ceil"} if nearest else {}
    w.node(
        "Resize", [w.value(op.inputs[0], images=True), "", "", sizes], target,
        mode="nearest" if nearest else "linear", coordinate_transformation_mode=mode, **rounding,
    )  # fmt: skip
    w.done(op.outputs[0], images=True)


def blocks(w: Writer, op: Operator) -> None:
    """Blocks of pixels from channels, or channels from blocks; the place in a block counts before the channel."""
    kind = "DepthToSpace" if op.kind == "DEPTH_TO_SPACE" else "SpaceToDepth"
    w.node(kind, [w.value(op.inputs[0], images=True)], w.target(op.outputs[0]), blocksize=op.option("BlockSize", 1))
    w.done(op.outputs[0], images=True)
