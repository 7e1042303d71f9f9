"""The float type of a top op (numerics.md 12)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from tpusim.chips import ChipSpec
from tpusim.interfaces import Rules
from tpusim.ops.framework.contexts import FloatMode, LoweringContext


@dataclass(frozen=True)
class FloatRule:
    """Which float type an op runs in on a chip that has 16-bit floats (numerics.md 12); others use f32.

    A chip's file lists its exceptions (`ChipSpec.float_exceptions`). int8: the type in INT8 mode, if the op has no
    integer form. f16, bf16: the types in those modes. f8: in a mode of 8-bit floats they, f32, or the type
    of F16 mode.
    """

    int8: FloatMode = "f16"
    f16: FloatMode = "f16"
    bf16: FloatMode = "bf16"
    f8: Literal["f8", "f16", "f32"] = "f16"

    def in_mode(self, activation: str) -> str:
        """The type in a mode whose activations are floats of a type."""
        of_16_bits = {"f16": self.f16, "bf16": self.bf16}
        if activation == "f32" or activation in of_16_bits:
            return of_16_bits.get(activation, "f32")
        return {"f8": activation, "f16": self.f16, "f32": "f32"}[self.f8]


NARROWEST = FloatRule(f8="f8")
"""Rule of ops that compute in every float type (numerics 8.4)."""


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
