"""Which function executes a command: the table of the memory's domain (for bytes `HANDLERS`), by its opcode."""

from collections.abc import Callable
from functools import cache
from typing import Any

from tpusim.errors import SimulationError
from tpusim.isa.commands import Command
from tpusim.registry import HANDLERS, Table
from tpusim.simulator.memory import Machine


@cache
def handler_of(kind: type[Command], handlers: Table[Any] = HANDLERS) -> Callable[[Any, Any], None]:
    """The function that executes a class of commands. Raises SimulationError if none is registered."""
    opcode = str(kind.__struct_config__.tag)
    if opcode not in handlers:
        raise SimulationError(
            f"command '{opcode}': a handler is required, none is registered; register a function of the command and "
            f"the memory under that name (entry points {handlers.group})"
        )
    return handlers.get(opcode)


def execute(command: Command, memory: Machine) -> None:
    """Execute one command (the body of a global kernel, on global memory) in the memory's domain.

    Messages touch no memory.
    """
    body = command.computed
    if body.outputs_:
        handler_of(type(body), memory.handlers)(body, memory)
