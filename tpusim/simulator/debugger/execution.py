"""`Execution`: a program run command by command, forwards and backwards, with stops and verdicts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tpusim.chips import ChipSpec
from tpusim.errors import ConfigError
from tpusim.isa.commands import Command
from tpusim.isa.stream import Program
from tpusim.simulator.checked import Checker, Mismatch
from tpusim.simulator.debugger.breakpoints import Breakpoint
from tpusim.simulator.debugger.history import History, before
from tpusim.simulator.debugger.inputs import random_inputs
from tpusim.simulator.run import Simulator, SimulatorOptions

Reason = Literal["start", "step", "breakpoint", "wrong", "end"]


@dataclass(frozen=True)
class Verdict:
    """The result of comparing one command with the reference.

    compared: number of slices, stores and tensors that the command completed and that the reference includes.
    """

    command: str
    compared: int
    mismatches: tuple[Mismatch, ...]

    def __repr__(self) -> str:
        found = "\n".join(str(one) for one in self.mismatches) or f"right, {self.compared} compared"
        return f"{self.command}: {found}" if self.command else "nothing compared yet"


@dataclass(frozen=True)
class Stop:
    """Why and where the machine stopped; `next` is the command that runs next, "" at the end."""

    reason: Reason
    position: int
    next: str
    breakpoints: tuple[Breakpoint, ...] = ()
    mismatches: tuple[Mismatch, ...] = ()

    def __repr__(self) -> str:
        notes = [f"breakpoint {one!r}" for one in self.breakpoints] + [str(one) for one in self.mismatches]
        where = f"before {self.next}" if self.next else "at the end"
        return "\n".join([f"{self.position}: {where} ({self.reason})", *notes])


class Execution:
    """The machine with a position: how many commands have run.

    Arguments as of `Debugger`.
    """

    def __init__(
        self,
        program: Program,
        inputs: Mapping[str, np.ndarray] | None = None,
        *,
        reference: Mapping[str, np.ndarray] | None = None,
        chip: ChipSpec | None = None,
        options: SimulatorOptions | None = None,
        history_bytes: int = 256 << 20,
        float_ulps: int | None = None,
    ) -> None:
        self.program = program
        self.inputs = dict(random_inputs(program) if inputs is None else inputs)
        self.breakpoints: dict[int, Breakpoint] = {}
        self.position = 0
        """How many commands of the order have run."""
        self.machine = Simulator(program, chip, options)
        self.chip = self.machine.chip
        self.order: list[int] = self.machine.order
        self._history = History(history_bytes)
        self._checker = None
        if reference is not None:
            self._checker = Checker(program, self.chip, reference, collect=True, float_ulps=float_ulps)
        self._verdicts: dict[int, Verdict] = {}
        self.machine.start(self.inputs)

    @property
    def command(self) -> Command | None:
        """The command that runs next; None at the end."""
        return None if self.at_end else self.program.commands[self.order[self.position]]

    @property
    def last(self) -> Command | None:
        """The command that ran last; None at the start."""
        return None if self.position == 0 else self.program.commands[self.order[self.position - 1]]

    @property
    def at_end(self) -> bool:
        """Whether every command of the program has run."""
        return self.position == len(self.order)

    def step(self, count: int = 1) -> Stop:
        """Execute `count` commands, or fewer if something stops the machine earlier."""
        for _ in range(count):
            stop = self._advance()
            if stop is not None:
                return stop
        return self._stop("step")

    def next(self) -> Stop:
        """Execute until a TIU is about to begin another op or slice."""
        current = self._work(self.command) or self._last_work()
        while (stop := self._advance()) is None:
            if self._work(self.command) not in (None, current):
                return self._stop("step")
        return stop

    def resume(self) -> Stop:
        """Execute until a breakpoint, wrong values or the end."""
        while (stop := self._advance()) is None:
            pass
        return stop

    def finish(self) -> Stop:
        """Execute to the end, ignoring breakpoints and wrong values."""
        return self.goto(len(self.order))

    def back(self, count: int = 1) -> Stop:
        """Undo the last `count` commands, as far as the start."""
        return self.goto(max(0, self.position - count))

    def resume_back(self) -> Stop:
        """Undo commands until a breakpoint's command is the next one, or to the start."""
        while self.position:
            self.back()
            if self._hit():
                return self._stop("breakpoint")
        return self._stop("start")

    def restart(self) -> Stop:
        """Go back to the state before the first command."""
        return self.goto(0)

    def goto(self, position: int) -> Stop:
        """Go forwards or backwards to the state after `position` commands; nothing stops the machine on the way."""
        if not 0 <= position <= len(self.order):
            raise ConfigError(f"position {position}: 0 to {len(self.order)}, the number of commands, is required")
        if position == 0 and self.position:
            self._start_again()
        while self.position > position:
            if not self._history.undo():
                self._start_again()
                break
            self.position -= 1
        while self.position < position:
            self._execute()
        return self._stop("start" if position == 0 else "step")

    def _start_again(self) -> None:
        self.machine.start(self.inputs)
        self._history.clear()
        self.position = 0

    def _advance(self) -> Stop | None:
        """Execute one command; returns a stop if there is a reason to stop after it."""
        if self.at_end:
            return self._stop("end")
        index = self._execute()
        if self._verdicts[index].mismatches:
            return self._stop("wrong")
        if self.at_end:
            return self._stop("end")
        return self._stop("breakpoint") if self._hit() else None

    def _execute(self) -> int:
        index = self.order[self.position]
        command = self.program.commands[index]
        memory = self.machine.memories[command.core]
        undo = before(memory, command.writes())
        try:
            self.machine.execute(index)
            if index not in self._verdicts:
                self._verdicts[index] = self._judge(index, command)
        except BaseException:  # an accumulator overflow, or Ctrl-C: the command has not run
            undo.restore()
            raise
        self._history.push(undo)
        self.position += 1
        return index

    def _judge(self, index: int, command: Command) -> Verdict:
        """Compare once per command: the machine computes the same bytes every time."""
        checker = self._checker
        if checker is None:
            return Verdict(command.label, 0, ())
        compared, known = checker.checked, len(checker.mismatches)
        checker.after(index, self.machine.memories[command.core])
        return Verdict(command.label, checker.checked - compared, tuple(checker.mismatches[known:]))

    def _hit(self) -> tuple[Breakpoint, ...]:
        if self.at_end:
            return ()
        index = self.order[self.position]
        return tuple(one for one in self.breakpoints.values() if one.enabled and index in one.commands)

    def _stop(self, reason: Reason) -> Stop:
        if self.at_end and reason in ("step", "start"):
            reason = "end"
        wrong = self._verdicts[self.order[self.position - 1]].mismatches if reason == "wrong" else ()
        label = "" if self.command is None else self.command.label
        return Stop(reason, self.position, label, self._hit(), wrong)

    @staticmethod
    def _work(command: Command | None) -> tuple[int, str, str] | None:
        """(group, op, slice) of a TIU command that computes; None for other commands."""
        if command is None or command.engine != "tiu" or not command.writes():
            return None
        return command.group, command.op, command.step

    def _last_work(self) -> tuple[int, str, str] | None:
        done = (self._work(self.program.commands[i]) for i in reversed(self.order[: self.position]))
        return next((work for work in done if work is not None), None)

    def check(self) -> Verdict:
        """The newest slice, store or tensor compared with the reference. Raises ConfigError without a reference."""
        if self._checker is None:
            raise ConfigError("check: a reference is required, the tensors of flat inference (tpu_outputs.npz)")
        verdicts = (self._verdicts[index] for index in reversed(self.order[: self.position]))
        return next((one for one in verdicts if one.compared), Verdict("", 0, ()))

    @property
    def mismatches(self) -> tuple[Mismatch, ...]:
        """Every wrong result of the commands so far."""
        return tuple(one for index in self.order[: self.position] for one in self._verdicts[index].mismatches)
