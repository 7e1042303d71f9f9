"""The method of calibration whose integers are most like the floats: `search_threshold` of TPU-MLIR 1.30.2.

Every method gives a table, tuned where a search tunes it; each is lowered and run on the first samples. Their score is
(1 + cosine) / 2, as upstream calls similar, the mean over results and samples; of equal ones the first method wins.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from tpusim.calibration.samples import Samples
from tpusim.calibration.stage import CalibrationConfig, apply_table, calibrate
from tpusim.calibration.table import CalibrationTable
from tpusim.errors import ConfigError
from tpusim.inference import run
from tpusim.inference.reuse import Reuse
from tpusim.ir.attrs import value_name
from tpusim.ir.module import Model
from tpusim.lowering import LoweringConfig, lower
from tpusim.search.goal import mean_cosine

METHODS = ("kl", "max", "percentile9999", "mse")
INFERRED = 30
"""How many samples the tables are judged by, upstream's --inference_num."""
Sample = Mapping[str, np.ndarray]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Tables:
    """A table of every method, how many samples they are of, and how each scores."""

    tables: dict[str, CalibrationTable]
    samples: int
    scores: dict[str, float]

    @property
    def best(self) -> str:
        """The method with the highest score."""
        return max(self.scores, key=lambda method: self.scores[method])


def search_threshold(
    model: Model,
    samples: Samples | Sequence[Sample],
    config: LoweringConfig,
    *,
    tune_samples: int = 5,
    inferred: int = INFERRED,
    progress: Progress | None = None,
) -> Tables:
    """Tables by all methods, and their scores on a chip.

    model: canonical. config: how it is lowered for a score. Raises ConfigError for a mode without thresholds.
    """
    if not config.format.calibrated:
        raise ConfigError(f"search-threshold: a mode with thresholds is required, got {config.format.name}")
    judged = [dict(sample) for sample in islice(samples, inferred)]
    wanted = [_results(model, sample) for sample in judged]
    tables, scores, count = dict[str, CalibrationTable](), dict[str, float](), 0
    for method in METHODS:
        if progress is not None:
            progress(f"calibration by {method}")
        asked = CalibrationConfig(method, tune_samples=tune_samples, tune_estimates=True)
        tables[method], count = calibrate(model, samples, asked)
        calibrated = apply_table(model, tables[method], asymmetric=config.asymmetric)
        lowered, _ = lower(calibrated, config)
        scores[method] = (1 + mean_cosine(Reuse(judged).results(lowered), wanted)) / 2
    return Tables(tables, count, scores)


def _results(model: Model, sample: Sample) -> dict[str, np.ndarray]:
    found = run(model, sample)
    return {value_name(value): found[value_name(value)] for value in model.results}
