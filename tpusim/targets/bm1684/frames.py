"""Images of the user."""

from tpusim.ops.interfaces import FusedFrames
from tpusim.targets.bm1684.target import TARGET


@TARGET.provide(FusedFrames)
class NoFusedFrames(FusedFrames):
    """There is no lowering of preprocessing."""

    def why_not(self) -> str | None:
        """As TPU-MLIR (U-48)."""
        return "the real compiler stops there too; leave it out"
