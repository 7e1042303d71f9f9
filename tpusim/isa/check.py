"""Legality of a command on a chip (hardware.md 4, decision DH-06): one function is one rule, its docstring the rule.

A rule returns None or a `Finding`; `check` turns the first finding into a CommandError. `RULES` lists them all. The
body of a global kernel obeys `BODY_RULES` only: a library kernel tiles it, so lane and range limits do not apply.
"""

from collections.abc import Callable
from functools import lru_cache

from tpusim.chips import ChipSpec
from tpusim.errors import CommandError
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
    GlobalKernel,
    Lut,
    MatMul,
    Move,
    Pick,
    Pool,
    Quantize,
    Rescale,
    Select,
    SendMessage,
    WaitMessage,
    Where,
)
from tpusim.isa.finding import Finding, first
from tpusim.isa.layout import extent
from tpusim.isa.ranges import window_ranges
from tpusim.isa.region import View, byte_view, is_packed, itemsize
from tpusim.isa.requants import REQUANT_RULES
from tpusim.isa.shapes import SHAPE_RULES
from tpusim.isa.sharing import KERNEL_SHARING_RULES, SHARING_RULES, local_operands, work_areas

ID_LIMIT = 1 << 20
"""Ids of an engine count from 1 up to below this (codegen.md 2, DC-03)."""
_LONGEST = 65535
MESSAGES = 512
"""Message numbers of a chip, which sends and waits of all cores share."""
_MOST_SENDS = 127
_COEFFICIENTS = ("filter", "bias", "requant_table")


def sequence_ids(command: Command, chip: ChipSpec) -> Finding | None:
    """Ids count from 1 and fit 20 bits; a dependency is 0 or such an id (codegen.md 2, DC-03)."""
    if 1 <= command.id < ID_LIMIT and 0 <= command.dep < ID_LIMIT:
        return None
    return Finding(
        f"1 <= id < {ID_LIMIT:,}, 0 <= dep < {ID_LIMIT:,}", f"id {command.id}, dep {command.dep}", "renumber"
    )


def cores(command: Command, chip: ChipSpec) -> Finding | None:
    """The core exists on the chip."""
    if 0 <= command.core < chip.cores:
        return None
    return Finding(f"a core within 0-{chip.cores - 1}", str(command.core), "compile for fewer cores")


def messages(command: Command, chip: ChipSpec) -> Finding | None:
    """Only a chip with several cores has messages: numbers 0-511, counts 1-127 (Decision: 9 and 7 bits)."""
    if not isinstance(command, SendMessage | WaitMessage):
        return None
    if chip.cores == 1:
        return Finding("several cores for a message", "one core", "leave it out")
    if 0 <= command.message < MESSAGES and 1 <= command.count <= _MOST_SENDS:
        return None
    wanted = f"message within 0-{MESSAGES - 1}, count within 1-{_MOST_SENDS}"
    return Finding(wanted, f"message {command.message}, count {command.count}", "use a number again")


def memories(command: Command, chip: ChipSpec) -> Finding | None:
    """Only Move and Fill reach global memory; TIU operands lie in LMEM, those of a global kernel's body in GMEM."""
    if isinstance(command, Move | Fill):
        return None
    wanted = "gmem" if isinstance(command, GlobalKernel) else "lmem"
    operands = command.body.operands() if isinstance(command, GlobalKernel) else command.operands()
    return first(
        Finding(f"operand {name} in {wanted}", view.memory, "load it with Move, or use a GlobalKernel")
        for name, view in operands
        if view.memory != wanted
    )


def layouts(command: Command, chip: ChipSpec) -> Finding | None:
    """A laned view has axes n, c, h, w and layout aligned, compact or strided; plain GMEM is dense or strided.

    Strides are given exactly for "strided", one per axis (n, row, h, w if laned), none negative (hardware.md 2.1, 2.2).
    """
    for name, view in command.operands():
        known = ("aligned", "compact", "strided") if view.laned else ("dense", "strided")
        if view.layout not in known or (view.laned and len(view.shape) != 4):
            wanted = f"{name} with layout {' or '.join(known)}{' and 4 axes' if view.laned else ''}"
            return Finding(wanted, f"{view.layout} with {len(view.shape)} axes", "correct the view")
        strides = view.strides
        if (view.layout == "strided") != (strides is not None) or len(strides or view.shape) != len(view.shape):
            return Finding(f"one stride per axis of strided {name}, else none", str(strides), "correct the view")
        if min(strides or (0,)) < 0:
            return Finding(f"strides of {name} >= 0", str(strides), "reverse the tensor another way")
    return None


def start_lanes(command: Command, chip: ChipSpec) -> Finding | None:
    """The start lane of a laned view exists."""
    return first(
        Finding(f"start lane of {name} within 0-{chip.lanes - 1}", str(view.lane), "correct the view")
        for name, view in command.operands()
        if view.laned and not 0 <= view.lane < chip.lanes
    )


def interleaves(command: Command, chip: ChipSpec) -> Finding | None:
    """Batch items share a 4-byte word (4N/2N) only on a chip with batch packing, 4/B of them (hardware.md 2.5)."""
    for name, view in command.operands():
        factor = chip.batch_factor(itemsize(view.dtype))
        if view.interleave not in (1, factor):
            return Finding(f"interleave of {name} 1 or {factor}", str(view.interleave), "use chip.batch_factor")
    return None


def four_bits(command: Command, chip: ChipSpec) -> Finding | None:
    """Elements of 4 bits are moved, or are the filter of CONV or the right matrix of MM2; rows start at whole bytes.

    They are not packed in 4-byte words (4N). Decision: other commands have no form with 4 bits (upstream forbids them
    in transpose, broadcast, copy and division, hardware.md 4); a 4-bit filter has the channel packing of 8 bits, as
    the input it meets.
    """
    for name, view in command.operands():
        if not is_packed(view.dtype):
            continue
        if (type(command), name) not in _FOUR_BITS and not isinstance(command, Move):
            return Finding(f"{name} of 8 bits or more", view.dtype, "4 bits are for filters and right matrices")
        if view.interleave > 1:
            return Finding(f"4-bit {name} without batch packing", f"interleave {view.interleave}", "use interleave=1")
        try:
            byte_view(view)
        except CommandError as error:
            return Finding(f"{name} by whole bytes", str(error), "give its rows an even length")
    return None


_FOUR_BITS = {(Conv, "filter"), (MatMul, "right")}


def lmem_bounds(command: Command, chip: ChipSpec) -> Finding | None:
    """Every byte of an operand lies inside its lane (hardware.md 2.1)."""
    for name, view in local_operands(command):
        reach = extent(view, chip)
        if reach.start < 0 or reach.stop > chip.lmem_bytes:
            got = f"bytes [{reach.start:,}, {reach.stop:,})"
            return Finding(f"{name} inside the {chip.lmem_bytes:,} bytes of a lane", got, "cut the slice smaller")
    return None


def addresses(command: Command, chip: ChipSpec) -> Finding | None:
    """An aligned operand starts at a multiple of EU_BYTES; a free-stride or compact one at a whole element or word."""
    for name, view in local_operands(command):
        step = chip.eu_bytes if view.layout == "aligned" else itemsize(view.dtype) * view.interleave
        if view.address % step:
            return Finding(f"{name} ({view.layout}) at a multiple of {step} bytes", f"{view.address:,}", "align it")
    return None


def coefficient_addresses(command: Command, chip: ChipSpec) -> Finding | None:
    """A bias of a convolution is 4-byte aligned, a requant table 8-byte aligned (2-byte biases: by element)."""
    if isinstance(command, ChannelRescale):
        operands: tuple[tuple[str, View | None, int], ...] = (("table", command.table, 8),)
    elif isinstance(command, Conv | Depthwise):
        operands = (("bias", command.bias, 4), ("requant_table", command.requant_table, 8))
    else:
        return None
    for name, view, step in operands:
        if view is not None and view.address % min(step, 2 * itemsize(view.dtype)):
            return Finding(f"{name} at a multiple of {step} bytes", f"{view.address:,}", "align it")
    return None


def conv_input_lane(command: Command, chip: ChipSpec) -> Finding | None:
    """The input of an 8- or 16-bit CONV starts at lane 0."""
    if not isinstance(command, Conv) or itemsize(command.input.dtype) == 4 or command.input.lane == 0:
        return None
    return Finding("input at lane 0", f"lane {command.input.lane}", "copy it with LaneCopy")


def coefficient_lanes(command: Command, chip: ChipSpec) -> Finding | None:
    """Filter, bias and requant table of a convolution start at the lane of its output."""
    if not isinstance(command, Conv | Depthwise):
        return None
    return first(
        Finding(f"{name} at the output's lane {command.output.lane}", f"lane {view.lane}", "load it at that lane")
        for name, view in local_operands(command)
        if name in _COEFFICIENTS and view.lane != command.output.lane
    )


def shared_lane(command: Command, chip: ChipSpec) -> Finding | None:
    """Operands and result of AR share the start lane; so do those of RQ/DQ, PorD and SG, which cross no lanes either.

    The tables of SG are the same in every lane and have none; its indices lie in all lanes.
    """
    if not isinstance(
        command,
        Arith
        | Compare
        | Where
        | ChannelScale
        | Select
        | Lut
        | Pick
        | FloatLut
        | Rescale
        | ChannelRescale
        | Quantize
        | Dequantize
        | Pool
        | Depthwise,
    ):
        return None
    lane = command.output.lane
    return first(
        Finding(f"{name} at the output's lane {lane}", f"lane {view.lane}", "move it with LaneCopy first")
        for name, view in local_operands(command)
        if view.lane != lane and not (isinstance(command, Lut | FloatLut) and name in ("table", "mantissa"))
    )


def arith_strides(command: Command, chip: ChipSpec) -> Finding | None:
    """Explicit strides of AR operands are below 2**18."""
    if not isinstance(command, Arith | Compare | Where):
        return None
    return first(
        Finding(f"strides of {name} < 262,144", str(view.strides), "use a smaller slice")
        for name, view in local_operands(command)
        if max(view.strides or (0,)) >= 1 << 18
    )


def dimensions(command: Command, chip: ChipSpec) -> Finding | None:
    """Every axis of an operand is 1 to 65535 long; c, h, w of a TIU operand end at the chip's limit (CV18xx 4063)."""
    limit = _LONGEST if isinstance(command, Move | Fill) else chip.max_axis
    return first(
        Finding(f"axes of {name} within 1-{limit}", str(view.shape), "split the command, or reshape the view")
        for name, view in command.operands()
        if not all(1 <= size <= (limit if axis else _LONGEST) for axis, size in enumerate(view.shape))
    )


def conv_channels(command: Command, chip: ChipSpec) -> Finding | None:
    """A convolution has at most the chip's number of input and output channels."""
    if not isinstance(command, Conv | Depthwise):
        return None
    most = max(command.input.shape[1], command.output.shape[1])
    if most <= chip.max_conv_channels:
        return None
    return Finding(f"at most {chip.max_conv_channels} channels", str(most), "split the channels")


Rule = Callable[[Command, ChipSpec], Finding | None]

_RULES_OF_PLACE: tuple[Rule, ...] = (sequence_ids, cores)
"""The rules about what the form of a command does not have."""

RULES: tuple[Rule, ...] = (
    *_RULES_OF_PLACE,
    messages,
    memories,
    layouts,
    start_lanes,
    interleaves,
    four_bits,
    lmem_bounds,
    addresses,
    coefficient_addresses,
    conv_input_lane,
    coefficient_lanes,
    shared_lane,
    arith_strides,
    dimensions,
    window_ranges,
    conv_channels,
    *REQUANT_RULES,
    *SHAPE_RULES,
    *SHARING_RULES,
)
"""Every rule, in the order they are tried."""

BODY_RULES: tuple[Rule, ...] = (layouts, start_lanes, interleaves, four_bits, *REQUANT_RULES, *SHAPE_RULES)
"""The rules for what a global kernel computes."""


def check(command: Command, chip: ChipSpec) -> None:
    """Raise CommandError if `command` breaks a rule of `chip`."""
    if isinstance(command, GlobalKernel):
        _apply((sequence_ids, cores, memories), command, command, chip)
        _apply(BODY_RULES, command.body, command, chip)
        _apply(KERNEL_SHARING_RULES, command, command, chip)
    else:
        _apply(_RULES_OF_PLACE, command, command, chip)
        if not _legal(command.form, chip):
            _apply(RULES, command, command, chip)


@lru_cache(1 << 14)
def _legal(form: Command, chip: ChipSpec) -> bool:
    """Whether no rule finds anything; kept, as tiles and slices have few forms."""
    return all(rule(form, chip) is None for rule in RULES)


def check_form(command: Command, chip: ChipSpec) -> None:
    """Raise CommandError for a view that has no meaning at all: too few axes or strides."""
    for subject in (command, command.body) if isinstance(command, GlobalKernel) else (command,):
        _apply((layouts,), subject, command, chip)
    for view in command.scratch():
        if len(view.shape) != 4 or view.layout != "compact" or not view.laned:
            _apply((work_areas,), command, command, chip)


def _apply(rules: tuple[Rule, ...], subject: Command, command: Command, chip: ChipSpec) -> None:
    for rule in rules:
        finding = rule(subject, chip)
        if finding is not None:
            raise CommandError(
                f"{command.label} on {chip.name}: {rule.__name__} requires {finding.requirement}, "
                f"got {finding.got}; {finding.advice}"
            )
