"""The base class of the top ops of a tensor and a number: float function, lowering, integer C (numerics.md 9.3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from tpusim_kernels.prim.scale import round_half_away
from typing_extensions import override
from xdsl.dialects.builtin import BoolAttr, FloatAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import attr_def, opt_attr_def

from tpusim.interfaces import ask
from tpusim.ir.attrs import float_attr, int_attr, op_name
from tpusim.ir.types import shape_of
from tpusim.ops.const_binary.tpu import Kind, float_result, reversed_
from tpusim.ops.framework.base import Array, Holds, LoweringContext, OpT, QuantParams, holds
from tpusim.ops.framework.families import (
    UnaryTop,
    built_in_integers,
    limited,
    relu_attributes,
    relu_limit_of,
    relu_of,
)
from tpusim.ops.interfaces import ScalarOperand
from tpusim.ops.rescale import TOO_LARGE, positive_fit

ACCUMULATOR = 2**31
"""Accumulators have 32 bits and must not wrap (numerics.md DN-03)."""
LARGEST_TERM = 255 * 127
"""The largest |q*m| of a byte and an 8-bit multiplier."""


@dataclass(frozen=True)
class Constants:
    """The numbers of an integer form: q*m, combined with the constant C, shifted right by r."""

    multiplier: int
    rshift: int
    constant: float = 0.0


NOTHING = Constants(1, 0)
"""The constants that leave every integer as it is."""


class IntegerConstants:
    """The integer form of an op with a number."""

    def integer_form(self, ctx: LoweringContext, x: QuantParams, y: QuantParams) -> Constants | str:
        """Multiplier, shift and C for the quantisations x of the input and y of the output, or why there are none."""
        raise NotImplementedError

    def build_int8(self, ctx: LoweringContext, operand: SSAValue, constants: Constants) -> SSAValue | str:
        """The tpu op on the operand's bytes with these constants, or why there is none."""
        raise NotImplementedError


class ConstTop(UnaryTop, IntegerConstants, ScalarOperand):
    """A tensor and the number `const_val`, with an optional relu."""

    TPU: ClassVar[OpT]
    KIND: ClassVar[Kind]
    VANISHES: ClassVar[bool] = False
    """Whether the op is left out if it leaves every integer as it is (U-101)."""

    const_val = attr_def(FloatAttr)
    do_relu = opt_attr_def(BoolAttr)
    relu_limit = opt_attr_def(FloatAttr)

    @property
    def number(self) -> float:
        """The constant of the op."""
        return self.const_val.value.data

    @override
    def result_holds(self) -> Holds:
        return "integer" if holds(self.input) == "integer" else self.HOLDS

    @override
    def scalar_operand(self) -> float:
        return self.number

    @override
    def flops(self) -> int:
        """One per element, and one for a relu (DN-27)."""
        return super().flops() * (1 + relu_of(self))

    @classmethod
    def order(cls, reverse: bool) -> dict[str, Attribute]:
        """Attributes that say whether the constant is the first operand; none for ops that commute."""
        del reverse
        return {}

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        y = float_result(self.KIND, operands[0], self.number, relu=relu_of(self), reverse=reversed_(self))
        return (limited(y, self),)

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        attributes = {"const_val": self.const_val, **self.order(reversed_(self))}
        attributes |= relu_attributes(relu_of(self), relu_limit_of(self))
        operand = ctx.operand(self.input, ctx.float_mode(self), self)
        return ctx.build(self.TPU, [operand], attributes, ctx.float_type(self), shape_of(self.output), op_name(self))

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """The tpu op in integers, with the constants of `IntegerConstants`."""
        x, y = ctx.quant(self.input), ctx.quant(self.output)
        if x is None or y is None:
            return "input or output is not calibrated"
        constants = ask(self, IntegerConstants, ctx.chip).integer_form(ctx, x, y)
        if isinstance(constants, str):
            return constants
        if abs(constants.constant) + LARGEST_TERM >= ACCUMULATOR:
            return f"the constant {self.number:.6g} leaves 32 bits"
        if self.VANISHES and constants == NOTHING and x.signed == y.signed:
            stored = ctx.stored(self.input)
            if stored is not None:
                return stored
        operand = ctx.operand(self.input, "int8", self)
        return ask(self, IntegerConstants, ctx.chip).build_int8(ctx, operand, constants)

    def function(self, values: np.ndarray) -> np.ndarray:
        """The product, sum or difference in double, with the relu: the function of a lookup table."""
        match self.KIND:
            case "mul":
                result = values * self.number
            case "add":
                result = values + self.number
            case _:
                result = self.number - values if reversed_(self) else values - self.number
        return np.maximum(result, 0.0) if relu_of(self) else result

    @override
    def build_int8(self, ctx: LoweringContext, operand: SSAValue, constants: Constants) -> SSAValue | str:
        attributes: dict[str, Attribute] = {
            "const_val": float_attr(constants.constant), "multiplier": int_attr(constants.multiplier),
            "rshift": int_attr(constants.rshift), **self.order(reversed_(self)), **relu_attributes(relu_of(self)),
        }  # fmt: skip
        return built_in_integers(self, ctx, self.TPU, [operand], attributes)


def shifted_constant(ctx: LoweringContext, op: "ConstTop", x: QuantParams, y: QuantParams) -> Constants | str:
    """m, r and C of AddConst and SubConst (numerics.md 9.3)."""
    number = op.number
    fit = positive_fit(ctx, op, x.scale / y.scale)
    if fit is None:
        return TOO_LARGE
    m, r = fit
    return Constants(m, r, float(round_half_away(number / y.scale)) * 2.0**r)
