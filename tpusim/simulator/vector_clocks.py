"""Vector clocks: which command happens before which in every legal timing.

Edges are the order of each queue, the dependency ids, and the messages: everything that happened before a send
happened before each wait that receives it. The clock of a command says, per queue, how many of its commands have
certainly finished when the command starts. It does not depend on the simulated order once `check_meetings` has shown
that no timing can make a wait receive other sends.
"""

from collections.abc import Sequence

import numpy as np

from tpusim.errors import SimulationError
from tpusim.isa.commands import SendMessage, WaitMessage
from tpusim.simulator.messages import Mailbox, Meeting
from tpusim.simulator.schedule import Queues


class Clocks:
    """The clock of every command. Raises SimulationError if timing decides which sends a wait receives."""

    def __init__(self, queues: Queues, order: Sequence[int]):
        self.queues = queues
        self._rows: list[list[int]] = [[]] * len(queues.commands)
        mailbox = Mailbox()
        latest = [[0] * len(queues.names) for _ in queues.names]
        for index in order:
            self._follow(index, latest, mailbox)
        self.rows: np.ndarray = np.array(self._rows, np.int64).reshape(-1, len(queues.names))
        """(commands, queues)."""
        check_meetings(self, mailbox.meetings)

    def _follow(self, index: int, latest: list[list[int]], mailbox: Mailbox) -> None:
        command, queue = self.queues.commands[index], self.queues.queue_of[index]
        other, clock = queue ^ 1, latest[queue]
        if command.dep > clock[other]:
            clock = _joined(clock, self._finish(self.queues.indices[other][command.dep - 1]))
        if isinstance(command, SendMessage):
            mailbox.send(index, command)
        elif isinstance(command, WaitMessage):
            meeting = mailbox.take(index, command)
            for send in meeting.sends if meeting else ():
                clock = _joined(clock, self._finish(send))
        self._rows[index] = clock
        latest[queue] = [*clock[:queue], command.id, *clock[queue + 1 :]]

    def _finish(self, index: int) -> list[int]:
        """The clock of whatever starts when this command has finished."""
        clock, queue = self._rows[index], self.queues.queue_of[index]
        return [*clock[:queue], self.queues.commands[index].id, *clock[queue + 1 :]]

    def before(self, first: int, second: int) -> bool:
        """Whether the first command has certainly finished when the second starts; both by position in the program."""
        return bool(self.rows[second, self.queues.queue_of[first]] >= self.queues.commands[first].id)


def _joined(one: list[int], other: list[int]) -> list[int]:
    return [max(a, b) for a, b in zip(one, other, strict=True)]


def check_meetings(clocks: Clocks, meetings: list[Meeting]) -> None:
    """Raise SimulationError unless all sends and waits of a message agree on their counts, meeting after meeting."""
    last: dict[int, Meeting] = {}
    for meeting in meetings:
        _check_counts(clocks.queues, meeting)
        before = last.get(meeting.message)
        if before is not None:
            _check_apart(clocks, before, meeting)
        last[meeting.message] = meeting


def _check_counts(queues: Queues, meeting: Meeting) -> None:
    for own, counted, kind in (
        (meeting.sends, len(meeting.waits), "waits to take it"),
        (meeting.waits, len(meeting.sends), "sends of it"),
    ):
        for index in own:
            command = queues.commands[index]
            if isinstance(command, SendMessage | WaitMessage) and command.count != counted:
                raise SimulationError(
                    f"message {meeting.message}: {command.label} counts {command.count} {kind}, there are {counted}; "
                    "with another count timing decides what is ordered by the message, correct it"
                )


def _check_apart(clocks: Clocks, one: Meeting, other: Meeting) -> None:
    commands = clocks.queues.commands
    for send in other.sends:
        for wait in one.waits:
            if not clocks.before(wait, send):
                raise SimulationError(
                    f"message {one.message}: {commands[send].label} may send it again before {commands[wait].label} "
                    "took it; use another number"
                )
