"""Search for the set of float ops that reaches the goal at the fewest cycles.

1. The errors of every op's integers are measured on two samples (`Errors`), and the cycles of the ops with the largest
   errors in float are estimated.
2. A first set. For a cosine it is the cheapest set according to these errors and estimates, corrected by the difference
   between measured and predicted loss of the sets before. For another goal ops are added by loss per cycle until the
   goal is reached.
3. The set is improved: ops are removed, neighbours are added (casts vanish, groups join again), ops are exchanged.

The clock and the goal on all samples decide. Errors, a few samples and estimated cycles only select the sets that are
measured. The same inputs give the same set.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from tpusim.studies.search.goal import Cosine
from tpusim.studies.search.model import Foreseen
from tpusim.studies.search.trials import Floats, Score, Trials

PRICED = 12
"""The cycles in float of so many ops, those with the largest losses, are estimated one by one."""
MORE = 0.01
"""A set is put on the clock if its estimated cycles exceed those of the best set by at most this share."""
EXCHANGES = 3
"""So many ops are tried in exchange for one."""
ATTEMPTS = 8
"""The model of errors is given up if so many first sets miss the goal."""
SPARE = 1.05
"""A set is tried if its predicted loss is at most so many times the allowed loss."""
CLOCKED = 8
"""The default limit of programs that are put on the clock."""
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Found:
    """A set of float ops with its accuracy and cost, and those of the network without it.

    losses: of the cosine by op, with all others in float; {} if the network reaches the goal without changes.
    """

    floats: Floats
    score: Score
    cycles: int
    reached: bool
    base: Score
    base_cycles: int
    losses: dict[str, float] = field(default_factory=dict[str, float])


def search(
    trials: Trials, start: Floats = frozenset(), *, clocked: int = CLOCKED, progress: Progress | None = None
) -> Found:
    """The cheapest set of the search. start: ops that are float in any case. clocked: cost about so many programs.

    If not even all ops in float reach the goal, the set is all ops, and `reached` is False.
    """
    return _Search(trials, start, clocked, progress or _silent).found()


def search_by_loss(trials: Trials, start: Floats = frozenset(), *, progress: Progress | None = None) -> Found:
    """A search by accuracy alone: the fewest ops with the largest losses that reach the goal; only that is costed."""
    return _Search(trials, start, 0, progress or _silent).found(by_loss=True)


def _silent(text: str) -> None:
    del text


class _Search:
    def __init__(self, trials: Trials, start: Floats, clocked: int, progress: Progress) -> None:
        self._trials, self._start, self._clocked, self._told = trials, start & set(trials.candidates), clocked, progress
        self._all = frozenset(trials.candidates)
        self._losses: dict[str, float] = {}

    def found(self, *, by_loss: bool = False) -> Found:
        trials = self._trials
        chosen = self._start
        if not trials.reached(self._start):
            chosen = self._all
            if trials.likely(self._all) or trials.reached(self._all):
                self._losses = dict(self._measured())
                chosen = self._foreseen_set() if self._foreseen and not by_loss else None
                while chosen is None or not (trials.reached(chosen) or chosen == self._all):
                    chosen = self._beginning(by_loss=by_loss)
            if trials.reached(chosen) and not by_loss:
                chosen = self._improved(chosen)
        none = frozenset[str]()
        return Found(
            chosen, trials.score(chosen), trials.cycles(chosen), trials.reached(chosen), trials.score(none),
            trials.cycles(none), self._losses,
        )  # fmt: skip

    def _measured(self) -> Iterator[tuple[str, float]]:
        """(name, loss) of every op that may be float, alone in integers, the largest loss first."""
        self._told("errors of every op")
        errors = self._trials.errors
        found = {name: errors.loss({name}) for name in self._trials.candidates if name not in self._start}
        yield from sorted(found.items(), key=lambda item: -item[1])

    # ------------------------------------------------------------------------------------------------- first sets

    def _beginning(self, *, by_loss: bool) -> Floats:
        """A first set that is likely to reach the goal: by loss alone, or the cheapest of three orders.

        Each failed candidate sharpens the estimate that chooses the next.
        """
        if by_loss:
            return self._first(list(self._losses))
        best, *others = self._first(self._by_price()), self._first(list(self._losses)), self._all
        for one in others:
            best = one if self._is_cheaper(one, best) else best
        return best

    @cached_property
    def _prices(self) -> dict[str, float]:
        """Estimated cycles of an op alone in float, casts included, for the ops with the largest losses."""
        base, asked = self._trials.estimate(self._start), dict[str, float]()
        for name in islice(self._losses, PRICED):
            self._told(f"cycles of {name} in float")
            asked[name] = self._trials.estimate(self._start | {name}) - base
        return asked

    @cached_property
    def _foreseen(self) -> Foreseen | None:
        """The predictions of loss and cycles for sets; None if the goal is no cosine."""
        goal = self._trials.goal
        if not isinstance(goal, Cosine):
            return None
        between = self._trials.elements_between()
        return Foreseen(self._trials.errors, self._start, self._rough, self._prices, between, 1 - goal.target)

    def _foreseen_set(self) -> Floats | None:
        """Of the sets with the least predicted cycles that reach the goal, the cheapest on the clock; or None."""
        trials, model, best = self._trials, self._foreseen, None
        assert model is not None
        for _ in range(ATTEMPTS):
            one = model.cheapest()
            self._told(f"similarity of {len(one)} ops in float")
            if one == best:
                break
            reached = trials.likely(one) and trials.reached(one)
            model.learn(one, trials.loss(one))
            if reached and (best is None or trials.cycles(one) < trials.cycles(best)):
                best = one
            elif best is not None:
                break
        if best is None:
            return None
        for order in (self._by_price(), list(self._losses)):
            one = self._start | set(next(order[:n] for n in range(len(order) + 1) if self._allows(order[:n])))
            if trials.likely(one) and trials.cycles(one) < trials.cycles(best) and trials.reached(one):
                best = one
        return best

    def _allows(self, names: list[str]) -> bool:
        """Whether the predicted loss of a set is small enough to try it."""
        model = self._foreseen
        assert model is not None
        return model.loss(self._start | set(names)) <= model.allowed

    def _by_price(self) -> list[str]:
        """The ops by falling loss per cycle."""
        usual = sum(self._prices.values()) / max(len(self._prices), 1)
        prices = {name: max(self._prices.get(name, usual), 1.0) for name in self._losses}
        return sorted(self._losses, key=lambda name: -self._losses[name] / prices[name])

    def _first(self, order: list[str]) -> Floats:
        """The shortest prefix of an order that is likely to reach the goal, bisected as if longer were better."""
        low, high = 0, len(order)
        while low < high:
            middle = (low + high) // 2
            self._told(f"similarity of {middle} ops in float")
            if self._trials.likely(self._start | set(order[:middle])):
                high = middle
            else:
                low = middle + 1
        return self._start | set(order[:high])

    # ------------------------------------------------------------------------------------------------ improvements

    def _improved(self, chosen: Floats) -> Floats:
        """Improve the set until no move makes it cheaper, or enough programs were on the clock.

        A few samples choose a sequence of moves. The next sequence starts from the last set of the previous one that
        reaches the goal on all samples.
        """
        while True:
            way = [chosen, *self._way(chosen)]
            reached = next(one for one in reversed(way) if self._trials.reached(one))
            if reached in (chosen, way[-1]):
                return reached
            chosen = reached

    def _way(self, chosen: Floats) -> Iterator[Floats]:
        """A sequence of sets: each is one move from the previous, cheaper, and likely to reach the goal."""
        while True:
            better = next((one for one in self._moves(chosen) if self._is_cheaper(one, chosen)), None)
            if better is None:
                return
            yield better
            chosen = better

    def _is_cheaper(self, one: Floats, than: Floats) -> bool:
        """Whether set `one` is likely to reach the goal with fewer cycles, or as many with fewer ops in float."""
        trials = self._trials
        if one == than or trials.tried[1] >= self._clocked or not self._promises(one, than):
            return False
        self._told(f"cycles of {len(one)} ops in float")
        return (trials.cycles(one), len(one)) < (trials.cycles(than), len(than))

    def _promises(self, one: Floats, than: Floats) -> bool:
        """Whether estimated cycles and then a few samples allow the set, before it is put on the clock."""
        trials, model = self._trials, self._foreseen if self._losses else None
        if model is not None and model.loss(one) > SPARE * model.allowed:
            return False
        most = trials.estimate(than) + self._returned(than)
        roughly = sum(self._rough[name] for name in one - than) - sum(self._rough[name] for name in than - one)
        return (
            trials.estimate(than) + roughly <= most
            and trials.estimate(one) <= most
            and (one > than or trials.likely(one))
        )

    def _returned(self, floats: Floats) -> float:
        """The cycles that other groups may save: by how much the groups of this set cost more than the network's."""
        asked = self._trials
        mine, base = (asked.cycles(one) - asked.estimate(one) for one in (floats, frozenset[str]()))
        return min(max(mine - base, 0.0), asked.estimate(floats) * MORE)

    @cached_property
    def _rough(self) -> dict[str, float]:
        """Estimated additional cycles of every op in float, without casts."""
        floats, integers = (self._trials.estimates(one) for one in (self._all, self._start))
        return {name: floats.get(name, 0.0) - integers.get(name, 0.0) for name in self._all}

    def _moves(self, chosen: Floats) -> Iterator[Floats]:
        """Neighbouring sets: an op removed, an adjacent op or an op that saves casts added, two ops exchanged."""
        mine = sorted(chosen - self._start, key=lambda name: self._losses[name])
        for name in mine:
            yield chosen - {name}
        saving = [name for name, price in self._prices.items() if price < 0 and name not in chosen]
        for name in dict.fromkeys((*saving, *self._trials.neighbours(chosen))):
            yield chosen | {name}
        others = [name for name in self._losses if name not in chosen]
        for name in mine:
            for other in others[:EXCHANGES]:
                yield (chosen - {name}) | {other}
