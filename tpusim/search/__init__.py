"""Which ops to take out of the integers: enough for a similarity or a metric, and as few cycles as can be found.

Input: a calibrated module, how it is lowered, samples, a `Goal`. Output: a `Found` table of op -> float mode, which
`write_qtable` writes for `--qtable` and for TPU-MLIR's `--quantize_table`. What is minimised is the clock of the whole
program, layer groups included: a float that splits a group, or that needs casts, is charged for it, and one that saves
casts is not.

* `goal.py` says what is to be reached: a cosine, top-1, or a function of the user's.
* `trials.py` lowers, runs and costs one set of float ops; each set once.
* `fewest.py` searches among the sets, and for comparison by accuracy alone; `known.py` has the ops that people keep in
  float anyway.
* `thresholds.py` compares the methods of calibration on a chip; `bias.py` corrects biases by what the integers lose.
"""

from tpusim.search.bias import Corrected, CorrectionConfig, correct_biases
from tpusim.search.fewest import Found, search, search_by_loss
from tpusim.search.goal import Cosine, Goal, TopOne, UserMetric
from tpusim.search.known import known_floats
from tpusim.search.thresholds import Tables, search_threshold
from tpusim.search.trials import Trials, write_qtable

__all__ = [
    "Corrected", "CorrectionConfig", "Cosine", "Found", "Goal", "Tables", "TopOne", "Trials", "UserMetric",
    "correct_biases", "known_floats", "search", "search_by_loss", "search_threshold", "write_qtable",
]  # fmt: skip
