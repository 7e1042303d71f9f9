"""Numbers merge into the op before them; the patterns have the names of TPU-MLIR (interface.md 7.3)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from tpusim.ir.attrs import copy_name, float_attr, op_name, set_op_name
from tpusim.ir.imported_scales import imported_weight_scales
from tpusim.ir.pdl import DataPattern, Drawing, one_use
from tpusim.ir.types import shape_of
from tpusim.ir.weights import WeightStore
from tpusim.ops.const_binary.base import ConstTop
from tpusim.ops.framework.base import is_none
from tpusim.ops.framework.families import constant_of, relu_attributes, relu_limit_of, relu_of
from tpusim.ops.framework.rewriting import Requested, has_no_relu, made_by
from tpusim.ops.structure import make_weight
from tpusim.ops.view import vanish

MUL = "top.MulConst"
TOO_LARGE, LIMIT = 1e10, 1e4
"""The least factor that is too large, and the factor that replaces it (U-22)."""


class MergeContinuousMulConst(DataPattern):
    """MulConst -> MulConst, the first used once and without relu: one MulConst by the product in double."""

    @classmethod
    @override
    def draw(cls, p: Drawing) -> None:
        first = p.op(MUL, p.operand())
        p.require(one_use, first)
        p.require(has_no_relu, first)
        p.rewrite(p.op(MUL, first), cls.multiply, first)

    @classmethod
    def multiply(cls, rewriter: PatternRewriter, op: ConstTop, first: ConstTop) -> None:
        """The second of the two stays and takes the place of both."""
        op.attributes["const_val"] = float_attr(first.number * op.number)
        op.operands[0] = first.operands[0]
        rewriter.erase(first)
        rewriter.notify_op_modified(op)


class NumberWithoutEffect(DataPattern):
    """An op with a number that changes nothing, without relu, is removed."""

    KIND: ClassVar[str]
    NEUTRAL: ClassVar[float]

    @classmethod
    @override
    def draw(cls, p: Drawing) -> None:
        """If the network returns the operand and the result, a view of the operand has the name of the result."""
        x = p.operand()
        op = p.op(cls.KIND, x)
        p.require(has_no_relu, op)
        p.require(cls.has_no_effect, op)
        p.rewrite(op, vanish, x)

    @classmethod
    def has_no_effect(cls, op: ConstTop) -> bool:
        """Whether the number changes nothing."""
        return op.number == cls.NEUTRAL


class RemoveMulConst(NumberWithoutEffect):
    """MulConst by 1 is removed."""

    KIND = MUL
    NEUTRAL = 1.0


class RemoveAddConst(NumberWithoutEffect):
    """AddConst of 0 is removed, as by the simplifier that upstream runs before its import."""

    KIND = "top.AddConst"
    NEUTRAL = 0.0


@dataclass
class MergeMulConst(RewritePattern):
    """Conv or MatMul by constants (-> Reshape) -> MulConst, each used once: weight and bias times the number.

    A weight that was imported with scales stays as it is.
    """

    weights: WeightStore

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The product takes name and relu of the MulConst; before a Reshape it gets a new name."""
        if op.name != MUL or not isinstance(op, ConstTop):
            return
        view = made_by(op.operands[0], "top.Reshape")
        product = made_by((view or op).operands[0], "top.Conv", "top.MatMul")
        if product is None or relu_of(product) or (view is not None and relu_of(op)):
            return
        constants = [constant_of(v, self.weights) for v in product.operands[1:]]
        given = [not is_none(v) for v in product.operands[1:]]
        if any(here and array is None for here, array in zip(given, constants, strict=True)):
            return
        if constant_of(product.operands[0], self.weights) is not None or imported_weight_scales(product.operands[1]):
            return
        last = view or product
        for index, array in enumerate(constants, 1):
            if array is not None:
                product.operands[index] = self._scaled(op, index, array, product, rewriter)
        product.attributes |= {} if view is not None else relu_attributes(relu_of(op), relu_limit_of(op))
        copy_name(last, op)
        if view is not None:
            set_op_name(product, f"{op_name(op)}_r_MulOrConv")
        rewriter.replace(op, [], [last.results[0]])
        rewriter.notify_op_modified(product)

    def _scaled(
        self, op: ConstTop, index: int, array: np.ndarray, product: Operation, rewriter: PatternRewriter
    ) -> SSAValue:
        """The constant times the number as a weight: computed in double, rounded once to f32."""
        scaled = (array.astype(np.float64) * op.number).astype(np.float32)
        weight = make_weight(self.weights, f"{op_name(op)}_{('filter', 'bias')[index - 1]}", scaled)
        rewriter.insert(weight, InsertPoint.before(product))
        return weight.output


@dataclass
class TopGatherMulConst(RewritePattern):
    """Gather from a constant -> MulConst, the Gather used once: Gather from the constant times the number."""

    weights: WeightStore

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The Gather takes the name of the MulConst; a MulConst with a relu stays."""
        gather = made_by(op.operands[0], "top.Gather") if op.name == MUL else None
        if gather is None or not isinstance(op, ConstTop) or relu_of(op):
            return
        table = constant_of(gather.operands[0], self.weights)
        if table is None or table.dtype.kind != "f":
            return
        scaled = (table.astype(np.float64) * op.number).astype(np.float32)
        weight = make_weight(self.weights, f"{op_name(op)}_table", scaled)
        rewriter.insert(weight, InsertPoint.before(gather))
        gather.operands[0] = weight.output
        copy_name(gather, op)
        rewriter.replace(op, [], [gather.results[0]])
        rewriter.notify_op_modified(gather)


@dataclass
class BinaryMerge(RewritePattern):
    """Two successive ops by constants, the first used once and without relu: one op by both, joined in f32."""

    weights: WeightStore

    KIND: ClassVar[str]

    def joined(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """The constant that has the effect of both."""
        raise NotImplementedError

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the second; the new op takes its name and relu."""
        outer = self._parts(op)
        first = None if outer is None else made_by(outer[0], self.KIND)
        inner = None if first is None or relu_of(first) else self._parts(first)
        if outer is None or inner is None:
            return
        constant = self.joined(inner[1].astype(np.float32), outer[1].astype(np.float32))
        rank = len(shape_of(op.results[0]))
        full = constant.reshape((1,) * (rank - constant.ndim) + constant.shape)
        weight = make_weight(self.weights, f"{op_name(op)}_merged", full)
        rewriter.insert(weight, InsertPoint.before(op))
        merged = type(op).create(
            operands=[inner[0], weight.output], result_types=[op.results[0].type], attributes=dict(op.attributes)
        )
        copy_name(merged, op)
        rewriter.replace(op, merged)
        assert first is not None  # it gave `inner`
        rewriter.erase(first)

    def _parts(self, op: Operation) -> tuple[SSAValue, np.ndarray] | None:
        """(tensor, constant of several numbers) of an op of the kind whose result has the shape of the tensor."""
        if op.name != self.KIND or len(op.operands) != 2:
            return None
        for x, other in (tuple(op.operands), tuple(op.operands)[::-1]):
            array = constant_of(other, self.weights)
            if array is not None and array.size > 1 and constant_of(x, self.weights) is None:
                return (x, array) if shape_of(x) == shape_of(op.results[0]) else None
        return None


class MulMerge(BinaryMerge):
    """Two successive Muls by constants -> one Mul."""

    KIND = "top.Mul"

    def joined(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """The product of the two constants."""
        return first * second


class AddMerge(BinaryMerge):
    """Two successive Adds of constants -> one Add."""

    KIND = "top.Add"

    def joined(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """The sum of the two constants."""
        return first + second


class MulTooLarge(Requested):
    """MulConst by 1e10 or more -> by 1e4, by -1e10 or less -> by -1e4 (U-22); on request, as it changes values."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """Each MulConst by such a factor."""
        if op.name == MUL and isinstance(op, ConstTop) and abs(op.number) >= TOO_LARGE:
            op.attributes["const_val"] = float_attr(float(np.copysign(LIMIT, op.number)))
            rewriter.notify_op_modified(op)
