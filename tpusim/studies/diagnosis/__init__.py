"""Why the integer results of a network differ from its float results, and which changes improve them.

Input: a calibrated top module, the tpu module lowered from it, samples. Output:

* `losses`: for each tensor the accumulated error and the error of its op alone; `worst_elements`: the elements with the
  largest errors and the operands that they are computed from.
* `Remedies`: for each op the gain of the network's results if only that op is float or its range fits the values, and
  the smallest set of such changes that reaches a given similarity. `Judge` measures them on samples, half of which are
  held out from the choice.
* `causes`: causes with their measured remedies, the best first; `accumulator_overflows`: accumulators that leave int32;
  `other_preprocessing`: a preprocessing that fits labels better.
* `second_opinion`: the tensors of an independent engine, compared with those of flat inference.
* `first_broken`: the first op whose error alone is too large; `Reproducer`: a small network around it.

No function changes a given module.
"""

from tpusim.studies.diagnosis.bisect import Broken, first_broken, scaled_by
from tpusim.studies.diagnosis.causes import Cause, accumulator_overflows, causes
from tpusim.studies.diagnosis.elements import Element, worst_elements
from tpusim.studies.diagnosis.judge import Judge, Judged, Measured
from tpusim.studies.diagnosis.losses import Loss, losses
from tpusim.studies.diagnosis.opinion import Difference, SecondOpinion, second_opinion
from tpusim.studies.diagnosis.preprocessing import Mistaken, Prepared, mistaken_scales, other_preprocessing
from tpusim.studies.diagnosis.remedies import Change, Remedies, Remedy
from tpusim.studies.diagnosis.reproducer import Reproducer

__all__ = [
    "Broken", "Cause", "Change", "Difference", "Element", "Judge", "Judged", "Loss", "Measured", "Mistaken", "Prepared",
    "Remedies", "Remedy", "Reproducer", "SecondOpinion", "accumulator_overflows", "causes", "first_broken", "losses",
    "mistaken_scales", "other_preprocessing", "scaled_by", "second_opinion", "worst_elements",
]  # fmt: skip
