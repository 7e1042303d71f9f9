"""Searches for mixed precision: a set of float ops that reaches a similarity or a metric at few cycles.

Input: a calibrated module, the options of lowering, samples, a `Goal`. Output: a `Found` table of op -> float mode,
which `write_qtable` writes for `--qtable` and for TPU-MLIR's `--quantize_table`. The search minimises the clock of the
whole program, layer groups included: a float op is charged for the groups that it splits and the casts that it needs,
and gets the credit for casts that it saves.

* `goal.py` has the goals: a cosine, top-1, or a user's function.
* `trials.py` lowers, runs and costs one set of float ops; each set once.
* `fewest.py` searches among the sets, and for comparison by accuracy alone; `known.py` has the ops that people usually
  keep in float.
* `thresholds.py` compares the methods of calibration on a chip; `bias.py` corrects biases by the mean error of
  integers.
"""

from tpusim.studies.search.bias import Corrected, CorrectionConfig, correct_biases
from tpusim.studies.search.fewest import Found, search, search_by_loss
from tpusim.studies.search.goal import Cosine, Goal, TopOne, UserMetric
from tpusim.studies.search.known import known_floats
from tpusim.studies.search.thresholds import Tables, search_threshold
from tpusim.studies.search.trials import Trials, write_qtable

__all__ = [
    "Corrected", "CorrectionConfig", "Cosine", "Found", "Goal", "Tables", "TopOne", "Trials", "UserMetric",
    "correct_biases", "known_floats", "search", "search_by_loss", "search_threshold", "write_qtable",
]  # fmt: skip
