"""Preprocessing inside the model: BM1684 has none."""

from typing_extensions import override

from tpusim.ops.interfaces import FusedFrames
from tpusim.targets.bm1684.target import TARGET


@TARGET.provide(FusedFrames)
class NoFusedFrames(FusedFrames):
    """Preprocessing cannot be lowered."""

    @override
    def why_not(self) -> str | None:
        """TPU-MLIR refuses it too (U-48)."""
        return "the real compiler stops there too; leave it out"
