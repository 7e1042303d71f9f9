"""Rewritings of lowered ops with a number; the patterns have the names of TPU-MLIR (numerics.md 8.4)."""

from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.ir.attrs import copy_name
from tpusim.ir.types import element_of, is_f8
from tpusim.ops.framework.families import only_user


class FuseCastToF8MulConst(RewritePattern):
    """MulConst of 8-bit floats, used once -> Cast: the MulConst has type and name of the Cast."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The product is no longer rounded to 8 bits."""
        if op.name != "tpu.MulConst" or not is_f8(element_of(op.operands[0])):
            return
        user = only_user(op.results[0])
        if user is None or user.name != "tpu.Cast":
            return
        copy_name(op, user)
        product = rewriter.replace_value_with_new_type(op.results[0], user.results[0].type)
        rewriter.replace(user, [], [product])
