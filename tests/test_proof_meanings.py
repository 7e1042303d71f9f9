"""Ops with a field meaning of their own: right rows are proven by it, faults of their emission are located.

A fault here is in the op's emission itself, on both sides of the proof: an op that is judged by its commands would be
proven with it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from compiling import to_addressed, to_program, to_tpu
from msgspec import structs
from op_cases import BY_ID
from rows import SECONDARY, lowered, top_for

from tpusim.field import PRIME, Field
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.isa.commands import (
    Arith,
    ChannelScale,
    Command,
    Compare,
    Dequantize,
    Fill,
    FloatLut,
    Fn,
    Quantize,
    Rescale,
    Select,
    Where,
)
from tpusim.isa.functions import (
    Arg,
    ConstInt,
    Cumulate,
    ExtremeShift,
    GroupNorm,
    Interp,
    LayerNorm,
    Lrn,
    Reduce,
    RMSNorm,
    ScatterElements,
    Softmax,
    SoftmaxInt,
    SoftmaxTables,
    TopK,
)
from tpusim.isa.region import View
from tpusim.layer_group import LayerGroupConfig
from tpusim.ops.activation.lut_bf16 import TpuLutBF16
from tpusim.ops.activation.slope import TpuLeakyRelu, TpuPRelu
from tpusim.ops.arg import TpuArg
from tpusim.ops.cast import TpuCast
from tpusim.ops.compare import TpuCompare, TpuCompareConst
from tpusim.ops.const_binary.tpu import ConstTpu
from tpusim.ops.cumulate import TpuCumSum
from tpusim.ops.elements import TpuGatherElements, TpuScatterElements, TpuTopK
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.groupnorm import GroupedTpu
from tpusim.ops.layernorm import TpuLayerNorm
from tpusim.ops.lrn import TpuLRN
from tpusim.ops.minmax import ExtremeTpu
from tpusim.ops.norm.tpu import TpuScale
from tpusim.ops.pad import TpuPad
from tpusim.ops.pixelnorm import TpuPixelNorm
from tpusim.ops.power import TpuPow3
from tpusim.ops.reduce import TpuReduce
from tpusim.ops.relu import TpuClip
from tpusim.ops.resize.interp import TpuInterp
from tpusim.ops.rmsnorm import TpuRMSNorm
from tpusim.ops.slice import TpuGather
from tpusim.ops.softmax import TpuSoftmax
from tpusim.ops.sub import TpuDiv
from tpusim.ops.where import TpuWhere
from tpusim.proof import prove
from tpusim.simulator import Simulator, SimulatorOptions

QUICK = 10
"""Bits that one seed gives."""
FAMILIES: tuple[type[TpuOp], ...] = (
    TpuCast, ConstTpu, TpuLeakyRelu, TpuPRelu, TpuPad, TpuSoftmax, TpuLayerNorm, TpuRMSNorm, TpuPixelNorm, GroupedTpu,
    ExtremeTpu, TpuCompare, TpuCompareConst, TpuWhere, TpuReduce, TpuArg, TpuDiv, TpuInterp, TpuGather, TpuTopK,
    TpuGatherElements, TpuScatterElements, TpuLRN, TpuCumSum, TpuPow3,
)  # fmt: skip
"""Ops that this file is about."""
SOME = (
    *("leaky-steep", "prelu-2d", "addconst-relu", "subconst-reverse", "mulconst-negative", "maxconst", "clip"),
    *("pad-edge", "pad-reflect", "pad", "softmax-channels", "log-softmax", "layernorm-no-bias", "rmsnorm-op"),
    "gather-elements",
    *(
        "groupnorm",
        "instancenorm-5d",
        "pixelnorm",
        "max-three",
        "max-requant",
        "min-wide",
        "greater",
        "less-const-left",
        "xor",
    ),
    *("where-const", "where-rank", "reduce-mean", "reduce-l2", "argmax", "div-relu", "resize-linear", "resize-corners"),
    *("gather", "topk-places", "scatter-elements-add", "lrn", "cumsum", "pow-tensor"),
)
"""Rows of the default tests."""
PLACES = {
    "bm1684x-int8": ("bm1684x", "int8"),
    "bm1684-int8": ("bm1684", "int8"),
    "bm1684x-f16": ("bm1684x", "f16"),
    "cv183x-bf16": ("cv183x", "bf16"),
    "cv183x-int8": ("cv183x", "int8"),
}
ABSENT: dict[str, set[type[TpuOp]]] = {
    "bm1684-int8": {TpuLayerNorm, TpuRMSNorm, TpuPixelNorm},
    "cv183x-int8": {ConstTpu, TpuRMSNorm, TpuPixelNorm, TpuDiv},
    "cv183x-bf16": {ConstTpu, TpuRMSNorm, TpuPixelNorm, TpuDiv},
}
"""What none of SOME becomes there."""


def made(case: str, label: str, opt: str = "2") -> Model:
    groups = LayerGroupConfig(opt=opt)
    if label in PLACES:
        return to_addressed(lowered(case, *PLACES[label])[0], groups)
    config = SECONDARY[label]
    return to_addressed(to_tpu(top_for(case, config), config), groups)


def of_families(model: Model) -> list[TpuOp]:
    return [op for op in model.body.walk() if isinstance(op, FAMILIES)]


def by_itself(case: str, label: str) -> set[type[TpuOp]]:
    """The classes that the row is proven with."""
    if label.split("-")[0] in BY_ID[case].refused_on:
        return set()
    model = made(case, label)
    proof = prove(model, Simulator(to_program(model)), wanted=QUICK)
    assert proof.passed, f"{case}: {proof.wrong}; {proof.why}"
    assert not proof.unjudged and not proof.unseen
    assert not proof.uncut
    return {type(op) for op in of_families(model)}


@pytest.mark.parametrize("label", PLACES)
def test_right_programs_are_proven_by_the_meanings(label: str) -> None:
    met = set[type[TpuOp]]().union(*(by_itself(case, label) for case in SOME))
    assert {family for family in FAMILIES if not any(issubclass(kind, family) for kind in met)} <= ABSENT.get(
        label, set()
    )


@pytest.mark.slow
@pytest.mark.parametrize("label", sorted({*PLACES, *SECONDARY}))
def test_all_rows_are_proven_by_the_meanings(label: str) -> None:
    for case in BY_ID:
        by_itself(case, label)


# ------------------------------------------------------------------------------------------------------------- faults

Change = Callable[[Any], dict[str, Any]]


@dataclass(frozen=True)
class Fault:
    """What an op of a row emits otherwise: fields of its commands of one class."""

    what: str
    case: str
    label: str
    op: type[TpuOp]
    command: type[Command]
    change: Change


def of_function(wanted: type[Any], /, **fields: Callable[[Any], Any]) -> Change:
    """Other parameters of a macro function."""

    def change(given: dict[str, Any]) -> dict[str, Any]:
        function = given["function"]
        if not isinstance(function, wanted):
            return {}
        changed = {name: new(getattr(function, name)) for name, new in fields.items()}
        return {"function": structs.replace(function, **changed)}

    return change


def negated(x: bool) -> bool:
    return not x


def above(x: float) -> float:
    return float(np.nextafter(np.float32(x), np.float32(np.inf)))


def double(x: float) -> float:
    return 2 * x


def one_more(x: int) -> int:
    return x + 1


def requant_with(**fields: Callable[[Any], Any]) -> Change:
    def change(given: dict[str, Any]) -> dict[str, Any]:
        by = given["requant"]
        return {"requant": structs.replace(by, **{name: new(getattr(by, name)) for name, new in fields.items()})}

    return change


ONCE = "bm1684x-int8"
FAULTS = (
    Fault("the next factor", "leaky", ONCE, TpuCast, Quantize, lambda f: {"scale": above(f["scale"])}),
    Fault("a zero point", "leaky", ONCE, TpuCast, Quantize, lambda f: {"zero_point": 1}),
    Fault("the next step", "leaky", ONCE, TpuCast, Dequantize, lambda f: {"scale": above(f["scale"])}),
    Fault("no zero point", "add", "bm1684x-asym", TpuCast, Quantize, lambda f: {"zero_point": 0}),
    Fault("another zero point", "add", "bm1684x-asym", TpuCast, Dequantize, lambda f: {"zero_point": 7}),
    Fault("f32 on the BF16 unit", "leaky", "cv183x-int8", TpuCast, Dequantize, lambda f: {"bf16": False}),
    Fault("a cast that rounds", "leaky", "cv183x-bf16", TpuCast, Arith,
          lambda f: {"kind": "copy"} if f["kind"] == "truncate" else {}),
    Fault("the next number", "mulconst-negative", "bm1684x-f16", ConstTpu, Arith, lambda f: {"b": above(f["b"])}),
    Fault("the number's sign", "addconst", "bm1684x-f16", ConstTpu, Arith, lambda f: {"b": -f["b"]}),
    Fault("no relu", "addconst-relu", "bm1684x-f16", ConstTpu, Arith, lambda f: {"relu": False}),
    Fault("not reversed", "subconst-reverse", "bm1684x-f16", ConstTpu, Arith,
          lambda f: {"b": 1.0} if f["kind"] == "mul" else {}),
    Fault("the other extreme", "maxconst", "bm1684x-f16", ConstTpu, Arith, lambda f: {"kind": "min"}),
    Fault("a local number", "subconst-reverse", ONCE, ConstTpu, Arith,
          lambda f: {"b": f["b"] + 1} if f["kind"] == "add" else {}),
    Fault("a local multiplier", "subconst-reverse", ONCE, ConstTpu, Arith,
          lambda f: {"b": -f["b"]} if f["kind"] == "mul" else {}),
    Fault("a stored number", "maxconst", ONCE, ConstTpu, Arith, lambda f: {"b": f["b"] + 1}),
    Fault("a wrong shift of a number", "subconst-reverse", ONCE, ConstTpu, Fn, of_function(ConstInt, rshift=one_more)),
    Fault("a difference the other way round", "subconst-reverse", ONCE, ConstTpu, Fn,
          of_function(ConstInt, reverse=negated)),
    Fault("the sum for the difference", "subconst-reverse", ONCE, ConstTpu, Fn,
          of_function(ConstInt, kind=lambda _: "add")),
    Fault("another multiplier", "mulconst-negative", "bm1684-int8", ConstTpu, Rescale,
          requant_with(multiplier=one_more)),
    Fault("another rounding", "mulconst-negative", "bm1684-int8", ConstTpu, Rescale,
          requant_with(rounding=lambda _: "half_away")),
    Fault("another slope", "leaky", ONCE, TpuLeakyRelu, Select, lambda f: {"slope": f["slope"] + 1}),
    Fault("the next slope", "leaky", "bm1684x-f16", TpuLeakyRelu, Select, lambda f: {"slope": above(f["slope"])}),
    Fault("another shift of a slope", "prelu", ONCE, TpuPRelu, Select, lambda f: {"rshift": f["rshift"] + 1}),
    Fault("one slope for all channels", "prelu", "bm1684x-f16", TpuPRelu, Select, lambda f: {"slope": 0.25}),
    Fault("positive values as they are", "prelu", "cv183x-int8", TpuPRelu, Select, lambda f: {"positive": None}),
    Fault("the edge of the border itself", "pad-edge", ONCE, TpuPad, Arith, lambda f: {"a": f["output"]}),
    Fault("the logarithm", "softmax-last", "bm1684x-f16", TpuSoftmax, Fn, of_function(Softmax, log=negated)),
    Fault("a sharper exponential", "softmax-rows", "bm1684x-f16", TpuSoftmax, Fn, of_function(Softmax, beta=double)),
    Fault("another axis", "softmax-channels", "bm1684x-f16", TpuSoftmax, Fn, of_function(Softmax, axis=one_more)),
    Fault("another step of Softmax", "softmax-channels", ONCE, TpuSoftmax, Fn, of_function(SoftmaxInt, scale=double)),
    Fault("another range of the table", "softmax-last", "cv183x-bf16", TpuSoftmax, Fn,
          of_function(SoftmaxTables, limit=double)),
    Fault("another epsilon", "layernorm", "bm1684x-f16", TpuLayerNorm, Fn, of_function(LayerNorm, epsilon=double)),
    Fault("rounded steps", "layernorm", "bm1684x-f16", TpuLayerNorm, Fn, of_function(LayerNorm, bf16_steps=negated)),
    Fault("weight and bias exchanged", "layernorm", "bm1684x-f16", TpuLayerNorm, Fn,
          lambda f: {"inputs": (f["inputs"][0], f["inputs"][2], f["inputs"][1])}),
    Fault("an epsilon of RMSNorm", "rmsnorm-op", "bm1684x-f16", TpuRMSNorm, Fn, of_function(RMSNorm, epsilon=double)),
    Fault("one group", "groupnorm", "bm1684x-f16", GroupedTpu, Fn, of_function(GroupNorm, groups=lambda _: 1)),
    Fault("a divisor", "instancenorm", "bm1684x-f16", GroupedTpu, Fn, of_function(GroupNorm, weight_as_factor=negated)),
    Fault("the smallest", "max-three", ONCE, ExtremeTpu, Arith, lambda f: {"kind": "min"}),
    Fault("an extreme without relu", "max-relu", "bm1684x-f16", ExtremeTpu, Arith, lambda f: {"relu": False}),
    Fault("the shift of an extreme", "max-requant", "cv183x-int8", ExtremeTpu, Fn,
          of_function(ExtremeShift, rshift=one_more)),
    Fault("the mirrored relation", "greater", ONCE, TpuCompare, Compare, lambda f: {"a": f["b"], "b": f["a"]}),
    Fault("or equal", "less-const-left", "bm1684x-f16", TpuCompareConst, Compare,
          lambda f: {"kind": f["kind"] + "OrEqual"}),
    Fault("another limit", "less-const-left", ONCE, TpuCompareConst, Compare, lambda f: {"b": f["b"] + 1}),
    Fault("the other branch", "where-const", ONCE, TpuWhere, Where,
          lambda f: {"on_true": f["on_false"], "on_false": f["on_true"]}),
    Fault("another number of a branch", "where-const", "bm1684x-f16", TpuWhere, Where,
          lambda f: {k: f[k] if isinstance(f[k], View) else above(f[k]) for k in ("on_true", "on_false")}),
    Fault("a bound of Clip", "clip", "bm1684x-f16", TpuClip, Arith, lambda f: {"b": above(f["b"])}),
    Fault("the bounds exchanged", "clip", "bm1684x-f16", TpuClip, Arith,
          lambda f: {"kind": {"max": "min", "min": "max"}[f["kind"]]}),
    Fault("a sum for a mean", "reduce-mean", "bm1684x-f16", TpuReduce, Fn,
          of_function(Reduce, mode=lambda _: "ReduceSum")),
    Fault("the next factor of a mean", "reduce-mean", "bm1684x-f16", TpuReduce, Fn, of_function(Reduce, scale=above)),
    Fault("the last of equal ones", "argmax", ONCE, TpuArg, Fn, of_function(Arg, select_last=negated)),
    Fault("the dividend below", "div", "bm1684x-f16", TpuDiv, Arith, lambda f: {"a": f["b"], "b": f["a"]}),
    Fault("places to the corners", "resize-linear", ONCE, TpuInterp, Fn, of_function(Interp, align_corners=negated)),
    Fault("the next distance of rows", "resize-linear", "bm1684x-f16", TpuInterp, Fn,
          of_function(Interp, scale_h=above)),
    Fault("the host's steps", "resize-linear", "cv183x-int8", TpuInterp, Fn, of_function(Interp, host=negated)),
    Fault("the smallest first", "topk-places", ONCE, TpuTopK, Fn, of_function(TopK, largest=negated)),
    Fault("updates that replace", "scatter-elements-add", ONCE, TpuScatterElements, Fn,
          of_function(ScatterElements, reduction=lambda _: "none")),
    Fault("another exponent of LRN", "lrn", ONCE, TpuLRN, Fn, of_function(Lrn, beta=above)),
    Fault("sums from the end", "cumsum", ONCE, TpuCumSum, Fn, of_function(Cumulate, reverse=negated)),
    Fault("the exponent below", "pow-tensor", ONCE, TpuPow3, Fn, lambda f: {"inputs": f["inputs"][::-1]}),
    Fault("a range of tables", "sigmoid", "cv183x-bf16", TpuLutBF16, FloatLut, lambda f: {"high": double(f["high"])}),
    Fault("the tables exchanged", "sigmoid", "cv183x-bf16", TpuLutBF16, FloatLut,
          lambda f: {"table": f["mantissa"], "mantissa": f["table"]}),
    Fault("no summand", "bn-alone", "bm1684-int8", TpuScale, ChannelScale, lambda f: {"bias": None}),
    Fault("another zero point of Scale", "bn-alone", "bm1684-int8", TpuScale, ChannelScale,
          lambda f: {"zero_point": 1}),
    Fault("sums of 32 bits", "bn-alone", "bm1684-int8", TpuScale, ChannelScale, lambda f: {"clamp16": False}),
)  # fmt: skip


def emitters(cls: type[TpuOp]) -> list[type[TpuOp]]:
    """The class, the class that it inherits `emit` from, and its subclasses that define `emit`."""
    return [next(kind for kind in cls.__mro__ if "emit" in vars(kind))] + [
        kind for kind in cls.__subclasses__() if "emit" in vars(kind)
    ]


def plant(fault: Fault, patch: pytest.MonkeyPatch) -> None:
    """The fault in all that ops of the class emit."""

    def faulty(emit: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        def emit_wrongly(self: Any, ctx: Any) -> None:
            honest = ctx.emit

            def changed(command: type[Command], /, **fields: Any) -> None:
                honest(command, **fields | (fault.change(fields) if command is fault.command else {}))

            ctx.emit = changed
            emit(self, ctx)
            with suppress(AttributeError):
                del ctx.emit

        return emit_wrongly

    for kind in emitters(fault.op):
        patch.setattr(kind, "emit", faulty(kind.emit))


@pytest.mark.parametrize("fault", FAULTS, ids=[f.what for f in FAULTS])
def test_faults_of_emission_are_located(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the module's side would emit the same: the op's meaning does not come from its commands."""
    model = made(fault.case, fault.label, "off" if fault.command is Fn else "2")
    right = to_program(model)
    plant(fault, monkeypatch)
    wrong = to_program(model)
    assert wrong.commands != right.commands
    proof = prove(model, Simulator(wrong, options=SimulatorOptions(sanitize=False)), wanted=QUICK, explain=False)
    assert proof.wrong is not None
    named = right.commands[proof.wrong.index].op
    assert named in {op_name(op) for op in model.body.walk() if isinstance(op, fault.op)}


@pytest.mark.parametrize(
    ("where", "case", "label"),
    [
        ("tpusim.ops.cast.quantizing_scale", "leaky", ONCE),
        ("tpusim.ops.cast.dequantizing_scale", "leaky", "cv183x-int8"),
    ],
)
def test_faults_of_a_formula_are_located(where: str, case: str, label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scale of a cast, as emission and inference share it."""
    model = made(case, label)
    monkeypatch.setattr(where, lambda *_, **__: np.float32(0.1))
    wrong = to_program(model)
    proof = prove(model, Simulator(wrong, options=SimulatorOptions(sanitize=False)), wanted=QUICK, explain=False)
    assert proof.wrong is not None
    named = wrong.commands[proof.wrong.index].op
    assert named in {op_name(op) for op in of_families(model) if isinstance(op, TpuCast)}


@pytest.mark.parametrize("mode", ["constant", "reflect"])
def test_borders_are_located(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that is filled, and rows that are reflected from one row further, are no commands of `emit`."""
    case = {"constant": "pad", "reflect": "pad-reflect"}[mode]
    model = made(case, ONCE)
    right = to_program(model)
    pads = {op_name(op) for op in of_families(model) if isinstance(op, TpuPad)}
    commands: list[Any] = list(right.commands)
    padding = [i for i, c in enumerate(commands) if c.op in pads]
    if mode == "constant":
        index = next(i for i in padding if isinstance(commands[i], Fill))
        commands[index] = structs.replace(commands[index], value=commands[index].value + 1)
    else:
        index = padding[-1]
        shape = commands[index].input.shape
        other = next(commands[i] for i in padding[-2::-1] if commands[i].input.shape == shape)
        commands[index] = structs.replace(commands[index], input=other.input)
    wrong = structs.replace(right, commands=tuple(commands))
    proof = prove(model, Simulator(wrong, options=SimulatorOptions(sanitize=False)), wanted=QUICK, explain=False)
    assert proof.wrong is not None
    assert right.commands[proof.wrong.index].op in pads


def test_minus_a_number_is_minus_its_element() -> None:
    """So that x - c and x + (-c) are one expression, whatever c is."""
    field = Field(3)
    for number in (0.1234567, 3.0, 1 / 3, 1e-9, 2.5e20, float("inf")):
        assert (field.constant(number) + field.constant(-number)) % PRIME == 0
