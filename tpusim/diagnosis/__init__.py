"""Why the integers of a network are not like its floats: which op loses how much, and what single changes give back.

Input: a calibrated top module, what it was lowered to, samples. Output: per tensor the error that has accumulated
and the error of its op alone (`losses`), the elements furthest off and what they are made of (`worst_elements`); per op
what the network's results gain if only that op is float or its range fits the values, and the fewest such changes that
reach an asked similarity (`Remedies`), judged on samples half of which chose nothing (`Judge`); the first op that is
too far off by itself (`first_broken`), and a network of little more than it (`Reproducer`);
causes with their measured remedies, the best first (`causes`), accumulators that leave
int32 (`accumulator_overflows`), and a preprocessing that fits labels better (`other_preprocessing`).
Nothing here changes a module that it was given.
"""

from tpusim.diagnosis.bisect import Broken, first_broken, scaled_by
from tpusim.diagnosis.causes import Cause, accumulator_overflows, causes
from tpusim.diagnosis.elements import Element, worst_elements
from tpusim.diagnosis.judge import Judge, Judged, Measured
from tpusim.diagnosis.losses import Loss, losses
from tpusim.diagnosis.preprocessing import Mistaken, Prepared, mistaken_scales, other_preprocessing
from tpusim.diagnosis.remedies import Change, Remedies, Remedy
from tpusim.diagnosis.reproducer import Reproducer

__all__ = [
    "Broken", "Cause", "Change", "Element", "Judge", "Judged", "Loss", "Measured", "Mistaken", "Prepared",
    "Remedies", "Remedy", "Reproducer", "accumulator_overflows", "causes", "first_broken", "losses", "mistaken_scales",
    "other_preprocessing", "scaled_by", "worst_elements",
]  # fmt: skip
