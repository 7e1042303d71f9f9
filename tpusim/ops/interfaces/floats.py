"""The float type of a top op (numerics.md 12)."""

from dataclasses import dataclass
from typing import ClassVar

from tpusim.chips import ChipSpec
from tpusim.interfaces import Rules
from tpusim.ops.framework.contexts import FloatMode, LoweringContext


@dataclass(frozen=True)
class FloatRule:
    """Which float type an op runs in on a chip that has 16-bit floats (numerics.md 12); others use f32.

    A chip's file lists its exceptions (`ChipSpec.float_exceptions`). int8: the type in INT8 mode, if the op has no
    integer form. f16, bf16: the types in those modes.
    """

    int8: FloatMode = "f16"
    f16: FloatMode = "f16"
    bf16: FloatMode = "bf16"


class FloatRules(Rules):
    """Which float types a family's compiler chooses."""

    FALLBACK: FloatMode = "f16"
    """Float type of an op that should be integer but has no scale (numerics.md DN-05)."""


class FloatTypes:
    """Which float type an op runs in."""

    FLOAT: ClassVar[FloatRule] = FloatRule()
    """The rule of an op whose type does not depend on its operands."""

    def float_rule(self, ctx: LoweringContext) -> FloatRule:
        """The rule of this op in its network."""
        del ctx
        return self.FLOAT

    def needs_f32(self, chip: ChipSpec, wanted: FloatMode) -> bool:
        """Whether the op runs in f32 although its rule gives it the 16-bit type `wanted` (the conditions of 12.2)."""
        del chip, wanted
        return False
