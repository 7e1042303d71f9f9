"""Functions without a byte table: they are computed in float in every mode (U-44, numerics.md 9.8, 12.1)."""

from typing import ClassVar

from typing_extensions import override
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition

from tpusim.ops.activation.top import Activation
from tpusim.ops.framework.base import FloatRule, Holds, LoweringContext


class WithoutTable(Activation):
    """An activation that INT8 networks compute in float."""

    SPEC: ClassVar[tuple[str, ...]] = ("9.8", "12.1")
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32", f16="f32", bf16="f32")

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        del ctx
        return f"{self.name.removeprefix('top.')} has no table (numerics.md 9.8)"


@irdl_op_definition
class TopTan(WithoutTable):
    """`top.Tan`: the tangent of x."""

    name = "top.Tan"
    MODE: ClassVar[str] = "TAN"


@irdl_op_definition
class TopArccos(WithoutTable):
    """`top.Arccos`: the inverse cosine."""

    name = "top.Arccos"
    MODE: ClassVar[str] = "ARCCOS"


@irdl_op_definition
class TopArctanh(WithoutTable):
    """`top.Arctanh`: the inverse hyperbolic tangent."""

    name = "top.Arctanh"
    MODE: ClassVar[str] = "ARCTANH"


@irdl_op_definition
class TopArcsin(WithoutTable):
    """`top.Arcsin`: the inverse sine. TPU-MLIR does not import ONNX's Asin."""

    name = "top.Arcsin"
    MODE: ClassVar[str] = "ARCSIN"


@irdl_op_definition
class TopArctan(WithoutTable):
    """`top.Arctan`: the inverse tangent. TPU-MLIR imports ONNX's Atan as Sign(x) * Arccos(1 / Sqrt(x*x + 1))."""

    name = "top.Arctan"
    MODE: ClassVar[str] = "ARCTAN"


@irdl_op_definition
class TopTrunc(WithoutTable):
    """`top.Trunc`: rounds towards 0, as a cast of floats to integers does. TPU-MLIR leaves such a rounding out."""

    name = "top.Trunc"
    MODE: ClassVar[str] = "TRUNC"
    HOLDS: ClassVar[Holds] = "integer"
