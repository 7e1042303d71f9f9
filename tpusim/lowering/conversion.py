"""One lowering step by step: the order of the steps, and what one leaves for the next in addition to the module."""

from collections.abc import Mapping
from typing import get_args

from xdsl.ir import Operation

from tpusim.chips import ChipSpec, available, load
from tpusim.compat import Quirk, checked
from tpusim.errors import ConfigError, UnsupportedError
from tpusim.interfaces import rules
from tpusim.ir.attrs import op_name
from tpusim.ir.formats import NumberFormat
from tpusim.ir.module import Model
from tpusim.ir.packing import PACKED_BITS
from tpusim.lowering.borders import strip_input_casts
from tpusim.lowering.chip_forms import fuse_for_chip, require_fitting_rules, rewrite_for_chip
from tpusim.lowering.kept_scales import mark_changed_scales
from tpusim.lowering.lower import (
    ConversionConfig,
    Fallback,
    Lowering,
    config_for_chip,
    listed_formats,
    named_ops,
    supported,
    table_of,
)
from tpusim.lowering.marks import float_marks, masks, parts
from tpusim.lowering.overflow import warn_of_overflow
from tpusim.lowering.propagate import keep_ranges, propagate
from tpusim.ops.frames import fold_swaps
from tpusim.ops.framework.base import TopOp
from tpusim.ops.interfaces import Arithmetic, ProductRules, TwoArithmetics


class Conversion:
    """The lowering of a top module, which it changes: its methods are the steps, in their order.

    Raises UnsupportedError for a mode or option that the chip does not have, ConfigError for a wrong table.
    """

    def __init__(self, top: Model, config: ConversionConfig) -> None:
        self.config = config_for_chip(config)
        self.chip = load(self.config.chip)
        _require_supported(self.config, self.chip)
        self.top = top
        self._table = table_of(self.config, self.chip)
        self._names = {op_name(op) for op in top.ops if isinstance(op, TopOp)}
        self._known = set(named_ops(top, self._table).values())
        self._listed: Mapping[TopOp, NumberFormat] = {}
        self._formats: dict[Operation, NumberFormat] = {}
        self._marks: dict[Operation, str] = {}
        self._masked: dict[Operation, str] = {}
        self._apart: set[Operation] = set()
        self._stage: Lowering | None = None

    def rewrite_top(self) -> None:
        """Rewrite the top module by the patterns that ops have for the chip."""
        rewrite_for_chip(self.top, self.chip, self.config.quirks_off)

    def choose_formats(self) -> None:
        """Give every op its number format, and mark the ops that integers would ruin."""
        self._listed = listed_formats(self.top, self._table, self._known)
        usual = self.config.format
        self._formats = {op: self._listed.get(op, usual) for op in self.top.ops if isinstance(op, TopOp)}
        if not self._integers:
            self.top.require_state("TOP_F32", "TOP_CALIBRATED", stage="lower")
            return
        self.top.require_state("TOP_CALIBRATED", stage=f"mode {usual} on {self.chip.name}")
        keep_ranges(self.top, self.chip)
        masked = {op: why for op, why in masks(self.top).items() if self._may_mark(op)}
        if Quirk.MASKS_IN_INTEGERS not in self.config.quirks_off:
            self._masked, masked = masked, {}
        found = float_marks(self.top, masked) | parts(self.top, self.chip)
        self._marks = {op: why for op, why in found.items() if self._may_mark(op)}
        self._apart = set(masked)

    def _may_mark(self, op: Operation) -> bool:
        """Whether an op would have integers, and the quantisation table does not name it."""
        return op not in self._listed and self._formats[op].calibrated

    @property
    def _integers(self) -> bool:
        return any(format.calibrated for format in self._formats.values())

    def propagate(self) -> None:
        """Let ranges follow the ops, if there are integers."""
        if self._integers:
            in_float = {op for op, format in self._listed.items() if format.activation in ("f32", "f16")}
            propagate(self.top, self.chip, in_float | self._apart)

    def convert(self) -> Model:
        """Lower every op; the tpu module, which the steps after this change."""
        if any(isinstance(op, TopOp) and op not in self._formats for op in self.top.ops):
            raise ConfigError(
                "pass convert-ops: a number format of every op is required; choose-formats gives them, after passes "
                "that rewrite the module; convert-top-to-tpu runs all steps"
            )
        self._stage = Lowering(self.top, self.config, self.chip, self._formats, self._marks)
        self._stage.note_masks(self._masked)
        return self._stage.run()

    def fold_swaps(self, lowered: Model) -> None:
        """Fold swaps of an image's channels into the convolutions that read it."""
        fold_swaps(lowered)

    def strip_casts(self, lowered: Model) -> None:
        """Let inputs be stored integers, if that is asked for."""
        if self.config.quant_input:
            strip_input_casts(lowered)

    def fuse(self, lowered: Model) -> None:
        """Fuse tpu ops as the chip's lowering does, and give ops their arithmetic."""
        fuse_for_chip(lowered, self.chip)
        for op in lowered.ops:
            if isinstance(op, TwoArithmetics):
                op.choose_arithmetic(self.chip, self.config.arithmetic, high_precision=self.config.high_precision)

    def check(self, lowered: Model) -> None:
        """Mark scales of a quantised network that are not kept; warn of accumulators that can overflow."""
        assert self._stage is not None  # `convert` comes before
        mark_changed_scales(self.top, self._stage.quant, lowered)
        warn_of_overflow(self._names, lowered)

    @property
    def fallbacks(self) -> list[Fallback]:
        """The ops that were asked for integers and run in float."""
        return [] if self._stage is None else self._stage.fallbacks


def require_lowering(config: ConversionConfig) -> None:
    """Check the options of a lowering before there is a module.

    Raises UnsupportedError for a mode or option that the chip does not have, ConfigError for an unknown chip, mode or
    quirk and for a table that cannot be read.
    """
    chip = load(config.chip)
    _require_supported(supported(config), chip)
    checked(config.quirks_off)
    table_of(config, chip)


def _require_groups(config: ConversionConfig, chip: ChipSpec) -> None:
    """Refuse weights of few bits where the chip has no product of them, and groups that it would compute wrongly."""
    for format in (config.format, *table_of(config, chip).values()):
        if format.family != "weight_only":
            continue
        if not chip.hardware.weights_of_few_bits:
            able = ", ".join(one for one in available() if load(one).hardware.weights_of_few_bits)
            raise UnsupportedError(f"mode {format} on {chip.name}: it has no product of such weights; {able} have it")
        if format.weight_bits == 8 and not format.group_size:  # noqa: PLR2004
            raise UnsupportedError(
                f"mode {format} without groups (group size 0) on {chip.name}: its weights are signed bytes, which the "
                "chip reads as unsigned, so that all negative weights are wrong; use groups of 64, or 4 bits"
            )


def _require_four_bits(config: ConversionConfig, chip: ChipSpec) -> None:
    """Refuse integer weights of 4 bits where the chip has no product of them, or computes it wrongly."""
    listed = (config.format, *table_of(config, chip).values())
    few = [f for f in listed if f.family == "integer" and f.integer_bits == PACKED_BITS]
    if few and not chip.four_bit_products:
        able = ", ".join(one for one in available() if load(one).four_bit_products)
        raise UnsupportedError(
            f"mode {few[0]} on {chip.name}: a product of bytes with weights of 4 bits is required; {able} have it"
        )
    if few and config.matmul_perchannel:
        raise UnsupportedError(
            f"mode {few[0]} with matmul_perchannel: {chip.name} computes such products wrongly; leave one of them out"
        )


def _require_supported(config: ConversionConfig, chip: ChipSpec) -> None:
    require_fitting_rules(chip)
    name = chip.name
    if config.arithmetic not in get_args(Arithmetic):
        raise ConfigError(f"arithmetic '{config.arithmetic}': one of {', '.join(get_args(Arithmetic))} is required")
    if config.matmul_perchannel and not rules(chip, ProductRules).COLUMN_MULTIPLIERS:
        able = ", ".join(one for one in available() if rules(load(one), ProductRules).COLUMN_MULTIPLIERS)
        raise UnsupportedError(f"matmul_perchannel on {name}: a multiplier per column is required; {able} have it")
    _require_groups(config, chip)
    _require_four_bits(config, chip)
    if config.asymmetric and not chip.hardware.asymmetric:
        able = ", ".join(one for one in available() if load(one).hardware.asymmetric)
        raise UnsupportedError(f"asymmetric quantisation on {name} is not supported; it is on {able}")
