"""Worked numbers of hardware.md outside of algorithms: sizes, widths, peaks, addresses of the chips."""

from __future__ import annotations

import pytest

from tpusim import chips
from tpusim.isa.layout import channel_stride, lmem_bytes


def test_bytes_per_lane_of_bm1688() -> None:
    """2.1: f16 (2,40,5,6): EU 8, Cs = AL(30, 8) = 32, rows 2, 2*2*32*2 = 256 bytes."""
    chip = chips.load("bm1688")
    assert chip.eu_elements(2) == 8
    assert channel_stride(5, 6, "f16", chip, aligned=True) == 32
    assert lmem_bytes((2, 40, 5, 6), "f16", chip) == 256


def test_bytes_per_lane_of_bm1684x() -> None:
    """2.1: int8 (1,100,7,7): EU 64, Cs = AL(49, 64) = 64, rows 2, 128 bytes."""
    chip = chips.load("bm1684x")
    assert chip.eu_elements(1) == 64
    assert channel_stride(7, 7, "i8", chip, aligned=True) == 64
    assert lmem_bytes((1, 100, 7, 7), "i8", chip) == 128


@pytest.mark.parametrize(("name", "byte", "half", "word"), [("bm1684x", 64, 32, 16), ("bm1688", 16, 8, 4)])
def test_elements_per_vector_step(name: str, byte: int, half: int, word: int) -> None:
    """1.1: EUs per lane for 8, 16 and 32 bits."""
    chip = chips.load(name)
    assert [chip.eu_elements(size) for size in (1, 2, 4)] == [byte, half, word]


@pytest.mark.parametrize(
    ("name", "int8", "half", "cores", "tops"),
    [("bm1684x", 16384, 8192, 1, 32.8), ("bm1688", 4096, 1024, 1, 7.4), ("bm1690", 16384, 8192, 8, 262.0)],
)
def test_peak_compute(name: str, int8: int, half: int, cores: int, tops: float) -> None:
    """1.3: multiply-accumulates per cycle = lanes * P * 4 pixels, TOPS = 2*MAC*MHz/1e6."""
    chip = chips.load(name)
    macs = chip.lanes * chip.ic_parallel_bytes * chip.cube_pixels
    assert macs == int8
    assert macs // chip.half_mac_divisor == half
    assert 2 * macs * cores * chip.tiu_mhz / 1e6 == pytest.approx(tops, abs=0.5 if cores > 1 else 0.05)


REGIONS = [
    ("bm1684", 0x100000000, 0x105100000, 0),
    ("bm1684x", 4294967296, 4294967296, 0),
    ("bm1688", 1 << 39, 1 << 39 | 1 << 36, 1 << 39 | 2 << 36),
    ("cv186x", 1 << 39, 1 << 39 | 1 << 36, 1 << 39 | 2 << 36),
    ("bm1690", 0, 1 << 40, 2 << 40),
]


@pytest.mark.parametrize(("name", "base", "weights", "neurons"), REGIONS)
def test_regions_of_global_memory(name: str, base: int, weights: int, neurons: int) -> None:
    """3.1; 0: neurons follow the weights."""
    chip = chips.load(name)
    assert (chip.gmem_base, chip.coeff_start, chip.neuron_start) == (base, weights, neurons)


@pytest.mark.parametrize(
    ("name", "lanes", "lmem", "banks", "bank"),
    [
        ("bm1684", 64, 512, 8, 64),
        ("bm1684x", 64, 256, 16, 16),
        ("bm1690", 64, 256, 16, 16),
        ("bm1688", 32, 128, 16, 8),
        ("cv183x", 32, 32, 8, 4),
        ("cv182x", 8, 32, 8, 4),
        ("cv181x", 8, 32, 8, 4),
        ("cv180x", 2, 32, 8, 4),
    ],
)
def test_local_memory(name: str, lanes: int, lmem: int, banks: int, bank: int) -> None:
    """1.1: lanes, KiB per lane, banks, KiB per bank."""
    chip = chips.load(name)
    assert (chip.lanes, chip.lmem_bytes, chip.lmem_banks) == (lanes, lmem << 10, banks)
    assert chip.lmem_bank_bytes == bank << 10
