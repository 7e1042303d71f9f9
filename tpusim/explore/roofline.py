"""A network under the roofs of its chip: what bounds every op and layer group, and what would change that.

What needs no other program is the clock's (`tpusim.simulator.roofline`). More local memory and another cut need one:
the network is grouped again, and parts that hold the same ops are compared.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tpusim import chips
from tpusim.chips import ChipSpec
from tpusim.codegen import generate
from tpusim.explore.diff import Part, parts
from tpusim.grouping import divide
from tpusim.ir.module import Model
from tpusim.isa.stream import Program
from tpusim.layer_group import LayerGroupConfig, products
from tpusim.lowering import reorder_weights
from tpusim.memory import assign_addresses
from tpusim.simulator import Roofline, Timeline, roofline, summary, timeline

MEMORY, CUT = "local memory x2", "cut by best"
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Regrouped:
    """The network grouped anew: what differs, the cycles of all of it, and the parts that hold the same ops."""

    name: str
    cycles: int
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Found:
    """A network under the roofs."""

    model: str
    chip: ChipSpec
    mode: str
    roofs: Roofline
    regrouped: tuple[Regrouped, ...]

    def to_json(self) -> dict[str, Any]:
        """All of it but the groups of what was grouped anew, of which the cycles are kept."""
        again = {one.name: one.cycles for one in self.regrouped}
        return {
            "model": self.model, "chip": self.chip.name, "mode": self.mode, **self.roofs.to_json(), "regrouped": again,
        }  # fmt: skip


def under_roofs(
    tpu: Model, config: LayerGroupConfig | None = None, *, best: bool = False, progress: Progress | None = None
) -> Found:
    """A lowered module under the roofs of its chip. best: also cut by strategy best, which takes many times as long."""
    config = config or LayerGroupConfig()
    told = progress or _silent
    model = reorder_weights(tpu) if tpu.state == "TPU_LOWERED" else tpu
    chip = chips.of(model)
    told("as it is")
    grouped = divide(model, config)
    program, found = _clocked(grouped)
    roofs = roofline(program, found, summary(program, found, chip), chip, *products(grouped))
    again: list[Regrouped] = []
    for name, other, how in _anew(model, chip, config, best=best):
        told(name)
        theirs, cost = _clocked(divide(other, how))
        sides = {"groups": _groups(program, found)}, {"groups": _groups(theirs, cost)}
        again.append(Regrouped(name, cost.cycles, tuple(parts(*sides))))
    return Found(model.name, chip, model.attribute("module.mode"), roofs, tuple(again))


def _silent(text: str) -> None:
    del text


def _anew(
    model: Model, chip: ChipSpec, config: LayerGroupConfig, *, best: bool
) -> Iterator[tuple[str, Model, LayerGroupConfig]]:
    """(what differs, module, options) of every other grouping."""
    larger = model.clone()
    spec = chip.replace(f"{chip.name} {MEMORY}", lmem_bytes=2 * chip.lmem_bytes)
    larger.set(chip=spec.name, chip_definition=chips.define(spec))
    yield MEMORY, larger, config
    if best and config.opt != "best":
        yield CUT, model, replace(config, opt="best")


def _clocked(grouped: Model) -> tuple[Program, Timeline]:
    program = generate(assign_addresses(grouped))
    return program, timeline(program, chips.of(grouped))


def _groups(program: Program, found: Timeline) -> Sequence[dict[str, Any]]:
    """Groups as `report.json` has them, as far as they are compared."""
    return [
        {"ops": list(entry.ops), "secs": entry.secs, "reason": entry.reason, **vars(found.groups[entry.id])}
        for entry in program.groups
    ]
