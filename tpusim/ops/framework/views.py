"""Views of tensors: slices in local memory and in global memory (docs/spec/hardware.md 2.1, 2.5)."""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace
from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.errors import CommandError
from tpusim.ir.types import element_of, shape_of
from tpusim.isa.layout import distance_bytes, element_bytes, gmem_strides, lmem_strides
from tpusim.isa.region import View, itemsize
from tpusim.ops.framework.base import Shape, TensorSlice, Window, logical_shape
from tpusim.ops.framework.families import command_dtype
from tpusim.ops.framework.logical import Extents


class Transfer(NamedTuple):
    """One DMA transfer of a slice."""

    outside: View
    """The view in global memory."""
    inside: View
    """The view in local memory."""
    start: Extents
    """The index of its first element in the tensor."""


def gmem_view(value: SSAValue, address: int, chip: ChipSpec, *, constant: bool) -> View:
    """A whole tensor in its rank; activations are 4N or 2N on a chip with batch packing."""
    dtype = command_dtype(element_of(value))
    factor = 1 if constant else chip.batch_factor(itemsize(dtype))
    return View("gmem", address, shape_of(value), dtype, "dense", interleave=factor)


def turned(view: View, order: Shape) -> View:
    """A view of a tensor in global memory with its axes in another order: axis i is the view's axis order[i]."""
    strides = gmem_strides(view)
    return replace(
        view, shape=tuple(view.shape[axis] for axis in order), layout="strided",
        strides=tuple(strides[axis] for axis in order), batch_axis=order.index(view.batch_axis) if order else 0,
    )  # fmt: skip


def on_four_axes(view: View) -> View:
    """A dense tensor of any rank in global memory as (n, c, h, w), so that it fits constants of (1, c, 1, 1)."""
    return view if view.laned else replace(view, shape=logical_shape(view.shape))


def lmem_view(value: SSAValue, address: int, shape: Shape, chip: ChipSpec, *, constant: bool, aligned: bool) -> View:
    """A slice of (n, c, h, w) elements at an LMEM address."""
    dtype = command_dtype(element_of(value))
    factor = 1 if constant else chip.batch_factor(itemsize(dtype))
    return View("lmem", address, shape, dtype, "aligned" if aligned else "compact", interleave=factor)


def lmem_window(view: View, have: TensorSlice, want: TensorSlice, chip: ChipSpec) -> View:
    """The part `want` of the slice `have`, of which `view` is the view."""
    if have == want:
        return view
    n, row, h, w = lmem_strides(view, chip)
    rows, lane = divmod(view.lane + want.c[0] - have.c[0], chip.lanes)
    offset = (
        (want.d[0] - have.d[0]) * have.n[1] * n
        + (want.n[0] - have.n[0]) // view.interleave * n
        + (want.h[0] - have.h[0]) * h
        + (want.w[0] - have.w[0]) * w
        + rows * row
    )
    return View(
        "lmem", view.address + distance_bytes(view, offset), want.shape, view.dtype, "strided",
        strides=(n, row, h, w), interleave=view.interleave, lane=lane,
    )  # fmt: skip


def transfers(
    whole: View, lengths: Extents, part: TensorSlice, local: View, chip: ChipSpec, steps: Extents | None = None
) -> Iterator[Transfer]:
    """The transfers of a slice: one, or in a 3D group one per depth or per item of the batch.

    steps: distances in global memory along (n, c, d, h, w), in elements; None: the tensor is dense. With d_slice <=
    n_slice each depth is a transfer with n as its batch, else each image with d as its batch (hardware.md 2.1).
    """
    start = part.n[0], part.c[0], part.d[0], part.h[0], part.w[0]
    strides = steps or gmem_strides(_reshaped(whole, lengths))
    words = (start[0] // whole.interleave, *start[1:])
    address = whole.address + distance_bytes(whole, sum(i * stride for i, stride in zip(words, strides, strict=True)))
    n_step, c_step, d_step, h_step, w_step = strides
    if lengths[2] == 1:
        dense = steps is None and part.shape == (*lengths[:2], *lengths[3:])
        view = replace(whole, shape=part.shape)
        window = replace(view, address=address, layout="strided", strides=(n_step, c_step, h_step, w_step))
        yield Transfer(view if dense else window, local, start)
        return
    unit, image, (batches, depths) = element_bytes(whole), part.shape[1:], (part.n[1], part.d[1])
    pitch, row, h, w = lmem_strides(local, chip)
    if depths <= batches:
        for d in range(depths):
            source = replace(
                whole, address=address + d * d_step * unit, shape=(batches, *image), layout="strided",
                strides=(n_step, c_step, h_step, w_step),
            )  # fmt: skip
            target = replace(local, address=local.address + d * batches * pitch * unit, shape=(batches, *image))
            yield Transfer(source, target, (start[0], start[1], start[2] + d, *start[3:]))
        return
    for n in range(batches):
        source = replace(
            whole, address=address + n * n_step * unit, shape=(depths, *image), layout="strided",
            strides=(d_step, c_step, h_step, w_step),
        )  # fmt: skip
        target = replace(
            local, address=local.address + n * pitch * unit, shape=(depths, *image), layout="strided",
            strides=(batches * pitch, row, h, w),
        )  # fmt: skip
        yield Transfer(source, target, (start[0] + n, *start[1:]))


def _reshaped(whole: View, lengths: Extents) -> View:
    """The whole tensor over other axes. Raises CommandError if they join rows of an odd number of 4-bit elements."""
    view = replace(whole, shape=lengths, batch_axis=0)
    if view.nbytes != whole.nbytes:
        raise CommandError(
            f"{whole.dtype} tensor {whole.shape} at {whole.address:#x} as {lengths}: rows of an odd number of 4-bit "
            "elements cannot be joined; give the last axis an even length"
        )
    return view


def inside(inner: Window, outer: Window) -> bool:
    """Whether a window is inside another."""
    return outer[0] <= inner[0] and inner[0] + inner[1] <= outer[0] + outer[1]
