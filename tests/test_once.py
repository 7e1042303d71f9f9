"""`tpusim.ir.once`: functions of constants that are computed once where something remembers, and always elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from compiling import to_tpu
from networks import cached_top

from tpusim.ir.once import SMALL, Memory, once, remembering
from tpusim.ir.text import print_module

CALLS: list[int] = []


@once
def total(array: np.ndarray, factor: int, *, more: int = 0) -> np.ndarray:
    """Something that takes long."""
    CALLS.append(len(array))
    return array.sum(keepdims=True) * factor + more


def test_the_same_arguments_are_computed_once() -> None:
    """Small arrays are the same by what they hold, large ones by where they lie; outside, nothing is remembered."""
    CALLS.clear()
    small, large, memory = np.arange(4), np.arange(SMALL), Memory()
    for _ in range(2):
        assert total(small, 2) == 12
    assert len(CALLS) == 2
    with remembering(memory):
        found = [total(array, 2) for array in (small, small.copy(), large, large[:], large.copy())]
        assert total(small, 3) == 18 and total(small, 2, more=1) == 13 and total(large[::2], 2) != found[2]
    assert CALLS[2:] == [4, SMALL, SMALL, 4, 4, SMALL // 2]
    assert found[0] is found[1] and found[2] is found[3] and found[2] is not found[4]
    with pytest.raises(ValueError, match="read-only"):
        found[0][0] = 1
    with remembering(memory):
        assert total(small, 2) is found[0]
    assert total(small, 2) is not found[0]


@pytest.mark.parametrize("chip", ["bm1684", "bm1684x", "cv183x"])
def test_a_network_lowered_again_is_the_same(chip: str) -> None:
    """In integers and in float, with the memory of both: the module and every constant."""
    model, memory = cached_top(0, 6, 1), Memory()
    float_mode = "bf16" if chip == "cv183x" else "f32"
    for mode in ("int8", float_mode, "int8", float_mode):
        plain = to_tpu(model, chip, mode)
        with remembering(memory):
            found = to_tpu(model, chip, mode)
        assert print_module(found.module) == print_module(plain.module)
        assert found.weights.keys() == plain.weights.keys()
        assert all(np.array_equal(found.weights[name], plain.weights[name]) for name in plain.weights)
    assert memory
