"""Alternatives of one layer group, each compiled and costed, or refused by a rule.

The other groups do not change, except that moving the end of the group gives ops to the next group or takes ops from
it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tpusim import chips
from tpusim.errors import CapacityError, ConfigError, UnsupportedError
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.layer_group import Counts, ForcedGroup, GroupView, LayerGroupConfig, TypeName, group_number, views
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.framework.logical import GroupType
from tpusim.passes import PassManager
from tpusim.passes.layer_group import LayerGroup
from tpusim.passes.lowering import WeightReorder
from tpusim.passes.pipelines import commands
from tpusim.simulator.summary import summary
from tpusim.simulator.timing import timeline

MOVES = -8, -4, -2, -1, 1, 2, 4, 8
"""Numbers of ops by which the end of the group is moved."""
COUNTS = 1, 2, 3, 4, 6, 8, 12, 16
"""The numbers of sections to try along an axis."""
AXES = "h", "n"
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Alternative:
    """One way to cut the group. knob: the varied option, as "sections h"; value: its value; shipped: the present cut.

    figures: of the program and of the group, {} if it is refused; why: the rule that refuses it; change: the nearest
    tried value of the same knob that works, "" without any. view: None if refused.
    """

    knob: str
    value: str
    shipped: bool
    figures: dict[str, Any]
    view: GroupView | None = None
    why: str = ""
    change: str = ""


@dataclass(frozen=True)
class WhatIf:
    """A group, by its number, and its alternatives, the shipped one first."""

    model: str
    chip: str
    mode: str
    group: int
    ops: tuple[str, ...]
    alternatives: tuple[Alternative, ...]


def what_if(
    tpu: Model, config: LayerGroupConfig | None = None, group: int | None = None, progress: Progress | None = None
) -> WhatIf:
    """The alternatives of a group of a lowered module; group: by default the longest on the clock.

    Raises ConfigError for a group that does not exist.
    """
    config = config or LayerGroupConfig()
    model = PassManager(WeightReorder()).run(tpu)
    shipped = PassManager(LayerGroup.from_config(config)).run(model)
    everything = list(views(shipped))
    found = [view for view in everything if isinstance(view, GroupView)]
    if not found:
        raise ConfigError(f"{model.name}: a layer group is required, but the module has only global layers")
    own = _longest(shipped, found) if group is None else group_number(everything, group)
    at = found.index(own)
    bench = _Bench(model, config, found, at)
    alternatives = [Alternative("as shipped", "", True, *_costed(shipped, found[at].ops[0][0]))]
    for knob, value, pins in bench.wanted():
        if progress is not None:
            progress(f"{knob} {value}")
        alternatives.append(bench.tried(knob, value, pins))
    ops = tuple(name for name, _ in own.ops)
    return WhatIf(model.name, model.chip, model.mode, own.index, ops, tuple(_with_changes(alternatives)))


Pins = tuple[ForcedGroup, ...]


@dataclass(frozen=True)
class _Bench:
    """Makes alternatives of one group; the other groups are pinned."""

    model: Model
    config: LayerGroupConfig
    found: Sequence[GroupView]
    at: int

    def wanted(self) -> Iterator[tuple[str, str, Pins | None]]:
        """(knob, value, pinned groups) of every alternative; None: no pins, searched without results in place."""
        own = self.found[self.at]
        for moved in MOVES:
            pins = self._moved(moved)
            if pins:
                yield "end of the group", f"{moved:+d} op{'s' if abs(moved) > 1 else ''}", pins
        for axis in AXES:
            for count in COUNTS:
                if count != own.sections[axis]:
                    yield f"sections {axis}", str(count), self._pinned(_pin(own, {axis: count}))
        for kind in GroupType:
            if kind is not own.kind:
                yield "type", str(kind), self._pinned(_pin(own, {}, kind))
        if self.config.in_place:
            yield "in place", "results have separate bytes", None

    def tried(self, knob: str, value: str, pins: Pins | None) -> Alternative:
        """One alternative of the group with its cost or the reason of its refusal."""
        layers = tuple(item for item in self.config.force if item.type == "GLOBAL")
        pinned = (*layers, *(pins or ()))
        config = replace(self.config, in_place=False) if pins is None else replace(self.config, opt="2", force=pinned)
        try:
            divided = PassManager(LayerGroup.from_config(config)).run(self.model)
            return Alternative(knob, value, False, *_costed(divided, self.found[self.at].ops[0][0]))
        except (CapacityError, ConfigError, UnsupportedError) as error:
            return Alternative(knob, value, False, {}, why=str(error))

    def _pinned(self, own: ForcedGroup) -> Pins:
        return tuple(own if i == self.at else _pin(view, {}) for i, view in enumerate(self.found))

    def _moved(self, moved: int) -> Pins:
        """The groups with the end of this one moved; () if this or the next group would be empty or is missing."""
        names = [op_name(op) for op in self.model.ops if isinstance(op, TpuOp)]
        own = self.found[self.at]
        first, last = names.index(own.ops[0][0]), names.index(own.ops[-1][0]) + moved
        if not first <= last < len(names):
            return ()
        pins = [ForcedGroup(own.ops[0][0], names[last])]
        for i, view in enumerate(self.found):
            end = names.index(view.ops[-1][0])
            if i == self.at + 1 and _touch(own, view, names):
                pins += [ForcedGroup(names[last + 1], names[end])] if last < end else []
            elif i != self.at and not first <= end <= last:
                pins.append(_pin(view, {}))
        return tuple(pins)


def _touch(own: GroupView, after: GroupView, names: Sequence[str]) -> bool:
    """Whether no op is between two groups."""
    return names.index(own.ops[-1][0]) + 1 == names.index(after.ops[0][0])


def _pin(view: GroupView, counts: dict[str, int], kind: GroupType | None = None) -> ForcedGroup:
    """The group with some sections changed, or with another type and searched sections."""
    sections = Counts(**{**view.sections, **counts}) if kind is None else None
    return ForcedGroup(view.ops[0][0], view.ops[-1][0], msgspec.convert(str(kind or view.kind), TypeName), sections)


def _longest(divided: Model, found: Sequence[GroupView]) -> GroupView:
    costs = timeline(PassManager(commands()).program(divided), chips.of(divided)).groups
    return max(found, key=lambda view: costs[view.index].cycles)


def _costed(divided: Model, first: str) -> tuple[dict[str, Any], GroupView]:
    """(figures of the program and of the group that starts with op `first`, as in `report.json`; the group)."""
    chip = chips.of(divided)
    program = PassManager(commands()).program(divided)
    found = timeline(program, chip)
    entry = next(entry for entry in program.groups if first in entry.ops)
    cost, work = found.groups[entry.id], summary(program, found, chip).groups[entry.id]
    view = group_number(list(views(divided)), entry.id)
    figures = {
        "cycles": found.cycles,
        "milliseconds": found.milliseconds * chip.calibration.factor,
        "load_bytes": found.load_bytes,
        "store_bytes": found.store_bytes,
        "group": {
            "cycles": cost.cycles, "load_bytes": cost.load_bytes, "store_bytes": cost.store_bytes,
            "lmem_peak_bytes": entry.lmem_peak_bytes, "lmem_bytes": chip.lmem_bytes, **vars(work),
        },
    }  # fmt: skip
    return figures, view


def _with_changes(found: Sequence[Alternative]) -> Iterator[Alternative]:
    """The alternatives, refused ones completed with the nearest value of the same knob that works."""
    for i, one in enumerate(found):
        able = [j for j, other in enumerate(found) if other.knob == one.knob and other.figures]
        if not one.why:
            yield one
        elif able:
            yield replace(one, change=f"{one.knob} {found[min(able, key=lambda j: abs(j - i))].value} works")
        else:
            yield replace(one, change="none of the values tried works; the group as shipped does")
