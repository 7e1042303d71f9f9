"""Messages between queues: which waits receive which sends of a number (`isa.commands.SendMessage`)."""

from dataclasses import dataclass, field

from tpusim.isa.commands import SendMessage, WaitMessage


@dataclass
class Meeting:
    """One use of a message number: positions of the commands in the program, in the order they were executed."""

    message: int
    waits_expected: int
    sends: list[int] = field(default_factory=list[int])
    waits: list[int] = field(default_factory=list[int])


class Mailbox:
    """The message numbers in use while a program runs, and all meetings so far."""

    def __init__(self) -> None:
        self.meetings: list[Meeting] = []
        self._open: dict[int, Meeting] = {}

    def sent(self, message: int) -> int:
        """How often a message was sent since its number was last free."""
        found = self._open.get(message)
        return len(found.sends) if found else 0

    def send(self, index: int, command: SendMessage) -> None:
        """The send at this position of the program has been executed."""
        found = self._open.get(command.message)
        if found is None:
            found = self._open[command.message] = Meeting(command.message, command.count)
            self.meetings.append(found)
        found.sends.append(index)

    def take(self, index: int, command: WaitMessage) -> Meeting | None:
        """The meeting of the wait at this position, which is over; None: it waited for no send."""
        found = self._open.get(command.message)
        if found is None:
            return None
        found.waits.append(index)
        if len(found.waits) >= found.waits_expected:
            del self._open[command.message]
        return found
