"""The prompt: motion, help and completion, on top of the commands for breakpoints and inspection."""

from inspect import cleandoc
from typing import Any

from rich.table import Table
from rich.text import Text

from tpusim.cli.debugger.inspection import Inspection
from tpusim.cli.debugger.syntax import ALIASES, USAGE, beginning
from tpusim.errors import ConfigError


class Prompt(Inspection):
    """All commands; the docstring of each is its help text."""

    def do_step(self, text: str) -> None:
        """Execute the next command, or N of them."""
        count, before = self.number(text), self.debugger.position
        stop = self.debugger.step(count)
        self._count(self.debugger.position - before, count, "executed")
        self.show_stop(stop)

    def do_next(self, text: str) -> None:
        """Execute until the TIU is about to begin another op or slice."""
        stop = None
        for _ in range(self.number(text)):
            stop = self.debugger.next()
            if stop.reason != "step":
                break
        if stop is not None:
            self.show_stop(stop)

    def do_continue(self, text: str) -> None:
        """Execute until a breakpoint, wrong values (--check) or the end."""
        self.show_stop(self.debugger.resume())

    def do_finish(self, text: str) -> None:
        """Execute to the end; nothing stops the machine on the way."""
        self.show_stop(self.debugger.finish())

    def do_back(self, text: str) -> None:
        """Undo the last command, or N of them."""
        count, before = self.number(text), self.debugger.position
        stop = self.debugger.back(count)
        self._count(before - self.debugger.position, count, "undone; the program begins here")
        self.show_stop(stop)

    def _count(self, done: int, asked: int, what: str) -> None:
        """Say how many commands were not executed or undone."""
        if done < asked:
            self.say(f"{done} of {asked} commands {what}", "yellow")

    def do_rcontinue(self, text: str) -> None:
        """Undo commands until a breakpoint's command is the next one, or to the start."""
        self.show_stop(self.debugger.resume_back())

    def do_run(self, text: str) -> None:
        """From the start until a breakpoint, wrong values (--check) or the end."""
        self.debugger.restart()
        self.show_stop(self.debugger.resume())

    def do_where(self, text: str) -> None:
        """The next command: its op, group, stage and the cycle."""
        self.show_place()

    def do_restart(self, text: str) -> None:
        """Go back to the start."""
        self.show_stop(self.debugger.restart())

    def do_goto(self, text: str) -> None:
        """Go to where N commands have run, forwards or backwards."""
        what = f"a position from 0 to {len(self.debugger.order)}"
        self.show_stop(self.debugger.goto(self.number(text, 0, what)))

    def do_quit(self, text: str) -> bool:
        """Leave, as at the end of the input."""
        return True

    def do_help(self, arg: str) -> None:
        """List the commands, or show the use of a command."""
        word = ALIASES.get(arg, arg)
        if word and word not in USAGE:
            raise ConfigError(f"no command '{word}'; help lists them")
        table = Table.grid(padding=(0, 2))
        rest = ""
        for name in [word] if word else USAGE:
            first, _, rest = cleandoc(getattr(self, f"do_{name}").__doc__ or "").partition("\n")
            aliases = [short for short, long in ALIASES.items() if long == name and short != "EOF"]
            table.add_row(Text(USAGE[name], "bold"), ", ".join(aliases), first)
        self.console.print(table)
        if word and rest.strip():
            self.say_lines(rest.strip("\n"), indent=2)

    def completenames(self, text: str, *ignored: Any) -> list[str]:
        """Commands that start with a text."""
        return beginning(text, USAGE)

    def complete_break(self, text: str, *ignored: Any) -> list[str]:
        """Ops, tensors and the words of `break`."""
        ops = (command.op for command in self.debugger.program.commands)
        words = ("op", "tensor", "tiu", "gdma", "lmem", "gmem", "lane", "read", "write")
        return beginning(text, [*words, *ops, *self.tensors()])

    complete_b = complete_break

    def complete_print(self, text: str, *ignored: Any) -> list[str]:
        """Tensors and the operands of the next command."""
        operands = (operand.name for operand in self.debugger.operands())
        return beginning(text, ["in", "out", "slice", "tensor", *operands, *self.tensors()])

    complete_p = complete_print

    def complete_info(self, text: str, *ignored: Any) -> list[str]:
        """The subjects that `info` knows, for completion."""
        return beginning(text, ["queues", "dma", "command", "slices", "break", "ops", "tensors", "inputs"])

    complete_i = complete_info
