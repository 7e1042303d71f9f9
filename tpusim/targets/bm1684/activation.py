"""Functions of one tensor: tables of bytes (numerics.md 10)."""

import numpy as np
from tpusim_kernels.prim.table import Bytes
from typing_extensions import override
from xdsl.ir import SSAValue

from tpusim.interfaces import Model
from tpusim.ops.activation.top import ByteTable, TopAbs, TopGELU
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.interfaces import Lowering
from tpusim.targets.bm1684.target import TARGET


@TARGET.attach(TopGELU, ByteTable)
class GeluOfTanh(Model[TopGELU], ByteTable):
    """Tables always have the tanh form."""

    @override
    def entries(self, ctx: LoweringContext, x: Bytes, y: Bytes) -> np.ndarray:
        return self.op.entries_of("TGELU", ctx, x, y)


@TARGET.attach(TopAbs, Lowering)
class AbsByTable(Model[TopAbs], Lowering):
    """Absolute values are computed by a table, like other functions (U-45)."""

    @override
    def lower(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Lut, or tpu.Active in float."""
        return ctx.by_family(self.op, self.op.lowerings())
