"""Sets of float ops by predicted loss and cycles: the cheapest set whose loss is allowed."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tpusim.studies.search.errors import Errors

LEAST = 1.0
"""The least number of cycles that counts when the loss of an op is divided by its cycles."""


class Foreseen:
    """Predicts loss and cycles of any set, and learns from measured sets.

    start: ops that are float in any case. longer: additional cycles of each op in float; prices: the same including
    casts, for some ops. between: (producer, consumer, elements) of the tensors. allowed: the loss (1 - cosine) that a
    set may have.
    """

    def __init__(
        self,
        errors: Errors,
        start: Collection[str],
        longer: Mapping[str, float],
        prices: Mapping[str, float],
        between: Sequence[tuple[str, str, int]],
        allowed: float,
    ) -> None:
        self._errors, self._names = errors, errors.names
        places = {name: i for i, name in enumerate(self._names)}
        self._start = np.array([name in start for name in self._names])
        self._longer = np.array([longer.get(name, 0.0) for name in self._names])
        known = [(places[p], places[c], n) for p, c, n in between if p in places and c in places]
        self._from, self._to, self._elements = (np.array(row) for row in zip(*known, strict=True)) if known else (
            np.zeros(0, int), np.zeros(0, int), np.zeros(0, int),
        )  # fmt: skip
        self._per_element = 0.0
        casts = sum(self._crossing(self._only(name)) for name in prices)
        if casts:
            self._per_element = max(sum(prices[name] - longer.get(name, 0.0) for name in prices), 0.0) / casts
        self.allowed, self._factor = allowed, 1.0

    def loss(self, floats: Collection[str]) -> float:
        """Predicted 1 - cosine of a set, times the ratio of measured to predicted loss of the last measured set."""
        return self._factor * self._errors.loss(set(self._names) - set(floats))

    def learn(self, floats: Collection[str], loss: float) -> None:
        """Learn from the measured loss of a set: predictions are scaled by its ratio to the predicted loss."""
        foreseen = self._errors.loss(set(self._names) - set(floats))
        self._factor = loss / foreseen if loss > 0 and foreseen > 0 else self._factor

    def cycles(self, here: np.ndarray) -> float:
        """Predicted additional cycles of a set, casts included; here: a flag for each op, whether it is float."""
        return float(self._longer[here].sum()) + self._per_element * self._crossing(here)

    def cheapest(self) -> frozenset[str]:
        """Add ops by loss per cycle until the loss is allowed; then improve by single ops and exchanges."""
        here = self._start.copy()
        while self._lost(here) > self.allowed and not here.all():
            here = max(self._with_one_more(here), key=lambda one: self._worth(one, here))
        while (better := self._improved(here)) is not None:
            here = better
        return frozenset(name for name, chosen in zip(self._names, here, strict=True) if chosen)

    def _only(self, name: str) -> np.ndarray:
        return self._start | np.array([one == name for one in self._names])

    def _lost(self, here: np.ndarray) -> float:
        return self._factor * self._errors.loss_of(~here)

    def _worth(self, one: np.ndarray, than: np.ndarray) -> float:
        """The loss saved per additional cycle."""
        return (self._lost(than) - self._lost(one)) / max(self.cycles(one) - self.cycles(than), LEAST)

    def _with_one_more(self, here: np.ndarray) -> list[np.ndarray]:
        return [_changed(here, i) for i in np.flatnonzero(~here)]

    def _improved(self, here: np.ndarray) -> np.ndarray | None:
        """The cheapest allowed set that differs by one op or one exchange; None if none is cheaper."""
        mine, others = np.flatnonzero(here & ~self._start), np.flatnonzero(~here)
        near = [_changed(here, i) for i in (*mine, *others)] + [_changed(here, i, j) for i in mine for j in others]
        now = self.cycles(here)
        costs = sorted(((self.cycles(one), number) for number, one in enumerate(near)), key=lambda item: item[0])
        cheaper = (near[number] for cost, number in costs if cost < now - LEAST)
        return next((one for one in cheaper if self._lost(one) <= self.allowed), None)

    def _crossing(self, here: np.ndarray) -> float:
        """Elements of the tensors between float and integer ops: one cast for each tensor and producer."""
        apart = here[self._from] != here[self._to]
        firsts = np.unique(self._from[apart], return_index=True)[1]
        return float(self._elements[apart][firsts].sum())


def _changed(here: np.ndarray, *places: np.intp) -> np.ndarray:
    one = here.copy()
    one[list(places)] ^= True
    return one
