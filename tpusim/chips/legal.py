"""The legal values of a chip's fields, and which fields contradict each other or the chip's family."""

from collections.abc import Iterator
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple, cast

from tpusim.host.files import is_file_name

if TYPE_CHECKING:
    from tpusim.chips.spec import ChipSpec

F32_BYTES = 4


class Legal(NamedTuple):
    """The least and the largest value of a number; several of a whole number may have to be multiples or powers."""

    least: float
    most: float
    multiple: int = 1
    power_of_two: bool = False
    above: bool = False
    """`least` itself is not legal."""

    def allows(self, value: float) -> bool:
        """Whether a number is legal."""
        inside = self.least < value <= self.most if self.above else self.least <= value <= self.most
        power = not self.power_of_two or value == 0 or not int(value) & (int(value) - 1)
        return inside and power and (self.multiple == 1 or int(value) % self.multiple == 0)

    def __str__(self) -> str:
        what = (
            "a power of two " if self.power_of_two else f"a multiple of {self.multiple} " if self.multiple > 1 else ""
        )
        least = f"above {_text(self.least)} and at most" if self.above else f"from {_text(self.least)} to"
        return f"{what}{least} {_text(self.most)}"


def _text(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


COUNT = Legal(1, 1 << 16)
AXIS = Legal(1, 65535)
ADDRESS = Legal(0, 1 << 48)
RATE, OPTIONAL_RATE = Legal(0, 1e6, above=True), Legal(0, 1e6)
CLOCK = Legal(0, 1e5, above=True)
LATENCY = Legal(0, 1e9)
ENERGY = Legal(0, 1e6)

LEGAL: dict[str, Legal] = {
    "lanes": Legal(1, 1 << 12),
    "eu_bytes": Legal(F32_BYTES, 1 << 10, multiple=F32_BYTES),
    "lmem_bytes": Legal(1, 1 << 28),
    "lmem_banks": Legal(1, 1 << 10),
    "ic_parallel_bytes": Legal(0, 1 << 10, multiple=F32_BYTES),
    "gmem_base": ADDRESS,
    "coeff_start": ADDRESS,
    "neuron_start": ADDRESS,
    "io_start": ADDRESS,
    "gmem_align_bytes": Legal(8, 1 << 20, power_of_two=True),
    "gmem_bytes": ADDRESS,
    "max_stride": Legal(1, 255),
    "max_conv_channels": AXIS,
    "max_axis": AXIS,
    "cube_pixels": COUNT,
    "half_mac_divisor": COUNT,
    "tiu_mhz": CLOCK,
    "dma_mhz": CLOCK,
    "dma_latency_ns": LATENCY,
    "store_latency_ns": LATENCY,
    "local_latency_ns": LATENCY,
    "dma_burst_bytes": COUNT,
    "dma_run_bytes": Legal(0, 1 << 16),
    "dma_channels": Legal(1, 1 << 10),
    "dma_page_bytes": Legal(1, 1 << 30),
    "copy_page_ends": Legal(0, 2),
    **{f"bandwidth.{way}": RATE for way in ("s2l", "l2s", "s2s", "l2l")},
    **{
        f"{way}_gbs": OPTIONAL_RATE for way in ("several_cores", "search", "kernel", "matrix", "matrix_store", "gather")
    },
    "calibration.factor": RATE,
    "calibration.residual": OPTIONAL_RATE,
    "calibration.transfers": OPTIONAL_RATE,
    "cores": Legal(1, 256),
    "kernel_memory_bytes": Legal(0, 1 << 40),
    "resize_area_bytes": Legal(0, 1 << 32),
    "energy_pj_per_byte": ENERGY,
    "energy_pj_per_mac": ENERGY,
    "strided_window_steps": COUNT,
    "quantize_steps": Legal(2, 1 << 16),
    "nibble_steps": COUNT,
    "requant_words": Legal(0, 3),
    "forms.patch_products": Legal(0, 1 << 16),
    "local.moving_transfer_bytes": Legal(0, 1 << 28),
    "local.moving_transfers": COUNT,
    "frame_alignment": Legal(1, 1 << 16, power_of_two=True),
}
"""By the field's name in a chip's file. Values above the largest are typing errors."""


def problem(chip: "ChipSpec") -> str | None:
    """The first illegal value or contradiction; None without any."""
    return next(_illegal(chip), None) or next(_contradictions(chip), None)


def _illegal(chip: "ChipSpec") -> Iterator[str]:
    from tpusim.chips.fields import flattened

    for name, value in flattened(chip).items():
        legal = LEGAL.get(name)
        if legal is None or value is None:
            continue
        for one in cast("tuple[float, ...]", value if isinstance(value, tuple) else (value,)):
            if not (isfinite(one) and legal.allows(one)):
                yield f"{name}: {legal} is required, got {one:,}"
    if not chip.name.strip() or not chip.name.isprintable() or not is_file_name(chip.name):
        yield f"name: printable text of one line that can name a folder is required, got {chip.name!r}"
    if not chip.modes or len(set(chip.modes)) < len(chip.modes):
        yield f"modes: one mode or several different ones are required, got {', '.join(chip.modes) or 'none'}"


def _contradictions(chip: "ChipSpec") -> Iterator[str]:
    yield from _of_memory(chip)
    yield from _of_family(chip)
    if (chip.energy_pj_per_byte == 0) != (chip.energy_pj_per_mac == 0):
        given = f"energy_pj_per_byte {chip.energy_pj_per_byte} and energy_pj_per_mac {chip.energy_pj_per_mac}"
        yield f"energies: both above 0, or none of them, are required, got {given}"
    if chip.half_mac_divisor > (most := 2 * chip.cube_pixels):
        yield f"half_mac_divisor: at most 2 x cube_pixels = {most} is required, got {chip.half_mac_divisor}"


def _of_memory(chip: "ChipSpec") -> Iterator[str]:
    unit = chip.lmem_banks * chip.eu_bytes
    if chip.lmem_bytes % unit:
        yield f"lmem_bytes: a multiple of lmem_banks x eu_bytes = {unit:,} is required, got {chip.lmem_bytes:,}"
    if 0 < chip.kernel_memory_bytes < chip.lanes * chip.eu_bytes:
        least = f"0, or at least lanes x eu_bytes = {chip.lanes * chip.eu_bytes:,},"
        yield f"kernel_memory_bytes: {least} is required, got {chip.kernel_memory_bytes:,}"
    yield from _of_regions(chip)


def _of_regions(chip: "ChipSpec") -> Iterator[str]:
    """Weights, neurons and outputs have aligned regions in this order; neurons or outputs may have none (0)."""
    if chip.coeff_start < chip.gmem_base:
        yield f"coeff_start: at least gmem_base = {chip.gmem_base:#x} is required, got {chip.coeff_start:#x}"
    below = "coeff_start"
    for name in ("coeff_start", "neuron_start", "io_start"):
        address, least = int(getattr(chip, name)), int(getattr(chip, below))
        if address % chip.gmem_align_bytes:
            yield f"{name}: a multiple of gmem_align_bytes = {chip.gmem_align_bytes:,} is required, got {address:#x}"
        if name != below and 0 < address <= least:
            yield f"{name}: an address above {below} = {least:#x} is required, got {address:#x}"
        below = name if address else below


def _of_family(chip: "ChipSpec") -> Iterator[str]:
    """Fields whose legal values the hardware of the family decides."""
    hardware, family = chip.hardware, f"family {chip.family}"
    words = (2, 3) if hardware.coefficients == "merged" else (0,)
    if chip.requant_words not in words:
        yield f"requant_words: {' or '.join(map(str, words))} is required in {family}, got {chip.requant_words}"
    if (chip.ic_parallel_bytes == 0) != (hardware.coefficients == "channel_rows"):
        least = "0" if chip.ic_parallel_bytes else f"at least {F32_BYTES}"
        yield f"ic_parallel_bytes: {least} is required in {family}, got {chip.ic_parallel_bytes}"
    if hardware.bf16_unit and (other := [mode for mode in chip.modes if mode in ("f32", "f16")]):
        yield f"modes: bf16 and int8 alone are possible in {family}, got {', '.join(other)}"
