"""Affine maps and integer sets: expressions in prefix order."""

from xdsl.ir.affine import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineConstraintExpr,
    AffineConstraintKind,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    AffineSet,
    AffineSymExpr,
)

from tpusim.ir.bytecode.cursor import Cursor
from tpusim.ir.bytecode.forms import Codec, Output, Tables
from tpusim.ir.bytecode.varints import signed, varint

DEEPEST = 100
"""Levels of an expression."""
IDENTITY, PERMUTATION, DIMENSIONS, ANY = range(4)
"""How a map is written, the shortest that fits."""
RESULT = 120
"""Bytes that a result of an identity map takes, of which the file has none."""
BINARY = {
    3: AffineBinaryOpKind.Add,
    4: AffineBinaryOpKind.Mul,
    5: AffineBinaryOpKind.Mod,
    6: AffineBinaryOpKind.FloorDiv,
    7: AffineBinaryOpKind.CeilDiv,
}
TAGS = {kind: tag for tag, kind in BINARY.items()}


def _read_expression(cursor: Cursor, dims: int, symbols: int, depth: int = 0) -> AffineExpr:
    if depth > DEEPEST:
        cursor.fail(f"an affine expression of at most {DEEPEST} levels is required")
    tag = cursor.varint()
    if tag in (0, 1):
        number, limit = cursor.varint(), (dims, symbols)[tag]
        if number >= limit:
            cursor.fail(f"{('dimension', 'symbol')[tag]} {number:,} of {limit:,} does not exist")
        return AffineSymExpr(number) if tag else AffineDimExpr(number)
    if tag == 2:
        return AffineConstantExpr(cursor.signed())
    if tag not in BINARY:
        cursor.fail(f"an affine expression of tag 0 to 7 is required, got {tag}")
    left = _read_expression(cursor, dims, symbols, depth + 1)
    return AffineBinaryOpExpr(BINARY[tag], left, _read_expression(cursor, dims, symbols, depth + 1))


def encoded(expression: AffineExpr) -> bytes:
    """An expression in prefix order. Raises TypeError for one of another class."""
    if isinstance(expression, AffineDimExpr):
        return varint(0) + varint(expression.position)
    if isinstance(expression, AffineSymExpr):
        return varint(1) + varint(expression.position)
    if isinstance(expression, AffineConstantExpr):
        return varint(2) + signed(expression.value)
    if isinstance(expression, AffineBinaryOpExpr):
        return varint(TAGS[expression.kind]) + encoded(expression.lhs) + encoded(expression.rhs)
    raise TypeError(f"an affine expression is required, got {expression}")


def _count(cursor: Cursor, value: int, what: str) -> int:
    """A number of dimensions or symbols, which need no bytes: bounded like a rank."""
    if value > 1 << 12:
        cursor.fail(f"at most 4,096 {what} are required, got {value:,}")
    return value


def _read_map(cursor: Cursor, tables: Tables) -> AffineMap:
    head = cursor.varint()
    dims, kind = _count(cursor, head >> 2, "dimensions"), head & 3
    if kind == IDENTITY:
        if not tables.spend(RESULT * dims):
            cursor.fail(f"identity maps of fewer dimensions are required, this one has {dims:,}")
        return AffineMap.identity(dims)
    if kind == ANY:
        symbols = _count(cursor, cursor.varint(), "symbols")
        number = cursor.count("expressions", 2)
        return AffineMap(dims, symbols, tuple(_read_expression(cursor, dims, symbols) for _ in range(number)))
    number = dims if kind == PERMUTATION else cursor.count("dimensions")
    positions = [cursor.varint() for _ in range(number)]
    if any(position >= dims for position in positions):
        cursor.fail(f"dimensions below {dims} are required, got {positions}")
    return AffineMap(dims, 0, tuple(map(AffineDimExpr, positions)))


def _write_map(value: AffineMap, out: Output) -> None:
    dims = value.num_dims
    positions = [result.position for result in value.results if isinstance(result, AffineDimExpr)]
    if value.num_symbols or len(positions) != len(value.results):
        out.raw(varint(dims << 2 | ANY) + varint(value.num_symbols) + varint(len(value.results)))
        out.raw(b"".join(map(encoded, value.results)))
    elif positions == list(range(dims)):
        out.raw(varint(dims << 2 | IDENTITY))
    elif sorted(positions) == list(range(dims)):
        out.raw(varint(dims << 2 | PERMUTATION) + b"".join(map(varint, positions)))
    else:
        out.raw(varint(dims << 2 | DIMENSIONS) + varint(len(positions)) + b"".join(map(varint, positions)))


MAP = Codec(_read_map, _write_map)


def _read_set(cursor: Cursor, _: Tables) -> AffineSet:
    dims = _count(cursor, cursor.varint(), "dimensions")
    symbols = _count(cursor, cursor.varint(), "symbols")
    left = [_read_expression(cursor, dims, symbols) for _ in range(cursor.count("constraints", 3))]
    kinds = [AffineConstraintKind.eq if cursor.boolean() else AffineConstraintKind.ge for _ in left]
    zero = AffineConstantExpr(0)
    constraints = (AffineConstraintExpr(kind, side, zero) for kind, side in zip(kinds, left, strict=True))
    return AffineSet(dims, symbols, tuple(constraints))


def _write_set(value: AffineSet, out: Output) -> None:
    out.raw(varint(value.num_dims) + varint(value.num_symbols) + varint(len(value.constraints)))
    out.raw(b"".join(encoded(_side(constraint)) for constraint in value.constraints))
    out.raw(bytes(constraint.kind is AffineConstraintKind.eq for constraint in value.constraints))


def _side(constraint: AffineConstraintExpr) -> AffineExpr:
    """The expression that is zero, or not negative."""
    left, right = constraint.lhs, constraint.rhs
    if constraint.kind is AffineConstraintKind.le:
        left, right = right, left
    if right == AffineConstantExpr(0):
        return left
    less = AffineBinaryOpExpr(AffineBinaryOpKind.Mul, right, AffineConstantExpr(-1))
    return AffineBinaryOpExpr(AffineBinaryOpKind.Add, left, less)


SET = Codec(_read_set, _write_set)
