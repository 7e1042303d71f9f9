"""Thresholds of one tensor from its statistics: `kl` and `max`; `estimates.py` has the other methods.

Source: numerics.md 15.1 and 15.2 (upstream `bindings/kld/calibration_math.cpp`, `kld_calibrator.py`).
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tpusim.calibration.statistics import Counts, TensorStatistics
from tpusim.calibration.table import Entry
from tpusim.errors import CalibrationError, ConfigError

F32 = NDArray[np.float32]

INT8_GROUPS = 128
"""Bins the candidate distribution is merged into, and the distance of the candidates."""
ALMOST_ZERO = 1e-5
"""A tensor that stays within +-1e-5 counts as all zero, and no threshold is smaller."""
MAX_KL_BINS = 64 * 2048
"""Larger histograms are halved (neighbours added) until they fit."""


def kl_threshold(histogram: Counts, width: float, groups: int = INT8_GROUPS) -> float:
    """The threshold whose quantised distribution has the least Kullback-Leibler divergence.

    Candidate m keeps the first i = (m + 1) * groups bins. P is the histogram with all outliers in its last bin, over
    the total count. Q merges the kept bins into `groups` groups and distributes each evenly over its non-empty bins,
    over the count without outliers. The first m of the smallest sum of P * (log10(P + 1e-30) - log10(Q + 1e-30)) wins;
    the threshold is width * (m + 1) * groups. Everything is f32, each term f64 (U-63).
    """
    histogram, width = _fitted(histogram, width, groups)
    total = np.float32(histogram.sum())
    counts = histogram.astype(np.float32)
    divergences = [_divergence(counts, total, size, groups) for size in range(groups, len(counts) + 1, groups)]
    best = int(np.argmin(np.array(divergences, np.float32)))
    with np.errstate(over="ignore"):  # the last bin of the largest f32 ends beyond it; the caller knows the maximum
        return float(np.float32(width) * np.float32(best + 1) * np.float32(groups))


def thresholds(statistics: TensorStatistics, method: str = "kl", *, name: str = "") -> Entry:
    """The table entry of one tensor by one of `HISTOGRAM_METHODS`; `name` is for the error if no value was seen."""
    find = HISTOGRAM_METHODS.get(method)
    if find is None:
        raise ConfigError(
            f"calibration: method '{method}' is unknown; the methods of histograms are {', '.join(HISTOGRAM_METHODS)}"
        )
    if not statistics.seen:
        where = f", first in {statistics.first}" if statistics.first else ""
        raise CalibrationError(
            f"calibration: tensor '{name}' needs at least one number, got {statistics.nans} NaN{where}"
        )
    absmax = statistics.absmax
    if absmax <= ALMOST_ZERO:
        return Entry(ALMOST_ZERO, -ALMOST_ZERO if statistics.minimum < 0 else 0.0, ALMOST_ZERO)
    threshold = absmax if statistics.infinities else min(find(statistics), absmax)
    return Entry(max(threshold, ALMOST_ZERO), statistics.minimum, statistics.maximum)


def _by_kl(statistics: TensorStatistics) -> float:
    return kl_threshold(statistics.histogram, statistics.width)


def _by_max(statistics: TensorStatistics) -> float:
    return statistics.absmax


HISTOGRAM_METHODS: dict[str, Callable[[TensorStatistics], float]] = {"kl": _by_kl, "max": _by_max}


def _fitted(histogram: Counts, width: float, groups: int) -> tuple[Counts, float]:
    """The histogram padded to whole groups and no longer than `MAX_KL_BINS`."""
    histogram = _padded(histogram, groups)
    while len(histogram) > MAX_KL_BINS:
        histogram = _padded(histogram[::2] + histogram[1::2], groups)
        width *= 2
    return histogram, width


def _padded(histogram: Counts, groups: int) -> Counts:
    return np.pad(histogram, (0, -len(histogram) % groups))


def _divergence(counts: F32, total: np.float32, size: int, groups: int) -> np.float32:
    """The divergence of the candidate that keeps `size` bins.

    Empty bins of P add exactly nothing, so only the others are visited. Sums run in bin order in f32 (`add.accumulate`,
    `add.at`), since that is the order that rounds (U-63).
    """
    kept = counts[:size]
    clipped = kept.copy()
    clipped[-1] = _running_sum(counts[size - 1 :])
    visited = np.flatnonzero(clipped)
    p = (clipped[visited] / total).astype(np.float64)
    q = _distributed(kept, groups)[visited].astype(np.float64)
    terms = p * (np.log10(p + 1e-30) - np.log10(q + 1e-30))
    divergence = np.zeros(1, np.float32)
    np.add.at(divergence, np.zeros(len(terms), np.intp), terms)
    return divergence[0]


def _distributed(kept: F32, groups: int) -> F32:
    """Q: each group's share of the kept count, evenly over the group's non-empty bins."""
    grouped = kept.reshape(groups, -1)
    sums = np.add.accumulate(grouped, axis=1)[:, -1]
    filled = np.maximum(np.count_nonzero(grouped, axis=1), 1).astype(np.float32)
    share = sums / filled / max(_running_sum(kept), np.float32(1))
    return np.where(grouped > 0, share[:, None], np.float32(0)).ravel()


def _running_sum(values: F32) -> np.float32:
    return np.add.accumulate(values)[-1]
