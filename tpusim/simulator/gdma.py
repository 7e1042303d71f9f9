"""GDMA commands: tensor copy, gather of rows and constant fill."""

import numpy as np

from tpusim.isa.commands import Fill, Move, MoveRows
from tpusim.isa.functions import Gather
from tpusim.isa.region import numpy_dtype
from tpusim.simulator.memory import Machine
from tpusim.simulator.positions import gather


def move(command: Move, memory: Machine) -> None:
    """Copy a tensor between any two layouts and memories."""
    memory.write(command.output, memory.read(command.input))


def move_rows(command: MoveRows, memory: Machine) -> None:
    """Copy the rows that the indices name."""
    operands = memory.read(command.input), memory.read(command.indices)
    memory.write(command.output, gather(Gather(1), operands, command.output))


def fill(command: Fill, memory: Machine) -> None:
    """Write one value to every element of the view."""
    view = command.output
    memory.write(view, np.full(view.shape, command.value, numpy_dtype(view.dtype)))
