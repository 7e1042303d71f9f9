"""tpusim beside TPU-MLIR itself, from recorded data (tests/upstream): constants of lowering, and every tensor.

Without the environment: `make upstream-data` recorded it there. A cell that differs is a strict xfail by the line of
tests/upstream/differing.json that names the first difference and its reason; once a difference is mended the test fails
until `python -m benchmarks.conformance.record --differing-only` has written that file again.
"""

import zlib
from functools import cache

import pytest

from benchmarks.conformance import recorded
from benchmarks.conformance.replay import Replay, known_differences, told
from benchmarks.conformance.results import Part
from tpusim.errors import TpusimError

CELLS = [f"{name}/{cell}" for name in recorded.networks() for cell in recorded.read(name).content.cells]
KNOWN = {which: told(which, first) for which, first in known_differences().items()}
FIRST = "bm1684x/int8"
"""What every network is executed in; of its other chips and modes one, by the network's name."""


@cache
def replay(network: str) -> Replay:
    return Replay(network)


def executed() -> list[str]:
    """The cells whose tensors are computed: compiling kernels takes longer than all the rest."""
    found: list[str] = []
    for name in recorded.networks():
        cells = [c for c in CELLS if c.startswith(f"{name}/")]
        others = [c for c in cells if not c.endswith(FIRST)]
        found += [c for c in cells if c.endswith(FIRST)] + others[zlib.crc32(name.encode()) % len(others) :][:1]
    return found


def params(cells: list[str], part: str) -> list[object]:
    return [pytest.param(c, marks=_marks(f"{c}/{part}"), id=c.replace("/", "-")) for c in cells]


def _marks(which: str) -> list[pytest.MarkDecorator]:
    return (
        [pytest.mark.xfail(strict=True, raises=(AssertionError, TpusimError), reason=KNOWN[which])]
        if which in KNOWN
        else []
    )


def check(part: Part) -> None:
    assert part.compared, "nothing could be paired"
    assert not part.differing, "\n".join(map(str, part.differences))


@pytest.mark.parametrize("cell", params(CELLS, "lowering"))
def test_constants_of_lowering(cell):
    name, _, where = cell.partition("/")
    check(replay(name).constants(where, replay(name).lowered(where)))


@pytest.mark.parametrize("cell", params(executed(), "tensors"))
def test_every_tensor(cell):
    name, _, where = cell.partition("/")
    check(replay(name).tensors(where, replay(name).lowered(where)))
