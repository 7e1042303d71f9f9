"""Ids, dependencies and barriers of commands (docs/spec/codegen.md 2, DC-03, DC-08)."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from tpusim.chips import ChipSpec
from tpusim.errors import CommandError
from tpusim.isa.check import ID_LIMIT, check
from tpusim.isa.commands import Command, Engine, Move, Place, SendMessage, Source, TransferKind, WaitMessage
from tpusim.isa.commands.messages import MESSAGES
from tpusim.isa.region import View
from tpusim.isa.stream import Location


class Emitter:
    """Collects commands; knows the last id of each engine of each core and where the current row started."""

    def __init__(self, chip: ChipSpec, cores: int = 1) -> None:
        self.chip = chip
        self.cores = cores
        self.core = 0
        """The core that commands are for."""
        self.commands: list[Command] = []
        self.locations: list[Location] = []
        self.group = 0
        self.home = -1
        """Group of the next step, if it belongs to an adjacent group; -1: `group`."""
        self._ids: list[dict[Engine, int]] = [{"tiu": 0, "gdma": 0} for _ in range(cores)]
        self._row: dict[Engine, int] | None = None
        self.first_step = ""
        """First step of the loop of a group on this core: tensors that stay were loaded then."""
        self._barriers = 0

    @property
    def _last(self) -> dict[Engine, int]:
        return self._ids[self.core]

    def begin_row(self) -> None:
        """Let both engines run in parallel from here; they wait only for the commands before the row."""
        self._row = dict(self._last)

    def end_rows(self) -> None:
        """End a row of a group: the commands that follow are serial again."""
        self._row = None

    def barrier(self) -> None:
        """All cores wait for each other, with both engines; with one core it does nothing.

        The messages are in the TIU queues: a send waits for the core's last transfer by its `dep`, and later transfers
        wait for the wait by theirs. Barriers use the message numbers in turn, because all cores have left a
        barrier when the next one ends.
        """
        if self.cores == 1:
            return
        message, self._barriers = self._barriers % MESSAGES, self._barriers + 1
        for kind in (SendMessage, WaitMessage):
            for core in range(self.cores):
                self.core = core
                self.add(kind, op="barrier", message=message, count=self.cores)
        self.core = 0

    def add(self, cls: type[Command], *, name_of: Callable[[View], Source] | None = None, **fields: Any) -> None:
        """Append one command with its id and dependency, after checking that the chip can execute it.

        name_of: the source that a view is meant to contain.
        """
        engine = cls.engine
        other: Engine = "gdma" if engine == "tiu" else "tiu"
        self._last[engine] += 1
        if self._last[engine] >= ID_LIMIT:
            raise CommandError(f"{engine}: more than {ID_LIMIT - 1:,} commands; ids are 20 bits (codegen.md DC-03)")
        dep = (self._row or self._last)[other]
        command = cls(id=self._last[engine], dep=dep, core=self.core, group=self.group, home=self.home, **fields)
        check(command, self.chip)
        if name_of is not None:
            command = replace(command, sources=tuple(name_of(view) for view in command.reads()))
        self.commands.append(command)

    def move(
        self,
        source: View,
        target: View,
        *,
        kind: TransferKind = "",
        holds: Source | None = None,
        op: str,
        step: str = "",
        tensor: str = "",
        window: tuple[Place, Place] | tuple[None, None] = (None, None),
        strides: Place | None = None,
        origin: int | None = None,
    ) -> None:
        """Append a GDMA copy; holds: what `source` is meant to contain; window: `Move.start` and `Move.whole`.

        kind, strides, origin: those of `Move`.
        """
        start, whole = window
        sources = (holds,) if holds is not None else ()
        self.add(
            Move,
            input=source,
            output=target,
            kind=kind,
            op=op,
            step=step,
            tensor=tensor,
            sources=sources,
            start=start,
            whole=whole,
            strides=strides,
            origin=origin,
        )

    def claim(self, first: int, work: View) -> None:
        """Give the commands from `first` on a work area."""
        self.commands[first:] = [replace(command, work=(work,)) for command in self.commands[first:]]
