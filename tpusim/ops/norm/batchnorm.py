"""`top.BatchNorm`: float function, and the patterns that fold it into a Conv or make it a Scale (numerics.md 9.4)."""

from collections.abc import Sequence
from math import prod
from typing import ClassVar

import numpy as np
from tpusim_kernels.norm import batchnorm_float
from xdsl.dialects.builtin import FloatAttr, TensorType
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, result_def
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.errors import UnsupportedError
from tpusim.ir.attrs import float_attr, op_name, value_name
from tpusim.ir.types import shape_of
from tpusim.ir.weights import WeightStore
from tpusim.ops.conv import TopConv
from tpusim.ops.conv.top import ReshapeBeforeChannelOp
from tpusim.ops.framework.base import Array, Builder, LoweringContext, Shape, TopOp, is_none
from tpusim.ops.framework.building import names_op
from tpusim.ops.norm.top import WeightPattern, absorbs, by_rows, fold, per_channel_shape


@irdl_op_definition
class TopBatchNorm(TopOp):
    """`top.BatchNorm`: (x - mean[c])/sqrt(variance[c] + epsilon)*gamma[c] + beta[c], channels on axis 1, all (C,)."""

    name = "top.BatchNorm"
    SPEC: ClassVar[tuple[str, ...]] = ("9.4",)

    input = operand_def(TensorType)
    mean = operand_def(TensorType)
    variance = operand_def(TensorType)
    gamma = operand_def(TensorType)
    beta = operand_def(TensorType)
    output = result_def(TensorType)
    epsilon = attr_def(FloatAttr)

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, *, mean: SSAValue, variance: SSAValue, gamma: SSAValue, beta: SSAValue,
        epsilon: float = 1e-5, name: str,
    ) -> SSAValue:  # fmt: skip
        """mean, variance, gamma and beta must be weights (C,)."""
        for value in (gamma, beta, mean, variance):
            if builder.array(value) is None:
                why = f"constant scale, bias, mean and variance are required, '{value_name(value)}' is computed"
                raise ValueError(why)
        return builder.build(cls, [x, mean, variance, gamma, beta], {"epsilon": float_attr(epsilon)}, name)

    def infer(self) -> tuple[Shape, ...]:
        """The input's shape. Raises ValueError for parameters that are not (C,)."""
        return (per_channel_shape(self.input, (self.mean, self.variance, self.gamma, self.beta)),)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """In f32, operation by operation."""
        x, mean, variance, gamma, beta = operands
        return (batchnorm_float(x, gamma, beta, mean, variance, epsilon=self.epsilon.value.data),)

    def flops(self) -> int:
        """A multiply-add per element, because the parameters are folded."""
        return 2 * prod(shape_of(self.output))

    @classmethod
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """A BatchNorm after a Conv is folded into it; any other becomes a Scale."""
        return ReshapeBeforeChannelOp(), FoldBatchNormIntoConv(weights), TopBatchNormToScale(weights)

    def lower(self, ctx: LoweringContext) -> SSAValue:
        """Raises UnsupportedError: canonicalisation must replace the op before the lowering."""
        raise UnsupportedError(f"top.BatchNorm '{op_name(self)}': it must become a top.Scale; run canonicalize first")


# ------------------------------------------------------------------------------------------------------------ rewrites


class FoldBatchNormIntoConv(WeightPattern):
    """Conv -> BatchNorm, the Conv without relu and with one user: folded into filter and bias (U-19).

    In TPU-MLIR the simplifier does this before the import, every step in f32.
    """

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """W' = W*s, b' = (b - mean)*s + beta, s = gamma/sqrt(variance + epsilon). The Conv takes the name."""
        conv = op.operands[0].owner if isinstance(op, TopBatchNorm) else None
        if not isinstance(op, TopBatchNorm) or not isinstance(conv, TopConv) or not absorbs(conv):
            return
        given = () if is_none(conv.bias) else (conv.bias,)
        constants = self.constants((op.mean, op.variance, op.gamma, op.beta, conv.filter, *given))
        if constants is None:
            return
        mean, variance, gamma, beta, filter, *bias = constants
        scale = gamma / np.sqrt(variance + np.float32(op.epsilon.value.data))
        start = bias[0] if bias else np.zeros_like(mean)
        fold(self, conv, op, filter * by_rows(scale, filter.ndim), (start - mean) * scale + beta, rewriter)


class TopBatchNormToScale(WeightPattern):
    """BatchNorm with constant statistics -> Scale."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """Scale = 1/sqrt(variance + epsilon)*gamma in f64, narrowed; bias = beta - mean*scale."""
        if not isinstance(op, TopBatchNorm):
            return
        constants = self.constants((op.mean, op.variance, op.gamma, op.beta))
        if constants is None:
            return
        mean, variance, gamma, beta = constants
        root = np.sqrt(variance.astype(np.float64) + op.epsilon.value.data)
        scale = (1 / root * gamma).astype(np.float32)
        self.replace_by_scale(op, op.input, scale, -mean * scale + beta, rewriter)
