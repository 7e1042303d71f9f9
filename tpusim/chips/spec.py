"""`ChipSpec`: everything the compiler and the machine know about a chip, as data.

This folder has one TOML file per chip (`tpusim.chips.files` reads them and a user's files); differences between
chips are fields, never `if chip.name ==` in an op.
Source: docs/spec/hardware.md sections 1 to 3 and 5; an assumed figure carries its decision number in the TOML comment.
"""

from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import asdict, replace

from tpusim.chips.families import Hardware, hardware_of
from tpusim.chips.legal import problem
from tpusim.chips.rules import FloatOnly, IntegerRules, LocalRules, OpForms
from tpusim.errors import ConfigError
from tpusim.ir.formats import UnitName
from tpusim.registry import TARGETS

FloatType = Literal["f32", "f16", "bf16"]


class Bandwidth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """DMA rates in bytes per nanosecond (GB/s), by direction (hardware.md 5.2, DH-08)."""

    s2l: float
    l2s: float
    s2s: float
    l2l: float


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ratio of a chip's measured times to the clock's times (hardware.md DH-08)."""

    factor: float = 1.0
    """Geometric mean of measured over estimated times; 1: none were measured."""
    residual: float = 0.0
    """The largest relative distance of the measured times from factor times clock."""
    transfers: float = 0.0
    """Nine in ten transfers differ at most this much from the profile of U-88 (docs/clock.md); 0: none compared."""


class FloatException(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a chip differs from an op's rule of float types (numerics.md 12); unset fields keep the op's rule."""

    op: str
    """The op's name in the IR, as in "top.GELU"."""
    int8: FloatType | None = None
    """Its type if it has no integer form in INT8 mode."""
    f16: FloatType | None = None
    bf16: FloatType | None = None


class ChipSpec(msgspec.Struct, frozen=True, cache_hash=True, forbid_unknown_fields=True):
    """One chip. Sizes are bytes, clocks are MHz, addresses are absolute GMEM byte addresses."""

    name: str
    family: str
    """As in "cv18xx": names its hardware in `registry.FAMILIES`, which all chips of the family have in common, and its
    target in `registry.TARGETS`, how their compiler differs."""
    lanes: int
    """NPU_NUM: the number of lanes, over which channels are divided."""
    eu_bytes: int
    """Bytes that one vector step of one lane processes; aligned rows are padded to this."""
    lmem_bytes: int
    """Local memory of ONE lane, in bytes."""
    lmem_banks: int
    ic_parallel_bytes: int
    """Bytes of input channels one conv step consumes: the packing width of conv filters; 0: all channels in a row."""
    gmem_base: int
    coeff_start: int
    neuron_start: int
    """Start of the neuron region; 0: on the next `gmem_align_bytes` after the weights."""
    io_start: int
    """Start of the first network output's region; the next output's region is `1 << 40` further (hardware.md 3.1);
    0: outputs are neurons."""
    gmem_align_bytes: int
    requant_words: int
    """int32 words per channel in the requant block of merged coefficients: 3, 2 when packed; 0: nothing is merged."""
    modes: tuple[UnitName, ...]
    max_stride: int
    max_conv_channels: int
    max_axis: int
    """Longest c, h and w of a TIU operand (hardware.md 1.1)."""
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
    gmem_bytes: int = 0
    """Bytes of global memory in the chip's memory map (hardware.md 3.1); 0: not in the specification."""
    calibration: Calibration = Calibration()
    cores: int = 1
    """TPU cores. Each has lanes, local memory and two engines; global memory is common to all (DC-06)."""
    several_cores_gbs: float = 0.0
    """Load and store rate of each core while several cores move data (hardware.md 1.2); 0: no slower than alone."""
    search_gbs: float = 0.0
    """Load and store rate in the search for layer groups; 0: those of `bandwidth`."""
    store_latency_ns: float | None = None
    """Latency of a store, if it differs from `dma_latency_ns`."""
    local_latency_ns: float | None = None
    """Latency of a copy inside local memory, if it differs from `dma_latency_ns`."""
    kernel_gbs: float = 0.0
    """Load and store rate of the kernels of global layers; 0: those of `bandwidth`."""
    matrix_gbs: float = 0.0
    """Load rate of these kernels for tensors that are divided over all lanes or copied to all, if not `kernel_gbs`."""
    matrix_store_gbs: float = 0.0
    """Store rate of these kernels for the same tensors."""
    gather_gbs: float = 0.0
    """Rate of a gather of rows in global memory by the DMA; 0: the chip has none."""
    kernel_memory_bytes: int = 0
    """Local memory of all lanes for which the kernels of global layers were written; 0: that of the chip."""
    resize_area_bytes: int = 0
    """Global memory that the library's kernel of Interp may fill with weights (U-111); 0: it takes none."""
    energy_pj_per_byte: float = 0.0
    """Energy of a byte that enters or leaves local memory, in pJ; 0: not known, and no energy is counted. No
    shipped chip has a value, because none is published."""
    energy_pj_per_mac: float = 0.0
    """Energy of a multiply-accumulate in the precision of the network, in pJ; given with `energy_pj_per_byte`."""
    casts_fill_lanes: bool = False
    """A cast that is a global layer gives every lane an equal share of the elements, whatever their shape."""
    mirrors_by_place: bool = False
    """Reverse loads and stores each place of its axis in runs of what follows the axis; else planes (U-110)."""
    lone_pools_are_global: Literal["none", "floats", "all"] = "none"
    """Which pools of whole planes become global layers if they would be alone in their group."""
    copy_page_ends: int = 1
    """Number of ends of a copy within global memory at which few pages use few channels."""
    dma_run_bytes: int = 0
    """Bytes that a shorter run costs, in global memory or in a lane; 0: runs are rounded up to bursts."""
    dma_channels: int = 1
    """Memory channels, over which pages alternate: a transfer of fewer pages has only their share of the rate."""
    dma_page_bytes: int = 4096
    """Bytes in one memory channel before the next channel follows."""
    row_words_apart: bool = False
    """A PorD whose windows are parts of rows reads the words of its results one after the other, not together."""
    strided_window_steps: int = 1
    """Steps of a pooling or depthwise window with strided columns for each step without strides."""
    roots_in_f32: bool = False
    """The reciprocal root of a norm runs in f32 whatever its type, after a check of its range (U-91)."""
    quantize_steps: int = 4
    """Steps of 32 bits in a cast from f32 to an integer; one fewer in the tiles of a global layer."""
    nibble_steps: int = 1
    """Steps that make bytes without zero point of weights of 4 bits: 1, or 3 if the halves of a byte are separated."""
    four_bit_products: bool = False
    """Whether convolutions and matrix products of integers take operands of 4 bits."""
    balances_depth: bool = False
    """3D groups divide a total of sections over d and h by halo cost; else d is cut first (layer_group.md 5)."""
    integers: IntegerRules = IntegerRules()
    """The forms in which this chip computes integer ops."""
    forms: OpForms = OpForms()
    """Which forms of ops this chip has."""
    local: LocalRules = LocalRules()
    """Which ops work in local memory."""
    bias_rounded: bool = True
    """Whether a matrix product in F16 rounds its bias to F16 too (numerics.md 9.2)."""
    depthwise_bias_as_input: bool = False
    """Whether the library reads the bias of a float depthwise convolution in the type of its input, not in F32."""
    bias_after_product: bool = False
    """Whether a matrix product of 16-bit floats is rounded before its bias is added (numerics.md 14, DN-24)."""
    frame_alignment: tuple[int, int] | None = None
    """Rows and planes of aligned frames are multiples of this many bytes (--aligned-input); None: not aligned."""
    float_exceptions: tuple[FloatException, ...] = ()
    """Ops whose float types differ from their rule (numerics.md 12.1 to 12.3)."""
    extends: str = ""
    """The shipped chip from which a user's chip was made; "": a shipped chip, or a chip made from scratch."""

    def problem(self) -> str | None:
        """The first illegal value or contradiction (`tpusim.chips.legal`); None without any."""
        if self.family not in TARGETS:
            return (
                f"family: one of {', '.join(TARGETS)} is required, got '{self.family}'; install the package that "
                "registers it (entry point group tpusim.targets)"
            )
        return problem(self)

    @classmethod
    def load(cls, chip: "str | Path | ChipSpec") -> "ChipSpec":
        """A chip by its name or from a TOML file. Raises ConfigError (`tpusim.chips.load`)."""
        from tpusim.chips.files import load

        return load(chip)

    def replace(self, name: str, **fields: Any) -> "ChipSpec":
        """A chip called `name` that differs from this one in some fields. Raises ConfigError for impossible ones."""
        from tpusim.chips.files import changed

        return changed(self, name, fields)

    def float_only(self, op: str) -> FloatOnly | None:
        """Why an op computes in float only; None if this chip has its integer form."""
        return next((f for f in (*self.integers.float_only, *self.hardware.float_only) if f.op == op), None)

    def is_on_host(self, op: str) -> bool:
        """Whether the host computes a top op, as in "top.Interp"."""
        return op in self.forms.on_host or op in self.hardware.on_host

    def is_global(self, op: str) -> bool:
        """Whether an op, as in "tpu.Sub", works in global memory only."""
        return op in self.local.global_only or op in self.hardware.global_only

    def float_exception(self, op: str) -> FloatException | None:
        """The exception of this chip for an op; None without one."""
        return next((e for e in self.float_exceptions if e.op == op), None)

    def latency_ns(self, direction: str) -> float:
        """Latency before the first byte of a transfer of this direction, "l2s" or another."""
        own = {"l2s": self.store_latency_ns, "l2l": self.local_latency_ns}.get(direction)
        return self.dma_latency_ns if own is None else own

    @property
    def hardware(self) -> Hardware:
        """What all chips of the family have in common."""
        return hardware_of(self.family)

    @property
    def engines_overlap(self) -> bool:
        """Whether TIU and DMA work at the same time; else their times add up (hardware.md 5.3)."""
        return self.hardware.cycle_model == "bm"

    def under_contention(self) -> "ChipSpec":
        """The chip with the rates of one core while other cores move data too."""
        rates = replace(
            self.bandwidth, s2l=self.bandwidth.s2l * self.shared_rate, l2s=self.bandwidth.l2s * self.shared_rate
        )
        return replace(self, bandwidth=rates)

    def searched(self) -> "ChipSpec":
        """The chip with the rates by which the search for layer groups counts transfers."""
        rates = {"s2l": self.search_gbs, "l2s": self.search_gbs} if self.search_gbs else {}
        fields: dict[str, Any] = asdict(self)
        fields["bandwidth"] = replace(self.bandwidth, **rates)
        return SearchedChip(**fields)

    @property
    def counts_all_pages(self) -> bool:
        """Whether all pages in which runs of a strided transfer begin count, or the first ones (one per channel)."""
        return False

    @property
    def shared_rate(self) -> float:
        """Share of a core's DMA rate that remains while other cores move data too."""
        return min(1.0, self.several_cores_gbs / self.bandwidth.s2l) if self.several_cores_gbs else 1.0

    @property
    def lmem_bank_bytes(self) -> int:
        """Bytes of one local-memory bank of one lane."""
        return self.lmem_bytes // self.lmem_banks

    def eu_elements(self, itemsize: int) -> int:
        """EU(t): elements per vector step; on a 4N chip every type occupies 4-byte words."""
        return self.eu_bytes // (4 if self.hardware.batch_packing else itemsize)

    def filter_packing(self, itemsize: int, channels: int, groups: int = 1) -> int:
        """P: input channels interleaved in a conv filter of elements of `itemsize` bytes (f32: 1; hardware.md 2.3).

        channels: input channels of one group. Without a packing width all of them lie in a row; a chip like that reads
        two bytes at once, so an odd number above 1 of an ungrouped INT8 filter is made even.
        """
        if self.ic_parallel_bytes:
            return 1 if itemsize == 4 else self.ic_parallel_bytes // itemsize
        return channels + 1 if itemsize == groups == 1 < channels and channels % 2 else channels

    def merged_kernel_axes(self, itemsize: int, channels: int, kernel: tuple[int, int]) -> tuple[int, ...]:
        """Axes of the kernel of a convolution of one group that lie in its filter's input channels: h, w or both."""
        if not self.hardware.merges_kernels or itemsize > 2:  # noqa: PLR2004  f32 has no cube
            return ()
        (kh, kw), most = kernel, self.ic_parallel_bytes // itemsize
        if channels * kh * kw <= most and min(kh, kw) > 1:
            return 0, 1
        if channels * kw <= most and kw > 1 and (kh < kw or channels * kh > most):
            return (1,)
        return (0,) if channels * kh <= (most if itemsize == 1 else self.lanes) and kh > 1 else ()

    def batch_factor(self, itemsize: int) -> int:
        """Batch items per 4-byte word: 4/B on a chip with batch packing, else 1 (hardware.md 2.5)."""
        return 4 // itemsize if self.hardware.batch_packing else 1


class SearchedChip(ChipSpec, frozen=True, cache_hash=True):
    """A chip as the search for layer groups counts its transfers: with the rates of the search, by all pages (U-78)."""

    @property
    def counts_all_pages(self) -> bool:
        """The clock counts the first ones alone."""
        return True


def require_cores(chip: ChipSpec, cores: int) -> int:
    """The number of cores, if the chip has so many. Raises ConfigError."""
    if 1 <= cores <= chip.cores:
        return cores
    have = "1 core" if chip.cores == 1 else f"{chip.cores} cores"
    raise ConfigError(f"cores={cores}: {chip.name} has {have}; give 1{f' to {chip.cores}' * (chip.cores > 1)}")
