"""Resizes of mode nearest: which elements are copied, and by which ops."""

import numpy as np
from tpusim_kernels.resize import nearest_index
from xdsl.ir import SSAValue

from tpusim.ir.types import shape_of
from tpusim.ops.framework.base import Builder
from tpusim.ops.resize.upsample import TopUpsample
from tpusim.ops.slice import TopGather


def nearest_source(size_in: int, size_out: int, scale: float, coordinates: str, rounding: str) -> np.ndarray:
    """The input index that each output index copies in a resize of mode nearest.

    In f32, as ONNX Runtime: where an index lies between two elements, rounding decides.
    """
    places, step, half = np.arange(size_out, dtype=np.float32), np.float32(scale), np.float32(0.5)
    match coordinates:
        case "align_corners":
            source = places * np.float32(size_in - 1) / np.float32(size_out - 1) if size_out > 1 else places * 0
        case "asymmetric":
            source = places / step
        case "pytorch_half_pixel" if size_out == 1:
            source = places * 0
        case _:
            source = (places + half) / step - half
    rounded = {
        "round_prefer_floor": np.ceil(source - half), "round_prefer_ceil": np.floor(source + half),
        "floor": np.floor(source), "ceil": np.ceil(source),
    }[rounding]  # fmt: skip
    return np.clip(rounded, 0, size_in - 1).astype(np.int32)


def interp_step(size_in: int, size_out: int, *, align: bool) -> float:
    """Input per output elements of an Interp along one axis: of the extents, or of the distances of their ends."""
    if align:
        return (size_in - 1) / (size_out - 1) if size_out > 1 else 0.0
    return size_in / size_out


def whole_factor(before: tuple[int, ...], after: tuple[int, ...]) -> int | None:
    """The factor by which TPU-MLIR's Upsample enlarges both axes of an image (h, w); None if that is no Upsample."""
    factor = after[0] // before[0]
    return factor if after == tuple(factor * size for size in before) else None


def upstream_sources(before: tuple[int, ...], after: tuple[int, ...], coordinates: str) -> list[np.ndarray]:
    """The indices that TPU-MLIR's Upsample or Interp of mode nearest copies along h and w, whatever ONNX says."""
    factor, rounded = whole_factor(before, after), coordinates != "asymmetric"
    if factor is not None:
        return [np.repeat(np.arange(size), factor) for size in before]
    axes = zip(before, after, strict=True)
    return [nearest_index(i, o, interp_step(i, o, align=rounded), rounded=rounded) for i, o in axes]


def make_nearest(builder: Builder, x: SSAValue, sources: list[np.ndarray], name: str) -> SSAValue:
    """Upsample if h and w are enlarged by whole factors, else one Gather per changed axis."""
    shape = shape_of(x)
    changed = [axis for axis, s in enumerate(sources) if not np.array_equal(s, np.arange(shape[axis]))]
    factors = [len(s) // shape[axis] for axis, s in enumerate(sources)]
    whole = all(np.array_equal(s, np.repeat(np.arange(shape[a]), factors[a])) for a, s in enumerate(sources))
    if len(shape) == 4 and whole and factors[:2] == [1, 1]:
        return x if not changed else TopUpsample.make(builder, x, scale_h=factors[2], scale_w=factors[3], name=name)
    for axis in changed:
        place = name if axis == changed[-1] else f"{name}_axis{axis}"
        x = TopGather.make(builder, x, sources[axis], axis=axis, name=place)
    return x
