"""PixelNorm: every position of an image is normalised over its channels (numerics.md 11.2, 12)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from tpusim_kernels import norm as kernels
from typing_extensions import override
from xdsl.dialects.builtin import FloatAttr, NoneType, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, result_def
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import float_attr, framework_name, int_attr, ints_attr, op_name, set_op_name
from tpusim.ir.types import calibrated_range, element_of, shape_of, tensor, uniform_of
from tpusim.ir.weights import WeightStore
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.ops.framework.base import (
    Array,
    Axis,
    Builder,
    EmitContext,
    FloatMode,
    LoweringContext,
    Shape,
    ShapedOp,
    TopOp,
    Window,
    is_none,
)
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import built_in_float, constant_of, float_operands
from tpusim.ops.framework.logical import WHOLE
from tpusim.ops.groupnorm import WeightedChannels
from tpusim.ops.interfaces import IntegerLowering
from tpusim.ops.layernorm import TopLayerNorm
from tpusim.ops.patterns.affine import AffineOfOneElement
from tpusim.ops.permute import TopPermute
from tpusim.ops.structure import make_weight

F16_MAX = 65504.0


class PixelNorm(ShapedOp):
    """(x - mean)/sqrt(variance + eps)*weight[c] + bias[c] over axis 1, with the biased variance."""

    input = operand_def(TensorType)
    weight = operand_def(TensorType | NoneType)
    bias = operand_def(TensorType | NoneType)
    output = result_def(TensorType)
    eps = attr_def(FloatAttr)

    @override
    def infer(self) -> tuple[Shape, ...]:
        """The input's shape. Raises ValueError unless weight and bias have an element for each channel."""
        x = shape_of(self.input)
        if len(x) < 2:
            raise ValueError(f"an input (n, c, ...) is required, got {x}")
        for value in (self.weight, self.bias):
            if not is_none(value) and (prod(shape_of(value)) != x[1] or x[1] not in shape_of(value)):
                raise ValueError(
                    f"weight and bias of {x[1]} elements along one axis are required, got {shape_of(value)}"
                )
        return (x,)


@irdl_op_definition
class TopPixelNorm(PixelNorm, TopOp, IntegerLowering):
    """`top.PixelNorm`: normalisation over axis 1, in f32."""

    name = "top.PixelNorm"
    SPEC: ClassVar[tuple[str, ...]] = ("11.2", "12.1")

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """A scale and bias of one element are left out."""
        return (AffineOfOneElement(weights, cls),)

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, weight: SSAValue | None = None, bias: SSAValue | None = None, *,
        eps: float = 1e-5, name: str,
    ) -> SSAValue:  # fmt: skip
        """weight, bias: C elements."""
        operands = [x, *(builder.none() if value is None else value for value in (weight, bias))]
        return builder.build(cls, operands, {"eps": float_attr(eps)}, name)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (kernels.pixelnorm_float(*operands, epsilon=self.eps.value.data),)

    @override
    def flops(self) -> int:
        """Ten steps per element, one more for the weight and one for the bias, as TPU-MLIR counts (U-86)."""
        return (10 + sum(not is_none(v) for v in (self.weight, self.bias))) * prod(shape_of(self.output))

    @override
    def needs_f32(self, chip: ChipSpec, wanted: FloatMode) -> bool:
        """Whether the sum of squares may overflow F16 by the calibrated range, or without one (numerics.md 12.2)."""
        del chip
        found = calibrated_range(self.input)
        if wanted != "f16":
            return False
        return found is None or ((found[1] - found[0]) / 2) ** 2 * shape_of(self.input)[1] / 2 > F16_MAX

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """Bytes in, F16 out (numerics.md 11.2). The cast of the input has no reader in its name (U-33)."""
        if ctx.quant(self.input) is None:
            return "the input is not calibrated"
        ctx.fallback(self, "bytes are normalised in F16 steps, and the result is F16")
        operands = [ctx.operand(self.input, "int8", self, reader=""), *float_operands(self, ctx, first=1)]
        shape = shape_of(self.output)
        return ctx.build(TpuPixelNorm, operands, {"eps": self.eps}, ctx.float_type(self), shape, op_name(self))

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        return built_in_float(self, ctx, TpuPixelNorm, {"eps": self.eps})


@irdl_op_definition
class TpuPixelNorm(PixelNorm, WeightedChannels):
    """`tpu.PixelNorm`: in f32 with one rounding at the output, in BF16 steps, or bytes in F16 steps (11.2)."""

    name = "tpu.PixelNorm"

    @property
    def _scale(self) -> float | None:
        """The scale of an input of bytes; None for floats."""
        uniform = uniform_of(self.input)
        return None if uniform is None else uniform.scale.data

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        if self._scale is not None:
            return (kernels.pixelnorm_int8(*operands, epsilon=self.eps.value.data, scale=self._scale),)
        compute = kernels.pixelnorm_bf16 if self.in_bf16 else kernels.pixelnorm_float
        return (compute(*operands, epsilon=self.eps.value.data),)

    @override
    def can_slice(self, axis: Axis) -> bool:
        """All axes but the channels (layer_group.md 4)."""
        return axis != "c"

    @override
    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None:
        """The window of the input; weight and bias are needed whole."""
        del axis
        return window if operand == 0 else WHOLE

    @override
    def emit(self, ctx: EmitContext) -> None:
        given = [i for i, v in enumerate(self.operands) if not is_none(v)]
        function = functions.PixelNorm(
            self.eps.value.data, 1 in given, 2 in given, bf16_steps=self.in_bf16, scale=self._scale or 0.0
        )
        ctx.emit(isa.Fn, function=function, inputs=tuple(ctx.input(i) for i in given), output=ctx.output())


# ------------------------------------------------------------------------------------------------------------ rewrites


@dataclass
class PixelNormBetweenPermutes(RewritePattern):
    """PixelNorm -> Permute, LayerNorm over the last axis, Permute; the ranges are those of PixelNorm and its input.

    The last Permute is called `NAME_permute1` (U-33), also where the network returns it.
    """

    weights: WeightStore

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the PixelNorm."""
        if not isinstance(op, TopPixelNorm):
            return
        name, rank = op_name(op), len(shape_of(op.input))
        scalars = [v for v in (op.weight, op.bias) if not is_none(v)]
        rows = {v: array.reshape(-1) for v in scalars if (array := constant_of(v, self.weights)) is not None}
        if len(rows) < len(set(scalars)):
            return
        made = {v: make_weight(self.weights, f"{name}_row{i}", row) for i, (v, row) in enumerate(rows.items())}
        turned = self._turned(op.input, (0, *range(2, rank), 1), f"{name}_permute0")
        given = [turned.results[0], *(made[v].output if v in made else v for v in (op.weight, op.bias))]
        axis: dict[str, Attribute] = {"axis": int_attr(rank - 1), "eps": op.eps}
        kind = tensor(shape_of(turned.results[0]), element_of(op.output))
        norm = TopLayerNorm.create(operands=given, result_types=[kind], attributes=axis)
        set_op_name(norm, f"{name}_transposed")
        back = self._turned(norm.results[0], (0, rank - 1, *range(1, rank - 1)), f"{name}_permute1")
        set_op_name(back, f"{name}_permute1", framework_name(op))
        rewriter.replace(op, [*made.values(), turned, norm, back], [back.results[0]])

    @staticmethod
    def _turned(value: SSAValue, order: Shape, name: str) -> Operation:
        """A Permute of a value, with its range."""
        kind = tensor(tuple(shape_of(value)[axis] for axis in order), element_of(value))
        new = TopPermute.create(operands=[value], result_types=[kind], attributes={"order": ints_attr(order)})
        set_op_name(new, name)
        return new
