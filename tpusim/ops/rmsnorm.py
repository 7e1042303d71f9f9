"""RMSNorm: a tensor divided by the root of the mean of its squares, in float on every chip (numerics.md 11.2, 12)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from tpusim_kernels import norm as kernels
from typing_extensions import override
from xdsl.dialects.builtin import FloatAttr, NoneType, StringAttr, TensorType, f32
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.ir.attrs import copy_name, flag, float_attr, ints, ints_attr, op_name, set_op_name, text
from tpusim.ir.types import element_of, shape_of, storage_dtype, tensor
from tpusim.ir.weights import WeightStore
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.ops.activation.top import TopReciprocal, TopSqrt
from tpusim.ops.const_binary import TopAddConst
from tpusim.ops.framework.base import (
    Array,
    Builder,
    EmitContext,
    LoweringContext,
    OpT,
    Shape,
    ShapedOp,
    TopOp,
    is_none,
)
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import built_in_float, constant_of, relu_attributes, relu_of
from tpusim.ops.framework.rewriting import made_by
from tpusim.ops.interfaces import TwoArithmetics
from tpusim.ops.layernorm import RowsNormalisedTpu, layernorm_shape
from tpusim.ops.mul import TopMul
from tpusim.ops.reduce import TopReduce


class RMSNorm(ShapedOp):
    """x/sqrt(mean(x^2) + eps)*gamma over the last axis."""

    input = operand_def(TensorType)
    gamma = operand_def(TensorType | NoneType)
    output = result_def(TensorType)
    eps = attr_def(FloatAttr)

    @override
    def infer(self) -> tuple[Shape, ...]:
        return (layernorm_shape(self, self.first_axis),)

    @property
    def first_axis(self) -> int:
        """The axis that is normalised: the last."""
        return len(shape_of(self.input)) - 1


@irdl_op_definition
class TopRMSNorm(RMSNorm, TopOp):
    """`top.RMSNorm`, in float in every mode."""

    name = "top.RMSNorm"
    SPEC: ClassVar[tuple[str, ...]] = ("11.2", "12.1")

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, gamma: SSAValue | None = None, *, eps: float = 1e-5, name: str
    ) -> SSAValue:
        """gamma: a factor for each element of the last axis; None: no factor."""
        operands = [x, builder.none() if gamma is None else gamma]
        return builder.build(cls, operands, {"eps": float_attr(eps)}, name)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (kernels.rmsnorm_float(*operands, epsilon=self.eps.value.data),)

    @override
    def flops(self) -> int:
        """Five steps per element and four per row (U-86)."""
        shape = shape_of(self.output)
        return 5 * prod(shape) + 4 * prod(shape[:-1])

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """Merge a norm that exporters wrote in parts."""
        return (MergeToRMSNormPattern(weights),)

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        return built_in_float(self, ctx, TpuRMSNorm, {"eps": self.eps})


@irdl_op_definition
class TpuRMSNorm(RMSNorm, RowsNormalisedTpu, TwoArithmetics):
    """`tpu.RMSNorm`: in f32; the quotient is rounded to the output's type before the product with gamma (11.2).

    The interpreter rounds only the result in F16, and every step in BF16.
    """

    name = "tpu.RMSNorm"
    COMPACT_OPERANDS: ClassVar[tuple[int, ...]] = (1,)

    arithmetic = opt_attr_def(StringAttr)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        dtype, epsilon = storage_dtype(element_of(self.output)).name, self.eps.value.data
        if dtype == "float32" or (self.as_interpreter and dtype == "float16"):
            return (kernels.rmsnorm_float(*operands, epsilon=epsilon),)
        if self.as_interpreter:
            return (kernels.rmsnorm_bf16(*operands, epsilon=epsilon),)
        return (kernels.rmsnorm_chip(*operands, epsilon=epsilon, narrow=dtype),)

    @override
    def emit(self, ctx: EmitContext) -> None:
        """Fn `rmsnorm`; in a group the axis is that of the local view."""
        axis = self.view_axis(ctx.group_type) if ctx.local else self.first_axis
        assert axis is not None  # why_not_in refuses such groups
        given = [i for i, v in enumerate(self.operands) if not is_none(v)]
        arithmetic = "interpreter" if self.as_interpreter else "chip"
        function = functions.RMSNorm(axis, self.eps.value.data, 1 in given, arithmetic)
        ctx.emit(isa.Fn, function=function, inputs=self.rows_of(ctx, axis), output=ctx.output())


# ------------------------------------------------------------------------------------------------------------ rewrites


@dataclass
class MergeToRMSNormPattern(RewritePattern):
    """x * Reciprocal(Sqrt(mean(x*x) + eps)) * gamma, gamma a constant row, inner tensors used once -> RMSNorm."""

    weights: WeightStore

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the last product."""
        if not isinstance(op, TopMul) or len(op.operands) != 2 or relu_of(op):
            return
        for normalised, gamma in (tuple(op.operands), tuple(op.operands)[::-1]):
            row = constant_of(gamma, self.weights)
            found = None if row is None else _normalised(normalised)
            if row is None or found is None:
                continue
            x, eps, inner = found
            if row.size == shape_of(x)[-1] == shape_of(gamma)[-1] and shape_of(x) == shape_of(op.output):
                new = TopRMSNorm.create(
                    operands=[x, gamma], result_types=[op.output.type], attributes={"eps": float_attr(eps)}
                )
                copy_name(new, op)
                rewriter.replace(op, new)
                for dead in inner:
                    rewriter.erase(dead)
                return


def _normalised(value: SSAValue) -> tuple[SSAValue, float, list[Operation]] | None:
    """(x, eps, the ops from last to first) if a value is x divided by the root of the mean of its squares."""
    product = made_by(value, "top.Mul")
    if product is None or len(product.operands) != 2 or relu_of(product):
        return None
    for x, factor in (tuple(product.operands), tuple(product.operands)[::-1]):
        chain: list[Operation] = [product]
        for kind in ("top.Reciprocal", "top.Sqrt", "top.AddConst", "top.Reduce"):
            op = made_by(factor, kind)
            if op is None or relu_of(op):
                break
            chain.append(op)
            factor = op.operands[0]
        squares = factor.owner
        if len(chain) < 5 or not isinstance(squares, Operation) or not _is_square(squares, x, chain[-1]):
            continue
        _, reciprocal, _, shifted, mean = chain
        if not isinstance(mean, TopReduce) or not isinstance(shifted, TopAddConst) or not _is_one(reciprocal):
            continue
        last = len(shape_of(x)) - 1
        if mean.mode.data == "ReduceMean" and ints(mean.axes) == (last,) and mean.keepdims.value.data:
            return x, shifted.number, [*chain, squares]
    return None


def _is_square(op: Operation, x: SSAValue, user: Operation) -> bool:
    """Whether an op is x*x and only `user` reads it."""
    return isinstance(op, TopMul) and list(op.operands) == [x, x] and made_by(user.operands[0], "top.Mul") is op


def _is_one(reciprocal: Operation) -> bool:
    number = reciprocal.attributes.get("const_val")
    return not isinstance(number, FloatAttr) or number.value.data == 1.0


class RMSNormApart(RewritePattern):
    """RMSNorm -> its parts. They have no calibrated range and so run in float; the last part has the name and range."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """Build squares, mean, eps, root, reciprocal, product, and the product with gamma."""
        if not isinstance(op, TopRMSNorm):
            return
        shape, plain = shape_of(op.input), relu_attributes()
        row, made = (*shape[:-1], 1), list[Operation]()
        mean: dict[str, Attribute] = {
            "axes": ints_attr([len(shape) - 1]),
            "keepdims": flag(True),
            "mode": text("ReduceMean"),
        }

        def step(end: str, cls: OpT, extent: Shape, attributes: dict[str, Attribute], *operands: SSAValue) -> SSAValue:
            new = cls.create(operands=operands, result_types=[tensor(extent, f32)], attributes=attributes)
            set_op_name(new, f"{op_name(op)}_{end}")
            made.append(new)
            return new.results[0]

        y = step("squares", TopMul, shape, plain, op.input, op.input)
        y = step("mean", TopReduce, row, mean, y)
        y = step("shifted", TopAddConst, row, {"const_val": op.eps, **plain}, y)
        y = step("root", TopSqrt, row, {}, y)
        y = step("reciprocal", TopReciprocal, row, {"const_val": float_attr(1.0)}, y)
        factors = [op.input, y]
        if not is_none(op.gamma):
            factors = [step("normalised", TopMul, shape, plain, *factors), op.gamma]
        last = TopMul.create(operands=factors, result_types=[op.output.type], attributes=plain)
        copy_name(last, op)
        rewriter.replace(op, [*made, last])
