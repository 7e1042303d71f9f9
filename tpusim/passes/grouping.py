"""Layer groups as the options ask: by the searches of `tpusim.layer_group`, or the quickest on the clock.

Input: a module with its weights in chip layout. Output: its copy with layer groups. The searches go by estimates of
groups before anything has an address. `best` compiles the groups of each search, also with rows that TPU-MLIR does not
have, and keeps those that take the fewest cycles. It then tries other orders of the ops (for a small module with every
division into groups). Finally it joins the longest groups with adjacent ops, and cuts them into more sections, as long
as that is quicker.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations, pairwise

import msgspec

from tpusim import chips
from tpusim.codegen import generate
from tpusim.errors import CapacityError, ConfigError
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.isa.stream import Program
from tpusim.layer_group import (
    ON_THE_CLOCK,
    Costs,
    Counts,
    ForcedGroup,
    GlobalView,
    GroupView,
    LayerGroupConfig,
    TypeName,
    group_layers,
    orders,
    views,
)
from tpusim.memory import assign_addresses
from tpusim.ops.framework.base import TpuOp
from tpusim.simulator.timing import Timeline, timeline

LONGEST = 3
"""How many groups are changed: those that take the longest on the clock."""
MORE = 2, 3, 4
"""How many times as many sections along n or h are tried."""
SMALL = 8
"""Ops of a module of which every division is tried."""
Pins = tuple[ForcedGroup, ...]
Moves = Callable[[Model], Iterator[Pins]]
"""What may be tried instead of the groups that a module has."""


def divide(model: Model, config: LayerGroupConfig, costs: Costs | None = None) -> Model:
    """A copy of the module with its layer groups, as `group_layers`; with opt "best" the quickest of all.

    Of equally quick ones the first counts, which is that of strategy 2, so that "best" never takes longer. Errors and
    `costs` are those of `group_layers`; "best" uses no costs, because it groups by several configurations.
    """
    if config.opt != ON_THE_CLOCK:
        return group_layers(model, config, costs)
    first, *others = candidates(config)
    found = [(group_layers(model, first), first)]
    found += [(tried, other) for other in others if (tried := _tried(model, other)) is not None]
    grouped, chosen = min(found, key=lambda item: cycles(item[0]))
    how = replace(chosen, opt="2", shape_secs_search_strategy="0")
    model, grouped = _reordered(model, _improved(model, grouped, how, _divided), chosen)
    for moves in (_joined, _finer):
        grouped = _improved(model, grouped, how, moves)
    return grouped


def _reordered(model: Model, grouped: Model, chosen: LayerGroupConfig) -> tuple[Model, Model]:
    """The quickest order of the ops, and its groups; pinned ops stay in the order that pins them."""
    how = replace(chosen, opt="2", shape_secs_search_strategy="0")
    best, least = (model, grouped), cycles(grouped)
    for other in () if chosen.force else orders(model):
        found = _tried(other, chosen)
        if found is None:
            continue
        found = _improved(other, found, how, _divided)
        if (taken := cycles(found)) < least:
            best, least = (other, found), taken
    return best


def candidates(config: LayerGroupConfig) -> Iterator[LayerGroupConfig]:
    """The configurations that "best" chooses from: strategy 2, and four with wide rows.

    Those are strategy 2, also with searched sections and not in place, and strategy 1. Rows are not widened if the
    options forbid to combine them.
    """
    yield replace(config, opt="2")
    wide = replace(config, opt="2", everywhere=True, wide_rows=config.wide_rows or config.timestep_combine)
    yield wide
    yield replace(wide, shape_secs_search_strategy="1")
    yield replace(wide, in_place=False)
    yield replace(wide, opt="1")


def cycles(grouped: Model) -> int:
    """TIU cycles of a module in groups on the clock."""
    return _on_the_clock(grouped)[1].cycles


def _on_the_clock(grouped: Model) -> tuple[Program, Timeline]:
    """The commands of a module in groups, and when they run."""
    program = generate(assign_addresses(grouped))
    return program, timeline(program, chips.of(grouped))


def _tried(model: Model, config: LayerGroupConfig) -> Model | None:
    """The groups of a configuration; None where its pinned groups are impossible."""
    try:
        return group_layers(model, config)
    except (CapacityError, ConfigError):
        return None


def _improved(model: Model, grouped: Model, config: LayerGroupConfig, moves: Moves) -> Model:
    """The module after every move that makes it quicker; no move is tried twice, and none moves what is forced."""
    least, tried = cycles(grouped), set[Pins]()
    while True:
        for pins in moves(grouped):
            if pins in tried:
                continue
            tried.add(pins)
            found = _tried(model, replace(config, force=_beyond(config.force, pins, model)))
            if found is not None and (taken := cycles(found)) < least:
                grouped, least = found, taken
                break
        else:
            return grouped


def _beyond(forced: Pins, pins: Pins, model: Model) -> Pins:
    """The forced groups, and the pins that share no op with them."""
    at = {op_name(op): i for i, op in enumerate(op for op in model.ops if isinstance(op, TpuOp))}
    spans = [range(at[item.first], at[item.last] + 1) for item in forced if item.first in at and item.last in at]
    taken = {i for span in spans for i in span} | {at[name] for item in forced for name in item.ops if name in at}
    return (*forced, *(pin for pin in pins if taken.isdisjoint(range(at[pin.first], at[pin.last] + 1))))


def _longest(grouped: Model) -> list[str]:
    """The first ops of the longest groups and global layers on the clock."""
    program, times = _on_the_clock(grouped)
    return [entry.ops[0] for entry in sorted(program.groups, key=lambda g: -times.groups[g.id].cycles)[:LONGEST]]


def _finer(grouped: Model) -> Iterator[Pins]:
    """All groups pinned as they are, but for more sections of one of the longest."""
    found = [view for view in views(grouped) if isinstance(view, GroupView)]
    for first in _longest(grouped):
        for axis in ("h", "n") if any(view.ops[0][0] == first for view in found) else ():
            for times in MORE:
                yield tuple(_pin(view, axis, times if view.ops[0][0] == first else 1) for view in found)


def _divided(grouped: Model) -> Iterator[Pins]:
    """All ways to divide a small module; a lone op is left to the search, which may leave it global."""
    ops = [name for view in views(grouped) for name in _names(view)]
    for count in range(len(ops)) if len(ops) <= SMALL else ():
        for cuts in combinations(range(1, len(ops)), count):
            parts = pairwise((0, *cuts, len(ops)))
            yield tuple(ForcedGroup(ops[i], ops[j - 1]) for i, j in parts if j > i + 1)


def _names(view: GroupView | GlobalView) -> list[str]:
    return [name for name, _ in view.ops] if isinstance(view, GroupView) else [view.name]


def _joined(grouped: Model) -> Iterator[Pins]:
    """All groups pinned as they are, except that one of the longest is joined with the op or group before or after it.

    The joined group has the first sections that work, or along h as many as the finer of both has, or twice as many.
    """
    found, longest = list(views(grouped)), _longest(grouped)
    for left, right in pairwise(found):
        pair = [view for view in (left, right) if isinstance(view, GroupView)]
        if not pair or not any(_ends(view)[0] in longest for view in (left, right)):
            continue
        rest = [_pin(v, "h", 1) for v in found if isinstance(v, GroupView) and v not in pair]
        most = max(view.sections["h"] for view in pair)
        for sections in (None, Counts(h=most), Counts(h=2 * most)):
            yield *rest, ForcedGroup(_ends(left)[0], _ends(right)[1], sections=sections)


def _ends(view: GroupView | GlobalView) -> tuple[str, str]:
    """The first and the last op."""
    return (view.ops[0][0], view.ops[-1][0]) if isinstance(view, GroupView) else (view.name, view.name)


def _pin(view: GroupView, axis: str, times: int) -> ForcedGroup:
    counts = {**view.sections, axis: view.sections[axis] * times}
    kind = msgspec.convert(str(view.kind), TypeName)
    return ForcedGroup(view.ops[0][0], view.ops[-1][0], kind, Counts(**counts))
