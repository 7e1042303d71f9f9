"""The state of the machine: the next command and its place on the clock, and what each queue waits for."""

from dataclasses import dataclass

from tpusim.isa.commands import WaitMessage
from tpusim.isa.stream import Program
from tpusim.simulator.schedule import Progress, QueueName, Queues


@dataclass(frozen=True)
class Place:
    """The next command and where it belongs. cycles: when it starts on the clock, in TIU cycles."""

    position: int
    total: int
    index: int
    label: str
    op: str
    slice: str
    stage: str
    group: int
    cycles: int

    def __repr__(self) -> str:
        where = f", slice {self.slice}" if self.slice else ""
        return (
            f"{self.position} of {self.total} executed; next {self.label}, group {self.group}{where}, {self.stage}, "
            f"at cycle {self.cycles:,}"
        )


@dataclass(frozen=True)
class Queue:
    """The queue of one engine of a core.

    pending: commands that may start, because everything they wait for has finished, but have not started; an engine
    works on the first of them. waits: what the first other command waits for; empty if the queue waits for nothing.
    """

    name: QueueName
    finished: int
    total: int
    pending: tuple[str, ...]
    waits: str

    def __repr__(self) -> str:
        text = f"{self.name.text}: {self.finished} of {self.total} finished, {len(self.pending)} pending"
        return text + (f"; {self.waits}" if self.waits else "")


def queues(program: Program, done: list[int]) -> tuple[Queue, ...]:
    """The queues after the commands `done` have run, in this order."""
    all_of_them = Queues(program.commands)
    progress = Progress(all_of_them)
    for index in done:
        progress.step(all_of_them.queue_of[index])
    return tuple(_queue(progress, queue) for queue in range(len(all_of_them.names)))


def _queue(progress: Progress, queue: int) -> Queue:
    all_of_them, other = progress.queues, progress.queues.other(queue)
    name, finished = all_of_them.names[other].text, progress.done[other]
    indices, done = all_of_them.indices[queue], progress.done[queue]
    pending: list[str] = []
    waits = ""
    for command in (all_of_them.commands[index] for index in indices[done:]):
        if command.dep > finished:
            waits = f"{command.label} waits for {name} {command.dep}, {name} has finished {finished}"
        elif isinstance(command, WaitMessage) and (pending or not progress.ready(queue)):
            sent = progress.mailbox.sent(command.message)
            waits = f"{command.label} waits for {command.count} sends of message {command.message}, there were {sent}"
        if waits:
            break
        pending.append(command.label)
    return Queue(all_of_them.names[queue], done, len(indices), tuple(pending), waits)
