"""Constants that are made of constants: a bound on all of them together, whatever each is made of."""

from __future__ import annotations

import hostile_models
import pytest

from tpusim.errors import UnsupportedError
from tpusim.frontend import import_onnx
from tpusim.frontend.onnx import reading


@pytest.mark.every
@pytest.mark.parametrize("times", [6, 12, 40])
def test_doubled_constants(times: int, monkeypatch: pytest.MonkeyPatch):
    """4 MB become 8, 16 and so on; the sum alone grows too large."""
    monkeypatch.setattr(reading, "MOST_COMPUTED", 1 << 24)
    with pytest.raises(UnsupportedError, match=r"the_t\d.* constants that are computed take [\d,]+ bytes, at most"):
        import_onnx(hostile_models.swollen(times))


def test_nodes_that_functions_stand_for():
    """Those that are called before they are defined, in subgraphs, and twice, count as often as they are called."""
    import_onnx(hostile_models.multiplied(3, 3))
