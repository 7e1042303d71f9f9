"""Modules of several functions, read as one function in the order of execution.

TPU-MLIR cuts a lowered module into functions, one for each part that runs without the host (`@subfunc_0` ...), and puts
the functions of a device into a module inside the module. A pass of tpusim sees one function, `@main`:
`merge_functions` puts the body of each function in the place of its call, and the attributes of the inner module on the
outer one. Every op of a function with a run mode keeps name and mode of its function (`tpusim.function`), so that
`functions_of` gives them back, and so do the groups of the program.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, IntegerAttr, ModuleOp, StringAttr, UnregisteredAttr
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation

from tpusim.errors import ImportModelError
from tpusim.ir.attrs import texts_attr
from tpusim.ir.upstream.spelling import FUNCTION

MAIN = "main"
SUBNETS = "subfunc_"
"""How the names of the functions begin that TPU-MLIR makes of a network."""
SUBNET = f"{SUBNETS}0", "TPU_STATIC"
"""Name and run mode of the function of a network that is not cut."""
HOST = "host_", "CPU"
"""How the names of host functions of tpusim begin, and their run mode; other ops are of a network that is not cut."""
RUN_MODE = "mode"
"""The attribute of a function that says where it runs, as in `#tpu<run_mode TPU_STATIC>`."""
RUN_MODES = ("", "TPU_STATIC", "TPU_DYNAMIC", "CPU")
"""The modes of functions that run once."""


_CONSTANTS = ("top.Weight", "top.None")


@dataclass(frozen=True)
class Function:
    """Ops of a network that run one after another in one place.

    run_mode: TPU-MLIR's word for where it runs, TPU_STATIC, TPU_DYNAMIC, CPU ...; "" in a module that it has not cut.
    """

    name: str
    run_mode: str
    ops: tuple[Operation, ...]


def functions_of(ops: Iterable[Operation]) -> tuple[Function, ...]:
    """The functions of a network in the order of execution. ops: those of its body, without constants and inputs."""
    runs = groupby(ops, key=function_of)
    return tuple(Function(*stated, tuple(run)) for stated, run in runs)


def function_of(op: Operation) -> tuple[str, str]:
    """Name and run mode of the function that an op belongs to."""
    stated = op.attributes.get(FUNCTION)
    if not isinstance(stated, ArrayAttr):
        return MAIN, ""
    words = [word.data for word in cast("ArrayAttr[Attribute]", stated) if isinstance(word, StringAttr)]
    return (words[0], words[1]) if len(words) == 2 else (MAIN, "")  # noqa: PLR2004  name and mode


def is_host_function(name: str, run_mode: str) -> bool:
    """Whether tpusim outlined a function for the host."""
    return name.startswith(HOST[0]) and run_mode == HOST[1]


def merge_functions(module: ModuleOp, name: str) -> None:
    """Make a module of several functions or with an inner module one of `@main`; any other stays as it is.

    Functions that nothing calls stay. Raises ImportModelError for calls in a circle, of nothing or with other types,
    for two functions of one name, and for several inner modules.
    """
    inner = [op for op in module.ops if isinstance(op, ModuleOp)]
    if not inner and not any(isinstance(op, CallOp) for op in module.walk()):
        return
    if len(inner) > 1:
        raise ImportModelError(
            f"module '{name}': at most one module inside it is read, got {len(inner)}, as for {len(inner)} devices; "
            "compile it for one device"
        )
    if inner:
        _unpack(inner[0], module)
    functions = _functions(module, name)
    called = set[str]()
    if MAIN in functions:
        _order_calls(functions[MAIN], functions)
        _expand(functions[MAIN], functions, (MAIN,), called, name)
    of_chip = [name for name in called if not is_host_function(name, _run_mode(functions[name]))]
    if len(called) == 1 or len(of_chip) < len(called):  # a network that is not cut, but for host functions
        _unmark(functions[MAIN], of_chip)
    for symbol in called:
        functions[symbol].detach()
        functions[symbol].erase()


def merge_host_functions(module: ModuleOp, name: str) -> None:
    """Put the bodies of host functions of tpusim in the place of their calls; other functions stay functions.

    Raises ImportModelError as `merge_functions`.
    """
    functions = _functions(module, name)
    of_host = {s for s, function in functions.items() if is_host_function(s, _run_mode(function))}
    if MAIN not in functions or not of_host:
        return
    called = set[str]()
    _expand(functions[MAIN], functions, (MAIN,), called, name, of_host)
    for symbol in called:
        functions[symbol].detach()
        functions[symbol].erase()


def _unpack(inner: ModuleOp, module: ModuleOp) -> None:
    """Move functions and attributes of the inner module to the outer one."""
    for op in list(inner.ops):
        op.detach()
        module.body.block.insert_op_before(op, inner)
    module.attributes.update(inner.attributes)
    inner.detach()
    inner.erase()


def _functions(module: ModuleOp, name: str) -> dict[str, FuncOp]:
    """The functions of a module by name. Raises ImportModelError for two of one name."""
    found: dict[str, FuncOp] = {}
    for op in module.ops:
        if isinstance(op, FuncOp):
            symbol = op.sym_name.data
            if symbol in found:
                raise ImportModelError(
                    f"module '{name}': one function @{symbol} is required, got two; rename one of them"
                )
            found[symbol] = op
    return found


def _order_calls(main: FuncOp, functions: dict[str, FuncOp]) -> None:
    """Put calls into the order of execution, which each function states by the number of the next one (`next_index`).

    The text has another order where the host computes between two functions of the chip. Calls stay as they are if a
    function says nothing.
    """
    block = main.body.block
    calls = [op for op in block.ops if isinstance(op, CallOp)]
    stated = [_successor(functions.get(call.callee.root_reference.data)) for call in calls]
    successor = dict(found for found in stated if found is not None)
    number, order = min(successor.keys() - successor.values(), default=-1), list[int]()
    while number in successor and number not in order:
        order.append(number)
        number = successor[number]
    if len(order) < len(calls) or block.last_op is None:
        return
    by_number = {found[0]: call for found, call in zip(stated, calls, strict=True) if found is not None}
    for number in order:
        by_number[number].detach()
        block.insert_op_before(by_number[number], block.last_op)


def _successor(function: FuncOp | None) -> tuple[int, int] | None:
    """The number of a function and that of the only one which runs next, -1 after the last; None if not stated."""
    attributes = {} if function is None else function.attributes
    number, following = attributes.get("id"), attributes.get("next_index")
    if not isinstance(number, IntegerAttr) or not isinstance(following, DenseArrayBase):
        return None
    successors = following.get_values()
    return (number.value.data, int(successors[0])) if len(successors) == 1 else None


def _expand(
    caller: FuncOp,
    functions: dict[str, FuncOp],
    stack: tuple[str, ...],
    called: set[str],
    name: str,
    only: Container[str] | None = None,
) -> None:
    """Replace a function's calls by the bodies of what it calls, whose names are added to `called`.

    only: the functions whose calls are replaced; None: all.
    """
    from tpusim.ir.generic.inlining import inline_call  # noqa: PLC0415  it knows weights, which are of modules

    for call in [op for op in caller.walk() if isinstance(op, CallOp)]:
        symbol = call.callee.root_reference.data
        if only is not None and symbol not in only:
            continue
        _require_sense(call, functions.get(symbol), stack, name)
        callee = functions[symbol]
        _expand(callee, functions, (*stack, symbol), called, name, only)
        _mark(callee)
        inline_call(call, callee)
        called.add(symbol)


def _run_mode(function: FuncOp) -> str:
    """The run mode of a function; "" if it has none."""
    mode = function.attributes.get(RUN_MODE)
    return mode.value.data.strip() if isinstance(mode, UnregisteredAttr) else ""


def _mark(function: FuncOp) -> None:
    """State name and run mode of a function in its ops but the constants, if it has a run mode."""
    if mode := _run_mode(function):
        stated = texts_attr([function.sym_name.data, mode])
        for op in function.body.block.ops:
            if op.results and op.name not in _CONSTANTS:
                op.attributes.setdefault(FUNCTION, stated)


def _unmark(main: FuncOp, names: Sequence[str]) -> None:
    """Leave out the function of every op where it is one of these, which run on the chip."""
    stated = [texts_attr([name, SUBNET[1]]) for name in names if name.startswith(SUBNETS)]
    for op in main.body.block.ops:
        if op.attributes.get(FUNCTION) in stated:
            del op.attributes[FUNCTION]


def _require_sense(call: CallOp, callee: FuncOp | None, stack: Sequence[str], name: str) -> None:
    """Raise ImportModelError for a call that cannot be expanded; it names caller and function."""
    symbol = call.callee.root_reference.data
    where = f"module '{name}': the call of @{symbol} in @{stack[-1]}"
    if symbol in stack:
        circle = " calls ".join(f"@{part}" for part in (*stack[stack.index(symbol) :], symbol))
        raise ImportModelError(f"{where}: functions that end are required, but {circle}; remove one of these calls")
    if callee is None:
        raise ImportModelError(
            f"{where}: a function of that name is required, there is none; add it or remove the call"
        )
    if (mode := _run_mode(callee)) not in RUN_MODES:
        known = ", ".join(filter(None, RUN_MODES))
        raise ImportModelError(
            f"{where}: a run mode among {known} is required, @{symbol} has {mode}: how often it runs depends on data; "
            "compile the network without If and Loop"
        )
    if callee.is_declaration or len(callee.body.blocks) != 1:
        blocks = len(callee.body.blocks)
        raise ImportModelError(f"{where}: a function with one block is required, @{symbol} has {blocks}; define it")
    last = callee.body.block.last_op
    if not isinstance(last, ReturnOp):
        found = "no op" if last is None else last.name
        raise ImportModelError(
            f"{where}: a function that ends with func.return is required, got {found}; return the results"
        )
    for what, given, wanted in (
        ("arguments", [v.type for v in call.arguments], callee.function_type.inputs.data),
        ("results", [v.type for v in call.results], callee.function_type.outputs.data),
        ("results", [v.type for v in call.results], [v.type for v in last.operands]),
    ):
        if list(given) != list(wanted):
            raise ImportModelError(
                f"{where} has {what} of {_listed(given)}, @{symbol} is of {_listed(wanted)}; give both the same types"
            )


def _listed(types: Sequence[Attribute]) -> str:
    return ", ".join(map(str, types)) or "no type"
