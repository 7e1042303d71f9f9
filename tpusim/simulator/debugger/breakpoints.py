"""Where to stop: a breakpoint is a set of commands, computed when the breakpoint is made.

The machine stops before each of them. They are given by op, by engine and id, by address (exact bytes, of one lane or
all), or by tensor: the commands that write it, or read it before its bytes are overwritten.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tpusim.errors import ConfigError
from tpusim.isa.commands import Engine
from tpusim.isa.stream import Location, Program
from tpusim.simulator.debugger.accesses import Access, Accesses, ByteRange, Placed
from tpusim.simulator.stored import completions


@dataclass(frozen=True)
class Breakpoint:
    """Stop before any of `commands` (indices in the program)."""

    number: int
    what: str
    commands: frozenset[int]
    enabled: bool = True

    def __repr__(self) -> str:
        count = len(self.commands)
        off = "" if self.enabled else ", off"
        return f"{self.number}: {self.what} ({count} command{'s' * (count != 1)}{off})"


def some(names: Iterable[str], limit: int = 8) -> str:
    """The first of these names, for a message."""
    known = list(dict.fromkeys(names))
    return ", ".join(known[:limit]) + (" ..." if len(known) > limit else "")


def meant(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that match a name or a shell pattern (`load_*`), each once."""
    known = list(dict.fromkeys(names))
    return [pattern] if pattern in known else [name for name in known if fnmatchcase(name, pattern)]


def by_op(program: Program, op: str) -> frozenset[int]:
    """The commands of an op, or of all that a pattern stands for. Raises ConfigError."""
    names = set(meant(op, (command.op for command in program.commands)))
    found = frozenset(i for i, command in enumerate(program.commands) if command.op in names)
    if not found:
        raise ConfigError(f"no command of op '{op}'; ops are {some(c.op for c in program.commands)}")
    return found


def by_id(program: Program, engine: Engine, number: int, core: int) -> frozenset[int]:
    """The command of an engine of a core with this id. Raises ConfigError."""
    queue = {c.id: i for i, c in enumerate(program.commands) if (c.engine, c.core) == (engine, core)}
    found = frozenset(i for one, i in queue.items() if one == number)
    if not found:
        name = f"{engine} of core {core}" if core else engine
        raise ConfigError(f"no command {engine} {number}; the {name} queue has commands 1 to {max(queue, default=0)}")
    return found


def by_address(accesses: Accesses, wanted: ByteRange, access: Access) -> frozenset[int]:
    """The commands that read or write a byte of the range. Raises ConfigError if there are none."""
    found = accesses.touching(wanted, access)
    if not found:
        verb = {"read": "reads", "write": "writes", "any": "touches"}[access]
        raise ConfigError(f"no command {verb} {wanted}; `lmem` addresses are bytes of a lane, `gmem` absolute")
    return found


def tensor_names(program: Program) -> list[str]:
    """Every tensor that is in global or local memory at some time."""
    return list(dict.fromkeys([*(t.name for t in program.tensors), *(loc.tensor for loc in program.locations)]))


def by_tensor(accesses: Accesses, order: list[int], pattern: str, access: Access) -> frozenset[int]:
    """The commands that write a tensor, or read it before its bytes are overwritten; of all tensors that match.

    Raises ConfigError.
    """
    known = tensor_names(accesses.program)
    if not (names := meant(pattern, known)):
        raise ConfigError(f"no tensor '{pattern}'; tensors are {some(known)}")
    found = frozenset[int]().union(*(_touching(accesses, order, name, access) for name in names))
    if not found:
        verb = {"read": "reads", "write": "writes", "any": "touches"}[access]
        raise ConfigError(f"no command {verb} tensor '{pattern}'; break on the other access")
    return found


def _touching(accesses: Accesses, order: list[int], name: str, access: Access) -> set[int]:
    program = accesses.program
    writers = writers_of(program, name)
    slices = [location for location in program.locations if location.tensor == name]
    makers = frozenset(i for location in slices for i in _makers(accesses, location))
    stored = [Placed(0, entry.view) for entry in program.tensors if entry.name == name]
    held = stored if any(entry.name == name and entry.role == "input" for entry in program.tensors) else []
    found: set[int] = set()
    for index in order:
        command = program.commands[index]
        if access != "write" and accesses.touches(command, "read", held):
            found.add(index)
        if access != "read" and index in writers | makers:
            found.add(index)
        if index not in writers:
            held = [one for one in held if accesses.overwriter(one, [index]) is None]
        held = [*held, *(Placed(command.core, location.view) for location in slices if location.command == index)]
        held += [one for one in stored if index in writers and one not in held]
    return found


def writers_of(program: Program, name: str) -> frozenset[int]:
    """The commands that store a tensor, or the tensors it is made of, in global memory."""
    return next((needed for entry, needed in completions(program) if entry.name == name), frozenset[int]())


def _makers(accesses: Accesses, location: Location) -> list[int]:
    """The commands of one op and step that write the slice, up to the command that completes it."""
    commands = accesses.program.commands
    last = commands[location.command]
    view = [Placed(last.core, location.view)]
    return [
        i
        for i, command in enumerate(commands[: location.command + 1])
        if (command.op, command.step, command.group) == (last.op, last.step, last.group)
        and accesses.touches(command, "write", view)
    ]
