"""Commands and lone layers of small tensors: cycles in the profile of TPU-MLIR 1.30.2, one command or layer each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from upstream.networks import Builder

import tpusim
from benchmarks.conformance.ours import Compiled, Network
from benchmarks.conformance.timing import our_clock
from tpusim import chips
from tpusim.isa import functions as fn
from tpusim.isa.commands import Fn, LaneCopy, Move
from tpusim.isa.cycles import dma_ns, tiu_cycles
from tpusim.isa.layout import dense_strides
from tpusim.isa.region import View

NORMS: list[tuple[str, str, tuple[int, int, int, int], int, int]] = [
    ("bm1684x", "f32", (2, 8, 16, 1), 2, 152),
    ("bm1684x", "f32", (2, 3, 50, 1), 2, 216),
    ("bm1684x", "f32", (1, 4, 6, 10), 3, 182),
    ("bm1684x", "f16", (4, 100, 7, 1), 2, 748),
    ("bm1684x", "f16", (1, 4, 6, 10), 3, 176),
    ("bm1688", "f32", (2, 3, 50, 1), 2, 342),
    ("bm1688", "f32", (1, 4, 6, 10), 3, 524),
    ("bm1688", "f16", (4, 100, 7, 1), 2, 932),
    ("bm1688", "f16", (1, 4, 6, 10), 3, 682),
]
"""Chip, type, shape and axis of a LayerNorm with weight and bias in a layer group; TIU cycles."""


@pytest.mark.parametrize(("chip", "dtype", "shape", "axis", "cycles"), NORMS, ids=str)
def test_a_layer_norm(chip: str, dtype: Any, shape: tuple[int, ...], axis: int, cycles: int) -> None:
    """Planes that a vector does not divide are padded; rows of a plane are summed element by element."""
    x = View("lmem", 0, shape, dtype, "aligned")
    weight = View("lmem", 1 << 14, (1, 1, *shape[2:]), dtype, "aligned")
    function = fn.LayerNorm(axis, 1e-5, weight=True, bias=True)
    command = Fn(id=1, dep=0, op="", function=function, inputs=(x, weight, weight), output=x)
    assert tiu_cycles(command, chips.load(chip)) == cycles


CHANNELS: list[tuple[str, tuple[int, int, int, int], int]] = [
    ("bm1684x", (1, 4, 6, 10), 100),
    ("bm1684x", (1, 3, 16, 16), 194),
    ("bm1684x", (1, 70, 4, 4), 148),
    ("bm1684x", (2, 6, 9, 1), 152),
    ("bm1688", (1, 70, 4, 4), 216),
    ("bm1688", (1, 3, 16, 16), 552),
    ("bm1688", (2, 8, 5, 5), 196),
]
"""Chip and shape of an InstanceNorm in a layer group; TIU cycles."""


@pytest.mark.parametrize(("chip", "shape", "cycles"), CHANNELS, ids=str)
def test_a_norm_of_channels(chip: str, shape: tuple[int, ...], cycles: int) -> None:
    x = View("lmem", 0, shape, "f32", "aligned")
    weight = View("lmem", 1 << 14, (1, shape[1], 1, 1), "f32", "compact")
    command = Fn(id=1, dep=0, op="", function=fn.GroupNorm(shape[1], 1e-5), inputs=(x, weight, weight), output=x)
    assert tiu_cycles(command, chips.load(chip)) == cycles


STEPS: list[tuple[str, Any, int, int]] = [
    ("bm1684x", "f32", 2, 76),
    ("bm1684x", "f32", 3, 81),
    ("bm1684x", "f32", 8, 80),
    ("bm1684x", "f16", 5, 40),
    ("bm1688", "f32", 4, 300),
    ("bm1688", "f32", 5, 240),
    ("bm1688", "f32", 8, 152),
    ("bm1688", "f16", 8, 152),
]
"""Chip, type and step along w of a Slice of (1, 16, 30, 40) in a layer group; TIU cycles."""


@pytest.mark.parametrize(("chip", "dtype", "step", "cycles"), STEPS, ids=str)
def test_columns_with_a_step(chip: str, dtype: Any, step: int, cycles: int) -> None:
    """Each vector takes as many cycles as the step has elements, at most those of a vector."""
    whole, width = View("lmem", 0, (1, 16, 30, 40), dtype, "aligned"), -(-40 // step)
    shape, spec = (1, 16, 30, width), chips.load(chip)
    read = replace(whole, shape=shape, layout="strided", strides=(1200, 1200, 40, step))
    result = View("lmem", 1 << 14, shape, dtype, "aligned")
    assert tiu_cycles(LaneCopy(id=1, dep=0, op="", input=read, output=result), spec) == cycles


PARTS: list[tuple[str, Any, tuple[int, ...], dict[int, tuple[int, int, int]], int]] = [
    ("bm1688", "f32", (2, 3, 4, 6, 5), {2: (1, 1, 1)}, 362),
    ("bm1688", "f32", (2, 3, 4, 6, 5), {3: (1, 2, 1)}, 434),
    ("bm1688", "f32", (8, 3, 64), {1: (0, 2, 2)}, 699),
    ("bm1688", "f32", (120,), {0: (0, 60, 2)}, 1730),
    ("bm1688", "f32", (200,), {0: (0, 67, 3)}, 692),
    ("bm1688", "i8", (5, 40), {1: (0, 20, 2)}, 9890),
    ("bm1688", "f32", (3, 5, 7, 11, 4), {2: (0, 3, 3)}, 1478),
    ("bm1684x", "f32", (8, 3, 64), {1: (0, 2, 2)}, 628),
    ("bm1684x", "f32", (8, 6, 64), {0: (0, 4, 2)}, 418),
    ("bm1684x", "f32", (2, 3, 4, 6, 8), {4: (0, 2, 1)}, 5654),
    ("bm1684x", "f32", (3, 5, 7, 11, 4), {2: (0, 3, 3)}, 441),
    ("bm1684x", "f32", (1, 3, 5, 7, 11), {3: (1, 3, 1)}, 589),
]
"""Chip, type, shape, (offset, elements, step) of a Slice by axis in global memory; cycles of the copy."""


@pytest.mark.parametrize(("chip", "dtype", "shape", "cut", "cycles"), PARTS, ids=str)
def test_a_part_of_a_tensor_in_global_memory(
    chip: str, dtype: Any, shape: tuple[int, ...], cut: dict[int, tuple[int, int, int]], cycles: int
) -> None:
    """A copy of few pages, whose channels are few, takes longer."""
    extents, strides, size = list(shape), list(dense_strides(shape)), 4 if dtype == "f32" else 1
    first = 0
    for axis, (offset, count, step) in cut.items():
        first += offset * strides[axis] * size
        extents[axis], strides[axis] = count, strides[axis] * step
    read = View("gmem", first, tuple(extents), dtype, "strided", strides=tuple(strides))
    spec = chips.load(chip)
    move = Move(id=1, dep=0, op="", input=read, output=View("gmem", 1 << 20, tuple(extents), dtype, "dense"))
    assert dma_ns(move, spec) * spec.tiu_mhz / 1000 == pytest.approx(cycles, abs=1)


LONE: list[tuple[str, str, tuple[int, ...], int]] = [
    ("bm1684x", "Relu", (2, 5, 8, 16), 3514),
    ("bm1684x", "Relu", (1, 16, 30, 40), 5271),
    ("bm1688", "Relu", (3, 17), 1232),
    ("bm1688", "Relu", (5, 7, 9, 11), 2488),
    ("bm1684x", "Sub", (1, 16, 30, 40), 4391),
    ("bm1684x", "Max", (1, 16, 30, 40), 4391),
    ("bm1684x", "Mul", (1, 16, 30, 40), 4391),
]
"""Chip, op and shape of a network of one op in F32; cycles."""


@pytest.mark.parametrize(("chip", "op", "shape", "cycles"), LONE, ids=str)
def test_an_op_alone_is_a_global_layer(chip: str, op: str, shape: tuple[int, ...], cycles: int) -> None:
    """It takes the time of the library's kernel, 2 % or 4 cycles off at most (U-76)."""
    b = Builder("alone")
    names = [b.input(f"x{i}", *shape) for i in range(1 + (op != "Relu"))]
    b.output(b.node(op, *names))
    network = Network.of("alone", b.model(), [{name: np.zeros(shape, np.float32) for name in names}])
    compiled = Compiled.of(network, chip, "f32")
    assert all(group.reason for group in compiled.program().groups)
    assert our_clock(compiled).cycles == pytest.approx(cycles, 0.02, abs=4)


CUTS: list[tuple[tuple[int, ...], tuple[int, int, int]]] = [
    ((6, 5, 4, 7), (1, 6, 2)),
    ((4, 70, 3, 3), (2, 4, 1)),
    ((2, 40, 5, 5), (1, 2, 1)),
]


@pytest.mark.parametrize(("shape", "cut"), CUTS, ids=str)
def test_a_part_of_the_batch_is_taken_in_local_memory(shape: tuple[int, ...], cut: tuple[int, int, int]) -> None:
    """As in TPU-MLIR's groups; the machine computes what flat inference does."""
    b = Builder("cut")
    y = b.node("Relu", b.input("x", *shape))
    start, end, step = cut
    b.output(b.node("Slice", b.node("Mul", y, y), *(b.constant(np.array([n])) for n in (start, end, 0, step))))
    sample = {"x": np.linspace(-2, 2, int(np.prod(shape)), dtype=np.float32).reshape(shape)}
    compiled = tpusim.compile(b.model(), [sample], chip="bm1688", mode="int8")
    local = [name for group in compiled.program.groups if not group.reason for name in group.ops]
    assert any("slice" in name for name in local)
    assert compiled.verify(sample).bit_exact
