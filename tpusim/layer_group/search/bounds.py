"""Lower bounds of the cost of a run's intervals as groups; they save the search most of its plans (DL-06)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
from xdsl.ir import SSAValue

from tpusim.ir.types import is_tensor, stored_bytes
from tpusim.layer_group.cost import CostModel
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.interfaces import splits_weight
from tpusim.ops.structure import TopWeight


class Bounds:
    """The least time that every group of a run moves and computes, in nanoseconds of one core of the model."""

    def __init__(self, ops: Sequence[TpuOp], model: CostModel) -> None:
        self.ops = ops
        self.model = model
        self._crossings: dict[int, np.ndarray] = {}

    def least_ns(self, start: int, end: int) -> float:
        """`least_of_all` for one end."""
        return float(self.least_of_all(start, np.array([end]))[0])

    def least_of_all(self, start: int, ends: np.ndarray) -> np.ndarray:
        """Lower bound, for each end, of two ops or more as one group with any sections.

        Every tensor is moved, or every op computed.

        Nothing is computed during the load of the coefficients that only the first op uses. At best several cores share
        all work except this load, which each core does.
        """
        moved = self._crossing(start)[ends] / self.model.cores + self._loaded[ends] - self._loaded[start]
        return np.maximum(moved, self._resident[start] + self._computed[ends] - self._computed[start])

    def crossing_ns(self, start: int, end: int) -> float:
        """Time of a group's loads and stores of whole activations."""
        return float(self._crossing(start)[end])

    def _crossing(self, start: int) -> np.ndarray:
        """The same for every end of a group from `start`."""
        found = self._crossings.get(start)
        if found is None:
            values, size = self._values, len(self.ops) + 2
            outside, inside = values.made < start, values.made >= start
            changes = np.zeros(size)  # of the time, from an end on
            changes += np.bincount(values.next[start][outside] + 1, values.load_ns[outside], minlength=size)
            changes += np.bincount(values.made[inside] + 1, values.store_ns[inside], minlength=size)
            changes -= np.bincount(
                np.maximum(values.last, values.made)[inside] + 1, values.store_ns[inside], minlength=size
            )
            found = self._crossings[start] = np.cumsum(changes)
        return found

    def crossing_bytes(self, cut: int) -> int:
        """Bytes of the activations that a cut sends through global memory."""
        values = self._values
        return int(values.bytes[(values.made >= 0) & (values.made < cut) & (values.last >= cut)].sum())

    @cached_property
    def _computed(self) -> np.ndarray:
        """Running sum of a core's share of the time to compute each op uncut."""
        return np.array([0.0, *accumulate(self.model.compute_ns(op) / self.model.cores for op in self.ops)])

    @cached_property
    def _resident(self) -> list[float]:
        """Time to load the coefficients that only this op uses and no cut makes smaller, for each op."""
        return [sum(self._held_ns(op, index) for index in range(len(op.operands))) for op in self.ops]

    def _held_ns(self, op: TpuOp, index: int) -> float:
        value = op.operands[index]
        cut = splits_weight(op, index, self.model.chip)
        if not isinstance(value.owner, TopWeight) or cut or not value.has_one_use():
            return 0.0
        return self.model.moved_ns(value, "load", op)

    @cached_property
    def _loaded(self) -> np.ndarray:
        """Running sum of the time to load the coefficients."""
        return np.array([0.0, *accumulate(self._resident)])

    @cached_property
    def _values(self) -> "_Values":
        return _Values.of(self.ops, self.model)


class Evidence:
    """Lower bounds of longer groups from planned groups: their ops take at least as long inside a longer group.

    Decision: a group's ops are assumed to cost no less inside a longer group than in the group planned for them alone,
    except for the activations that only the shorter group moves. On several cores, where halos grow with a group's
    length, this bound is much tighter than `Bounds`, which assumes that the cores share everything.
    """

    def __init__(self, count: int) -> None:
        self.inside = np.zeros((count + 1, count + 1))
        """The longest time of consecutive planned groups from the first op up to each op."""

    def add(self, start: int, end: int, ns: float) -> None:
        """Note that these ops take at least `ns` inside a group."""
        inside = self.inside
        through = inside[: start + 1, start, None] + ns + inside[None, end, end:]
        np.maximum(inside[: start + 1, end:], through, out=inside[: start + 1, end:])


@dataclass(frozen=True)
class _Values:
    """Tensors of a run: bytes, the least times of a load and a store, the op that makes each (-1: outside), users.

    Constants take no time here. last: the last user; next: the next user from an op on.
    """

    bytes: np.ndarray
    load_ns: np.ndarray
    store_ns: np.ndarray
    made: np.ndarray
    last: np.ndarray
    next: np.ndarray

    @classmethod
    def of(cls, ops: Sequence[TpuOp], model: CostModel) -> "_Values":
        """The bound of these ops."""
        index: dict[object, int] = {op: i for i, op in enumerate(ops)}
        values: dict[SSAValue, None] = {}
        for op in ops:
            values.update(dict.fromkeys(v for v in (*op.operands, op.results[0]) if is_tensor(v)))
        made = [index.get(v.owner, -1) for v in values]
        count = len(ops)
        users = [sorted(index.get(u.operation, count) for u in v.uses) for v in values]
        after = np.full((count + 1, len(values)), count)
        for column, found in enumerate(users):
            for user in reversed(found):
                after[: user + 1, column] = user
        inside = [[ops[u] for u in found if u < count] for found in users]
        loads = [_load_ns(v, found, model) for v, found in zip(values, inside, strict=True)]
        stores = [model.moved_ns(v, "store", ops[at]) if at >= 0 else 0.0 for v, at in zip(values, made, strict=True)]
        sizes = np.array([stored_bytes(v) for v in values])
        last = np.array([max(u, default=-1) for u in users])
        return cls(sizes, np.array(loads), np.array(stores), np.array(made), last, after)


def _load_ns(value: SSAValue, users: Sequence[TpuOp], model: CostModel) -> float:
    """The least time of a load of an activation for one of its users."""
    if isinstance(value.owner, TopWeight):
        return 0.0
    return min((model.moved_ns(value, "load", user) for user in dict.fromkeys(users)), default=0.0)
