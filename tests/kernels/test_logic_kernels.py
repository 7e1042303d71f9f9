"""Comparisons, selection and indices of extremes against Python, element by element (numerics.md 9.0)."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from tpusim_kernels import logic

NAN = np.float32(np.nan)


@pytest.mark.parametrize("mode", ["Equal", "NotEqual", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"])
def test_relations_are_pythons(mode: str) -> None:
    """Bytes of both signs compare as numbers; with NaN only NotEqual holds (XLA takes subnormals as 0)."""
    rule = {
        "Equal": operator.eq, "NotEqual": operator.ne, "Greater": operator.gt, "GreaterOrEqual": operator.ge,
        "Less": operator.lt, "LessOrEqual": operator.le,
    }[mode]  # fmt: skip
    pairs = [
        (np.array([-128, -1, 0, 5, 127], np.int8), np.array([128, 255, 0, 5, 127], np.uint8)),
        (np.array([NAN, NAN, 0.0, -0.0, np.inf], np.float32), np.array([NAN, 1, -0.0, 1e-30, np.inf], np.float32)),
    ]
    for a, b in pairs:
        found = np.asarray(logic.compare(a, b, mode=mode, out_dtype="uint8"))
        assert found.tolist() == [int(rule(x, y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]


def test_logic_takes_what_is_not_0_as_true() -> None:
    a, b = np.array([0, 0, 3, 7], np.uint8), np.array([0, 2, 0, 1], np.uint8)
    found = {m: np.asarray(logic.compare(a, b, mode=m, out_dtype="uint8")).tolist() for m in ("And", "Or", "Xor")}
    assert found == {"And": [0, 0, 0, 1], "Or": [0, 1, 1, 1], "Xor": [0, 1, 1, 0]}


def test_a_constant_on_the_left() -> None:
    x = np.array([[-3, 0, 3]], np.int8)
    for inversed, wanted in ((False, [[0, 0, 1]]), (True, [[1, 0, 0]])):
        found = logic.compare_const(x, 0, mode="Greater", inversed=inversed, out_dtype="uint8")
        assert np.asarray(found).tolist() == wanted


def test_selection_keeps_every_bit() -> None:
    true = np.array([[-0.0, NAN, 1e-45]], np.float32)
    found = np.asarray(logic.where(np.array([[1, 2, 255]], np.uint8), true, np.zeros((1, 1), np.float32)))
    assert found.tobytes() == true.tobytes()


@pytest.mark.parametrize("mode", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [False, True])
def test_index_of_the_first_or_last_extreme(mode: str, last: bool) -> None:
    x = np.random.default_rng(4).integers(-2, 3, (3, 7, 2)).astype(np.float32)
    found = np.asarray(logic.arg(x, axis=1, mode=mode, select_last=last))
    assert found.shape == (3, 1, 2)
    assert found.dtype == np.int32
    for n in range(3):
        for w in range(2):
            row = x[n, :, w].tolist()
            best = max(row) if mode == "ArgMax" else min(row)
            places = [i for i, v in enumerate(row) if v == best]
            assert found[n, 0, w] == places[-1 if last else 0]


def test_unknown_modes_are_refused() -> None:
    x = np.zeros((1, 2), np.float32)
    with pytest.raises(ValueError, match="a mode of Equal"):
        logic.compare(x, x, mode="Almost", out_dtype="uint8")
    with pytest.raises(ValueError, match="mode ArgMax or ArgMin"):
        logic.arg(x, axis=1, mode="ArgMid", select_last=False)
