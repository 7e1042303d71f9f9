"""Absent operands: TPU-MLIR writes `top.None` for each operand of an op that is not given, tpusim leaves them out.

In memory an op has the operands that it computes with. Files have all that TPU-MLIR's op has: `completed` makes the
module that is written, and `drop_absent` undoes it for a module that was read.
"""

from collections.abc import Iterator
from functools import cache

from xdsl.dialects.builtin import ModuleOp, NoneType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import IRDLOperation, OptOperandDef, VarOperandDef, traits_def

from tpusim.ir.upstream.table import entry

NONE = "top.None"


class _None(Operation):
    """`top.None` in a module that is only printed."""

    name = NONE
    traits = traits_def()


def completed(module: ModuleOp) -> ModuleOp:
    """The module with all operands of TPU-MLIR's ops: itself if none is missing, else a copy."""
    if not any(_missing(op) for op in module.walk()):
        return module
    module = module.clone()
    for function in module.walk():
        if isinstance(function, FuncOp):
            _complete(function)
    return module


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
    return max(_count(op.name) - len(op.operands), 0) if isinstance(op, IRDLOperation) else 0


@cache
def _count(name: str) -> int:
    """The number of operands that TPU-MLIR's op has at least; 0 if it is open."""
    known = entry(name)
    return 0 if known is None or known.variadic else sum(not operand.missing for operand in known.operands)


def drop_absent(module: ModuleOp) -> None:
    """Remove the absent operands at the end of every op's list, as far as its class has none for them."""
    nones = set[Operation]()
    for op in module.walk():
        if isinstance(op, IRDLOperation) and entry(op.name) is not None:
            nones.update(_drop(op))
    for none in nones:
        if none.name == NONE and not any(result.uses for result in none.results):
            none.detach()
            none.erase()


def _drop(op: IRDLOperation) -> Iterator[Operation]:
    """Remove the absent operands at the end of the list; the ops that make them."""
    kept, fixed = len(op.operands), _fixed(type(op))
    while kept > fixed and _is_absent(op.operands[kept - 1]):
        kept -= 1
        if isinstance(maker := op.operands[kept].owner, Operation):
            yield maker
    if kept < len(op.operands):
        op.operands = op.operands[:kept]


def _is_absent(value: SSAValue) -> bool:
    return isinstance(value.type, NoneType)


@cache
def _fixed(kind: type[IRDLOperation]) -> int:
    """The number of operands that an op of the class always has."""
    operands = (definition for _, definition in kind.get_irdl_definition().operands)
    return sum(not isinstance(operand, VarOperandDef | OptOperandDef) for operand in operands)
