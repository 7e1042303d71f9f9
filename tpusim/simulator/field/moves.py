"""Commands that only move elements."""

import numpy as np

from tpusim.field.selected import gathered
from tpusim.isa.commands import Fill, LaneCopy, Move, MoveRows
from tpusim.simulator.field.memory import FieldMachine
from tpusim.simulator.handlers import execute


def move(command: Move | LaneCopy, memory: FieldMachine) -> None:
    """Copy the numbers of all bytes, whatever the type; constants are copied as bytes, too."""
    memory.copy(command.input, command.output)
    execute(command, memory.constants)


def move_rows(command: MoveRows, memory: FieldMachine) -> None:
    """Every element is a function of its column of the table and of its index."""
    data, indices = memory.read(command.input), memory.read(command.indices)
    memory.write(command.output, gathered(memory.field, data, indices, 1).reshape(command.output.shape))


def fill(command: Fill, memory: FieldMachine) -> None:
    """The element of the value."""
    view = command.output
    memory.write(view, np.full(view.shape, memory.field.constant(command.value), np.int64))
