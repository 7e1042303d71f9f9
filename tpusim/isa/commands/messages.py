"""Messages between the queues of cores (SYS): commands and legality."""

from tpusim.chips import ChipSpec
from tpusim.isa.commands.base import Command
from tpusim.isa.finding import Finding

MESSAGES = 512
"""Message numbers of a chip, which sends and waits of all cores share."""
_MOST_SENDS = 127


def messages(command: "Message", chip: ChipSpec) -> Finding | None:
    """Only a chip with several cores has messages: numbers 0-511, counts 1-127 (Decision: 9 and 7 bits)."""
    if chip.cores == 1:
        return Finding("several cores for a message", "one core", "leave it out")
    if 0 <= command.message < MESSAGES and 1 <= command.count <= _MOST_SENDS:
        return None
    wanted = f"message within 0-{MESSAGES - 1}, count within 1-{_MOST_SENDS}"
    return Finding(wanted, f"message {command.message}, count {command.count}", "use a number again")


class Message(Command, frozen=True):
    """A send or a wait. message: its number; count: how many waits or sends it belongs to."""

    outputs_ = ()
    local_rules = (messages,)

    message: int
    count: int

    @property
    def stage(self) -> str:
        """Its stage is a message between queues."""
        return "message"

    def cycles(self, chip: ChipSpec) -> int:
        """Decision: one cycle; the real cost of a barrier of the cores is not known."""
        return 1


class SendMessage(Message, frozen=True, tag="send_msg"):
    """Send a message to the other cores (SYS send_msg), when the commands before it have finished.

    A message number connects sends and waits on any queues of any cores. Every wait states how many sends it
    waits for, every send how many waits receive it; after the last wait the number is free for another use.
    Decision: no send may use the number again earlier (hardware would confuse the two uses), and all counts must be
    right, so that timing never decides which sends a wait receives.

    message: its number.
    count: waits that receive it.
    """


class WaitMessage(Message, frozen=True, tag="wait_msg"):
    """Wait until a message was sent `count` times (SYS wait_msg); later commands in its queue wait too.

    message: its number.
    count: sends it waits for.
    """


class DmaSendMessage(SendMessage, frozen=True, tag="dma_send_msg"):
    """Send a message from the DMA queue (SYS of GDMA), when the transfers before it have finished; see send_msg.

    message: its number.
    count: waits that receive it.
    """

    engine = "gdma"

    def dma_ns(self, chip: ChipSpec) -> float:
        """One cycle of GDMA."""
        return 1000 / chip.dma_mhz


class DmaWaitMessage(WaitMessage, frozen=True, tag="dma_wait_msg"):
    """Wait for a message in the DMA queue (SYS of GDMA); see wait_msg.

    message: its number.
    count: sends it waits for.
    """

    engine = "gdma"

    def dma_ns(self, chip: ChipSpec) -> float:
        """One cycle of GDMA."""
        return 1000 / chip.dma_mhz
