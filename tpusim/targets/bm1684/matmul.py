"""Matrix products; in integers by one constant matrix, with a right shift and a 16-bit bias (numerics.md 5.4)."""

from math import prod

import numpy as np
from tpusim_kernels.prim.multiplier import product_shift
from tpusim_kernels.prim.scale import narrow_product, round_half_away, saturate_np
from typing_extensions import override
from xdsl.ir import Attribute, SSAValue
from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.interfaces import Model
from tpusim.ir.attrs import ints_attr, value_name
from tpusim.ir.types import shape_of
from tpusim.ir.weights import WeightStore
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.framework.imported_scales import note_imported_scales
from tpusim.ops.interfaces import ChipRewrites, IntegerLowering, LoweredRewrites
from tpusim.ops.matmul.top import TopMatMul, bias_operand, constant_bias
from tpusim.ops.matmul.tpu import TpuMatMul
from tpusim.ops.patterns.lowered_heads import PermuteAfterUser
from tpusim.ops.patterns.patches import PatchesAsProduct
from tpusim.targets.bm1684.coefficients import shift_and_bias
from tpusim.targets.bm1684.target import TARGET


@TARGET.attach(TopMatMul, ChipRewrites)
class ProductsOfPatches(Model[TopMatMul], ChipRewrites):
    """Products have no transposes; patches become products."""

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """Convolutions of patches become products."""
        return (PatchesAsProduct(weights, TopMatMul, chip.forms.patch_products),)


@TARGET.attach(TpuMatMul, LoweredRewrites)
class PermutesAfterUsers(Model[TpuMatMul], LoweredRewrites):
    """Permutes of heads are not part of products; they move to a later place in the network."""

    @classmethod
    @override
    def lowered_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """A Permute by (0, 2, 1, 3) is moved past its only user; two in a row cancel."""
        del weights, chip
        return (PermuteAfterUser(),)


@TARGET.attach(TopMatMul, IntegerLowering)
class MatMulByShift(Model[TopMatMul], IntegerLowering):
    """The scale of the matrix follows from the shift; the multiplier is 1."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """tpu.MatMul with an int8 matrix and an int16 bias."""
        op, w = self.op, ctx.array(self.op.right)
        why = op.why_not_integer(ctx)
        if why is not None:
            return why
        if w is None or prod(shape_of(op.right)[:-2]) > 1 or not _fully_connected(op):
            return (
                f"{ctx.chip.name} multiplies integers by one constant matrix of K rows, in two axes (numerics.md 9.0)"
            )
        x, y = ctx.quant(op.input), ctx.quant(op.output)
        assert x is not None and y is not None  # required by why_not_integer
        note_imported_scales(op, ctx, op.right)
        r = max(product_shift(float(np.abs(w).max(initial=0.0)), x.scale, y.scale), 0)
        r, bias = shift_and_bias(r, constant_bias(op, ctx, shape_of(op.output)[-1]), y.scale)
        stored = saturate_np(round_half_away(narrow_product(w, 2.0**r * x.scale / y.scale)), "int8")
        operands = [
            ctx.operand(op.input, "int8", op),
            ctx.weight(value_name(op.right) + "_int8", stored),
            bias_operand(op, ctx, bias, "int16"),
        ]
        requant: dict[str, Attribute] = {"multipliers": ints_attr([1]), "rshifts": ints_attr([r])}
        return op.build_tpu(ctx, operands, ctx.quantised_type(op.output), requant)


def _fully_connected(op: TopMatMul) -> bool:
    """Whether all rows of the left operand are on its first axis, and the right operand is K x N."""
    *rows, depth = shape_of(op.input)
    return rows[:1] == [prod(rows)] and shape_of(op.right)[0] == depth
