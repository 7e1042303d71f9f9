"""Constants: ops of constants folded into constants, and each constant once at the head of its function."""

import operator
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import cast

from xdsl.context import Context
from xdsl.dialect_interfaces.constant_materialization import ConstantMaterializationInterface
from xdsl.dialects.builtin import UnregisteredOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue, TypeAttribute
from xdsl.traits import ConstantLike, HasFolder, IsolatedFromAbove

from tpusim.ir.generic import arith, floats

Folded = Sequence[SSAValue | Attribute]


def is_constant(op: Operation) -> bool:
    """Whether an op is a constant that folders know."""
    return op.has_trait(ConstantLike, value_if_unregistered=False)


def folded(op: Operation, constants: Sequence[Attribute | None]) -> Folded | None:
    """What an op's results are, given the constants of its operands; None if it stays."""
    if is_constant(op) or isinstance(op, UnregisteredOp):
        return None
    for fold in arith.FOLDS.get(op.name) or floats.FOLDS.get(op.name, ()):
        found = fold(op, constants)
        if found is not None:
            return (found,)
    folder = op.get_trait(HasFolder)
    return None if folder is None else folder.fold(op)


def constants_of(op: Operation) -> list[Attribute | None]:
    """The constants of an op's operands."""
    return [ConstantLike.get_constant_value(value) for value in op.operands]


def fold(root: Operation, ctx: Context) -> None:
    """Fold every op inside `root` that can be, in order, so that constants reach as far as they go."""
    for op in [one for one in root.walk() if one is not root]:
        found = replacements(op, ctx)
        if found is not None:
            made, values = found
            assert op.parent is not None
            op.parent.insert_ops_before(made, op)
            for result, value in zip(op.results, values, strict=True):
                result.replace_all_uses_with(value)
                value.name_hint = value.name_hint or result.name_hint
            op.detach()
            op.erase()


def replacements(op: Operation, ctx: Context) -> tuple[list[Operation], list[SSAValue]] | None:
    """New constants, not inserted, and the values in place of an op's results; None if it does not fold."""
    found = folded(op, constants_of(op))
    if found is None:
        return None
    made: list[Operation] = []
    values: list[SSAValue] = []
    for one, result in zip(found, op.results, strict=True):
        if isinstance(one, Attribute):
            constant = new_constant(one, result.type, op.dialect_name(), ctx)
            if constant is None:
                return None
            made.append(constant)
            one = constant.results[0]
        values.append(one)
    return None if any(map(operator.is_, values, op.results)) else (made, values)


def new_constant(value: Attribute, kind: Attribute, namespace: str, ctx: Context) -> Operation | None:
    """A constant as a dialect makes it, None if it makes none."""
    interface = ctx.get_dialect(namespace).get_interface(ConstantMaterializationInterface)
    return None if interface is None else interface.materialize_constant(value, cast("TypeAttribute", kind))


def gather_constants(region: Region) -> bool:
    """Move the constants of a region of an isolated op to its head, equal ones as one; return whether any changed."""
    if region.first_block is None:
        return False
    seen: dict[tuple[object, ...], Operation] = {}
    changed = False
    for op in list(_constants_in(region)):
        key = (op.name, frozenset(op.properties.items()), frozenset(op.attributes.items()), tuple(op.result_types))
        kept = seen.setdefault(key, op)
        if kept is op:
            continue
        for old, new in zip(op.results, kept.results, strict=True):
            old.replace_all_uses_with(new)
        op.detach()
        op.erase()
        changed = True
    head = set(takewhile(is_constant, region.first_block.ops))
    moved = [op for op in reversed(seen.values()) if op not in head]
    for op in moved:
        _move_to_head(op, region.first_block)
    return changed or bool(moved)


def _move_to_head(op: Operation, block: Block) -> None:
    op.detach()
    if block.first_op is None:
        block.add_op(op)
    else:
        block.insert_op_before(op, block.first_op)


def _constants_in(region: Region) -> Iterator[Operation]:
    for block in region.blocks:
        for op in block.ops:
            if is_constant(op):
                yield op
            elif not op.has_trait(IsolatedFromAbove):
                for inner in op.regions:
                    yield from _constants_in(inner)
