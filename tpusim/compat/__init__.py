"""What tpusim does only because TPU-MLIR does so: one table of rules, which the code cites by number (`U-04`).

A rule is a row: what TPU-MLIR does, what a correct or a plain rule would do, and how it is switched off. Most rows are
always on: names, formats and orders of summation that users compare with. Those that change compiled constants against
the model's meaning are quirks (`Quirk`), and `quirks_off` names the ones to leave out.

`FITTED` are the constants that were fitted to profiles which the tool writes. The code cites them as `F-01`, and
benchmarks/fit_constants.py fits them again.

`docs/compat.md` is this table as a page. Only errors lie below this room, so that all others may name a quirk.
"""

from tpusim.compat.fitted import FITTED, Fitted
from tpusim.compat.quirks import Quirk, checked
from tpusim.compat.rule import UPSTREAM, Rule
from tpusim.compat.rules import ERF_FOR_TANH, RULES

__all__ = ["ERF_FOR_TANH", "FITTED", "RULES", "UPSTREAM", "Fitted", "Quirk", "Rule", "checked"]
