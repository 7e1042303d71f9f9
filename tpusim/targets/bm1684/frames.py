"""Preprocessing inside the network, which BM1684 does not support."""

from typing_extensions import override

from tpusim.ops.interfaces import FusedFrames
from tpusim.targets.bm1684.target import TARGET


@TARGET.provide(FusedFrames)
class NoFusedFrames(FusedFrames):
    """Preprocessing has no lowering."""

    @override
    def why_not(self) -> str | None:
        """TPU-MLIR refuses it too (U-48)."""
        return "TPU-MLIR refuses it too; leave it out"
