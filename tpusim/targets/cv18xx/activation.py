"""Functions of one tensor: tables of bytes, and of BF16 (numerics.md 10)."""

import numpy as np
from tpusim_kernels.prim.table import Bytes, power_table, reciprocal_table
from typing_extensions import override
from xdsl.ir import SSAValue

from tpusim.interfaces import Model
from tpusim.ir.attrs import flag
from tpusim.ops.activation.lut_bf16 import build_lookup, float_table
from tpusim.ops.activation.top import Activation, ByteTable, TopAbs, TopPow, TopReciprocal, TopSqrt
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.interfaces import FloatLowering, Lowering
from tpusim.targets.cv18xx.multipliers import threshold
from tpusim.targets.cv18xx.target import TARGET


@TARGET.attach(TopReciprocal, ByteTable)
class BoundedReciprocal(Model[TopReciprocal], ByteTable):
    """The reciprocal of 0 is the calibrated maximum."""

    @override
    def entries(self, ctx: LoweringContext, x: Bytes, y: Bytes) -> np.ndarray:
        del ctx
        return reciprocal_table(self.op.const_val.value.data, threshold(self.op.output), x, y)


@TARGET.attach(TopPow, ByteTable)
@TARGET.attach(TopSqrt, ByteTable)
class BoundedPower(Model[TopPow | TopSqrt], ByteTable):
    """A power of no whole number is 0 for negative numbers; one below 0 is the calibrated maximum for 0."""

    @override
    def entries(self, ctx: LoweringContext, x: Bytes, y: Bytes) -> np.ndarray:
        del ctx
        exponent = self.op.coeffs[0] if isinstance(self.op, TopPow) else 0.5
        return power_table(exponent, threshold(self.op.output), x, y)


@TARGET.attach(TopAbs, Lowering)
class SaturatingAbs(Model[TopAbs], Lowering):
    """The magnitude of -128 is 127 (DN-14)."""

    @override
    def lower(self, ctx: LoweringContext) -> SSAValue:
        return self.op.lower_with(ctx, {"saturates": flag(True)})


@TARGET.attach(Activation, FloatLowering)
class ActivationByTables(Model[Activation], FloatLowering):
    """Functions in BF16 are computed by tables, if they have some."""

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """tpu.LutBF16, else the op's float form."""
        op = self.op
        tables = float_table(op.mode, op.coeffs) if ctx.float_mode(op) == "bf16" else None
        return op.lower_float(ctx) if tables is None else build_lookup(op, ctx, tables)
