"""Legality rules about the shapes and element types of one command's operands; see `tpusim.isa.check`."""

from collections.abc import Callable
from math import prod

import numpy as np

from tpusim.chips import ChipSpec
from tpusim.isa.commands import (
    Arith,
    ChannelRescale,
    ChannelScale,
    Command,
    Compare,
    Conv,
    Depthwise,
    Dequantize,
    Fill,
    FloatLut,
    Fn,
    LaneCopy,
    Lut,
    MatMul,
    Move,
    MoveRows,
    Pick,
    Pool,
    Quantize,
    Rescale,
    Select,
    Where,
)
from tpusim.isa.finding import Finding, first
from tpusim.isa.layout import align
from tpusim.isa.region import View, is_packed, itemsize, numpy_dtype

FLOATS = ("f32", "f16", "bf16")
_TABLE_ENTRIES = 256


def copies(command: Command, chip: ChipSpec) -> Finding | None:
    """A copy has the same shape and element type on both sides; a lane copy, and one by turns, stays in one memory."""
    if not isinstance(command, Move | LaneCopy) or isinstance(command, MoveRows):
        return None
    source, target = command.input, command.output
    if source.shape != target.shape or source.dtype != target.dtype:
        return Finding(
            f"the output to be {source.dtype} {source.shape}", f"{target.dtype} {target.shape}", "correct one view"
        )
    if isinstance(command, LaneCopy) and source.memory != target.memory:
        return Finding("both views in one memory", f"{source.memory} and {target.memory}", "use Move")
    if isinstance(command, Move) and command.kind == "turns" and (source.laned or target.laned):
        return Finding("a copy by turns inside gmem", f"{source.memory} and {target.memory}", "take kind away")
    return None


def rows(command: Command, chip: ChipSpec) -> Finding | None:
    """Rows are gathered in global memory by a chip that can: three axes, an i32 index for each row of the result."""
    if not isinstance(command, MoveRows):
        return None
    if not chip.gather_gbs:
        return Finding("a chip that gathers rows", chip.name, "use fn gather")
    source, target, indices = command.input, command.output, command.indices
    for name, view in command.operands():
        if view.memory != "gmem" or view.interleave > 1 or is_packed(view.dtype):
            return Finding(f"{name} in gmem, of whole bytes and not packed", str(view), "use fn gather")
    if len(source.shape) != 3 or indices.dtype != "i32" or len(indices.shape) != 1:  # noqa: PLR2004  outer, axis, inner
        got = f"{source.shape} and {indices.dtype} {indices.shape}"
        return Finding("an input of three axes and one axis of i32 indices", got, "correct the views")
    wanted = (source.shape[0], indices.shape[0], source.shape[2])
    if target.shape == wanted and target.dtype == source.dtype:
        return None
    return Finding(f"the output to be {source.dtype} {wanted}", f"{target.dtype} {target.shape}", "correct one view")


def windows(command: Command, chip: ChipSpec) -> Finding | None:
    """Input and output of a window op have the batch in common; every window lies inside the widened, padded input.

    There are two window axes, three in the body of a global kernel, each with its entry in every attribute.
    """
    if not isinstance(command, Conv | Depthwise | Pool):
        return None
    source, target, axes = command.input.shape, command.output.shape, len(command.kernel)
    dilations, inserts = (
        ((1,) * axes, (0,) * axes) if isinstance(command, Pool) else (command.dilations, command.inserts)
    )
    lengths = [len(values) for values in (command.strides, dilations, inserts)]
    if axes not in (2, 3) or lengths != [axes] * 3 or len(command.pads) != 2 * axes:
        got = f"{axes}, {lengths} and {len(command.pads)} pads"
        return Finding("2 or 3 entries of kernel, strides, dilations and inserts, twice the pads", got, "give all")
    if len(source) != 2 + axes or len(target) != 2 + axes or source[0] != target[0]:
        return Finding(f"n, c and {axes} axes with one batch", f"{source} and {target}", "correct the views")
    if isinstance(command, Pool) and source[1] != target[1]:
        return Finding(f"{source[1]} output channels", str(target[1]), "pooling keeps the channels")
    for axis, name in enumerate(("depths", "rows", "columns")[3 - axes :]):
        span = (target[2 + axis] - 1) * command.strides[axis] + (command.kernel[axis] - 1) * dilations[axis] + 1
        widened = (source[2 + axis] - 1) * (inserts[axis] + 1) + 1
        room = widened + command.pads[axis] + command.pads[axis + axes]
        if span > room:
            got = f"a reach of {span} into {room} padded {name}"
            return Finding("every window inside the padded input", got, "load more input, or pad more")
    return None


def filters(command: Command, chip: ChipSpec) -> Finding | None:
    """A filter is (1, oc, 1, K): K = AL(ic/groups, P)*taps for CONV, taps for depthwise (hardware.md 2.3).

    On a chip without a packing width it is (1, oc, taps, P), P the input channels of a group, and (1, oc, kh, kw). One
    depth of a volume's filter is (1, oc, K/(taps*P), taps*P), a window of the whole, and some rows and columns of a
    filter are (K/(taps*P), oc, kh, kw*P), of a depthwise one (1, oc, kh, kw). Merged axes of the kernel count as
    input channels, not as taps; there are none of a volume or of several groups (2.4).
    """
    if not isinstance(command, Conv | Depthwise):
        return None
    channels, outputs = command.input.shape[1], command.output.shape[1]
    taps, rows = prod(command.kernel), chip.ic_parallel_bytes == 0
    windows: tuple[tuple[int, ...], ...] = ()
    if isinstance(command, Depthwise):
        wanted = (1, outputs, *command.kernel) if rows else (1, outputs, 1, taps)
        windows = ((1, outputs, *command.kernel),)
        if channels != outputs:
            return Finding(f"{outputs} input channels", str(channels), "depthwise keeps the channels")
    else:
        if command.merged and (len(command.kernel) != 2 or command.groups != 1):  # noqa: PLR2004  h and w
            got = f"a kernel {command.kernel} of {command.groups} groups"
            return Finding("a kernel of two axes and one group to merge", got, "give no merged axes")
        if channels % command.groups or outputs % command.groups:
            got = f"{channels} to {outputs} channels"
            return Finding(f"channels that {command.groups} groups divide", got, "correct groups")
        inside = prod(command.kernel[axis] for axis in command.merged)
        each, taps = channels // command.groups * inside, taps // inside
        packing = command.packing or chip.filter_packing(itemsize(command.filter.dtype), each, command.groups)
        row = align(each, packing)
        wanted = (1, outputs, taps, row) if rows and not command.packing else (1, outputs, 1, row * taps)
        if not rows:
            *some, last = command.kernel
            windows = (1, outputs, row // packing, taps * packing), (row // packing, outputs, *some, last * packing)
    if command.filter.shape in (wanted, *windows):
        return None
    return Finding(f"filter {wanted}", str(command.filter.shape), "pack the filter for this chip")


def matrix_shape(view: View, transpose: bool) -> tuple[int, int]:
    """(rows, columns) of a matmul operand: the last two axes in GMEM, c and h*w of a laned view."""
    rows, columns = (view.shape[1], view.shape[2] * view.shape[3]) if view.laned else view.shape[-2:]
    return (columns, rows) if transpose else (rows, columns)


def matrices(command: Command, chip: ChipSpec) -> Finding | None:
    """A matrix product takes (..., M, K) and (..., K, N) and gives (..., M, N); its bias has N elements.

    Several requants are one per right matrix, as are the N elements of their biases. There are N int32 multipliers.
    Partial sums are f32 and laid out as the result.
    """
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
    each = command.right.elements // (depth * columns) if command.requants else 1
    if command.requants and len(command.requants) != each:
        return Finding(f"{each} requants, one per right matrix", str(len(command.requants)), "correct the requants")
    if command.bias is not None and command.bias.elements != columns * each:
        return Finding(f"a bias of {columns * each} elements", str(command.bias.elements), "correct the bias view")
    scaled = command.multipliers
    if scaled is not None and (scaled.elements, scaled.dtype) != (columns, "i32"):
        return Finding(f"{columns} i32 multipliers", f"{scaled.elements} {scaled.dtype}", "correct the view")
    before = command.partial
    if before is not None and (before.shape, before.dtype, command.left.dtype) != (command.output.shape, "f32", "f32"):
        return Finding(f"f32 sums {command.output.shape} of f32", f"{before.shape} {before.dtype}", "correct the view")
    return None


def _matrix_sizes(command: MatMul) -> tuple[tuple[View, int], tuple[View, int]]:
    left, right = matrix_shape(command.left, False), matrix_shape(command.right, False)
    return (command.left, left[0] * left[1]), (command.right, right[0] * right[1])


def channel_operands(command: Command, chip: ChipSpec) -> Finding | None:
    """Per-channel operands are (1, c, 1, 1), a requant table (1, c, 1, 3) int32, two words where they are packed.

    CV18xx: a requant table is (1, c, 1, 9) bytes with bias, (1, c, 1, 5) without; a bias of two 16-bit planes
    (2, c, 1, 1) (hardware.md 2.3).
    """
    wanted: list[tuple[str, View | None, tuple[int, ...], str]] = []
    channels = command.writes()[0].shape[1] if isinstance(command, Conv | Depthwise | ChannelScale | Select) else 0
    one = (1, channels, 1, 1)
    if isinstance(command, Conv | Depthwise):
        planes = command.bias is not None and command.bias.dtype == "u16"
        wanted = [("bias", command.bias, (2, channels, 1, 1) if planes else one, "")]
        wanted.append(("requant_table", command.requant_table, *_requant_row(command, chip)))
    elif isinstance(command, ChannelScale):
        wanted = [("scale", command.scale, one, ""), ("bias", command.bias, one, "")]
        wanted.append(("rshift", command.rshift, one, "i32"))
    elif isinstance(command, ChannelRescale):
        wanted = [("table", command.table, (1, command.output.shape[1], 1, chip.requant_words), "i32")]
    elif isinstance(command, Select):
        wanted = [("slope", command.slope if isinstance(command.slope, View) else None, one, "")]
    for name, view, shape, dtype in wanted:
        if view is not None and view.shape != shape:
            return Finding(f"{name} {shape}", str(view.shape), "correct the view")
        if view is not None and dtype and view.dtype != dtype:
            return Finding(f"{name} {dtype}", view.dtype, "convert it")
    return None


def _requant_row(command: Conv | Depthwise, chip: ChipSpec) -> tuple[tuple[int, ...], str]:
    """(shape, element type) of the chip's requant table."""
    channels, table = command.output.shape[1], command.requant_table
    if chip.coefficients != "channel_rows":
        return (1, channels, 1, chip.requant_words), "i32"
    return (1, channels, 1, 5 if table is not None and table.shape[-1] == 5 else 9), "u8"


def elementwise_shapes(command: Command, chip: ChipSpec) -> Finding | None:
    """Element-wise operands have the output's shape; AR operands may have axes of length 1 where it is longer."""
    if isinstance(command, Rescale | ChannelRescale | Quantize | Dequantize | ChannelScale | Select | Lut | FloatLut):
        if command.input.shape == command.output.shape:
            return None
        return Finding(f"input {command.output.shape}", str(command.input.shape), "correct the views")
    if not isinstance(command, Arith | Compare | Where):
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


def element_types(command: Command, chip: ChipSpec) -> Finding | None:
    """Products and requants do not mix floats and integers; RQ rq0 reads floats, DQ dq0 writes floats.

    AR with an integer result has integer operands and an integral constant; a comparison's operands are alike, the
    branches of a selection have the output's type.
    """
    if isinstance(command, Compare | Where):
        return _logic_types(command)
    if isinstance(command, Quantize) and command.input.dtype not in FLOATS:
        return Finding("a float input", command.input.dtype, "use Rescale for integers")
    if isinstance(command, Dequantize) and command.output.dtype not in FLOATS:
        return Finding("a float output", command.output.dtype, "use Rescale for integers")
    if isinstance(command, Arith) and command.kind == "truncate" and command.a.dtype != "f32":
        return Finding("an f32 to truncate", command.a.dtype, "copy it")
    if isinstance(command, Arith) and command.output.dtype not in FLOATS:
        return _integer_arith(command)
    if not isinstance(command, Conv | Depthwise | MatMul | Pool | Rescale | ChannelRescale | Select):
        return None
    if isinstance(command, Select) and command.output.dtype not in FLOATS:
        slope = command.slope
        if not isinstance(slope, View) and slope != int(slope):
            return Finding("an integral slope", str(slope), "quantise it, with a right shift")
    names = ("input", "filter", "bias", "left", "right", "slope", "table", "output")
    known = [view for name, view in command.operands() if name in names and view.dtype != "u16"]  # planes of f32
    kinds = {view.dtype in FLOATS for view in known}
    if len(kinds) == 1:
        return None
    got = ", ".join(f"{name} {view.dtype}" for name, view in command.operands())
    return Finding("operands all integer or all float", got, "convert with Quantize or Dequantize")


def _logic_types(command: Compare | Where) -> Finding | None:
    wanted = command.a.dtype if isinstance(command, Compare) else command.output.dtype
    others = (command.b,) if isinstance(command, Compare) else (command.on_true, command.on_false)
    for other in others:
        if isinstance(other, View):
            alike = (other.dtype in FLOATS) == (wanted in FLOATS) if isinstance(command, Compare) else None
            if not (other.dtype == wanted if alike is None else alike):
                return Finding(f"operands of {wanted}", other.dtype, "convert with Quantize or Dequantize")
        elif wanted not in FLOATS and other != int(other):
            return Finding("an integral constant", str(other), "quantise the constant")
    return None


def _integer_arith(command: Arith) -> Finding | None:
    if command.kind in ("div", "truncate"):
        return Finding(f"a float result of {command.kind}", command.output.dtype, "compute it in f32")
    constant = 0.0 if isinstance(command.b, View) else command.b
    if constant != int(constant):
        return Finding("an integral constant b", str(constant), "quantise the constant")
    return first(
        Finding(f"{name} of an integer type", view.dtype, "convert it with Quantize")
        for name, view in command.operands()
        if view.dtype in FLOATS
    )


def tables(command: Command, chip: ChipSpec) -> Finding | None:
    """A table gather reads bytes and 256 entries (1, 1, 1, 256) of the output's type (numerics.md 10)."""
    if not isinstance(command, Lut):
        return None
    if command.input.dtype not in ("i8", "u8"):
        return Finding("an i8 or u8 input", command.input.dtype, "quantise it first")
    wanted, table = (1, 1, 1, 256), command.table
    if table.shape == wanted and table.dtype == command.output.dtype:
        return None
    return Finding(f"table {command.output.dtype} {wanted}", f"{table.dtype} {table.shape}", "correct the view")


def picked(command: Command, chip: ChipSpec) -> Finding | None:
    """A gather of places keeps batch, channels and type; every lane has its share of one i16 for each place."""
    if not isinstance(command, Pick):
        return None
    source, target, indices = command.input, command.output, command.indices
    if (source.dtype, source.shape[:2]) != (target.dtype, target.shape[:2]):
        wanted, got = ((v.dtype, *v.shape[:2]) for v in (target, source))
        return Finding("type, batch and channels of input and output alike", f"{got} and {wanted}", "correct the views")
    places, (batch, lanes, *share) = prod(target.shape[2:]), indices.shape
    if (indices.dtype, batch, lanes) == ("i16", 1, chip.lanes) and prod(share) * chip.lanes >= places:
        return None
    wanted = f"i16 indices (1, {chip.lanes}, h, w) of {places} places"
    return Finding(wanted, f"{indices.dtype} {indices.shape}", "correct the view")


def float_tables(command: Command, chip: ChipSpec) -> Finding | None:
    """A function by tables needs a chip that has them, bf16 operands, 256 entries per table, a range for slopes."""
    if not isinstance(command, FloatLut):
        return None
    if not chip.float_tables:
        return Finding("a chip with BF16 tables", chip.name, "compute the function with Fn active")
    for name, view in command.operands():
        if view.dtype != "bf16":
            return Finding(f"{name} bf16", view.dtype, "convert it")
        if name in ("table", "mantissa") and view.elements != _TABLE_ENTRIES:
            return Finding(f"{_TABLE_ENTRIES} entries in {name}", str(view.elements), "correct the view")
    if command.mode == "slope" and not command.low < command.high:
        return Finding("low < high", f"{command.low} and {command.high}", "give the range of the table")
    return None


def functions(command: Command, chip: ChipSpec) -> Finding | None:
    """A macro function has the operands that its parameters speak of, in shapes that go with them and the result."""
    if not isinstance(command, Fn):
        return None
    found = command.function.misfit([view.shape for view in command.inputs], command.output.shape)
    return found and Finding(found.requirement, found.got, "correct the parameters or the views")


def fill_values(command: Command, chip: ChipSpec) -> Finding | None:
    """A fill of an integer tensor has an integral value inside the type's range."""
    if not isinstance(command, Fill) or command.output.dtype in FLOATS:
        return None
    info = np.iinfo(numpy_dtype(command.output.dtype))
    if command.value == int(command.value) and info.min <= command.value <= info.max:
        return None
    return Finding(f"an integer within {info.min}..{info.max}", str(command.value), "correct the value or the type")


def sums_that_go_on(command: Command, chip: ChipSpec) -> Finding | None:
    """A convolution adds to what its output holds only where that is an accumulator, int32 or f32, without requant."""
    if not isinstance(command, Conv) or not command.accumulate:
        return None
    if command.output.dtype in ("i32", "f32") and command.requant is None and command.requant_table is None:
        return None
    fused = "with" if command.requant is not None or command.requant_table is not None else "without"
    got = f"{command.output.dtype} {fused} requant"
    return Finding("an i32 or f32 output without requant", got, "accumulate in 32 bits and requant afterwards")


SHAPE_RULES: tuple[Callable[[Command, ChipSpec], Finding | None], ...] = (
    copies,
    rows,
    windows,
    filters,
    matrices,
    channel_operands,
    elementwise_shapes,
    element_types,
    tables,
    picked,
    float_tables,
    functions,
    fill_values,
    sums_that_go_on,
)
"""Rules that hold in local memory and in global kernels alike."""
