"""Resizes of mode nearest: which elements are copied, and by which ops."""

import numpy as np
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
