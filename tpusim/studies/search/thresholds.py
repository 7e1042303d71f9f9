"""The calibration method whose integer results are most similar to float: `search_threshold` (U-70).

Every method gives a table, tuned if upstream's search tunes it; each table is lowered and run on the first samples. The
score is upstream's similarity (1 + cosine) / 2, averaged over results and samples; the first of equal methods wins.

The later samples are held out. A method is rejected if, on either part of the samples, its integers have a larger
squared error than those of the table so far (or of kl, without a table).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from tpusim.calibration.samples import Samples
from tpusim.calibration.stage import CalibrationConfig, calibrate
from tpusim.calibration.table import CalibrationTable
from tpusim.errors import ConfigError
from tpusim.inference.reuse import Reuse
from tpusim.ir.module import Model
from tpusim.lowering import LoweringConfig
from tpusim.passes import PassContext, PassManager
from tpusim.passes.pipelines import integers
from tpusim.studies.diagnosis import Judge, Judged
from tpusim.studies.search.goal import mean_cosine

METHODS = ("kl", "max", "percentile9999", "mse")
INFERRED = 30
"""The number of samples for the score (U-70, --inference_num)."""
Sample = Mapping[str, np.ndarray]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Tables:
    """The table of every method, their number of samples, their scores, and their errors on both halves.

    now: the errors of the table so far, or None. halves: the number of samples for the score and of held-out samples.
    """

    tables: dict[str, CalibrationTable]
    samples: int
    scores: dict[str, float]
    errors: dict[str, Judged]
    now: Judged | None
    halves: tuple[int, int]

    @property
    def best(self) -> str | None:
        """The method with the highest score among those that raise no error; None if all do."""
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

    model: canonical. config: of the lowering for a score. now: the table so far. Raises ConfigError for a mode without
    thresholds.
    """
    if not config.format.calibrated:
        raise ConfigError(f"search-threshold: a mode with thresholds is required, got {config.format.name}")
    judge = Judge(model, samples, choosing=inferred, look=False)
    judged = [dict(sample) for sample in islice(samples, inferred)]
    tables, scores, lowered, count = dict[str, CalibrationTable](), dict[str, float](), dict[str, Model](), 0

    def by(table: CalibrationTable) -> Model:
        first = not lowered  # the others differ only in scales
        return PassManager(integers(config), verify=first).run(model, PassContext(table=table))

    for method in METHODS:
        if progress is not None:
            progress(f"calibration by {method}")
        asked = CalibrationConfig(method, tune_samples=tune_samples, tune_estimates=True)
        tables[method], count = calibrate(model, samples, asked)
        lowered[method] = by(tables[method])
        results = Reuse(judged).results(lowered[method])
        scores[method] = (1 + mean_cosine(results, judge.wanted[: len(judged)])) / 2
    *found, last = judge.judged([*lowered.values(), *([] if now is None else [by(now)])])
    errors = dict(zip(tables, [*found, last], strict=False))
    return Tables(tables, count, scores, errors, None if now is None else last, judge.halves)
