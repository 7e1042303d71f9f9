"""Group search opt 2: dynamic programming over intervals on the cycle model (layer_group.md 12).

best[j] = min over i of best[i] + cost of the group i..j, which is the interval recurrence of section 12 with one end
fixed. Most intervals are never planned: a lower bound of their cost shows that they cannot win.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, combinations, pairwise
from math import inf, isfinite

import numpy as np
from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.ir.types import is_tensor, stored_bytes
from tpusim.layer_group.cost import CostModel
from tpusim.layer_group.planning import Decided, plan, view_at_edge
from tpusim.layer_group.search.greedy import alone, greedy
from tpusim.layer_group.search.shapes import better
from tpusim.layer_group.search.spread import spread
from tpusim.ops.base import TpuOp
from tpusim.ops.structure import TopWeight
from tpusim.schedule import GroupSchedule, Memo

CLUSTERS = 50
"""Runs with more ops are cut into clusters of at most len/CLUSTERS ops, which the program does not look into."""
PATIENCE = 8
"""Groups from the same first op that may fail, beyond the longest that works, before none longer is tried."""
MARGIN = 1 - 1e-9
"""Sums of nanoseconds are equal up to this factor."""
_Piece = tuple[int, int, Decided]
"""First op, end, and what was decided for them."""


def dynamic(
    ops: list[TpuOp], chip: ChipSpec, cores: int = 1, memo: Memo | None = None, *, better_shapes: bool = False
) -> list[Decided]:
    """The cheapest groups found: by dynamic programming, slid and merged, or the greedy ones if they cost less.

    better_shapes: the sections of the groups, and of those that a cut divides, are searched for the least time
    (shape_secs_search_strategy 1).
    """
    run = Run(ops, chip, cores, memo)
    if len(ops) == 1:
        return [run.spread(alone(ops[0], chip, run.memo))]
    cuts = run.refined(run.divided(clusters(run)))
    found = [run.decided(i, j) for i, j in pairwise(cuts)]
    first = [run.spread(item) for item in greedy(ops, chip, run.memo)]
    if better_shapes:
        found, first = run.reshaped(cuts), [run.shaped(item) for item in first]
    return found if run.model.total_ns(found) <= run.model.total_ns(first) else first


@dataclass
class _Interval:
    cost_ns: float
    decided: Decided | None
    """None: the ops cannot be one group."""


class Run:
    """The ops of one base group; costs of its intervals, each found once."""

    def __init__(self, ops: Sequence[TpuOp], chip: ChipSpec, cores: int = 1, memo: Memo | None = None) -> None:
        self.ops = list(ops)
        self.chip = chip
        self.cores = cores
        self.model = CostModel(chip, cores)
        self.memo = memo or Memo()
        self._known: dict[tuple[int, int], _Interval] = {}
        self._ends: list[dict[int, bool]] = [{} for _ in self.ops]
        """Of the groups planned from each op: their ends, and whether they work."""

    def interval(self, start: int, end: int) -> _Interval:
        """The ops start..end as one group; a single op may be a global layer."""
        found = self._known.get((start, end))
        if found is None:
            found = self._known[start, end] = self._planned(start, end)
        return found

    def decided(self, start: int, end: int) -> Decided:
        """What was decided for an interval that can be one group."""
        found = self.interval(start, end).decided
        assert found is not None
        return found

    def _planned(self, start: int, end: int) -> _Interval:
        if end - start == 1:
            single = self.spread(alone(self.ops[start], self.chip, self.memo))
            return _Interval(self.model.total_ns([single]), single)
        if self._hopeless(start, end):
            return _Interval(inf, None)
        found = plan(self.ops[start:end], self.chip, memo=self.memo)
        works = isinstance(found, GroupSchedule)
        if works or not view_at_edge(self.ops[start:end]):
            self._ends[start][end] = works
        if not isinstance(found, GroupSchedule):
            return _Interval(inf, None)
        found = spread(found, self.model)
        return _Interval(self.model.group_ns(found), found)

    def _hopeless(self, start: int, end: int) -> bool:
        """Whether PATIENCE shorter groups from the same op fail, longer than all that are known to work."""
        ends = self._ends[start]
        longest = max((e for e, works in ends.items() if works), default=start)
        return sum(not works and longest < e < end for e, works in ends.items()) >= PATIENCE

    def spread(self, found: Decided) -> Decided:
        """A group with the sections that suit the cores."""
        return spread(found, self.model) if isinstance(found, GroupSchedule) else found

    def total(self, intervals: Iterable[tuple[int, int]]) -> float:
        """Nanoseconds of a division."""
        return sum(self.interval(i, j).cost_ns for i, j in intervals)

    def divided(self, allowed: Sequence[int]) -> list[int]:
        """The cuts of the cheapest division; clusters that are no group by themselves are opened where none works.

        A cluster of one op always works (it may be a global layer), so that a division is found in the end.
        """
        cuts = self.cheapest(allowed)
        return cuts if isfinite(self.total(pairwise(cuts))) else self.cheapest(self._opened(allowed))

    def _opened(self, allowed: Sequence[int]) -> list[int]:
        """The places, and every place in a cluster that is no group: one that ends in a view, say."""
        steps = (range(i, j) if self.interval(i, j).decided is None else (i,) for i, j in pairwise(allowed))
        return [*chain.from_iterable(steps), allowed[-1]]

    def cheapest(self, allowed: Sequence[int]) -> list[int]:
        """The cuts, ends included, of the cheapest division at the allowed places.

        An interval counts with its lower bound until it stands on the cheapest division by what is known so far; then
        it is planned, and counts with its cost. Nothing is left to gain when all of that division is planned.
        """
        count = len(allowed)
        costs = np.full((count, count), inf)
        for k, at in combinations(range(count), 2):
            costs[k, at] = self.bound(allowed[k], allowed[at]) * MARGIN
        planned = np.zeros_like(costs, dtype=bool)
        while True:
            division = _shortest(costs)
            unknown = [pair for pair in pairwise(division) if not planned[pair]]
            if not unknown:
                return [allowed[at] for at in division]
            for k, at in unknown:
                costs[k, at], planned[k, at] = self.interval(allowed[k], allowed[at]).cost_ns, True

    def refined(self, cuts: list[int]) -> list[int]:
        """Cuts slid inside the clusters beside them, and neighbours merged, while that is cheaper."""
        reach = self.cluster_size
        cuts = list(cuts)
        if reach > 1:
            for at in range(1, len(cuts) - 1):
                self._slide(cuts, at, reach)
        at = 1
        while at < len(cuts) - 1:
            first, cut, last = cuts[at - 1 : at + 2]
            apart = self.total(((first, cut), (cut, last)))
            if self.bound(first, last) < apart and self.interval(first, last).cost_ns < apart * MARGIN:
                del cuts[at]
            else:
                at += 1
        return cuts

    def _slide(self, cuts: list[int], at: int, reach: int) -> None:
        first, cut, last = cuts[at - 1 : at + 2]
        best = self.total(((first, cut), (cut, last)))
        for other in range(max(cut - reach, first + 1), min(cut + reach, last - 1) + 1):
            if self.bound(first, other) + self.bound(other, last) < best:
                cost = self.total(((first, other), (other, last)))
                if cost < best * MARGIN:
                    best, cuts[at] = cost, other

    def shaped(self, decided: Decided) -> Decided:
        """A group with the sections that cost least."""
        return better(decided, self.model, self.chip) if isinstance(decided, GroupSchedule) else decided

    def reshaped(self, cuts: Sequence[int]) -> list[Decided]:
        """The groups between the cuts with their best sections; a cut that these make needless goes.

        Decision: "better only where the program would cut" (shape strategy 1) is read so.
        """
        found: list[_Piece] = []
        for start, end in pairwise(cuts):
            found.append((start, end, self.shaped(self.decided(start, end))))
            while len(found) > 1 and (merged := self._merged(*found[-2:])) is not None:
                found[-2:] = [merged]
        return [decided for _, _, decided in found]

    def _merged(self, left: _Piece, right: _Piece) -> _Piece | None:
        """Two neighbours as one group where its best sections make that cheaper."""
        start, end = left[0], right[1]
        apart = self.model.total_ns((left[2], right[2]))
        if self.bound(start, end) >= apart or (one := self.interval(start, end).decided) is None:
            return None
        one = self.shaped(one)
        return (start, end, one) if self.model.total_ns((one,)) < apart * MARGIN else None

    @property
    def cluster_size(self) -> int:
        """Ops per cluster at most."""
        return max(len(self.ops) // CLUSTERS, 1)

    # ---------------------------------------------------------------------------------------------------- lower bounds

    def bound(self, start: int, end: int) -> float:
        """Nanoseconds that no sections of the group can undercut: every tensor moved once, or its rows one by one.

        A row lasts as long as its op uncut, and as the load of the coefficients that the next op alone holds: these
        move once, in that row of one iteration, however often the group is cut. Nothing is computed beside the load
        of the first op's. Several cores share all at best but these coefficients, which each of them loads. One op alone
        may be a global layer, and is planned.
        """
        if end - start == 1:
            return self.interval(start, end).cost_ns
        moved = self._crossing(start, end) / self.cores + self._loaded[end] - self._loaded[start]
        rows = self._held[start] + self._rows[end - 1] - self._rows[start] + self._computed[end - 1]
        return max(rows, moved)

    def crossing_bytes(self, cut: int) -> int:
        """Bytes of the activations that a cut sends through global memory."""
        values = self._values
        return int(values.bytes[(values.made >= 0) & (values.made < cut) & (values.last >= cut)].sum())

    @cached_property
    def _computed(self) -> list[float]:
        """What each op takes to compute uncut, of a core's share."""
        return [self.model.compute_ns(op) / self.cores for op in self.ops]

    @cached_property
    def _held(self) -> list[float]:
        """What it takes to load the coefficients that each op alone uses and no cut makes smaller."""
        return [sum(self._held_ns(op, index) for index in range(len(op.operands))) for op in self.ops]

    def _held_ns(self, op: TpuOp, index: int) -> float:
        value = op.operands[index]
        if not isinstance(value.owner, TopWeight) or op.splits_weight(index) or not value.has_one_use():
            return 0.0
        return self.model.moved_ns(value, "load", op)

    @cached_property
    def _loaded(self) -> list[float]:
        """Running sum of what it takes to load the coefficients."""
        return [0.0, *accumulate(self._held)]

    @cached_property
    def _rows(self) -> list[float]:
        """Running sum of the least time of each op's row with another op after it."""
        return [0.0, *accumulate(max(pair) for pair in zip(self._computed, self._held[1:], strict=False))]

    @cached_property
    def _values(self) -> "_Values":
        return _Values.of(self.ops, self.model)

    def _crossing(self, start: int, end: int) -> float:
        """Nanoseconds of a group's loads and stores of activations at least."""
        values = self._values
        loaded = (values.made < start) & (values.next[start] < end)
        stored = (values.made >= start) & (values.made < end) & (values.last >= end)
        return float(values.load_ns[loaded].sum() + values.store_ns[stored].sum())


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
        """Of these ops."""
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
        sizes = [stored_bytes(v) for v in values]
        last = [max(u, default=-1) for u in users]
        return cls(*map(np.array, (sizes, loads, stores, made, last)), after)


def _load_ns(value: SSAValue, users: Sequence[TpuOp], model: CostModel) -> float:
    """The least time of a load of an activation for one of its users."""
    if isinstance(value.owner, TopWeight):
        return 0.0
    return min((model.moved_ns(value, "load", user) for user in dict.fromkeys(users)), default=0.0)


def _shortest(costs: np.ndarray) -> list[int]:
    """The nodes of the cheapest way from the first to the last; costs[i, j] is that of the step from i to j > i."""
    best, before = np.zeros(len(costs)), [0] * len(costs)
    for at in range(1, len(costs)):
        through = best[:at] + costs[:at, at]
        before[at] = int(through.argmin())  # on ties the longest group
        best[at] = through[before[at]]
    way = [len(costs) - 1]
    while way[-1]:
        way.append(before[way[-1]])
    return way[::-1]


def clusters(run: Run) -> list[int]:
    """Where the program may cut: from each cut on, at the place within reach that the fewest bytes cross.

    Decision: section 12 says how long clusters are, not where they end.
    """
    size, count = run.cluster_size, len(run.ops)
    cuts = [0]
    while cuts[-1] < count:
        able = range(cuts[-1] + 1, min(cuts[-1] + size, count) + 1)
        cuts.append(count if able[-1] == count else min(able, key=lambda cut: (run.crossing_bytes(cut), -cut)))
    return cuts
