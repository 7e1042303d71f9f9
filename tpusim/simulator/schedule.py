"""In which order two in-order queues execute (codegen.md DC-08).

A command may start when its engine is free and the other engine has finished the command its `dep` names. "early" DMA
runs ahead as far as it may, "late" DMA moves only when the TIU cannot: the two extremes of what hardware timing does.
"""

from typing import Literal

from tpusim.errors import SimulationError
from tpusim.isa.commands import AnyCommand, Engine

Timing = Literal["early", "late"]

ENGINES: tuple[tuple[Engine, Engine], ...] = (("tiu", "gdma"), ("gdma", "tiu"))
"""Each engine with the other one."""


class Queues:
    """The two command queues of a program, checked: ids count from 1, dependencies name existing commands."""

    def __init__(self, commands: tuple[AnyCommand, ...]):
        self.commands = commands
        self.indices: dict[Engine, list[int]] = {"tiu": [], "gdma": []}
        for index, command in enumerate(commands):
            self.indices[command.engine].append(index)
        for engine, other in ENGINES:
            self._check(engine, other)

    def _check(self, engine: Engine, other: Engine) -> None:
        limit = len(self.indices[other])
        for expected, index in enumerate(self.indices[engine], start=1):
            command = self.commands[index]
            if command.id != expected:
                raise SimulationError(
                    f"{command.label}: the {engine} queue counts ids 1, 2, 3 ... in issue order and expects "
                    f"{expected} here; number the commands of each engine without gaps"
                )
            if not 0 <= command.dep <= limit:
                raise SimulationError(
                    f"{command.label}: waits for {other} command {command.dep}, but there are {limit}; "
                    "depend on the id of a command of the other engine, or on 0"
                )


def order(queues: Queues, timing: Timing) -> list[int]:
    """Indices of the commands in execution order. Raises SimulationError if neither engine can advance."""
    commands, indices = queues.commands, queues.indices
    done: dict[Engine, int] = {"tiu": 0, "gdma": 0}
    preference: tuple[tuple[Engine, Engine], ...] = ENGINES if timing == "late" else ENGINES[::-1]

    def ready(engine: Engine, other: Engine) -> bool:
        if done[engine] == len(indices[engine]):
            return False
        return commands[indices[engine][done[engine]]].dep <= done[other]

    result: list[int] = []
    while len(result) < len(commands):
        engine: Engine | None = next((one for one, other in preference if ready(one, other)), None)
        if engine is None:
            raise _deadlock(queues, done)
        result.append(indices[engine][done[engine]])
        done[engine] += 1
    return result


def _deadlock(queues: Queues, done: dict[Engine, int]) -> SimulationError:
    waiting: list[str] = []
    for engine, other in ENGINES:
        if done[engine] < len(queues.indices[engine]):
            command = queues.commands[queues.indices[engine][done[engine]]]
            waiting.append(
                f"{command.label} waits for {other} command {command.dep}, {other} has finished {done[other]}"
            )
        else:
            waiting.append(f"{engine} has finished all its {done[engine]} commands")
    return SimulationError(f"deadlock: {'; '.join(waiting)}; lower one of the dependencies")
