"""Legality rules about requants and number formats that only some chips have; see `tpusim.isa.check`."""

from collections.abc import Callable

from tpusim.chips import ChipSpec
from tpusim.isa.commands import (
    Arith,
    ChannelScale,
    Command,
    Conv,
    Depthwise,
    Dequantize,
    Fn,
    MatMul,
    Pool,
    Quantize,
    Requant,
    Rescale,
    Select,
)
from tpusim.isa.finding import Finding, first


def _requants(command: Command) -> tuple[Requant, ...]:
    """Every requant of a command: its own, and the several of a MatMul."""
    several = command.requants if isinstance(command, MatMul) else ()
    if isinstance(command, Select):
        one = command.positive
    else:
        one = command.requant if isinstance(command, Conv | Depthwise | Pool | MatMul | Rescale) else None
    return several if one is None else (one, *several)


def requant_ranges(command: Command, chip: ChipSpec) -> Finding | None:
    """A requant has an int32 multiplier, a shift of -128..127 and an int16 zero point."""
    wanted = "int32 multiplier, rshift -128..127, int16 zero point"
    return first(
        Finding(wanted, f"multiplier {r.multiplier}, rshift {r.rshift}, zero point {r.zero_point}", "rescale in steps")
        for r in _requants(command)
        if not (-(2**31) <= r.multiplier < 2**31 and -128 <= r.rshift <= 127 and -(2**15) <= r.zero_point < 2**15)
    )


def fused_multiplier(command: Command, chip: ChipSpec) -> Finding | None:
    """Convolution and matrix product of a chip without requant multiplier only shift right (hardware.md 1.4)."""
    if chip.requant != "shift" or not isinstance(command, Conv | Depthwise | MatMul):
        return None
    if not isinstance(command, MatMul) and command.requant_table is not None:
        return Finding("no requant table", "one", f"{chip.name} requants by a shift: use requant=Requant(rshift=...)")
    return first(
        Finding("multiplier 1", str(requant.multiplier), f"{chip.name} requants by a shift only")
        for requant in _requants(command)
        if requant.multiplier != 1
    )


def requant_modes(command: Command, chip: ChipSpec) -> Finding | None:
    """The doubling multiplication ("qdm") and one requant per matrix are CV18xx's.

    There a convolution or a matrix product requants by "qdm" or a shift alone, never by a multiplier in another mode.
    The multiplication in f32 ("f32") is for chips of small multipliers (numerics.md 4.4, 5, 9).
    """
    if chip.requant == "qdm":
        return _foreign_to_qdm(command)
    small = chip.integers.scaling == "small_multiplier" and not isinstance(command, _PRODUCTS)
    able, advice = ("shift", "f32") if small else ("shift",), f"{chip.name} multiplies, shifts and rounds once"
    for requant in _requants(command):
        if requant.mode not in able:
            return Finding(f"requant mode {' or '.join(able)}", requant.mode, advice)
    if isinstance(command, Fn) and command.function.needs() == "qdm":
        return Finding("a function of this chip's requant", type(command.function).__name__, advice)
    if isinstance(command, MatMul) and command.requants:
        return Finding("no requants", str(command.requants), advice)
    return None


_PRODUCTS = (Conv, Depthwise, MatMul)


def _foreign_to_qdm(command: Command) -> Finding | None:
    if not isinstance(command, _PRODUCTS):
        return None
    return first(
        Finding("requant mode qdm, or multiplier 1", f"mode {r.mode}, multiplier {r.multiplier}", "use mode qdm")
        for r in _requants(command)
        if r.mode == "f32" or (r.mode == "shift" and r.multiplier != 1)
    )


def small_multipliers(command: Command, chip: ChipSpec) -> Finding | None:
    """Functions of 8-bit multipliers with one shift, pools that round half up and selections that scale what they keep.

    They are CV18xx's (numerics.md 9.6, 9.7).
    """
    if chip.integers.scaling == "small_multiplier":
        return None
    advice = f"{chip.name} scales every operand for itself"
    if isinstance(command, Fn) and command.function.needs() == "small_multiplier":
        return Finding("a function of this chip's multipliers", type(command.function).__name__, advice)
    if isinstance(command, Pool) and command.first_rounding != "half_away":
        return Finding("no first_rounding", command.first_rounding, advice)
    if isinstance(command, Select) and command.positive is not None:
        return Finding("no positive", str(command.positive), advice)
    return None


def accumulators_of_16_bits(command: Command, chip: ChipSpec) -> Finding | None:
    """Only BM1684 accumulates in 16 bits (numerics.md 9.4)."""
    if isinstance(command, ChannelScale) and command.clamp16 and chip.integers.scale_bits != 16:
        return Finding("no clamp16", "clamp16=true", f"{chip.name} accumulates in {chip.integers.scale_bits} bits")
    return None


def float_units(command: Command, chip: ChipSpec) -> Finding | None:
    """Steps rounded to BF16, f32 cut off to BF16, and functions by BF16 tables need CV18xx's float unit."""
    if chip.bf16_unit and chip.float_tables:
        return None
    advice = f"{chip.name} computes in f32"
    if isinstance(command, Quantize | Dequantize) and command.bf16 and not chip.bf16_unit:
        return Finding("no bf16", "bf16=true", advice)
    if isinstance(command, Arith) and command.kind == "truncate" and not chip.bf16_unit:
        return Finding("a kind other than truncate", "truncate", advice)
    if isinstance(command, Fn) and command.function.needs() == "tables" and not chip.float_tables:
        return Finding("a chip with BF16 tables", type(command.function).__name__, advice)
    return None


REQUANT_RULES: tuple[Callable[[Command, ChipSpec], Finding | None], ...] = (
    requant_ranges,
    fused_multiplier,
    requant_modes,
    small_multipliers,
    accumulators_of_16_bits,
    float_units,
)
"""Rules that hold in local memory and in global kernels alike."""
