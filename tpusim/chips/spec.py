"""`ChipSpec`: everything the compiler and the machine know about a chip, as data.

One TOML file per chip lies beside this module; differences between chips are fields, never `if chip.name ==` in an op.
Source: spec/hardware.md sections 1 to 3 and 5; an assumed figure carries its decision number in the TOML comment.
"""

from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

from tpusim.errors import ConfigError

Family = Literal["bm1684x", "bm1684", "bm1690"]
Mode = Literal["f32", "f16", "bf16", "int8"]
_PACKAGE = "tpusim.chips"


class Bandwidth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """DMA rates in bytes per nanosecond (GB/s), by direction (hardware.md 5.2, DH-08)."""

    s2l: float
    l2s: float
    s2s: float
    l2l: float


class ChipSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One chip. Sizes are bytes, clocks are MHz, addresses are absolute GMEM byte addresses."""

    name: str
    family: Family
    lanes: int
    """NPU_NUM: channels are spread over this many lanes."""
    eu_bytes: int
    """Bytes that one vector step of one lane processes; aligned rows are padded to this."""
    lmem_bytes: int
    """Local memory of ONE lane."""
    lmem_banks: int
    ic_parallel_bytes: int
    """Bytes of input channels one conv step consumes: the packing width of conv filters."""
    gmem_base: int
    coeff_start: int
    neuron_start: int
    """Start of the neuron region; 0: on the next `gmem_align_bytes` after the weights."""
    gmem_align_bytes: int
    batch_packing: bool
    """BM1684's 4N/2N: 4/B batch items interleave in one 4-byte word (hardware.md 2.5)."""
    coeff_merged: bool
    """INT8 conv coefficients are one row per lane, requant | bias | filter (hardware.md 2.3)."""
    requant_words: int
    """int32 words per channel in the requant block of merged coefficients: 3, 2 when packed; 0: no multiplier."""
    float_fallback: Literal["f32", "f16", "bf16"]
    """Float type of an op that should be integer but has no scale (numerics.md DN-05)."""
    modes: tuple[Mode, ...]
    asymmetric: bool
    """Whether INT8 may use zero points."""
    max_stride: int
    max_conv_channels: int
    cube_pixels: int
    """Output pixels per lane and cycle of the conv array, for 8-bit elements."""
    half_mac_divisor: int
    """8-bit over 16-bit multiply-accumulates per cycle (hardware.md 1.3, DH-03)."""
    conv_accumulators: bool
    """INT8 convs keep int32 accumulators in a work buffer (layer_group.md 9.3)."""
    tiu_mhz: float
    dma_mhz: float
    dma_latency_ns: float
    dma_burst_bytes: int
    bandwidth: Bandwidth

    @property
    def lmem_bank_bytes(self) -> int:
        """Bytes of one local-memory bank of one lane."""
        return self.lmem_bytes // self.lmem_banks

    def eu_elements(self, itemsize: int) -> int:
        """EU(t): elements per vector step; on a 4N chip every type occupies 4-byte words."""
        return self.eu_bytes // (4 if self.batch_packing else itemsize)

    def filter_packing(self, itemsize: int) -> int:
        """P: input channels interleaved in a conv filter of elements of `itemsize` bytes (f32: 1)."""
        return 1 if itemsize == 4 else self.ic_parallel_bytes // itemsize

    def batch_factor(self, itemsize: int) -> int:
        """Batch items per 4-byte word: 4/B on a chip with batch packing, else 1 (hardware.md 2.5)."""
        return 4 // itemsize if self.batch_packing else 1


@cache
def available() -> tuple[str, ...]:
    """Names of the chips that ship with tpusim, sorted."""
    return tuple(sorted(f.name.removesuffix(".toml") for f in files(_PACKAGE).iterdir() if f.name.endswith(".toml")))


@cache
def load(name: str) -> ChipSpec:
    """The chip called `name`. Raises ConfigError for an unknown name or a malformed chip file."""
    if name not in available():
        raise ConfigError(f"unknown chip {name!r}: expected one of {', '.join(available())}")
    text = (files(_PACKAGE) / f"{name}.toml").read_text(encoding="utf-8")
    try:
        return msgspec.toml.decode(text, type=ChipSpec)
    except msgspec.ValidationError as error:
        raise ConfigError(f"chip file {name}.toml: {error}; compare with tpusim/chips/bm1684x.toml") from error
