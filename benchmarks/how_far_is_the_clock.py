"""The clock compared with measured times: estimated and published times of ResNet-50, one factor per chip (DH-08).

The factor is fitted, as a geometric mean, to the published F32, F16 and batch-4 INT8 times of one core; INT8 at batch 1
is left out of the fit and shows how good it is. The chips' TOML files have factor and residual; `--check` fails if they
differ from the fit.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from math import exp, log

import tyro

from benchmarks.groups.measure import Network
from tpusim import chips
from tpusim.ir.formats import ModeName
from tpusim.lowering import LoweringConfig
from tpusim.passes import PassManager
from tpusim.passes.pipelines import commands, grouped, lowered
from tpusim.simulator import timeline

Cell = tuple[ModeName, int]
"""(mode, batch)."""
PUBLISHED: dict[str, dict[Cell, float]] = {
    "bm1684x": {("f32", 1): 9.14, ("f16", 1): 1.62, ("int8", 4): 0.82, ("int8", 1): 1.10},
    "bm1688": {("f32", 1): 46.90, ("f16", 1): 8.26, ("int8", 4): 2.48, ("int8", 1): 3.14},
    "cv186x": {("f32", 1): 42.90, ("f16", 1): 6.89, ("int8", 4): 1.82, ("int8", 1): 2.43},
    "bm1684": {("f32", 1): 6.36, ("int8", 4): 1.24, ("int8", 1): 3.93},
}
"""Milliseconds per image of ResNet-50 (sophgo/sophon-demo, bmrt_test, October 2024; hardware.md 6), one core."""
LEFT_OUT: Cell = ("int8", 1)
CLOSE = 0.05
"""Share by which factor and residual may differ from the chip's file."""


@dataclass(frozen=True)
class Fit:
    """Estimated milliseconds per image of a chip, and their ratios to the published ones."""

    estimated: dict[Cell, float]
    published: dict[Cell, float]

    @property
    def factor(self) -> float:
        """Geometric mean of published over estimated, without the cell that is left out."""
        ratios = [log(self.published[cell] / ms) for cell, ms in self.estimated.items() if cell != LEFT_OUT]
        return exp(sum(ratios) / len(ratios))

    @property
    def residual(self) -> float:
        """The largest relative distance of a fitted cell."""
        return max(abs(self.distance(cell)) for cell in self.estimated if cell != LEFT_OUT)

    def distance(self, cell: Cell) -> float:
        """The relative distance of the estimate, times the factor, from the published time."""
        return self.estimated[cell] * self.factor / self.published[cell] - 1


def measured(chip: str, networks: dict[int, Network]) -> Fit:
    """Compile ResNet-50 for the chip, cell by cell."""
    published = PUBLISHED[chip]
    found: dict[Cell, float] = {}
    for mode, batch in published:
        steps = (*lowered(LoweringConfig(chip, mode)), *grouped(), *commands())
        program = PassManager(steps).program(networks[batch].calibrated)
        found[mode, batch] = timeline(program, chips.load(chip)).milliseconds / batch
    return Fit(found, published)


def main(*, check: bool = False) -> None:
    """Print the table, and the lines of the chips' files."""
    networks = {batch: Network.prepare("resnet50", batch) for batch in (1, 4)}
    wrong: list[str] = []
    for chip in PUBLISHED:
        fit = measured(chip, networks)
        print(f"{chip}: factor {fit.factor:.2f}, residual {fit.residual:.2f}")
        for cell, ms in fit.estimated.items():
            print(
                f"  {cell[0]:>5} batch {cell[1]}: clock {ms:8.3f} ms, x factor {ms * fit.factor:8.3f}, published "
                f"{fit.published[cell]:8.2f}, {fit.distance(cell):+.0%}{'  (not fitted)' if cell == LEFT_OUT else ''}"
            )
        known = chips.load(chip).calibration
        if abs(known.factor / fit.factor - 1) > CLOSE or abs(known.residual - fit.residual) > CLOSE:
            wrong.append(f"{chip}.toml has factor {known.factor}, residual {known.residual}")
    if check and wrong:
        sys.exit("; ".join(wrong) + "; put in what is printed above")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
