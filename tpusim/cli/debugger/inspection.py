"""Commands of the prompt that show memory, the machine's state and comparisons."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from tpusim.cli.debugger.base import SHOWN
from tpusim.cli.debugger.breakpoints import Breakpoints
from tpusim.cli.debugger.syntax import indexed
from tpusim.errors import ConfigError

if TYPE_CHECKING:
    from tpusim.isa.commands import Command
    from tpusim.simulator.debugger import Operand, Slice, Stored

_AROUND = 3
"""Number of commands before the next command that `list` shows."""
_LISTED = 8


class Inspection(Breakpoints):
    """`print`, `x`, `info`, `list`, `check`."""

    def do_print(self, text: str) -> None:
        """Values.

        print                 what the last command wrote
        print in              what the next command will read
        print FIELD           one operand of the next command: input, filter, bias, a, b, output ...
        print NAME            the slice of this tensor computed last, or the tensor in global memory
        print slice NAME, print tensor NAME
        print NAME[0, 3]      a part: indices and ranges as in NumPy; of a slice n, c, h, w (with d if it has it)
        """
        name, index = indexed(text)
        self._name_command(name)
        for look in self._looks(name):
            self._show(look, index)

    def _name_command(self, name: str) -> None:
        """Say whose operands are shown."""
        debugger = self.debugger
        if name in ("", "out"):
            if debugger.last is not None:
                self.say(f"written by the last command, {debugger.last.label}", "dim")
        elif debugger.command is not None and (name == "in" or any(name == one.name for one in debugger.operands())):
            self.say(f"of the next command, {debugger.command.label}", "dim")

    def _looks(self, name: str) -> "Iterable[Operand | Slice | Stored]":
        debugger = self.debugger
        if name in ("", "out"):
            return debugger.results() or self._nothing("no command has written anything yet")
        if name == "in":
            written = {"output"}
            return [one for one in debugger.operands() if one.name not in written]
        if name.startswith("slice "):
            return [debugger.slice(name.removeprefix("slice ").strip())]
        if name.startswith("tensor "):
            return [debugger.tensor(name.removeprefix("tensor ").strip())]
        fields = [one for one in debugger.operands() if name == one.name]
        return fields or [self._named(name)]

    def _nothing(self, text: str) -> "list[Operand]":
        self.say(text)
        return []

    def _named(self, name: str) -> "Slice | Stored":
        """The newest slice if it is in local memory, otherwise the stored tensor."""
        debugger = self.debugger
        if name not in self.tensors():
            raise ConfigError(f"no operand or tensor '{name}'; info command and info tensors list them")
        stored = [entry for entry in debugger.program.tensors if entry.name == name]
        try:
            return debugger.slice(name)
        except ConfigError:
            if not stored:
                raise
            return debugger.tensor(name)

    def _show(self, look: "Operand | Slice | Stored", index: tuple[Any, ...] | None) -> None:
        from tpusim.simulator.debugger.memory_contents import Slice, numbers

        if index is None:
            title, _, body = repr(look).partition("\n")
            self.say(title, "bold")
            self.say_lines(body)
            return
        values = look.values
        if isinstance(look, Slice) and look.location.whole[2] == 1:
            values = values[:, :, 0]
        try:
            part = values[index]
        except IndexError as error:
            raise ConfigError(f"{error}; its shape is {'x'.join(map(str, values.shape))}") from error
        self.say(look.title, "bold")
        self.say_lines(numbers(np.asarray(part)))

    def do_x(self, text: str) -> None:
        """Bytes as they are, 64 of lane 0 if not said otherwise.

        ADDRESS is lmem A, gmem A, A alone, or a tensor: where its newest slice is, or the tensor in global memory.
        """
        words = text.split()
        if not words:
            raise ConfigError("x: an address or a tensor is required; for example x lmem 0x500 64 lane 3")
        if words[0] in self.tensors():
            memory_and_address, where = self._address_of(words[0])
            words = [*memory_and_address, *words[1:], *(() if "lane" in words or "core" in words else where)]
        memory, start, words = self.address(words)
        lane, core, words = self.place(words, memory)
        count = self.number(words.pop()) if len(words) == 1 else 64
        if words or not 0 < count <= 4096:
            raise ConfigError(
                "the form is x [lmem|gmem] ADDRESS [COUNT] [lane L] [core K] with a count of 1 to 4096 bytes"
            )
        title, _, body = repr(self.debugger.bytes(memory, start, count, lane or 0, core)).partition("\n")
        self.say(title, "bold")
        self.say_lines(body)

    def _address_of(self, name: str) -> tuple[tuple[str, str], tuple[str, ...]]:
        """(`lmem A` or `gmem A`, `lane L core K`) of what `print NAME` shows."""
        from tpusim.simulator.debugger.memory_contents import Slice

        look = self._named(name)
        if isinstance(look, Slice):
            view = look.location.view
            return ("lmem", str(view.address)), ("lane", str(view.lane), "core", str(look.core))
        return ("gmem", str(look.view.address)), ()

    def do_info(self, text: str) -> None:
        """The state of the machine.

        info            the next command, the queues and the breakpoints
        info queues     what each queue has finished, may work on, and waits for (info dma)
        info command    the next command with its operands
        info slices     the slices that local memory holds now
        info ops, info tensors, info inputs
        """
        found: dict[str, Callable[[], None]] = {
            "": self._info,
            "queues": self._info_queues,
            "dma": self._info_queues,
            "command": self._info_command,
            "slices": self._info_slices,
            "break": self.show_breakpoints,
            "ops": lambda: self._info_names(c.op for c in self.debugger.program.commands),
            "tensors": lambda: self._info_names(self.tensors()),
            "inputs": self._info_inputs,
        }
        if text not in found:
            raise ConfigError(f"info {text}: one of {', '.join(filter(None, found))} is required")
        found[text]()

    def _info(self) -> None:
        self.show_place()
        self._info_queues()
        self.show_breakpoints()

    def _info_queues(self) -> None:
        for queue in self.debugger.queues():
            self.say(f"{queue.name.text}: {queue.finished} of {queue.total} finished", "bold")
            for number, label in enumerate(queue.pending[:SHOWN]):
                self.say(f"{'works on' if number == 0 else 'then'} {label}", indent=6)
            if len(queue.pending) > SHOWN:
                self.say(f"then {len(queue.pending) - SHOWN} more", indent=6)
            if queue.waits:
                self.say(queue.waits, "yellow", indent=6)

    def _info_command(self) -> None:
        if self.debugger.command is None:
            self.show_place()
            return
        from tpusim.isa.text import command_line

        self.say(command_line(self.debugger.command))
        for operand in self.debugger.operands():
            self.say(operand.title, indent=6)

    def _info_slices(self) -> None:
        found = self.debugger.slices()
        for one in found[-SHOWN:]:
            self.say(one.title)
        more = f", the newest {SHOWN} shown" if len(found) > SHOWN else ""
        self.say(f"{len(found)} slices in local memory{more}", "dim")

    def _info_names(self, names: Iterable[str]) -> None:
        self.say(", ".join(dict.fromkeys(names)))

    def _info_inputs(self) -> None:
        for name, array in self.debugger.inputs.items():
            self.say(f"{name}: {array.dtype} {'x'.join(map(str, array.shape))}")

    def do_list(self, text: str) -> None:
        """The commands around the next one, N of them from there."""
        debugger = self.debugger
        first = max(0, debugger.position - _AROUND)
        for position in range(first, min(len(debugger.order), debugger.position + self.number(text, _LISTED))):
            command = debugger.program.commands[debugger.order[position]]
            marks = "=>" if position == debugger.position else "  "
            stops = any(debugger.order[position] in one.commands for one in debugger.breakpoints.values())
            self.say(f"{marks}{'*' if stops else ' '}{position:>5}  {_line(command)}", "bold" if marks == "=>" else "")

    def do_check(self, text: str) -> None:
        """Compare the newest slice or tensor with the reference (--check), and say what was wrong before."""
        verdict = self.debugger.check()
        for one in verdict.mismatches:
            self.fail(f"wrong: {one}")
        if not verdict.compared:
            self.say("no command has completed a slice or tensor that the reference has")
        elif not verdict.mismatches:
            self.say(f"{verdict.command}: right, {verdict.compared} compared", "green")
        wrong = [one for one in self.debugger.mismatches if one not in verdict.mismatches]
        for one in wrong[:SHOWN]:
            self.fail(f"before: {one}")
        if len(wrong) > SHOWN:
            self.fail(f"before: {len(wrong) - SHOWN} more")


def _line(command: "Command") -> str:
    """Engine, id, what it waits for, opcode, op and slice."""
    opcode = str(command.__struct_config__.tag)
    core = f"core {command.core} " if command.core else ""
    what = f"{command.engine:<4} {command.id:>5} dep={command.dep:<5} {opcode:<15}"
    return f"{core}{what} {command.op} {command.step}".rstrip()
