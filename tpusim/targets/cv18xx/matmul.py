"""Matrix products; in integers by constant matrices, with a QDM multiplier and shift for each (numerics.md 5.5)."""

import numpy as np
from tpusim_kernels.prim.multiplier import qdm_bias, qdm_filter, qdm_fit
from typing_extensions import override
from xdsl.ir import Attribute, SSAValue
from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.interfaces import Model
from tpusim.ir.attrs import ints_attr, value_name
from tpusim.ir.modes import requant_mode
from tpusim.ir.types import shape_of
from tpusim.ir.weights import WeightStore
from tpusim.ops.framework.base import LoweringContext, is_none
from tpusim.ops.framework.imported_scales import note_imported_scales
from tpusim.ops.interfaces import ChipRewrites, FloatLowering, IntegerLowering, LoweredRewrites
from tpusim.ops.matmul.top import TopMatMul, bias_operand, constant_bias
from tpusim.ops.matmul.tpu import TpuMatMul
from tpusim.ops.patterns.heads import PermuteIntoMatMul
from tpusim.ops.patterns.patches import PatchesAsProduct, WidePatchesAsProduct
from tpusim.targets.cv18xx.multipliers import threshold
from tpusim.targets.cv18xx.target import TARGET


@TARGET.attach(TopMatMul, ChipRewrites)
class ProductsOfHeads(Model[TopMatMul], ChipRewrites):
    """Batched products also read and write (b, rows, heads, columns)."""

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """Products absorb Permutes of heads with one user; convolutions of patches become products."""
        patches = PatchesAsProduct(weights, TopMatMul, chip.forms.patch_products)
        return PermuteIntoMatMul(TopMatMul), WidePatchesAsProduct(weights, TopMatMul), patches


@TARGET.attach(TpuMatMul, LoweredRewrites)
class NoPermutes(Model[TpuMatMul], LoweredRewrites):
    """Products absorb Permutes of heads before the lowering."""

    @classmethod
    @override
    def lowered_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        del weights, chip
        return ()


@TARGET.attach(TopMatMul, IntegerLowering)
class MatMulByQdm(Model[TopMatMul], IntegerLowering):
    """The multiplier is chosen first; matrix and bias are quantised to fit it."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """tpu.MatMul by a constant; the product of two activations is computed in float (numerics.md 9.0)."""
        op, right, why = self.op, ctx.array(self.op.right), self.op.why_not_integer(ctx)
        if why is not None:
            return why
        if right is None:
            return "the product of two activations is computed in float (numerics.md 9.0)"
        note_imported_scales(op, ctx, op.right)
        matrices, bias = right.reshape(-1, *right.shape[-2:]), constant_bias(op, ctx, shape_of(op.output)[-1])
        th_x, th_y = threshold(op.input), threshold(op.output)
        largest = 0.0 if bias is None else float(np.abs(bias).max())
        fits = [
            qdm_fit(float(np.abs(w).max(initial=0.0)), th_x, th_y, max_bias=largest, convolution=False)
            for w in matrices
        ]
        stored = [qdm_filter(w, th_x, th_y, m, r) for w, (m, r) in zip(matrices, fits, strict=True)]
        int_bias = None
        if bias is not None:
            rows = [qdm_bias(bias, th_y, m, r) for m, r in fits]
            int_bias = np.stack(rows).reshape(-1) if len(rows) == 1 else np.stack(rows)
        operands = [
            ctx.operand(op.input, "int8", op),
            ctx.weight(value_name(op.right) + "_int8", np.stack(stored).reshape(right.shape)),
            bias_operand(op, ctx, int_bias, "int32"),
        ]
        requant: dict[str, Attribute] = {
            "multipliers": ints_attr([m for m, _ in fits]), "rshifts": ints_attr([r for _, r in fits]),
            "quant_mode": requant_mode("QDM"),
        }  # fmt: skip
        return op.build_tpu(ctx, operands, ctx.quantised_type(op.output), requant)


@TARGET.attach(TopMatMul, FloatLowering)
class MatMulInBF16(Model[TopMatMul], FloatLowering):
    """A computed bias is stored in BF16, like the other operands; a constant bias in f32."""

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """tpu.MatMul in BF16, or f32."""
        computed = not is_none(self.op.bias) and ctx.array(self.op.bias) is None
        return self.op.in_float(ctx, narrow_bias=computed)
