"""Non-maximum suppression, which CV18xx does not support."""

from typing_extensions import override
from xdsl.ir import SSAValue

from tpusim.errors import UnsupportedError, option
from tpusim.interfaces import Model
from tpusim.ir.attrs import op_name
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.interfaces import FloatLowering
from tpusim.ops.nms import TopNms
from tpusim.targets.cv18xx.target import TARGET


@TARGET.attach(TopNms, FloatLowering)
class NoNms(Model[TopNms], FloatLowering):
    """TPU-MLIR refuses it too (U-48)."""

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """Raises UnsupportedError: no command of this family computes it."""
        raise UnsupportedError(
            f"top.Nms '{op_name(self.op)}': this chip has no non-maximum suppression, and TPU-MLIR refuses it too; "
            f"use BM1684X or BM1688, or end the network before it with {option('outputs')} and compute it afterwards"
        )
