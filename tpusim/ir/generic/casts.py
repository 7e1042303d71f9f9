"""Rewrites of casts, and of ops on values that were cast or negated, as MLIR's dialect `arith` has them."""

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

from xdsl.dialects.arith import CmpiOp, ConstantOp, ExtSIOp, ExtUIOp, TruncIOp
from xdsl.dialects.builtin import FixedBitwidthType, FloatAttr, IntegerType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.utils.type import get_element_type_or_self

from tpusim.ir.generic.arith import bits_of, constant_of, integer, maker, predicate_of, range_of
from tpusim.ir.generic.floats import FORMATS, ORDERED, UNORDERED, Format

Made = Sequence[Operation]
"""New ops; the last takes the place of the old op."""
EXTENSIONS = "arith.extui", "arith.extsi"


def _cast(kind: type[Operation], value: SSAValue, result: Attribute) -> Made:
    return (cast("Any", kind)(value, result),)


def with_operands(op: Operation, *operands: SSAValue) -> Made:
    """The same op of other operands."""
    return (type(op).create(operands=operands, result_types=op.result_types, properties=op.properties.copy()),)


def _inner(op: Operation) -> Operation | None:
    """The op that makes the operand."""
    owner = op.operands[0].owner
    return owner if isinstance(owner, Operation) else None


def extend_once(op: Operation) -> Made | None:
    """An extension of the same extension as one; a signed one of an unsigned one as an unsigned one."""
    inner = _inner(op)
    if inner is None or inner.name not in (op.name, "arith.extui"):
        return None
    return _cast(type(inner), inner.operands[0], op.results[0].type)


def truncate_once(op: Operation) -> Made | None:
    """A truncation of a truncation or extension as one cast."""
    inner, kind = _inner(op), op.results[0].type
    if inner is None or inner.name not in (op.name, *EXTENSIONS):
        return None
    before, after = _width(inner.operands[0].type), _width(kind)
    if before == after:
        return None  # folded
    return _cast(TruncIOp if before > after else type(inner), inner.operands[0], kind)


def index_of_extension(op: Operation) -> Made | None:
    """The index of a value that was extended with its sign as the index of the value."""
    inner = _inner(op)
    if inner is None or inner.name != "arith.extsi":
        return None
    return _cast(type(op), inner.operands[0], op.results[0].type)


def _before_extension(op: Operation) -> tuple[type[Operation], SSAValue, SSAValue] | None:
    """The extension of both operands and what it extends, if that is the same for both and so are the types before."""
    for name, kind in zip(EXTENSIONS, (ExtUIOp, ExtSIOp), strict=True):
        left, right = (maker(value, name) for value in op.operands)
        if left is not None and right is not None and left.operands[0].type == right.operands[0].type:
            return kind, left.operands[0], right.operands[0]
    return None


def compare_before_extension(op: Operation) -> Made | None:
    """A comparison for equality of two values of one type that were extended alike, without the extensions."""
    before = _before_extension(op)
    if before is None or predicate_of(op) not in (EQUAL, UNEQUAL):
        return None
    return (CmpiOp(before[1], before[2], predicate_of(op)),)


def combine_before_extension(op: Operation) -> Made | None:
    """A bitwise op of two values of one type that were extended alike, before the extension."""
    before = _before_extension(op)
    if before is None:
        return None
    extension, left, right = before
    both = cast("Any", type(op))(left, right)
    return both, *_cast(extension, both.result, op.results[0].type)


def convert_once(op: Operation) -> Made | None:
    """A truncated float of an integer as the float of that type; of a float, as that float truncated."""
    inner, kind = _inner(op), op.results[0].type
    if inner is not None and inner.name in ("arith.sitofp", "arith.uitofp"):
        return _cast(type(inner), inner.operands[0], kind)
    if inner is None or inner.name != "arith.extf" or _width(kind) >= _width(inner.operands[0].type):
        return None
    return _cast(type(op), inner.operands[0], kind)


def _width(kind: Attribute) -> int:
    """The bits of a type or of its elements."""
    element = get_element_type_or_self(kind)
    return element.bitwidth if isinstance(element, FixedBitwidthType) else 0


EQUAL, UNEQUAL, LESS, AT_MOST, GREATER, AT_LEAST = range(6)
"""The numbers of the predicates of signed integers; those of unsigned ones from LESS on are higher by `UNSIGNED`."""
UNSIGNED = 4
OF_FLOATS = EQUAL, GREATER, AT_LEAST, LESS, AT_MOST, UNEQUAL
"""The predicates of integers that say what `floats.PREDICATES` do."""


def compare_integers(op: Operation) -> Made | None:
    """A comparison of an integer that was made a float with a constant, as one of integers."""
    made = maker(op.operands[0], "arith.sitofp") or maker(op.operands[0], "arith.uitofp")
    constant, form = constant_of(op.operands[1]), FORMATS.get(type(op.operands[1].type))
    if made is None or not isinstance(constant, FloatAttr) or form is None:
        return None
    value, kind, unsigned = float(cast("Any", constant).value.data), made.operands[0].type, made.name == "arith.uitofp"
    bits, which = bits_of(kind), predicate_of(op)
    if bits is None or math.isnan(value) or not 0 < which <= UNORDERED or _may_round(value, bits, unsigned, form):
        return None
    if which in (ORDERED, UNORDERED):
        return _truth(which == ORDERED)
    predicate = OF_FLOATS[(which - 1) % ORDERED]
    least, most = range_of(bits, unsigned=unsigned)
    if value > most or value < least:
        return _truth(predicate == UNEQUAL or (predicate in (LESS, AT_MOST)) == (value > most) and predicate != EQUAL)
    if value != (whole := math.trunc(value)):  # x <= 4.4 is x <= 4, x < 4.4 too; x < -4.4 is x < -4
        if predicate in (EQUAL, UNEQUAL):
            return _truth(predicate == UNEQUAL)
        below = predicate in (LESS, AT_MOST)
        predicate = (LESS if below else AT_LEAST) if value < 0 else (AT_MOST if below else GREATER)
    limit = ConstantOp(integer(kind, whole))
    return limit, CmpiOp(made.operands[0], limit.result, predicate + UNSIGNED * (unsigned and predicate >= LESS))


def _may_round(value: float, bits: int, unsigned: bool, form: Format) -> bool:
    """Whether integers near a constant, or so large that they become infinity, are rounded when they become floats."""
    if bits <= form.digits:
        return False
    if math.isinf(value):
        return 1 - form.least < bits - (not unsigned)
    return value != 0 and form.digits <= math.frexp(value)[1] - 1 <= bits - (not unsigned)


def _truth(holds: bool) -> Made:
    return (ConstantOp(integer(IntegerType(1), int(holds))),)


def without_negations(op: Operation) -> Made | None:
    """A product or quotient of two negated floats without the negations."""
    left, right = (maker(value, "arith.negf") for value in op.operands)
    if left is None or right is None:
        return None
    return with_operands(op, left.operands[0], right.operands[0])


CASTS: dict[str, Sequence[Callable[[Operation], Made | None]]] = {
    "arith.extui": (extend_once,),
    "arith.extsi": (extend_once,),
    "arith.trunci": (truncate_once,),
    "arith.index_cast": (index_of_extension,),
    "arith.truncf": (convert_once,),
    **dict.fromkeys(("arith.mulf", "arith.divf"), (without_negations,)),
    "arith.cmpf": (compare_integers,),
    "arith.cmpi": (compare_before_extension,),
    **dict.fromkeys(("arith.andi", "arith.ori", "arith.xori"), (combine_before_extension,)),
}
"""The rewrites of an op, tried in order after those of `algebra`."""
