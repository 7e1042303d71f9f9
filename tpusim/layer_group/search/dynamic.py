"""Group search opt 2: dynamic programming over intervals on the cycle model (layer_group.md 12).

best[j] = min over i of best[i] + cost of the group i..j, which is the interval recurrence of section 12 with one end
fixed. Most intervals are never planned: a lower bound of their cost shows that they cannot win.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, groupby, pairwise
from math import inf, isfinite
from operator import itemgetter

import numpy as np

from tpusim.chips import ChipSpec
from tpusim.interfaces import rules
from tpusim.ir.types import shape_of
from tpusim.layer_group.cost import CostModel
from tpusim.layer_group.planning import Crowded, Decided, placed, plan
from tpusim.layer_group.search.bounds import Bounds, Evidence
from tpusim.layer_group.search.greedy import alone, greedy
from tpusim.layer_group.search.interval_names import Names
from tpusim.layer_group.search.multicore import for_cores
from tpusim.layer_group.search.shapes import better
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.interfaces import KernelLibrary
from tpusim.schedule import GroupSchedule, Memo

CLUSTERS = 50
"""Longer runs have clusters of at most len/CLUSTERS ops; longer groups begin and end at borders of clusters."""
PATIENCE = 8
"""Number of failed groups from one first op, longer than the longest that works, after which none longer is tried."""
MARGIN = 1 - 1e-9
"""Sums of nanoseconds are equal up to this factor."""
_Piece = tuple[int, int, Decided]
"""First op, end, and the decision for these ops."""


def dynamic(
    ops: list[TpuOp], chip: ChipSpec, cores: int = 1, memo: Memo | None = None, *, better_shapes: bool = False
) -> list[Decided]:
    """The cheapest groups by dynamic programming, or the greedy groups if they cost less.

    better_shapes: the sections of the groups, and of those that a cut divides, are searched for the least time
    (shape_secs_search_strategy 1).
    """
    run = Run(ops, chip, cores, memo)
    if len(ops) == 1:
        return [run.lone(ops[0])]
    cuts = run.cheapest(combinations(clusters(run), 2))
    found = [run.decided(i, j) for i, j in pairwise(cuts)]
    first = [run.for_cores(item) for item in greedy(ops, chip, run.memo)]
    if better_shapes:
        found, first = run.reshaped(cuts), [run.shaped(item) for item in first]
    return found if run.model.total_ns(found) <= run.model.total_ns(first) else first


@dataclass
class _Interval:
    cost_ns: float
    """Infinite: the ops cannot be one group."""
    decided: Decided | None = None
    """None: no group, or only an interval of the same name was planned (`interval_names`)."""
    sure: bool = True
    """Whether its buffers have addresses; otherwise only their sizes were compared with local memory."""
    unplaced: bool = False
    """Whether it was first planned without addresses."""


class Run:
    """The ops of one base group, and the costs of its intervals, each computed once."""

    def __init__(self, ops: Sequence[TpuOp], chip: ChipSpec, cores: int = 1, memo: Memo | None = None) -> None:
        self.ops = list(ops)
        self.chip = chip
        self.cores = cores
        self.model = CostModel(chip, cores)
        self.memo = memo or Memo()
        self.bounds = Bounds(self.ops, self.model)
        self._crowded = Crowded(self.ops, chip, self.memo)
        self._known: dict[tuple[int, int], _Interval] = {}
        self._ends: list[dict[int, bool]] = [{} for _ in self.ops]
        """First op -> the ends of the groups planned from it, and whether they work."""

    def interval(self, start: int, end: int) -> _Interval:
        """The ops start..end as one group; a single op may be a global layer."""
        found = self._known.get((start, end))
        if found is None:
            found = self._known[start, end] = self._asked(start, end)
        elif not found.sure:
            found = self._known[start, end] = self._with_addresses(start, end, found)
        return found

    def likely(self, start: int, end: int) -> _Interval:
        """The same without addresses: if each row has room, addresses usually exist."""
        found = self._known.get((start, end))
        if found is None:
            found = self._known[start, end] = self._asked(start, end, unplaced=True)
        return found

    def decided(self, start: int, end: int) -> Decided:
        """What was decided for an interval that can be one group."""
        found = self.interval(start, end)
        if found.decided is None:
            found.decided = self._made_here(start, end, unplaced=found.unplaced)
        return found.decided

    def _made_here(self, start: int, end: int, *, unplaced: bool) -> Decided:
        """The decision for an interval whose name is known to work."""
        found = self._planned(start, end, unplaced=unplaced).decided
        found = placed(found, self.chip) if unplaced and isinstance(found, GroupSchedule) else found
        assert found is not None
        return found

    def _with_addresses(self, start: int, end: int, found: _Interval) -> _Interval:
        """The interval with addresses, after only its sizes were compared with local memory."""
        asked = self._name(start, end, "placed")
        if asked in self.memo.costs:
            return _Interval(found.cost_ns, unplaced=True)
        plan = found.decided or self._planned(start, end, unplaced=True).decided
        assert isinstance(plan, GroupSchedule)
        able = placed(plan, self.chip)
        if able is None:
            return self._asked(start, end)
        self.memo.costs[asked] = found.cost_ns
        return _Interval(found.cost_ns, able, unplaced=True)

    def _asked(self, start: int, end: int, *, unplaced: bool = False) -> _Interval:
        """An interval that is requested first; its cost may be known from an interval of the same name."""
        single = end - start == 1
        if not single and self._hopeless(start, end):
            return _Interval(inf)
        asked = self._name(start, end, "likely" if unplaced else "sure")
        cost = self.memo.costs.get(asked)
        if cost is None:
            found = self._planned(start, end, unplaced=unplaced)
            self.memo.costs[asked] = found.cost_ns
        else:
            found = _Interval(cost, sure=single or not unplaced or cost == inf, unplaced=unplaced and not single)
        if not single:
            self._ends[start][end] = isfinite(found.cost_ns)
        return found

    def _name(self, start: int, end: int, how: str) -> object:
        """The key of the interval's cost, in this and in other modules."""
        return how, self.cores, self.chip.lmem_bytes, self._names.of(start, end)

    @cached_property
    def _names(self) -> Names:
        return Names(self.ops)

    def _planned(self, start: int, end: int, *, unplaced: bool = False) -> _Interval:
        if end - start == 1:
            single = self.lone(self.ops[start])
            return _Interval(self.model.total_ns([single]), single)
        refused = self._crowded.refuses(start, end)
        found = "" if refused else plan(self.ops[start:end], self.chip, memo=self.memo, unplaced=unplaced)
        if not isinstance(found, GroupSchedule):
            return _Interval(inf)
        found = for_cores(found, self.model, unplaced=unplaced)
        return _Interval(self.model.group_ns(found), found, sure=not unplaced, unplaced=unplaced)

    def _hopeless(self, start: int, end: int) -> bool:
        """Whether PATIENCE shorter groups from the same op fail that are longer than every group known to work."""
        ends = self._ends[start]
        longest = max((e for e, works in ends.items() if works), default=start)
        return sum(not works and longest < e < end for e, works in ends.items()) >= PATIENCE

    def lone(self, op: TpuOp) -> Decided:
        """One op as a group, or as a global layer: if it must be, or, of two axes, if that is quicker.

        Decision: only of two axes, of which a slice has one element in each lane and takes ten times as long to move.
        TPU-MLIR keeps ops of more axes in groups where the global form would be a little quicker. Only some libraries
        have kernels for lone ops.
        """
        found = self.for_cores(alone(op, self.chip, self.memo))
        kernels = rules(self.chip, KernelLibrary).LONE_CASTS
        if not isinstance(found, GroupSchedule) or len(shape_of(op.results[0])) > 2 or not kernels:
            return found
        quicker = self.model.global_ns(op) < self.model.group_ns(found) * MARGIN
        return (op, "of two axes it is quicker as a global layer") if quicker else found

    def for_cores(self, found: Decided) -> Decided:
        """A group with the sections that suit the cores."""
        return for_cores(found, self.model) if isinstance(found, GroupSchedule) else found

    def total(self, intervals: Iterable[tuple[int, int]]) -> float:
        """Nanoseconds of a division into these intervals of ops."""
        return sum(self.interval(i, j).cost_ns for i, j in intervals)

    def cheapest(self, able: Iterable[tuple[int, int]]) -> list[int]:
        """The cuts, ends included, of the cheapest division into groups that are among these.

        able: first op and end; a single op always works (it may be a global layer).
        An interval counts with its lower bound until it is part of the cheapest division by the present costs; then it
        is planned, and counts with its cost. The division is final when all its groups are planned and placed.
        """
        pairs = sorted(able)
        costs = self._bounds(pairs)
        planned = np.zeros_like(costs, dtype=bool)
        equal = self._of_equal_name(pairs) if self.cores == 1 else {}
        evidence = Evidence(len(self.ops))  # for several cores; useless for one
        ways, changed = Ways(costs), 1
        while True:
            division = ways.shortest(changed)
            unknown = [pair for pair in pairwise(division) if not planned[pair]]
            if not unknown and self._settled(division, costs):
                return division
            changed = min(end for _, end in unknown or pairwise(division)) if self.cores == 1 else 1
            for pair in unknown:
                costs[pair], planned[pair] = self.likely(*pair).cost_ns, True
                for other in self._known_from(pair, equal):
                    if not planned[other]:
                        costs[other], planned[other] = self.likely(*other).cost_ns, True
                        changed = min(changed, other[1])
                if self.cores > 1 and isfinite(costs[pair]):
                    evidence.add(*pair, float(costs[pair]) - self.bounds.crossing_ns(*pair))
            if self.cores > 1:
                np.maximum(costs, evidence.inside * MARGIN, out=costs, where=~planned)

    def _of_equal_name(self, able: Iterable[tuple[int, int]]) -> dict[object, list[tuple[int, int]]]:
        """The intervals of every name, without single ops."""
        found: dict[object, list[tuple[int, int]]] = {}
        for start, end in able:
            if end - start > 1:
                found.setdefault(self._name(start, end, "likely"), []).append((start, end))
        return found

    def _known_from(
        self, pair: tuple[int, int], equal: dict[object, list[tuple[int, int]]]
    ) -> Sequence[tuple[int, int]]:
        """The intervals whose cost follows from that of `pair`, once: those of its name, if it was planned.

        On several cores (`equal` is empty) they wait until they are on the cheapest path: `Evidence` may exclude them.
        """
        name = self._name(*pair, "likely")
        return equal.pop(name, ()) if name in self.memo.costs else ()

    def _bounds(self, able: Sequence[tuple[int, int]]) -> np.ndarray:
        """[first op, end]: the lower bound times MARGIN; infinite for other intervals. able: in ascending order."""
        costs = np.full((len(self.ops) + 1,) * 2, inf, order="F")  # `Ways` goes through columns
        for start, of_start in groupby(able, itemgetter(0)):
            ends = np.array([end for _, end in of_start])
            costs[start, ends] = self.bounds.least_of_all(start, ends) * MARGIN
            if start + 1 in ends:
                costs[start, start + 1] = self.bound(start, start + 1) * MARGIN
        return costs

    def _settled(self, division: Sequence[int], costs: np.ndarray) -> bool:
        """Whether all groups of a division keep their cost when they get addresses; `costs` is updated."""
        before = [float(costs[pair]) for pair in pairwise(division)]
        for pair in pairwise(division):
            costs[pair] = self.interval(*pair).cost_ns
        return before == [float(costs[pair]) for pair in pairwise(division)]

    def bound(self, start: int, end: int) -> float:
        """Lower bound of these ops as one group in nanoseconds; a single op may be a global layer, and is planned."""
        if end - start == 1:
            return self.interval(start, end).cost_ns
        return self.bounds.least_ns(start, end)

    def shaped(self, decided: Decided) -> Decided:
        """A group with the sections that cost least."""
        return better(decided, self.model, self.chip) if isinstance(decided, GroupSchedule) else decided

    def reshaped(self, cuts: Sequence[int]) -> list[Decided]:
        """The groups between the cuts with their best sections; a cut is removed if these make it unnecessary.

        Decision: this is how "better only where the program would cut" (shape strategy 1) is understood.
        """
        found: list[_Piece] = []
        for start, end in pairwise(cuts):
            found.append((start, end, self.shaped(self.decided(start, end))))
            while len(found) > 1 and (merged := self._merged(*found[-2:])) is not None:
                found[-2:] = [merged]
        return [decided for _, _, decided in found]

    def _merged(self, left: _Piece, right: _Piece) -> _Piece | None:
        """Two adjacent groups as one group if its best sections make that cheaper."""
        start, end = left[0], right[1]
        apart = self.model.total_ns((left[2], right[2]))
        if self.bound(start, end) >= apart or not isfinite(self.interval(start, end).cost_ns):
            return None
        one = self.shaped(self.decided(start, end))
        return (start, end, one) if self.model.total_ns((one,)) < apart * MARGIN else None

    @property
    def cluster_size(self) -> int:
        """Most ops of one cluster."""
        return max(len(self.ops) // CLUSTERS, 1)


class Ways:
    """The cheapest paths from the first node to all others; costs[i, j] of a step from i to j > i may change.

    A step that is impossible (infinite) at first stays impossible, and is not looked at again.
    """

    def __init__(self, costs: np.ndarray) -> None:
        self._costs, self._best, self._before = costs, np.zeros(len(costs)), [0] * len(costs)
        self._steps = [_indices(np.flatnonzero(np.isfinite(costs[:at, at]))) for at in range(len(costs))]
        """The nodes with a step to each node, in ascending order."""

    def shortest(self, changed: int) -> list[int]:
        """The nodes of the cheapest path to the last node; changed: the first node to which a cost changed."""
        best, costs = self._best, self._costs
        for at in range(changed, len(best)):
            steps = self._steps[at]
            if steps is None:
                best[at] = inf
                continue
            through = best[steps] + costs[steps, at]
            first = int((through * MARGIN <= through.min()).argmax())  # on ties the longest group
            self._before[at] = steps.start + first if isinstance(steps, slice) else int(steps[first])
            best[at] = through[first]
        way = [len(best) - 1]
        while way[-1]:
            way.append(self._before[way[-1]])
        return way[::-1]


def _indices(ascending: np.ndarray) -> np.ndarray | slice | None:
    """The same indices as a slice, which is quicker, if they follow each other; None: there are none."""
    if not len(ascending):
        return None
    first, last = int(ascending[0]), int(ascending[-1])
    return slice(first, last + 1) if last - first + 1 == len(ascending) else ascending


def clusters(run: Run) -> list[int]:
    """Where groups may begin and end: where the cheapest ones of at most `cluster_size` ops do."""
    size, count = run.cluster_size, len(run.ops)
    if size == 1:
        return [*range(count + 1)]
    return run.cheapest((i, j) for i in range(count) for j in range(i + 1, min(i + size, count) + 1))
