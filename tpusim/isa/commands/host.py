"""A whole layer that the host computes in system memory."""

from tpusim.chips import ChipSpec
from tpusim.isa.commands.global_kernel import GlobalKernel


class HostCall(GlobalKernel, frozen=True, tag="host"):
    """A whole layer that the processor of the host computes in system memory, between two parts of the program.

    TPU-MLIR's name is `tpu.GenericCpu`; it is a separate sub-function without commands of the chip. Both engines
    have finished the earlier commands, and wait. The clock counts the chip's time and does not advance; GDMA moves
    nothing. body: the command that is computed, in the element types of system memory.
    """

    works = "the host's processor"
    on_chip = False

    @property
    def stage(self) -> str:
        """Its stage is a call of the host."""
        return "host"

    def dma_ns(self, chip: ChipSpec) -> float:
        """It takes none of the chip's time."""
        return 0.0
