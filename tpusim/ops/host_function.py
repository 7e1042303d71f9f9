"""`tpu.GenericCpu`: a function of a chip's runtime, which the host's processor computes."""

from typing_extensions import override
from xdsl.dialects.builtin import DictionaryAttr, StringAttr, TensorType
from xdsl.irdl import attr_def, irdl_op_definition, opt_attr_def, var_operand_def, var_result_def
from xdsl.rewriter import Rewriter

from tpusim.ir.types import shape_of, uniform_of
from tpusim.ir.upstream import NOTES
from tpusim.ops.cast import TpuCast
from tpusim.ops.framework.base import Shape, TpuOp


@irdl_op_definition
class TpuGenericCpu(TpuOp):
    """`tpu.GenericCpu`: what the host computes, in the form of TPU-MLIR. Its "quant" is a `tpu.Cast` here.

    The other functions are known as ops here (interp, argmax ...); modules that state them this way are not computed.
    """

    name = "tpu.GenericCpu"

    inputs = var_operand_def(TensorType)
    outputs = var_result_def(TensorType)
    cpu_op_name = attr_def(StringAttr)
    param = opt_attr_def(DictionaryAttr)

    @override
    def infer(self) -> tuple[Shape, ...]:
        """The declared shapes: the table of functions is open."""
        return tuple(shape_of(result) for result in self.outputs)

    @override
    def take_form(self) -> str:
        """Become the cast that quantises a network's input; or say which function this is."""
        function = self.cpu_op_name.data
        if function != "quant" or len(self.inputs) != 1 or uniform_of(self.outputs[0]) is None:
            return f"the host's function {function} is not computed in this form"
        kept = {name: value for name, value in self.attributes.items() if name in NOTES}
        new = TpuCast.create(
            operands=list(self.inputs), result_types=[self.outputs[0].type], attributes=kept, location=self.location
        )
        Rewriter.replace_op(self, new)
        return ""
