"""The TOSA 1.0 dialect as far as the export writes it: MLIR's names, operands and properties.

xDSL has a third of these ops, some of an earlier draft of the specification. An op is a row of OPS.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, cast

from xdsl.dialects.builtin import IndexType, IntAttr
from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import Dialect, Operation, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    opt_prop_def,
    result_def,
    var_operand_def,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.str_enum import StrEnum


class Rounding(StrEnum):
    """The mode in which RESCALE rounds."""

    SINGLE = "SINGLE_ROUND"
    DOUBLE = "DOUBLE_ROUND"


class Nan(StrEnum):
    """What becomes of NaN."""

    PROPAGATE = "PROPAGATE"
    IGNORE = "IGNORE"


class Bracketed:
    """An enumeration that is spelled `#tosa.NAME<CASE>`."""

    def print_parameter(self, printer: Printer) -> None:
        """The case in brackets."""
        with printer.in_angle_brackets():
            printer.print_string(str(cast("Any", self).data))

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Any:
        """The case in brackets."""
        with parser.in_angle_brackets():
            return parser.parse_str_enum(cast("Any", cls).enum_type)


@irdl_attr_definition
class RoundingAttr(Bracketed, EnumAttribute[Rounding]):
    """How RESCALE rounds, as in `#tosa.rounding_mode<SINGLE_ROUND>`."""

    name = "tosa.rounding_mode"


@irdl_attr_definition
class NanAttr(Bracketed, EnumAttribute[Nan]):
    """What becomes of NaN, as in `#tosa.nan_mode<PROPAGATE>`."""

    name = "tosa.nan_mode"


@irdl_attr_definition
class ShapeType(ParametrizedAttribute, TypeAttribute):
    """`!tosa.shape<4>`: a shape of so many axes."""

    name = "tosa.shape"
    rank: IntAttr

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[IntAttr]:
        """The rank in brackets."""
        with parser.in_angle_brackets():
            return [IntAttr(parser.parse_integer())]

    def print_parameters(self, printer: Printer) -> None:
        """The rank in brackets."""
        with printer.in_angle_brackets():
            printer.print_string(str(self.rank.data))


INDEX = IndexType()

WINDOW = ("pad", "stride", "dilation", "acc_type")
OPS: Mapping[str, tuple[int | None, tuple[str, ...]]] = {
    "const": (0, ("values",)), "const_shape": (0, ("values",)),
    "conv2d": (5, WINDOW), "conv3d": (5, WINDOW), "depthwise_conv2d": (5, WINDOW), "matmul": (4, ()),
    "max_pool2d": (1, ("kernel", "stride", "pad", "nan_mode")),
    "avg_pool2d": (3, ("kernel", "stride", "pad", "acc_type")),
    "rescale": (5, ("scale32", "rounding_mode", "per_channel", "input_unsigned", "output_unsigned")),
    "table": (2, ()), "clamp": (1, ("min_val", "max_val", "nan_mode")), "cast": (1, ()),
    "add": (2, ()), "sub": (2, ()), "mul": (3, ()), "intdiv": (2, ()), "pow": (2, ()),
    "maximum": (2, ("nan_mode",)), "minimum": (2, ("nan_mode",)),
    "arithmetic_right_shift": (2, ("round",)), "logical_left_shift": (2, ()),
    "equal": (2, ()), "greater": (2, ()), "greater_equal": (2, ()), "select": (3, ()),
    "logical_and": (2, ()), "logical_or": (2, ()), "logical_xor": (2, ()), "logical_not": (1, ()),
    "abs": (1, ()), "ceil": (1, ()), "floor": (1, ()), "exp": (1, ()), "log": (1, ()), "reciprocal": (1, ()),
    "rsqrt": (1, ()), "sin": (1, ()), "cos": (1, ()), "tanh": (1, ()), "sigmoid": (1, ()), "erf": (1, ()),
    "reduce_sum": (1, ("axis",)), "reduce_max": (1, ("axis", "nan_mode")), "reduce_min": (1, ("axis", "nan_mode")),
    "reduce_product": (1, ("axis",)), "argmax": (1, ("axis", "nan_mode")),
    "reshape": (2, ()), "transpose": (1, ("perms",)), "concat": (None, ("axis",)), "slice": (3, ()), "pad": (3, ()),
    "tile": (2, ()), "reverse": (1, ("axis",)), "gather": (2, ()),
}  # fmt: skip
"""Operands (None: any number) and properties of each op; every op has one result."""


class TosaOp(IRDLOperation):
    """An op of TOSA with one result."""

    COUNT: ClassVar[int | None] = None
    inputs = var_operand_def(AnyAttr())
    output = result_def(AnyAttr())

    def verify_(self) -> None:
        """Check the number of operands."""
        if self.COUNT is not None and len(self.inputs) != self.COUNT:
            raise VerifyException(f"{self.name}: {self.COUNT} operands are required, got {len(self.inputs)}")


def _defined(name: str, count: int | None, properties: tuple[str, ...]) -> type[TosaOp]:
    """The class of a row of OPS."""
    members: dict[str, Any] = {key: opt_prop_def(prop_name=key) for key in properties}
    spelled = "".join(part.capitalize() for part in name.split("_"))
    made = type(f"Tosa{spelled}", (TosaOp,), {"name": f"tosa.{name}", "__doc__": f"`tosa.{name}`."} | members)
    found = cast("type[TosaOp]", irdl_op_definition(made))
    found.COUNT = count
    return found


CLASSES: Mapping[str, type[TosaOp]] = {name: _defined(name, *row) for name, row in OPS.items()}
TOSA = Dialect("tosa", cast("list[type[Operation]]", [*CLASSES.values()]), [RoundingAttr, NanAttr, ShapeType])
