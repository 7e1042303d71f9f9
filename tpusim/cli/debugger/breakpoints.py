"""Commands of the prompt for breakpoints."""

from typing import TYPE_CHECKING, Literal

from tpusim.cli.debugger.base import Base
from tpusim.cli.debugger.syntax import access, address, is_address
from tpusim.errors import ConfigError

if TYPE_CHECKING:
    from tpusim.simulator.debugger import Access, Breakpoint, ByteRange


class Breakpoints(Base):
    """`break`, `delete`, `enable`, `disable`."""

    def do_break(self, text: str) -> None:
        """Stop before commands.

        break NAME                          commands of this op, or that touch this tensor; load_* means several
        break op NAME
        break tensor NAME [read|write]      while memory holds it
        break tiu N, break gdma N           the command with this id (core K: of another core)
        break lmem A [B] [lane L] [core K] [read|write]
        break gmem A [B] [read|write]       bytes of global memory
        break A ...                         the memory that the address fits
        break                               list the breakpoints
        """
        if not text:
            self.show_breakpoints()
            return
        words = text.split()
        made = self._break(words, access(words))
        self.say(f"breakpoint {made!r}", "cyan")

    def _break(self, words: list[str], wanted: "Access") -> "Breakpoint":
        from tpusim.simulator.debugger.breakpoints import meant

        first, rest, debugger = words[0], words[1:], self.debugger
        if first in ("tiu", "gdma") and rest:
            _, core, rest = self.place(rest)
            if len(rest) == 1:
                number = self.number(rest[0])
                return debugger.break_on(command=("tiu" if first == "tiu" else "gdma", number), core=core)
        if first == "op" and len(rest) == 1:
            return debugger.break_on(op=rest[0])
        if first == "tensor" and len(rest) == 1:
            return debugger.break_on(tensor=rest[0], access=wanted)
        if is_address(first) or (first in ("lmem", "gmem") and rest):
            return debugger.break_on(address=self._range(words), access=wanted)
        if rest:
            raise ConfigError(f"break: cannot read '{' '.join(words)}'; help break shows the forms")
        if meant(first, (command.op for command in debugger.program.commands)):
            return debugger.break_on(op=first)
        if not meant(first, self.tensors()):
            raise ConfigError(f"no op or tensor '{first}'; info ops and info tensors list them")
        return debugger.break_on(tensor=first, access=wanted)

    def _range(self, words: list[str]) -> "ByteRange":
        """The byte range of `[lmem|gmem] A [B] [lane L] [core K]`; B is one past the last byte."""
        from tpusim.simulator.debugger import ByteRange

        memory, start, words = self.address(words)
        lane, core, words = self.place(words, memory)
        stop = address(words.pop()) if len(words) == 1 else start + 1
        if words or stop <= start:
            raise ConfigError(
                "the form of an address range is A [B] [lane L] [core K], A below B; help break shows the forms"
            )
        return ByteRange(memory, start, stop, lane, core)

    def address(self, words: list[str]) -> tuple[Literal["lmem", "gmem"], int, list[str]]:
        """(memory, address, the remaining words) of `[lmem|gmem] ADDRESS ...`. Raises ConfigError."""
        if words[0] in ("lmem", "gmem"):
            if len(words) < 2:
                raise ConfigError(f"{words[0]}: an address such as 0x500 or 1280 is required")
            return ("lmem" if words[0] == "lmem" else "gmem"), address(words[1]), words[2:]
        start = address(words[0])
        return ("lmem" if start < self.debugger.chip.lmem_bytes else "gmem"), start, words[1:]

    def place(self, words: list[str], memory: str = "gmem") -> tuple[int | None, int, list[str]]:
        """(lane, core, the words before) of `... [lane L] [core K]`; a lane of local memory. Raises ConfigError."""
        lane, core = None, 0
        while len(words) > 1 and words[-2] in ("core", "lane"):
            kind, number, words = words[-2], self.number(words[-1]), words[:-2]
            if kind == "core":
                core = number
            elif memory == "lmem" and number < self.debugger.chip.lanes:
                lane = number
            else:
                raise ConfigError(
                    f"lane {number}: local memory of {self.debugger.chip.name} has {self.debugger.chip.lanes}"
                )
        return lane, core, words

    def do_delete(self, text: str) -> None:
        """Remove a breakpoint, or all of them (d)."""
        for number in [self._breakpoint(text)] if text else list(self.debugger.breakpoints):
            self.debugger.delete(number)
        self.show_breakpoints()

    def do_enable(self, text: str) -> None:
        """Switch a breakpoint on."""
        self.say(f"breakpoint {self.debugger.enable(self._breakpoint(text))!r}", "cyan")

    def do_disable(self, text: str) -> None:
        """Switch a breakpoint off."""
        self.say(f"breakpoint {self.debugger.enable(self._breakpoint(text), on=False)!r}", "cyan")

    def _breakpoint(self, text: str) -> int:
        return self.number(text, None, "the number of a breakpoint (info break lists them)")

    def show_breakpoints(self) -> None:
        """Print all breakpoints with their numbers."""
        if not self.debugger.breakpoints:
            self.say("no breakpoints")
        for one in self.debugger.breakpoints.values():
            self.say(f"breakpoint {one!r}", "cyan")
