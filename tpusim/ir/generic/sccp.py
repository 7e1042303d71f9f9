"""Sparse conditional constant propagation: values that are one constant on every path that can be taken."""

from collections import deque
from enum import Enum

from xdsl.context import Context
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from tpusim.ir.generic.arith import number
from tpusim.ir.generic.constants import folded, gather_constants, is_constant, new_constant
from tpusim.ir.generic.dce import passed_on
from tpusim.ir.generic.effects import is_dead


class _Unknown(Enum):
    """NONE: no path to a value has been followed yet; MANY: it may have several values."""

    NONE = 0
    MANY = 1


Known = Attribute | _Unknown


def propagate_constants(root: Operation, ctx: Context) -> None:
    """Replace the values inside `root` that are constant on every path by constants, and erase their ops."""
    for region in root.regions:
        _Propagation(region).replace(ctx)
        gather_constants(region)


class _Propagation:
    """What is known of every value of a region; blocks count only when a branch to them can be taken."""

    def __init__(self, region: Region) -> None:
        self._known: dict[SSAValue, Known] = {}
        self._ways: set[tuple[Block | None, Block]] = set()
        self._reached: set[Block] = set()
        self._todo: deque[Operation] = deque()
        self._enter(region)
        while self._todo:
            self._visit(self._todo.popleft())

    def _enter(self, region: Region) -> None:
        """The first block of a region can be reached, with any arguments."""
        if region.first_block is not None:
            for argument in region.first_block.args:
                self._learn(argument, _Unknown.MANY)
            self._reach(None, region.first_block)

    def _reach(self, before: Block | None, block: Block) -> None:
        self._ways.add((before, block))
        if block not in self._reached:
            self._reached.add(block)
            self._todo.extend(block.ops)

    def _learn(self, value: SSAValue, news: Known) -> None:
        """Add what is known of a value; if that is new, its users are visited again."""
        before = self._known.get(value, _Unknown.NONE)
        after = news if before is _Unknown.NONE else before if news in (before, _Unknown.NONE) else _Unknown.MANY
        if after == before:
            return
        self._known[value] = after
        self._todo.extend(use.operation for use in value.uses if use.operation.parent in self._reached)

    def _visit(self, op: Operation) -> None:
        for region in op.regions:
            self._enter(region)
        if op.successors:
            self._branch(op)
        operands = [self._known.get(value, _Unknown.NONE) for value in op.operands]
        if any(one is _Unknown.NONE for one in operands) and not op.regions:
            return
        for result, news in zip(op.results, self._results(op, operands), strict=True):
            self._learn(result, news)

    def _results(self, op: Operation, operands: list[Known]) -> list[Known]:
        if is_constant(op) and (value := op.properties.get("value")) is not None:
            return [value]
        constants = [None if isinstance(one, _Unknown) else one for one in operands]
        found = None if op.regions else folded(op, constants)
        if found is None:
            return [_Unknown.MANY] * len(op.results)
        return [self._known.get(one, _Unknown.NONE) if isinstance(one, SSAValue) else one for one in found]

    def _branch(self, op: Operation) -> None:
        taken = self._successors(op)
        for block in taken:
            assert op.parent is not None
            self._reach(op.parent, block)
        into = dict(passed_on(op))
        for block in taken:
            for argument in block.args:
                sources = [i for i, one in into.items() if one is argument]
                for i in sources:
                    self._learn(argument, self._known.get(op.operands[i], _Unknown.NONE))
                if not sources:
                    self._learn(argument, _Unknown.MANY)

    def _successors(self, op: Operation) -> list[Block]:
        if op.name != "cf.cond_br":
            return list(op.successors)
        condition = self._known.get(op.operands[0], _Unknown.NONE)
        if isinstance(condition, _Unknown):
            return [] if condition is _Unknown.NONE else list(op.successors)
        return [op.successors[0 if number(condition) else 1]]

    def replace(self, ctx: Context) -> None:
        """Put constants in place of the values that are constant, and erase the ops that made them."""
        for value, known in self._known.items():
            owner = value.owner
            block = owner if isinstance(owner, Block) else owner.parent
            if isinstance(known, _Unknown) or block is None or block.first_op is None:
                continue
            if isinstance(owner, Operation) and is_constant(owner):
                continue
            made = _made(known, value, ctx) if value.first_use is not None else None
            if made is not None:
                block.insert_op_before(made, block.first_op)
                value.replace_all_uses_with(made.results[0])
            if isinstance(owner, Operation) and is_dead(owner):
                owner.detach()
                owner.erase()


def _made(known: Attribute, value: SSAValue, ctx: Context) -> Operation | None:
    """A constant as the dialect of the value makes it; arith makes those of arguments."""
    owner = value.owner if isinstance(value.owner, Operation) else None
    namespace = "arith" if owner is None else owner.dialect_name()
    return new_constant(known, value.type, namespace, ctx)
