"""tpu.FAttention: where it is made, and that the machine computes what flat inference does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from compiling import to_canonical, to_tpu
from upstream.networks import Builder, build

import tpusim
from benchmarks.conformance.ours import Compiled
from tpusim import chips
from tpusim.frontend import import_onnx
from tpusim.ir.attrs import op_name
from tpusim.isa.commands import Fn
from tpusim.isa.functions import FlashAttention, FlashMix, FlashResult, FlashScores, Function
from tpusim.isa.region import View
from tpusim.kernel_library import tiles
from tpusim.ops.framework.base import TpuOp


def block(
    size: int = 8,
    keys: int = 6,
    *,
    mask: bool = True,
    read_twice: bool = False,
    batch: int = 1,
    rows: int = 5,
    heads: int = 2,
    shared: int = 1,
) -> onnx.ModelProto:
    """Cross attention, (batch, rows, heads, size) over (batch, keys, heads, size), with a mask of rows and keys.

    shared: heads of the queries that read one head of keys.
    """
    b = Builder("block")
    q = b.node("Transpose", b.input("q", batch, rows, heads, size), perm=[0, 2, 1, 3])
    k, v = (
        b.node("Transpose", b.input(name, batch, keys, heads // shared, size), perm=[0, 2, 1, 3]) for name in ("k", "v")
    )
    if shared > 1:
        k, v = (b.reshape(x, batch, heads // shared, 1, keys, size) for x in (k, v))
        k, v = (b.node("Tile", x, b.constant(np.array([1, 1, shared, 1, 1]))) for x in (k, v))
        k, v = (b.reshape(x, batch, heads, keys, size) for x in (k, v))
    product = b.node("MatMul", q, b.node("Transpose", k, perm=[0, 1, 3, 2]))
    scores = b.node("Mul", product, b.constant(size**-0.5))
    if mask:
        scores = b.node("Add", scores, b.input("mask", 1, 1, rows, keys))
    weights = b.node("Softmax", scores, axis=-1)
    if read_twice:
        b.output(b.node("Relu", weights, out="read"))
    mixed = b.node("Transpose", b.node("MatMul", weights, v), perm=[0, 2, 1, 3])
    b.output(b.node("Relu", b.reshape(mixed, batch, rows, heads * size), out="y"))
    return b.model()


def fused(proto: onnx.ModelProto, chip: str = "bm1688", mode: str = "f16") -> list[str]:
    """Names of the ops that take all of an attention."""
    top = to_canonical(import_onnx(proto))
    ops = [op for op in to_tpu(top, chip, mode).ops if isinstance(op, TpuOp)]
    found = [op for op in ops if op.name == "tpu.FAttention"]
    assert bool(found) != any(op.name == "tpu.Softmax" for op in ops)
    return [op_name(op) for op in found]


def test_where_there_is_one() -> None:
    """It has the name of the Reshape after the heads, as upstream's."""
    assert fused(build("attention")) == fused(build("attention"), mode="bf16") == ["reshape17_Reshape"]
    assert len(fused(block())) == len(fused(block(mask=False), "bm1690")) == 1


@pytest.mark.parametrize(
    ("proto", "chip", "mode"),
    [
        (block(), "bm1688", "f32"),
        (block(), "bm1684x", "f16"),
        (block(size=136), "bm1688", "f16"),
        (block(keys=3), "bm1688", "f16"),
        (block(read_twice=True), "bm1688", "f16"),
        (build("bert"), "bm1688", "f16"),
    ],
    ids=["f32", "chip", "large heads", "few keys", "weights read", "mask of one row"],
)
def test_where_there_is_none(proto: onnx.ModelProto, chip: str, mode: str) -> None:
    assert fused(proto, chip, mode) == []


@pytest.mark.parametrize("mode", ["f16", "bf16"])
def test_machine_and_top(mode: str, tmp_path: Path) -> None:
    """With a mask that leaves keys out; queries and keys of unlike lengths."""
    rng = np.random.default_rng(0)
    shapes = {"q": (1, 5, 2, 8), "k": (1, 6, 2, 8), "v": (1, 6, 2, 8)}
    x = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    x["mask"] = np.where(rng.random((1, 1, 5, 6)) < 0.3, np.float32(-60), np.float32(0))
    onnx.save(block(), tmp_path / "block.onnx")
    compiled = tpusim.compile(tmp_path / "block.onnx", [x], chip="bm1688", mode=mode)
    verified = compiled.verify(x)
    assert verified.passed, verified
    functions = [c.function for c in compiled.program.commands if isinstance(c, Fn) and c.of_tile]
    blocks = [function for function in functions if isinstance(function, FlashScores)]
    assert len(blocks) == 4 and all(block.mask for block in blocks)  # queries 4 and 1, keys 4 and 2
    assert sum(isinstance(function, FlashMix) for function in functions) == 2


@pytest.mark.parametrize(
    ("chip", "batch", "rows", "heads"),
    [("bm1688", 2, 5, 3), ("bm1688", 3, 8, 2), ("bm1690", 2, 5, 3), ("bm1688", 2, 5, 1), ("bm1688", 1, 5, 3)],
)
def test_batches_of_several_heads(chip: str, batch: int, rows: int, heads: int) -> None:
    """A window is of the heads of one batch item; the machine accepts it, and the program computes its module."""
    rng = np.random.default_rng(0)
    sizes = {"q": (batch, rows, heads, 8), "k": (batch, 6, heads, 8), "v": (batch, 6, heads, 8)}
    x = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in sizes.items()}
    compiled = tpusim.compile(block(mask=False, batch=batch, rows=rows, heads=heads), [x], chip=chip, mode="f16")
    assert any(isinstance(c, Fn) and isinstance(c.function, FlashMix) for c in compiled.program.commands)
    assert compiled.verify(x).passed
    assert compiled.prove().passed


PROFILE = [
    ("bm1688", "f16", (1, 12, 12, 4, 8, False), 6424, 3840, 768),
    ("bm1688", "f16", (1, 197, 197, 12, 64, False), 181605, 1512960, 302592),
    ("bm1688", "f16", (1, 256, 256, 8, 64, True), 301173, 1310720, 262144),
    ("bm1688", "f16", (2, 50, 70, 3, 40, False), 17573, 158400, 24000),
    ("bm1688", "f16", (1, 5, 6, 2, 8, True), 5781, 988, 160),
    ("bm1688", "f16", (1, 1024, 1024, 4, 64, False), 1061473, 4718592, 524288),
    ("bm1688", "f16", (1, 20, 100, 2, 32, True), 16921, 57760, 2560),
    ("bm1688", "f16", (1, 32, 32, 96, 16, False), 57105, 294912, 98304),
    ("bm1688", "f16", (1, 128, 128, 12, 128, False), 134497, 1179648, 393216),
    ("bm1688", "bf16", (1, 256, 256, 8, 64, True), 327349, 1310720, 262144),
    ("bm1688", "bf16", (2, 20, 20, 3, 24, False), 10417, 28800, 5760),
    ("bm1690", "f16", (1, 512, 512, 2, 64, False), 23681, 393216, 131072),
    ("bm1690", "f16", (1, 256, 256, 12, 64, False), 48997, 1179648, 393216),
]
"""Chip, mode, (batch, rows, keys, heads, size, mask): cycles from the first command of the op in the profile of
TPU-MLIR 1.30.2 to its last, bytes loaded and stored."""


HIGH_PRECISION = [
    ("bm1688", "f16", (1, 1, 257, 9, 64, True, 3), 22272, 200070, 1152),
    ("bm1688", "bf16", (1, 1, 65, 4, 64, True, 2), 6700, 33922, 512),
    ("bm1684x", "f16", (1, 256, 256, 10, 16, False, 10), 64749, 114688, 81920),
    ("bm1684x", "f16", (1, 1, 513, 8, 64, False, 4), 11885, 263680, 1024),
    ("bm1688", "f16", (1, 100, 300, 3, 80, True, 3), 60106, 300000, 48000),
    ("bm1684x", "bf16", (1, 16, 80, 4, 64, True, 2), 9686, 51712, 8192),
    ("bm1684x", "f16", (1, 200, 200, 4, 64, False, 2), 25640, 307200, 102400),
]
"""The same with the number of heads that read one head of keys, and with `--high_precision`. One query of three or
four heads is as many rows."""


@pytest.mark.parametrize(("chip", "mode", "sizes", "cycles", "loaded", "stored"), PROFILE, ids=str)
def test_tiles_as_in_the_profile(
    chip: str, mode: str, sizes: tuple[int, ...], cycles: int, loaded: int, stored: int
) -> None:
    """Every byte, and cycles within 0.2 % on BM1688, whose transfers are known, within 3 % on BM1690."""
    moved, taken = measured(chip, mode, sizes, FlashMix, high_precision=False)
    assert moved == [loaded, stored]
    assert abs(taken / cycles - 1) <= (0.002 if chip == "bm1688" else 0.03)


@pytest.mark.parametrize(("chip", "mode", "sizes", "cycles", "loaded", "stored"), HIGH_PRECISION, ids=str)
def test_tiles_in_high_precision(
    chip: str, mode: str, sizes: tuple[int, ...], cycles: int, loaded: int, stored: int
) -> None:
    """Every byte, and cycles within 1 %."""
    moved, taken = measured(chip, mode, sizes, FlashResult, high_precision=True)
    assert moved == [loaded, stored]
    assert abs(taken / cycles - 1) <= 0.01


def measured(
    chip: str, mode: str, sizes: tuple[int, ...], last: type[Function], *, high_precision: bool
) -> tuple[list[int], float]:
    """Bytes loaded and stored by the op whose tiles end with the function `last`, and its cycles."""
    batch, rows, keys, heads, size, mask, *shared = sizes
    proto = block(size, keys, mask=bool(mask), batch=batch, rows=rows, heads=heads, shared=sum(shared) or 1)
    top = to_canonical(import_onnx(proto))
    compiled = Compiled(to_tpu(top, chip, mode, high_precision=high_precision), {}, chip)
    of_op = [(i, c) for i, c in enumerate(compiled.program().commands) if c.of_tile]
    group = next(c.group for _, c in of_op if isinstance(c, Fn) and isinstance(c.function, last))
    own = [(i, c) for i, c in of_op if c.group == group]
    spans = {span.index: span for span in compiled.timeline().spans}
    taken = max(spans[i].stop_ns for i, _ in own) - min(spans[i].start_ns for i, _ in own)
    return [sum(c.traffic()[way] for _, c in own) for way in (0, 1)], taken * chips.load(chip).tiu_mhz / 1000


def test_attention_that_does_not_fit_is_one_call() -> None:
    """More keys than local memory has room for the scores of."""
    q, k = (View("gmem", n << 32, (1, size, 1, 8), "f16", "dense") for n, size in ((0, 4), (1, 1 << 18)))
    output = View("gmem", 4 << 32, (1, 4, 8), "f16", "dense")
    body = Fn(id=0, dep=0, op="op", function=FlashAttention(1.0, mask=False), inputs=(q, k, k), output=output)
    assert tiles(body, chips.load("bm1688")) == ()
