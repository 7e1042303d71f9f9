"""A pass: `tpusim opt 2_canonical.mlir -p split-squared-relu{keep=y}`."""

from dataclasses import dataclass

from tpusim.ir.attrs import copy_name, op_name, set_op_name
from tpusim.ir.module import Model, State
from tpusim.ops.framework.families import relu_attributes
from tpusim.ops.mul import TopMul
from tpusim.ops.relu import TopRelu
from tpusim.passes import Pass, PassContext
from tpusim_demo.top import TopSquaredRelu


@dataclass(frozen=True)
class SplitSquaredRelu(Pass):
    """Write demo.SquaredRelu as Relu and Mul, so that the module needs this package no longer.

    keep: ops, by name, that stay.
    """

    name = "split-squared-relu"
    requires = frozenset({State.TOP})
    keep: tuple[str, ...] = ()

    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        """The module itself, rewritten."""
        for op in list(model.ops):
            if isinstance(op, TopSquaredRelu) and op_name(op) not in self.keep:
                relu = TopRelu.create(operands=[op.input], result_types=[op.output.type])
                set_op_name(relu, f"{op_name(op)}_relu")
                square = TopMul.create(
                    operands=[relu.output] * 2, result_types=[op.output.type], attributes=relu_attributes()
                )
                copy_name(square, op)
                model.body.insert_ops_before([relu, square], op)
                op.output.replace_all_uses_with(square.output)
                op.detach()
                op.erase()
        return model
