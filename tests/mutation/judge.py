"""The verdicts of legality, sanitizer and value check about a mutant, each separately.

The value check compares slices in local memory and stored tensors with those of the right program, bit for bit
(`tpusim.simulator.Checker`). A mutant runs from just before the first command in which it differs, on a machine that
notes what it overwrites, so that the next mutant finds it as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from msgspec import structs

from mutation.mutant import Mutant
from tpusim import chips
from tpusim.errors import CommandError, SimulationError
from tpusim.isa.check import check, check_form
from tpusim.isa.commands import Command, GlobalKernel
from tpusim.isa.layout import extent
from tpusim.isa.region import View, numpy_dtype
from tpusim.isa.stream import Program
from tpusim.simulator import Checker, Simulator
from tpusim.simulator.memory import Machine, Memory, Shadow, regions_of
from tpusim.simulator.metadata_checks import check_metadata
from tpusim.simulator.ownership import Ownership, Restore, check_restores
from tpusim.simulator.races import check_races
from tpusim.simulator.run import execute
from tpusim.simulator.sanitizer import check_bounds, check_cores, check_poison
from tpusim.simulator.schedule import Queues, Timing, order
from tpusim.simulator.tables import check_sizes, check_tables

Feeds = dict[str, np.ndarray]
CHECKS = ("legality", "sanitizer", "value")
SWEEP = 12
"""From this trial on, operands that are fed run through the values of their type in order."""


@dataclass
class Verdict:
    """What each check said, empty if it found nothing; part: which part of the sanitizer; proof: of equivalence.

    fed: what the value check says only of the network that begins at the changed command.
    """

    mutant: Mutant
    legality: str = ""
    part: str = ""
    sanitizer: str = ""
    value: str = ""
    proof: str = ""
    fed: str = ""

    @property
    def first(self) -> str:
        """The first check that catches it, in the order a user meets them; empty if none does."""
        return next((name for name in CHECKS if getattr(self, name)), "")


class JournalMachine(Machine):
    """A machine that can take back what was written since `begin`."""

    def __init__(self, program: Program):
        super().__init__(chips.load(program.header.chip), regions_of(program), program.coefficients.copy())
        self._open: list[list[tuple[np.ndarray, np.ndarray]]] = []
        """Journals, the innermost last; the memories of all cores write the same ones."""

    @contextmanager
    def tentative(self) -> Iterator[None]:
        """Whatever is written inside, by any core, is undone."""
        self._open.append([])
        try:
            yield
        finally:
            for window, old in reversed(self._open.pop()):
                window[...] = old

    def write(self, view: View, array: np.ndarray) -> None:
        if self._open:
            self._open[-1] += [(window, window.copy()) for _, window in self._cells(view)]
        super().write(view, array)

    def patch(self, coefficients: np.ndarray) -> None:
        """Other coefficients, inside `tentative`."""
        window = self.gmem["coefficients"]
        self._open[-1].append((window, window.copy()))
        window[...] = coefficients


class _Replay:
    """A right run on one input, advanced command by command."""

    def __init__(self, program: Program, sequence: list[int], feeds: Feeds, expected: Feeds):
        self.program, self.sequence, self.expected = program, sequence, expected
        self._feeds = feeds
        self._at = -1
        self.machine = JournalMachine(program)
        cores = {0, *(command.core for command in program.commands)}
        self.cores = self.machine.of_cores(dict.fromkeys(cores, self.machine.lane_bytes))

    def execute(self, command: Command) -> None:
        """On the memory of the command's core."""
        execute(command, self.cores.get(command.core, self.machine))

    def advance(self, position: int) -> None:
        """To just before the command at this position of the sequence."""
        if self._at < 0 or position < self._at:
            for memory in self.cores.values():
                memory.reset()
            for entry in self.program.inputs:
                self.machine.write(entry.view, self._feeds[entry.name].reshape(entry.view.shape))
            self._at = 0
        for index in self.sequence[self._at : position]:
            self.execute(self.program.commands[index])
        self._at = position

    def same_result(self, old: Command, new: Command) -> bool:
        """Whether the next command leaves the same bytes in this state, whichever of the two it is."""
        if old.writes() != new.writes() or old.core != new.core:
            return False
        results: list[list[bytes]] = []
        for command in (old, new):
            with self.machine.tentative():
                try:
                    self.execute(command)
                except SimulationError:
                    return False
                memory = self.cores[command.core]
                results.append([memory.read(view).tobytes() for view in command.writes()])
        return results[0] == results[1]

    def differs(self, mutant: Program, sequence: list[int], position: int, restores: dict[int, list[Restore]]) -> str:
        """The first wrong slice, store or tensor; "" if the run ends without one."""
        try:
            checker = Checker(mutant, self.machine.chip, self.expected)
        except SimulationError as error:
            return str(error)
        for index in sequence[:position]:
            checker.skip(index)
        with self.machine.tentative():
            if mutant.coefficients is not self.program.coefficients:
                self.machine.patch(mutant.coefficients)
            for index in sequence[position:]:
                command = mutant.commands[index]
                memory = self.cores.get(command.core, self.machine)
                before = [(each, memory.read(each.view)) for each in restores.get(index, ())]
                try:
                    execute(command, memory)
                    if before:
                        check_restores(command, before, memory)
                    checker.after(index, memory)
                except SimulationError as error:
                    return str(error)
        return ""


def _values(view: View, rng: np.random.Generator, trial: int) -> np.ndarray:
    """Values of a type: all of its range at random, its ends, small ones; at last one after the other."""
    dtype = numpy_dtype(view.dtype)
    if dtype.kind not in "iu":
        reals = (rng.standard_normal(view.shape) * 4.0 ** (trial % 5 - 2)).astype(dtype)
        return np.where(rng.integers(9, size=view.shape) > 0, reals, -np.zeros_like(reals))
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    size = int(np.prod(view.shape))
    if trial >= SWEEP:
        return (np.arange(size) + (trial - SWEEP) * size).reshape(view.shape).astype(dtype)
    if trial % 3 == 1:
        found = np.where(rng.integers(2, size=view.shape) > 0, low, high)
    elif trial % 3 == 2:
        scale = 2.0 ** -int(rng.integers(1, 6))
        found = np.rint(rng.uniform(low * scale, high * scale, view.shape))
    else:
        found = rng.integers(low, high + 1, view.shape)
    return found.astype(dtype)


def _content(command: Command) -> Command:
    return structs.replace(command, id=0, dep=0)


class Judge:
    """One right program and the inputs it is tried on."""

    def __init__(self, program: Program, feeds: Sequence[Feeds]):
        self.program = program
        self.chip = chips.load(program.header.chip)
        self.feeds = list(feeds)
        right = Simulator(program)
        self._expected = [
            {name: array for name, array in right.run(one, watch=True).tensors.items()} for one in self.feeds
        ]
        self._sequences: dict[Timing, list[int]] = {
            timing: order(Queues(program.commands), timing) for timing in ("early", "late")
        }
        self.replay = lru_cache(maxsize=None)(self._replay)

    def _replay(self, timing: Timing, number: int) -> _Replay:
        return _Replay(self.program, self._sequences[timing], self.feeds[number], self._expected[number])

    def judge(self, mutant: Mutant) -> Verdict:
        """Ask all three."""
        verdict = Verdict(mutant, legality=self._legality(mutant.program))
        restores: dict[int, list[Restore]] = {}
        verdict.part, verdict.sanitizer = self._sanitizer(mutant.program, restores)
        if verdict.part not in ("form", "cores", "bounds", "tables", "order"):
            verdict.value = self._value(mutant.program, restores, tolerant=bool(verdict.first))
            if not verdict.sanitizer and " again with other values" in verdict.value:
                verdict.part, verdict.sanitizer = "double store", verdict.value
        return verdict

    def _legality(self, mutant: Program) -> str:
        known = {id(command) for command in self.program.commands}
        for command in mutant.commands:
            if id(command) not in known:
                try:
                    check(command, self.chip)
                except CommandError as error:
                    return str(error)
        return ""

    def _sanitizer(self, mutant: Program, restores: dict[int, list[Restore]]) -> tuple[str, str]:
        """(part, message), the parts in the order in which `Simulator` asks them."""
        regions = regions_of(mutant)
        memory = Memory(self.chip, regions)
        cores = dict.fromkeys({0, *(command.core for command in mutant.commands)}, memory.lane_bytes)
        found: list[Any] = []

        def ordered() -> None:
            found.append(Queues(mutant.commands))
            found.append(order(found[0], "early"))

        def owned() -> None:
            ownership = Ownership(mutant, self.chip, regions)
            ownership.check(found[1])
            restores.update(ownership.restores)

        parts: tuple[tuple[str, Callable[[], None]], ...] = (
            ("form", lambda: [check_form(command, self.chip) for command in mutant.commands][0]),
            ("cores", lambda: check_cores(mutant.commands, self.chip)),
            ("bounds", lambda: check_bounds(mutant.commands, memory)),
            ("tables", lambda: (check_tables(mutant, memory), check_sizes(mutant, memory))[0]),
            ("order", ordered),
            ("races", lambda: check_races(found[0], found[1], memory)),
            ("uninitialised", lambda: check_poison(mutant, found[1], Shadow(self.chip, regions).of_cores(cores))),
            ("ownership", owned),
            ("claims", lambda: check_metadata(mutant, self.chip)),
        )
        for name, ask in parts:
            try:
                ask()
            except (SimulationError, CommandError) as error:
                return name, str(error)
        return "", ""

    def _value(self, mutant: Program, restores: dict[int, list[Restore]], *, tolerant: bool) -> str:
        """tolerant: a refused command need not be executable; then there is no value."""
        reordered = [c.dep for c in mutant.commands] != [c.dep for c in self.program.commands]
        for timing in ("early", "late") if reordered else ("early",):
            sequence = order(Queues(mutant.commands), timing)
            position = self._first_difference(mutant, sequence, timing)
            for number in range(len(self.feeds)):
                replay = self.replay(timing, number)
                replay.advance(position)
                try:
                    found = self._differs(replay, mutant, sequence, position, restores)
                except (ValueError, IndexError, ZeroDivisionError, TypeError, OverflowError):
                    if tolerant:
                        return ""
                    raise
                if found:
                    return found
        return ""

    def _differs(
        self, replay: _Replay, mutant: Program, sequence: list[int], position: int, restores: dict[int, list[Restore]]
    ) -> str:
        if position == len(sequence) == len(replay.sequence):
            return ""
        single = sequence == replay.sequence and mutant.coefficients is self.program.coefficients
        old, new = self.program.commands, mutant.commands
        rest = sequence[position + 1 :]
        if (
            single
            and all(old[i] is new[i] for i in rest)
            and replay.same_result(old[sequence[position]], new[sequence[position]])
        ):
            return ""
        return replay.differs(mutant, sequence, position, restores)

    def cut(self, mutant: Mutant, constant: Sequence[str], trials: int = SWEEP + 4) -> str:
        """Whether the changed command differs in a network that begins right before it: its operands are fed.

        Asked where no input of the whole network leads the operands to a value that shows the fault.
        """
        old, new = self.program.commands[mutant.index], mutant.program.commands[mutant.index]
        operands = (old.body if isinstance(old, GlobalKernel) else old).operands()
        fed = [view for name, view in operands if name not in constant and view not in old.writes()]
        for trial in range(trials):
            results: list[list[bytes]] = []
            for program, command in ((self.program, old), (mutant.program, new)):
                with self.just_before(program, mutant.index) as memory:
                    rng = np.random.default_rng(trial)
                    for view in fed:
                        memory.write(view, _values(view, rng, trial))
                    execute(command, memory)
                    results.append([memory.read(view).tobytes() for view in (*old.writes(), *new.writes())])
            if results[0] != results[1]:
                return f"{old.label}: differs when its operands are fed"
        return ""

    @contextmanager
    def just_before(self, program: Program, index: int) -> Iterator[Machine]:
        """The machine just before a command of the program, run on the first input; all is undone afterwards."""
        replay = self.replay("early", 0)
        sequence = replay.sequence
        start = self._first_difference(program, sequence, "early") if len(program.commands) == len(sequence) else 0
        position = sequence.index(index)
        replay.advance(min(start, position))
        with replay.machine.tentative():
            if program.coefficients is not self.program.coefficients:
                replay.machine.patch(program.coefficients)
            for at in sequence[min(start, position) : position]:
                replay.execute(self.program.commands[at])
            yield replay.cores[self.program.commands[index].core]

    def _first_difference(self, mutant: Program, sequence: list[int], timing: Timing) -> int:
        """Position up to which the mutant executes the same commands on the same coefficients."""
        limit = min(len(sequence), len(self._sequences[timing]))
        changed = np.flatnonzero(mutant.coefficients != self.program.coefficients)
        base = self.program.header.coeff_address
        for position in range(limit):
            one = self.program.commands[self._sequences[timing][position]]
            other = mutant.commands[sequence[position]]
            if one is not other and _content(one) != _content(other):
                return position
            for view in one.reads() if changed.size else ():
                reach = extent(view, self.chip)
                if view.memory == "gmem" and reach.start <= base + changed[-1] and base + changed[0] < reach.stop:
                    return position
        return limit
