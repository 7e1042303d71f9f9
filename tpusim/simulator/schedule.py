"""The order in which the in-order queues, two per core, execute (codegen.md DC-03, DC-08).

A command may start when its engine is free and the core's other engine has finished the command that `dep` names; a
wait also needs its message to have been sent as often as it states. "early" DMA runs ahead as far as it may; "late"
DMA advances only when no TIU can, and the cores have the opposite precedence: the two extremes of hardware timing.
"random" chooses by seed any queue that may advance.
"""

from collections.abc import Callable
from random import Random
from typing import Literal, NamedTuple, get_args

from tpusim.errors import SimulationError
from tpusim.isa.commands import Command, Engine, SendMessage, WaitMessage
from tpusim.simulator.messages import Mailbox

Timing = Literal["early", "late", "random"]

TIMINGS: tuple[Timing, ...] = get_args(Timing)


class QueueName(NamedTuple):
    """Which queue: an engine of a core."""

    core: int
    engine: Engine

    @property
    def text(self) -> str:
        """The name of the queue in messages; core 0 is not mentioned."""
        return f"{self.engine} of core {self.core}" if self.core else self.engine


class Queues:
    """The command queues of a program, checked: ids count from 1, dependencies name existing commands.

    Queue 2k belongs to the TIU, 2k + 1 to the GDMA of the k-th core that has commands, `other(queue)` is its partner.
    """

    def __init__(self, commands: tuple[Command, ...]):
        self.commands = commands
        self.cores = tuple(sorted({0, *(command.core for command in commands)}))
        self.names = tuple(QueueName(core, engine) for core in self.cores for engine in ("tiu", "gdma"))
        numbers: dict[tuple[int, Engine], int] = {name: queue for queue, name in enumerate(self.names)}
        self.indices: list[list[int]] = [[] for _ in self.names]
        """Per queue: positions of its commands in the program."""
        self.queue_of = [numbers[command.core, command.engine] for command in commands]
        for index, queue in enumerate(self.queue_of):
            self.indices[queue].append(index)
        for queue in range(len(self.names)):
            self._check(queue)

    @staticmethod
    def other(queue: int) -> int:
        """The queue of the same core's other engine."""
        return queue ^ 1

    def _check(self, queue: int) -> None:
        name, other = self.names[queue].text, self.names[self.other(queue)].text
        limit = len(self.indices[self.other(queue)])
        for expected, index in enumerate(self.indices[queue], start=1):
            command = self.commands[index]
            if command.id != expected:
                raise SimulationError(
                    f"{command.label}: the {name} queue counts ids 1, 2, 3 ... in issue order and expects "
                    f"{expected} here; number the commands of each engine without gaps"
                )
            if not 0 <= command.dep <= limit:
                raise SimulationError(
                    f"{command.label}: waits for {other} command {command.dep}, but there are {limit}; "
                    "depend on the id of a command of the other engine, or on 0"
                )


class Progress:
    """How far every queue has come, and which messages are under way."""

    def __init__(self, queues: Queues):
        self.queues = queues
        self.done = [0] * len(queues.names)
        self.mailbox = Mailbox()

    def head(self, queue: int) -> Command | None:
        """The next command of a queue."""
        indices = self.queues.indices[queue]
        done = self.done[queue]
        return self.queues.commands[indices[done]] if done < len(indices) else None

    def ready(self, queue: int) -> bool:
        """Whether the next command of a queue may execute."""
        command = self.head(queue)
        if command is None or command.dep > self.done[queue ^ 1]:
            return False
        return not isinstance(command, WaitMessage) or self.mailbox.sent(command.message) >= command.count

    def step(self, queue: int) -> int:
        """Count the next command of a queue as executed; its position in the program."""
        index = self.queues.indices[queue][self.done[queue]]
        command = self.queues.commands[index]
        self.done[queue] += 1
        if isinstance(command, SendMessage):
            self.mailbox.send(index, command)
        elif isinstance(command, WaitMessage):
            self.mailbox.take(index, command)
        return index

    def deadlock(self) -> SimulationError:
        """The error when no queue may advance: what each of them waits for."""
        shown = [q for q, name in enumerate(self.queues.names) if name.core == 0 or self.head(q) is not None]
        waiting = "; ".join(map(self._waiting, shown))
        return SimulationError(f"deadlock: {waiting}; {self._advice()}")

    def _waiting(self, queue: int) -> str:
        command, name = self.head(queue), self.queues.names[queue].text
        if command is None:
            return f"{name} has finished all its {self.done[queue]} commands"
        other = queue ^ 1
        if command.dep > self.done[other]:
            text = self.queues.names[other].text
            return f"{command.label} waits for {text} command {command.dep}, {text} has finished {self.done[other]}"
        assert isinstance(command, WaitMessage)
        sent = self.mailbox.sent(command.message)
        return f"{command.label} waits for {command.count} sends of message {command.message}, there were {sent}"

    def _advice(self) -> str:
        heads = [self.head(queue) for queue in range(len(self.done))]
        if any(isinstance(head, WaitMessage) for head in heads):
            return "send the message from every core that the wait counts, or lower a dependency"
        return "lower one of the dependencies"


def order(queues: Queues, timing: Timing, seed: int = 0) -> list[int]:
    """Positions of the commands in execution order. Raises SimulationError if no queue can advance."""
    progress = Progress(queues)
    choose = _choice(progress, timing, seed)
    result: list[int] = []
    while len(result) < len(queues.commands):
        queue = choose()
        if queue is None:
            raise progress.deadlock()
        result.append(progress.step(queue))
    return result


def _choice(progress: Progress, timing: Timing, seed: int) -> Callable[[], int | None]:
    """How the next queue is chosen among those that may advance."""
    count = len(progress.done)
    late = [*range(0, count, 2)][::-1] + [*range(1, count, 2)][::-1]
    preference = late if timing == "late" else late[::-1]
    if timing != "random":
        return lambda: next((queue for queue in preference if progress.ready(queue)), None)
    draw = Random(seed)  # noqa: S311  # an order, no secret

    def any_ready() -> int | None:
        ready = [queue for queue in range(count) if progress.ready(queue)]
        return draw.choice(ready) if ready else None

    return any_ready
