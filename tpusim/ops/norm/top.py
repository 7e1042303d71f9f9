"""`top.Scale`: float function, lowering (numerics.md 9.4), and the patterns that form and fold Scales."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np
from tpusim_kernels.arith import scale_float
from typing_extensions import override
from xdsl.dialects.builtin import BoolAttr, FloatAttr, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_attr_def, result_def
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from tpusim.chips import ChipSpec
from tpusim.errors import UnsupportedError
from tpusim.ir.attrs import copy_name, flag, op_name, set_op_name
from tpusim.ir.reading import reshape_channels
from tpusim.ir.types import element_of, is_tensor, shape_of, tensor
from tpusim.ir.weights import WeightStore
from tpusim.ops.conv import TopConv
from tpusim.ops.conv.channelwise import channelwise_geometry
from tpusim.ops.framework.base import Array, LoweringContext, Shape, TopOp, is_none
from tpusim.ops.framework.families import (
    built_in_integers,
    constant_of,
    limited,
    only_user,
    relu_attributes,
    relu_limit_of,
    relu_of,
)
from tpusim.ops.framework.rewriting import made_by
from tpusim.ops.interfaces import ChipRewrites, number_of
from tpusim.ops.norm.tpu import TpuScale, integer_scale
from tpusim.ops.structure import make_weight
from tpusim.ops.view import reshaped


@irdl_op_definition
class TopScale(TopOp, ChipRewrites):
    """`top.Scale`: x*scale[c] + bias[c], channels on axis 1, scale and bias constants (C,), optional relu."""

    name = "top.Scale"
    SPEC: ClassVar[tuple[str, ...]] = ("9.4", "5.4")

    input = operand_def(TensorType)
    scale = operand_def(TensorType)
    bias = operand_def(TensorType)
    output = result_def(TensorType)
    do_relu = opt_attr_def(BoolAttr)
    relu_limit = opt_attr_def(FloatAttr)

    @override
    def infer(self) -> tuple[Shape, ...]:
        """The input's shape. Raises ValueError for constants that are not (C,)."""
        return (per_channel_shape(self.input, (self.scale, self.bias)),)

    @override
    def take_form(self) -> str:
        """TPU-MLIR may state more axes of the constants, each of extent 1."""
        channels = shape_of(self.input)[1]
        for value in (self.scale, self.bias):
            reshape_channels(value, channels, (channels,))
        return super().take_form()

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Product, sum and relu in f32."""
        x, scale, bias = operands
        return (limited(scale_float(x, scale, bias, do_relu=relu_of(self)), self),)

    @override
    def flops(self) -> int:
        """A multiply-add per element, and the relu."""
        return (2 + relu_of(self)) * prod(shape_of(self.output))

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """Per-channel Mul and Add become Scales or part of a Conv; Scales merge, and fold into a MatMul."""
        return (
            MulToScale(weights),
            FoldAddIntoConv(weights),
            AddToScale(weights),
            TopMultiScaleMergeToOne(weights),
            ConstbinaryMergeToTopScale(weights),
            TopScaleMergeToMatMul(weights),
        )

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """A Scale is folded into the Conv before it; any other becomes a depthwise convolution."""
        del chip
        return FuseScaleIntoConv(weights), ScaleToConv(weights)

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Scale in the float type of the mode; in 16 bits by decision DN-16."""
        scale, bias = self.constants(ctx)
        if ctx.float_mode(self) != "f32":
            ctx.decision(self, "DN-16")
        constants = [ctx.float_weight(self, f"{op_name(self)}_{k}", v.reshape(1, -1, 1, 1)) for k, v in
                     (("scale", scale), ("bias", bias))]  # fmt: skip
        operands = [ctx.operand(self.input, ctx.float_mode(self), self), *constants, ctx.none()]
        attributes = relu_attributes(relu_of(self), relu_limit_of(self))
        return ctx.build(TpuScale, operands, attributes, ctx.float_type(self), shape_of(self.output), op_name(self))

    def constants(self, ctx: LoweringContext) -> tuple[np.ndarray, np.ndarray]:
        """Scale and bias. Raises UnsupportedError if they are computed."""
        scale, bias = ctx.array(self.scale), ctx.array(self.bias)
        if scale is None or bias is None:
            raise UnsupportedError(f"top.Scale '{op_name(self)}': constant scale and bias are required")
        return scale, bias

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """tpu.Scale with 32-bit accumulators."""
        return self.in_integers(ctx)

    def in_integers(self, ctx: LoweringContext, *, narrow: bool = False) -> SSAValue | str:
        """tpu.Scale. narrow: accumulators saturate at 16 bits and are never shifted left (numerics.md 9.4)."""
        x, y = ctx.quant(self.input), ctx.quant(self.output)
        scale, bias = self.constants(ctx)
        if x is None or y is None:
            return "input or output is not calibrated"
        constants = integer_scale(scale, bias, x, y, left_shifts=not narrow)
        if constants is None:
            return "a bias leaves 16 bits together with the input's zero point"
        named = {"int8": constants.scale, "bias_int16": constants.bias, "rshift": constants.rshift}
        operands = [
            ctx.operand(self.input, "int8", self),
            *(ctx.weight(f"{op_name(self)}_{k}", v.reshape(1, -1, 1, 1)) for k, v in named.items()),
        ]
        attributes: dict[str, Attribute] = relu_attributes(relu_of(self))
        if narrow:
            attributes["clamp16"] = flag(True)
        return built_in_integers(self, ctx, TpuScale, operands, attributes)


def per_channel_shape(value: SSAValue, parameters: Sequence[SSAValue]) -> Shape:
    """The value's shape. Raises ValueError unless every parameter is (C,) with C its axis 1."""
    x = shape_of(value)
    for parameter in parameters:
        if len(x) < 2 or shape_of(parameter) != (x[1],):
            raise ValueError(f"parameters of shape (C,) are required for input {x}, got {shape_of(parameter)}")
    return x


# ------------------------------------------------------------------------------------------------------------ rewrites
#
# Constants are computed in f32, step by step (U-19): the last bit can decide an integer. The remaining op takes the
# name of the last fused op, because that tensor exists in the original network.


@dataclass
class WeightPattern(RewritePattern):
    """A rewrite that reads and adds weights."""

    weights: WeightStore

    def constants(self, values: Sequence[SSAValue]) -> list[np.ndarray] | None:
        """The data of the values in f32; None unless all are constant."""
        found = [constant_of(v, self.weights) for v in values]
        arrays = [a.astype(np.float32) for a in found if a is not None]
        return arrays if len(arrays) == len(found) else None

    def weight(self, name: str, array: np.ndarray, before: Operation, rewriter: PatternRewriter) -> SSAValue:
        """A new f32 weight, inserted before an op."""
        op = make_weight(self.weights, name, array.astype(np.float32))
        rewriter.insert(op, InsertPoint.before(before))
        return op.output

    def replace_by_scale(
        self, op: Operation, x: SSAValue, scale: np.ndarray, bias: np.ndarray, rewriter: PatternRewriter
    ) -> None:
        """Replace an op by x*scale + bias with its name and relu; scale and bias are (C,)."""
        name = op_name(op)
        operands = [
            x,
            self.weight(name + "_scale", scale, op, rewriter),
            self.weight(name + "_scale_bias", bias, op, rewriter),
        ]
        new = TopScale.create(
            operands=operands,
            result_types=[op.results[0].type],
            attributes=relu_attributes(relu_of(op), relu_limit_of(op)),
        )
        copy_name(new, op)
        rewriter.replace(op, new)


class MulToScale(WeightPattern):
    """Mul of a 4-D tensor and a per-channel weight -> Scale."""

    RANKS: ClassVar[range] = range(4, 5)
    """Ranks of the tensors that the pattern takes."""

    @override
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """Scale = the weight, bias = 0."""
        found = self._per_channel(op, "top.Mul")
        if found is not None:
            x, factor = found
            self.replace_by_scale(op, x, factor, np.zeros_like(factor), rewriter)

    def _per_channel(self, op: Operation, kind: str) -> tuple[SSAValue, np.ndarray] | None:
        """(tensor, weight as (C,)) of an op of this kind with a per-channel weight like [1, C, 1, 1]."""
        if op.name != kind or len(op.operands) != 2:
            return None
        for x, other in (tuple(op.operands), tuple(op.operands)[::-1]):
            constant = constant_of(other, self.weights)
            if constant is not None and constant_of(x, self.weights) is None:
                shape = shape_of(x)
                channels = len(shape) in self.RANKS and is_per_channel(constant.shape, shape)
                fits = channels and shape == shape_of(op.results[0])
                return (x, constant.reshape(-1).astype(np.float32)) if fits else None
        return None


class AddToScale(MulToScale):
    """Add of a tensor and a per-channel weight -> Scale."""

    RANKS: ClassVar[range] = range(2, 6)

    @override
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """Scale = 1, bias = the weight."""
        found = self._per_channel(op, "top.Add")
        if found is not None:
            x, offset = found
            self.replace_by_scale(op, x, np.ones_like(offset), offset, rewriter)


class FoldAddIntoConv(WeightPattern):
    """Conv without bias -> Add with a per-channel weight as second operand: the weight becomes the bias (U-19)."""

    @override
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The Conv must have no relu and one user; it takes name and relu of the Add."""
        conv = op.operands[0].owner if op.name == "top.Add" and len(op.operands) == 2 else None
        if not isinstance(conv, TopConv) or not is_none(conv.bias) or not absorbs(conv):
            return
        constants = self.constants((conv.filter, op.operands[1]))
        if constants is not None and is_per_channel(constants[1].shape, shape_of(conv.output)):
            fold(self, conv, op, constants[0], constants[1].reshape(-1), rewriter)


def is_per_channel(weight: Shape, tensor: Shape) -> bool:
    """Whether a weight differs along axis 1 only, has all elements of it, and is smaller than the tensor."""
    aligned = (1,) * (len(tensor) - len(weight)) + tuple(weight)
    return len(tensor) > 1 and aligned != tensor and aligned == (1, tensor[1], *[1] * (len(tensor) - 2))


class TopMultiScaleMergeToOne(WeightPattern):
    """Scale -> Scale, the first without relu and with one user -> one Scale."""

    @override
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """S = s1*s2, b = b1*s2 + b2."""
        first = op.operands[0].owner if isinstance(op, TopScale) else None
        if not isinstance(op, TopScale) or not isinstance(first, TopScale) or not absorbs(first):
            return
        constants = self.constants((first.scale, first.bias, op.scale, op.bias))
        if constants is None:
            return
        s1, b1, s2, b2 = constants
        self.replace_by_scale(op, first.input, s1 * s2, b1 * s2 + b2, rewriter)
        rewriter.erase(first)


class ConstbinaryMergeToTopScale(WeightPattern):
    """MulConst or AddConst -> Scale, the first without relu and with one user -> one Scale."""

    @override
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """A factor is multiplied into the scale; a term times the scale is added to the bias."""
        first = made_by(op.operands[0], "top.MulConst", "top.AddConst") if isinstance(op, TopScale) else None
        constants = self.constants((op.scale, op.bias)) if isinstance(op, TopScale) else None
        number = number_of(first)
        if first is None or constants is None or number is None or relu_of(first):
            return
        (scale, bias), number = constants, np.float32(number)
        if first.name == "top.MulConst":
            self.replace_by_scale(op, first.operands[0], scale * number, bias, rewriter)
        else:
            self.replace_by_scale(op, first.operands[0], scale, bias + scale * number, rewriter)
        rewriter.erase(first)


class FuseScaleIntoConv(WeightPattern):
    """Conv -> Scale, the Conv without relu and with one user: folded into filter and bias."""

    @override
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """W' = W*s[oc], b' = b*s + bias; the Conv takes name and relu of the Scale."""
        conv = op.operands[0].owner if isinstance(op, TopScale) else None
        if not isinstance(op, TopScale) or not isinstance(conv, TopConv) or not absorbs(conv):
            return
        given = () if is_none(conv.bias) else (conv.bias,)
        constants = self.constants((op.scale, op.bias, conv.filter, *given))
        if constants is None:
            return
        scale, offset, filter, *bias = constants
        merged = offset + bias[0] * scale if bias else offset
        fold(self, conv, op, filter * by_rows(scale, filter.ndim), merged, rewriter)


class ScaleToConv(WeightPattern):
    """Scale of a tensor of three or four axes -> depthwise 1x1 Conv."""

    @override
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The Conv takes name, relu and calibrated type of the Scale; with three axes Reshapes are added around it."""
        constants = self.constants((op.scale, op.bias)) if isinstance(op, TopScale) else None
        if not isinstance(op, TopScale) or constants is None or len(shape_of(op.input)) not in (3, 4):
            return
        name, shape = op_name(op), shape_of(op.output)
        scale, bias = constants
        filter = self.weight(name + "_filter", scale.reshape(-1, 1, 1, 1), op, rewriter)
        offset = self.weight(name + "_bias", bias, op, rewriter)
        if len(shape) == 4:
            conv = _depthwise(op, op.input, filter, offset, name)
            copy_name(conv, op)
            rewriter.replace(op, conv)
            return
        before = reshaped(op.input, (*shape[:2], 1, shape[2]), name + "_input_4d")
        conv = _depthwise(op, before.results[0], filter, offset, name + "_4d")
        after = reshaped(conv.results[0], shape, name)
        copy_name(after, op)
        rewriter.replace(op, [before, conv, after])


def _depthwise(op: TopScale, x: SSAValue, filter: SSAValue, bias: SSAValue, name: str) -> TopConv:
    """The Conv that replaces a Scale, with the input x of four axes."""
    attributes = channelwise_geometry(shape_of(op.output)[1]) | relu_attributes(relu_of(op), relu_limit_of(op))
    kind = tensor(shape_of(x), element_of(op.output))
    conv = TopConv.create(operands=[x, filter, bias], result_types=[kind], attributes=attributes)
    set_op_name(conv, name)
    return conv


class TopScaleMergeToMatMul(WeightPattern):
    """MatMul of 2-D operands -> Scale, the MatMul without relu and with one user: folded into weight and bias."""

    @override
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """W' = W*s[n], b' = b*s + bias along the output features."""
        product = op.operands[0].owner if isinstance(op, TopScale) else None
        if not isinstance(op, TopScale) or not isinstance(product, Operation) or product.name != "top.MatMul":
            return
        _, right, *bias = product.operands
        given = [b for b in bias if is_tensor(b)]
        constants = self.constants((op.scale, op.bias, right, *given)) if absorbs(product) else None
        if constants is None or len(shape_of(op.output)) != 2 or len(bias) != 1 or constants[2].ndim != 2:
            return
        scale, offset, matrix, *old = constants
        transposed = product.attributes.get("right_transpose")
        rows = transposed is not None and bool(transposed.value.data)  # type: ignore[attr-defined]
        name = op_name(op)
        merged = matrix * (scale.reshape(-1, 1) if rows else scale.reshape(1, -1))
        product.operands[1] = self.weight(name + "_right", merged, product, rewriter)
        total = offset + old[0].reshape(-1) * scale if old else offset
        product.operands[2] = self.weight(name + "_bias", total, product, rewriter)
        _take_over(product, op, rewriter)


def by_rows(values: np.ndarray, rank: int) -> np.ndarray:
    """One value per output channel in a shape that broadcasts to a filter of this rank."""
    return values.reshape(-1, *[1] * (rank - 1))


def fold(
    pattern: WeightPattern, conv: TopConv, op: Operation, filter: np.ndarray, bias: np.ndarray,
    rewriter: PatternRewriter,
) -> None:  # fmt: skip
    """Give the Conv coefficients that include the op after it, and replace that op."""
    conv.operands[1] = pattern.weight(op_name(op) + "_filter", filter, conv, rewriter)
    conv.operands[2] = pattern.weight(op_name(op) + "_bias", bias, conv, rewriter)
    _take_over(conv, op, rewriter)


def absorbs(op: Operation) -> bool:
    """Whether the next op may be folded into an op: it has no relu and one user."""
    return not relu_of(op) and only_user(op.results[0]) is not None


def _take_over(op: Operation, scale: Operation, rewriter: PatternRewriter) -> None:
    """Replace the next op, `scale`, by `op`, which takes its name, its relu and the range of its result."""
    op.attributes |= relu_attributes(relu_of(scale), relu_limit_of(scale))
    copy_name(op, scale)
    result = rewriter.replace_value_with_new_type(op.results[0], scale.results[0].type)
    rewriter.replace(scale, [], [result])
    rewriter.notify_op_modified(op)
