"""weight-reorder: every op puts its constants into the layout the chip reads (docs/spec/hardware.md 2.3)."""

from collections.abc import Sequence

import numpy as np
from xdsl.ir import Attribute, Operation, SSAValue

from tpusim import chips
from tpusim.chips import ChipSpec
from tpusim.interfaces import implementation
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ir.text import verify
from tpusim.ir.weights import WeightStore
from tpusim.lowering.chip_optimize import optimize_for_chip
from tpusim.lowering.locality import sort_by_locality
from tpusim.ops.framework.building import fitting
from tpusim.ops.interfaces import Reorder
from tpusim.ops.structure import TopNone, TopWeight, make_none, make_weight


class Reordering:
    """The ReorderContext of an op: new weights are inserted directly before it."""

    def __init__(self, op: Operation, weights: WeightStore, chip: ChipSpec) -> None:
        self.chip = chip
        self.weights = weights
        self._op = op

    def array(self, value: SSAValue) -> np.ndarray | None:
        """The stored array of a constant; None for any other value."""
        return self.weights[op_name(value.owner)] if isinstance(value.owner, TopWeight) else None

    def _before(self, op: Operation) -> SSAValue:
        block = self._op.parent_block()
        assert block is not None
        block.insert_op_before(op, self._op)
        return op.results[0]

    def weight(self, name: str, array: np.ndarray, element: Attribute | None = None) -> SSAValue:
        """A new top.Weight before the op."""
        return self._before(make_weight(self.weights, name, array, element))

    def none(self) -> SSAValue:
        """A new top.None before the op."""
        return self._before(make_none())


def reorder_weights(model: Model) -> Model:
    """A copy of a lowered module with chip-layout weights, in state TPU_REORDERED; unused weights are dropped.

    What `optimize_for_chip` has not done yet is done first. The ops are in the order of `sort_by_locality`.
    """
    model.require_state("TPU_LOWERED", stage="weight-reorder")
    work = optimize_for_chip(model).clone()
    chip = chips.of(work)
    for op in list(work.ops):
        if (asked := implementation(op, Reorder, chip)) is not None:
            with fitting(op, "weights cannot be put into the chip's order"):
                asked.reorder_weights(Reordering(op, work.weights, chip))
    _drop_unused(list(work.ops))
    sort_by_locality(work, chip)
    used = {op_name(op) for op in work.ops if isinstance(op, TopWeight)}
    result = Model(work.module, work.weights.restricted(used))
    result.set(state="TPU_REORDERED")
    verify(result.module, "after weight-reorder")
    return result


def _drop_unused(ops: Sequence[Operation]) -> None:
    for op in ops:
        if isinstance(op, TopWeight | TopNone) and not any(True for _ in op.results[0].uses):
            op.detach()
            op.erase()
