"""Macro functions: parameters are typed, operands must go with them, and every one has a meaning and a price."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from builders.groups import pool, value
from msgspec.structs import replace
from streams import gmem

from tests.upstream.profiled import ACTIVATIONS, SOFTMAXES
from tpusim import chips
from tpusim.errors import CommandError
from tpusim.isa import functions as fn
from tpusim.isa.check import check
from tpusim.isa.commands import Conv, Fn, GlobalKernel, HostCall, Pool
from tpusim.isa.cycles import tiu_cycles
from tpusim.isa.region import View
from tpusim.isa.text import command_line, parse_command
from tpusim.layer_group.cost import CostModel
from tpusim.ops.interfaces import why_rather_global
from tpusim.registry import FUNCTIONS, MEANINGS

IMAGE, TABLE = (2, 6, 4, 5), (1, 1, 1, 256)
ATTENTION = fn.Attention((6, 6, 4, 6), sources=1, has_bias=0, mask=False, scale=0.5, requants=())
A16 = fn.A16MatMul(4, bias=True, depth=32)
BLOCK = fn.FlashBlock(0.5, mask=True, first=False, depth=32, narrow="f16")
FLASH = fn.FlashAttention(0.5, mask=False)
LSTM = fn.Recurrent(
    "LSTM",
    5,
    bidirectional=False,
    result="Y",
    biased=True,
    states=(True, True),
    tables=False,
    outputs=("Y",),
    first=True,
)
LSTM_OPERANDS = ((4, 2, 6), (1, 44, 5), (1, 40), (1, 2, 5), (1, 2, 5))


@dataclass(frozen=True)
class Row:
    """A function with shapes that go with it, and shapes or parameters that do not: (function, operands, words)."""

    right: fn.Function
    operands: tuple[tuple[int, ...], ...]
    result: tuple[int, ...]
    wrong: tuple[tuple[fn.Function, tuple[tuple[int, ...], ...], str], ...]


ROWS = [
    Row(fn.Softmax(1), (IMAGE,), IMAGE, ((fn.Softmax(4), (IMAGE,), "an axis of 0 to 3, got 4"),)),
    Row(
        fn.SoftmaxInt(1, 0.5),
        (IMAGE, TABLE),
        IMAGE,
        (
            (fn.SoftmaxInt(1, 0.5), (IMAGE, IMAGE), "a table of 256 entries"),
            (fn.SoftmaxInt(1, 0.5), (IMAGE,), "2 operands, got 1"),
        ),
    ),
    Row(
        fn.AttentionWeights(0.5, integer=True, mask=True),
        (IMAGE, TABLE, (2, 1, 1, 5)),
        IMAGE,
        (
            (fn.AttentionWeights(0.5, integer=True, mask=False), (IMAGE, IMAGE), "a table of 256 entries"),
            (fn.AttentionWeights(0.5, integer=False, mask=True), (IMAGE, (2, 1, 1, 4)), "operands that broadcast"),
            (fn.AttentionWeights(0.5, integer=False, mask=True), (IMAGE,), "2 operands, got 1"),
        ),
    ),
    Row(
        ATTENTION,
        ((1, 7, 6), (1, 64, 1, 4), (1, 1, 6, 6)),
        (1, 7, 6),
        (
            (ATTENTION, ((1, 7, 5), (1, 64, 1, 4), (1, 1, 6, 6)), "an input (1, 7, 6)"),
            (ATTENTION, ((1, 7, 6), (1, 64, 1, 4)), "3 operands, got 2"),
        ),
    ),
    Row(
        A16,
        ((1, 2, 8), (3, 4), (3, 2), (3, 2), (3,)),
        (1, 2, 3),
        (
            (A16, ((1, 2, 8), (3, 8), (3, 2), (3, 2), (3,)), "3 rows of 8 codes of 4 bits"),
            (A16, ((1, 2, 8), (3, 4), (3, 3), (3, 3), (3,)), "equal groups of 8 in 3 rows"),
            (A16, ((1, 2, 8), (3, 4), (3, 2), (3, 2), (2,)), "a bias of 3"),
            (A16, ((1, 2, 8), (3, 4), (3, 2), (3, 2)), "5 operands, got 4"),
        ),
    ),
    Row(
        LSTM,
        LSTM_OPERANDS,
        (4, 1, 2, 5),
        (
            (LSTM, LSTM_OPERANDS[:4], "5 operands, got 4"),
            (LSTM, ((8, 6), *LSTM_OPERANDS[1:]), "rows (T, N, I)"),
            (LSTM, ((4, 2, 6), (1, 44, 4), *LSTM_OPERANDS[2:]), "weights, biases and states of [220, 40, 10, 10]"),
            (replace(LSTM, result="Y_c"), LSTM_OPERANDS, "a result of 10 elements"),
            (replace(LSTM, hidden=0), LSTM_OPERANDS, "a state of one element or more"),
        ),
    ),
    Row(
        fn.FlashAttention(0.5, mask=True),
        ((1, 5, 4, 8), (1, 7, 2, 8), (1, 7, 2, 8), (1, 1, 5, 7)),
        (1, 5, 32),
        (
            (FLASH, ((1, 5, 4, 8), (1, 7, 2, 8), (1, 6, 2, 8)), "keys and values (1, N, H', 8)"),
            (FLASH, ((1, 5, 4, 7), (1, 7, 2, 8), (1, 7, 2, 8)), "queries (B, M, H, D) of the result's size"),
            (FLASH, ((1, 5, 4, 8), (1, 7, 2, 8)), "3 operands, got 2"),
            (fn.FlashAttention(0.5, mask=True), (*[(1, 5, 4, 8)] * 3, (1, 4, 5, 5)), "a mask (1, 1, 5, 5)"),
        ),
    ),
    Row(
        fn.FlashScores(0.5, mask=True),
        ((4, 5, 1, 8), (2, 7, 1, 8), (1, 5, 1, 7)),
        (4, 5, 1, 7),
        (
            (fn.FlashScores(0.5, mask=False), ((4, 5, 1, 8), (3, 7, 1, 8)), "heads that divide 4"),
            (fn.FlashScores(0.5, mask=False), ((4, 5, 1, 8), (2, 7, 1, 6)), "(N, 1, 8)"),
            (fn.FlashScores(0.5, mask=False), ((4, 5, 1, 8), (2, 6, 1, 8)), "a result (4, 5, 1, 6)"),
            (fn.FlashScores(0.5, mask=True), ((4, 5, 1, 8), (2, 7, 1, 8)), "3 operands, got 2"),
            (fn.FlashScores(0.5, mask=True), ((4, 5, 1, 8), (2, 7, 1, 8), (4, 5, 1, 7)), "a mask (1, 5, 1, 7)"),
        ),
    ),
    Row(
        BLOCK,
        ((4, 5, 1, 8), (2, 6, 1, 8), (2, 6, 1, 8), (1, 5, 1, 6), (4, 5, 1, 10)),
        (4, 5, 1, 10),
        (
            (BLOCK, ((4, 5, 1, 8), (2, 6, 1, 8), (2, 7, 1, 8), (1, 5, 1, 6), (4, 5, 1, 10)), "as many values as keys"),
            (BLOCK, ((4, 5, 1, 8), (2, 6, 1, 8), (2, 6, 1, 8), (1, 5, 1, 6)), "5 operands, got 4"),
            (BLOCK, ((4, 5, 1, 8), (2, 6, 1, 8), (2, 6, 1, 8), (1, 5, 1, 7), (4, 5, 1, 10)), "(1, 5, 1, 6)"),
            (BLOCK, ((4, 5, 1, 6), (2, 6, 1, 6), (2, 6, 1, 6), (1, 5, 1, 6), (4, 5, 1, 10)), "a result (4, 5, 1, 8)"),
        ),
    ),
    Row(
        fn.FlashResult(),
        ((4, 5, 1, 10),),
        (4, 5, 1, 8),
        (
            (fn.FlashResult(), ((4, 5, 1, 8),), "a state (4, 5, 1, 10)"),
            (fn.FlashResult(), ((4, 5, 1, 10),) * 2, "1 operands, got 2"),
        ),
    ),
    Row(
        fn.FlashMix(),
        ((2, 7, 1, 8), (4, 5, 1, 7)),
        (4, 5, 1, 8),
        (
            (fn.FlashMix(), ((3, 7, 1, 8), (4, 5, 1, 7)), "heads that divide 4"),
            (fn.FlashMix(), ((2, 6, 1, 8), (4, 5, 1, 7)), "6 scores for as many values, got 7"),
            (fn.FlashMix(), ((2, 7, 1, 6), (4, 5, 1, 7)), "a result (4, 5, 1, 6)"),
            (fn.FlashMix(), ((2, 7, 1, 8),), "2 operands, got 1"),
        ),
    ),
    Row(
        fn.SoftmaxTables(3, 8.0),
        (IMAGE, *[TABLE] * 4),
        IMAGE,
        ((fn.SoftmaxTables(3, 8.0), (IMAGE, TABLE), "5 operands"),),
    ),
    Row(
        fn.Lrn(3, 0.1, 0.75, 1.0),
        (IMAGE,),
        IMAGE,
        ((fn.Lrn(3, 0.1, 0.75, 1.0), ((2, 6, 4, 4),), "the result's shape"),),
    ),
    Row(
        fn.LrnTables(3, 0.1, 1.0), (IMAGE, TABLE, TABLE), IMAGE, ((fn.LrnTables(3, 0.1, 1.0), (IMAGE,), "3 operands"),)
    ),
    Row(fn.Active("EXP"), (IMAGE,), IMAGE, ((fn.Active("EXP"), (IMAGE, IMAGE), "1 operands, got 2"),)),
    Row(
        fn.LayerNorm(3, 1e-5, weight=True, bias=False),
        (IMAGE, (5,)),
        IMAGE,
        ((fn.LayerNorm(3, 1e-5, weight=True, bias=True), (IMAGE, (5,)), "3 operands, got 2"),),
    ),
    Row(
        fn.RMSNorm(3, 1e-5, weight=True),
        (IMAGE, (5,)),
        IMAGE,
        (
            (fn.RMSNorm(3, 1e-5, weight=False), (IMAGE, (5,)), "1 operands, got 2"),
            (fn.RMSNorm(4, 1e-5, weight=False), (IMAGE,), "axis"),
        ),
    ),
    Row(
        fn.PixelNorm(1e-5, weight=True, bias=False),
        (IMAGE, (1, 6, 1, 1)),
        IMAGE,
        ((fn.PixelNorm(1e-5, weight=False, bias=False), (IMAGE, (1, 6, 1, 1)), "1 operands, got 2"),),
    ),
    Row(
        fn.GroupNorm(3, 1e-5, depth=2),
        (IMAGE, (6,), (6,)),
        IMAGE,
        (
            (fn.GroupNorm(4, 1e-5), (IMAGE, (6,), (6,)), "channels in 4 equal groups"),
            (fn.GroupNorm(6, 1e-5, weight=False, weight_as_factor=True), (IMAGE, (6,)), "a weight for the factor"),
            (fn.GroupNorm(3, 1e-5, depth=3), (IMAGE, (6,), (6,)), "a batch axis of 3 depths"),
        ),
    ),
    Row(
        fn.Reduce("ReduceSum", (2, 3)),
        (IMAGE,),
        (2, 6, 1, 1),
        (
            (fn.Reduce("ReduceSum", (2,)), (IMAGE,), "60 elements left"),
            (fn.Reduce("ReduceSum", (7,)), (IMAGE,), "an axis of 0 to 3"),
        ),
    ),
    Row(
        fn.ReduceInt("ReduceMax", (1,), 1, 0),
        (IMAGE,),
        (2, 4, 5),
        ((fn.ReduceInt("ReduceMax", (2,), 1, 0), (IMAGE,), "60 elements"),),
    ),
    Row(fn.Arg(1, "ArgMax"), (IMAGE,), (2, 1, 4, 5), ((fn.Arg(3, "ArgMax"), (IMAGE,), "48 elements left"),)),
    Row(
        fn.Interp(0.5, 0.5), (IMAGE,), (2, 6, 8, 10), ((fn.Interp(0.5, 0.5), ((2, 5, 4, 5),), "batches and channels"),)
    ),
    Row(
        fn.AddInt((1, 2), (0, 0), (0, 0)),
        (IMAGE, (1, 6, 1, 1)),
        IMAGE,
        (
            (fn.AddInt((1, 2), (0,), (0, 0)), (IMAGE, IMAGE), "2 multipliers, shifts and zero points"),
            (fn.AddInt((1, 2), (0, 0), (0, 0)), (IMAGE, (1, 3, 1, 1)), "operands that broadcast"),
            (fn.AddInt((1, 2), (0, 0), (0, 0)), (IMAGE,), "2 operands, got 1"),
        ),
    ),
    Row(fn.SubInt((1, 2), (0, 0)), (IMAGE, IMAGE), IMAGE, ((fn.SubInt((1, 2), (0, 0)), (IMAGE,), "2 operands"),)),
    Row(
        fn.MulInt((0, 0), 1, 0), (IMAGE, IMAGE), IMAGE, ((fn.MulInt((0,), 1, 0), (IMAGE, IMAGE), "1 operands, got 2"),)
    ),
    Row(
        fn.ConstInt("add", 1, 0, 3),
        (IMAGE,),
        IMAGE,
        ((fn.ConstInt("add", 1, 0, 3), ((2, 6),), "the result's shape"),),
    ),
    Row(fn.SumShift((1, 1), 0), (IMAGE, IMAGE), IMAGE, ((fn.SumShift((1,), 0), (IMAGE, IMAGE), "1 operands"),)),
    Row(
        fn.ExtremeShift("max", (1, 1), 0),
        (IMAGE, IMAGE),
        IMAGE,
        ((fn.ExtremeShift("max", (1,), 0), (IMAGE, IMAGE), "1 operands"),),
    ),
    Row(
        fn.ConcatShift(1, (1, 1), (0, 0)),
        ((2, 2, 4, 5), (2, 4, 4, 5)),
        IMAGE,
        (
            (fn.ConcatShift(1, (1, 1), (0,)), ((2, 2, 4, 5), (2, 4, 4, 5)), "2 shifts, got 1"),
            (fn.ConcatShift(1, (1, 1), (0, 0)), ((2, 2, 4, 5), (2, 3, 4, 5)), "6 along axis 1 in all, got 5"),
        ),
    ),
    Row(fn.Concat(0), ((1, 6, 4, 5), (1, 6, 4, 5)), IMAGE, ((fn.Concat(0), ((1, 6, 4, 5), (1, 6, 4, 6)), "parts of"),)),
    Row(fn.Reshape(), ((240,),), IMAGE, ((fn.Reshape(), ((241,),), "240 elements"),)),
    Row(
        fn.Pad("edge", (0, 0, 1, 0), (0, 0, 0, 2)),
        ((2, 6, 3, 3),),
        IMAGE,
        (
            (fn.Pad("edge", (0, 0, 1), (0, 0, 0)), ((2, 6, 3, 3),), "4 before, got 3"),
            (fn.Pad("edge", (0,) * 4, (0,) * 4), ((2, 6, 3, 3),), "a result of (2, 6, 3, 3)"),
        ),
    ),
    Row(
        fn.Slice((0, 0, 1, 0), (1, 1, 2, 1)),
        ((2, 6, 8, 5),),
        IMAGE,
        (
            (fn.Slice((0, 0, 2, 0), (1, 1, 2, 1)), ((2, 6, 8, 5),), "inside the operand"),
            (fn.Slice((0,), (1,)), ((2, 6, 8, 5),), "4 offsets, got 1"),
        ),
    ),
    Row(
        fn.Upsample(2, 3),
        ((1, 6, 2, 5),),
        (1, 6, 4, 15),
        (
            (fn.Upsample(2, 2), ((1, 6, 2, 5),), "a result of (1, 6, 4, 10) or (1, 6, 2, 20)"),
            (fn.Upsample(2, 3), ((6, 2, 5),), "3 result"),
        ),
    ),
    Row(
        fn.Tile((2, 1, 2, 1)),
        ((1, 6, 2, 5),),
        IMAGE,
        ((fn.Tile((1, 1, 2, 1)), ((1, 6, 2, 5),), "a result of (1, 6, 4, 5)"),),
    ),
    Row(
        fn.GatherElements(1),
        ((2, 9, 4, 5), IMAGE),
        IMAGE,
        (
            (fn.GatherElements(1), ((1, 9, 4, 5), IMAGE), "not longer than (1, 9, 4, 5) except along axis 1"),
            (fn.GatherElements(1), ((2, 9, 4, 5), (2, 5, 4, 5)), "the result's shape"),
        ),
    ),
    Row(
        fn.ScatterElements(3, "add"),
        (IMAGE, (2, 6, 4, 3), (2, 6, 4, 3)),
        IMAGE,
        (
            (fn.ScatterElements(3), (IMAGE, (2, 6, 5, 3), (2, 6, 5, 3)), "except along axis 3"),
            (fn.ScatterElements(3), (IMAGE, (2, 6, 4, 3), (2, 6, 4, 2)), "the result's shape"),
        ),
    ),
    Row(fn.TopK(1, 6), ((2, 9, 4, 5),), IMAGE, ((fn.TopK(1, 5), ((2, 9, 4, 5),), "a result of (2, 5, 4, 5)"),)),
    Row(
        fn.Nms(3, 0.5, 0.1),
        ((2, 6, 9), (2, 9, 4)),
        (36, 3),
        (
            (fn.Nms(3, 0.5), ((2, 6, 9), (2, 8, 4)), "scores (batch, classes, boxes) and boxes (batch, boxes, 4)"),
            (fn.Nms(10, 0.5), ((2, 6, 9), (2, 9, 4)), "1 to 9 boxes kept, got 10"),
            (fn.Nms(4, 0.5), ((2, 6, 9), (2, 9, 4)), "a result of (48, 3)"),
        ),
    ),
    Row(
        fn.HostFunction("host_0"),
        ((99,), IMAGE),
        IMAGE,
        ((fn.HostFunction("host_0"), (), "code as the first operand, got no operand"),),
    ),
    Row(fn.Cumulate(2), (IMAGE,), IMAGE, ((fn.Cumulate(4), (IMAGE,), "an axis of 0 to 3, got 4"),)),
    Row(fn.Reverse(1), (IMAGE,), IMAGE, ((fn.Reverse(-5), (IMAGE,), "an axis of 0 to 3, got -5"),)),
    Row(fn.Power(), (IMAGE, (5,)), IMAGE, ((fn.Power(), (IMAGE, (4,)), "operands that broadcast"),)),
    Row(fn.Remainder(), (IMAGE, (5,)), IMAGE, ((fn.Remainder(), (IMAGE,), "2 operands, got 1"),)),
    Row(
        fn.GridSample("linear", "zeros"),
        ((2, 6, 7, 9), (2, 4, 5, 2)),
        IMAGE,
        (
            (fn.GridSample("linear", "zeros"), ((2, 6, 7, 9), (2, 4, 5, 3)), "places (n, ..., 2)"),
            (fn.GridSample("linear", "zeros"), ((2, 5, 7, 9), (2, 4, 5, 2)), "a result of (2, 5, 4, 5)"),
        ),
    ),
    Row(fn.Gather(1), ((2, 9, 4, 5), (6,)), IMAGE, ((fn.Gather(1), ((2, 9, 4, 5), (5,)), "a result of 200 elements"),)),
    Row(
        fn.ChannelTables(),
        (IMAGE, (1, 6, 16, 16)),
        IMAGE,
        (
            (
                fn.ChannelTables(),
                (IMAGE, (1, 5, 16, 16)),
                "256 entries for each of the channels of (2, 6, 4, 5), got 1280",
            ),
        ),
    ),
    Row(
        fn.YuvToBgr("nv12", 4, 6, 32, 64),
        ((2, 1, 1, 192),),
        (2, 3, 4, 6),
        (
            (
                fn.YuvToBgr("nv12", 4, 6, 32, 64),
                ((2, 1, 1, 128),),
                "frames of 384 bytes",
            ),
        ),
    ),
]
BY_NAME = pytest.mark.parametrize("row", ROWS, ids=lambda row: type(row.right).__name__)
CHIP, SMALL = chips.load("bm1684x"), chips.load("cv183x")
OF_CV18XX = (fn.SoftmaxTables, fn.LrnTables, fn.ReduceInt, fn.SumShift, fn.ExtremeShift, fn.ConcatShift)


def chip_with(function: fn.Function) -> chips.ChipSpec:
    """A chip that has it."""
    return SMALL if isinstance(function, OF_CV18XX) else CHIP


def kernel(function: fn.Function, operands: tuple[tuple[int, ...], ...], result: tuple[int, ...]) -> GlobalKernel:
    inputs = tuple(gmem(0x1000 * (i + 1), shape, "f32") for i, shape in enumerate(operands))
    body = Fn(id=0, dep=0, op="op", function=function, inputs=inputs, output=gmem(0x100000, result, "f32"))  # type: ignore[arg-type]
    kind = GlobalKernel if function.on_chip else HostCall
    return kind(id=1, dep=0, op="op", body=body, tiles=1, load_bytes=0, store_bytes=0)


def test_every_function_has_a_row_and_a_meaning() -> None:
    assert {type(row.right) for row in ROWS} == set(FUNCTIONS.shipped().values())
    assert set(MEANINGS) == set(FUNCTIONS)


@BY_NAME
def test_a_right_function(row: Row) -> None:
    """Legal, the same after text, and not for free on the chip."""
    command, chip = kernel(row.right, row.operands, row.result), chip_with(row.right)
    check(command, chip)
    assert parse_command(command_line(command)) == command
    assert (tiu_cycles(command.body, chip) > 0) == row.right.on_chip


@BY_NAME
def test_operands_that_do_not_go_with_the_function(row: Row) -> None:
    for function, operands, words in row.wrong:
        with pytest.raises(CommandError) as caught:
            check(kernel(function, operands, row.result), chip_with(function))
        assert "functions requires " in str(caught.value) and words in str(caught.value)


SOFTMAX = '{"name":"softmax","axis":1,"log":false,"beta":1.0}'


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"name":"softmax"', '"name":"softmaks"', "Invalid value 'softmaks'"),
        ('"axis":1', '"axes":1', "unknown field `axes`"),
        ('"axis":1,', "", "missing required field `axis`"),
        ('"axis":1', '"axis":"c"', "Expected `int`, got `str`"),
        (
            '{"name":"softmax","axis":1,"log":false,"beta":1.0}',
            '{"name":"active","mode":"EXPO"}',
            "mode 'EXPO' is not one of",
        ),
        ('{"name":"softmax","axis":1,"log":false,"beta":1.0}', "softmax", "Expected `object`, got `str`"),
    ],
)
def test_text_of_a_function_that_is_none(old: str, new: str, words: str) -> None:
    line = command_line(kernel(fn.Softmax(1), (IMAGE,), IMAGE))
    assert old in line
    with pytest.raises(ValueError, match=words):
        parse_command(line.replace(old, new))


def test_every_activation_has_a_price() -> None:
    assert all(fn.Active(mode).made_of(1).arithmetic for mode in fn.ACTIVATIONS)


@pytest.mark.every
@pytest.mark.parametrize("mode", ACTIVATIONS)
def test_activations_take_what_the_profile_has(mode: str) -> None:
    view = View("lmem", 0, (1, 4, 8, 8), "f32", "aligned")
    command = Fn(id=1, dep=0, op="op", function=fn.Active(mode), inputs=(view,), output=view)
    assert tiu_cycles(command, chips.load("bm1684x")) == ACTIVATIONS[mode]


@pytest.mark.parametrize(("mode", "cycles"), [("EXP", 39), ("LN", 59)])
def test_series_of_16_bits_are_shorter(mode: str, cycles: int) -> None:
    """The same profile in F16."""
    view = View("lmem", 0, (1, 4, 8, 8), "f16", "aligned")
    command = Fn(id=1, dep=0, op="op", function=fn.Active(mode), inputs=(view,), output=view)
    assert tiu_cycles(command, chips.load("bm1684x")) == cycles


@pytest.mark.every
@pytest.mark.parametrize(("chip", "dtype", "shape", "axis", "log", "cycles"), SOFTMAXES)
def test_softmaxes_take_what_the_profile_has(
    chip: str, dtype: Any, shape: tuple[int, ...], axis: int, log: bool, cycles: int
) -> None:
    view = View("lmem", 0, shape, dtype, "aligned")
    command = Fn(id=1, dep=0, op="op", function=fn.Softmax(axis, log), inputs=(view,), output=view)
    assert tiu_cycles(command, chips.load(chip)) == cycles


REDUCED = [
    ("bm1684x", "f32", (12, 12), 144), ("bm1688", "f32", (12, 12), 228), ("bm1688", "f16", (12, 12), 864),
]  # fmt: skip
"""(chip, type, plane, TIU cycles) of sums of the rows of 8 channels in the same profile."""


@pytest.mark.parametrize(("chip", "dtype", "plane", "cycles"), REDUCED)
def test_rows_of_whole_vectors_are_folded(chip: str, dtype: Any, plane: tuple[int, int], cycles: int) -> None:
    view, output = (View("lmem", 0, (1, 8, plane[0], w), dtype, "aligned") for w in (plane[1], 1))
    command = Fn(id=1, dep=0, op="op", function=fn.Reduce("ReduceSum", (3,)), inputs=(view,), output=output)
    assert tiu_cycles(command, chips.load(chip)) == cycles


PLANES = [
    ("bm1684x", "f32", (8, 12, 12), 9 + 16), ("bm1688", "f32", (8, 12, 12), 36 + 4),
    ("bm1688", "f16", (8, 12, 12), 18 + 8),
    ("bm1684x", "f32", (1280, 7, 7), 20 + 80 + 320), ("bm1684x", "f16", (1280, 7, 7), 20 + 40 + 640),
    ("bm1688", "f32", (1280, 7, 7), 40 + 520 + 160), ("bm1688", "bf16", (1280, 7, 7), 40 + 280 + 320),
    ("bm1684x", "f32", (128, 2, 2), 2 + 2 + 32), ("bm1688", "f32", (128, 2, 2), 4 + 16),
]  # fmt: skip
"""(chip, type, input, TIU cycles: what fills the last vector up, over the vectors, over one) in the same profile."""


@pytest.mark.every
@pytest.mark.parametrize(("chip", "dtype", "shape", "cycles"), PLANES)
def test_planes_are_folded(chip: str, dtype: Any, shape: tuple[int, int, int], cycles: int) -> None:
    channels, *plane = shape
    view, output = (View("lmem", 0, s, dtype, "aligned") for s in ((1, *shape), (1, channels, 1, 1)))
    command = Pool(
        id=1, dep=0, op="op", mode="max", input=view, output=output, kernel=tuple(plane), strides=(1, 1),
        pads=(0, 0, 0, 0),
    )  # fmt: skip
    assert tiu_cycles(command, chips.load(chip)) == cycles


LIMITED = [
    ("bm1684x", "f16", False, 5400 + 78), ("bm1684x", "f16", True, 5400 + 2 * 78),
    ("bm1688", "bf16", False, 27000 + 500), ("bm1688", "f16", True, 27000 + 2 * 500),
]  # fmt: skip
"""(chip, type, whether at most 6, TIU cycles) of a convolution of 40 to 130 channels of 20 x 20 in the same profile."""


@pytest.mark.every
@pytest.mark.parametrize(("chip", "dtype", "six", "cycles"), LIMITED)
def test_relus_of_floats_take_steps_of_their_own(chip: str, dtype: Any, six: bool, cycles: int) -> None:
    shapes = (1, 40, 20, 20), (1, 130, 9, 64), (1, 130, 20, 20)
    view, filter, output = (View("lmem", 0, shape, dtype, "aligned") for shape in shapes)
    command = Conv(
        id=1, dep=0, op="op", input=view, filter=filter, output=output, kernel=(3, 3), pads=(1, 1, 1, 1), relu=True,
        relu_limit=6.0 if six else -1.0,
    )  # fmt: skip
    assert tiu_cycles(command, chips.load(chip)) == cycles
    assert tiu_cycles(replace(command, relu=False), chips.load(chip)) < cycles - 70


COPIED = [("bm1684x", "f16", 4 * 50), ("bm1684x", "i8", 4 * 25), ("bm1688", "f16", 4 * 200), ("bm1688", "i8", 4 * 100)]
"""(chip, type, TIU cycles) of the lane copies of 3 channels of 40 x 40 to as many lanes as a kernel has places."""


@pytest.mark.every
@pytest.mark.parametrize(("chip", "dtype", "cycles"), COPIED)
def test_the_last_channel_is_spread_in_twice_the_steps(chip: str, dtype: Any, cycles: int) -> None:
    shapes = (1, 3, 40, 40), (1, 16, 1, 64), (1, 16, 40, 40)
    view, filter, output = (View("lmem", 0, shape, dtype, "aligned") for shape in shapes)
    command = Conv(
        id=1, dep=0, op="op", input=view, filter=filter, output=output, kernel=(3, 3), pads=(1, 1, 1, 1), merged=(0, 1)
    )
    spread = replace(command, spread=True)
    assert tiu_cycles(command, chips.load(chip)) - tiu_cycles(spread, chips.load(chip)) == cycles


LONE_POOLS = [
    ("bm1684x", (1, 1280, 7, 7), 22478), ("bm1688", (1, 1280, 7, 7), 14428), ("bm1684x", (2, 128, 7, 7), 7694),
    ("bm1688", (2, 128, 7, 7), 3253), ("bm1684x", (1, 100, 8, 8), 3011), ("bm1688", (1, 100, 8, 8), 2100),
    ("bm1684x", (1, 512, 56, 56), 131692), ("bm1688", (1, 512, 56, 56), 248080), ("bm1688", (4, 2048, 7, 7), 85706),
]  # fmt: skip
"""(chip, input, cycles) of a network of one global mean in F32 in the same profile."""


@pytest.mark.every
@pytest.mark.parametrize(("chip", "shape", "cycles"), LONE_POOLS)
def test_lone_pools_of_floats_take_what_the_profile_has(chip: str, shape: tuple[int, ...], cycles: int) -> None:
    op, spec = pool(value(shape), shape[2], 1, 0), chips.load(chip)
    assert why_rather_global(op, spec)
    assert CostModel(spec).global_ns(op) * spec.tiu_mhz / 1000 == pytest.approx(cycles, rel=6e-3)


MEANS = [
    ("bm1688", "f32", (1, 1), 384), ("bm1688", "bf16", (1, 1), 218), ("bm1688", "f32", (2, 2), 178),
]  # fmt: skip
"""(chip, type, strides, TIU cycles) of means over 3 x 3 of 12 x 12, pads of 1 left out, in the same profile."""


@pytest.mark.parametrize(("chip", "dtype", "strides", "cycles"), MEANS)
def test_means_at_edges_are_corrected(chip: str, dtype: Any, strides: tuple[int, int], cycles: int) -> None:
    size = 12 // strides[0]
    view, output = (View("lmem", 0, (1, 8, length, length), dtype, "aligned") for length in (12, size))
    command = Pool(
        id=1, dep=0, op="op", mode="avg", input=view, output=output, kernel=(3, 3), strides=strides, pads=(1, 1, 1, 1),
        count_include_pad=False,
    )  # fmt: skip
    assert tiu_cycles(command, chips.load(chip)) == cycles


def test_parameters_are_values() -> None:
    """Frozen and hashable, so that commands can be keys."""
    both: Any = fn.ConcatShift(1, (1, 1), (0, 0)), fn.ConcatShift(1, (1, 1), (0, 0))
    assert len(set(both)) == 1
    with pytest.raises(AttributeError):
        both[0].axis = 2
