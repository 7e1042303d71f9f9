"""Layer groups as the options ask: by the searches of `tpusim.layer_group`, or the best that is found on the clock.

Input: a module with its weights in chip layout. Output: its copy with layer groups. The searches go by estimates of
groups before anything has an address. `best` compiles what each of them finds, keeps what takes the fewest cycles, and
then cuts the longest groups into more sections while that is quicker.
"""

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from tpusim import chips
from tpusim.codegen import generate
from tpusim.errors import CapacityError, ConfigError
from tpusim.ir.module import Model
from tpusim.layer_group import Counts, ForcedGroup, GroupView, LayerGroupConfig, TypeName, group_layers, views
from tpusim.memory import assign_addresses
from tpusim.simulator.timing import timeline

LONGEST = 3
"""How many groups are cut again: those that take the longest on the clock."""
MORE = 2, 3, 4
"""How many times as many sections along n or h are tried."""


def divide(model: Model, config: LayerGroupConfig) -> Model:
    """A copy of the module with its layer groups, as `group_layers`; with opt "best" the quickest that is found.

    Of equal ones it is the first, strategy 2's, so that "best" never takes longer. Raises as `group_layers`.
    """
    if config.opt != "best":
        return group_layers(model, config)
    first, *others = candidates(config)
    found = [group_layers(model, first)]
    found += [tried for other in others if (tried := _tried(model, other)) is not None]
    return _cut_finer(model, min(found, key=cycles), first)


def candidates(config: LayerGroupConfig) -> Iterator[LayerGroupConfig]:
    """What "best" chooses from: strategy 2 with the other options, with searched sections, in place; and greedily."""
    follows = replace(config, opt="2")
    yield follows
    yield replace(follows, shape_secs_search_strategy="1")
    yield replace(follows, in_place=True)
    yield replace(config, opt="1")


def cycles(grouped: Model) -> int:
    """TIU cycles of a module in groups on the clock."""
    return timeline(generate(assign_addresses(grouped)), chips.of(grouped)).cycles


def _longest(grouped: Model) -> list[str]:
    """The first ops of the longest groups on the clock."""
    program = generate(assign_addresses(grouped))
    costs = timeline(program, chips.of(grouped)).groups
    local = [group for group in program.groups if not group.reason]
    return [g.ops[0] for g in sorted(local, key=lambda g: -costs[g.id].cycles)[:LONGEST]]


def _tried(model: Model, config: LayerGroupConfig) -> Model | None:
    """The groups of a configuration; None where its pinned groups are impossible."""
    try:
        return group_layers(model, config)
    except (CapacityError, ConfigError):
        return None


def _cut_finer(model: Model, grouped: Model, config: LayerGroupConfig) -> Model:
    """The module with more sections in its longest groups, as long as each makes it quicker."""
    least = cycles(grouped)
    for first in _longest(grouped):
        for pins in _finer(grouped, first):
            tried = _tried(model, replace(config, force=pins))
            if tried is not None and (taken := cycles(tried)) < least:
                grouped, least = tried, taken
    return grouped


def _finer(grouped: Model, first: str) -> Iterator[tuple[ForcedGroup, ...]]:
    """All groups pinned as they are, but for more sections of the one that begins with an op."""
    found = [view for view in views(grouped) if isinstance(view, GroupView)]
    for axis in ("h", "n"):
        for times in MORE:
            yield tuple(_pin(view, axis, times if view.ops[0][0] == first else 1) for view in found)


def _pin(view: GroupView, axis: str, times: int) -> ForcedGroup:
    counts = {**view.sections, axis: view.sections[axis] * times}
    kind = msgspec.convert(str(view.kind), TypeName)
    return ForcedGroup(view.ops[0][0], view.ops[-1][0], kind, Counts(**counts))
