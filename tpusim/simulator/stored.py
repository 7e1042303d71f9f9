"""When each tensor of the program's table is complete in global memory.

Addresses are reused, so a tensor must be captured right after the last command that stores part of it. A command says
which tensor that is by its `tensor` field; a tensor made in place of others (`parts`) is complete with them.
"""

from tpusim.errors import SimulationError
from tpusim.isa.stream import Program, TensorEntry


def writers(program: Program) -> dict[str, frozenset[int]]:
    """Tensor name -> indices of the commands that store it, for tensors that commands name directly."""
    known = {entry.name for entry in program.tensors}
    found: dict[str, set[int]] = {}
    for index, command in enumerate(program.commands):
        if not command.tensor:
            continue
        if command.tensor not in known:
            raise SimulationError(
                f"{command.label}: stores tensor '{command.tensor}', which is not in the program's tensor table; "
                "add an entry or correct the name"
            )
        found.setdefault(command.tensor, set()).add(index)
    return {name: frozenset(indices) for name, indices in found.items()}


def completions(program: Program) -> list[tuple[TensorEntry, frozenset[int]]]:
    """Every tensor that a run produces, with the commands after which it is complete (none: from the start)."""
    direct = writers(program)
    entries = {entry.name: entry for entry in program.tensors}

    def needed(entry: TensorEntry, above: tuple[str, ...] = ()) -> frozenset[int] | None:
        if entry.role == "input":
            return frozenset()
        if entry.name in above or any(part not in entries for part in entry.parts):
            raise SimulationError(
                f"tensor '{entry.name}': its parts {', '.join(entry.parts)} must be other tensors of the table; "
                "correct the tensor table"
            )
        below = [needed(entries[part], (*above, entry.name)) for part in entry.parts]
        found = [commands for commands in (direct.get(entry.name), *below) if commands is not None]
        return frozenset[int]().union(*found) if found else None

    complete = [(entry, needed(entry)) for entry in program.tensors if entry.role != "input"]
    missing = [entry.name for entry, commands in complete if commands is None and entry.role == "output"]
    if missing:
        raise SimulationError(
            f"no command stores output {', '.join(missing)}; set `tensor` on the commands that store it, "
            "or `parts` if it is made in place"
        )
    return [(entry, commands) for entry, commands in complete if commands is not None]


class StoredTensors:
    """Tells a run which tensors have just become complete."""

    def __init__(self, program: Program):
        self._entries: list[TensorEntry] = []
        self._waiting: list[int] = []
        self._users: dict[int, list[int]] = {}
        for number, (entry, commands) in enumerate(completions(program)):
            self._entries.append(entry)
            self._waiting.append(len(commands))
            for command in commands:
                self._users.setdefault(command, []).append(number)

    def ready(self) -> list[TensorEntry]:
        """The tensors that are there before the first command."""
        return [entry for entry, count in zip(self._entries, self._waiting, strict=True) if count == 0]

    def finished(self, command: int) -> list[TensorEntry]:
        """Tensors that the command with this index completes. Call once per command."""
        found: list[TensorEntry] = []
        for number in self._users.get(command, ()):
            self._waiting[number] -= 1
            if self._waiting[number] == 0:
                found.append(self._entries[number])
        return found
