"""Global layers as tiles: the same values as the command over whole tensors, whatever local memory leaves room for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import pytest
from msgspec.structs import replace

from benchmarks.conformance.ours import Compiled
from benchmarks.conformance.replay import Replay
from tests.upstream import networks as upstream
from tpusim import chips
from tpusim.errors import SimulationError
from tpusim.isa import commands as isa
from tpusim.isa import functions as fn
from tpusim.isa.check import RULES, check
from tpusim.isa.cycles import command_ns, timed_ns
from tpusim.isa.layout import extent
from tpusim.isa.region import DType, View, numpy_dtype
from tpusim.isa.stream import Program
from tpusim.isa.tiling import Piece, tiles, turns_of
from tpusim.simulator import Simulator
from tpusim.simulator.memory import Machine, Region
from tpusim.simulator.run import execute

CHIP = chips.load("bm1684x")
SMALL = replace(CHIP, lmem_bytes=8192)
"""So little local memory that every case below has several tiles."""
BASE, ROOM = CHIP.gmem_base, 1 << 20
COMMON = {"id": 1, "dep": 0, "op": "op"}


@dataclass
class Tensors:
    """Views in global memory, one behind the other."""

    at: int = BASE

    def __call__(self, dtype: DType, *shape: int) -> View:
        view = View("gmem", self.at, shape, dtype, "dense")
        self.at += -(-view.nbytes // 64) * 64
        return view


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
    }  # fmt: skip


CASES = cases()


def machine(body: isa.Command) -> Machine:
    """Every operand with random values."""
    found = Machine(SMALL, (Region("all", BASE, 4 * ROOM, True),), np.zeros(0, np.uint8))
    random = np.random.default_rng(3)
    for view in body.reads():
        kind = numpy_dtype(view.dtype)
        whole = random.integers(0 if view.dtype == "i32" else -100, 4 if view.dtype == "i32" else 100, view.shape)
        found.write(view, whole.astype(kind))
    return found


def moves(piece: Piece, *, loads: bool) -> list[isa.Move]:
    if not loads:
        return [isa.Move(input=piece.store.inside, output=piece.store.outside, **COMMON)]
    return [isa.Move(input=load.outside, output=load.inside, **COMMON) for load in piece.loads]


@pytest.mark.every
@pytest.mark.parametrize("name", CASES)
def test_tiles_compute_what_the_whole_command_does(name: str) -> None:
    """Bit for bit, in the order in which a row may run last: stores, then loads, then the command."""
    body = CASES[name]
    whole, cut = machine(body), machine(body)
    execute(isa.GlobalKernel(body=body, **COMMON), whole)
    pieces = tiles(body, SMALL)
    assert len(pieces) > 1 or name == "prime"
    assert all(extent(v, SMALL).stop <= SMALL.lmem_bytes for p in pieces for _, v in p.body.operands())
    for turn in turns_of(pieces):
        stores = moves(turn.stores, loads=False) if turn.stores else []
        loads = moves(turn.loads, loads=True) if turn.loads else []
        bodies = [cast("isa.TiuCommand", turn.computes.body)] if turn.computes else []
        for command in (*stores, *loads, *bodies):
            check(command, SMALL)
            execute(command, cut)
    (result,) = body.writes()
    np.testing.assert_array_equal(cut.read(result), whole.read(result))


@pytest.mark.parametrize("name", CASES)
def test_tiles_store_every_element_once_and_load_no_more_than_they_use(name: str) -> None:
    pieces = tiles(CASES[name], SMALL)
    assert sum(p.store.outside.elements for p in pieces) == CASES[name].writes()[0].elements
    for piece in pieces:
        loaded = [pieces[number] for number in piece.loaded]
        assert all(by.operands[i] == piece.operands[i] for i, by in enumerate(loaded))


@pytest.mark.parametrize(
    ("network", "chip"), [("cast", "bm1684x"), ("matmul", "bm1684x"), ("segformer", "bm1688"), ("unet", "cv183x")]
)
def test_a_form_is_as_legal_and_takes_as_long(network: str, chip: str) -> None:
    """What is kept of equal forms is what each command has itself."""
    spec = chips.load(chip)
    commands = Compiled(Replay(network).lowered(f"{chip}/int8"), {}, chip).program().commands
    for command in commands:
        form = cast("isa.AnyCommand", command.form)
        assert command_ns(command, spec) == timed_ns(command, spec), command.label
        assert [rule(command, spec) for rule in RULES] == [rule(form, spec) for rule in RULES], command.label


@pytest.mark.parametrize("network", ["resize", "enlarge", "segformer"])
def test_images_with_inserted_zeros_run_channel_by_channel(network: str) -> None:
    """CV18xx: interpolation by a depthwise convolution, whose planes are whole; the machine equals the flat run."""
    sample = upstream.samples(upstream.build(network))[0]
    compiled = Compiled(Replay(network).lowered("cv183x/int8"), sample, "cv183x")
    program = compiled.program()
    assert not [c for c in program.commands if isinstance(c, isa.GlobalKernel)]
    assert any(
        isinstance(c, isa.Depthwise) and c.step.startswith(isa.TILE) and max(c.inserts) for c in program.commands
    )


@pytest.mark.parametrize("chip", ["bm1684x", "bm1688"])
def test_no_network_of_the_comparison_has_a_call_without_tiles(chip: str) -> None:
    """INT8; the networks whose layers were single calls on global memory."""
    for network in ("matmul", "softmax", "lrn", "reduce", "shapes", "resize", "logic", "segformer", "vit"):
        program = Compiled(Replay(network).lowered(f"{chip}/int8"), {}, chip).program()
        assert not [c for c in program.commands if isinstance(c, isa.GlobalKernel)], network
        assert any(c.step.startswith(isa.TILE) for c in program.commands), network


def test_a_tile_that_was_not_loaded_is_found() -> None:
    """The sanitizer knows tiles: another tile's operand, and a store of another one, are refused."""
    program = Compiled(Replay("logic").lowered("bm1684x/int8"), {}, "bm1684x").program()
    numbers = [i for i, c in enumerate(program.commands) if c.step == f"{isa.TILE}1"]
    assert {type(program.commands[i]) for i in numbers} == {isa.Move, isa.Fn}
    for number in numbers:
        command = program.commands[number]
        wrong = replace(command, sources=tuple(s.replace("tile1", "tile0") for s in command.sources))
        if wrong != command:
            with pytest.raises(SimulationError, match="tile"):
                Simulator(_with(program, number, wrong))
    assert Simulator(program).unconfirmed.get("commands that do not say what they read") is None


def _with(program: Program, number: int, command: isa.AnyCommand) -> Program:
    commands = (*program.commands[:number], command, *program.commands[number + 1 :])
    return replace(program, commands=commands)
