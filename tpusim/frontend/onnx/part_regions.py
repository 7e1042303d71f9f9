"""Regions of images: RoiAlign as products with the weights of its sampling points."""

from collections.abc import Callable

import numpy as np

from tpusim.frontend.onnx.parts import Parts

INT = np.int64


def f32(value: object) -> np.ndarray:
    """The array of numbers in f32."""
    return np.array(value, np.float32)


def roi_align(p: Parts) -> None:
    """Average of bilinear samples: rows and columns are weighted apart, so a region is rows x image x columns."""
    half = (
        str(p.node.take("coordinate_transformation_mode", "half_pixel" if p.node.opset >= 16 else "")) == "half_pixel"
    )
    mode, samples = str(p.node.take("mode", "avg")), int(p.node.take("sampling_ratio", 0))
    sizes = int(p.node.take("output_height", 1)), int(p.node.take("output_width", 1))
    scale = float(p.node.take("spatial_scale", 1.0))
    if mode != "avg":
        raise ValueError("mode avg is required, got max: export the regions with averages")
    if samples < 1:
        raise ValueError("a sampling_ratio of 1 or more is required, got 0, which counts samples by each region's size")
    regions, height, width = p.node.shape(1)[0], *p.node.shape(0)[2:]
    boxes = p.op("Sub", p.op("Mul", p.input(1), f32(scale)), f32(0.5 if half else 0.0))
    left, top, right, bottom = p.ops("Split", 4, boxes, axis=1, num_outputs=4)
    rows = _weights(p, top, bottom, (sizes[0], samples, height), half=half)
    columns = _weights(p, left, right, (sizes[1], samples, width), half=half)
    images = p.op("Gather", p.x, p.input(2), axis=0)
    part = p.op("MatMul", p.reshape(rows, regions, 1, sizes[0], height), images)
    turned = p.op("Transpose", p.reshape(columns, regions, 1, sizes[1], width), perm=[0, 1, 3, 2])
    p.result("MatMul", part, turned)


def _weights(p: Parts, start: str, end: str, extents: tuple[int, int, int], *, half: bool) -> str:
    """(regions, bins, length): how much every place along an axis counts in a bin; extents: bins, samples, length.

    start, end: (regions, 1). A sample at most 1 outside the image counts as its edge, one further away as 0.
    """
    bins, samples, length = extents
    span = p.op("Sub", end, start)
    span = span if half else p.op("Max", span, f32(1.0))
    steps = (np.arange(bins)[:, None] + (np.arange(samples) + 0.5) / samples) / bins
    at = p.op("Add", start, p.op("Mul", span, f32(steps.reshape(1, -1))))
    too_low, too_high = p.op("Less", at, f32(-1.0)), p.op("Greater", at, f32(length))
    inside = p.op("Cast", p.op("Not", p.op("Or", too_low, too_high)), to=1)
    edge = p.op("Min", p.op("Max", at, f32(0.0)), f32(length - 1))
    away = p.op("Abs", p.op("Sub", p.op("Unsqueeze", edge, np.array([2], INT)), np.arange(length, dtype=np.float32)))
    near = p.op("Max", p.op("Sub", f32(1.0), away), f32(0.0))
    counted = p.op("Mul", near, p.op("Unsqueeze", inside, np.array([2], INT)))
    regions = p.node.shape(1)[0]
    of_bins = p.reshape(counted, regions, bins, samples, length)
    return p.op("ReduceMean", of_bins, np.array([2], INT), keepdims=0)


DECOMPOSITIONS: dict[str, Callable[[Parts], None]] = {"RoiAlign": roi_align}
