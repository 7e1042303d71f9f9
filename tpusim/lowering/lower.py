"""The lowering driver: walk the top module, let each op build its tpu form, insert casts where types differ."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast
from warnings import warn

import numpy as np
from tpusim_kernels.prim.multiplier import NoMultiplierError
from tpusim_kernels.prim.scale import asymmetric_scale, symmetric_scale
from tpusim_kernels.prim.smallfloat import narrowed, within_bf16
from xdsl.dialects.builtin import ArrayAttr, IntegerType, ModuleOp, StringAttr, f32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import IRDLOperation

from tpusim.chips import ChipSpec, available, define, load
from tpusim.chips import of as chip_of
from tpusim.compat import Quirk, checked
from tpusim.errors import CalibrationError, ConfigError, ModeWarning, UnsupportedError, option
from tpusim.images.frames import fused_of
from tpusim.interfaces import ask, rules
from tpusim.ir.attrs import flag, op_name, set_op_name, value_name
from tpusim.ir.dialects import load_dialect_of
from tpusim.ir.formats import NumberFormat, elsewhere, grouped, number_format
from tpusim.ir.module import LOWERED, Model
from tpusim.ir.names import names_in, tell_apart
from tpusim.ir.once import once
from tpusim.ir.quantisation import QuantParams
from tpusim.ir.types import (
    FLOAT_TYPES,
    UniformType,
    calibrated_range,
    element_of,
    is_f8,
    is_tensor,
    shape_of,
    storage_dtype,
    tensor,
    uniform_of,
)
from tpusim.ir.upstream import DECISIONS, FALLBACK, FRAMEWORK, PART_OF
from tpusim.ir.weights import WeightStore
from tpusim.lowering.borders import FrameOptions
from tpusim.lowering.marks import counts
from tpusim.lowering.qtable import read_qtable, table_for_chip
from tpusim.ops.cast import TpuCast
from tpusim.ops.frames import lower_frame
from tpusim.ops.framework.base import FloatMode, Lowerings, NumberMode, Shape, TopOp, holds, reads_indices
from tpusim.ops.interfaces import Arithmetic, DefaultAlpha, FloatRule, FloatRules, FloatTypes
from tpusim.ops.interfaces import Lowering as LoweringInterface
from tpusim.ops.patterns.recurrent import float_type_of_part
from tpusim.ops.rescale import requantised_indices
from tpusim.ops.structure import TopInput, TopNone, TopWeight, make_none, make_weight
from tpusim.ops.view import returns_again
from tpusim.registry import FORMATS

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ConversionConfig:
    """Options of the lowering of a top module.

    chip: a name of tpusim.chips, a TOML file, or a chip itself. mode: a name of `tpusim.registry.FORMATS` or a format
    itself. asymmetric: quantise with zero points; a format with zero points sets it for the run. qtable: a quantisation
    table (file, or name:MODE,...) with the modes of single ops, by the names of FORMATS and of `mode`.
    quirks_off: names of upstream's quirks that are not to be reproduced (`tpusim.compat.Quirk`).
    q_group_size: elements of a weight's row that share a scale in the formats w4f16, w4bf16, w8f16 and w8bf16, 0: all,
    None: the format's (64). q_symmetric: the zero point of their groups is the middle of the codes.
    matmul_perchannel: quantise the constant matrix of an integer MatMul by columns (numerics.md 5.1).
    arithmetic: "chip", or "interpreter" for ops that TPU-MLIR's interpreter rounds otherwise than the chip (DN-24).
    high_precision: attention in one op keeps scores, sums and results in f32 (numerics.md 11.6).
    quant_input, quant_output: inputs and results are stored numbers, without casts from and to f32.
    """

    chip: str | ChipSpec = "bm1684x"
    mode: str | NumberFormat = "int8"
    asymmetric: bool = False
    qtable: str | None = None
    quirks_off: tuple[str, ...] = ()
    matmul_perchannel: bool = False
    q_group_size: int | None = None
    q_symmetric: bool = False
    arithmetic: Arithmetic = "chip"
    high_precision: bool = False
    quant_input: bool = False
    quant_output: bool = False

    def __post_init__(self) -> None:
        """Set `asymmetric` for a format with zero points, and normalise the names of chip and format."""
        if isinstance(self.mode, str):
            name = self.mode.lower()
            object.__setattr__(self, "mode", number_format(name) if name in FORMATS.plugins else name)
        if isinstance(self.chip, str) and self.chip.lower() in available():
            object.__setattr__(self, "chip", self.chip.lower())
        if isinstance(self.mode, NumberFormat) and self.mode.zero_points:
            object.__setattr__(self, "asymmetric", True)

    @property
    def format(self) -> NumberFormat:
        """The format of `mode`. Raises ConfigError for an unknown name."""
        return self.grouped(number_format(self.mode, asymmetric=self.asymmetric))

    @property
    def calibrated(self) -> bool:
        """Whether thresholds are needed: in a float mode only for the integers of a quantisation table."""
        return self.format.calibrated or self.qtable is not None

    def grouped(self, format: NumberFormat) -> NumberFormat:
        """A format with the groups of weights that are asked for."""
        return grouped(format, self.q_group_size, symmetric=self.q_symmetric)


@dataclass(frozen=True)
class LoweringConfig(FrameOptions, ConversionConfig):
    """Options of the lowering stage: of the lowering, and of the frames that the inputs take before it.

    fuse_preprocess: inputs that are images take bytes of a camera, and the module does the preprocessing.
    """

    fuse_preprocess: bool = False

    @property
    def frames(self) -> FrameOptions | None:
        """The frames that are to be fused, if any. Raises ConfigError for options of frames without them."""
        if self.fuse_preprocess:
            return FrameOptions(self.customization_format, self.aligned_input)
        for name in ("customization_format", "aligned_input"):
            if value := getattr(self, name):
                raise ConfigError(f"{option(name, value)}: needs {option('fuse_preprocess', True)}")
        return None


def lowered_as(model: Model) -> LoweringConfig:
    """What a lowered module says of how it was lowered. Raises ConfigError for an unknown chip."""
    chip = chip_of(model)
    asymmetric = bool(model.number("module.asymmetric"))
    return LoweringConfig(chip if define(chip) else chip.name, model.mode, asymmetric)


Config = TypeVar("Config", bound=ConversionConfig)
BOOL = QuantParams.of(1.0, signed=False)
"""How a bool is stored in integers (numerics.md 2.2)."""
NARROW = [FLOAT_TYPES[name] for name in FLOAT_TYPES if name != "f32"]
"""Float types narrower than f32."""
SECTIONS = {"f16": "12.2", "bf16": "12.3", "f8e5m2": "8.4"}
"""Where numerics.md says which type an op has in a mode of narrow floats."""


def config_for_chip(config: Config) -> Config:
    """The options with a float mode that the chip has: BF16 for F32 and F16, with a warning (2.1, 12.1).

    Raises ConfigError for an unknown chip, UnsupportedError for a mode that has no such replacement.
    """
    found = supported(config)
    if found is not config:
        name = load(config.chip).name
        warn(ModeWarning(f"mode {config.mode} on {name}: its float type is bf16, which is used"), stacklevel=3)
    return found


def supported(config: Config) -> Config:
    """The same without the warning."""
    chip = load(config.chip)
    if isinstance(config.mode, NumberFormat) and config.mode.activation not in (*FLOAT_TYPES, "i8"):
        stored = f"activations in {', '.join(FLOAT_TYPES)} or i8 are required, got {config.mode.activation}"
        raise UnsupportedError(f"mode {config.mode}: {stored}; weights may be of other types")
    needs = config.format.needs if config.mode in FORMATS or isinstance(config.mode, NumberFormat) else config.mode
    if needs in chip.modes:
        return config
    if needs not in ("f32", "f16") or config.format.needs != config.format.name or not chip.hardware.bf16_unit:
        told = elsewhere(str(config.mode))
        raise UnsupportedError(f"mode {config.mode} on {chip.name}: supported are {', '.join(chip.modes)}{told}")
    return replace(config, mode="bf16")


def _in_type(array: np.ndarray, mode: FloatMode, chip: ChipSpec) -> np.ndarray:
    """A float constant rounded to a float type as the chip rounds (numerics.md 8.2)."""
    return np.asarray(array, np.float32) if mode == "f32" else _narrowed(array, mode, bf16_unit=chip.hardware.bf16_unit)


@once
def _narrowed(array: np.ndarray, mode: FloatMode, *, bf16_unit: bool) -> np.ndarray:
    wide = np.asarray(array, np.float32)
    wide = within_bf16(wide) if bf16_unit else wide
    return np.asarray(narrowed(cast("Any", wide), storage_dtype(FLOAT_TYPES[mode]), finite=bf16_unit))


@dataclass(frozen=True)
class Fallback:
    """An op that should run in integers and runs in float."""

    op: str
    kind: str
    why: str


class Lowering:
    """One run of the stage; implements the LoweringContext that ops see."""

    def __init__(
        self,
        model: Model,
        config: ConversionConfig,
        chip: ChipSpec,
        formats: Mapping[Operation, NumberFormat],
        marks: Mapping[Operation, str],
    ) -> None:
        self.chip = chip
        self.asymmetric = config.asymmetric
        self.column_multipliers = config.matmul_perchannel
        self._fallback: FloatMode = rules(chip, FloatRules).FALLBACK
        self.weights = WeightStore()
        self.fallbacks: list[Fallback] = []
        self._decisions: dict[Operation, list[str]] = {}
        self._quirks_off = checked(config.quirks_off)
        self._reasons: dict[Operation, str] = {}
        self._standing: set[Operation] = set()
        self._top = model
        self._config = config
        self._formats = formats
        self._marks = marks
        self._block = Block(arg_types=[argument.type for argument in model.body.args])
        self._lowered: dict[SSAValue, SSAValue] = dict(zip(model.body.args, self._block.args, strict=True))
        self._casts: dict[tuple[SSAValue, Attribute], SSAValue] = {}
        self._none: SSAValue | None = None
        for old, new in zip(model.body.args, self._block.args, strict=True):
            new.location = old.location

    # LoweringContext

    def format(self, op: Operation) -> NumberFormat:
        """The number format of the op's mode."""
        return self._formats[op]

    def by_family(self, op: Operation, table: Lowerings) -> SSAValue:
        """Lower an op by the first family of its format that has a method and accepts the op."""
        format = self._formats[op]
        for family in self._families(op, format):
            lowered = self._attempt(op, format, family, table)
            if isinstance(lowered, SSAValue):
                return lowered
            if lowered:
                self.fallback(op, lowered)
        asked = f"{op.name} '{op_name(op)}': format {format} requires one of the lowerings {', '.join(format.families)}"
        raise UnsupportedError(f"{asked}, but none of them accepts this op; add a family to the format's fallback")

    def _families(self, op: Operation, format: NumberFormat) -> tuple[str, ...]:
        """The format's families; only floats for a marked op, or if the chip has the op in float only."""
        if op in self._marks:
            self.fallback(op, self._marks[op])
            if float_type_of_part(op, self.chip) is not None:
                self.decision(op, "DN-34")
            return ("float",)
        only = self.chip.float_only(op.name) if format.calibrated else None
        if only is not None and only.decisions:
            self.decision(op, *only.decisions)
        if only is None or reads_indices(op):  # the op gives a reason about indices
            return format.families
        self.fallback(op, only.why)
        return ("float",)

    def _attempt(self, op: Operation, format: NumberFormat, family: str, table: Lowerings) -> SSAValue | str:
        """The lowered value, or why it has none; "" if an op without constants has no method.

        Such an op computes only with activations, which are equal in the families to which a format falls back; so are
        its constants in a format of floats.
        """
        method = format.methods.get(op.name) if family == format.family else None
        if method is not None:
            return method(op, self)
        if family in table:
            return table[family](self)
        constant = format.calibrated and any(self.array(v) is not None for v in op.operands)
        return f"{op.name.removeprefix('top.')} has no form with weights in {format.weight} ({format})" * constant

    def asks_for_float(self, op: Operation) -> bool:
        """Whether the op is marked, or has a float mode in the quantisation table."""
        return op in self._marks or (op in self._formats and self._formats[op].is_float)

    def float_mode(self, op: Operation) -> FloatMode:
        """The float mode by the op's rule, the chip's exceptions and the requested mode; f32 if the chip lacks it."""
        assert isinstance(op, TopOp)
        if counts(op) or self.chip.is_on_host(op.name):
            return "f32"
        format, types = self._formats[op], ask(op, FloatTypes, self.chip)
        rule = self._rule_on_chip(op, types.float_rule(self))
        if format.is_float:
            wanted = rule.in_mode(format.activation)
        elif op in self._marks and (of_node := float_type_of_part(op, self.chip)) is not None:
            wanted = of_node
        else:
            wanted = rule.int8 if self._calibrated(op) and op not in self._marks else self._fallback
        if wanted != "f32" and types.needs_f32(self.chip, wanted):  # type: ignore[arg-type]
            wanted = "f32"
            if reads_indices(op):  # exact on every chip, if necessary on the host
                return "f32"
        return cast("FloatMode", wanted) if wanted in self.chip.modes else self._fallback

    def _rule_on_chip(self, op: Operation, rule: FloatRule) -> FloatRule:
        """The op's rule, changed by the exceptions in the chip's file."""
        other = self.chip.float_exception(op.name)
        if other is None:
            return rule
        return replace(rule, int8=other.int8 or rule.int8, f16=other.f16 or rule.f16, bf16=other.bf16 or rule.bf16)

    def _calibrated(self, op: Operation) -> bool:
        """Whether every tensor of the op has a scale (DN-05)."""
        values = [v for v in (*op.operands, *op.results) if is_tensor(v) and self.array(v) is None]
        return all(self.quant(v) is not None for v in values)

    def float_type(self, op: Operation) -> Attribute:
        """The element type of the op's float mode: f32, f16 or bf16."""
        return FLOAT_TYPES[self.float_mode(op)]

    def quant(self, value: SSAValue) -> QuantParams | None:
        """Scale and zero point from the calibrated range (numerics.md 2.2); None if uncalibrated or degenerate.

        A bool has a step of 1. A bool that is computed in float has its calibrated range, as its cast to bytes has.
        With zero points a quirk uses the calibrated range of every bool.
        """
        found, is_bool = calibrated_range(value), holds(value) == "bool"
        ranged = self._config.asymmetric and self.reproduces(Quirk.ASYMMETRIC_BOOLS)
        if is_bool and not ranged and not self._is_float(value):
            return BOOL
        if found is None or found == (0.0, 0.0) or (self._config.asymmetric and found[0] == found[1]):
            return BOOL if is_bool else None
        scale, zero_point, signed = (asymmetric_scale if self._config.asymmetric else symmetric_scale)(*found)
        return QuantParams.of(scale, zero_point, signed=signed)

    def _is_float(self, value: SSAValue) -> bool:
        """Whether a value was lowered to floats."""
        lowered = self._lowered.get(value)
        return lowered is not None and element_of(lowered) in FLOAT_TYPES.values()

    def array(self, value: SSAValue) -> np.ndarray | None:
        """The constant of a top value; None if it is computed."""
        owner = value.owner
        return self._top.weights[op_name(owner)] if isinstance(owner, TopWeight) else None

    def quantised_type(self, value: SSAValue) -> Attribute:
        """The uniform type of a calibrated top value."""
        quant = BOOL if holds(value) == "bool" and not self._is_float(value) else self.quant(value)
        if quant is None:
            raise UnsupportedError(f"tensor '{value_name(value)}': a calibrated range is required to quantise it")
        return UniformType.of_params(quant)

    def operand(self, value: SSAValue, mode: NumberMode, user: Operation, reader: str | None = None) -> SSAValue:
        """The lowered value as float or as its quantised integer; inserts or reuses a cast."""
        reader = op_name(user) if reader is None else reader
        constant = self.array(value)
        if constant is not None:
            return self.weight(value_name(value), constant if mode == "int8" else _in_type(constant, mode, self.chip))
        lowered = self._lowered[value]
        if mode == "int8" and self.stored_indices(value) is not None:
            return self._indices(value, lowered, reader)
        if mode == "int8" and uniform_of(lowered) is None:
            while (first := self._left_out(value)) is not None:
                reader, value = op_name(first), first.operands[0]
            return self._cast(lowered, self.quantised_type(value), reader)
        if mode == "int8":
            return lowered
        return self._cast(lowered, FLOAT_TYPES[mode], reader)

    def _left_out(self, value: SSAValue) -> Operation | None:
        """The op that makes a value, if it is left out: it would have read its operand as integers (U-101)."""
        op = value.owner
        left_out = (
            isinstance(op, TopOp) and bool(op.operands) and self._lowered.get(op.operands[0]) is self._lowered[value]
        )
        return op if isinstance(op, TopOp) and left_out else None

    def stored(self, value: SSAValue) -> SSAValue | None:
        """The lowered value, None for a constant."""
        return self._lowered.get(value)

    def stored_indices(self, value: SSAValue) -> SSAValue | None:
        """The lowered value if it is stored as plain integers."""
        lowered = self._lowered.get(value)
        return lowered if lowered is not None and isinstance(element_of(lowered), IntegerType) else None

    def _indices(self, value: SSAValue, stored: SSAValue, user: str) -> SSAValue:
        """Indices in int32 as the quantised integers that `user` reads; one cast serves all users."""
        element, quant = self.quantised_type(value), self.quant(value)
        assert quant is not None  # checked by quantised_type
        if (stored, element) not in self._casts:
            name = _cast_name(stored, element, user)
            self._casts[stored, element] = requantised_indices(self, stored, quant, name)
        return self._casts[stored, element]

    def _cast(self, value: SSAValue, element: Attribute, user: str) -> SSAValue:
        if element_of(value) == element:
            return value
        if (value, element) not in self._casts:
            name = _cast_name(value, element, user)
            more: dict[str, Attribute] = {"truncated": flag(True)} if self._truncates(value, element) else {}
            if self._config.format.casts_as_chip and element_of(value) == f32 and element in NARROW:
                more["arithmetic"] = StringAttr("chip")
            self._casts[value, element] = self.build(TpuCast, [value], more, element, shape_of(value), name)
        return self._casts[value, element]

    def _truncates(self, value: SSAValue, element: Attribute) -> bool:
        """Whether a BF16 unit quantises the f32 value: all but the network's inputs, which the host quantises."""
        quantises = element_of(value) == f32 and isinstance(element, UniformType)
        return quantises and self.chip.hardware.bf16_unit and not isinstance(value.owner, TopInput)

    def weight(self, name: str, array: np.ndarray, element: Attribute | None = None) -> SSAValue:
        """The value of a new top.Weight."""
        op = make_weight(self.weights, name, array, element)
        self._block.add_op(op)
        return op.output

    def float_weight(self, op: Operation, name: str, array: np.ndarray) -> SSAValue:
        """A new top.Weight in the op's float type."""
        return self.weight(name, _in_type(array, self.float_mode(op), self.chip))

    def none(self) -> SSAValue:
        """The value of the module's top.None."""
        if self._none is None:
            op = make_none()
            self._block.add_op(op)
            self._none = op.output
        return self._none

    def build(
        self,
        cls: type[IRDLOperation],
        operands: Sequence[SSAValue],
        attributes: Mapping[str, Attribute],
        element: Attribute,
        shape: Shape,
        name: str,
    ) -> SSAValue:
        """Append a tpu op to the module; its result."""
        load_dialect_of(cls)
        op = cls.create(operands=operands, result_types=[tensor(shape, element)], attributes=dict(attributes))
        set_op_name(op, name)
        self._block.add_op(op)
        return op.results[0]

    def fallback(self, op: Operation, why: str) -> None:
        """Record a float fallback; without a scale it follows a decision."""
        self.fallbacks.append(Fallback(op_name(op), op.name, why))
        self._reasons.setdefault(op, why)
        if op not in self._marks and not self._calibrated(op):
            self.decision(op, "DN-05")

    def decision(self, op: Operation, *identities: str) -> None:
        """Record the decisions an op's lowered form follows."""
        known = self._decisions.setdefault(op, [])
        known.extend(i for i in identities if i not in known)

    def reproduces(self, quirk: Quirk) -> bool:
        """Whether a quirk of TPU-MLIR is reproduced."""
        return Quirk(quirk) not in self._quirks_off

    def note_masks(self, masked: Mapping[Operation, str]) -> None:
        """Record that integers keep these ops' masks by a quirk, with one warning."""
        quirk = Quirk.MASKS_IN_INTEGERS
        for op in masked:
            self.decision(op, quirk.decision)
        for op, why in list(masked.items())[:1]:
            row = f"{quirk.rule.number}, {quirk.effect}"
            LOG.warning("%s '%s' and %d more: %s; %s; quirks_off=%s corrects it", op.name, op_name(op),
                        len(masked) - 1, why, row, quirk)  # fmt: skip

    def quirked(self, op: Operation, quirk: Quirk, theirs: np.ndarray, ours: np.ndarray) -> np.ndarray:
        """Upstream's constants, or the corrected ones if the quirk is off; a difference is recorded with a warning."""
        if not self.reproduces(quirk):
            return ours
        if not np.array_equal(theirs, ours):
            self.decision(op, quirk.decision)
            row = f"{quirk.rule.number}, {quirk.effect}"
            LOG.warning("%s '%s': %s; quirks_off=%s corrects it", op.name, op_name(op), row, quirk)
        return theirs

    # the walk

    def run(self) -> Model:
        """Lower every op, then cast the results to f32."""
        for op in self._top.ops:
            if isinstance(op, DefaultAlpha) and op.default_alpha is not None:
                self.decision(op, Quirk.IMPORTER_DEFAULTS.decision)
            if isinstance(op, TopInput):
                self._input(op)
            elif isinstance(op, TopOp):
                if not returns_again(op, self._top.results):
                    self._lowered[op.results[0]] = self._noted(op, self._replaced(op))
            elif not isinstance(op, TopWeight | TopNone | ReturnOp):
                raise UnsupportedError(f"{op.name} '{op_name(op)}': lowering requires top ops, got this one")
        results = [self._result(v) for v in self._top.results]
        self._block.add_op(ReturnOp(*results))
        return self._finish(results)

    def _replaced(self, op: TopOp) -> SSAValue:
        try:
            return ask(op, LoweringInterface, self.chip).lower(self)
        except NoMultiplierError as error:
            raise CalibrationError(
                f"{op.name} '{op_name(op)}': {error}; weights and thresholds that fit together are required: correct "
                f"one of them, or run the op in float ({option('qtable', 'NAME:F16')})"
            ) from error

    def _noted(self, op: TopOp, value: SSAValue) -> SSAValue:
        """Record provenance as attributes of the tpu op that replaces the op, for texts and later stages.

        DECISIONS: those it follows. FALLBACK: why it runs in another float type than its mode requests.
        """
        stands = value.owner
        if not isinstance(stands, Operation) or stands in self._standing:
            return value  # the operand itself: nothing was computed
        self._standing.add(stands)
        for note in (PART_OF, FRAMEWORK):  # some ops pass on all their attributes
            stands.attributes.pop(note, None)
        if op in self._decisions:
            stands.attributes[DECISIONS] = ArrayAttr([StringAttr(d) for d in sorted(self._decisions[op])])
        reason = self._reasons.get(op) or self._other_float_type(op, value)
        if reason is not None:
            stands.attributes[FALLBACK] = StringAttr(reason)
        return value

    def _other_float_type(self, op: TopOp, value: SSAValue) -> str | None:
        """Why a mode of narrow floats gives the op another type (numerics.md 8.4, 12.2, 12.3); None if it does not."""
        asked, element = self._formats[op].activation, element_of(value)
        if isinstance(element, IntegerType) and isinstance(value.owner, Operation):
            element = element_of(value.owner.operands[0])  # of indices: the indexed tensor
        if asked not in SECTIONS or element == FLOAT_TYPES[asked] or element not in FLOAT_TYPES.values():
            return None
        return f"mode {asked} computes and stores it in {element} (numerics.md {SECTIONS[asked]})"

    def _input(self, op: TopInput) -> None:
        argument = self._lowered[op.input]
        if op.takes_frames:
            image, self._lowered[op.output] = lower_frame(self, op, argument, fused_of(op))
            self._noted(op, image)
            return
        lowered = TopInput.create(operands=[argument], result_types=[argument.type], attributes=dict(op.attributes))
        lowered.location = op.location
        self._block.add_op(lowered)
        self._standing.add(lowered)
        self._lowered[op.output] = lowered.output

    def _result(self, value: SSAValue) -> SSAValue:
        if isinstance(op := value.owner, TopOp) and returns_again(op, self._top.results):
            self._lowered[op.operands[0]] = self._result(op.operands[0])
            self._lowered[value] = self._noted(op, self._replaced(op))
        lowered = self._lowered[value]
        return lowered if self._config.quant_output else self._cast(lowered, f32, "")

    def _finish(self, results: Sequence[SSAValue]) -> Model:
        tell_apart((op for op in self._block.ops if not isinstance(op, TopWeight | TopNone | ReturnOp)), self._standing)
        types = ([a.type for a in self._block.args], [r.type for r in results])
        function = FuncOp("main", types, Region(self._block))
        module = ModuleOp([function], dict(self._top.module.attributes), self._top.module.sym_name)
        model = Model(module, self.weights)
        spelled = self._config.format.spelling
        model.set(state="TPU_LOWERED", chip=self.chip.name, mode=spelled, asymmetric=self._config.asymmetric)
        model.set(cores=1, **LOWERED)
        if definition := define(self.chip):
            model.set(chip_definition=definition)
        return model


def listed_formats(
    model: Model, table: Mapping[str, NumberFormat], known: Collection[str] = ()
) -> dict[TopOp, NumberFormat]:
    """The format of every op of the table. Raises ConfigError for names of no op.

    known: op names of the module before it was rewritten for its chip; names that only it has get a ModeWarning.
    """
    names = named_ops(model, table)
    lost = set(table) - set(names.values())
    merged = lost & set(known)
    if merged:
        listed = ", ".join(sorted(merged))
        told = f"quantisation table: on this chip {listed} is part of the op after it; list that op"
        warn(ModeWarning(told), stacklevel=3)
    unknown = sorted(lost - merged)
    if unknown:
        shown = ", ".join(unknown[:8]) + (" ..." if len(unknown) > 8 else "")
        raise ConfigError(f"quantisation table: no op is called {shown}; names are those of the canonical module")
    return _with_parts({op: table[name] for op, name in names.items()})


def _with_parts(listed: Mapping[TopOp, NumberFormat]) -> dict[TopOp, NumberFormat]:
    """Add the ops between views that replace a listed op: the last view has its name, theirs are derived from it."""
    found = dict(listed)
    for last, format in listed.items():
        op = last
        while op.MOVES:
            before = op.operands[0].owner
            if not isinstance(before, TopOp) or before in found or not op_name(before).startswith(f"{op_name(last)}_"):
                break
            found[before], op = format, before
    return found


def named_ops(model: Model, table: Mapping[str, NumberFormat]) -> dict[TopOp, str]:
    """Op -> its name in a quantisation table; without the ops that the table does not name."""
    return names_in((op for op in model.ops if isinstance(op, TopOp)), table)


def table_of(config: ConversionConfig, chip: ChipSpec) -> dict[str, NumberFormat]:
    """Op name -> format of the quantisation table, in the chip's modes; empty without a table."""
    if config.qtable is None:
        return {}
    table = read_qtable(config.qtable, config.format)
    return table_for_chip({name: _listed_format(mode, config) for name, mode in table.items()}, chip)


def _listed_format(mode: str, config: ConversionConfig) -> NumberFormat:
    """The format of a line of the table; a line that states a size of groups keeps that size."""
    if mode == config.format.name:
        return config.format
    found = number_format(mode, asymmetric=config.asymmetric)
    return grouped(found, symmetric=config.q_symmetric) if " " in mode else config.grouped(found)


def _cast_name(value: SSAValue, element: Attribute, user: str) -> str:
    """The name of a cast (U-33): value, user and target type; in casts to 8-bit floats no user."""
    return f"{value_name(value)}{'' if is_f8(element) else user}_{_type_word(storage_dtype(element))}"


def _type_word(dtype: np.dtype[Any]) -> str:
    """`ui8`, `si32`, `f32`, `bf16`: a storage type in the name of a cast."""
    if dtype.kind in "iu":
        return f"{'ui' if dtype.kind == 'u' else 'si'}{dtype.itemsize * 8}"
    return dtype.name.replace("float", "f").replace("_", "")
