"""Other orders of a module's ops, every operand before its use: groups are runs of ops, so they depend on the order.

Upstream does not reorder; it groups ops in the order of the text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from xdsl.ir import Operation

from tpusim.ir.module import Model
from tpusim.ir.types import stored_bytes
from tpusim.ops.structure import TopNone, TopWeight

SHORT = 64
"""Most ops of a module whose orders are counted."""
FEW = 6
"""If a module has at most this many orders, all of them are returned."""


def orders(model: Model) -> Iterator[Model]:
    """Copies of the module with its ops in other orders, none twice; a chain has none.

    If a short module has few orders, these are all of them. Otherwise there are four: two go depth first from the
    results, from the first operand or from the last one (a branch ends before the next begins); one goes breadth first
    (branches advance together); and one always takes, of the ops whose operands are complete, the op that leaves the
    fewest bytes alive.
    """
    graph = _Graph.of(model)
    usual = tuple(range(len(graph.needs)))
    every = list(islice(graph.every(), FEW + 1)) if len(usual) <= SHORT else []
    some = every if 0 < len(every) <= FEW else graph.some()
    for order in dict.fromkeys(map(tuple, some)):
        if order != usual:
            yield _reordered(model, order)


@dataclass(frozen=True)
class _Graph:
    """The ops that compute, by number. needs: the ops whose results it reads; results: bytes; last: returned ops."""

    needs: list[list[int]]
    results: list[int]
    last: list[int]

    @classmethod
    def of(cls, model: Model) -> "_Graph":
        ops = _computing(model)
        number = {op: i for i, op in enumerate(ops)}
        needs = [_numbers(op, number) for op in ops]
        return cls(needs, [sum(map(stored_bytes, op.results)) for op in ops], _numbers(model.terminator, number))

    def some(self) -> Iterator[list[int]]:
        """The four orders of a module with too many orders."""
        yield self._depth_first(-1)
        yield self._depth_first(1)
        yield sorted(range(len(self.needs)), key=self._levels().__getitem__)
        yield self._fewest_alive()

    def every(self) -> Iterator[list[int]]:
        """All orders, one after the other."""
        stack: list[tuple[list[int], frozenset[int]]] = [([], frozenset())]
        while stack:
            order, done = stack.pop()
            if len(order) == len(self.needs):
                yield order
            ready = [i for i, needs in enumerate(self.needs) if i not in done and done.issuperset(needs)]
            stack += [([*order, i], done | {i}) for i in reversed(ready)]

    def _depth_first(self, step: int) -> list[int]:
        """Every op after its operands. step: 1 begins with the last operand, -1 with the first."""
        order = dict[int, None]()
        stack = [*reversed(range(len(self.needs))), *self.last[::step]]
        while stack:
            op = stack[-1]
            missing = [need for need in self.needs[op][::step] if need not in order]
            if op in order or not missing:
                order.setdefault(stack.pop())
            else:
                stack += missing
        return list(order)

    def _levels(self) -> list[int]:
        """The number of ops before each op on the longest path."""
        found = list[int]()
        for needs in self.needs:
            found.append(max((found[need] + 1 for need in needs), default=0))
        return found

    def _fewest_alive(self) -> list[int]:
        unread = [sum(i in needs for needs in self.needs) + (i in self.last) for i in range(len(self.needs))]
        readers = [[i for i, needs in enumerate(self.needs) if op in needs] for op in range(len(self.needs))]
        missing, order = [len(needs) for needs in self.needs], list[int]()
        ready = [i for i, count in enumerate(missing) if not count]
        while ready:
            freed = {i: sum(self.results[n] for n in self.needs[i] if unread[n] == 1) for i in ready}
            op = min(ready, key=lambda i: (self.results[i] - freed[i], i))
            ready.remove(op)
            order.append(op)
            for need in self.needs[op]:
                unread[need] -= 1
            for i in readers[op]:
                missing[i] -= 1
                if not missing[i]:
                    ready.append(i)
        return order


def _computing(model: Model) -> list[Operation]:
    """The ops that read other ops; inputs and weights come before their first reader."""
    return [op for op in model.ops if op.operands and op is not model.terminator]


def _numbers(op: Operation, number: dict[Operation, int]) -> list[int]:
    owners = dict.fromkeys(value.owner for value in op.operands)
    return [number[owner] for owner in owners if isinstance(owner, Operation) and owner in number]


def _reordered(model: Model, order: Sequence[int]) -> Model:
    """A copy with its computing ops in this order, each after the weights that it is the first to read."""
    work = model.clone()
    block, end, ops = work.body, work.terminator, _computing(work)
    moved: set[Operation] = set(ops)
    for op in ops:
        op.detach()
    for i in order:
        for value in ops[i].operands:
            source = value.owner
            if isinstance(source, TopWeight | TopNone) and source not in moved:
                moved.add(source)
                source.detach()
                block.insert_op_before(source, end)
        block.insert_op_before(ops[i], end)
    return work
