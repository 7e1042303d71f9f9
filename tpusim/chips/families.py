"""Families of chips: what the hardware of all chips of one family has in common (hardware.md 1.4, 2.3 to 2.5).

Instruction set, machine and clock read it as `chip.hardware`, the compiler too. What only a family's compiler does is a
question to its target instead (`tpusim.targets`), and what differs within a family is a field of `ChipSpec`.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from tpusim.chips.rules import FloatOnly
from tpusim.errors import ConfigError
from tpusim.registry import FAMILIES, TARGETS


class Hardware(msgspec.Struct, frozen=True):
    """The hardware of a family; the defaults are the 1684X family's."""

    requant: Literal["multiplier", "shift", "qdm"] = "multiplier"
    """How the accumulators of products are scaled (numerics.md 5): a 32-bit multiplier and a shift, a right shift only,
    or the doubling multiplication of CV18xx, which also scales Mul."""
    scaling: Literal["best_fit", "right_shift", "small_multiplier"] = "best_fit"
    """How ops other than products get an 8-bit multiplier and a shift: by the best fit (5.1, 5.6); the shift first,
    then the multiplier (5.4); or from thresholds, in the op itself, with one shift for operands that are added or
    compared (5.3, 9.6, 9.7)."""
    scale_bits: Literal[16, 32] = 32
    """Bits of tpu.Scale's accumulators; 16-bit accumulators saturate and are never shifted left (9.4)."""
    coefficients: Literal["merged", "separate", "channel_rows"] = "merged"
    """Coefficients of an INT8 conv (hardware.md 2.3): one row per lane with requant | bias | filter; a separate bias;
    or a row of bytes per output channel bias | multiplier | shift, slopes aligned as activations."""
    merges_kernels: bool = True
    """Whether kernel axes are stored in a filter's input channels if these are few, up to 16 bits (hardware.md 2.4)."""
    batch_packing: bool = False
    """BM1684's 4N/2N: 4/B batch items interleave in one 4-byte word (hardware.md 2.5)."""
    bf16_unit: bool = False
    """The float unit is BF16 only: casts go through BF16, results are finite (numerics.md 8.1, 8.2)."""
    float_tables: bool = False
    """Functions in BF16, and the reciprocals and roots inside Softmax and LayerNorm, are table lookups (10, 11)."""
    heads_of_each_tensor: bool = False
    """Whether a product says of each tensor if its heads and rows are exchanged (`hdim_is_batch`); else all are."""
    weights_of_few_bits: bool = True
    """A product with weights of 4 or 8 bits and activations of 16 is a tpu.A16MatMul (numerics.md 14)."""
    float_only: tuple[FloatOnly, ...] = ()
    """Ops without an integer form (numerics.md 9.0, 10, 12.1)."""
    on_host: tuple[str, ...] = ()
    """Top ops without an integer form, as in "top.Interp", that the host computes, in f32."""
    global_only: tuple[str, ...] = ()
    """Ops without a local form, as in "tpu.Sub" (layer_group.md 2)."""
    file_suffix: Literal["bmodel", "cvimodel"] = "bmodel"
    """Of the files that TPU-MLIR's code generator makes for boards."""
    not_generated: str = ""
    """What keeps TPU-MLIR's code generator from final modules of tpusim; "" if it reads them."""
    cycle_model: Literal["bm", "cv18xx"] = "bm"
    """"bm": hardware.md 5.1 and 5.2, TIU and DMA run at the same time; "cv18xx": 5.3, by the formulas in
    `tpusim.isa.families`, and the times of TIU and DMA add up."""

    @property
    def asymmetric(self) -> bool:
        """Whether INT8 may use zero points: no rule is known for them with other requants."""
        return (self.requant, self.scaling) == ("multiplier", "best_fit")

    def contradiction(self) -> str | None:
        """Why the layout of coefficients has no place for the requant; None if it has one."""
        able = {"merged": ("multiplier",), "channel_rows": ("qdm",)}.get(self.coefficients, ("multiplier", "shift"))
        if self.requant in able:
            return None
        return f'coefficients "{self.coefficients}": requant "{" or ".join(able)}" is required, got "{self.requant}"'


BM1684X = Hardware()
"""BM1684X, BM1688, CV186x."""
BM1690 = replace(BM1684X, merges_kernels=False, global_only=("tpu.GroupNorm",))

_NO_SOFTMAX = FloatOnly("top.Softmax", "softmax has no integer form on this chip (numerics.md 12.1)")


def _without_table(*ops: str, decisions: tuple[str, ...] = ()) -> Iterator[FloatOnly]:
    why = "this chip has no table of this function (numerics.md 10, 16)"
    return (FloatOnly(f"top.{op}", why, decisions) for op in ops)


def _without_integers(*ops: str) -> Iterator[FloatOnly]:
    return (FloatOnly(f"top.{op}", "this chip has no integer form of it (numerics.md 9.0)", ("DN-13",)) for op in ops)


BM1684 = Hardware(
    requant="shift",
    scaling="right_shift",
    scale_bits=16,
    not_generated="there a cast with a scale is a product and a cast, and filters have another order of channels",
    coefficients="separate",
    merges_kernels=False,
    batch_packing=True,
    weights_of_few_bits=False,
    float_only=(_NO_SOFTMAX, *_without_table("Erf", "Ceil", "Round")),
    global_only=("tpu.Div", "tpu.Reduce", "tpu.Where"),
)
CV18XX = Hardware(
    requant="qdm",
    scaling="small_multiplier",
    coefficients="channel_rows",
    merges_kernels=False,
    bf16_unit=True,
    float_tables=True,
    heads_of_each_tensor=True,
    weights_of_few_bits=False,
    float_only=(
        _NO_SOFTMAX,
        FloatOnly("top.CompareConst", "CompareConst runs in float (numerics.md 12.1)"),
        *_without_integers("Compare", "Where"),
        FloatOnly("top.Div", "a quotient has no integer form (numerics.md 9.0)", ("DN-13",)),
        FloatOnly("top.InstanceNorm", "the host normalises, in f32"),
        FloatOnly("top.Interp", "the host interpolates, in f32", ("DN-22",)),
        FloatOnly("top.CumSum", "the host adds up, in f32"),
        FloatOnly("top.TopK", "the host sorts, in f32"),
        FloatOnly("top.GatherElements", "the host gathers, in f32"),
        *_without_table("Erf", "Sin", "Cos", "Ceil", "Round", "Sign", decisions=("DN-13",)),
    ),
    on_host=("top.Interp", "top.InstanceNorm", "top.CumSum", "top.TopK", "top.GatherElements"),
    global_only=(
        *("tpu.Clip", "tpu.Sub", "tpu.Max", "tpu.Min", "tpu.Div", "tpu.MatMul", "tpu.Softmax"),
        *("tpu.LayerNorm", "tpu.GroupNorm", "tpu.InstanceNorm"),
    ),
    file_suffix="cvimodel",
    cycle_model="cv18xx",
)


@cache
def hardware_of(family: str) -> Hardware:
    """The hardware of a family; a package's family without an entry has that of the family that its target extends.

    Raises ConfigError for a family without a target.
    """
    name = family
    if family not in FAMILIES:
        target: Any = TARGETS.get(family)
        while target is not None and target.name not in FAMILIES:
            target = target.extends
        name = "bm1684x" if target is None else target.name
    found: object = FAMILIES.get(name)
    if not isinstance(found, Hardware):
        raise ConfigError(f"family '{family}': a tpusim.chips.Hardware is required, got {found!r:.60}")
    try:
        hardware = msgspec.convert(msgspec.to_builtins(found), Hardware)
    except msgspec.ValidationError as error:
        raise ConfigError(f"family '{family}': {error}; compare with tpusim/chips/families.py") from error
    if (why := hardware.contradiction()) is not None:
        raise ConfigError(f"family '{family}': {why}")
    return hardware
