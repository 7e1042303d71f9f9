"""Legality of a command on a chip (hardware.md 4, decision DH-06): one function is one rule, its docstring the rule.

A rule returns None or a `Finding`; `check` turns the first finding into a CommandError. Here are the rules that every
command obeys; a command's file has the rules for it alone (`Command.rules`, `Command.local_rules`). `RULES` lists all.
The body of a global kernel obeys `BODY_RULES` only: a library kernel tiles it, so lane and range limits do not apply.
"""

from collections.abc import Iterable
from functools import cache, lru_cache
from itertools import chain

from tpusim.chips import ChipSpec
from tpusim.errors import CommandError
from tpusim.isa.commands.base import Command
from tpusim.isa.finding import Finding, Rule, first
from tpusim.isa.layout import extent
from tpusim.isa.region import FLOATS, byte_view, is_packed, itemsize
from tpusim.isa.requants import REQUANT_RULES
from tpusim.isa.sharing import KERNEL_SHARING_RULES, SHARING_RULES, work_areas
from tpusim.registry import COMMANDS

ID_LIMIT = 1 << 20
"""Ids of an engine count from 1 and are less than this (codegen.md 2, DC-03)."""
_LONGEST = 65535


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


def executors(command: Command, chip: ChipSpec) -> Finding | None:
    """What no engine of the chip computes is the body of a call of the host."""
    if not command.on_chip or not command.computed.only_on_host:
        return None
    return Finding("a call of the host around a function of the host", type(command).__name__, "use a HostCall")


def memories(command: Command, chip: ChipSpec) -> Finding | None:
    """Only Move and Fill reach global memory; TIU operands lie in LMEM, those of a global kernel's body in GMEM."""
    wanted = command.memory
    return first(
        Finding(f"operand {name} in {wanted}", view.memory, "load it with Move, or use a GlobalKernel")
        for name, view in command.computed.operands()
        if wanted is not None and view.memory != wanted
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
            return Finding(f"strides of {name} >= 0", str(strides), "reverse the tensor by other means")
    return None


def start_lanes(command: Command, chip: ChipSpec) -> Finding | None:
    """The start lane of a laned view exists."""
    return first(
        Finding(f"start lane of {name} within 0-{chip.lanes - 1}", str(view.lane), "correct the view")
        for name, view in command.operands()
        if view.laned and not 0 <= view.lane < chip.lanes
    )


def interleaves(command: Command, chip: ChipSpec) -> Finding | None:
    """Only a chip with batch packing stores 4/B batch items in a 4-byte word (4N/2N, hardware.md 2.5)."""
    for name, view in command.operands():
        factor = chip.batch_factor(itemsize(view.dtype))
        if view.interleave not in (1, factor):
            return Finding(f"interleave of {name} 1 or {factor}", str(view.interleave), "use chip.batch_factor")
    return None


def four_bits(command: Command, chip: ChipSpec) -> Finding | None:
    """Only copies, filters of CONV and right matrices of MM2 have elements of 4 bits; their rows start at whole bytes.

    They are not packed in 4-byte words (4N). Decision: other commands have no form with 4 bits (upstream forbids them
    in transpose, broadcast, copy and division, hardware.md 4); a 4-bit filter has the channel packing of 8 bits, like
    its input.
    """
    for name, view in command.operands():
        if not is_packed(view.dtype):
            continue
        if name not in command.four_bits:
            return Finding(f"{name} of 8 bits or more", view.dtype, "4 bits are for filters and right matrices")
        if view.interleave > 1:
            return Finding(f"4-bit {name} without batch packing", f"interleave {view.interleave}", "use interleave=1")
        try:
            byte_view(view)
        except CommandError as error:
            return Finding(f"{name} by whole bytes", str(error), "give its rows an even length")
    return None


def lmem_bounds(command: Command, chip: ChipSpec) -> Finding | None:
    """Every byte of an operand lies inside its lane (hardware.md 2.1)."""
    for name, view in command.local_operands():
        reach = extent(view, chip)
        if reach.start < 0 or reach.stop > chip.lmem_bytes:
            got = f"bytes [{reach.start:,}, {reach.stop:,})"
            return Finding(f"{name} inside the {chip.lmem_bytes:,} bytes of a lane", got, "cut the slice smaller")
    return None


def addresses(command: Command, chip: ChipSpec) -> Finding | None:
    """An aligned operand starts at a multiple of EU_BYTES; a free-stride or compact one at a whole element or word."""
    for name, view in command.local_operands():
        step = chip.eu_bytes if view.layout == "aligned" else itemsize(view.dtype) * view.interleave
        if view.address % step:
            return Finding(f"{name} ({view.layout}) at a multiple of {step} bytes", f"{view.address:,}", "align it")
    return None


def shared_lane(command: Command, chip: ChipSpec) -> Finding | None:
    """Operands and result of AR, RQ/DQ, PorD and SG share the start lane, because these units cross no lanes.

    Tables of SG are the same in every lane and have no start lane; its indices lie in all lanes.
    """
    if not command.one_lane:
        return None
    lane = command.writes()[0].lane
    return first(
        Finding(f"{name} at the output's lane {lane}", f"lane {view.lane}", "move it with LaneCopy first")
        for name, view in command.local_operands()
        if view.lane != lane and name not in command.in_every_lane
    )


def dimensions(command: Command, chip: ChipSpec) -> Finding | None:
    """Every axis of an operand is 1 to 65535 long; c, h, w of a TIU operand at most the chip's limit."""
    limit = _LONGEST if command.engine == "gdma" else chip.max_axis
    return first(
        Finding(f"axes of {name} within 1-{limit}", str(view.shape), "split the command, or reshape the view")
        for name, view in command.operands()
        if not all(1 <= size <= (limit if axis else _LONGEST) for axis, size in enumerate(view.shape))
    )


def coefficient_addresses(command: Command, chip: ChipSpec) -> Finding | None:
    """A bias of a convolution is 4-byte aligned (a bias of 2 bytes: 2-byte), a requant table 8-byte aligned."""
    return first(
        Finding(f"{name} at a multiple of {step} bytes", f"{view.address:,}", "align it")
        for name, view in command.operands()
        if (step := command.alignments.get(name, 0)) and view.address % min(step, 2 * itemsize(view.dtype))
    )


def channel_operands(command: Command, chip: ChipSpec) -> Finding | None:
    """Per-channel operands are (1, c, 1, 1), a requant table (1, c, 1, 3) int32, if packed (1, c, 1, 2).

    In rows of channels a requant table is (1, c, 1, 9) bytes with bias, (1, c, 1, 5) without; a bias of two
    16-bit planes (2, c, 1, 1) (hardware.md 2.3).
    """
    for name, view, shape, dtype in command.per_channel(chip):
        if view is not None and view.shape != shape:
            return Finding(f"{name} {shape}", str(view.shape), "correct the view")
        if view is not None and dtype and view.dtype != dtype:
            return Finding(f"{name} {dtype}", view.dtype, "convert it")
    return None


def elementwise_shapes(command: Command, chip: ChipSpec) -> Finding | None:
    """Element-wise operands have the output's shape; axes of AR operands may have length 1 and broadcast."""
    if not command.shapes:
        return None
    target = command.writes()[0].shape
    if command.shapes == "same":
        name, view = command.operands()[0]
        return None if view.shape == target else Finding(f"{name} {target}", str(view.shape), "correct the views")
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

    AR with an integer result has integer operands and an integral constant. The operands of a comparison are both
    integers or both floats. The branches of a selection have the output's type.
    """
    if (misfit := command.type_misfit()) is not None:
        return misfit
    known = [view for name, view in command.operands() if name in command.one_kind]
    if len({view.dtype in FLOATS for view in known if view.dtype != "u16"}) <= 1:  # u16: planes of f32
        return None
    got = ", ".join(f"{name} {view.dtype}" for name, view in command.operands())
    return Finding("operands all integer or all float", got, "convert with Quantize or Dequantize")


_RULES_OF_PLACE: tuple[Rule, ...] = (sequence_ids, cores, executors)
"""The rules about fields that are not part of a command's form, and about what executes it."""
_VIEW_RULES: tuple[Rule, ...] = (layouts, start_lanes, interleaves, four_bits)
_LOCAL_RULES: tuple[Rule, ...] = (lmem_bounds, addresses, coefficient_addresses)
_LANE_RULES: tuple[Rule, ...] = (shared_lane, dimensions)
_TYPE_RULES: tuple[Rule, ...] = (channel_operands, elementwise_shapes, element_types)


def _in_order(
    local_rules: tuple[Rule, ...], requant_rules: tuple[Rule, ...], rules: tuple[Rule, ...]
) -> tuple[Rule, ...]:
    """The rules of local memory, in the order of checking."""
    return (
        memories,
        *_VIEW_RULES,
        *_LOCAL_RULES,
        *local_rules,
        *_LANE_RULES,
        *requant_rules,
        *rules,
        *_TYPE_RULES,
        *SHARING_RULES,
    )


@cache
def rules_of(kind: type[Command]) -> tuple[Rule, ...]:
    """Every rule of a class of commands, except those about fields outside its form."""
    return _in_order(kind.local_rules, REQUANT_RULES, kind.rules)


@cache
def body_rules_of(kind: type[Command]) -> tuple[Rule, ...]:
    """The rules for a class of commands that a global kernel computes."""
    return (*_VIEW_RULES, *REQUANT_RULES, *kind.rules, *_TYPE_RULES)


def _once(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    return tuple(dict.fromkeys(rules))


_SHIPPED: tuple[type[Command], ...] = tuple(COMMANDS.shipped().values())
_OF_COMMANDS = _once(chain.from_iterable(kind.rules for kind in _SHIPPED))

RULES: tuple[Rule, ...] = (
    *_RULES_OF_PLACE,
    *_in_order(_once(chain.from_iterable(kind.local_rules for kind in _SHIPPED)), REQUANT_RULES, _OF_COMMANDS),
)
"""Every rule: those of all commands, and those of the single shipped commands."""

BODY_RULES: tuple[Rule, ...] = (*_VIEW_RULES, *REQUANT_RULES, *_OF_COMMANDS, *_TYPE_RULES)
"""The rules for what a global kernel computes."""


def check(command: Command, chip: ChipSpec) -> None:
    """Raise CommandError if `command` breaks a rule of `chip`."""
    body = command.computed
    if body is not command:
        _apply((*_RULES_OF_PLACE, memories), command, command, chip)
        _apply(body_rules_of(type(body)), body, command, chip)
        _apply(KERNEL_SHARING_RULES, command, command, chip)
    else:
        _apply(_RULES_OF_PLACE, command, command, chip)
        if not _legal(command.form, chip):
            _apply(rules_of(type(command)), command, command, chip)


@lru_cache(1 << 14)
def _legal(form: Command, chip: ChipSpec) -> bool:
    """Whether the command breaks no rule; cached, because tiles and slices have few forms."""
    return all(rule(form, chip) is None for rule in rules_of(type(form)))


def check_form(command: Command, chip: ChipSpec) -> None:
    """Raise CommandError for a view without a meaning: too few axes or strides."""
    for subject in (command,) if command.computed is command else (command, command.computed):
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
