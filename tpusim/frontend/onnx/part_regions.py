"""Regions of images: RoiAlign as products with the weights of its sampling points."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tpusim.errors import option
from tpusim.frontend.onnx.parts import Parts

INT = np.int64


def f32(value: object) -> np.ndarray:
    """The array of numbers in f32."""
    return np.array(value, np.float32)


def roi_align(p: Parts) -> None:
    """RoiAlign by products rows x image x columns with the bilinear weights of every region's samples.

    Averages are part of the weights. For the maximum, ONNX uses the largest of all samples' four weighted corners,
    which takes a product for each corner.
    """
    half = (
        str(p.node.take("coordinate_transformation_mode", "half_pixel" if p.node.opset >= 16 else "")) == "half_pixel"
    )
    mode, samples = str(p.node.take("mode", "avg")), int(p.node.take("sampling_ratio", 0))
    sizes = int(p.node.take("output_height", 1)), int(p.node.take("output_width", 1))
    scale = float(p.node.take("spatial_scale", 1.0))
    if mode not in ("avg", "max"):
        raise ValueError(f"mode avg or max is required, got {mode}; export the regions with averages")
    if samples < 1:
        _align_by_size(p, sizes, scale, half=half, mode=mode)
        return
    height, width = p.node.shape(0)[2:]
    boxes = p.op("Sub", p.op("Mul", p.input(1), f32(scale)), f32(0.5 if half else 0.0))
    left, top, right, bottom = p.ops("Split", 4, boxes, axis=1, num_outputs=4)
    rows = _places(p, top, bottom, (sizes[0], samples, height), half=half)
    columns = _places(p, left, right, (sizes[1], samples, width), half=half)
    images = p.op("Gather", p.x, p.input(2), axis=0)
    if mode == "avg":
        averages = _mean(p, rows.both(p), sizes[0], samples), _mean(p, columns.both(p), sizes[1], samples)
        p.result("Identity", _samples(p, images, *averages))
        return
    corners = [_samples(p, images, row, column) for row in rows.corners(p) for column in columns.corners(p)]
    regions, channels = p.node.shape(1)[0], p.node.shape(0)[1]
    parts = p.reshape(p.op("Max", *corners), regions * channels, sizes[0], samples, sizes[1] * samples)
    of_rows = p.op("ReduceMax", parts, np.array([2], INT), keepdims=0)
    of_bins = p.reshape(of_rows, regions, channels, sizes[0], sizes[1], samples)
    p.result("ReduceMax", of_bins, np.array([4], INT), keepdims=0)


def _align_by_size(p: Parts, sizes: tuple[int, int], scale: float, *, half: bool, mode: str) -> None:
    """RoiAlign whose number of samples depends on the size of a bin, for constant regions and thus constant weights."""
    regions = p.node.constant(1)
    if regions is None or mode != "avg":
        raise ValueError(
            "a sampling_ratio of 1 or more is required, got 0, which counts samples by each region's size (taken for "
            "averages of constant regions); export it with a fixed one (2 is usual), or end the network before it "
            f"with {option('outputs')}"
        )
    boxes = regions.astype(np.float32) * f32(scale) - f32(0.5 if half else 0.0)
    left, top, right, bottom = boxes.T
    height, width = p.node.shape(0)[2:]
    rows = _means_by_size(top, bottom, sizes[0], height, half=half)
    columns = _means_by_size(left, right, sizes[1], width, half=half)
    images = p.op("Gather", p.x, p.input(2), axis=0)
    part = p.op("MatMul", rows[:, None], images)
    p.result("MatMul", part, np.ascontiguousarray(columns[:, None].swapaxes(2, 3)))


def _means_by_size(start: np.ndarray, end: np.ndarray, bins: int, length: int, *, half: bool) -> np.ndarray:
    """(regions, bins, length): the weight of every place in the average of a bin; 0 for a bin without samples."""
    spans = end - start if half else np.maximum(end - start, f32(1.0))
    found = np.zeros((len(start), bins, length), np.float32)
    for region, (first, span) in enumerate(zip(start, spans, strict=True)):
        samples = int(np.ceil(span / f32(bins)))
        if samples > 0:
            steps = (np.arange(bins)[:, None] + (np.arange(samples) + 0.5) / samples) / bins
            at = first + span * steps.astype(np.float32)
            inside = (at >= -1) & (at <= length)
            edge = np.clip(at, 0, length - 1)[..., None]
            near = np.maximum(f32(1.0) - np.abs(edge - np.arange(length, dtype=np.float32)), f32(0.0))
            found[region] = (near * inside[..., None]).mean(axis=1)
    return found


@dataclass(frozen=True)
class Places:
    """Samples along an axis of `length` places. edge: (regions, samples), clipped to the axis; inside: 0 if too far."""

    edge: str
    inside: str
    length: int

    def both(self, p: Parts) -> str:
        """(regions, samples, length): the weight of every place."""
        return self._weighted(p, self._near(p, self.edge))

    def corners(self, p: Parts) -> tuple[str, str]:
        """The weights of only the place below a sample, and of only the place above it."""
        below = p.op("Floor", self.edge)
        above = p.op("Min", p.op("Add", below, f32(1.0)), f32(self.length - 1))
        share = p.op("Unsqueeze", p.op("Sub", self.edge, below), np.array([2], INT))
        low = p.op("Mul", self._near(p, below), p.op("Sub", f32(1.0), share))
        return self._weighted(p, low), self._weighted(p, p.op("Mul", self._near(p, above), share))

    def _near(self, p: Parts, at: str) -> str:
        """1 at a place, less within 1 of it."""
        grid = np.arange(self.length, dtype=np.float32)
        away = p.op("Abs", p.op("Sub", p.op("Unsqueeze", at, np.array([2], INT)), grid))
        return p.op("Max", p.op("Sub", f32(1.0), away), f32(0.0))

    def _weighted(self, p: Parts, near: str) -> str:
        return p.op("Mul", near, p.op("Unsqueeze", self.inside, np.array([2], INT)))


def _places(p: Parts, start: str, end: str, extents: tuple[int, int, int], *, half: bool) -> Places:
    """The samples along an axis; extents: bins, samples of each, length.

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
    return Places(edge, inside, length)


def _mean(p: Parts, weights: str, bins: int, samples: int) -> str:
    """(regions, bins, length): the average of the samples of each bin."""
    regions = p.node.shape(1)[0]
    of_bins = p.reshape(weights, regions, bins, samples, -1)
    return p.op("ReduceMean", of_bins, np.array([2], INT), keepdims=0)


def _samples(p: Parts, images: str, rows: str, columns: str) -> str:
    """(regions, channels, rows, columns) of images by region, weighted by rows and by columns."""
    part = p.op("MatMul", p.op("Unsqueeze", rows, np.array([1], INT)), images)
    turned = p.op("Transpose", p.op("Unsqueeze", columns, np.array([1], INT)), perm=[0, 1, 3, 2])
    return p.op("MatMul", part, turned)


DECOMPOSITIONS: dict[str, Callable[[Parts], None]] = {"RoiAlign": roi_align}
