"""`top.CumSum` and `tpu.CumSum`: the sum, or the product, of all elements up to each position (numerics.md 12.1)."""

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

from tpusim_kernels.indexing import cumulate
from typing_extensions import override
from xdsl.dialects.builtin import BoolAttr, IntegerAttr, StringAttr
from xdsl.ir import SSAValue
from xdsl.irdl import attr_def, irdl_op_definition

from tpusim.ir.attrs import flag, int_attr, text
from tpusim.ir.types import shape_of
from tpusim.ir.upstream import OWN
from tpusim.isa import functions
from tpusim.ops.framework.base import Array, Builder, FloatRule, Holds, OpT
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import Unary, arithmetic_holds, checked_axis
from tpusim.ops.framework.macro import MacroTop, MacroTpu


class CumSum(Unary):
    """The running sum or product along `axis`, in float64, rounded once to the type of the result."""

    REPEATED: ClassVar[tuple[str, ...]] = ("dim",)

    axis = attr_def(IntegerAttr)
    exclusive = attr_def(BoolAttr)
    reverse = attr_def(BoolAttr)
    mode = attr_def(StringAttr)

    @override
    def take_form(self) -> str:
        """TPU-MLIR has the plain sum only, and states no more than the axis."""
        for name, value in (("exclusive", flag(False)), ("reverse", flag(False)), ("mode", text("sum"))):
            self.attributes.setdefault(f"{OWN}{name}", value)
        return super().take_form()

    @property
    def options(self) -> dict[str, Any]:
        """Parameters of the kernel and of the macro function."""
        flags = {"exclusive": bool(self.exclusive.value.data), "reverse": bool(self.reverse.value.data)}
        return {"axis": self.axis.value.data, "mode": self.mode.data, **flags}

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (cumulate(operands[0], **self.options),)


@irdl_op_definition
class TpuCumSum(CumSum, MacroTpu):
    """`tpu.CumSum`: the running sum or product."""

    name = "tpu.CumSum"

    @override
    def function(self) -> functions.Function:
        return functions.Cumulate(**self.options)


@irdl_op_definition
class TopCumSum(CumSum, MacroTop):
    """`top.CumSum`: the running sum along `axis`; in mode prod, which TPU-MLIR does not have, the product."""

    name = "top.CumSum"
    TPU: ClassVar[OpT] = TpuCumSum
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32", f16="f32")

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

    @override
    def result_holds(self) -> Holds:
        return arithmetic_holds(self.operands)

    @override
    def flops(self) -> int:
        """One per element (DN-27)."""
        return prod(shape_of(self.input))
