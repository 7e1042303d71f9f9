"""tpusim compared with recorded data of TPU-MLIR (tests/upstream): constants of lowering, and every tensor.

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
from tests.upstream.networks import NETWORKS
from tpusim.errors import TpusimError
from tpusim.ir.module import Model

KNOWN = {which: told(which, first) for which, first in known_differences().items()}
FIRST = "bm1684x/int8"
"""What every network is executed in, and every third in one more chip or mode."""
LARGE = ("enlarge", "segformer", "vit", "bert", "detector")
"""Networks of many ops, most of which the others have too: CI has them."""
FORMS = ("squeeze/cv183x/bf16", "squeeze/bm1684/f32", "constants/cv183x/bf16", "attention/bm1688/f16")
"""Cells of forms that ops have in the float types of a chip alone."""
LOWERED = (FIRST, "bm1684/int8", "cv183x/int8")
"""What every network is lowered to: the three ways of requantising; and one more chip or mode by its name."""


@cache
def module(network: str, cell: str) -> Model:
    """Our lowered module, which both tests of a cell read."""
    return Replay(network).lowered(cell)


def others(network: str, but: tuple[str, ...]) -> list[str]:
    """One more recorded cell of the network, by its name: compiling kernels is what takes time."""
    cells = [c for c in recorded.read(network).content.cells if c not in but]
    return cells[zlib.crc32(network.encode()) % len(cells) :][:1] if cells else []


def firsts(network: str) -> list[str]:
    """FIRST, unless the real compiler refuses the network there."""
    return [FIRST] if FIRST in recorded.read(network).content.cells else []


def met_at_random(network: str) -> bool:
    """Whether the network was recorded for a difference, which is in another cell than FIRST if it has one."""
    return network not in NETWORKS


def lowered() -> list[str]:
    """The cells whose constants are compared."""
    found = [
        f"{name}/{cell}"
        for name in recorded.networks()
        for cell in (*(c for c in LOWERED if c in recorded.read(name).content.cells), *others(name, LOWERED))
    ]
    return list(dict.fromkeys([*FORMS, *found]))


def executed() -> list[str]:
    """The cells whose tensors are computed."""
    found = [
        f"{name}/{cell}"
        for number, name in enumerate(recorded.networks())
        for cell in (*firsts(name), *(others(name, (FIRST,)) if number % 3 == 0 or met_at_random(name) else ()))
    ]
    return list(dict.fromkeys([*FORMS, *found]))


def params(cells: list[str], part: str) -> list[object]:
    return [pytest.param(c, marks=(*_marks(f"{c}/{part}"), *_when(c)), id=c.replace("/", "-")) for c in cells]


def _when(cell: str) -> list[pytest.MarkDecorator]:
    """Small networks in FIRST, and by its name every third of the other cells; CI has the others too."""
    if cell.partition("/")[0] not in LARGE and (cell.endswith(FIRST) or zlib.crc32(cell.encode()) % 3 == 0):
        return []
    return [pytest.mark.slow, pytest.mark.xdist_group(cell.partition("/")[0])]


def _marks(which: str) -> list[pytest.MarkDecorator]:
    return (
        [pytest.mark.xfail(strict=True, raises=(AssertionError, TpusimError), reason=KNOWN[which])]
        if which in KNOWN
        else []
    )


def check(part: Part) -> None:
    assert part.compared, "nothing could be paired"
    assert not part.differing, "\n".join(map(str, part.differences))


@pytest.mark.every
@pytest.mark.parametrize("cell", params(lowered(), "lowering"))
def test_constants_of_lowering(cell):
    name, _, where = cell.partition("/")
    check(Replay(name).constants(where, module(name, where)))


@pytest.mark.every
@pytest.mark.parametrize("cell", params(executed(), "tensors"))
def test_every_tensor(cell):
    """Bit for bit, the floats too."""
    name, _, where = cell.partition("/")
    found = Replay(name).tensors(where, module(name, where))
    check(found)
    assert not found.differences, "\n".join(map(str, found.differences))
