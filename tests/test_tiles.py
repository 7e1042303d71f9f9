"""Global layers as tiles: the same values as the command over whole tensors, whatever local memory leaves room for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import pytest
from msgspec.structs import replace
from rotation import a_turn_each

from benchmarks.conformance import recorded
from benchmarks.conformance.ours import Compiled
from benchmarks.conformance.pairing import computing, pair
from benchmarks.conformance.replay import Replay
from tests.upstream import networks as upstream
from tests.upstream.profiled import SHARED_OUT
from tpusim import chips
from tpusim.errors import SimulationError, UnsupportedError
from tpusim.isa import commands as isa
from tpusim.isa import functions as fn
from tpusim.isa.check import check, rules_of
from tpusim.isa.cycles import command_ns, timed_ns
from tpusim.isa.functions.picked import Reverse, TopK
from tpusim.isa.functions.recurrent import Recurrent
from tpusim.isa.layout import extent
from tpusim.isa.region import DType, View, itemsize, numpy_dtype
from tpusim.isa.stream import Program
from tpusim.kernel_library import Piece, Transfer, tiles, turns_of
from tpusim.kernel_library.products import product_block
from tpusim.simulator import Simulator
from tpusim.simulator.memory import Machine, Region
from tpusim.simulator.run import execute

CHIP = chips.load("bm1684x")
SMALL, PACKED = (replace(chip, lmem_bytes=8192) for chip in (CHIP, chips.load("bm1684")))
"""So little local memory that every case below has several tiles; PACKED has four items of a batch in a word."""
BASE, ROOM = CHIP.gmem_base, 1 << 20
COMMON = {"id": 1, "dep": 0, "op": "op"}


@dataclass
class Tensors:
    """Views in global memory, one after the other."""

    at: int = BASE

    def __call__(self, dtype: DType, *shape: int) -> View:
        view = View("gmem", self.at, shape, dtype, "dense")
        self.at += -(-view.nbytes // 64) * 64
        return view

    def words(self, *shape: int) -> View:
        """Bytes of four items of a batch in each word."""
        whole = self("i8", -(-shape[0] // 4) * 4, *shape[1:])
        return replace(whole, shape=shape, interleave=4)


def flash(dtype: DType, rows: int, keys: int, *, mask: bool) -> isa.Fn:
    """Six heads of queries, three of keys, two batches if there is no mask."""
    t = Tensors()
    batch = 1 if mask else 2
    k = (batch, keys, 3, 24)
    inputs = (t(dtype, batch, rows, 6, 24), t(dtype, *k), t(dtype, *k), *([t(dtype, 1, 1, rows, keys)] * mask))
    output = t(dtype, batch, rows, 6 * 24)
    return isa.Fn(function=fn.FlashAttention(0.25, mask), inputs=inputs, output=output, **COMMON)


def along(function: fn.AnyFunction, dtype: DType, *shape: int, result: tuple[int, ...] = ()) -> isa.Fn:
    t = Tensors()
    return isa.Fn(function=function, inputs=(t(dtype, *shape),), output=t(dtype, *(result or shape)), **COMMON)


def cases() -> dict[str, isa.TiuCommand]:
    t = Tensors()
    large = (2, 70, 39, 37)
    bias = t("i32", 300)
    return {
        "quantize": isa.Quantize(input=t("f32", *large), output=t("i8", *large), scale=20.0, **COMMON),
        "prime": isa.Dequantize(input=t("i8", 1, 1009), output=t("f32", 1, 1009), scale=0.1, **COMMON),
        "table": isa.Lut(input=t("i8", *large), table=t("i8", 1, 1, 1, 256), output=t("i8", *large), **COMMON),
        "broadcast": isa.Arith(
            kind="mul", a=t("f32", 3, 70, 20, 20), b=t("f32", 70, 1, 20), output=t("f32", 3, 70, 20, 20), **COMMON
        ),
        "product": isa.MatMul(
            left=t("i8", 130, 300), right=t("i8", 300, 300), bias=bias, output=t("i8", 130, 300), relu=True,
            requant=isa.Requant(3, 12), **COMMON,
        ),
        "turned": isa.MatMul(
            left=t("f32", 3, 40, 70), right=t("f32", 3, 50, 40), output=t("f32", 3, 70, 50), left_transpose=True,
            right_transpose=True, **COMMON,
        ),
        "convolution": isa.Conv(
            input=t("f16", 3, 64, 9, 9), filter=t("f16", 1, 200, 1, 576), bias=t("f32", 1, 200, 1, 1),
            output=t("f16", 3, 200, 5, 5), kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1), relu=True, **COMMON,
        ),
        "convolution in f32": isa.Conv(
            input=t("f32", 2, 64, 5, 6), filter=t("f32", 1, 200, 1, 64), bias=t("f32", 1, 200, 1, 1),
            output=t("f32", 2, 200, 5, 6), kernel=(1, 1), **COMMON,
        ),
        "softmax": along(fn.Softmax(1), "f32", 2, 24, 36, 48),
        "classes": along(fn.Softmax(1), "f32", 300, 20),
        "extremes": isa.Fn(function=fn.Arg(1, "ArgMax"), inputs=(t("f32", 2, 20, 14, 11),),
                           output=t("i32", 2, 14, 11), **COMMON),  # 154 places: single ones
        "fours": isa.Fn(function=fn.Arg(1, "ArgMin", select_last=True), inputs=(t("f32", 2, 20, 12, 12),),
                        output=t("i32", 2, 12, 12), **COMMON),
        "mean": along(fn.Reduce("ReduceMean", (2, 3), 1 / 120), "f32", 200, 3, 10, 12, result=(200, 3)),
        "channels": along(fn.Reduce("ReduceL2", (1,)), "f32", 1, 40, 40, 40, result=(1, 40, 40)),
        "lrn": along(fn.Lrn(5, 1.0, 0.75, 1.0), "f32", 2, 70, 30, 10),
        "interpolation": along(fn.Interp(0.5, 0.5), "f32", 3, 200, 4, 4, result=(3, 200, 8, 8)),
        "reflected": along(fn.Pad("reflect", (0, 0, 1, 2), (0, 0, 3, 1)), "i8", 30, 70, 8, 9, result=(30, 70, 12, 12)),
        "planes": isa.Pool(mode="avg", input=t("i8", 1, 4096, 5, 7), output=t("i8", 1, 4096, 1, 1), kernel=(5, 7),
                           requant=isa.Requant(3, 9), **COMMON),  # 64 to a lane
        "two planes": isa.Pool(mode="max", input=t("f32", 2, 200, 9, 9), output=t("f32", 2, 200, 1, 1), kernel=(9, 9),
                               **COMMON),
        "gathered": isa.Fn(function=fn.Gather(1), inputs=(t("f32", 5, 9, 16, 16), t("i32", 4)),
                           output=t("f32", 5, 4, 16, 16), **COMMON),
        "attention": flash("f16", 70, 90, mask=True),
        "attention in bf16": flash("bf16", 21, 40, mask=False),
    }  # fmt: skip


def packed_cases() -> dict[str, isa.TiuCommand]:
    t = Tensors()
    return {
        "packed product": isa.MatMul(
            left=t.words(130, 30), right=t("i8", 30, 300), bias=t("i16", 300), output=t.words(130, 300), relu=True,
            requant=isa.Requant(1, 8), **COMMON,
        ),
        "packed convolution": isa.Conv(
            input=t.words(6, 3, 18, 16), filter=t("i8", 1, 200, 1, 36), bias=t("i16", 1, 200, 1, 1),
            output=t.words(6, 200, 9, 8), kernel=(3, 3), strides=(2, 2), pads=(0, 1, 1, 0), relu=True,
            requant=isa.Requant(1, 7, rounding="half_up", mode="shift"), **COMMON,
        ),
        "packed choice": isa.Where(
            condition=t.words(6, 70, 18, 19), on_true=t.words(6, 70, 18, 19), on_false=t.words(6, 70, 18, 19),
            output=t.words(6, 70, 18, 19), **COMMON,
        ),
        "packed pad": isa.Fn(
            function=fn.Pad("edge", (0, 0, 1, 2), (0, 0, 3, 1)), inputs=(t.words(6, 70, 18, 19),),
            output=t.words(6, 70, 22, 22), **COMMON,
        ),
        "packed batches": isa.Fn(
            function=fn.Pad("reflect", (0, 1, 0, 2), (0, 2, 0, 1)), inputs=(t.words(27, 70, 2, 19),),
            output=t.words(27, 73, 2, 22), **COMMON,
        ),
    }  # fmt: skip


PACKED_CASES = packed_cases()
CASES = cases() | PACKED_CASES


def small(name: str) -> chips.ChipSpec:
    return PACKED if name in PACKED_CASES else SMALL


def machine(body: isa.Command, chip: chips.ChipSpec) -> Machine:
    """Every operand with random values."""
    found = Machine(chip, (Region("all", BASE, 16 * ROOM, True),), np.zeros(0, np.uint8))
    random = np.random.default_rng(3)
    for view in body.reads():
        kind = numpy_dtype(view.dtype)
        whole = random.integers(0 if view.dtype == "i32" else -100, 4 if view.dtype == "i32" else 100, view.shape)
        found.write(view, (whole / 64 if itemsize(view.dtype) == 2 and view.dtype != "i16" else whole).astype(kind))
    return found


def moves(piece: Piece, *, loads: bool) -> list[isa.Move]:
    if not loads:
        store = piece.store
        return [isa.Move(input=store.inside, output=store.outside, **COMMON)] if store else []
    return [isa.Move(input=load.outside, output=load.inside, **COMMON) for load in piece.loads]


@pytest.mark.every
@pytest.mark.parametrize("name", CASES)
def test_tiles_compute_what_the_whole_command_does(name: str) -> None:
    """Bit for bit, in the order in which a row may run last: stores, then loads, then the command."""
    pieces = same(CASES[name], small(name))
    assert len({p.number for p in pieces}) > 1 or name == "prime"


def same(body: isa.TiuCommand, chip: chips.ChipSpec) -> tuple[Piece, ...]:
    """The tiles of a command, which compute what it does."""
    whole, cut = machine(body, chip), machine(body, chip)
    execute(isa.GlobalKernel(body=body, **COMMON), whole)
    pieces = tiles(body, chip)
    assert all(extent(v, chip).stop <= chip.lmem_bytes for p in pieces for _, v in p.body.operands())
    for turn in turns_of(pieces):
        stores = moves(turn.stores, loads=False) if turn.stores else []
        loads = moves(turn.loads, loads=True) if turn.loads else []
        bodies = [turn.computes.body] if turn.computes else []
        for command in (*stores, *loads, *bodies):
            check(command, chip)
            execute(command, cut)
    (result,) = body.writes()
    np.testing.assert_array_equal(cut.read(result), whole.read(result))
    return pieces


@pytest.mark.parametrize("batch", [(), (3,)], ids=str)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("chip", ["bm1684x", "bm1688"])
def test_an_inner_axis_that_is_cut(chip: str, turned: bool, batch: tuple[int, ...]) -> None:  # noqa: FBT001
    """The last part adds the sums so far and the bias, and only then is what is negative cut off."""
    t, rows, inner, columns = Tensors(), 70, 2050, 150
    right = (columns, inner) if turned else (inner, columns)
    body = isa.MatMul(
        left=t("f32", *batch, rows, inner), right=t("f32", *batch, *right), right_transpose=turned, relu=True,
        bias=t("f32", columns), output=t("f32", *batch, rows, columns), **COMMON,
    )  # fmt: skip
    pieces = same(body, chips.load(chip))
    products = [cast("isa.MatMul", piece.body) for piece in pieces]
    parts = len(products) // len({piece.number for piece in pieces})
    assert parts > 1
    for at, (piece, product) in enumerate(zip(pieces, products, strict=True)):
        first, last = at % parts == 0, at % parts == parts - 1
        assert (product.partial is None, product.bias is not None, product.relu, piece.store is not None) == (
            first, last, last, last,
        )  # fmt: skip


PRODUCTS = [
    ("bm1684x", (196, 768, 192), (196, 384, 192)), ("bm1684x", (197, 192, 768), (197, 192, 768)),
    ("bm1684x", (1, 544, 1000), (1, 112, 1000)), ("bm1684x", (1024, 192, 768), (512, 192, 768)),
    ("bm1684x", (1000, 64, 64), (500, 64, 64)), ("bm1684x", (64, 1024, 4096), (64, 128, 4096)),
    ("bm1684x", (300, 2048, 100), (150, 512, 100)), ("bm1684x", (16, 4096, 1000), (16, 128, 1000)),
    ("bm1684x", (4000, 32, 32), (500, 32, 32)), ("bm1684x", (128, 768, 768), (128, 256, 768)),
    ("bm1684x", (197, 3072, 768), (99, 256, 768)), ("bm1684x", (512, 512, 512), (512, 512, 512)),
    ("bm1688", (197, 768, 192), (99, 384, 192)), ("bm1688", (196, 192, 768), (196, 192, 384)),
    ("bm1688", (1, 544, 1000), (1, 64, 1000)), ("bm1688", (1024, 192, 768), (256, 192, 384)),
    ("bm1688", (1000, 64, 64), (500, 64, 64)), ("bm1688", (64, 1024, 4096), (64, 256, 384)),
    ("bm1688", (300, 2048, 100), (60, 512, 100)), ("bm1688", (16, 4096, 1000), (16, 112, 1000)),
    ("bm1688", (4000, 32, 32), (500, 32, 32)), ("bm1688", (128, 768, 768), (128, 384, 256)),
    ("bm1688", (197, 3072, 768), (40, 256, 512)), ("bm1688", (512, 512, 512), (256, 512, 256)),
]  # fmt: skip
"""Rows, inner axis and columns of f32 products, and of their tiles in the profile of TPU-MLIR 1.30.2."""


CONVOLUTIONS = [
    ("bm1688", "f32", (960, 1280, 7, 1, 1), 320, 4), ("bm1688", "f32", (512, 512, 14, 3, 1), 64, 8),
    ("bm1688", "f32", (2048, 2048, 7, 1, 1), 128, 16), ("bm1684x", "f32", (1024, 1024, 20, 3, 1), 128, 8),
    ("bm1688", "f16", (512, 512, 14, 3, 1), 32, 1), ("bm1688", "f16", (2048, 2048, 7, 1, 1), 32, 1),
    ("bm1688", "f16", (256, 1024, 8, 3, 2), 32, 1), ("bm1688", "f16", (2048, 1024, 14, 1, 1), 32, 1),
    ("bm1688", "f16", (1024, 1024, 20, 3, 1), 32, 1), ("bm1684x", "f16", (1024, 1024, 20, 3, 1), 64, 1),
]  # fmt: skip
"""Channels in and out, rows, kernel and stride of global convolutions; of their tiles in the profile of TPU-MLIR 1.30.2
the channels, and how often the image is loaded. Six more of f32 are cut otherwise there (`_F32_CHANNELS`)."""


@pytest.mark.parametrize(("chip", "dtype", "sizes", "channels", "loads"), CONVOLUTIONS, ids=str)
def test_convolutions_are_cut_as_in_the_real_library(
    chip: str, dtype: DType, sizes: tuple[int, ...], channels: int, loads: int
) -> None:
    ic, oc, rows, k, stride = sizes
    out, packing = (rows + 2 * (k // 2) - k) // stride + 1, chips.load(chip).filter_packing(itemsize(dtype), ic)
    t, filter_row = Tensors(), -(-ic // packing) * packing * k * k
    body = isa.Conv(
        input=t(dtype, 1, ic, rows, rows), filter=t(dtype, 1, oc, 1, filter_row), bias=t("f32", 1, oc, 1, 1),
        output=t(dtype, 1, oc, out, out), kernel=(k, k), strides=(stride, stride), pads=(k // 2,) * 4, **COMMON,
    )  # fmt: skip
    pieces = tiles(body, chips.load(chip))
    assert {piece.body.writes()[0].shape for piece in pieces} == {(1, channels, out, out)}
    assert sum(load.outside == body.input for piece in pieces for load in piece.loads) == loads


@pytest.mark.parametrize(("channels", "rows"), [(1000, 13), (1280, 7), (2048, 7)])
def test_means_with_zero_points_are_one_tile(channels: int, rows: int) -> None:
    """As in the profile of TPU-MLIR 1.30.2 for these three; without zero points 1,000 channels are eight tiles."""
    t = Tensors()
    body = isa.Pool(
        mode="avg", input=t("i8", 1, channels, rows, rows), output=t("i8", 1, channels, 1, 1), kernel=(rows, rows),
        scale=1 / 49, offset=3.0, **COMMON,
    )  # fmt: skip
    assert len(tiles(body, CHIP)) == 1
    if channels == 1000:  # noqa: PLR2004  not a multiple of the lanes
        assert len(tiles(replace(body, scale=0.0, offset=0.0, requant=isa.Requant(3, 9)), CHIP)) == 8  # noqa: PLR2004


@pytest.mark.parametrize(("chip", "sizes", "there"), PRODUCTS, ids=str)
def test_products_are_cut_as_in_the_real_library(
    chip: str, sizes: tuple[int, int, int], there: tuple[int, int, int]
) -> None:
    rows, inner, columns = sizes
    found = product_block(rows, columns, inner, chips.load(chip))
    assert (found.rows, found.inner, found.columns) == there


@pytest.mark.parametrize("name", CASES)
def test_tiles_store_every_element_once_and_load_no_more_than_they_use(name: str) -> None:
    pieces = tiles(CASES[name], small(name))
    assert sum(p.store.outside.elements for p in pieces if p.store) == CASES[name].writes()[0].elements
    loads = {number: [load for p in pieces if p.number == number for load in p.loads] for number in range(len(pieces))}
    for piece in pieces:
        parts = [
            [load for load in loads[by] if _inside(load, each)]
            for by, each in zip(piece.loaded, piece.operands, strict=True)
        ]
        wanted = [each.outside.elements for each in piece.operands]
        assert [sum(part.outside.elements for part in found) for found in parts] == wanted


def _inside(part: Transfer, whole: Transfer) -> bool:
    inner, outer = (extent(each.outside, SMALL) for each in (part, whole))
    return outer.start <= inner.start and inner.stop <= outer.stop and part.inside.address >= whole.inside.address


@pytest.mark.parametrize(
    ("network", "chip"), [("cast", "bm1684x"), ("matmul", "bm1684x"), ("segformer", "bm1688"), ("unet", "cv183x")]
)
def test_a_form_is_as_legal_and_takes_as_long(network: str, chip: str) -> None:
    """What is kept of equal forms is what each command has itself."""
    spec = chips.load(chip)
    commands = Compiled(Replay(network).lowered(f"{chip}/int8"), {}, chip).program().commands
    for command in commands:
        form, rules = command.form, rules_of(type(command))
        assert command_ns(command, spec) == timed_ns(command, spec), command.label
        assert [r(command, spec) for r in rules] == [r(form, spec) for r in rules], command.label


@pytest.mark.parametrize("network", ["resize", "enlarge", "segformer"])
def test_images_with_inserted_zeros_run_channel_by_channel(network: str) -> None:
    """CV18xx: interpolation by a depthwise convolution, whose planes are whole; the machine equals the flat run."""
    sample = upstream.samples(upstream.build(network))[0]
    compiled = Compiled(Replay(network).lowered("cv183x/int8"), sample, "cv183x")
    program = compiled.program()
    assert not untiled(program)
    assert any(
        isinstance(c, isa.Depthwise) and c.step.startswith(isa.TILE) and max(c.inserts) for c in program.commands
    )


def untiled(program: Program) -> list[str]:
    """Calls on global memory without tiles; the host's are no commands of the chip.

    A recurrent layer, a mirrored axis and a sorted one are one kernel with its transfers each, whose time and traffic
    are its function's.
    """
    whole = Recurrent, Reverse, TopK
    calls = [c for c in program.commands if type(c) is isa.GlobalKernel]
    return [c.label for c in calls if not (isinstance(c.body, isa.Fn) and isinstance(c.body.function, whole))]


WITHOUT_TILES = {"cv180x": {"conv": 1, "shuffle": 1, "four_bit_filters": 1}}
"""Chip -> network -> calls without tiles: convolutions in groups whose channels do not fill two lanes."""
CELLS = [
    (network, chip, mode)
    for network in recorded.networks()
    for chip in chips.available()
    for mode in chips.load(chip).modes
]


@pytest.mark.every(2)
@pytest.mark.parametrize(("network", "chip", "mode"), a_turn_each(CELLS, 40))
def test_no_network_of_the_comparison_has_a_call_without_tiles(network: str, chip: str, mode: str) -> None:
    """In any mode of any chip."""
    try:
        lowered = Replay(network).lowered(f"{chip}/{mode}")
    except UnsupportedError as refused:
        pytest.skip(str(refused))
    found = untiled(Compiled(lowered, {}, chip).program())
    assert len(found) == WITHOUT_TILES.get(chip, {}).get(network, 0), found


@pytest.mark.every
@pytest.mark.parametrize(
    ("network", "cell"),
    [
        ("attention", "bm1688/f16"),
        ("attention", "bm1688/bf16"),
        ("attention", "bm1690/f16"),
        ("matmul", "bm1684/int8"),
        ("shapes", "bm1684/int8"),
        ("norms", "cv181x/int8"),
        ("resize", "cv183x/int8"),
    ],
)
def test_what_was_one_call(network: str, cell: str) -> None:
    """In tiles, or the host's; the machine equals the flat run."""
    sample, chip = upstream.samples(upstream.build(network))[0], cell.partition("/")[0]
    compiled = Compiled(Replay(network).lowered(cell), sample, chip)
    program = compiled.program()
    assert not untiled(program)
    found, flat = Simulator(program).run(sample).tensors, compiled.tensors()
    for entry in program.outputs:
        made, wanted = found[entry.name], np.asarray(flat[entry.name])
        assert_close = np.testing.assert_array_equal if wanted.dtype.kind in "iu" else np.testing.assert_allclose
        assert_close(made.astype(np.float64), wanted.astype(np.float64), **({} if wanted.dtype.kind in "iu" else NEAR))


NEAR = {"rtol": 2e-3, "atol": 1e-3}
"""Of floats: a last place of 16 bits."""


@pytest.mark.parametrize(
    ("network", "chip"),
    [
        (name, chip)
        for name in recorded.networks()
        for chip in ("cv183x", "cv181x")
        if f"{chip}/int8" in Replay(name).data.content.cells
    ],
)
def test_the_host_computes_what_it_computes_there(network: str, chip: str) -> None:
    """The ops that the real compiler makes `tpu.GenericCpu` of, and no others; the chip's clock does not count them."""
    replay, cell = Replay(network), f"{chip}/int8"
    theirs = replay.data.content.cells[cell]
    compiled = Compiled(replay.lowered(cell), {}, chip)
    pairs = pair(computing(compiled.ops()), computing(theirs.ops))
    calls = [c for c in compiled.program().commands if isinstance(c, isa.HostCall)]
    assert {c.op for c in calls} == {ours.name for ours, other in pairs if other.kind == "tpu.GenericCpu"}
    assert not any(command_ns(c, chips.load(chip)) or any(c.traffic()) for c in calls)


def test_a_tile_that_was_not_loaded_is_found() -> None:
    """The sanitizer knows tiles: another tile's operand, and a store of another one, are refused."""
    program = Compiled(Replay("logic").lowered("bm1684x/int8"), {}, "bm1684x").program()
    numbers = [i for i, c in enumerate(program.commands) if c.step == f"{isa.TILE}1"]
    assert {type(program.commands[i]) for i in numbers} == {isa.Move, isa.Fn}
    for number in numbers:
        command = program.commands[number]
        wrong = replace(command, sources=tuple(replace(s, step=s.step and f"{isa.TILE}0") for s in command.sources))
        if wrong != command:
            with pytest.raises(SimulationError, match="tile"):
                Simulator(_with(program, number, wrong))
    assert Simulator(program).unconfirmed.get("commands that do not say what they read") is None


def _with(program: Program, number: int, command: isa.Command) -> Program:
    commands = (*program.commands[:number], command, *program.commands[number + 1 :])
    return replace(program, commands=commands)


@pytest.mark.every
@pytest.mark.parametrize(("chip", "what", "source", "result", "count", "there"), SHARED_OUT, ids=str)
def test_what_is_spread_over_the_lanes_runs_in_halves(
    chip: str, what: str, source: DType, result: DType, count: int, there: tuple[int, ...]
) -> None:
    """As the real compiler cuts it, but that the rest of a block goes with the tile before it."""
    t = Tensors()
    x, y = t(source, 1, 32, count // 32), t(result, 1, 32, count // 32)
    body: isa.TiuCommand = {
        "table": lambda: isa.Lut(input=x, table=t("i8", 1, 1, 1, 256), output=y, **COMMON),
        "cast": lambda: isa.Quantize(input=x, output=y, scale=20.0, **COMMON),
        "function": lambda: (
            isa.Rescale(input=x, output=y, requant=isa.Requant(3, 9), **COMMON)
            if source == "i8"
            else isa.Fn(function=fn.Active("EXP"), inputs=(x,), output=y, **COMMON)
        ),
    }[what]()
    wanted = there if len(there) < 3 else (*there[:-2], sum(there[-2:]))  # noqa: PLR2004  two, and a rest
    found = [piece.store.inside.elements for piece in tiles(body, chips.load(chip)) if piece.store]
    assert sum(found) == count and len(found) == len(wanted)
    assert all(abs(a - b) <= 0.03 * b for a, b in zip(found, wanted, strict=True))
