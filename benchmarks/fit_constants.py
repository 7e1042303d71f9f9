"""python -m benchmarks.fit_constants [F-01 ...]: fit the constants of the clock and of the tiles again.

Every recorded number of a profile (tests/upstream/profiles.json, tests/upstream/profiled.py) asks for a range of values
at which the model gives it. Printed are the values that most numbers accept, next to the value that is used, and how
many accept it. Constants that nothing recorded fits are named with the profiles that a fit would take.
`python -m benchmarks.constants.record` records the profiles anew with TPU-MLIR.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from benchmarks.constants.points import is_fitted, is_near, points
from benchmarks.constants.ranges import Agreed, agreed, centre
from benchmarks.constants.trial import used
from tpusim.compat import FITTED, Fitted


class Fit(NamedTuple):
    """One constant, of one chip if it is a chip's: the used value, and those that most recorded numbers accept."""

    row: Fitted
    chip: str
    used: float
    found: Agreed

    @property
    def residual(self) -> float:
        """How far the used value is from the accepted ones; 0: it is one of them."""
        return self.found.distance(self.used)

    @property
    def agrees(self) -> bool:
        """Whether the used value is accepted, but for its rounding."""
        return self.residual <= self.row.rounding / 2


def fits(row: Fitted) -> list[Fit]:
    """The fit of a constant for each chip. Raises ValueError if no recorded number depends on it."""
    made: list[Fit] = []
    for chip, value in used(row).items():
        found = (centre if is_near(row) else agreed)(points(row, chip))
        if found is None:
            raise ValueError(f"{row.number} {row.name} {chip}: a recorded number that depends on it is required, got 0")
        made.append(Fit(row, chip, 0.0 if isinstance(value, dict) else float(value), found))
    return made


def _line(*cells: Any) -> str:
    return "{:5} {:22} {:8} {:>9} {:>21} {:>9} {:>9}".format(*cells)


def main(numbers: list[str]) -> int:
    """Print a line for each constant; 1 if a used value differs from what most numbers accept and its row is silent."""
    rows = [FITTED[number] for number in numbers] if numbers else list(FITTED.values())
    print(_line("row", "constant", "chip", "used", "fitted", "residual", "accepted"))
    wrong = 0
    for row in filter(is_fitted, rows):
        for fit in fits(row):
            ranges, accepting, of = fit.found
            fitted = ", ".join(f"{low:.6g} to {high:.6g}" for low, high in ranges)
            wrong += fit.agrees == bool(row.differs)
            agreeing = f"{accepting} of {of}" if accepting else f"median {of}"
            note = "" if fit.agrees else f"differs: {row.differs or 'why is not known'}"
            print(_line(row.number, row.name, fit.chip, f"{fit.used:g}", fitted, f"{fit.residual:.3g}", agreeing), note)
    for row in rows:
        if row.needs:
            print(f"{row.number} {row.name}: needs {row.needs}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
