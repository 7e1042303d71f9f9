"""Ids and dependencies of commands (spec/codegen.md 2, DC-03, DC-08)."""

from typing import Any, cast

from tpusim.chips import ChipSpec
from tpusim.errors import CommandError
from tpusim.isa.check import check
from tpusim.isa.commands import AnyCommand, Command, Engine, GlobalKernel, Move
from tpusim.isa.region import View
from tpusim.isa.stream import Location

MAX_ID = (1 << 20) - 1


class Emitter:
    """Collects commands; knows the last id of each engine and where the current row started."""

    def __init__(self, chip: ChipSpec) -> None:
        self.chip = chip
        self.commands: list[AnyCommand] = []
        self.locations: list[Location] = []
        self.group = 0
        self._last: dict[Engine, int] = {"tiu": 0, "gdma": 0}
        self._row: dict[Engine, int] | None = None

    def begin_row(self) -> None:
        """Both engines may now run side by side; they wait only for what came before the row."""
        self._row = dict(self._last)

    def end_rows(self) -> None:
        """Back to serial order."""
        self._row = None

    def add(self, cls: type[Command], **fields: Any) -> None:
        """Append one command with its id and dependency, after checking that the chip can execute it."""
        engine = cls.engine
        other: Engine = "gdma" if engine == "tiu" else "tiu"
        self._last[engine] += 1
        if self._last[engine] > MAX_ID:
            raise CommandError(f"{engine}: more than {MAX_ID:,} commands; ids are 20 bits (codegen.md DC-03)")
        dep = (self._row or self._last)[other]
        command = cast("AnyCommand", cls(id=self._last[engine], dep=dep, group=self.group, **fields))
        check(command, self.chip)
        self.commands.append(command)

    def move(self, source: View, target: View, *, op: str, step: str = "", tensor: str = "") -> None:
        """Append a GDMA copy."""
        self.add(Move, input=source, output=target, op=op, step=step, tensor=tensor)

    def global_kernel(self, **fields: Any) -> None:
        """Append a global kernel."""
        self.add(GlobalKernel, **fields)
