"""Rewrites of MLIR's dialect `arith` into other ops, which xDSL does not have.

A rewrite is a function of an op that gives the op in its place, which is not inserted yet, and the ops that it needs.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from xdsl.dialects.arith import (
    AddiOp,
    CmpiOp,
    ConstantOp,
    ExtUIOp,
    MuliOp,
    SelectOp,
    SubiOp,
    XOrIOp,
)
from xdsl.dialects.builtin import IntegerType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter

from tpusim.ir.generic.arith import (
    INVERSE,
    SWAPPED,
    bits_of,
    constant_of,
    integer,
    is_not_of,
    maker,
    number,
    predicate_of,
)
from tpusim.ir.generic.casts import CASTS, Made, with_operands
from tpusim.ir.generic.effects import COMMUTATIVE, is_commutative


def rewrite(op: Operation, rewriter: PatternRewriter) -> None:
    """Replace an op by the first rewrite that applies."""
    for one in (*REWRITES.get(op.name, ()), *CASTS.get(op.name, ())):
        made = one(op)
        if made is not None:
            rewriter.replace(op, list(made))
            return


def _value(value: SSAValue) -> int | None:
    return number(constant_of(value))


def _constant(kind: Attribute, value: int) -> ConstantOp:
    return ConstantOp(integer(kind, value))


def constant_to_the_right(op: Operation) -> Made | None:
    """C + x as x + c, c < x as x > c."""
    left, right = op.operands
    if constant_of(left) is None or constant_of(right) is not None:
        return None
    if isinstance(op, CmpiOp):
        return (CmpiOp(right, left, SWAPPED[predicate_of(op)]),)
    if not is_commutative(op):
        return None
    return with_operands(op, right, left)


Terms = tuple[int, SSAValue | None, int]
"""sign * value + constant; without a value a constant."""


def _terms(op: Operation | None) -> Terms | None:
    """An addition or subtraction with one constant, as sign and constant of its other operand."""
    if op is None or op.name not in ("arith.addi", "arith.subi"):
        return None
    left, right = map(_value, op.operands)
    minus = op.name == "arith.subi"
    if right is not None and left is None:
        return 1, op.operands[0], -right if minus else right
    if left is not None and right is None:
        return (-1 if minus else 1), op.operands[1], left
    return None


def add_constants(op: Operation) -> Made | None:
    """(x + c) + d as x + (c + d), and with subtractions."""
    outer = _terms(op)
    if outer is None or outer[1] is None or not isinstance(outer[1].owner, Operation):
        return None
    inner = _terms(outer[1].owner)
    if inner is None or inner[1] is None:
        return None
    sign, value, total = outer[0] * inner[0], inner[1], outer[2] + outer[0] * inner[2]
    kind = op.results[0].type
    subtracted = op.name == outer[1].owner.name == "arith.subi" and sign == 1 and outer[0] == 1
    if sign == -1:
        made = _constant(kind, total)
        return made, SubiOp(made, value)
    made = _constant(kind, -total if subtracted else total)
    return made, (SubiOp if subtracted else AddiOp)(value, made)


def multiply_constants(op: Operation) -> Made | None:
    """(x * c) * d as x * (c * d)."""
    inner, factor = maker(op.operands[0], "arith.muli"), _value(op.operands[1])
    other = None if inner is None else _value(inner.operands[1])
    if inner is None or other is None or factor is None:
        return None
    made = _constant(op.results[0].type, other * factor)
    return made, MuliOp(inner.operands[0], made)


def add_negated(op: Operation) -> Made | None:
    """X + y * -1 as x - y."""
    left, right = op.operands
    for one, other in ((left, right), (right, left)):
        product = maker(other, "arith.muli")
        if product is not None and _value(product.operands[1]) == -1:
            return (SubiOp(one, product.operands[0]),)
    return None


def subtract_itself(op: Operation) -> Made | None:
    """(a - b) - a as 0 - b."""
    inner = maker(op.operands[0], "arith.subi")
    if inner is None or inner.operands[0] is not op.operands[1]:
        return None
    zero = _constant(op.results[0].type, 0)
    return zero, SubiOp(zero, inner.operands[1])


def invert_comparison(op: Operation) -> Made | None:
    """Not (a < b) as a >= b."""
    compared = maker(op.operands[0], "arith.cmpi")
    if compared is None or bits_of(op.results[0].type) != 1 or _value(op.operands[1]) != -1:
        return None
    return (CmpiOp(compared.operands[0], compared.operands[1], INVERSE[predicate_of(compared)]),)


def select_by_complement(op: Operation) -> Made | None:
    """Select (not c), a, b as select c, b, a."""
    made = maker(op.operands[0], "arith.xori")
    if made is None or not is_not_of(op.operands[0], made.operands[0]):
        return None
    return (SelectOp(made.operands[0], op.operands[2], op.operands[1]),)


def select_the_same_way(op: Operation) -> Made | None:
    """Select c, (select c, a, b), d as select c, a, d; likewise in the other operand."""
    condition, yes, no = op.operands
    for i, value in ((1, yes), (2, no)):
        inner = maker(value, "arith.select")
        if inner is not None and inner.operands[0] is condition:
            chosen = [yes, no]
            chosen[i - 1] = inner.operands[i]
            return (SelectOp(condition, *chosen),)
    return None


def select_to_complement(op: Operation) -> Made | None:
    """Select c, false, true as not c."""
    if bits_of(op.results[0].type) != 1 or (_value(op.operands[1]), _value(op.operands[2])) != (0, -1):
        return None
    return (XOrIOp(op.operands[0], op.operands[2]),)


def select_to_extension(op: Operation) -> Made | None:
    """Select c, 1, 0 as the condition extended; select c, 0, 1 as its complement extended."""
    condition, kind = op.operands[0], cast("IntegerType", op.results[0].type)
    if kind.name != "integer_type" or bits_of(kind) == 1:
        return None
    chosen = _value(op.operands[1]), _value(op.operands[2])
    if chosen == (1, 0):
        return (ExtUIOp(condition, kind),)
    if chosen == (0, 1):
        true = _constant(condition.type, 1)
        inverted = XOrIOp(condition, true)
        return true, inverted, ExtUIOp(inverted, kind)
    return None


REWRITES: Mapping[str, Sequence[Callable[[Operation], Made | None]]] = {
    **dict.fromkeys((*COMMUTATIVE, "arith.cmpi"), (constant_to_the_right,)),
    "arith.addi": (constant_to_the_right, add_constants, add_negated),
    "arith.subi": (add_constants, subtract_itself),
    "arith.muli": (constant_to_the_right, multiply_constants),
    "arith.xori": (constant_to_the_right, invert_comparison),
    "arith.select": (
        select_by_complement, select_the_same_way, select_to_complement, select_to_extension,
    ),
}  # fmt: skip
