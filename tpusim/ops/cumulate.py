"""`top.CumSum` and `tpu.CumSum`: sums, or products, of all elements up to each place (numerics.md 12.1)."""

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

from tpusim_kernels.indexing import cumulate
from xdsl.dialects.builtin import BoolAttr, IntegerAttr, StringAttr, TensorType
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def

from tpusim.ir.attrs import LayerGroupAttr, flag, int_attr, text
from tpusim.ir.types import shape_of
from tpusim.isa import functions
from tpusim.ops.elements import checked_axis
from tpusim.ops.framework.base import Array, Builder, FloatRule, Holds, OpT, Shape, holds
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.macro import MacroTop, MacroTpu


def _options(op: Operation) -> dict[str, Any]:
    axis, exclusive, reverse, mode = (op.attributes[key] for key in ("axis", "exclusive", "reverse", "mode"))
    assert isinstance(axis, IntegerAttr) and isinstance(exclusive, IntegerAttr)
    assert isinstance(reverse, IntegerAttr) and isinstance(mode, StringAttr)
    flags = {"exclusive": bool(exclusive.value.data), "reverse": bool(reverse.value.data)}
    return {"axis": axis.value.data, "mode": mode.data, **flags}


@irdl_op_definition
class TpuCumSum(MacroTpu):
    """`tpu.CumSum`: the running sum in f32."""

    name = "tpu.CumSum"

    input = operand_def(TensorType)
    output = result_def(TensorType)
    axis = attr_def(IntegerAttr)
    exclusive = attr_def(BoolAttr)
    reverse = attr_def(BoolAttr)
    mode = attr_def(StringAttr)
    group_info = opt_attr_def(LayerGroupAttr)

    def infer(self) -> tuple[Shape, ...]:
        """The result has the operand's shape."""
        return (shape_of(self.input),)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Compute it in float64 and round once, to the type of the result."""
        return (cumulate(operands[0], **_options(self)),)

    def function(self) -> functions.Function:
        """Cumulate: a running sum or product along the axis."""
        return functions.Cumulate(**_options(self))


@irdl_op_definition
class TopCumSum(MacroTop):
    """`top.CumSum`: the sum (mode prod: the product, which upstream lacks) up to each place along `axis`."""

    name = "top.CumSum"
    TPU: ClassVar[OpT] = TpuCumSum
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32", f16="f32")

    input = operand_def(TensorType)
    output = result_def(TensorType)
    axis = attr_def(IntegerAttr)
    exclusive = attr_def(BoolAttr)
    reverse = attr_def(BoolAttr)
    mode = attr_def(StringAttr)

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, *, axis: int, exclusive: bool = False, reverse: bool = False,
        mode: str = "sum", name: str,
    ) -> SSAValue:  # fmt: skip
        """mode: sum or prod. exclusive: without the element itself; reverse: from the end."""
        if mode not in ("sum", "prod"):
            raise ValueError(f"mode sum or prod is required, got {mode!r}")
        attributes = {
            "axis": int_attr(checked_axis(axis, shape_of(x))), "exclusive": flag(exclusive), "reverse": flag(reverse),
            "mode": text(mode),
        }  # fmt: skip
        return builder.build(cls, [x], attributes, name)

    def held(self) -> Holds:
        """Integers stay integers; what else it holds is float."""
        return "integer" if holds(self.input) == "integer" else "real"

    def infer(self) -> tuple[Shape, ...]:
        """The result has the operand's shape."""
        return (shape_of(self.input),)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Compute it in float64 and round once, to the type of the result."""
        return (cumulate(operands[0], **_options(self)),)

    def flops(self) -> int:
        """One per element (DN-27)."""
        return prod(shape_of(self.input))
