"""Inlining: calls of functions whose bodies are known, callees before their callers."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import BlockInsertPoint, InsertPoint, Rewriter

from tpusim.ir.attrs import copy_name, op_name, set_op_name
from tpusim.ir.generic.symbols import is_public, referred
from tpusim.ir.module import is_weight

MOST_ROUNDS = 4
"""As often as MLIR simplifies a function and inlines into it."""


def inline_calls(module: ModuleOp, simplify: Callable[[Operation], None]) -> None:
    """Inline the calls in every function of a module; private functions that nobody calls any more go.

    simplify: what is done to a function before its calls are inlined, and after, as MLIR does. Calls of functions that
    call each other in a circle stay, those in a region of one block if the callee has several, and those of functions
    that say `no_inline`.
    """
    _Inliner(module, simplify).run()


class _Inliner:
    def __init__(self, module: ModuleOp, simplify: Callable[[Operation], None]) -> None:
        self._simplify = simplify
        self._functions = {op.sym_name.data: op for op in module.ops if isinstance(op, FuncOp)}
        self._uses = Counter(name for op in module.walk() for name in referred(op))

    def run(self) -> None:
        for circle in list(_callees_first(self._functions)):
            for _ in range(MOST_ROUNDS):
                for name in circle:
                    self._simplified(name)
                if not any([self._inlined_into(name, circle) for name in circle]):
                    break

    def _simplified(self, name: str) -> None:
        function = self._functions.get(name)
        if function is not None:
            self._count(function, -1)
            self._simplify(function)
            self._count(function, 1)

    def _count(self, root: Operation, sign: int) -> None:
        for op in root.walk():
            for name in referred(op):
                self._uses[name] += sign

    def _inlined_into(self, name: str, circle: list[str]) -> bool:
        """Inline the calls of a function, or erase it if nobody needs it; whether a call was inlined."""
        caller = self._functions.get(name)
        if caller is None:
            return False
        if not is_public(caller) and not self._uses[name]:
            self._erase(name)
            return False
        done = False
        for call in [op for op in caller.walk() if isinstance(op, CallOp)]:
            target = call.callee.root_reference.data
            callee = self._functions.get(target)
            if callee is not None and target not in circle and _fits(call, callee):
                self._inline(call, callee)
                done = True
                if not is_public(callee) and not self._uses[target]:
                    self._erase(target)
        return done

    def _erase(self, name: str) -> None:
        function = self._functions.pop(name)
        self._count(function, -1)
        function.detach()
        function.erase()

    def _inline(self, call: CallOp, callee: FuncOp) -> None:
        copy = callee.clone()
        _rename(copy, call)
        self._count(copy, 1)
        self._count(call, -1)
        blocks = list(copy.body.blocks)
        if len(blocks) == 1:
            _inline_block(call, blocks[0])
        else:
            _inline_blocks(call, copy)


def inline_call(call: CallOp, callee: FuncOp) -> None:
    """Put a copy of a function of one block in the place of a call."""
    copy = callee.clone()
    _rename(copy, call)
    _inline_block(call, copy.body.block)


def _fits(call: CallOp, callee: FuncOp) -> bool:
    kept = "no_inline" in callee.attributes or "no_inline" in callee.properties or "no_inline" in call.attributes
    if kept or not callee.body.blocks:
        return False
    lasts = [block.last_op for block in callee.body.blocks]
    if not all(isinstance(last, ReturnOp) or (last is not None and last.successors) for last in lasts):
        return False
    return len(callee.body.blocks) == 1 or isinstance(call.parent_op(), FuncOp)


def _rename(copy: FuncOp, call: CallOp) -> None:
    """Rename ops whose names the caller has, except weights; the op that makes a named call's result gets its name."""
    caller = call.parent_op()
    theirs = {"" if caller is None else op_name(op) for op in (caller or copy).walk()} - {""}
    taken, new = theirs | {op_name(op) for op in copy.walk()}, dict[str, str]()
    for op in copy.walk():
        old = op_name(op)
        if old in theirs and not is_weight(op):  # ops that share a name in the function still do
            if old not in new:
                new[old] = next(name for i in count(1) if (name := f"{old}_{i}") not in taken)
                taken.add(new[old])
            set_op_name(op, new[old])
    last = copy.body.blocks[0].last_op
    made = last.operands[0].owner if isinstance(last, ReturnOp) and len(last.operands) == 1 else None
    if op_name(call) and isinstance(made, Operation) and op_name(made):
        copy_name(made, call)


def _inline_block(call: CallOp, block: Block) -> None:
    """Put a body of one block in front of the call, whose results are what it returns."""
    last = block.last_op
    assert isinstance(last, ReturnOp)
    results = list(last.operands)
    last.detach()
    last.erase()
    results = [call.operands[block.args.index(one)] if one in block.args else one for one in results]
    Rewriter.inline_block(block, InsertPoint.before(call), list(call.operands))
    _replace(call, results)


def _inline_blocks(call: CallOp, copy: FuncOp) -> None:
    """Split the call's block around it; the body's blocks go between, and its returns branch to the rest."""
    from xdsl.dialects.cf import BranchOp

    block = call.parent
    assert block is not None and block.parent is not None
    rest = block.split_before(call)
    arguments = [rest.insert_arg(result.type, i) for i, result in enumerate(call.results)]
    operands = list(call.operands)
    _replace(call, arguments)
    blocks = list(copy.body.blocks)
    for one in blocks:
        last = one.last_op
        if isinstance(last, ReturnOp):
            values = list(last.operands)
            last.detach()
            last.erase()
            one.add_op(BranchOp(rest, *values))
    Rewriter.inline_region(copy.body, BlockInsertPoint.before(rest))
    Rewriter.inline_block(blocks[0], InsertPoint.at_end(block), operands)


def _replace(call: CallOp, values: Sequence[SSAValue]) -> None:
    for result, value in zip(call.results, values, strict=True):
        result.replace_all_uses_with(value)
    call.detach()
    call.erase()


def _callees_first(functions: dict[str, FuncOp]) -> Iterator[list[str]]:
    """The functions in groups that call each other, every group after the groups that it calls (Tarjan).

    As in MLIR, what public functions lead to comes before private functions that nobody calls.
    """
    called = {
        name: [one for op in function.walk() if isinstance(op, CallOp) for one in referred(op) if one in functions]
        for name, function in functions.items()
    }
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    for root in sorted(functions, key=lambda name: not is_public(functions[name])):
        if root in number:
            continue
        todo = [(root, iter(called[root]))]
        number[root] = lowest[root] = len(number)
        stack.append(root)
        while todo:
            name, rest = todo[-1]
            following = next(rest, None)
            if following is None:
                todo.pop()
                if todo:
                    lowest[todo[-1][0]] = min(lowest[todo[-1][0]], lowest[name])
                if lowest[name] == number[name]:
                    begin = stack.index(name)
                    yield stack[begin:]
                    del stack[begin:]
            elif following not in number:
                number[following] = lowest[following] = len(number)
                stack.append(following)
                todo.append((following, iter(called[following])))
            elif following in stack:
                lowest[name] = min(lowest[name], number[following])
