"""Legality rules about the shapes and element types of one command's operands; see `tpusim.isa.check`."""

from collections.abc import Callable

import numpy as np

from tpusim.chips import ChipSpec
from tpusim.isa.commands import (
    AnyCommand,
    Arith,
    ChannelScale,
    Conv,
    Depthwise,
    Dequantize,
    Fill,
    LaneCopy,
    Lut,
    MatMul,
    Move,
    Pool,
    Quantize,
    Rescale,
    Select,
)
from tpusim.isa.finding import Finding, first
from tpusim.isa.layout import align
from tpusim.isa.region import View, itemsize, numpy_dtype

_FLOATS = ("f32", "f16", "bf16")


def copies(command: AnyCommand, chip: ChipSpec) -> Finding | None:
    """A copy has the same shape and element type on both sides; a lane copy stays in one memory."""
    if not isinstance(command, Move | LaneCopy):
        return None
    source, target = command.input, command.output
    if source.shape != target.shape or source.dtype != target.dtype:
        return Finding(
            f"the output to be {source.dtype} {source.shape}", f"{target.dtype} {target.shape}", "correct one view"
        )
    if isinstance(command, LaneCopy) and source.memory != target.memory:
        return Finding("both views in one memory", f"{source.memory} and {target.memory}", "use Move")
    return None


def windows(command: AnyCommand, chip: ChipSpec) -> Finding | None:
    """Input and output of a window op have four axes and the same batch; every window lies inside the padded input."""
    if not isinstance(command, Conv | Depthwise | Pool):
        return None
    source, target = command.input.shape, command.output.shape
    if len(source) != 4 or len(target) != 4 or source[0] != target[0]:
        return Finding("n, c, h, w with one batch", f"{source} and {target}", "correct the views")
    dilations = (1, 1) if isinstance(command, Pool) else command.dilations
    if isinstance(command, Pool) and source[1] != target[1]:
        return Finding(f"{source[1]} output channels", str(target[1]), "pooling keeps the channels")
    for axis in (0, 1):
        span = (target[2 + axis] - 1) * command.strides[axis] + (command.kernel[axis] - 1) * dilations[axis] + 1
        room = source[2 + axis] + command.pads[axis] + command.pads[axis + 2]
        if span > room:
            got = f"a reach of {span} into {room} padded {'rows' if axis == 0 else 'columns'}"
            return Finding("every window inside the padded input", got, "load more input, or pad more")
    return None


def filters(command: AnyCommand, chip: ChipSpec) -> Finding | None:
    """A filter is (1, oc, 1, K): K = AL(ic/groups, P)*kh*kw for CONV, kh*kw for depthwise (hardware.md 2.3)."""
    if not isinstance(command, Conv | Depthwise):
        return None
    channels, outputs = command.input.shape[1], command.output.shape[1]
    taps = command.kernel[0] * command.kernel[1]
    if isinstance(command, Depthwise):
        wanted = (1, outputs, 1, taps)
        if channels != outputs:
            return Finding(f"{outputs} input channels", str(channels), "depthwise keeps the channels")
    else:
        if channels % command.groups or outputs % command.groups:
            got = f"{channels} to {outputs} channels"
            return Finding(f"channels that {command.groups} groups divide", got, "correct groups")
        packing = chip.filter_packing(itemsize(command.filter.dtype))
        wanted = (1, outputs, 1, align(channels // command.groups, packing) * taps)
    if command.filter.shape == wanted:
        return None
    return Finding(f"filter {wanted}", str(command.filter.shape), "pack the filter for this chip")


def matrix_shape(view: View, transpose: bool) -> tuple[int, int]:
    """(rows, columns) of a matmul operand: the last two axes in GMEM, c and h*w of a laned view."""
    rows, columns = (view.shape[1], view.shape[2] * view.shape[3]) if view.laned else view.shape[-2:]
    return (columns, rows) if transpose else (rows, columns)


def matrices(command: AnyCommand, chip: ChipSpec) -> Finding | None:
    """A matrix product takes (..., M, K) and (..., K, N) and gives (..., M, N); its bias has N elements."""
    if not isinstance(command, MatMul):
        return None
    if min(len(command.left.shape), len(command.right.shape), len(command.output.shape)) < 2:
        return Finding("matrices of two axes or more", "a vector", "add an axis of length 1")
    rows, inner = matrix_shape(command.left, command.left_transpose)
    depth, columns = matrix_shape(command.right, command.right_transpose)
    batch = max(view.elements // (size or 1) for view, size in _matrix_sizes(command))
    if inner != depth or command.output.elements != batch * rows * columns:
        got = f"{command.left.shape} x {command.right.shape} -> {command.output.shape}"
        return Finding("(..., M, K) x (..., K, N) -> (..., M, N)", got, "correct the views or the transposes")
    if command.bias is not None and command.bias.elements != columns:
        return Finding(f"a bias of {columns} elements", str(command.bias.elements), "correct the bias view")
    return None


def _matrix_sizes(command: MatMul) -> tuple[tuple[View, int], tuple[View, int]]:
    left, right = matrix_shape(command.left, False), matrix_shape(command.right, False)
    return (command.left, left[0] * left[1]), (command.right, right[0] * right[1])


def channel_operands(command: AnyCommand, chip: ChipSpec) -> Finding | None:
    """Per-channel operands are (1, c, 1, 1), a requant table (1, c, 1, 3) int32, two words where they are packed."""
    wanted: list[tuple[str, View | None, int]] = []
    if isinstance(command, Conv | Depthwise):
        wanted = [("bias", command.bias, 1), ("requant_table", command.requant_table, chip.requant_words)]
    elif isinstance(command, ChannelScale):
        wanted = [("scale", command.scale, 1), ("bias", command.bias, 1), ("rshift", command.rshift, 1)]
    elif isinstance(command, Select):
        wanted = [("slope", command.slope if isinstance(command.slope, View) else None, 1)]
    channels = command.writes()[0].shape[1] if wanted else 0
    for name, view, width in wanted:
        if view is not None and view.shape != (1, channels, 1, width):
            return Finding(f"{name} {(1, channels, 1, width)}", str(view.shape), "correct the view")
        if view is not None and name in ("requant_table", "rshift") and view.dtype != "i32":
            return Finding(f"{name} i32", view.dtype, "convert it")
    return None


def elementwise_shapes(command: AnyCommand, chip: ChipSpec) -> Finding | None:
    """Element-wise operands have the output's shape; AR operands may have axes of length 1 where it is longer."""
    if isinstance(command, Rescale | Quantize | Dequantize | ChannelScale | Select | Lut):
        if command.input.shape == command.output.shape:
            return None
        return Finding(f"input {command.output.shape}", str(command.input.shape), "correct the views")
    if not isinstance(command, Arith):
        return None
    target = command.output.shape
    return first(
        Finding(f"{name} to broadcast to {target}", str(view.shape), "correct the views")
        for name, view in command.operands()
        if len(view.shape) > len(target)
        or any(
            size not in (1, whole)
            for size, whole in zip(view.shape, target[len(target) - len(view.shape) :], strict=True)
        )
    )


def element_types(command: AnyCommand, chip: ChipSpec) -> Finding | None:
    """Products and requants do not mix floats and integers; RQ rq0 reads floats, DQ dq0 writes floats.

    AR with an integer result has integer operands and an integral constant.
    """
    if isinstance(command, Quantize) and command.input.dtype not in _FLOATS:
        return Finding("a float input", command.input.dtype, "use Rescale for integers")
    if isinstance(command, Dequantize) and command.output.dtype not in _FLOATS:
        return Finding("a float output", command.output.dtype, "use Rescale for integers")
    if isinstance(command, Arith) and command.output.dtype not in _FLOATS:
        return _integer_arith(command)
    if not isinstance(command, Conv | Depthwise | MatMul | Pool | Rescale | Select):
        return None
    if isinstance(command, Select) and command.output.dtype not in _FLOATS:
        slope = command.slope
        if not isinstance(slope, View) and slope != int(slope):
            return Finding("an integral slope", str(slope), "quantise it, with a right shift")
    names = ("input", "filter", "bias", "left", "right", "slope", "output")
    kinds = {view.dtype in _FLOATS for name, view in command.operands() if name in names}
    if len(kinds) == 1:
        return None
    got = ", ".join(f"{name} {view.dtype}" for name, view in command.operands())
    return Finding("operands all integer or all float", got, "convert with Quantize or Dequantize")


def _integer_arith(command: Arith) -> Finding | None:
    if command.kind == "div":
        return Finding("a float result of div", command.output.dtype, "divide in f32")
    constant = 0.0 if isinstance(command.b, View) else command.b
    if constant != int(constant):
        return Finding("an integral constant b", str(constant), "quantise the constant")
    return first(
        Finding(f"{name} of an integer type", view.dtype, "convert it with Quantize")
        for name, view in command.operands()
        if view.dtype in _FLOATS
    )


def tables(command: AnyCommand, chip: ChipSpec) -> Finding | None:
    """A table gather reads bytes and 256 entries (1, 1, 1, 256) of the output's type (numerics.md 10)."""
    if not isinstance(command, Lut):
        return None
    if command.input.dtype not in ("i8", "u8"):
        return Finding("an i8 or u8 input", command.input.dtype, "quantise it first")
    wanted, table = (1, 1, 1, 256), command.table
    if table.shape == wanted and table.dtype == command.output.dtype:
        return None
    return Finding(f"table {command.output.dtype} {wanted}", f"{table.dtype} {table.shape}", "correct the view")


def fill_values(command: AnyCommand, chip: ChipSpec) -> Finding | None:
    """A fill of an integer tensor has an integral value inside the type's range."""
    if not isinstance(command, Fill) or command.output.dtype in _FLOATS:
        return None
    info = np.iinfo(numpy_dtype(command.output.dtype))
    if command.value == int(command.value) and info.min <= command.value <= info.max:
        return None
    return Finding(f"an integer within {info.min}..{info.max}", str(command.value), "correct the value or the type")


SHAPE_RULES: tuple[Callable[[AnyCommand, ChipSpec], Finding | None], ...] = (
    copies,
    windows,
    filters,
    matrices,
    channel_operands,
    elementwise_shapes,
    element_types,
    tables,
    fill_values,
)
"""Rules that hold in local memory and in global kernels alike."""
