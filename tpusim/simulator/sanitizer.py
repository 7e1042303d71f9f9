"""Checks that depend on no value and on no timing, done once per program.

* `check_cores`: the chip has the cores that commands are for.
* `check_bounds`: every view lies inside one memory, nothing writes coefficients.
* `races.check_races`: commands of different queues that nothing orders touch no common byte, unless both only read.
* `metadata_checks.check_metadata`: tables and names agree with the commands.
* `check_poison`: every byte is written before it is read. As races are excluded, one order represents all.
"""

from collections.abc import Mapping

from tpusim.chips import ChipSpec
from tpusim.errors import SimulationError
from tpusim.isa.commands import Command
from tpusim.isa.stream import Program
from tpusim.simulator.memory import Memory, Shadow
from tpusim.simulator.stored import StoredTensors


def check_cores(commands: tuple[Command, ...], chip: ChipSpec) -> None:
    """Raise SimulationError for a command of a core that the chip does not have."""
    for command in commands:
        if not 0 <= command.core < chip.cores:
            raise SimulationError(
                f"{command.label}: {chip.name} has {chip.cores} core{'s' * (chip.cores > 1)}; compile for "
                f"{chip.cores} core{'s' * (chip.cores > 1)} at most"
            )


def check_bounds(commands: tuple[Command, ...], memory: Memory) -> None:
    """Raise SimulationError for a view outside its memory or a write to a read-only region."""
    for command in commands:
        for view in command.reads():
            memory.check(view, command.label, writing=False)
        for view in command.writes():
            memory.check(view, command.label, writing=True)
        for view in command.scratch():
            memory.check(view, f"{command.label}: its work area", writing=True)


def check_poison(program: Program, order: list[int], shadows: Mapping[int, Shadow]) -> None:
    """Raise SimulationError for a read of bytes that nothing wrote, or a stored tensor with a gap.

    shadows: by core, with global memory in common.
    """
    first = shadows[0]
    for entry in program.inputs:
        first.mark(entry.view, f"input '{entry.name}'")
    stored = StoredTensors(program)
    for entry in stored.ready():
        first.require(entry.view, f"tensor '{entry.name}', complete from the start,")
    for index in order:
        command = program.commands[index]
        shadow = shadows[command.core]
        for view in command.reads():
            shadow.require(view, command.label)
        for view in command.scratch():
            shadow.forget(view)
        for view in command.writes():
            shadow.mark(view, command.label)
        for entry in stored.finished(index):
            shadow.require(entry.view, f"tensor '{entry.name}', complete after {command.label},")
