"""Views of tensors: slices in local memory and in global memory (spec/hardware.md 2.1, 2.5)."""

from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.ir.types import element_of, shape_of
from tpusim.isa.layout import element_bytes, lmem_strides
from tpusim.isa.region import View, itemsize
from tpusim.ops.base import Shape, TensorSlice, Window, logical_shape
from tpusim.ops.families import command_dtype


def gmem_view(value: SSAValue, address: int, chip: ChipSpec, *, constant: bool) -> View:
    """The whole tensor in its own rank; activations are 4N/2N on a chip with batch packing."""
    dtype = command_dtype(element_of(value))
    factor = 1 if constant else chip.batch_factor(itemsize(dtype))
    return View("gmem", address, shape_of(value), dtype, "dense", interleave=factor)


def gmem_slice(view: View, part: TensorSlice) -> View:
    """A window of a dense global tensor as (n, c, h, w) with the tensor's strides."""
    n, c, h, w = logical_shape(view.shape)
    if part.shape == (n, c, h, w):
        return View(view.memory, view.address, (n, c, h, w), view.dtype, "dense", interleave=view.interleave)
    unit = element_bytes(view)
    start = (part.n[0] // view.interleave) * c * h * w + part.c[0] * h * w + part.h[0] * w + part.w[0]
    return View(
        "gmem", view.address + start * unit, part.shape, view.dtype, "strided",
        strides=(c * h * w, h * w, w, 1), interleave=view.interleave,
    )  # fmt: skip


def lmem_view(value: SSAValue, address: int, shape: Shape, chip: ChipSpec, *, constant: bool, aligned: bool) -> View:
    """A slice of (n, c, h, w) elements at an LMEM address."""
    dtype = command_dtype(element_of(value))
    factor = 1 if constant else chip.batch_factor(itemsize(dtype))
    return View("lmem", address, shape, dtype, "aligned" if aligned else "compact", interleave=factor)


def lmem_window(view: View, have: TensorSlice, want: TensorSlice, chip: ChipSpec) -> View:
    """The part `want` of the slice `have` that `view` holds; the view itself if that is all of it."""
    if have == want:
        return view
    n, row, h, w = lmem_strides(view, chip)
    offset = (
        (want.n[0] - have.n[0]) // view.interleave * n
        + (want.h[0] - have.h[0]) * h
        + (want.w[0] - have.w[0]) * w
        + (want.c[0] - have.c[0]) // chip.lanes * row
    )
    return View(
        "lmem", view.address + offset * element_bytes(view), want.shape, view.dtype, "strided",
        strides=(n, row, h, w), interleave=view.interleave,
    )  # fmt: skip


def inside(inner: Window, outer: Window) -> bool:
    """Whether a window lies in another."""
    return outer[0] <= inner[0] and inner[0] + inner[1] <= outer[0] + outer[1]
