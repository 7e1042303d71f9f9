"""Threshold propagation before lowering: the steps of docs/spec/numerics.md 3.3, driven by each op's RangeRule.

A step visits the ops from the last to the first, and repeats that until nothing changes, ten times at most (U-116).
"""

from collections.abc import Callable, Collection, Iterable
from math import prod

import numpy as np
from xdsl.ir import Block, Operation, SSAValue

from tpusim.chips import ChipSpec
from tpusim.errors import CalibrationError
from tpusim.interfaces import ask, rules
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model, update_function_type
from tpusim.ir.types import CalibratedType, calibrated_range, is_tensor, retyped, set_type, shape_of
from tpusim.ops.framework.base import TopOp
from tpusim.ops.interfaces import Range, RangePropagation, RangeRule, Ranges, RangeStep, Selects, number_of
from tpusim.ops.structure import TopWeight

MAX_PASSES = 10
"""How often a step visits every op; ranges that change each other for ever are left as they then are (U-116)."""


class Propagation:
    """Ranges of all calibrated values of one module while the steps run."""

    def __init__(self, model: Model, chip: ChipSpec, in_float: Collection[Operation] = ()) -> None:
        self.chip = chip
        self._rules = rules(chip, RangePropagation)
        self._in_float = in_float
        self.weights = model.weights
        self.ops = [op for op in model.ops if isinstance(op, TopOp)]
        self.ranges: dict[SSAValue, Range] = {}
        for op in self.ops:
            for result in op.results:
                found = calibrated_range(result)
                if found is not None:
                    self.ranges[result] = found

    def run(self) -> None:
        """All steps in the specified order."""
        self.step(lambda op: self._rule(op).forward_first and self.forward(op))
        self.step(self.signs)
        self.step(self.product_sign, "product_sign")
        self.step(self.difference_sign, "difference_sign")
        self.step(self.unify)
        self.step(self.backward)
        self.step(self.products_of_sum, "products_of_sum")
        self.step(self.compared)
        self.step(self.selected)
        self.step(lambda op: self._rule(op).forward and self.forward(op))
        self.step(self.signs)
        self.step(self.selected)

    def step(self, visit: Callable[[TopOp], bool], name: RangeStep | None = None) -> None:
        """One step; name: given if the chip's family may skip it."""
        if name in self._rules.SKIPPED:
            return
        for _ in range(MAX_PASSES):
            changed = [visit(op) for op in reversed(self.ops)]
            if not any(changed):
                return

    # elementary moves (numerics.md 3.2)

    def _rule(self, op: Operation | Block) -> RangeRule:
        """The rule of an op for the chip; of what makes no calibrated value, a rule that changes nothing."""
        return ask(op, Ranges, self.chip).range_rule() if isinstance(op, TopOp) else RangeRule()

    def assign(self, value: SSAValue, new: Range) -> bool:
        """Give `value` a range; False if it already has this range or is not calibrated."""
        new = self._rules.kept(new)
        if self.ranges.get(value, new) == new:
            return False
        self.ranges[value] = new
        return True

    def _layout_users(self, value: SSAValue) -> Iterable[TopOp]:
        users = (u.operation for u in value.uses)
        return (op for op in users if isinstance(op, TopOp) and self._rule(op).forward_first)

    def forward(self, op: TopOp) -> bool:
        """The output takes the input's range; layout ops directly after it follow."""
        source = self.ranges.get(op.operands[0])
        if source is None:
            return False
        return self.assign_result(op, ask(op, Ranges, self.chip).forwarded_range(source))

    def assign_result(self, op: TopOp, new: Range) -> bool:
        """Give the result a range; layout ops directly after it take it too."""
        if not self.assign(op.results[0], new):
            return False
        for user in self._layout_users(op.results[0]):
            self.assign(user.results[0], new)
        return True

    def backward(self, op: TopOp) -> bool:
        """Step 5: the single-use input takes the output's range, or only its max, by the op's rule.

        A layout op that makes the input passes the range on.
        """
        rule = self._rule(op)
        if rule.backward:
            return self.push_back(op.operands[0], self.ranges.get(op.results[0]))
        given = self.ranges.get(op.operands[0]) if rule.backward_keep_min else None
        found = self.ranges.get(op.results[0])
        if given is None or found is None or given[1] == found[1]:
            return False
        return self.push_back(op.operands[0], (given[0], found[1]))

    def push_back(self, value: SSAValue, new: Range | None) -> bool:
        """Give a single-use value a range, and also the input of the layout op that makes it."""
        if new is None or len(list(value.uses)) != 1 or not self.assign(value, new):
            return False
        self.push_back_shared(value, new)
        return True

    # steps

    def signs(self, op: TopOp) -> bool:
        """Step 2: the sign of pools follows the input; a sum of non-negative inputs is non-negative."""
        out = self.ranges.get(op.results[0]) if op.results else None
        if out is None:
            return False
        inputs = [self._range_of(v) for v in op.operands if is_tensor(v)]
        known = [r for r in inputs if r is not None]
        if len(known) != len(inputs) or not known:
            return False
        if op.RANGE.sum_sign and all(r[0] >= 0 for r in known) and out[0] < 0:
            return self.assign_result(op, (0.0, out[1]))
        if self._falls_below_zero(op) and known[0][0] >= 0 and out[0] >= 0:
            return self.assign_result(op, (-0.1 * out[1], out[1]))
        if not op.RANGE.sign:
            return False
        if known[0][0] < 0 <= out[0]:
            return self.assign_signed(op, (_narrow_tenth(out[1]), out[1]))
        return out[0] < 0 <= known[0][0] and self.assign_signed(op, (0.0, out[1]))

    def assign_signed(self, op: TopOp, found: Range) -> bool:
        """Give the result a range of another sign; layout ops, pools and Abs directly after it take it too."""
        if not self.assign(op.results[0], found):
            return False
        for user in (use.operation for use in op.results[0].uses):
            if isinstance(user, TopOp) and (self._rule(user).forward_first or user.RANGE.sign):
                self.assign(user.results[0], found)
        return True

    def _falls_below_zero(self, op: TopOp) -> bool:
        """SubConst, and AddConst of a negative number (step 2)."""
        number = number_of(op)
        return op.RANGE.sub_constant or (op.RANGE.add_constant and number is not None and number < 0)

    def difference_sign(self, op: TopOp) -> bool:
        """Step 3: the rule of SubConst again; the result of Sub is signed."""
        if op.RANGE.sub_constant:
            return self.signs(op)
        out = self.ranges.get(op.results[0]) if op.RANGE.difference else None
        return out is not None and out[0] >= 0 and self.assign_result(op, (-0.1 * out[1], out[1]))

    def _range_of(self, value: SSAValue) -> Range | None:
        """The range of a value; a constant has the range of its data."""
        if isinstance(value.owner, TopWeight):
            data = self.weights[op_name(value.owner)]
            return float(data.min()), float(data.max())
        return self.ranges.get(value)

    def product_sign(self, op: TopOp) -> bool:
        """Step 3: a product takes the sign of its two inputs where they agree; of constants only a scalar counts.

        Decision: two non-negative factors make the product non-negative, as non-negative terms make a sum (step 2);
        upstream stops there with "two unsigned get signed". A range without a number above zero stays an error.
        """
        if not op.RANGE.product or len(op.operands) != 2:
            return False
        out = self.ranges.get(op.results[0])
        if any(isinstance(v.owner, TopWeight) and prod(shape_of(v)) > 1 for v in op.operands):
            return False
        factors = [self._range_of(v) for v in op.operands]
        if out is None or factors[0] is None or factors[1] is None:
            return False
        signed = [f[0] < 0 for f in factors if f is not None]
        if all(signed) and out[0] >= 0:
            return self.assign_result(op, (_narrow_tenth(out[1]), out[1]))
        if not any(signed) and out[0] < 0:
            self._require_positive(op, out)
            return self.assign_result(op, (0.0, out[1]))
        return False

    @staticmethod
    def _require_positive(op: TopOp, out: Range) -> None:
        """Raises CalibrationError for the range of a non-negative product without a number above zero."""
        if out[1] <= 0:
            raise CalibrationError(
                f"{op.name} '{op_name(op)}': both factors are non-negative, so the product's range must reach above "
                f"zero, got {out}; check the table"
            )

    def unify(self, op: TopOp) -> bool:
        """Step 4: inputs and output of Concat, Min and Max share one range."""
        if not op.RANGE.unify or not op.results or op.results[0] not in self.ranges:
            return False
        inputs = list(op.operands)
        ranges = [self.ranges.get(v) for v in inputs]
        if any(r is None for r in ranges) or not all(self._only_feeds(v, op) for v in inputs):
            return False
        known = [r for r in ranges if r is not None]
        if op.RANGE.unify_skips_mixed_signs and len({r[0] < 0 for r in known}) > 1:
            return False
        if len(set(known)) == 1:
            return self.assign(op.results[0], known[0])
        for value in inputs:
            self.push_back_shared(value, self.ranges[op.results[0]])
        return True

    def _only_feeds(self, value: SSAValue, op: TopOp) -> bool:
        """Whether every user is `op` or a max pool (an op that keeps its input's range both ways and is not Abs)."""
        users = [u.operation for u in value.uses]
        return all(u is op or (isinstance(u, TopOp) and self._is_max_pool(u)) for u in users)

    def _is_max_pool(self, op: TopOp) -> bool:
        return op.RANGE.sign and op.RANGE.backward and not op.RANGE.mirrored

    def push_back_shared(self, value: SSAValue, new: Range) -> None:
        """`push_back` without the single-use condition."""
        self.assign(value, new)
        if isinstance(value.owner, TopOp) and self._rule(value.owner).back_through:
            self.assign(value.owner.operands[0], new)

    def products_of_sum(self, op: TopOp) -> bool:
        """Step 6: single-use products that feed one Add take its range."""
        if not op.RANGE.sum_sign:
            return False
        makers = [v.owner for v in op.operands]
        new = self.ranges.get(op.results[0])
        if new is None or not all(isinstance(m, TopOp) and m.RANGE.product for m in makers):
            return False
        if any(len(list(v.uses)) != 1 for v in op.operands):
            return False
        changed = [self.assign(v, new) for v in op.operands]
        return any(changed)

    def compared(self, op: TopOp) -> bool:
        """Step 7: both sides of a comparison take their joint range."""
        if not op.RANGE.compare:
            return False
        ranges = [self.ranges.get(v) for v in op.operands]
        known = [r for r in ranges if r is not None]
        if len(known) != len(ranges):
            return False
        joint = min(r[0] for r in known), max(r[1] for r in known)
        changed = [self.assign(v, joint) for v in op.operands]
        return any(changed)

    def selected(self, op: TopOp) -> bool:
        """Step 8: a constant above the output's range widens it; else the computed branches take the output's range.

        They take a widened range when the step visits the op again, when the constant is no longer above it: only if
        another op has changed, or in step 10.
        """
        out = self.ranges.get(op.results[0]) if isinstance(op, Selects) else None
        if out is None or not isinstance(op, Selects):
            return False
        numbers = [n for n in op.constant_branches() if np.isfinite(n)]  # infinity is a mask, which has no range
        largest = max((abs(n) for n in numbers), default=0.0)
        if out[1] < largest:
            signed = out[0] < 0 or min(numbers) < 0
            self.assign(op.results[0], (-0.1 * largest if signed else 0.0, largest))
            return False
        if op in self._in_float:
            return False
        changed = [self.assign(v, out) for v in op.operands[1:] if is_tensor(v)]
        return any(changed)


def _narrow_tenth(high: float) -> float:
    """-0.1*high in double, narrowed to f32 in pools, Abs and Mul (U-49)."""
    return float(np.float32(-high * 0.1))


def keep_ranges(model: Model, chip: ChipSpec) -> None:
    """Change every calibrated range to the form of the chip's family, before marks and propagation."""
    kept, changed = rules(chip, RangePropagation).kept, False
    for op in model.ops:
        for result in op.results if isinstance(op, TopOp) else ():
            measured = calibrated_range(result)
            if measured is not None and kept(measured) != measured:
                set_type(result, retyped(result, CalibratedType.of(*kept(measured))))
                changed = True
    if changed:
        update_function_type(model)


def propagate(model: Model, chip: ChipSpec, in_float: Collection[Operation] = ()) -> None:
    """Run the propagation and write the new ranges into the module's types.

    in_float: ops that the quantisation table sets to F32 or F16, or that select a mask (for step 8).
    """
    state = Propagation(model, chip, in_float)
    state.run()
    for value, (low, high) in state.ranges.items():
        set_type(value, retyped(value, CalibratedType.of(low, high)))
    update_function_type(model)
