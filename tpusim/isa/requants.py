"""Legality rules about requants and number formats that only some chips have; see `tpusim.isa.check`."""

from tpusim.chips import ChipSpec
from tpusim.isa.commands.base import Command, Need
from tpusim.isa.finding import Finding, Rule, first


def requant_ranges(command: Command, chip: ChipSpec) -> Finding | None:
    """A requant has an int32 multiplier, a shift of -128..127 and an int16 zero point."""
    wanted = "int32 multiplier, rshift -128..127, int16 zero point"
    return first(
        Finding(wanted, f"multiplier {r.multiplier}, rshift {r.rshift}, zero point {r.zero_point}", "rescale in steps")
        for r in command.fused_requants()
        if not (-(2**31) <= r.multiplier < 2**31 and -128 <= r.rshift <= 127 and -(2**15) <= r.zero_point < 2**15)
    )


def fused_multiplier(command: Command, chip: ChipSpec) -> Finding | None:
    """On a chip without requant multiplier, convolution and matrix product only shift right (hardware.md 1.4)."""
    if chip.hardware.requant != "shift" or not command.product:
        return None
    if (table := _need(command, "requant_table")) is not None:
        advice = f"{chip.name} requants by a shift: use requant=Requant(rshift=...)"
        return Finding(table.requirement, table.got, advice)
    return first(
        Finding("multiplier 1", str(requant.multiplier), f"{chip.name} requants by a shift only")
        for requant in command.fused_requants()
        if requant.multiplier != 1
    )


def requant_modes(command: Command, chip: ChipSpec) -> Finding | None:
    """Only chips that requant by QDM have the doubling multiplication ("qdm") and one requant per matrix.

    There a convolution or matrix product requants by "qdm" or by a shift alone, never by a multiplier in another
    mode. The multiplication in f32 ("f32") is for chips of small multipliers (numerics.md 4.4, 5, 9).
    """
    if chip.hardware.requant == "qdm":
        return _foreign_to_qdm(command)
    small = chip.hardware.scaling == "small_multiplier" and not command.product
    able, advice = ("shift", "f32") if small else ("shift",), f"{chip.name} multiplies, shifts and rounds once"
    for requant in command.fused_requants():
        if requant.mode not in able:
            return Finding(f"requant mode {' or '.join(able)}", requant.mode, advice)
    need = _need(command, "qdm")
    return need and Finding(need.requirement, need.got, advice)


def _foreign_to_qdm(command: Command) -> Finding | None:
    if not command.product:
        return None
    return first(
        Finding("requant mode qdm, or multiplier 1", f"mode {r.mode}, multiplier {r.multiplier}", "use mode qdm")
        for r in command.fused_requants()
        if r.mode == "f32" or (r.mode == "shift" and r.multiplier != 1)
    )


def small_multipliers(command: Command, chip: ChipSpec) -> Finding | None:
    """Only some chips have functions of 8-bit multipliers with one shift, and two forms (numerics.md 9.6, 9.7).

    The two forms are pools that round half up, and selections that scale the values that are not negative.
    """
    if chip.hardware.scaling == "small_multiplier":
        return None
    need = _need(command, "small_multiplier")
    return need and Finding(need.requirement, need.got, f"{chip.name} scales every operand separately")


def float_units(command: Command, chip: ChipSpec) -> Finding | None:
    """Steps rounded to BF16, f32 truncated to BF16, and functions by BF16 tables need a chip with such a unit."""
    lacking = {"bf16": not chip.hardware.bf16_unit, "tables": not chip.hardware.float_tables}
    return first(
        Finding(need.requirement, need.got, f"{chip.name} computes in f32")
        for need in command.needs()
        if lacking.get(need.unit)
    )


def _need(command: Command, unit: str) -> Need | None:
    """The part of the hardware that a command needs, if it needs this unit."""
    return next((need for need in command.needs() if need.unit == unit), None)


REQUANT_RULES: tuple[Rule, ...] = (
    requant_ranges,
    fused_multiplier,
    requant_modes,
    small_multipliers,
    float_units,
)
"""Rules that apply both in local memory and in global kernels."""
