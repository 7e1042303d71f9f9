"""The roofline of a network: the bound of every op and layer group, and cycles with changed figures of the chip.

Changes that keep the program are computed by the clock (`tpusim.simulator.roofline`). More local memory and another cut
need another program: the network is grouped again, and parts with the same ops are compared.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tpusim import chips
from tpusim.chips import ChipSpec
from tpusim.ir.module import Model
from tpusim.isa.stream import Program
from tpusim.layer_group import LayerGroupConfig, products
from tpusim.passes import PassManager
from tpusim.passes.layer_group import LayerGroup
from tpusim.passes.lowering import WeightReorder
from tpusim.passes.pipelines import commands
from tpusim.simulator import Roofline, Timeline, roofline, summary, timeline
from tpusim.studies.explore.diff import Part, parts

MEMORY, CUT = "local memory x2", "cut by best"
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Regrouped:
    """The network grouped again: the change, the cycles of the program, and the parts with the same ops."""

    name: str
    cycles: int
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Found:
    """The roofline of a network."""

    model: str
    chip: ChipSpec
    mode: str
    roofs: Roofline
    regrouped: tuple[Regrouped, ...]

    def to_json(self) -> dict[str, Any]:
        """All results; of other groupings only their cycles, not their groups."""
        again = {one.name: one.cycles for one in self.regrouped}
        return {
            "model": self.model, "chip": self.chip.name, "mode": self.mode, **self.roofs.to_json(), "regrouped": again,
        }  # fmt: skip


def under_roofs(
    tpu: Model, config: LayerGroupConfig | None = None, *, best: bool = False, progress: Progress | None = None
) -> Found:
    """The roofline of a lowered module. best: also group it by strategy best, which takes many times as long."""
    config = config or LayerGroupConfig()
    told = progress or _silent
    model = PassManager(WeightReorder()).run(tpu)
    chip = chips.of(model)
    told("as it is")
    shipped = PassManager(LayerGroup.from_config(config)).run(model)
    program, found = _clocked(shipped)
    roofs = roofline(program, found, summary(program, found, chip), chip, *products(shipped))
    again: list[Regrouped] = []
    for name, other, how in _anew(model, chip, config, best=best):
        told(name)
        theirs, cost = _clocked(PassManager(LayerGroup.from_config(how)).run(other))
        sides = {"groups": _groups(program, found)}, {"groups": _groups(theirs, cost)}
        again.append(Regrouped(name, cost.cycles, tuple(parts(*sides))))
    return Found(model.name, chip, model.mode, roofs, tuple(again))


def _silent(text: str) -> None:
    del text


def _anew(
    model: Model, chip: ChipSpec, config: LayerGroupConfig, *, best: bool
) -> Iterator[tuple[str, Model, LayerGroupConfig]]:
    """(change, module, options) of every other grouping."""
    larger = model.clone()
    spec = chip.replace(f"{chip.name} {MEMORY}", lmem_bytes=2 * chip.lmem_bytes)
    larger.set(chip=spec.name, chip_definition=chips.define(spec))
    yield MEMORY, larger, config
    if best and config.opt != "best":
        yield CUT, model, replace(config, opt="best")


def _clocked(divided: Model) -> tuple[Program, Timeline]:
    program = PassManager(commands()).program(divided)
    return program, timeline(program, chips.of(divided))


def _groups(program: Program, found: Timeline) -> Sequence[dict[str, Any]]:
    """The groups with the keys of `report.json` that are compared."""
    return [
        {"ops": list(entry.ops), "secs": entry.secs, "reason": entry.reason, **vars(found.groups[entry.id])}
        for entry in program.groups
    ]
