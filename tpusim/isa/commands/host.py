"""A whole layer that the host computes in system memory."""

from tpusim.chips import ChipSpec
from tpusim.isa.commands.global_kernel import GlobalKernel


class HostCall(GlobalKernel, frozen=True, tag="host"):
    """A whole layer that the processor of the host computes in system memory, between two parts of the program.

    TPU-MLIR's name is `tpu.GenericCpu`, a sub-function of its own: no command of the chip belongs to it. Both engines
    have finished what stands before it, and wait. The clock is the chip's and does not advance; nothing is moved by
    GDMA. body: what is computed, in the element types that system memory has.
    """

    works = "the host's processor"
    on_chip = False

    @property
    def stage(self) -> str:
        """A call of the host."""
        return "host"

    def dma_ns(self, chip: ChipSpec) -> float:
        """None of the chip's time."""
        return 0.0
