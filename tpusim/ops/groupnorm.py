"""GroupNorm and InstanceNorm, in float on every chip (numerics.md 9.0, 12)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np
from tpusim_kernels import norm as kernels
from typing_extensions import override
from xdsl.dialects.builtin import BoolAttr, FloatAttr, IntegerAttr, NoneType, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from tpusim.chips import ChipSpec
from tpusim.compat import Quirk
from tpusim.ir.attrs import (
    copy_name,
    flag,
    float_attr,
    framework_name,
    int_attr,
    ints_attr,
    op_name,
    set_op_name,
    value_name,
)
from tpusim.ir.types import element_of, shape_of, storage_dtype
from tpusim.ir.weights import WeightStore
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.ops.framework.base import (
    Array,
    Axis,
    Builder,
    EmitContext,
    FloatRule,
    LoweringContext,
    OpT,
    ReorderContext,
    Shape,
    ShapedOp,
    TensorSlice,
    TopOp,
    TpuOp,
    Window,
    is_none,
)
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import built_in_float, constant_of, is_set, norm_work_bytes, only_user
from tpusim.ops.framework.logical import WHOLE
from tpusim.ops.framework.rewriting import made_by
from tpusim.ops.interfaces import Reorder
from tpusim.ops.patterns.affine import AffineOfOneElement
from tpusim.ops.structure import TopWeight, make_weight
from tpusim.ops.view import TopReshape


def groupnorm_shape(op: Operation, groups: int) -> Shape:
    """The input's shape. Raises ValueError unless `groups` divide its channels and weight and bias are (C,)."""
    x = shape_of(op.operands[0])
    if len(x) < 2 or groups < 1 or x[1] % groups:
        raise ValueError(f"an input (n, c, ...) of channels that {groups} groups divide is required, got {x}")
    for value in op.operands[1:]:
        if not is_none(value) and shape_of(value) not in ((x[1],), (1, x[1], 1, 1)):
            raise ValueError(f"weight and bias of shape {(x[1],)} are required, got {shape_of(value)}")
    return x


class Grouped(ShapedOp):
    """A norm with statistics per sample and group of channels; weight and bias are per channel."""

    input = operand_def(TensorType)
    weight = operand_def(TensorType | NoneType)
    bias = operand_def(TensorType | NoneType)
    output = result_def(TensorType)
    eps = attr_def(FloatAttr)

    @property
    def groups(self) -> int:
        """The number of groups of channels."""
        raise NotImplementedError

    @override
    def infer(self) -> tuple[Shape, ...]:
        return (groupnorm_shape(self, self.groups),)


class GroupedTop(Grouped, TopOp):
    """A norm of groups of channels, in float on every chip."""

    TPU: ClassVar[OpT]

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (kernels.groupnorm_float(*operands, groups=self.groups, epsilon=self.eps.value.data),)

    @override
    def flops(self) -> int:
        """Nine steps per element, as LayerNorm (DN-27)."""
        return 9 * prod(shape_of(self.output))

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        return built_in_float(self, ctx, *self.form(ctx))

    def form(self, ctx: LoweringContext) -> tuple[OpT, dict[str, Attribute]]:
        """(the class of the tpu op on the chip, its attributes)."""
        del ctx
        return self.TPU, dict(self.attributes)


class WeightedChannels(TpuOp, Reorder):
    """A norm with a weight and a bias for each channel, operands 1 and 2; reordered they are (1, C, 1, 1)."""

    COMPACT_OPERANDS: ClassVar[tuple[int, ...]] = (1, 2)

    @property
    def in_bf16(self) -> bool:
        """Whether every step is rounded to BF16."""
        return storage_dtype(element_of(self.results[0])).name == "bfloat16"

    @override
    def reorder_weights(self, ctx: ReorderContext) -> None:
        """Lay constants along the channels, so that each lies in the lane of its channel."""
        for index in self.COMPACT_OPERANDS:
            data = None if is_none(self.operands[index]) else ctx.array(self.operands[index])
            if data is not None:
                name = f"{value_name(self.operands[index])}_channels"
                self.operands[index] = ctx.weight(name, data.reshape(1, -1, 1, 1))

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """Local with constant weight and bias, if the chip has the form (layer_group.md 2, DL-02)."""
        if chip.is_global(self.name):
            return f"{self.name} has no local form on {chip.name}"
        scalars = [v for v in (self.operands[i] for i in self.COMPACT_OPERANDS) if not is_none(v)]
        if not all(isinstance(v.owner, TopWeight) and len(shape_of(v)) == 4 for v in scalars):
            return "weight or bias is not constant"
        rank = len(shape_of(self.operands[0]))
        return None if rank <= 5 else f"rank {rank}, above 5"

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        del inputs
        return norm_work_bytes(output, chip)


class GroupedTpu(Grouped, WeightedChannels):
    """The norm in f32 with one rounding at the output, or in BF16."""

    @property
    def weight_as_factor(self) -> bool:
        """Whether the first weight divides the statistics; the other weights are then unused."""
        return False

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        x, weight, bias = operands
        weight, bias = (None if v is None else v.reshape(-1) for v in (weight, bias))
        compute = kernels.groupnorm_bf16 if self.in_bf16 else kernels.groupnorm_float
        return (compute(x, weight, bias, groups=self.groups, epsilon=self.eps.value.data),)

    # local memory

    @override
    def can_slice(self, axis: Axis) -> bool:
        """Only the batch can be cut, because statistics are of whole samples (layer_group.md 4)."""
        return axis == "n"

    @override
    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None:
        """The same samples of the input; weight and bias are needed whole."""
        return window if axis == "n" and operand == 0 else WHOLE

    # codegen

    @override
    def emit(self, ctx: EmitContext) -> None:
        """FN groupnorm. In a 3D group each depth of a sample counts as an item of the batch (hardware.md 2.1)."""
        given, depth = (
            [i for i, v in enumerate(self.operands) if not is_none(v)],
            ctx.output_slice().d[1] if ctx.local else 1,
        )
        epsilon, factor = self.eps.value.data, self.weight_as_factor
        function = functions.GroupNorm(
            self.groups, epsilon, depth, 1 in given, 2 in given, factor, bf16_steps=self.in_bf16
        )
        ctx.emit(isa.Fn, function=function, inputs=tuple(ctx.input(i) for i in given), output=ctx.output())


@irdl_op_definition
class TpuGroupNorm(GroupedTpu):
    """`tpu.GroupNorm`: the channels form `num_groups` equal groups of neighbours."""

    name = "tpu.GroupNorm"
    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = ()

    num_groups = attr_def(IntegerAttr)

    @property
    @override
    def groups(self) -> int:
        return self.num_groups.value.data


@irdl_op_definition
class TpuInstanceNorm(GroupedTpu):
    """`tpu.InstanceNorm`: every channel is a group.

    first_weight_divides: (x - mean/w)/sqrt(variance/w + eps) + b[c], with w the first weight and f32(1)/w in f32. The
    host's processor computes this (U-14). TPU-MLIR's interpreter leaves out b as well; its closed simulator adds b.
    """

    name = "tpu.InstanceNorm"
    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = ()

    first_weight_divides = opt_attr_def(BoolAttr)

    @property
    @override
    def groups(self) -> int:
        return shape_of(self.input)[1]

    @property
    @override
    def weight_as_factor(self) -> bool:
        return is_set(self.first_weight_divides)

    @override
    def infer(self) -> tuple[Shape, ...]:
        if self.weight_as_factor and is_none(self.weight):
            raise ValueError("first_weight_divides requires a weight, got none")
        return super().infer()

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        x, weight, bias = operands
        if self.in_bf16 and not self.weight_as_factor:
            return super().inference(operands)
        weight, bias = (None if v is None else v.reshape(-1) for v in (weight, bias))
        if self.weight_as_factor and weight is not None:
            return (kernels.instancenorm_by_factor(x, weight[0], bias, epsilon=self.eps.value.data),)
        return (kernels.instancenorm_float(x, weight, bias, epsilon=self.eps.value.data),)


@irdl_op_definition
class TopGroupNorm(GroupedTop):
    """`top.GroupNorm`: the channels form `num_groups` equal groups of neighbours."""

    name = "top.GroupNorm"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0", "12.1")
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32", bf16="f32")
    TPU: ClassVar[OpT] = TpuGroupNorm

    num_groups = attr_def(IntegerAttr)

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, weight: SSAValue, bias: SSAValue, *, num_groups: int, eps: float = 1e-5,
        name: str,
    ) -> SSAValue:  # fmt: skip
        """weight, bias: of shape (C,)."""
        shape = shape_of(x)
        if len(shape) < 3 or num_groups < 1 or shape[1] % num_groups:
            raise ValueError(f"num_groups that divides the channels of {shape} is required, got {num_groups}")
        attributes = {"num_groups": int_attr(num_groups), "eps": float_attr(eps)}
        return builder.build(cls, [x, weight, bias], attributes, name)

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """Match what exporters without GroupNormalization write; leave out a scale and bias of one element."""
        return ReshapeInstanceNormPattern(weights), AffineOfOneElement(weights, cls)

    @property
    @override
    def groups(self) -> int:
        return self.num_groups.value.data


@irdl_op_definition
class TopInstanceNorm(GroupedTop):
    """`top.InstanceNorm`: every channel is a group."""

    name = "top.InstanceNorm"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0", "12.1")
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32", f16="f32")
    TPU: ClassVar[OpT] = TpuInstanceNorm

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, weight: SSAValue, bias: SSAValue, *, eps: float = 1e-5, name: str
    ) -> SSAValue:
        """weight, bias: of shape (C,)."""
        return builder.build(cls, [x, weight, bias], {"eps": float_attr(eps)}, name)

    @property
    @override
    def groups(self) -> int:
        return shape_of(self.input)[1]

    @override
    def form(self, ctx: LoweringContext) -> tuple[OpT, dict[str, Attribute]]:
        """tpu.InstanceNorm; by a quirk the form of the host."""
        cls, attributes = super().form(ctx)
        if ctx.chip.is_on_host(self.name) and self._first_weight_divides(ctx):
            attributes["first_weight_divides"] = flag(True)
        return cls, attributes

    def _first_weight_divides(self, ctx: LoweringContext) -> bool:
        """Whether the quirk is reproduced and changes the result; weights of 1 do not."""
        if is_none(self.weight):
            return False
        constant = ctx.array(self.weight)
        weights = np.zeros(1, np.float32) if constant is None else constant
        divisors = ctx.quirked(self, Quirk.INSTANCE_NORM_ON_HOST, weights, np.ones_like(weights))
        return bool((divisors != 1).any())


@dataclass
class ReshapeInstanceNormPattern(RewritePattern):
    """Reshape to (n, groups, rest) -> InstanceNorm, the Reshape used once: GroupNorm -> Reshape, which may be removed.

    The GroupNorm is called like the InstanceNorm, `NAME_r_GroupNorm` (U-33), also if the network returns it. Each
    channel gets the weight and bias of its group.
    """

    weights: WeightStore

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the InstanceNorm."""
        view = made_by(op.operands[0], "top.Reshape") if isinstance(op, TopInstanceNorm) else None
        if not isinstance(op, TopInstanceNorm) or view is None:
            return
        x, groups = view.operands[0], op.groups
        shape, given = shape_of(x), {"weight": op.weight, "bias": op.bias}
        constants = {kind: constant_of(value, self.weights) for kind, value in given.items()}
        if len(shape) < 3 or shape[0] != shape_of(op.input)[0] or shape[1] % groups:
            return
        if any(constants[kind] is None and not is_none(value) for kind, value in given.items()):
            return
        operands = [x]
        for kind, array in constants.items():
            if array is None:
                operands.append(given[kind])
                continue
            made = make_weight(self.weights, f"{op_name(op)}_{kind}", np.repeat(array, shape[1] // groups))
            rewriter.insert(made, InsertPoint.before(op))
            operands.append(made.output)
        self._replace(op, operands, {"num_groups": int_attr(groups), "eps": op.eps}, rewriter)
        rewriter.erase(view)

    def _replace(
        self, op: TopInstanceNorm, operands: list[SSAValue], attributes: dict[str, Attribute], rewriter: PatternRewriter
    ) -> None:
        """Put the GroupNorm in place of the InstanceNorm and a Reshape that only undoes the first."""
        new = TopGroupNorm.create(operands=operands, result_types=[operands[0].type], attributes=attributes)
        set_op_name(new, f"{op_name(op)}_r_GroupNorm")
        last = only_user(op.output)
        if last is not None and last.name == "top.Reshape" and shape_of(last.results[0]) == shape_of(new.output):
            set_op_name(new, f"{op_name(op)}_r_GroupNorm", framework_name(last))
            rewriter.insert(new, InsertPoint.before(op))
            rewriter.replace(last, [], [new.output])
            rewriter.erase(op)
            return
        shape: dict[str, Attribute] = {"shape": ints_attr(shape_of(op.output))}
        view = TopReshape.create(operands=[new.output], result_types=[op.output.type], attributes=shape)
        copy_name(view, op)
        rewriter.replace(op, [new, view], [view.results[0]])
