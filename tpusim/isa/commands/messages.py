"""Messages between the queues of cores (SYS)."""

from tpusim.isa.commands.base import Command


class SendMessage(Command, frozen=True, tag="send_msg"):
    """Send a message to the other cores (SYS send_msg), when the commands before it have finished.

    A message number is met by some sends and some waits, on any queues of any cores. Every wait says how many sends it
    waits for, every send how many waits take it; when the last has taken it, the number is free for the next meeting.
    Decision: nothing may send it for the next meeting before (hardware mixes up the two), and all counts must be right,
    so that it does not depend on timing which sends a wait takes.

    message: its number.
    count: waits that take it.
    """

    outputs_ = ()

    message: int
    count: int


class WaitMessage(Command, frozen=True, tag="wait_msg"):
    """Wait until a message was sent `count` times (SYS wait_msg); the commands behind it in its queue wait with it.

    message: its number.
    count: sends it waits for.
    """

    outputs_ = ()

    message: int
    count: int


class DmaSendMessage(SendMessage, frozen=True, tag="dma_send_msg"):
    """Send a message from the DMA queue (SYS of GDMA), when the transfers before it have finished; see send_msg.

    message: its number.
    count: waits that take it.
    """

    engine = "gdma"


class DmaWaitMessage(WaitMessage, frozen=True, tag="dma_wait_msg"):
    """Wait for a message in the DMA queue (SYS of GDMA); see wait_msg.

    message: its number.
    count: sends it waits for.
    """

    engine = "gdma"
