"""The lowering driver: walk the top module, let each op build its tpu form, insert casts where types differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from tpusim_kernels.prim.scale import asymmetric_scale, symmetric_scale
from tpusim_kernels.prim.smallfloat import narrowed
from xdsl.dialects.builtin import ModuleOp, bf16, f16, f32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import IRDLOperation

from tpusim.chips import ChipSpec, available, load
from tpusim.errors import ConfigError, UnsupportedError
from tpusim.ir.attrs import op_name, set_op_name, value_name
from tpusim.ir.module import Model
from tpusim.ir.text import verify
from tpusim.ir.types import (
    UniformType,
    calibrated_range,
    element_of,
    is_tensor,
    shape_of,
    storage_dtype,
    tensor,
    uniform_of,
)
from tpusim.ir.weights import WeightStore
from tpusim.lowering.marks import float_marks
from tpusim.lowering.propagate import propagate
from tpusim.lowering.qtable import for_chip, read_qtable
from tpusim.ops.base import FloatMode, NumberMode, QuantInfo, Shape, TopOp
from tpusim.ops.cast import TpuCast
from tpusim.ops.structure import TopInput, TopNone, TopWeight, make_none, make_weight


@dataclass(frozen=True)
class LoweringConfig:
    """Options of the lowering stage.

    chip: a name of tpusim.chips. mode: "int8", "f32", "f16" or "bf16". asymmetric: quantise with zero points.
    qtable: a quantisation table (file, or name:MODE,...) with the modes of single ops.
    """

    chip: str = "bm1684x"
    mode: NumberMode = "int8"
    asymmetric: bool = False
    qtable: str | None = None


FLOAT_TYPES: dict[str, Attribute] = {"f32": f32, "f16": f16, "bf16": bf16}


def _in_type(array: np.ndarray, mode: FloatMode) -> np.ndarray:
    """A float constant rounded to a float type (numerics.md 8.2)."""
    wide = np.asarray(array, np.float32)
    return wide if mode == "f32" else np.asarray(narrowed(cast("Any", wide), storage_dtype(FLOAT_TYPES[mode])))


@dataclass(frozen=True)
class Fallback:
    """An op that was asked for integers and runs in float."""

    op: str
    kind: str
    why: str


class Lowering:
    """One run of the stage; implements the LoweringContext that ops see."""

    def __init__(
        self,
        model: Model,
        config: LoweringConfig,
        chip: ChipSpec,
        modes: Mapping[Operation, NumberMode],
        marks: Mapping[Operation, str],
    ) -> None:
        self.chip = chip
        self.asymmetric = config.asymmetric
        self.weights = WeightStore()
        self.fallbacks: list[Fallback] = []
        self._top = model
        self._config = config
        self._modes = modes
        self._marks = marks
        self._block = Block(arg_types=[a.type for a in model.body.args])
        self._lowered: dict[SSAValue, SSAValue] = dict(zip(model.body.args, self._block.args, strict=True))
        self._casts: dict[tuple[SSAValue, Attribute], SSAValue] = {}
        self._none: SSAValue | None = None
        for old, new in zip(model.body.args, self._block.args, strict=True):
            new.location = old.location

    # LoweringContext

    def mode(self, op: Operation) -> NumberMode:
        """The op's mode, unless it is marked for float."""
        if op in self._marks:
            self.fallback(op, self._marks[op])
            return self.float_mode(op)
        return self._modes[op]

    def float_mode(self, op: Operation) -> FloatMode:
        """By the op's FloatRule and the requested mode; the chip's one float type if it has no other."""
        assert isinstance(op, TopOp)
        requested = self._modes[op]
        if requested == "int8":
            wanted = op.FLOAT.int8 if self._calibrated(op) and op not in self._marks else self.chip.float_fallback
        else:
            wanted = {"f32": "f32", "f16": op.FLOAT.f16, "bf16": op.FLOAT.bf16}[requested]
        return wanted if wanted in self.chip.modes else "f32"  # type: ignore[return-value]

    def _calibrated(self, op: Operation) -> bool:
        """Whether every tensor of the op has a scale (DN-05)."""
        values = [v for v in (*op.operands, *op.results) if is_tensor(v) and self.array(v) is None]
        return all(self.quant(v) is not None for v in values)

    def float_type(self, op: Operation) -> Attribute:
        """f32, f16 or bf16."""
        return FLOAT_TYPES[self.float_mode(op)]

    def quant(self, value: SSAValue) -> QuantInfo | None:
        """Scale and zero point from the calibrated range (numerics.md 2.2); None if uncalibrated or degenerate."""
        found = calibrated_range(value)
        if found is None or found == (0.0, 0.0):
            return None
        return QuantInfo(*(asymmetric_scale if self._config.asymmetric else symmetric_scale)(*found))

    def array(self, value: SSAValue) -> np.ndarray | None:
        """The constant behind a top value."""
        owner = value.owner
        return self._top.weights[op_name(owner)] if isinstance(owner, TopWeight) else None

    def quantised_type(self, value: SSAValue) -> Attribute:
        """The uniform type of a calibrated top value."""
        quant = self.quant(value)
        if quant is None:
            raise UnsupportedError(f"tensor '{value_name(value)}': a calibrated range is required to quantise it")
        return UniformType.of(quant.scale, quant.zero_point, signed=quant.signed)

    def operand(self, value: SSAValue, mode: NumberMode, user: Operation) -> SSAValue:
        """The lowered value as float or as its quantised integer; inserts or reuses a cast."""
        constant = self.array(value)
        if constant is not None:
            return self.weight(value_name(value), constant if mode == "int8" else _in_type(constant, mode))
        lowered = self._lowered[value]
        if mode == "int8":
            return lowered if uniform_of(lowered) else self._cast(lowered, self.quantised_type(value), op_name(user))
        return self._cast(lowered, FLOAT_TYPES[mode], op_name(user))

    def _cast(self, value: SSAValue, element: Attribute, user: str) -> SSAValue:
        if element_of(value) == element:
            return value
        if (value, element) not in self._casts:
            kind = storage_dtype(element).name
            name = "_".join(p for p in (value_name(value), user, kind) if p)
            self._casts[value, element] = self.build(TpuCast, [value], {}, element, shape_of(value), name)
        return self._casts[value, element]

    def weight(self, name: str, array: np.ndarray) -> SSAValue:
        """A new top.Weight."""
        op = make_weight(self.weights, name, array)
        self._block.add_op(op)
        return op.output

    def float_weight(self, op: Operation, name: str, array: np.ndarray) -> SSAValue:
        """A new top.Weight in the op's float type."""
        return self.weight(name, _in_type(array, self.float_mode(op)))

    def none(self) -> SSAValue:
        """The module's top.None."""
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
        """Append a tpu op."""
        op = cls.create(operands=operands, result_types=[tensor(shape, element)], attributes=dict(attributes))
        set_op_name(op, name)
        self._block.add_op(op)
        return op.results[0]

    def fallback(self, op: Operation, why: str) -> None:
        """Record a float fallback."""
        self.fallbacks.append(Fallback(op_name(op), op.name, why))

    # the walk

    def run(self) -> Model:
        """Lower every op, then cast the results to f32."""
        for op in self._top.ops:
            if isinstance(op, TopInput):
                self._input(op)
            elif isinstance(op, TopOp):
                self._lowered[op.results[0]] = op.lower(self)
            elif not isinstance(op, TopWeight | TopNone | ReturnOp):
                raise UnsupportedError(f"{op.name} '{op_name(op)}': lowering requires top ops, got this one")
        results = [self._result(v) for v in self._top.results]
        self._block.add_op(ReturnOp(*results))
        return self._finish(results)

    def _input(self, op: TopInput) -> None:
        argument = self._lowered[op.input]
        lowered = TopInput.create(operands=[argument], result_types=[argument.type], attributes=dict(op.attributes))
        lowered.location = op.location
        self._block.add_op(lowered)
        self._lowered[op.output] = lowered.output

    def _result(self, value: SSAValue) -> SSAValue:
        lowered = self._lowered[value]
        return self._cast(lowered, f32, "")

    def _finish(self, results: Sequence[SSAValue]) -> Model:
        types = ([a.type for a in self._block.args], [r.type for r in results])
        function = FuncOp("main", types, Region(self._block))
        module = ModuleOp([function], dict(self._top.module.attributes))
        model = Model(module, self.weights)
        model.set(state="TPU_LOWERED", chip=self.chip.name, mode=self._config.mode)
        model.set(asymmetric=int(self._config.asymmetric))
        return model


def op_modes(model: Model, default: NumberMode, table: Mapping[str, NumberMode]) -> dict[Operation, NumberMode]:
    """The mode of every op. Raises ConfigError for names of the table that no op has."""
    ops = {op_name(op): op for op in model.ops if isinstance(op, TopOp)}
    unknown = sorted(set(table) - set(ops))
    if unknown:
        shown = ", ".join(unknown[:8]) + (" ..." if len(unknown) > 8 else "")
        raise ConfigError(f"quantisation table: no op is called {shown}; names are those of the canonical module")
    return {op: table.get(name, default) for name, op in ops.items()}


def lower(model: Model, config: LoweringConfig) -> tuple[Model, list[Fallback]]:
    """Lower a top module; returns the tpu module and the ops that fell back to float.

    Raises UnsupportedError for a mode the chip does not have, ImportModelError for a module in the wrong state.
    """
    chip = load(config.chip)
    if config.mode not in chip.modes:
        raise UnsupportedError(f"mode {config.mode} on {chip.name}: supported are {', '.join(chip.modes)}")
    if config.asymmetric and not chip.asymmetric:
        able = ", ".join(name for name in available() if load(name).asymmetric)
        raise UnsupportedError(f"asymmetric quantisation on {chip.name} is not supported; it is on {able}")
    work = model.clone()
    table = {} if config.qtable is None else read_qtable(config.qtable)
    modes = op_modes(work, config.mode, for_chip(table, chip))
    integers = "int8" in modes.values()
    states = ("TOP_CALIBRATED",) if integers else ("TOP_F32", "TOP_CALIBRATED")
    model.require_state(*states, stage="lower")
    marks: dict[Operation, str] = {}
    if integers:
        marks = {op: why for op, why in float_marks(work).items() if op_name(op) not in table and modes[op] == "int8"}
        propagate(work, chip)
    stage = Lowering(work, config, chip, modes, marks)
    lowered = stage.run()
    verify(lowered.module, "after lowering")
    return lowered, stage.fallbacks
