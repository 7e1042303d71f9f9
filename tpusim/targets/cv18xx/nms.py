"""Non-maximum suppression, which there is none of."""

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
        """UnsupportedError: no command of this family does it."""
        raise UnsupportedError(
            f"top.Nms '{op_name(self.op)}': this chip has no non-maximum suppression, and the real compiler stops "
            f"here too; take BM1684X or BM1688, or end the network in front of it with {option('outputs')} "
            "and run it behind"
        )
