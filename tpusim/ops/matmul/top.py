"""`top.MatMul`: shape, float function, and lowering by numerics.md 5.4, 7.1, 7.2 and 9.2."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import ClassVar, NamedTuple

import numpy as np
from tpusim_kernels import matmul as kernels
from tpusim_kernels.prim.multiplier import (
    best_fit,
    common_shift,
)
from tpusim_kernels.prim.scale import quantised, round_half_away, saturate_np, storage_range
from typing_extensions import override
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition
from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.compat import Quirk
from tpusim.errors import UnsupportedError
from tpusim.interfaces import rules
from tpusim.ir.attrs import flag, int_attr, ints_attr, op_name, value_name
from tpusim.ir.imported_scales import imported_weight_scales
from tpusim.ir.once import once
from tpusim.ir.packing import PACKED_BITS
from tpusim.ir.types import element_of, shape_of
from tpusim.ir.weights import WeightStore
from tpusim.ops.add import TopAdd
from tpusim.ops.conv.quantize import saturated_bias
from tpusim.ops.framework.base import (
    Array,
    Builder,
    FloatRule,
    LoweringContext,
    Lowerings,
    QuantParams,
    Shape,
    is_none,
)
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.contexts import EIGHT_BITS
from tpusim.ops.framework.families import (
    is_set,
    limited,
    only_user,
    relu_attributes,
    relu_limit_of,
    relu_of,
)
from tpusim.ops.framework.imported_scales import note_imported_scales
from tpusim.ops.interfaces import ChipRewrites, ProductRules, Weighs
from tpusim.ops.matmul.a16 import WeightsOfFewBits
from tpusim.ops.matmul.tpu import TpuMatMul
from tpusim.ops.patterns.heads import MatMulWithRightTranspose
from tpusim.ops.patterns.layer_scale import FoldMulIntoMatMul
from tpusim.ops.patterns.linear import MatMulWithBias
from tpusim.ops.patterns.patches import PatchesAsProduct
from tpusim.ops.patterns.product_parts import SplitMatMul
from tpusim.ops.patterns.split_heads import MatmulWithPermuteAndSplit
from tpusim.ops.patterns.wide_output import Output, stored_output
from tpusim.ops.structure import TopWeight
from tpusim.ops.tile import TpuTile
from tpusim.ops.view import TpuReshape

SMALLEST_SCALE = 1e-5
"""The scale of an all-zero weight, as of filters (numerics.md 7.1)."""


@irdl_op_definition
class TopMatMul(WeightsOfFewBits, ChipRewrites, Weighs):
    """`top.MatMul`: left (..., M, K) x right (..., K, N) + bias (N,), NumPy batches, optional relu."""

    name = "top.MatMul"
    SPEC: ClassVar[tuple[str, ...]] = ("9.2", "5.4", "5.6", "7.1", "7.2")
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32", f8="f8")

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, left: SSAValue, right: SSAValue, bias: SSAValue | None = None, *,
        left_transpose: bool = False, right_transpose: bool = False, name: str,
    ) -> SSAValue:  # fmt: skip
        """Left (..., M, K) x right (..., K, N) + bias (N,); a transposed operand has its last two axes exchanged."""
        if len(shape_of(left)) < 2 or len(shape_of(right)) < 2:
            raise ValueError(
                f"operands of rank 2 or more are required, got {shape_of(left)} and {shape_of(right)}; "
                "reshape the vector to a matrix"
            )
        operands = [left, right, builder.none() if bias is None else bias]
        return builder.build(cls, operands, _attributes(left_transpose, right_transpose), name)

    @override
    def infer(self) -> tuple[Shape, ...]:
        return (self.shape_of_product(self.bias_shape()),)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        b, (x, w), (left, right) = operands[2], self.factors(operands), self.transposes
        bias = None if b is None else b.reshape(-1)
        y = kernels.matmul_float(x, w, bias, left_transpose=left, right_transpose=right, do_relu=relu_of(self))
        return (limited(self.stored(y), self),)

    @override
    def flops(self) -> int:
        """Results * (2*K + bias + relu) (DN-27)."""
        return prod(shape_of(self.output)) * (2 * self.inner + (not is_none(self.bias)) + relu_of(self))

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """An added or multiplied constant row becomes a part of the product; so does the Permute of heads after it."""
        return MatMulWithBias(weights, cls), FoldMulIntoMatMul(weights, cls), MatmulWithPermuteAndSplit(cls)

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """Transpose the right operand instead of a Permute; make products of patches, and of parts that Slices take."""
        patches = PatchesAsProduct(weights, cls, chip.forms.patch_products)
        return MatMulWithRightTranspose(cls), patches, SplitMatMul(weights, cls)

    @override
    def float_rule(self, ctx: LoweringContext) -> FloatRule:
        """f32 in INT8 mode, but 16 bits with a constant left operand (numerics.md 9.2, 12.1)."""
        rule = super().float_rule(ctx)
        return rule if ctx.array(self.input) is None else replace(rule, int8="f16")

    @override
    def by_channel(self, weight: np.ndarray) -> np.ndarray | None:
        """A row for each column of a single matrix; one row for several matrices."""
        if prod(weight.shape[:-2]) > 1:
            return weight.reshape(1, -1)
        rows = weight.reshape(weight.shape[-2:])
        return rows if self.transposes[1] else rows.T

    @override
    def lowerings(self) -> Lowerings:
        """Also by weights of few bits in groups (numerics.md 14)."""
        return {**super().lowerings(), "weight_only": self.lower_weight_only}

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """tpu.MatMul with a constant or a computed right operand."""
        why = self.why_not_integer(ctx) or self._why_no_product(ctx)
        if why is not None:
            return why
        user = only_user(self.output)
        # 16 bits if a sum in float follows (numerics.md 3.4)
        wide = rules(ctx.chip, ProductRules).WIDE_RESULTS and isinstance(user, TopAdd) and ctx.asks_for_float(user)
        output = stored_output(self, ctx, wide=wide)
        if ctx.array(self.right) is None:
            return _lower_activations(self, ctx, output)
        return _by_multipliers(self, ctx, output)

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """tpu.MatMul in the float type of the mode; its bias as the chip stores it (numerics.md 9.2)."""
        return self.in_float(ctx, narrow_bias=ctx.chip.bias_rounded)

    def in_float(self, ctx: LoweringContext, *, narrow_bias: bool) -> SSAValue:
        """The same; narrow_bias: the bias has the float type of the mode, not f32."""
        mode = ctx.float_mode(self)
        operands = [ctx.operand(v, mode, self) for v in (self.input, self.right)]
        bias_mode = mode if narrow_bias and mode not in EIGHT_BITS else "f32"
        operands.append(ctx.none() if is_none(self.bias) else ctx.operand(self.bias, bias_mode, self))
        more = {**self.chip_products(ctx), **self._without_relu(ctx)}
        return self.build_tpu(ctx, operands, ctx.float_type(self), more, relu_limit_of(self))

    def _without_relu(self, ctx: LoweringContext) -> dict[str, Attribute]:
        """By a quirk a product in floats of 8 bits drops its relu."""
        if not relu_of(self) or ctx.float_mode(self) not in EIGHT_BITS:
            return {}
        kept = ctx.quirked(self, Quirk.F8_PRODUCT_WITHOUT_RELU, np.array(False), np.array(True))
        return {} if kept else relu_attributes()

    def why_not_integer(self, ctx: LoweringContext) -> str | None:
        """What the op lacks for any integer form; None if nothing is missing."""
        x, y = ctx.quant(self.input), ctx.quant(self.output)
        if ctx.array(self.input) is not None:
            return "the left operand is constant (numerics.md 9.2)"
        if x is None or y is None:
            return "input or output is not calibrated"
        if not is_none(self.bias) and ctx.array(self.bias) is None:
            return "the bias is not constant"
        return None

    def _why_no_product(self, ctx: LoweringContext) -> str | None:
        x, right = ctx.quant(self.input), ctx.array(self.right)
        assert x is not None  # required by why_not_integer
        if right is not None:
            batch = prod(shape_of(self.right)[:-2])
            return "a batched matrix needs an input without zero point" if batch > 1 and x.zero_point else None
        second = ctx.quant(self.right)
        if second is None:
            return "the right operand is not calibrated"
        if ctx.asymmetric:
            return "the product of two asymmetric activations is computed in float (numerics.md 9.0)"
        return None

    def build_tpu(
        self,
        ctx: LoweringContext,
        operands: Sequence[SSAValue],
        element: Attribute,
        more: dict[str, Attribute],
        limit: float = -1.0,
    ) -> SSAValue:
        """The tpu op with these operands, this type and further attributes."""
        operands = _one_batch(self, ctx, operands)
        stated = _attributes(is_set(self.left_transpose), is_set(self.right_transpose)) | self._of_heads()
        attributes = {**stated, **relu_attributes(relu_of(self), limit), **more}
        return ctx.build(TpuMatMul, operands, attributes, element, shape_of(self.output), op_name(self))

    def _of_heads(self) -> dict[str, Attribute]:
        """The attributes of a product with heads and rows exchanged."""
        if not is_set(self.hdim_is_batch):
            return {}
        return {"hdim_is_batch": flag(True), "output_transpose": flag(self.exchanged.output)}


def _attributes(left: bool, right: bool) -> dict[str, Attribute]:
    return {"left_transpose": flag(left), "right_transpose": flag(right), **relu_attributes()}


def _one_batch(op: TopMatMul, ctx: LoweringContext, operands: Sequence[SSAValue]) -> list[SSAValue]:
    """The operands. If both broadcast, one is repeated, because MM2 iterates over the matrices of one operand only.

    The left operand is repeated, or the right one if the left is constant. Decision: one is enough; upstream repeats
    both.
    """
    values, batch = list(operands), shape_of(op.output)[:-2]
    if not is_set(op.hdim_is_batch) and prod(batch) != max(prod(shape_of(v)[:-2]) for v in (op.input, op.right)):
        side = 1 if isinstance(values[0].owner, TopWeight) else 0
        top = (op.input, op.right)[side]
        values[side] = _repeated(values[side], batch, ctx, f"{value_name(top)}_{op_name(op)}")
    return values


def _repeated(value: SSAValue, batch: Shape, ctx: LoweringContext, name: str) -> SSAValue:
    """The matrices repeated over the axes of a batch: leading axes of length 1 are added, then tiled."""
    shape, element = shape_of(value), element_of(value)
    full = (1,) * (len(batch) + 2 - len(shape)) + shape
    if full != shape:
        value = ctx.build(TpuReshape, [value], {"shape": ints_attr(full)}, element, full, name + "_reshape")
    times = (*(b // a for a, b in zip(full, batch, strict=False)), 1, 1)
    return ctx.build(TpuTile, [value], {"tile": ints_attr(times)}, element, (*batch, *full[-2:]), name + "_tile")


# ------------------------------------------------------------------------------------------------------------ lowering


def _rescaling(output: Output, m: int, r: int) -> tuple[Attribute, dict[str, Attribute]]:
    """(element type of the result, attributes of a requant)."""
    return output.element, {"multipliers": ints_attr([m]), "rshifts": ints_attr([r])}


def constant_bias(op: TopMatMul, ctx: LoweringContext, columns: int) -> np.ndarray | None:
    """The bias as doubles of shape (columns,); None without a bias."""
    bias = None if is_none(op.bias) else ctx.array(op.bias)
    return None if bias is None else np.broadcast_to(bias.astype(np.float64).reshape(-1), (columns,))


def bias_operand(op: TopMatMul, ctx: LoweringContext, stored: np.ndarray | None, suffix: str) -> SSAValue:
    """The stored bias as a weight; `none` without a bias. suffix: its type, at the end of its name."""
    return ctx.none() if stored is None else ctx.weight(f"{op_name(op)}_bias_{suffix}", stored)


_quantised = once(quantised)


def _by_multipliers(op: TopMatMul, ctx: LoweringContext, output: Output) -> SSAValue:
    """A constant right operand: one weight scale, an int32 bias that contains -z_in*sum(W), one 32-bit multiplier.

    If requested, each column has a scale and a multiplier, provided that one shift serves all columns.
    """
    x, y, w = ctx.quant(op.input), output.quant, ctx.array(op.right)
    assert x is not None and w is not None  # required by why_not_integer
    bits = ctx.format(op).integer_bits
    if bits == PACKED_BITS and prod(w.shape[:-2]) > 1:
        raise UnsupportedError(
            f"top.MatMul '{op_name(op)}': one matrix of weights of {bits} bits is required, got "
            f"{prod(w.shape[:-2])}, where TPU-MLIR stops too; use INT8 for this op in a quantisation table"
        )
    columns = _column_fit(op, ctx, w, x, y) if bits == 8 else None  # noqa: PLR2004
    largest = float(np.abs(w).max(initial=0.0).astype(np.float32))
    scale: float | np.ndarray = largest / storage_range(bits, True)[1] or SMALLEST_SCALE
    own = imported_weight_scales(op.right)
    if len(set(own)) == 1 and columns is None and bits == 8:  # noqa: PLR2004
        scale = own[0]
    elif own and columns is None:
        note_imported_scales(op, ctx, op.right)
    if columns is None:
        stored = _quantised(w, scale, "int8", bits)
    else:
        scale = columns.scales
        by_column = scale[:, None] if op.transposes[1] else scale
        stored = saturate_np(round_half_away(w.astype(np.float64) / by_column), "int8")
    bias = constant_bias(op, ctx, shape_of(op.output)[-1])
    int_bias = None
    if bias is not None or x.zero_point:
        offset = x.zero_point * _column_sums(op, ctx, stored) if x.zero_point else np.zeros(shape_of(op.output)[-1])
        real = np.zeros(offset.shape) if bias is None else bias / (scale * x.scale)
        int_bias = saturated_bias(op, bias, round_half_away(real - offset))
    operands = [
        ctx.operand(op.input, "int8", op),
        ctx.weight(value_name(op.right) + "_int8", stored),
        bias_operand(op, ctx, int_bias, "int32"),
    ]
    few: dict[str, Attribute] = {"weight_bits": int_attr(bits)} if bits == PACKED_BITS else {}
    if columns is not None:
        more: dict[str, Attribute] = {
            "multipliers": ints_attr(columns.multipliers), "rshifts": ints_attr([columns.rshift]), "fuse_rq": flag(True)
        }  # fmt: skip
        return op.build_tpu(ctx, operands, output.element, more)
    assert isinstance(scale, float)  # one for the matrix
    element, requant = _rescaling(output, *best_fit(scale * x.scale / y.scale))
    return op.build_tpu(ctx, operands, element, requant | few)


class _Columns(NamedTuple):
    """Scale and multiplier of each column of a constant matrix, and the common shift."""

    scales: np.ndarray
    multipliers: np.ndarray
    rshift: int


def _column_fit(op: TopMatMul, ctx: LoweringContext, w: np.ndarray, x: QuantParams, y: QuantParams) -> _Columns | None:
    """s_w[n] = max_k |W[k, n]|/127 of one matrix (numerics.md 5.1, 7.1); None if the matrix has one scale."""
    own = imported_weight_scales(op.right)
    able = ctx.column_multipliers or (len(set(own)) > 1 and rules(ctx.chip, ProductRules).COLUMN_MULTIPLIERS)
    if not able or prod(w.shape[:-2]) > 1:
        return None
    rows = w.reshape(w.shape[-2:])
    largest = np.abs(rows).max(axis=1 if op.transposes[1] else 0).astype(np.float64)
    scales = np.where(largest > 0, largest / 127, SMALLEST_SCALE) if not own else np.broadcast_to(own, len(largest))
    found = common_shift(scales * x.scale / y.scale)
    return None if found is None else _Columns(scales, *found)


def _column_sums(op: TopMatMul, ctx: LoweringContext, stored: np.ndarray) -> np.ndarray:
    """sum_k W_q[k, n] of one matrix (numerics.md 7.2); by U-02 the bytes of a transposed matrix are read as K x N."""
    wide = stored.astype(np.int64)
    if not op.transposes[1]:
        return wide.sum(axis=-2).reshape(-1)
    n, k = stored.shape[-2:]
    if stored.size != n * k:  # more than one matrix: the input has no zero point
        return wide.sum(axis=-1).reshape(-1)[:n]
    return ctx.quirked(
        op, Quirk.MATMUL_TRANSPOSED_ZP_INDEX, wide.reshape(k, n).sum(axis=0), wide.reshape(n, k).sum(axis=1)
    )


def _lower_activations(op: TopMatMul, ctx: LoweringContext, output: Output) -> SSAValue:
    """Two symmetric activations: a multiplier for s_in*s_right/s_out and an int32 bias."""
    x, right, y = ctx.quant(op.input), ctx.quant(op.right), output.quant
    assert x is not None and right is not None  # required by why_not_integer
    bias, scale = constant_bias(op, ctx, shape_of(op.output)[-1]), x.scale * right.scale
    int_bias = None if bias is None else saturated_bias(op, bias, round_half_away(bias / scale))
    operands = [*(ctx.operand(v, "int8", op) for v in (op.input, op.right)), bias_operand(op, ctx, int_bias, "int32")]
    return op.build_tpu(ctx, operands, *_rescaling(output, *best_fit(scale / y.scale)))
