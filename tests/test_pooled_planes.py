"""Reductions over a plane that leave its axes out: the pool's command has a clock on every chip."""

from __future__ import annotations

import pytest
from compiling import to_addressed, to_program, to_tpu
from rows import calibrated

from tpusim.lowering import LoweringConfig

ROWS = ("reduce-mean-image", "reduce-max-image-away")


SETTINGS = [
    *((chip, False) for chip in ("bm1684", "bm1684x", "bm1688", "bm1690", "cv183x")),
    *((chip, True) for chip in ("bm1684x", "bm1688", "bm1690")),
]


@pytest.mark.parametrize(("chip", "asymmetric"), SETTINGS)
@pytest.mark.parametrize("case", ROWS)
def test_a_plane_that_vanishes_is_compiled(case: str, chip: str, asymmetric: bool) -> None:
    config = LoweringConfig(chip, "int8", asymmetric=asymmetric)
    model = to_tpu(calibrated(case, asymmetric=asymmetric), config)
    assert to_program(to_addressed(model)).commands
