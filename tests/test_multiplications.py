"""How many multiply-accumulates a network has: of ops, of headers and of commands the same number, which NumPy counts.

The number is known from the ONNX shapes alone: of a convolution each tap for each output, of a transposed one each tap
for each input, of a product the inner axis for each output.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import onnx
import pytest
from builders.calibrated import ranged
from compiling import to_canonical, to_program, to_reordered
from msgspec import structs
from op_row import Shape, network, node
from plain_names import import_onnx
from rows import tpu_ops
from slicings import Forced
from xdsl.dialects.builtin import NoneType

from tpusim.errors import SimulationError, UnsupportedError
from tpusim.ir.attrs import op_name
from tpusim.isa.stream import Program
from tpusim.lowering import LoweringConfig
from tpusim.ops.framework.base import GroupType
from tpusim.ops.interfaces import macs_of
from tpusim.ops.structure import TopWeight
from tpusim.registry import STRATEGIES
from tpusim.schedule import Sections
from tpusim.simulator import Simulator
from tpusim.simulator.multiplications import multiplications

TARGETS = [
    LoweringConfig("bm1684x", "int8"), LoweringConfig("bm1684x", "f32"), LoweringConfig("bm1688", "f16"),
    LoweringConfig("bm1684", "int8"), LoweringConfig("bm1684", "f32"), LoweringConfig("bm1690", "bf16"),
    LoweringConfig("cv183x", "int8"), LoweringConfig("cv183x", "bf16"), LoweringConfig("bm1688", "int8"),
]  # fmt: skip
SEEDS = range(36)
Rng = np.random.Generator


def some(rng: Rng, low: int, high: int) -> int:
    return int(rng.integers(low, high + 1))


def channels(rng: Rng) -> tuple[int, int, int]:
    """(groups, input channels, output channels): one group, several, or one for each channel."""
    form = some(rng, 0, 2)
    groups = (1, some(rng, 2, 3), some(rng, 3, 9))[form]
    each = (some(rng, 1, 9), some(rng, 1, 3)) if form < 2 else (1, 1)
    return groups, groups * each[0], groups * each[1]


def convolution(rng: Rng, axes: int, name: str, x: str, shape: Shape) -> tuple[Any, dict[str, Any], int, Shape]:
    """(node, weights, multiply-accumulates, shape of the result) of a convolution, transposed or not."""
    transposed = bool(rng.integers(2))
    groups, _, oc = channels(rng)
    groups = groups if shape[1] % groups == 0 else 1
    oc = groups * max(1, oc // groups)
    kernel = [some(rng, 1, 3) for _ in range(axes)]
    strides, dilations = ([some(rng, 1, 2) for _ in range(axes)] for _ in range(2))
    if not transposed:
        kernel = [min(k, (n - 1) // d + 1) for k, n, d in zip(kernel, shape[2:], dilations, strict=True)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = [some(rng, 0, r // 2) for r in reach] * 2
    filter_ = (shape[1], oc // groups, *kernel) if transposed else (oc, shape[1] // groups, *kernel)
    more: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads}
    extents = list(zip(shape[2:], reach, strides, pads, strict=False))
    if transposed:
        extra = [some(rng, 0, max(s, d) - 1) for s, d in zip(strides, dilations, strict=True)]
        more["output_padding"] = extra
        spatial = [(n - 1) * s + r - 2 * p + e for (n, r, s, p), e in zip(extents, extra, strict=True)]
    else:
        spatial = [(n + 2 * p - r) // s + 1 for n, r, s, p in extents]
    weight = rng.normal(size=filter_).astype(np.float32)
    made = node("ConvTranspose" if transposed else "Conv", f"{x} w_{name}", name, group=groups, **more)
    result = (shape[0], oc, *spatial)
    count = prod(shape) * filter_[1] if transposed else prod(result) * filter_[1]
    return made, {f"w_{name}": weight}, count * prod(kernel), result


def windows(rng: Rng) -> tuple[onnx.ModelProto, int]:
    """Two convolutions, one after the other, over 1 to 3 axes.

    The lowering joins a 1x1 convolution with the next one and fills up the filters of some groups with zeros: then the
    number is 0, not known here.
    """
    axes = some(rng, 1, 3)
    first = shape = (some(rng, 1, 3), channels(rng)[1], *(some(rng, 6, 9) for _ in range(axes)))
    nodes, weights, total, known = [], {}, 0, True
    for x, name in ("xm", "my"):
        made, weight, count, shape = convolution(rng, axes, name, x, shape)
        nodes.append(made)
        known &= prod(weight[f"w_{name}"].shape[2:]) > 1 and next(a.i for a in made.attribute if a.name == "group") == 1
        weights |= weight
        total += count
    return network(nodes, weights)({"x": first}), total * known


def product(rng: Rng) -> tuple[onnx.ModelProto, int]:
    """A product of two tensors, or of one and a constant, batched or not."""
    batch, rows, inner, columns = some(rng, 1, 3), some(rng, 2, 9), some(rng, 2, 70), some(rng, 2, 70)
    left, right = (batch, rows, inner), (batch, inner, columns)
    count, form = batch * rows * inner * columns, some(rng, 0, 3)
    if form == 0:
        return network([node("MatMul", "x z")])({"x": left, "z": right}), count
    if form == 1:
        weight = rng.normal(size=right[1:]).astype(np.float32)
        return network([node("MatMul", "x w")], {"w": weight})({"x": left}), count
    weight = rng.normal(size=(columns, inner)).astype(np.float32)
    if form == 2:
        return network([node("Gemm", "x w", transB=1)], {"w": weight})({"x": left[1:]}), count // batch
    four = network([node("MatMul", "x z")])({"x": (batch, 2, rows, inner), "z": (batch, 2, inner, columns)})
    return four, 2 * count


def scale(rng: Rng) -> tuple[onnx.ModelProto, int]:
    """A normalisation alone, a multiply-add for each element; the number is 0, as some chips make it a convolution."""
    c = some(rng, 2, 70)
    shape = (some(rng, 1, 3), c, some(rng, 2, 9), some(rng, 2, 9))
    weights = {key: rng.uniform(0.5, 2, c).astype(np.float32) for key in "sbmv"}
    return network([node("BatchNormalization", "x s b m v")], weights)({"x": shape}), 0


def tpu_module(model: onnx.ModelProto, config: LoweringConfig) -> Any:
    top = to_canonical(import_onnx(model))
    if config.mode == "int8":
        ops = (op for op in top.ops if op.results and not isinstance(op, TopWeight))
        top = ranged(top, {op_name(op): (-4.0, 4.0) for op in ops if not isinstance(op.results[0].type, NoneType)})
    return to_reordered(top, config)


@pytest.mark.every(2)
@pytest.mark.parametrize("seed", SEEDS)
def test_ops_header_and_commands_agree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random geometries, whole and cut into sections with halos, in every family of chips and modes."""
    rng = np.random.default_rng(seed)
    model, count = (windows, windows, product, scale)[seed % 4](rng)
    config = TARGETS[seed % len(TARGETS)]
    cuts = Sections(n=some(rng, 1, 2), h=1 if config.chip == "cv183x" else some(rng, 2, 3))
    volume = len(model.graph.input[0].type.tensor_type.shape.dim) == 5  # noqa: PLR2004  n, c, d, h, w
    kind = GroupType.GROUP_3D if volume else GroupType.NORMAL
    monkeypatch.setitem(STRATEGIES.entries, "forced", Forced(cuts, kind))
    try:
        module = tpu_module(model, config)
    except UnsupportedError:  # volumes on some chips
        module = tpu_module(model, LoweringConfig("bm1684x", "f32"))
    total = sum(macs_of(op) for op in tpu_ops(module))
    assert total and total == (count or total)
    for strategy in ("forced", "off"):
        program = to_program(module.clone(), strategy)
        assert multiplications(program) == (total, total) and program.header.macs == total
        assert not Simulator(program).unconfirmed.get("number of multiplications")
        refused(program, total + 1)
        refused(program, total - 1)


def refused(program: Program, macs: int) -> None:
    wrong = structs.replace(program, header=structs.replace(program.header, macs=macs))
    with pytest.raises(SimulationError, match=f"multiplications from .* is required, got {macs:,}; correct macs"):
        Simulator(wrong)


BY_HAND: list[tuple[str, Shape, Shape, dict[str, Any], int]] = [
    ("ConvTranspose", (1, 4, 8, 8), (4, 4, 3, 3), {}, 9216),  # 256 inputs, each by 4 channels and 9 taps
    ("ConvTranspose", (1, 4, 8, 8), (4, 4, 3, 3), {"dilations": [2, 2]}, 9216),
    ("ConvTranspose", (1, 4, 8, 8), (4, 4, 3, 3), {"strides": [2, 2], "output_padding": [1, 1]}, 9216),
    ("ConvTranspose", (1, 4, 8, 8), (4, 4, 3, 3), {"pads": [2, 2, 2, 2]}, 9216),
    ("ConvTranspose", (1, 4, 8, 8), (4, 1, 3, 3), {"group": 4}, 2304),
    ("ConvTranspose", (1, 4, 8), (4, 6, 3), {}, 576),
    ("Conv", (1, 4, 8, 8), (4, 4, 3, 3), {}, 5184),  # 144 results of 36 products
    ("Conv", (1, 4, 8, 8), (4, 4, 3, 3), {"pads": [1, 1, 1, 1]}, 9216),
]
"""(node, shape of x, of the filter, attributes, number)."""


@pytest.mark.every
@pytest.mark.parametrize("number", range(len(BY_HAND)))
def test_numbers_by_hand(number: int) -> None:
    """Every case on four chips; the first one was refused on all."""
    kind, shape, filter_, more, count = BY_HAND[number]
    weight = np.random.default_rng(number).normal(size=filter_).astype(np.float32)
    model = network([node(kind, "x w", kernel_shape=filter_[2:], **more)], {"w": weight})({"x": shape})
    for config in (TARGETS[0], TARGETS[3], TARGETS[6], TARGETS[8]):
        program = to_program(tpu_module(model, config))
        assert program.header.macs == count and multiplications(program) == (count, count)
        Simulator(program)
