"""Freed memory goes back to the system."""

import ctypes
from pathlib import Path

import pytest

from tpusim.host.heap import give_back

STATM = Path("/proc/self/statm")
COUNT, SIZE = 60_000, 1024


def resident_bytes() -> int:
    return int(STATM.read_text().split()[1]) * 4096


@pytest.mark.skipif(
    not STATM.exists() or not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs Linux and the GNU C library"
)
def test_what_lies_below_memory_in_use_is_given_back():
    """One block at the end keeps the C library from shrinking the heap by itself."""
    blocks = [bytes(SIZE) for _ in range(COUNT)]
    last = blocks[-1]
    del blocks
    before = resident_bytes()
    give_back()
    assert before - resident_bytes() > COUNT * SIZE / 2
    assert len(last) == SIZE
