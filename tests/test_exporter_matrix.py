"""Cells of docs/exporters.md: networks of exporters on chips, bit-exact, in INT8 no worse than ONNX Runtime's."""

from __future__ import annotations

import pytest
from exported_vision import VISION
from exporter_matrix import ALL, CELLS, PAGE, cell, of_onnx_runtime, top_cosine
from rotation import marks

FLOATS = {"f32": 0.99999, "f16": 0.9999}
BESIDE = {"yolo_v8": 0.05, "tagger": 5e-5, "crnn": 5e-5}
"""How far INT8 may be below ONNX Runtime's: yolo_v8's best five come in another order (TPU-MLIR's too); LSTMs are float
on both sides, and only the products before and after them have symmetric bytes here."""
USUAL = 0.002
"""Symmetric bytes for all else, where ONNX Runtime has zero points. TPU-MLIR's own lowest cosines, where it takes the
network, are within 1e-5 of these (docs/exporters.md)."""


def marked(number: int, name: str, chip: str, mode: str) -> object:
    """Masks on CV18xx and an LSTM by default; in CI every network once, the next on the next chip."""
    if (name, chip, mode) in (("gpt-where-lowest", "cv183x", "int8"), ("tagger", "bm1684x", "int8")):
        return pytest.param(name, chip, mode, marks=pytest.mark.every)
    in_ci = CELLS[number % len(CELLS)] == (chip, mode)
    return pytest.param(name, chip, mode, marks=(pytest.mark.slow,) if in_ci else marks(usual=False))


@pytest.mark.parametrize("name", VISION)
def test_top_is_what_onnx_runtime_computes(name: str) -> None:
    lowest, count = top_cosine(name)
    assert lowest > 0.9999 and count >= 5


@pytest.mark.parametrize(
    ("name", "chip", "mode"), [marked(number, name, *cell) for number, name in enumerate(ALL) for cell in CELLS]
)
def test_networks_on_chips(name: str, chip: str, mode: str) -> None:
    found = cell(name, chip, mode)
    assert found.passed
    if mode in FLOATS:
        assert found.cosine > FLOATS[mode]
    else:
        assert found.exact
        assert found.cosine >= of_onnx_runtime(name) - BESIDE.get(name, USUAL)


def test_the_page_has_every_network_and_nothing_that_differs() -> None:
    """`make exporters` writes it."""
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"| {name} |" in text for name in ALL) and "**differs**" not in text and "refused" not in text
