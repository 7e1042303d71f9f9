"""A rewrite of top modules: `tpusim run NETWORK --also squared_relu`."""

from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter

from tpusim.ir.attrs import copy_name
from tpusim.ops.framework.families import relu_limit_of, relu_of
from tpusim.ops.framework.rewriting import Requested
from tpusim.ops.mul import TopMul
from tpusim.ops.relu import TopRelu
from tpusim_demo.top import TopSquaredRelu


class SquareOfRelu(Requested):
    """Relu(x) * Relu(x), one relu without a limit -> demo.SquaredRelu(x)."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The result keeps the product's name; the relu is removed where nothing else reads it."""
        if not isinstance(op, TopMul) or len(op.inputs) != 2 or op.inputs[0] != op.inputs[1] or relu_of(op):
            return
        relu = op.inputs[0].owner
        if not isinstance(relu, TopRelu) or relu_limit_of(relu) >= 0:
            return
        new = TopSquaredRelu.create(operands=[relu.input], result_types=[op.output.type])
        copy_name(new, op)
        rewriter.replace(op, new)
