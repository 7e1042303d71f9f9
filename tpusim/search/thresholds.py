"""The method of calibration whose integers are most like the floats: `search_threshold` (U-70).

Every method gives a table, tuned where a search tunes it; each is lowered and run on the first samples. Their score is
(1 + cosine) / 2, the mean over results and samples; of equal ones the first method wins.

Samples after those are held out: a method whose integers have a larger squared error than those of the table so far (of
kl, where there is none), there or on the samples that score, is not taken.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from tpusim.calibration.samples import Samples
from tpusim.calibration.stage import CalibrationConfig, apply_table, calibrate
from tpusim.calibration.table import CalibrationTable
from tpusim.diagnosis import Judge, Judged
from tpusim.errors import ConfigError
from tpusim.inference.reuse import Reuse
from tpusim.ir.module import Model
from tpusim.lowering import LoweringConfig, lower
from tpusim.search.goal import mean_cosine

METHODS = ("kl", "max", "percentile9999", "mse")
INFERRED = 30
"""How many samples the tables are judged by (U-70, --inference_num)."""
Sample = Mapping[str, np.ndarray]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Tables:
    """A table of every method, how many samples they are of, how each scores, and its errors on both halves.

    now: the errors of the table so far; None: there is none. halves: samples that score, and that are held out.
    """

    tables: dict[str, CalibrationTable]
    samples: int
    scores: dict[str, float]
    errors: dict[str, Judged]
    now: Judged | None
    halves: tuple[int, int]

    @property
    def best(self) -> str | None:
        """The method with the highest score of those that raise no error; None: all raise that of the table so far."""
        base = self.errors[METHODS[0]] if self.now is None else self.now
        able = [method for method in self.scores if not self.errors[method].raises(base)]
        return max(able, key=lambda method: self.scores[method], default=None)


def search_threshold(
    model: Model,
    samples: Samples | Sequence[Sample],
    config: LoweringConfig,
    *,
    tune_samples: int = 5,
    inferred: int = INFERRED,
    now: CalibrationTable | None = None,
    progress: Progress | None = None,
) -> Tables:
    """Tables by all methods, and their scores on a chip.

    model: canonical. config: how it is lowered for a score. now: the table so far. Raises ConfigError for a mode
    without thresholds.
    """
    if not config.format.calibrated:
        raise ConfigError(f"search-threshold: a mode with thresholds is required, got {config.format.name}")
    judge = Judge(model, samples, choosing=inferred, look=False)
    judged = [dict(sample) for sample in islice(samples, inferred)]
    tables, scores, lowered, count = dict[str, CalibrationTable](), dict[str, float](), dict[str, Model](), 0

    def integers(table: CalibrationTable) -> Model:
        return lower(apply_table(model, table, asymmetric=config.asymmetric), config)[0]

    for method in METHODS:
        if progress is not None:
            progress(f"calibration by {method}")
        asked = CalibrationConfig(method, tune_samples=tune_samples, tune_estimates=True)
        tables[method], count = calibrate(model, samples, asked)
        lowered[method] = integers(tables[method])
        results = Reuse(judged).results(lowered[method])
        scores[method] = (1 + mean_cosine(results, judge.wanted[: len(judged)])) / 2
    *found, last = judge.judged([*lowered.values(), *([] if now is None else [integers(now)])])
    errors = dict(zip(tables, [*found, last], strict=False))
    return Tables(tables, count, scores, errors, None if now is None else last, judge.halves)
