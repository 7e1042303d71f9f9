"""The set of float ops that reaches the goal at the fewest cycles that are found.

What the integers of every op do to the results is measured on two samples (`Errors`); what it costs alone is estimated,
for those that lose most. For a cosine a first set is the cheapest by these two, with what the measured sets before it
lose more than was foreseen; for another goal ops are taken by loss for their cycles, as few as reach it. Then the set
is improved: ops left out, ops beside it taken in (casts vanish, groups join again), ops exchanged. What decides is the
clock, and the goal on all samples; errors, a few samples and estimates of cycles only tell which sets are worth that.
The same inputs give the same set.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from tpusim.search.goal import Cosine
from tpusim.search.model import Foreseen
from tpusim.search.trials import Floats, Score, Trials

PRICED = 12
"""How many ops are priced alone, those that lose most."""
MORE = 0.01
"""By how much of the best set's cycles another one may have more, both estimated, and still be put on the clock."""
EXCHANGES = 3
"""How many ops are tried in the place of one."""
ATTEMPTS = 8
"""How many first sets are measured at most before the model of errors is given up."""
SPARE = 1.05
"""By how much a set may lose more than it is allowed, foreseen, and still be tried."""
CLOCKED = 8
"""How many programs are put on the clock at most, by default."""
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Found:
    """A set, what it reaches and costs, and the same of the network as it is.

    losses: of the cosine by op, with all others in float; {} if the network reaches the goal as it is.
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
    """The cheapest set found. start: ops that are float in any case. clocked: programs to put on the clock at
    most, about.

    If not even all ops in float reach the goal, these are the set, and `reached` is False.
    """
    return _Search(trials, start, clocked, progress or _silent).found()


def search_by_loss(trials: Trials, start: Floats = frozenset(), *, progress: Progress | None = None) -> Found:
    """What goes by accuracy alone finds: the ops that lose most, as few as reach the goal; only then it is grouped."""
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
        """A set that is likely to reach the goal: by loss alone, or the cheapest of that, by loss for cycles and all.

        The score of one that does not reach it makes the next one likelier.
        """
        if by_loss:
            return self._first(list(self._losses))
        best, *others = self._first(self._by_price()), self._first(list(self._losses)), self._all
        for one in others:
            best = one if self._is_cheaper(one, best) else best
        return best

    @cached_property
    def _prices(self) -> dict[str, float]:
        """Cycles of an op in float alone, estimated, casts included; of those that lose most. Others cost the mean."""
        base, asked = self._trials.estimate(self._start), dict[str, float]()
        for name in islice(self._losses, PRICED):
            self._told(f"cycles of {name} in float")
            asked[name] = self._trials.estimate(self._start | {name}) - base
        return asked

    @cached_property
    def _foreseen(self) -> Foreseen | None:
        """What errors and estimates say of sets; None if the goal is no cosine."""
        goal = self._trials.goal
        if not isinstance(goal, Cosine):
            return None
        beside = self._trials.elements_between()
        return Foreseen(self._trials.errors, self._start, self._rough, self._prices, beside, 1 - goal.target)

    def _foreseen_set(self) -> Floats | None:
        """The cheapest on the clock of the sets that are the cheapest foreseen, and reach the goal; None: none does."""
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
        """Whether a set is foreseen to lose no more than it may."""
        model = self._foreseen
        assert model is not None
        return model.loss(self._start | set(names)) <= model.allowed

    def _by_price(self) -> list[str]:
        """The ops by loss for their cycles."""
        usual = sum(self._prices.values()) / max(len(self._prices), 1)
        prices = {name: max(self._prices.get(name, usual), 1.0) for name in self._losses}
        return sorted(self._losses, key=lambda name: -self._losses[name] / prices[name])

    def _first(self, order: list[str]) -> Floats:
        """The shortest beginning of an order that is likely to reach the goal, bisected as if longer were better."""
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
        """No move makes the set cheaper any more, or enough programs were on the clock.

        A few samples choose the way; the last set on it that reaches the goal on all of them is where the next begins.
        """
        while True:
            way = [chosen, *self._way(chosen)]
            reached = next(one for one in reversed(way) if self._trials.reached(one))
            if reached in (chosen, way[-1]):
                return reached
            chosen = reached

    def _way(self, chosen: Floats) -> Iterator[Floats]:
        """Sets, each by one move cheaper than the one before, and likely to reach the goal."""
        while True:
            better = next((one for one in self._moves(chosen) if self._is_cheaper(one, chosen)), None)
            if better is None:
                return
            yield better
            chosen = better

    def _is_cheaper(self, one: Floats, than: Floats) -> bool:
        """Whether it is likely to reach the goal and takes fewer cycles, or as many with fewer ops in float."""
        trials = self._trials
        if one == than or trials.tried[1] >= self._clocked or not self._promises(one, than):
            return False
        self._told(f"cycles of {len(one)} ops in float")
        return (trials.cycles(one), len(one)) < (trials.cycles(than), len(than))

    def _promises(self, one: Floats, than: Floats) -> bool:
        """Whether nothing speaks against it before it is on the clock: estimates of its cycles, then a few samples."""
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
        """The cycles that other groups may give back: what groups cost this set more than the network as it is."""
        asked = self._trials
        mine, base = (asked.cycles(one) - asked.estimate(one) for one in (floats, frozenset[str]()))
        return min(max(mine - base, 0.0), asked.estimate(floats) * MORE)

    @cached_property
    def _rough(self) -> dict[str, float]:
        """What every op takes longer in float than in integers, estimated in cycles without casts."""
        floats, integers = (self._trials.estimates(one) for one in (self._all, self._start))
        return {name: floats.get(name, 0.0) - integers.get(name, 0.0) for name in self._all}

    def _moves(self, chosen: Floats) -> Iterator[Floats]:
        """Sets near to this one: without an op, with one beside it or that saves casts, with one instead of another."""
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
