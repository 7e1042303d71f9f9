"""Elements at computed places, and functions of two tensors (numerics.md 9.0, 11.4, 12.1)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tpusim_kernels.resize import host_neighbours, linear_source

from tpusim.field import Elements, Field
from tpusim.field.selected import gathered, of_samples, of_whole, picked, weighed
from tpusim.ir.types import shape_of
from tpusim.ops.elements import TpuGatherElements, TpuScatterElements
from tpusim.ops.frames import TpuCsc
from tpusim.ops.framework.families import is_set
from tpusim.ops.grid_sampler import TpuGridSampler
from tpusim.ops.nms import TpuNms
from tpusim.ops.power import TpuMod, TpuPow3
from tpusim.ops.recurrent import TpuRecurrent
from tpusim.ops.resize.interp import TpuInterp
from tpusim.ops.slice import TpuGather
from tpusim.proof.meanings.stored import stored_float


def gather(op: TpuGather, operands: Sequence[Any], field: Field) -> Elements | None:
    """The element of its line that the index names."""
    return gathered(field, operands[0], operands[1], op.axis.value.data)


def gather_elements(op: TpuGatherElements, operands: Sequence[Any], field: Field) -> Elements | None:
    """An element of the data for each index."""
    data, indices = operands
    return picked(field, ("gather elements", op.axis.value.data), indices, data)


def scatter_elements(op: TpuScatterElements, operands: Sequence[Any], field: Field) -> Elements | None:
    """The data with updates in it."""
    key = ("scatter_elements", ("axis", op.axis.value.data), ("reduction", op.word("reduction")))
    return stored_float(of_whole(field, key, operands, shape_of(op.output)), op.output, field)


def grid_sample(op: TpuGridSampler, operands: Sequence[Any], field: Field) -> Elements | None:
    """A function of image and grid."""
    key = (
        "grid_sample", ("mode", op.word("mode")), ("padding", op.word("padding_mode")),
        ("align_corners", bool(op.align_corners.value.data)),
    )  # fmt: skip
    return stored_float(of_whole(field, key, operands, shape_of(op.output)), op.output, field)


def nms(op: TpuNms, operands: Sequence[Any], field: Field) -> Elements | None:
    """A function of scores and boxes."""
    kept, iou, score, center = op.options
    key = ("nms", ("kept", kept), ("iou", iou), ("score", score), ("center", center))
    boxes, scores = operands
    return of_whole(field, key, (scores, boxes), shape_of(op.output))


def recurrent(op: TpuRecurrent, operands: Sequence[Any], field: Field) -> Elements | None:
    """A function of the whole sequence, the constants in the chip's layout and the initial states."""
    states = operands[op.FIRST : op.FIRST + len(op.OUTPUTS) - 1]
    key = (
        "recurrent", ("cell", op.KIND), ("hidden", op.hidden), ("bidirectional", is_set(op.bidirectional)),
        ("result", op.result.data), ("biased", operands[3] is not None),
        ("states", tuple(state is not None for state in states)), ("tables", op.by_tables),
        ("outputs", tuple(other.result.data for other in op.same_node())), ("first", op.is_first),
    )  # fmt: skip
    given = [x for x in operands if x is not None]
    return stored_float(of_whole(field, key, given, shape_of(op.output)), op.output, field)


def power(op: TpuPow3, operands: Sequence[Any], field: Field) -> Elements | None:
    """A function of the two elements at a place."""
    return stored_float(field.apply(("power",), *operands), op.output, field)


def remainder(op: TpuMod, operands: Sequence[Any], field: Field) -> Elements | None:
    """A function of the two elements at a place."""
    return stored_float(field.apply(("remainder", ("fmod", is_set(op.fmod))), *operands), op.output, field)


def interp(op: TpuInterp, operands: Sequence[Any], field: Field) -> Elements | None:
    """The weighed neighbours of every place (numerics.md 11.4)."""
    size, scales, align = op.geometry
    if op.is_nearest:
        rows, columns = op.sources()
        return operands[0][:, :, rows][:, :, :, columns]
    (x,), host, asymmetric = operands, is_set(op.on_host), is_set(op.asymmetric)
    axes: list[tuple[np.ndarray, ...]] = []
    for before, after, scale in zip(x.shape[2:], size, scales, strict=True):
        if host:
            axes.append(tuple(host_neighbours(before, after, scale, align_corners=align, asymmetric=asymmetric)))
            continue
        left, d = linear_source(before, after, scale, align_corners=align)
        axes.append((left, np.minimum(left + 1, before - 1), np.float32(1) - d, d))
    return stored_float(weighed(field, ("interp", align, host, asymmetric), x, axes), op.output, field)


def frames(op: TpuCsc, operands: Sequence[Any], field: Field) -> Elements | None:
    """A function of all bytes of a frame."""
    p = op.planes
    key = (
        "yuv_to_bgr", ("format", p.format), ("height", p.height), ("width", p.width), ("row_bytes", p.row_bytes),
        ("channel_align", p.channel_align),
    )  # fmt: skip
    return of_samples(field, key, operands, shape_of(op.output))
