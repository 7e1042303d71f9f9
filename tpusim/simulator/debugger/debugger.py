"""`Debugger`: breakpoints, and views of memory, queues and commands while a program runs."""

from collections import Counter
from dataclasses import replace
from functools import cached_property

import numpy as np

from tpusim.errors import ConfigError
from tpusim.isa.commands import Command, Engine
from tpusim.isa.region import Memory as MemoryName
from tpusim.isa.region import View, numpy_dtype
from tpusim.isa.stream import Location, TensorEntry
from tpusim.simulator.debugger import breakpoints as find
from tpusim.simulator.debugger.accesses import Access, Accesses, ByteRange, Placed
from tpusim.simulator.debugger.breakpoints import Breakpoint, some
from tpusim.simulator.debugger.execution import Execution
from tpusim.simulator.debugger.memory_contents import Bytes, Operand, Slice, Stored, logical
from tpusim.simulator.debugger.state import Place, Queue, queues


class Debugger(Execution):
    """A program on the machine, executed command by command.

    inputs: network inputs by name; left out: `random_inputs` with seed 0. reference: tensors of flat inference; what a
    command produces is compared with them as it is produced, and wrong values stop the machine.
    Going back restores overwritten bytes, of which at most `history_bytes` are kept; beyond that the program runs
    again from the start, which gives the same bytes. Raises TpusimError for a program that the machine refuses; if
    only the sanitizer refuses it, it can be debugged with `SimulatorOptions(sanitize=False)`.
    """

    _numbers = 0

    def __repr__(self) -> str:
        header = self.program.header
        return f"Debugger of {header.model} on {header.chip}\n{self.where() or 'at the end'!r}"

    # ----------------------------------------------------------------------------------------------------- breakpoints

    def break_on(
        self,
        *,
        op: str | None = None,
        command: tuple[Engine, int] | None = None,
        core: int = 0,
        tensor: str | None = None,
        address: ByteRange | None = None,
        access: Access = "any",
    ) -> Breakpoint:
        """Stop before the commands of an op, one command (engine, id; of `core`), those that access a tensor, or
        an address.

        Exactly one of the four; `access` goes with `tensor` and `address`. Raises ConfigError if no command is meant.
        """
        if sum(one is not None for one in (op, command, tensor, address)) != 1:
            raise ConfigError("break_on: exactly one of op, command, tensor and address is required")
        kind = "" if access == "any" else f" {access}"
        if op is not None:
            what, found = f"op {op}", find.by_op(self.program, op)
        elif command is not None:
            of = f" of core {core}" if core else ""
            what, found = f"command {command[0]} {command[1]}{of}", find.by_id(self.program, *command, core)
        elif tensor is not None:
            what, found = f"tensor {tensor}{kind}", find.by_tensor(self._accesses, self.order, tensor, access)
        else:
            assert address is not None
            what, found = f"{address}{kind}", find.by_address(self._accesses, address, access)
        number = self._numbers = self._numbers + 1
        made = self.breakpoints[number] = Breakpoint(number, what, found)
        return made

    def delete(self, number: int) -> None:
        """Remove a breakpoint. Raises ConfigError if there is none of that number."""
        self._known(number)
        del self.breakpoints[number]

    def enable(self, number: int, *, on: bool = True) -> Breakpoint:
        """Switch a breakpoint on or off."""
        changed = self.breakpoints[number] = replace(self._known(number), enabled=on)
        return changed

    def _known(self, number: int) -> Breakpoint:
        if number not in self.breakpoints:
            raise ConfigError(f"no breakpoint {number}; there are {some(map(str, self.breakpoints)) or 'none'}")
        return self.breakpoints[number]

    @cached_property
    def _accesses(self) -> Accesses:
        return Accesses(self.program, self.chip)

    # ------------------------------------------------------------------------------------------------------------ look

    def where(self) -> Place | None:
        """The next command; None at the end."""
        command = self.command
        if command is None:
            return None
        index = self.order[self.position]
        return Place(
            position=self.position,
            total=len(self.order),
            index=index,
            label=command.label,
            op=command.op,
            slice=command.step,
            stage=command.stage,
            group=command.group,
            cycles=int(self._starts[index] * self.chip.tiu_mhz / 1000 + 1e-6),
        )

    @cached_property
    def _starts(self) -> dict[int, float]:
        return {span.index: span.start_ns for span in self.machine.timeline.spans}

    @property
    def done(self) -> frozenset[int]:
        """Indices of the commands that have run."""
        return frozenset(self.order[: self.position])

    def queues(self) -> tuple[Queue, ...]:
        """What each engine has finished, may work on, and waits for."""
        return queues(self.program, self.order[: self.position])

    def operands(self, command: Command | None = None) -> tuple[Operand, ...]:
        """The present values of a command's operands, inputs first; by default of the next command."""
        command = command or self.command
        if command is None:
            return ()
        named = command.computed.operands()
        memory = self.machine.memories[command.core]
        return tuple(Operand(name, view, memory.read(view), self.chip) for name, view in _unique(named))

    def results(self) -> tuple[Operand, ...]:
        """The operands that the last command wrote; none at the start."""
        last = self.last
        if last is None:
            return ()
        memory = self.machine.memories[last.core]
        named = _unique(tuple(("output", view) for view in last.writes()))
        return tuple(Operand(name, view, memory.read(view), self.chip) for name, view in named)

    def slices(self, tensor: str | None = None) -> tuple[Slice, ...]:
        """The slices in local memory now, oldest first; `tensor`: only slices of this tensor."""
        place = {index: number for number, index in enumerate(self.order[: self.position])}
        made = [loc for loc in self.program.locations if loc.command in place and tensor in (None, loc.tensor)]
        made.sort(key=lambda location: place[location.command])
        return tuple(self._slice(loc) for loc in made if self._overwritten(loc, place[loc.command]) is None)

    def slice(self, tensor: str) -> Slice:
        """The slice of a tensor that was computed last. Raises ConfigError if it is not in local memory now."""
        place = {index: number for number, index in enumerate(self.order[: self.position])}
        all_of_it = [loc for loc in self.program.locations if loc.tensor == tensor]
        if not all_of_it:
            known = some(loc.tensor for loc in self.program.locations)
            raise ConfigError(f"tensor '{tensor}' is never in local memory; those are {known or 'none'}")
        made = [loc for loc in all_of_it if loc.command in place]
        if not made:
            first = self.program.commands[all_of_it[0].command].label
            raise ConfigError(f"no slice of '{tensor}' is computed yet; the first one is complete after {first}")
        newest = max(made, key=lambda location: place[location.command])
        by = self._overwritten(newest, place[newest.command])
        if by is not None:
            raise ConfigError(f"slice of '{tensor}' at {newest.start}: overwritten by {by}; go back to before that")
        return self._slice(newest)

    def _overwritten(self, location: Location, made: int) -> str | None:
        """The command that wrote over a slice after it was complete."""
        where = Placed(self.program.commands[location.command].core, location.view)
        by = self._accesses.overwriter(where, self.order[made + 1 : self.position])
        return None if by is None else self.program.commands[by].label

    def _slice(self, location: Location) -> Slice:
        maker = self.program.commands[location.command]
        values = logical(self.machine.memories[maker.core].read(location.view), location.depth)
        return Slice(location, values, maker.label, self.chip, maker.core)

    def tensor(self, name: str) -> Stored:
        """A tensor in global memory, with the values stored so far; no values if nothing is stored yet.

        Raises ConfigError if it is not in the tensor table.
        """
        try:
            entry = self.program.tensor(name)
        except KeyError:
            known = some(one.name for one in self.program.tensors)
            raise ConfigError(f"no tensor '{name}' in global memory; those are {known}") from None
        why = self._missing(entry)
        if why:
            return Stored(name, entry.view, np.zeros(0, numpy_dtype(entry.view.dtype)), why, self.chip)
        values = self.machine.memories[0].read(entry.view).reshape(entry.shape or entry.view.shape)
        return Stored(name, entry.view, values, self._state(name, entry.view), self.chip)

    def _missing(self, entry: TensorEntry) -> str:
        """Why nothing of a tensor is in global memory yet; empty if something is."""
        writers = find.writers_of(self.program, entry.name)
        if entry.role == "input" or writers & set(self.order[: self.position]):
            return ""
        first = min(writers, key=self.order.index, default=None)
        who = "no command stores it" if first is None else f"{self.program.commands[first].label} is the first to"
        return f"not stored yet, {who}"

    def _state(self, name: str, view: View) -> str:
        writers = find.writers_of(self.program, name)
        done = self.order[: self.position]
        stored = [number for number, index in enumerate(done) if index in writers]
        if len(stored) < len(writers):
            return f"{len(stored)} of {len(writers)} stores done"
        after = stored[-1] + 1 if stored else 0
        by = self._accesses.overwriter(Placed(0, view), done[after:], writers)
        return "complete" if by is None else f"overwritten by {self.program.commands[by].label}"

    def bytes(self, memory: MemoryName, address: int, count: int = 64, lane: int = 0, core: int = 0) -> Bytes:
        """Bytes of global memory or of one lane, as they are. Raises TpusimError outside of memory."""
        if core not in self.machine.memories:
            cores = some(map(str, self.machine.memories))
            raise ConfigError(f"core {core} is not used by the program; name one of its cores: {cores}")
        if memory == "lmem":
            view = View("lmem", address, (1, 1, 1, count), "u8", "compact", lane=lane)
        else:
            view = View("gmem", address, (count,), "u8", "dense")
        values = self.machine.memories[core].read(view).reshape(-1)
        return Bytes(memory, address, values, lane, core)


def _unique(named: tuple[tuple[str, View], ...]) -> list[tuple[str, View]]:
    """Operands with numbers where several have one field name."""
    counts = Counter(name for name, _ in named)
    seen: Counter[str] = Counter()
    found: list[tuple[str, View]] = []
    for name, view in named:
        found.append((f"{name}{seen[name]}" if counts[name] > 1 else name, view))
        seen[name] += 1
    return found
