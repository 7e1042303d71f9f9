"""Rewritings of modules by proof: which keep every expression for all inputs, and which change one.

A pattern or pass that keeps numbers may still compute them in another way: constants are folded, products are scaled in
another order. Such a rewriting is named with the first tensor whose expression it changed; the sample of `numbers`
judges it.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from typing_extensions import override

from tpusim.field import Elements, Field
from tpusim.ir.attrs import framework_name, op_name
from tpusim.ir.module import Model
from tpusim.ops.framework.base import TopOp, TpuOp
from tpusim.passes.instruments.base import Instrument, Step
from tpusim.proof.unplaced import UnplacedProof


class ExpressionsChanged(Instrument):
    """Compares the expressions of a module before and after every pattern and pass that keeps numbers.

    Tensors are compared by name, and where a name is new, by the framework's tensor that it equals. compared: number
    of rewritings; proven: the number of those that changed no expression; others: rewriting -> the first tensor whose
    expression it changed.
    """

    watches_patterns = True

    def __init__(self) -> None:
        self.proven = self.compared = 0
        self.others: dict[str, str] = {}
        self._now: Mapping[str, Elements] | None = None

    @override
    def before(self, step: Step) -> None:
        self._now = self._now or _expressions(step.model)

    @override
    def after(self, step: Step) -> None:
        if step.step.reads_only or step.step.composite:
            return
        self._compare(step.name, step)

    @override
    def tried(self, pattern: str, step: Step, seconds: float, *, fired: bool) -> None:
        if fired:
            self._compare(pattern, step)

    @override
    def report(self) -> Iterator[str]:
        """What was proven, and the rewritings that changed an expression."""
        if self.compared:
            yield f"verify-passes: {self.proven} of {self.compared} patterns and passes are proven for all inputs"
        if self.others:
            named = ", ".join(f"{name} ('{tensor}')" for name, tensor in self.others.items())
            yield f"verify-passes: judged by the sample alone, for they change an expression: {named}"

    def _compare(self, name: str, step: Step) -> None:
        before, self._now = self._now, _expressions(step.model)
        if before is None or not all(one.exact for one in step.path):
            return
        changed = _first_other(before, self._now)
        self.compared += 1
        self.proven += not changed
        if changed:
            self.others.setdefault(name, changed)


def _expressions(model: Model) -> Mapping[str, Elements]:
    """The elements of every tensor, by the framework's name where it has one."""
    ops = [op for op in model.body.walk() if isinstance(op, TopOp | TpuOp)]
    names = {op_name(op): framework_name(op) for op in ops}
    tensors = UnplacedProof(model, Field(0)).run().tensors
    return {names.get(name, name): elements for name, elements in tensors.items()}


def _first_other(before: Mapping[str, Elements], after: Mapping[str, Elements]) -> str:
    """The first tensor of the later module whose expression differs; empty if all are the same.

    Without a tensor of both modules nothing is proven, and the first tensor is named.
    """
    both = [name for name in after if name in before]
    for name in both:
        if not np.array_equal(before[name].reshape(-1), after[name].reshape(-1)):
            return name
    return "" if both else next(iter(after), "")
