"""Folds of MLIR's dialect `arith` that xDSL does not have: by op name, so that the dialect is not imported.

A fold is a function of an op and the constants of its operands (None for those that are none). It gives a value, or an
attribute for a constant, in place of the op's result, or None. Semantics are those of MLIR: integers wrap; a division
by zero, a division that overflows and a shift by the width or more stay.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from xdsl.dialects.builtin import IndexType, IntegerAttr, IntegerType
from xdsl.ir import Attribute, Operation, SSAValue

Constants = Sequence[Attribute | None]
AnyInteger = IntegerAttr[IntegerType]
Folded = SSAValue | Attribute | None
Fold = Callable[[Operation, Constants], Folded]
INDEX_BITS = 64


def bits_of(kind: Attribute) -> int | None:
    """The width of a scalar integer or index, None for another type."""
    if isinstance(kind, IndexType):
        return INDEX_BITS
    return cast("Any", kind).width.data if isinstance(kind, IntegerType) else None


def signed(value: int, bits: int) -> int:
    """A value as a signed integer of so many bits."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def range_of(bits: int, *, unsigned: bool) -> tuple[int, int]:
    """The least and the largest integer of a width."""
    return (0, (1 << bits) - 1) if unsigned else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def integer(kind: Attribute, value: int) -> AnyInteger:
    """A constant of an integer type, wrapped to its width."""
    bits = bits_of(kind)
    assert bits is not None
    return IntegerAttr(signed(value, bits), cast("IntegerType", kind))


def number(constant: Attribute | None) -> int | None:
    """The signed value of an integer constant, None for another attribute."""
    if not isinstance(constant, IntegerAttr):
        return None
    found = cast("AnyInteger", constant)
    bits = bits_of(found.type)
    return None if bits is None else signed(found.value.data, bits)


# ------------------------------------------------------------------------------------------------------- two constants


def _divided(a: int, b: int, bits: int) -> int | None:
    overflows = a == -(1 << (bits - 1)) and b == -1
    return None if b == 0 or overflows else (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: int, b: int, bits: int) -> int | None:
    del bits
    return None if b == 0 else abs(a) % abs(b) * (-1 if a < 0 else 1)


def _shifted(a: int, b: int, bits: int, shift: Callable[[int, int], int]) -> int | None:
    return shift(a, b) if 0 <= b < bits else None


def _low(value: int, bits: int) -> int:
    return value & ((1 << bits) - 1)


COMPUTED: Mapping[str, Callable[[int, int, int], int | None]] = {
    "arith.addi": lambda a, b, _: a + b,
    "arith.subi": lambda a, b, _: a - b,
    "arith.muli": lambda a, b, _: a * b,
    "arith.andi": lambda a, b, _: a & b,
    "arith.ori": lambda a, b, _: a | b,
    "arith.xori": lambda a, b, _: a ^ b,
    "arith.divsi": _divided,
    "arith.remsi": _remainder,
    "arith.divui": lambda a, b, n: _low(a, n) // _low(b, n) if b else None,
    "arith.remui": lambda a, b, n: _low(a, n) % _low(b, n) if b else None,
    "arith.shli": lambda a, b, n: _shifted(a, b, n, lambda x, y: x << y),
    "arith.shrsi": lambda a, b, n: _shifted(a, b, n, lambda x, y: x >> y),
    "arith.shrui": lambda a, b, n: _shifted(_low(a, n), b, n, lambda x, y: x >> y),
    "arith.maxsi": lambda a, b, _: max(a, b),
    "arith.minsi": lambda a, b, _: min(a, b),
    "arith.maxui": lambda a, b, n: max(_low(a, n), _low(b, n)),
    "arith.minui": lambda a, b, n: min(_low(a, n), _low(b, n)),
}
"""Results of two signed integers of a width; None: the op stays."""

PREDICATES: Sequence[Callable[[int, int, int], bool]] = (
    lambda a, b, _: a == b,
    lambda a, b, _: a != b,
    lambda a, b, _: a < b,
    lambda a, b, _: a <= b,
    lambda a, b, _: a > b,
    lambda a, b, _: a >= b,
    lambda a, b, n: _low(a, n) < _low(b, n),
    lambda a, b, n: _low(a, n) <= _low(b, n),
    lambda a, b, n: _low(a, n) > _low(b, n),
    lambda a, b, n: _low(a, n) >= _low(b, n),
)
"""The predicates of arith.cmpi by number."""
INVERSE = (1, 0, 5, 4, 3, 2, 9, 8, 7, 6)
"""The number of the predicate that is true where another is false."""
SWAPPED = (0, 1, 4, 5, 2, 3, 8, 9, 6, 7)
"""The number of the predicate for operands in the other order."""


def _two_constants(op: Operation, constants: Constants) -> Folded:
    a, b = map(number, constants)
    kind = op.results[0].type
    bits = bits_of(kind)
    if a is None or b is None or bits is None:
        return None
    value = COMPUTED[op.name](a, b, bits)
    return None if value is None else integer(kind, value)


# ------------------------------------------------------------------------------------------------------- one constant

ZERO, ONE, ONES, LEAST, MOST = "zero", "one", "ones", "least", "most"
NEUTRAL: Mapping[str, str] = {
    "arith.addi": ZERO, "arith.subi": ZERO, "arith.muli": ONE, "arith.andi": ONES, "arith.ori": ZERO,
    "arith.xori": ZERO, "arith.divsi": ONE, "arith.divui": ONE, "arith.shli": ZERO, "arith.shrsi": ZERO,
    "arith.shrui": ZERO, "arith.maxsi": LEAST, "arith.minsi": MOST, "arith.maxui": ZERO, "arith.minui": ONES,
}  # fmt: skip
"""The right operand that leaves the left one."""
ABSORBING: Mapping[str, str] = {
    "arith.muli": ZERO, "arith.andi": ZERO, "arith.ori": ONES, "arith.maxsi": MOST, "arith.minsi": LEAST,
    "arith.maxui": ONES, "arith.minui": ZERO,
}  # fmt: skip
"""The right operand that is the result."""
OF_EQUALS = {
    "arith.subi": ZERO, "arith.xori": ZERO, "arith.andi": None, "arith.ori": None, "arith.maxsi": None,
    "arith.minsi": None, "arith.maxui": None, "arith.minui": None,
}  # fmt: skip
"""The result of an op on twice the same value; None: that value."""


def _special(name: str, bits: int) -> int:
    numbers = {ZERO: 0, ONE: 1, ONES: -1, LEAST: -(1 << (bits - 1)), MOST: (1 << (bits - 1)) - 1}
    return signed(numbers[name], bits)


def _one_constant(op: Operation, constants: Constants) -> Folded:
    value, bits = number(constants[1]), bits_of(op.results[0].type)
    if value is None or bits is None:
        return None
    if op.name in NEUTRAL and value == _special(NEUTRAL[op.name], bits):
        return op.operands[0]
    if op.name in ABSORBING and value == _special(ABSORBING[op.name], bits):
        return op.operands[1]
    if op.name in ("arith.remsi", "arith.remui") and value == _special(ONE, bits):
        return integer(op.results[0].type, 0)
    return None


def _equal_operands(op: Operation, _: Constants) -> Folded:
    kind = op.results[0].type
    if op.name not in OF_EQUALS or op.operands[0] is not op.operands[1] or bits_of(kind) is None:
        return None
    special = OF_EQUALS[op.name]
    return op.operands[0] if special is None else integer(kind, _special(special, 64))


# ------------------------------------------------------------------------------------------------- ops of other ops


def maker(value: SSAValue, name: str) -> Operation | None:
    """The op that makes a value, if it is one of a name."""
    owner = value.owner
    return owner if isinstance(owner, Operation) and owner.name == name else None


def _undone(op: Operation, _: Constants) -> Folded:
    """(a - b) + b, b + (a - b), (a + b) - b, (a + b) - a."""
    left, right = op.operands
    if op.name == "arith.addi":
        for one, other in ((left, right), (right, left)):
            made = maker(one, "arith.subi")
            if made is not None and made.operands[1] is other:
                return made.operands[0]
    made = maker(left, "arith.addi") if op.name == "arith.subi" else None
    for i in () if made is None else (0, 1):
        assert made is not None
        if made.operands[i] is right:
            return made.operands[1 - i]
    return None


def _xor_undone(op: Operation, _: Constants) -> Folded:
    for one, other in (op.operands, reversed(op.operands)):
        made = maker(one, "arith.xori")
        for i in () if made is None else (0, 1):
            assert made is not None
            if made.operands[i] is other:
                return made.operands[1 - i]
    return None


def is_not_of(value: SSAValue, other: SSAValue) -> bool:
    """Whether a value is the bitwise complement of another."""
    made = maker(value, "arith.xori")
    bits = bits_of(value.type)
    if made is None or bits is None or made.operands[0] is not other:
        return False
    return number(constant_of(made.operands[1])) == -1


def _with_complement(op: Operation, _: Constants) -> Folded:
    left, right = op.operands
    if not (is_not_of(left, right) or is_not_of(right, left)):
        return None
    return integer(op.results[0].type, 0 if op.name == "arith.andi" else -1)


def _and_once(op: Operation, _: Constants) -> Folded:
    """And a, (and a, b) as the inner one; MLIR has no such fold of or."""
    for one, other in (op.operands, reversed(op.operands)):
        made = maker(one, op.name)
        if made is not None and any(operand is other for operand in made.operands):
            return one
    return None


def _compared(op: Operation, constants: Constants) -> Folded:
    bits, (a, b), which = bits_of(op.operands[0].type), map(number, constants), predicate_of(op)
    if bits is None:
        return None
    if op.operands[0] is op.operands[1]:
        return integer(op.results[0].type, PREDICATES[which](0, 0, bits))
    if a is not None and b is not None:
        return integer(op.results[0].type, PREDICATES[which](a, b, bits))
    if bits == 1 and (which, b) in ((0, -1), (1, 0)):  # x == true, x != false
        return op.operands[0]
    extended = maker(op.operands[0], "arith.extsi") or maker(op.operands[0], "arith.extui")
    if extended is not None and (which, b) == (1, 0) and bits_of(extended.operands[0].type) == 1:
        return extended.operands[0]
    return None


def predicate_of(op: Operation) -> int:
    """The number of a comparison's predicate."""
    stated = op.properties["predicate"]
    assert isinstance(stated, IntegerAttr)
    return stated.value.data


def _selected(op: Operation, constants: Constants) -> Folded:
    condition, yes, no = op.operands
    asked = number(constants[0])
    if asked is not None:
        return yes if asked else no
    if yes is no:
        return yes
    if bits_of(yes.type) == 1 and (number(constants[1]), number(constants[2])) == (-1, 0):
        return condition
    made = maker(condition, "arith.cmpi")
    if made is None or predicate_of(made) not in (0, 1):
        return None
    same = {yes, no} == set(made.operands)
    return (no if predicate_of(made) == 0 else yes) if same else None


def _converted(op: Operation, constants: Constants) -> Folded:
    value, before = number(constants[0]), bits_of(op.operands[0].type)
    kind = op.results[0].type
    if value is not None and before is not None and bits_of(kind) is not None:
        return integer(kind, _low(value, before) if op.name in ("arith.extui", "arith.index_castui") else value)
    inner = op.operands[0].owner
    if op.name == "arith.trunci" and isinstance(inner, Operation) and inner.name in ("arith.extui", "arith.extsi"):
        return inner.operands[0] if inner.operands[0].type == kind else None
    if op.name.startswith("arith.index_cast") and isinstance(inner, Operation) and inner.name == op.name:
        return inner.operands[0] if inner.operands[0].type == kind else None
    return None


FOLDS: Mapping[str, Sequence[Fold]] = {
    **{name: (_two_constants, _one_constant, _equal_operands) for name in COMPUTED},
    "arith.addi": (_two_constants, _one_constant, _undone),
    "arith.subi": (_two_constants, _one_constant, _equal_operands, _undone),
    "arith.xori": (_two_constants, _one_constant, _equal_operands, _xor_undone),
    "arith.andi": (_two_constants, _one_constant, _equal_operands, _with_complement, _and_once),
    "arith.ori": (_two_constants, _one_constant, _equal_operands, _with_complement),
    "arith.cmpi": (_compared,),
    "arith.select": (_selected,),
    **{f"arith.{name}": (_converted,) for name in ("extui", "extsi", "trunci", "index_cast", "index_castui")},
}
"""The folds of an op of integers, tried in order; `floats` has the others."""


def constant_of(value: SSAValue) -> Attribute | None:
    """The attribute of a constant's value, None for another value."""
    made = maker(value, "arith.constant")
    return None if made is None else made.properties["value"]
