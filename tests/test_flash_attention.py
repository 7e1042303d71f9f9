"""tpu.FAttention: where it is made, and that the machine computes what flat inference does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from upstream.networks import Builder, build

import tpusim
from tpusim.canonicalize import canonicalize
from tpusim.frontend import import_onnx
from tpusim.ir.attrs import op_name
from tpusim.isa.commands import GlobalKernel
from tpusim.isa.functions import FlashAttention
from tpusim.lowering import LoweringConfig, lower
from tpusim.ops.base import TpuOp


def block(size: int = 8, keys: int = 6, *, mask: bool = True, read_twice: bool = False) -> onnx.ModelProto:
    """Two heads of cross attention, (1, 5, 2, size) over (1, keys, 2, size), with a mask of rows and keys."""
    b = Builder("block")
    q = b.node("Transpose", b.input("q", 1, 5, 2, size), perm=[0, 2, 1, 3])
    k = b.node("Transpose", b.input("k", 1, keys, 2, size), perm=[0, 2, 3, 1])
    v = b.node("Transpose", b.input("v", 1, keys, 2, size), perm=[0, 2, 1, 3])
    scores = b.node("Mul", b.node("MatMul", q, k), b.constant(size**-0.5))
    if mask:
        scores = b.node("Add", scores, b.input("mask", 1, 1, 5, keys))
    weights = b.node("Softmax", scores, axis=-1)
    if read_twice:
        b.output(b.node("Relu", weights, out="read"))
    mixed = b.node("Transpose", b.node("MatMul", weights, v), perm=[0, 2, 1, 3])
    b.output(b.node("Relu", b.reshape(mixed, 1, 5, 2 * size), out="y"))
    return b.model()


def fused(proto: onnx.ModelProto, chip: str = "bm1688", mode: str = "f16") -> list[str]:
    """Names of the ops that take all of an attention."""
    top, _ = canonicalize(import_onnx(proto))
    ops = [op for op in lower(top, LoweringConfig(chip, mode))[0].ops if isinstance(op, TpuOp)]  # type: ignore[arg-type]
    found = [op for op in ops if op.name == "tpu.FAttention"]
    assert bool(found) != any(op.name == "tpu.Softmax" for op in ops)
    return [op_name(op) for op in found]


def test_where_there_is_one() -> None:
    """It has the name of the Reshape behind the heads, as upstream's."""
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
    bodies = [c.body for c in compiled.program.commands if isinstance(c, GlobalKernel)]
    assert [body.function.mask for body in bodies if isinstance(getattr(body, "function", None), FlashAttention)] == [
        True
    ]
