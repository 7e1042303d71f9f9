"""The cost of every layer on both sides: cycles of the TIU, and of the DMA for layers that move their operands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from benchmarks.conformance.compare import Pairs
from benchmarks.conformance.ours import Compiled
from benchmarks.conformance.text import lines_of
from benchmarks.conformance.timing import profile
from benchmarks.conformance.upstream import Files
from tpusim import chips
from tpusim.isa.commands import GlobalKernel
from tpusim.isa.cycles import command_ns

MOVING = ("tpu.Load", "tpu.Store")


class Layer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Cycles for which the commands of one layer keep each engine busy; a layer inside a group has no DMA cycles."""

    tiu: int = 0
    dma: int = 0

    def __add__(self, other: Layer) -> Layer:
        """Both together."""
        return Layer(self.tiu + other.tiu, self.dma + other.dma)

    @property
    def cycles(self) -> int:
        """Both engines' together."""
        return self.tiu + self.dma


def _sums(parts: Iterable[tuple[str, Layer]]) -> dict[str, Layer]:
    found = defaultdict[str, Layer](Layer)
    for name, layer in parts:
        found[name] += layer
    return dict(found)


def their_layers(files: Files) -> dict[str, Layer]:
    """The layers of upstream's profile by name; a command names the line of the final module that it is made from."""
    ops = lines_of(files.text("final.mlir"))
    parts = list[tuple[str, Layer]]()
    for command in profile(files.text("profile.txt")):
        op = ops[int(command.layer.rpartition("_")[2])]
        if op.kind not in MOVING:
            span = max(0, command.end - command.start + 1)
            parts.append((op.name, Layer(dma=span) if command.kind.startswith("GDMA") else Layer(span)))
    return _sums(parts)


def our_layers(compiled: Compiled) -> dict[str, Layer]:
    """The layers of ours by name: commands on the TIU, and what global layers move themselves."""
    program, chip = compiled.program(), chips.load(compiled.chip)
    alone = {group.id: group.ops[-1] for group in program.groups if group.reason}
    parts = list[tuple[str, Layer]]()
    for command in program.commands:
        span = round(command_ns(command, chip) * chip.tiu_mhz / 1000)
        if command.engine == "tiu" or isinstance(command, GlobalKernel):
            parts.append((command.op, Layer(span)))
        elif command.group in alone:
            parts.append((alone[command.group], Layer(dma=span)))
    return _sums(parts)


def paired(ours: Mapping[str, Layer], theirs: Mapping[str, Layer], pairs: Pairs) -> dict[str, tuple[Layer, Layer]]:
    """(ours, theirs) of every layer of theirs that takes any time, by our name or else theirs."""
    name = {b.name: a.name for a, b in pairs}
    found = {name.get(n, n): (ours.get(name.get(n, n), Layer()), layer) for n, layer in theirs.items() if layer.cycles}
    return found | {n: (layer, Layer()) for n, layer in ours.items() if n not in found and layer.cycles}
