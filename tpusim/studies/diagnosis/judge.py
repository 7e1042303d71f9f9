"""The error of a lowered network's results on many samples, half of which are held out from the choice of remedies.

A remedy that is chosen because it helps on some samples must help on others. So every second sample is held out:
remedies are ranked on the first half, and a remedy that does not help on the other half is rejected.

The measure is the squared error divided by the squares of the float results, over all samples. Unlike a cosine it
depends on scale and does not saturate. Scores from 0 to 1 next to boxes from 0 to 640 hardly count in it. So the error
of the slices along each axis, each divided by the squares of that slice, is a second measure; neither may rise.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from xdsl.ir import SSAValue

from tpusim.errors import CalibrationError
from tpusim.inference import Gradual
from tpusim.inference.reuse import Part, Reuse, fits_alone, parts_of
from tpusim.inference.walk import Walk
from tpusim.ir.attrs import value_name
from tpusim.ir.module import Model
from tpusim.studies.diagnosis.magnitudes import Magnitudes
from tpusim.verify.channels import LEAST_VALUES, MOST_SLICES
from tpusim.verify.similarity import cosine_similarity

Tensors = Mapping[str, np.ndarray]

LEAST_GAIN = 0.01
"""A change must remove at least this share of the error to be reported."""
MOST_RISE = 0.005
"""An error other than the largest may rise by this share, because integers of other ops are rounded differently."""
SHOWN = 4
"""So many samples are kept in memory."""
SURE = 2.0
"""A change must improve a typical sample by so many standard errors."""


@dataclass(frozen=True)
class Measured:
    """The errors of one lowered network on some samples.

    errors: (samples, measures), squared errors as shares of the mean squares of the float results: of every result as a
    whole, then of its slices. cosines: (samples,), of the least similar result. wholes: how many measures are of whole
    results.
    """

    errors: np.ndarray
    cosines: np.ndarray
    wholes: int

    @property
    def samples(self) -> int:
        """The number of samples."""
        return len(self.cosines)

    @property
    def error(self) -> float:
        """The squared error of the worst result, divided by its squares."""
        return float(self.errors[:, : self.wholes].mean(axis=0).max())

    @property
    def deviation(self) -> float:
        """The standard deviation of `error` between samples."""
        worst = int(self.errors[:, : self.wholes].mean(axis=0).argmax())
        return float(self.errors[:, worst].std(ddof=1)) if self.samples > 1 else 0.0

    @property
    def largest(self) -> float:
        """The largest of all measures, slices included."""
        return float(self.errors.mean(axis=0).max())

    @property
    def cosine(self) -> float:
        """The cosine of the least similar result, averaged over the samples."""
        return float(self.cosines.mean())

    @property
    def least(self) -> float:
        """The cosine of the least similar result on the worst sample."""
        return float(self.cosines.min())

    @property
    def sqnr(self) -> float:
        """The error as signal to noise ratio in dB."""
        return float(-10 * np.log10(self.error)) if self.error > 0 else float("inf")

    def is_better_than(self, other: "Measured") -> bool:
        """Whether errors are smaller on the same samples: in total and in a typical sample, and none is larger.

        The largest error falls by LEAST_GAIN at least. It, or the error of a whole result, falls by more than one
        standard error, and in a typical sample by SURE of them. No other error rises by more than MOST_RISE. So a
        single sample with another class does not hide that the scores of all samples are better.
        """
        before, after = other.errors.mean(axis=0), self.errors.mean(axis=0)
        worst = int(before.argmax())
        if after.max() > (1 - LEAST_GAIN) * before.max() or self.error > other.error:
            return False
        if np.any(after > before * (1 + MOST_RISE)):
            return False
        return any(_surely_falls(other.errors[:, i], self.errors[:, i]) for i in {worst, *range(self.wholes)})

    def __str__(self) -> str:
        if self.samples == 1:
            return f"error {self.error:.4g}, cosine {self.cosine:.6f}"
        return f"error {self.error:.4g} ± {self.deviation:.2g}, cosine {self.cosine:.6f}, worst {self.least:.6f}"


def _surely_falls(was: np.ndarray, now: np.ndarray) -> bool:
    """Whether an error is smaller, by LEAST_GAIN at least, in total and in a typical sample."""
    if now.mean() > (1 - LEAST_GAIN) * was.mean():
        return False
    return _falls(now - was, 1.0) and _falls((now - was) / np.maximum(now + was, np.finfo(np.float64).tiny), SURE)


def _falls(differences: np.ndarray, errors: float) -> bool:
    """Whether the mean is below zero by so many standard errors, or every difference is below zero."""
    count = len(differences)
    error = float(differences.std(ddof=1)) / np.sqrt(count) if count > 2 else 0.0
    return float(differences.mean()) < -errors * error or bool(np.all(differences < 0))


@dataclass(frozen=True)
class Judged:
    """The errors of a network on the samples that chose its changes and on held-out samples (None without any)."""

    judged: Measured
    held_out: Measured | None

    def holds_against(self, before: "Judged") -> bool:
        """Whether it is better on both halves."""
        if not self.judged.is_better_than(before.judged):
            return False
        return self.held_out is None or before.held_out is None or self.held_out.is_better_than(before.held_out)

    def raises(self, before: "Judged") -> bool:
        """Whether the error is larger on one of the halves."""
        pairs = ((self.judged, before.judged), (self.held_out, before.held_out))
        return any(now.error > was.error for now, was in pairs if now is not None and was is not None)

    @property
    def last(self) -> Measured:
        """The errors on the held-out samples if there are any, otherwise on the others."""
        return self.judged if self.held_out is None else self.held_out


class Judge:
    """Compares lowered networks with the float network on samples.

    top: the float network. samples: read once for the float results and once for every group of networks that are
    measured; few are kept. choosing: the first so many samples choose; None: every second sample. look: whether to
    collect `seen`, the statistics of each tensor of the float network. shown: the first samples (one for a large
    network), for results of single ops. large: whether samples do not fit into batches.
    """

    def __init__(
        self,
        top: Model,
        samples: Iterable[Tensors],
        progress: Callable[[str], None] | None = None,
        *,
        choosing: int | None = None,
        look: bool = True,
    ) -> None:
        self._samples, self._top, self._choosing = samples, top, choosing
        self._names = [value_name(value) for value in top.results]
        self.large = fits_alone(top)
        self.shown: list[Tensors] = []
        self.seen: dict[str, Magnitudes] = {}
        self.wanted: list[dict[str, np.ndarray]] = []
        for sample, found in self._looked(look=look):
            if len(self.shown) < SHOWN and not (self.shown and self.large):
                self.shown.append(sample)
            self.wanted.append({name: found[name] for name in self._names})
            if progress is not None:
                progress(f"float network on sample {len(self.wanted)}")
        if not self.wanted:
            raise CalibrationError("samples: at least one sample is required, got none")
        self._energies = self._measured_energies()
        self._reuse = Reuse()

    def _looked(self, *, look: bool) -> Iterator[tuple[Tensors, Tensors]]:
        """Every sample and its float results. look: collect statistics of all tensors; large ones are then dropped."""

        def at(name: str, tensor: np.ndarray) -> None:
            if tensor.dtype.kind == "f":
                self.seen.setdefault(name, Magnitudes()).add(tensor)

        def seen(value: SSAValue, tensor: np.ndarray) -> np.ndarray:
            at(value_name(value), tensor)
            return tensor

        if not (look and self.large):
            for sample, found in Gradual(self._top, "all" if look else self._names).each(self._samples):
                for name, tensor in found.items() if look else ():
                    at(name, tensor)
                yield sample, found
            return
        for sample in self._samples:
            walk = Walk(self._top, sample, self._names, seen)
            yield sample, {name: walk.take(name) for name in self._names}

    @property
    def samples(self) -> Iterable[Tensors]:
        """All samples, read again."""
        return self._samples

    @property
    def count(self) -> int:
        """How many samples there are."""
        return len(self.wanted)

    @property
    def halves(self) -> tuple[int, int]:
        """The number of samples that choose, and of those that are held out."""
        return len(self.places(held_out=False)), len(self.places(held_out=True))

    def places(self, *, held_out: bool) -> range:
        """The indices of the samples of one half."""
        if self._choosing is None:
            return range(1 if held_out else 0, self.count, 2)
        first = min(self._choosing, self.count)
        return range(first, self.count) if held_out else range(first)

    def measured(self, models: Sequence[Model], places: Sequence[int]) -> list[Measured]:
        """The errors of lowered networks on the samples at `places`; an op common to several networks is run once."""
        chosen = set(places)
        rows = [list[tuple[np.ndarray, float]]() for _ in models]
        left = (sample for place, sample in enumerate(self._samples) if place in chosen)
        order = sorted(chosen)
        for part in parts_of(left, self._top):
            numbers = [order[place] for place in part.places]
            for model, row in zip(models, rows, strict=True):
                found = self._reuse.of_part(model, Part(tuple(numbers), part.samples))
                row += [self._compared(one, number) for one, number in zip(found, numbers, strict=True)]
        wholes = len(self._names)
        return [
            Measured(np.stack([errors for errors, _ in row]), np.array([cosine for _, cosine in row]), wholes)
            for row in rows
        ]  # fmt: skip

    def of_half(self, models: Sequence[Model], *, held_out: bool, most: int = 0) -> list[Measured]:
        """The errors of lowered networks on one half; most: only on its first so many samples, 0 for all."""
        places = self.places(held_out=held_out)
        return self.measured(models, places[:most] if most else places)

    def judged(self, models: Sequence[Model]) -> list[Judged]:
        """The errors of lowered networks on both halves."""
        chosen = self.of_half(models, held_out=False)
        kept = self.of_half(models, held_out=True) if self.halves[1] else [None] * len(models)
        return [Judged(*pair) for pair in zip(chosen, kept, strict=True)]

    # ------------------------------------------------------------------------------------------------------- errors

    def _measured_energies(self) -> dict[str, "_Energies"]:
        return {name: _Energies.of([sample[name] for sample in self.wanted]) for name in self._names}

    def _compared(self, results: Tensors, number: int) -> tuple[np.ndarray, float]:
        """(errors, cosine of the least similar result) of one sample."""
        wholes, slices, similar = list[float](), list[float](), list[float]()
        for (name, wanted), found in zip(self.wanted[number].items(), results.values(), strict=True):
            energies = self._energies[name]
            errors = _errors(found.reshape(wanted.shape), wanted)
            wholes.append(float(errors.sum()) / energies.whole if energies.whole else float(np.any(errors > 0)))
            along = [_along(errors, axis) for axis in energies.axes]
            each = [float(_shares(*pair).mean()) for pair in zip(along, energies.slices, strict=True)]
            slices.append(max(each, default=wholes[-1]))
            own = zip(along, energies.of_samples[number], strict=True)
            kept = (1.0 - float(_shares(*pair).mean()) for pair in own if np.any(pair[1] > 0))
            similar.append(min((_cosine(found, wanted), *kept)))
        return np.array([*wholes, *slices]), float(np.nan_to_num(np.min(similar), nan=0.0))


@dataclass(frozen=True)
class _Energies:
    """Squares of a result. whole: their mean over samples; slices: the same by axis; of_samples: of each sample."""

    whole: float
    axes: list[int]
    slices: list[np.ndarray]
    of_samples: list[list[np.ndarray]]

    @classmethod
    def of(cls, samples: Sequence[np.ndarray]) -> "_Energies":
        wholes, along, axes = list[float](), list[list[np.ndarray]](), _axes(samples[0].shape)
        for sample in samples:
            squares = _squares(sample)
            wholes.append(float(squares.sum()))
            along.append([_along(squares, axis) for axis in axes])
        means = [np.mean(column, axis=0) for column in zip(*along, strict=True)]
        lives = [i for i, mean in enumerate(means) if np.any(mean > 0)]
        rows = [[row[i] for i in lives] for row in along]
        return cls(float(np.mean(wholes)), [axes[i] for i in lives], [means[i] for i in lives], rows)


def _cosine(found: np.ndarray, wanted: np.ndarray) -> float:
    first, second = (array.astype(np.float32, copy=False).ravel() for array in (found, wanted))
    with np.errstate(all="ignore"):
        return 1.0 if np.array_equal(first, second) else cosine_similarity(first, second)


def _errors(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Squared differences; where only `found` is not finite, twice the square of the float value, at least 2."""
    with np.errstate(all="ignore"):
        off = np.subtract(found, wanted, dtype=np.float64)
        off *= off
        if np.isfinite(off.sum()):
            return off
        other = wanted.astype(np.float64)
        off = np.where(found == other, 0.0, off)
        lost = np.where(np.isfinite(other), 2 * np.maximum(other * other, 1.0), 0.0)
        return np.where(np.isfinite(off), off, lost)


def _squares(wanted: np.ndarray) -> np.ndarray:
    values = wanted.astype(np.float64)
    return np.where(np.isfinite(values), values * values, 0.0)


def _axes(shape: Sequence[int]) -> list[int]:
    """The axes after the first with slices of several values, as in `slices_of`."""
    counts = ((axis, shape[axis]) for axis in range(1, len(shape)))
    return [axis for axis, count in counts if 2 <= count <= MOST_SLICES and prod(shape) >= LEAST_VALUES * count]


def _along(values: np.ndarray, axis: int) -> np.ndarray:
    """Sums of the slices along an axis."""
    return values.sum(axis=tuple(other for other in range(values.ndim) if other != axis))


def _shares(errors: np.ndarray, energies: np.ndarray) -> np.ndarray:
    """The relative errors, at most 1, of slices that are not zero in float."""
    lives = energies > 0
    return np.minimum(errors[lives] / energies[lives], 1.0)
