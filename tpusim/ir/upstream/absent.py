"""Absent operands and results: TPU-MLIR writes `top.None` for each operand of an op that is not given, and the type
`none` for each result that is not computed; tpusim leaves both out.

In memory an op has the operands and results that it computes with. Files have all that TPU-MLIR's op has: `completed`
makes the module that is written, and `drop_absent` undoes it for a module that was read.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from xdsl.dialects.builtin import ModuleOp, NoneType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation, OptOperandDef, VarOperandDef, traits_def
from xdsl.rewriter import Rewriter

from tpusim.ir.attrs import name_location, op_name
from tpusim.ir.opaque import opaque_mode, replaced_by
from tpusim.ir.upstream.spelling import BUFFER, Spelled, as_stated
from tpusim.ir.upstream.table import entry

NONE = "top.None"
SCRATCH = "tpu.Buffer"
"""Global memory for intermediate values of one op, which TPU-MLIR states as an operand, and tpusim as the attribute
`BUFFER`: commands here use none."""
LAST = -1
"""The place of a buffer after an open number of operands."""


class _None(Operation):
    """`top.None` in a module that is only printed."""

    name = NONE
    traits = traits_def()


class _Buffer(Operation):
    """`tpu.Buffer` in a module that is only printed."""

    name = SCRATCH
    traits = traits_def()


def completed(module: ModuleOp) -> ModuleOp:
    """The module with all operands and results of TPU-MLIR's ops: itself if none is missing, else a copy."""
    if not any(map(_is_incomplete, module.walk())):
        return module
    module = module.clone()
    for op in list(module.walk()):
        if written := _written_as(op):
            name, attributes = written
            replaced_by(op, _class_of(name), as_stated(name, {**op.attributes, **attributes}))
    for op in [op for op in module.walk() if _lacks_results(op)]:
        known, places = entry(op.name), _places(op)
        assert known is not None
        given = {place: result.type for place, result in zip(places, op.results, strict=True)}
        _with_results(
            op, [given.get(place, NoneType()) for place in range(len(known.results))], dict(enumerate(places))
        )
    for function in module.walk():
        if isinstance(function, FuncOp):
            _complete(function)
    for op in list(module.walk()):
        if _has_buffer(op):
            _state_buffer(op)
    return module


def _is_incomplete(op: Operation) -> bool:
    return bool(_missing(op) or _lacks_results(op) or _written_as(op)) or _has_buffer(op)


def _has_buffer(op: Operation) -> bool:
    return BUFFER in op.attributes and _place_of_buffer(op.name) is not None


def _state_buffer(op: Operation) -> None:
    """Write the room that an op has in global memory as the op `tpu.Buffer` before it."""
    block, place = op.parent, _place_of_buffer(op.name)
    assert block is not None and place is not None
    buffer = _Buffer.create(
        result_types=[op.attributes.pop(BUFFER)],
        attributes={"buffer_type": opaque_mode("tpu.buffer_type", "GMEM")},
        location=name_location(f"{op_name(op)}_buffer"),
    )
    block.insert_op_before(buffer, op)
    if place == LAST:
        op.operands = [*op.operands, *buffer.results]
        return
    absent = op.operands[place].owner
    op.operands[place] = buffer.results[0]
    if isinstance(absent, Operation) and absent.name == NONE and not absent.results[0].uses:
        absent.detach()
        absent.erase()


@cache
def _place_of_buffer(name: str) -> int | None:
    """The number of the operand that is room in global memory, or LAST; None if TPU-MLIR's op has none."""
    known = entry(name)
    names = () if known is None else tuple(operand.name for operand in known.operands if not operand.missing)
    if known is None or "buffer" not in names:
        return None
    return LAST if known.variadic else names.index("buffer")


def _written_as(op: Operation) -> tuple[str, Mapping[str, Attribute]] | None:
    return type(op).WRITTEN_AS if isinstance(op, Spelled) else None


@cache
def _class_of(name: str) -> type[Operation]:
    """The class of ops of a name in a module that is only printed."""
    return type(f"Written_{name.replace('.', '_')}", (Operation,), {"name": name, "traits": traits_def()})


def _complete(function: FuncOp) -> None:
    incomplete = [(op, count) for op in function.walk() if (count := _missing(op))]
    if incomplete:
        none = _None.create(result_types=[NoneType()])
        block = function.body.block
        assert block.first_op is not None
        block.insert_op_before(none, block.first_op)
        for op, count in incomplete:
            op.operands = [*op.operands, *none.results * count]


def _missing(op: Operation) -> int:
    """The number of operands that the op lacks."""
    known = isinstance(op, IRDLOperation) or _has_buffer(op)  # an op of no class has what it was read with
    return max(_count(op.name) - len(op.operands), 0) if known else 0


@cache
def _count(name: str) -> int:
    """The number of operands that TPU-MLIR's op has at least; 0 if it is open."""
    known = entry(name)
    return 0 if known is None or known.variadic else sum(not operand.missing for operand in known.operands)


def drop_absent(module: ModuleOp) -> None:
    """Remove the absent operands at the end of every op's list, and absent results, as far as its class has none."""
    nones = set[Operation]()
    for op in list(module.walk()):
        if isinstance(op, IRDLOperation) and entry(op.name) is not None:
            nones.update(_drop(op))
            _drop_results(op)
    for none in nones:
        if none.name in (NONE, SCRATCH) and not any(result.uses for result in none.results):
            none.detach()
            none.erase()


def _drop(op: IRDLOperation) -> Iterator[Operation]:
    """Remove the absent operands at the end of the list, keep the type of a buffer; the ops that made them."""
    yield from _drop_buffer(op)
    kept, fixed = len(op.operands), _fixed(type(op))
    while kept > fixed and (_is_absent(op.operands[kept - 1]) or _is_scratch(op.operands[kept - 1])):
        kept -= 1
        if isinstance(maker := op.operands[kept].owner, Operation):
            yield maker
    if kept < len(op.operands):
        op.operands = op.operands[:kept]


def _drop_buffer(op: IRDLOperation) -> Iterator[Operation]:
    """State the buffer of an op as an attribute. If the class always has the operand, an absent one takes its place."""
    place = next((number for number, value in enumerate(op.operands) if _is_scratch(value)), None)
    if place is None or _place_of_buffer(op.name) is None:
        return
    buffer = op.operands[place]
    absent = next(filter(_is_absent, reversed(op.operands)), None)  # all that follow a buffer have the same one
    op.attributes[BUFFER] = buffer.type
    if place < _fixed(type(op)) and absent and isinstance(buffer.owner, Operation):
        op.operands[place] = absent
        yield buffer.owner


def _drop_results(op: IRDLOperation) -> None:
    """Remove the results that the class of an op does not have, if all of them are absent."""
    places = _places(op)
    more = [result for place, result in enumerate(op.results) if place not in places]
    if places and more and all(_is_absent(result) and not result.uses for result in more):
        kept = {place: number for number, place in enumerate(places) if place < len(op.results)}
        _with_results(op, [op.results[place].type for place in kept], kept)


def _with_results(op: Operation, types: Sequence[Attribute], moved: Mapping[int, int]) -> None:
    """Replace an op by one with results of these types. moved: number of a result -> its number among the new ones."""
    new = type(op).create(
        operands=list(op.operands),
        result_types=types,
        properties=op.properties,
        attributes=op.attributes,
        location=op.location,
        regions=[op.detach_region(region) for region in list(op.regions)],
    )
    results = [new.results[moved[i]] if i in moved else None for i in range(len(op.results))]
    for old, result in zip(op.results, results, strict=True):
        if result is not None:
            result.name_hint = old.name_hint
    Rewriter.replace_op(op, new, results)


def _lacks_results(op: Operation) -> bool:
    """Whether TPU-MLIR's op has results that the op does not have."""
    return isinstance(op, IRDLOperation) and 0 < len(op.results) < _results(op.name) and len(_places(op)) > 0


@cache
def _results(name: str) -> int:
    """The number of results that TPU-MLIR's op has at least."""
    known = entry(name)
    return 0 if known is None else sum(not result.missing for result in known.results)


def _places(op: Operation) -> tuple[int, ...]:
    """The numbers that the results of an op have among those of TPU-MLIR's op; () if they are not known."""
    known = entry(op.name)
    if known is None or not isinstance(op, Spelled) or any(result.variadic for result in known.results):
        return ()
    names = [result.name for result in known.results]
    return tuple(names.index(name) if name in names else number for number, name in enumerate(op.result_names()))


def _is_scratch(value: SSAValue) -> bool:
    return isinstance(value.owner, Operation) and value.owner.name == SCRATCH


def _is_absent(value: SSAValue) -> bool:
    return isinstance(value.type, NoneType)


@cache
def _fixed(kind: type[IRDLOperation]) -> int:
    """The number of operands that an op of the class always has."""
    operands = (definition for _, definition in kind.get_irdl_definition().operands)
    return sum(not isinstance(operand, VarOperandDef | OptOperandDef) for operand in operands)
