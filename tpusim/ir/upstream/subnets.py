"""Cuts the function of a network into those of TPU-MLIR, one for each place where ops run one after another.

Ops state name and run mode of their function (`FUNCTION`). `cut` undoes `tpusim.ir.functions.merge_functions`, but
numbers the functions in the order of execution.
"""

from collections.abc import Iterable

from xdsl.dialects.builtin import DenseArrayBase, LocationAttr, i32
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from tpusim.ir.attrs import int_attr
from tpusim.ir.functions import HOST, RUN_MODE, SUBNET, Function, function_of, functions_of, is_host_function
from tpusim.ir.opaque import opaque_mode
from tpusim.ir.upstream.spelling import FUNCTION

INPUT, CONSTANTS = "top.Input", ("top.Weight", "top.None")
IN_NO_FUNCTION = (INPUT, *CONSTANTS)
"""Ops that state no function: inputs stay in the network's, and constants go where they are read."""
NAME = "subfunc_"


def functions_in(main: FuncOp) -> tuple[Function, ...]:
    """The functions that the ops of a network belong to; inputs and constants belong to none."""
    ops = (op for op in main.body.block.ops if op.name not in IN_NO_FUNCTION)
    return functions_of(op for op in ops if not isinstance(op, ReturnOp))


def cut(main: FuncOp) -> list[FuncOp]:
    """Move all ops but the inputs out of a function into functions that it calls."""
    found, places = functions_in(main), dict[SSAValue, LocationAttr]()
    block = main.body.block
    last = block.last_op
    assert isinstance(last, ReturnOp)
    names = [part.name if _is_of_host(part) else f"{NAME}{number}" for number, part in enumerate(found)]
    subnets = [_moved(last, set(part.ops), name, places) for name, part in zip(names, found, strict=True)]
    for number, (part, subnet) in enumerate(zip(found, subnets, strict=True)):
        following = -1 if number == len(found) - 1 else number + 1
        subnet.attributes.update(subnet_attributes(number, part.run_mode or SUBNET[1], following))
    return subnets


def outlined(main: FuncOp) -> list[FuncOp]:
    """Move the ops of host functions out of a function into functions that it calls; other ops stay."""
    found, places = [part for part in functions_in(main) if _is_of_host(part)], dict[SSAValue, LocationAttr]()
    functions: list[FuncOp] = []
    for part in found:
        following = part.ops[-1].next_op
        assert following is not None
        functions.append(_moved(following, set(part.ops), part.name, places))
        functions[-1].attributes[RUN_MODE] = opaque_mode("tpu.run_mode", part.run_mode)
    return functions


def has_host_functions(main: FuncOp) -> bool:
    """Whether ops of a network belong to host functions that tpusim outlined."""
    return any(is_host_function(*function_of(op)) for op in main.body.block.ops)


def _is_of_host(part: Function) -> bool:
    return is_host_function(part.name, part.run_mode)


def subnet_attributes(number: int, mode: str, following: int) -> dict[str, Attribute]:
    """What TPU-MLIR states of a function: its number, where it runs, and the number of the next one, -1 for none."""
    return {
        "id": int_attr(number),
        "mode": opaque_mode("tpu.run_mode", mode),
        "next_index": DenseArrayBase.from_list(i32, [following]),
    }


def _moved(following: Operation, ops: set[Operation], name: str, places: dict[SSAValue, LocationAttr]) -> FuncOp:
    """Move ops with their constants from a block into a function, and call it before `following`, an op of the block.

    places: the locations of the values that calls return, to which those of this call are added.
    """
    block = following.parent
    assert block is not None
    members = list(_members(block, ops))
    inside = set(members)
    given = [v for v in _values(block) if v.owner not in inside and _read_in(v, block, inside)]
    left = [v for op in members for v in op.results if any(_top(use.operation, block) not in inside for use in v.uses)]
    body = Block(arg_types=[value.type for value in given])
    for op in members:
        op.detach()
        body.add_op(op)
        if is_host_function(*function_of(op)):
            del op.attributes[FUNCTION]  # the function says it
    body.add_op(ReturnOp(*left))
    for value, argument in zip(given, body.args, strict=True):
        value.replace_uses_with_if(argument, lambda use: _top(use.operation, body) is not None)
        argument.location = places.get(value, argument.location)
        if value not in places and isinstance(value.owner, Operation):
            argument.location = value.owner.location
    types = [value.type for value in left]
    call = CallOp(name, given, types)
    block.insert_op_before(call, following)
    for value, result in zip(left, call.results, strict=True):
        value.replace_uses_with_if(result, lambda use: _top(use.operation, body) is None)
        result.name_hint = None  # a call has no name
        places[result] = value.owner.location
    signature = [value.type for value in given], types
    return FuncOp(name, signature, Region(body), "private" if is_host_function(name, HOST[1]) else None)


def _members(block: Block, ops: set[Operation]) -> Iterable[Operation]:
    """The ops and the constants that they read, in order; of a constant that others read, too, a copy."""
    for op in list(block.ops):
        if op in ops:
            yield op
        elif op.name in CONSTANTS and _read_in(op.results[0], block, ops):
            if all(_top(use.operation, block) in ops for use in op.results[0].uses):
                yield op
                continue
            copy = op.clone()
            block.insert_op_before(copy, op)
            op.results[0].replace_uses_with_if(copy.results[0], lambda use: _top(use.operation, block) in ops)
            yield copy


def _values(block: Block) -> Iterable[SSAValue]:
    return (value for op in block.ops for value in op.results)


def _read_in(value: SSAValue, block: Block, ops: set[Operation]) -> bool:
    return any(_top(use.operation, block) in ops for use in value.uses)


def _top(op: Operation, block: Block) -> Operation | None:
    """The op of a block that an op is, or is inside of; None if it is elsewhere."""
    current: Operation | None = op
    while current is not None and current.parent is not block:
        current = current.parent_op()
    return current
