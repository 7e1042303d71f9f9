"""Which commands read and write which bytes."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from tpusim.chips import ChipSpec
from tpusim.isa.commands import Command
from tpusim.isa.layout import Extent, extent
from tpusim.isa.region import Memory as MemoryName
from tpusim.isa.region import View
from tpusim.isa.stream import Program
from tpusim.simulator.overlap import common_byte

Access = Literal["read", "write", "any"]


class Placed(NamedTuple):
    """A view, and the core whose local memory it refers to."""

    core: int
    view: View


def placed(command: Command, access: Access = "any") -> list[Placed]:
    """The views that a command reads, writes, or both."""
    reads = command.reads() if access != "write" else ()
    writes = (*command.writes(), *command.scratch()) if access != "read" else ()
    return [Placed(command.core, view) for view in (*reads, *writes)]


@dataclass(frozen=True)
class ByteRange:
    """Bytes [start, stop) of global memory, or of one lane or every lane of the local memory of one core."""

    memory: MemoryName
    start: int
    stop: int
    lane: int | None = None
    core: int = 0

    def __str__(self) -> str:
        lane = "" if self.lane is None else f" of lane {self.lane}"
        core = f" of core {self.core}" if self.core else ""
        if self.stop == self.start + 1:
            return f"{self.memory} {self.start:#x}{lane}{core}"
        return f"{self.memory} [{self.start:#x}, {self.stop:#x}){lane}{core}"

    def placed(self, lanes: int) -> Placed:
        """The range of bytes as a view, in every lane or in one."""
        size = self.stop - self.start
        if self.memory == "gmem":
            return Placed(0, View("gmem", self.start, (size,), "u8", "dense"))
        channels = lanes if self.lane is None else 1
        return Placed(self.core, View("lmem", self.start, (1, channels, 1, size), "u8", "compact", lane=self.lane or 0))


class Accesses:
    """Exact overlaps of the views of a program."""

    def __init__(self, program: Program, chip: ChipSpec):
        self.program = program
        self._chip = chip
        self._reach: dict[View, Extent] = {}

    @cached_property
    def _written(self) -> list[list[Placed]]:
        return [placed(command, "write") for command in self.program.commands]

    def _extent(self, view: View) -> Extent:
        found = self._reach.get(view)
        if found is None:
            found = self._reach[view] = extent(view, self._chip)
        return found

    def share_bytes(self, first: Placed, second: Placed) -> bool:
        """Whether two views have a byte in common."""
        if first.core != second.core and first.view.memory == "lmem":
            return False
        if not self._extent(first.view).overlaps(self._extent(second.view)):
            return False
        return common_byte(first.view, second.view, self._chip) is not None

    def touches(self, command: Command, access: Access, wanted: Iterable[Placed]) -> bool:
        """Whether a command accesses a byte of one of the views."""
        return any(self.share_bytes(one, other) for other in wanted for one in placed(command, access))

    def touching(self, wanted: ByteRange, access: Access) -> frozenset[int]:
        """Indices of the commands that access the range."""
        view = [wanted.placed(self._chip.lanes)]
        return frozenset(i for i, command in enumerate(self.program.commands) if self.touches(command, access, view))

    def overwriter(self, wanted: Placed, commands: list[int], own: frozenset[int] = frozenset()) -> int | None:
        """The first of `commands`, leaving out `own`, that writes a byte of `wanted`."""
        for index in commands:
            if index not in own and any(self.share_bytes(one, wanted) for one in self._written[index]):
                return index
        return None
