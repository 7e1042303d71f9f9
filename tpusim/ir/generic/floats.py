"""Folds of MLIR's float ops of the dialect `arith`, as functions of an op and the constants of its operands.

Constants are computed exactly and rounded once, half to even, as LLVM's APFloat does; a result that is no number gets
the positive quiet NaN. A cast that would lose digits stays.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

from xdsl.dialects.builtin import BFloat16Type, Float16Type, Float32Type, Float64Type, FloatAttr
from xdsl.ir import Attribute, Operation

from tpusim.ir.generic.arith import Constants, Folded, bits_of, integer, maker, number, predicate_of, range_of


@dataclass(frozen=True)
class Format:
    """A binary float type: digits with the hidden one, and the least exponent of a normal number."""

    digits: int
    least: int

    def rounded(self, value: Fraction) -> float:
        """The nearest number of this type, half to even; beyond the largest one infinity."""
        if not value:
            return 0.0
        exponent = value.numerator.bit_length() - value.denominator.bit_length()
        exponent -= abs(value) < Fraction(2) ** exponent
        step = Fraction(2) ** (max(exponent, self.least) - self.digits + 1)
        found = round(value / step) * step
        largest = abs(found) >= Fraction(2) ** (2 - self.least)
        return math.copysign(math.inf if largest else float(abs(found)), value)


FORMATS: Mapping[type[Attribute], Format] = {
    Float16Type: Format(11, -14),
    BFloat16Type: Format(8, -126),
    Float32Type: Format(24, -126),
    Float64Type: Format(53, -1022),
}


def _stored(kind: Attribute, value: Any) -> FloatAttr[Any] | None:
    """A number, exact or a Python float, as a constant of a type, rounded once; None for a type that is not known."""
    form = FORMATS.get(type(kind))
    if form is None:
        return None
    if isinstance(value, float) and not (value and math.isfinite(value)):
        return FloatAttr(abs(value) if math.isnan(value) else value, cast("Any", kind))
    return FloatAttr(form.rounded(Fraction(value)), cast("Any", kind))


def _value(constant: Attribute | None) -> float | None:
    return float(cast("FloatAttr[Any]", constant).value.data) if isinstance(constant, FloatAttr) else None


def _divided(a: float, b: float) -> float:
    if b:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)


def _larger(a: float, b: float) -> float:
    return max(a, b, key=lambda x: (x, math.copysign(1.0, x)))


def _smaller(a: float, b: float) -> float:
    return -_larger(-a, -b)


COMPUTED: Mapping[str, Callable[[float, float], float]] = {
    "arith.addf": lambda a, b: a + b,
    "arith.subf": lambda a, b: a - b,
    "arith.mulf": lambda a, b: a * b,
    "arith.divf": _divided,
    "arith.maximumf": _larger,
    "arith.minimumf": _smaller,
    "arith.maxnumf": _larger,
    "arith.minnumf": _smaller,
}
"""Results of two numbers. f64 has more than twice the digits of f32, so that rounding to f64 first changes nothing."""
NUMBER_OF_TWO = "arith.maxnumf", "arith.minnumf"
"""The result is the operand that is a number."""
NEUTRAL: Mapping[str, str] = {
    "arith.addf": "-0.0", "arith.subf": "0.0", "arith.mulf": "1.0", "arith.divf": "1.0",
    "arith.maximumf": "-inf", "arith.minimumf": "inf", "arith.maxnumf": "nan", "arith.minnumf": "nan",
}  # fmt: skip
"""The right operand that leaves the left one, as Python prints it."""


def _two_constants(op: Operation, constants: Constants) -> Folded:
    a, b = map(_value, constants)
    if a is None or b is None:
        return None
    if op.name in NUMBER_OF_TWO and math.isnan(a) != math.isnan(b):
        return constants[int(math.isnan(a))]
    if math.isnan(a) or math.isnan(b):
        return constants[int(not math.isnan(a))]
    return _stored(op.results[0].type, COMPUTED[op.name](a, b))


def _neutral(op: Operation, constants: Constants) -> Folded:
    right = _value(constants[1])
    return op.operands[0] if right is not None and repr(right) == NEUTRAL[op.name] else None


def _equal_operands(op: Operation, _: Constants) -> Folded:
    return op.operands[0] if op.operands[0] is op.operands[1] else None


def _negated(op: Operation, constants: Constants) -> Folded:
    value = _value(constants[0])
    if value is not None:
        return FloatAttr(-value, cast("Any", op.results[0].type))
    inner = maker(op.operands[0], op.name)
    return None if inner is None else inner.operands[0]


def _resized(op: Operation, constants: Constants) -> Folded:
    """Extf and truncf of a constant that keeps its digits; truncf of an extf to the type before."""
    value, kind = _value(constants[0]), op.results[0].type
    if value is not None:
        found = _stored(kind, value)
        kept = found is not None and (found.value.data == value or math.isnan(value))
        return found if kept else None
    inner = maker(op.operands[0], "arith.extf") if op.name == "arith.truncf" else None
    return inner.operands[0] if inner is not None and inner.operands[0].type == kind else None


def _of_integer(op: Operation, constants: Constants) -> Folded:
    value, bits = number(constants[0]), bits_of(op.operands[0].type)
    if value is None or bits is None:
        return None
    return _stored(op.results[0].type, value & ((1 << bits) - 1) if op.name == "arith.uitofp" else value)


def _to_integer(op: Operation, constants: Constants) -> Folded:
    value, kind = _value(constants[0]), op.results[0].type
    bits = bits_of(kind)
    if value is None or bits is None or not math.isfinite(value):
        return None
    whole = math.trunc(value)
    least, most = range_of(bits, unsigned=op.name == "arith.fptoui")
    return integer(kind, whole) if least <= whole <= most else None


ORDERED, UNORDERED, LAST = 7, 14, 15
"""The numbers of these predicates of arith.cmpf, and of the one that is always true; 0 is always false."""
PREDICATES: Sequence[Callable[[float, float], bool]] = (
    lambda a, b: a == b,
    lambda a, b: a > b,
    lambda a, b: a >= b,
    lambda a, b: a < b,
    lambda a, b: a <= b,
    lambda a, b: a != b,
)
"""Of two numbers by predicate i + 1, and by predicate i + 1 + ORDERED, which is true if an operand is no number."""


def _compared(op: Operation, constants: Constants) -> Folded:
    a, b = map(_value, constants)
    which, unordered = predicate_of(op), any(x is not None and math.isnan(x) for x in (a, b))
    if unordered:
        return integer(op.results[0].type, int(which > ORDERED))
    if a is None or b is None:
        return None
    always = {0: False, ORDERED: True, UNORDERED: False, LAST: True}
    holds = always[which] if which in always else PREDICATES[which % ORDERED - 1](a, b)
    return integer(op.results[0].type, int(holds))


FOLDS = {
    **dict.fromkeys(COMPUTED, (_two_constants, _neutral)),
    **dict.fromkeys(("arith.maximumf", "arith.minimumf", *NUMBER_OF_TWO), (_two_constants, _neutral, _equal_operands)),
    "arith.negf": (_negated,),
    "arith.cmpf": (_compared,),
    **dict.fromkeys(("arith.extf", "arith.truncf"), (_resized,)),
    **dict.fromkeys(("arith.sitofp", "arith.uitofp"), (_of_integer,)),
    **dict.fromkeys(("arith.fptosi", "arith.fptoui"), (_to_integer,)),
}
"""The folds of an op, tried in order."""
