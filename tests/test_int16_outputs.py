"""`output_int16`: products in front of ops in float keep 16 bits, flat and on the machine (numerics.md 2.2, 3.4)."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from builders.timings import in_every_order
from compiling import to_calibrated, to_canonical, to_program, to_reordered, to_tpu
from networks import randomly_grouped
from op_row import network, node, values
from plain_names import import_onnx
from rotation import one_in
from rows import tpu_ops

from tpusim.inference import dequantised, run
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ir.types import element_of, storage_dtype

Array = np.ndarray
IMAGE = (1, 5, 6, 5)
ROWS = (2, 70, 12)


def calibrated(build: object, shapes: dict[str, tuple[int, ...]], feeds: dict[str, Array]) -> Model:
    clean = to_canonical(import_onnx(build(shapes), name="wide"))  # type: ignore[operator]
    return to_calibrated(clean, [feeds])


@cache
def detector(pools: int = 3, behind: str = "Reshape", activation: str = "silu") -> tuple[Model, dict[str, Array]]:
    """Pyramid pooling, SiLU, the head's convolution "y", and what reads it: "z"."""
    nodes = [node("MaxPool", "x" if i == 0 else f"p{i - 1}", f"p{i}", kernel_shape=[3, 3], pads=[1] * 4)
             for i in range(pools)]  # fmt: skip
    nodes += [node("Concat", " ".join(["x", *(f"p{i}" for i in range(pools))]), "j", axis=1), node("Conv", "j w", "c")]
    if activation == "silu":
        nodes += [node("Sigmoid", "c", "g"), node("Mul", "c g", "a")]
    else:
        nodes += [node("Relu", "c", "a")]
    nodes += [node("Conv", "a v", "y")]
    constants = {"w": values((6, 5 * (pools + 1), 1, 1)), "v": values((4, 6, 1, 1)), "t": np.array([1, 2, 2, -1])}
    nodes.append(node("Reshape", "y t", "z") if behind == "Reshape" else node("Concat", "y x", "z", axis=1))
    if behind == "Conv":
        nodes[-1:] = [node("Concat", "y x", "z", axis=1), node("Conv", "z u", "o")]
        constants["u"] = values((3, 9, 1, 1))
    feeds = {"x": values(IMAGE, 3)}
    nodes[-1].output[0] = "o" if behind == "Conv" else "z"
    return calibrated(_named(network(nodes, constants), nodes[-1].output[0]), {"x": IMAGE}, feeds), feeds


def _named(build: object, output: str) -> object:
    """The builder of a network whose output has another name than "y"."""

    def renamed(shapes: dict[str, tuple[int, ...]]) -> object:
        model = build(shapes)  # type: ignore[operator]
        model.graph.output[0].name = output
        return model

    return renamed


def bits(model: Model, name: str) -> int:
    return 8 * storage_dtype(element_of(next(op for op in tpu_ops(model) if op_name(op) == name).results[0])).itemsize


@pytest.mark.parametrize(("how", "table", "chip", "wide"), [
    ({}, "z:F16", "bm1684x", True), ({}, "z:BF16", "bm1688", True), ({"behind": "Concat"}, "z:F16", "cv186x", True),
    ({}, "z:F32", "bm1684x", False), ({}, None, "bm1684x", False), ({}, "z:F16", "bm1690", False),
    ({"pools": 2}, "z:F16", "bm1684x", False), ({"behind": "Conv"}, "z:F16", "bm1684x", False),
    ({"activation": "relu"}, "z:F16", "bm1684x", False),
])  # fmt: skip
def test_which_convolutions_keep_16_bits(how: dict[str, object], table: str | None, chip: str, wide: bool) -> None:
    """SiLU -> Conv -> Reshape or Concat in a 16-bit float, in a network with three chained pools; no other."""
    model = to_tpu(detector(**how)[0], chip, qtable=table)  # type: ignore[arg-type]
    assert bits(model, "y") == (16 if wide else 8)


@cache
def product(far: float) -> tuple[Model, dict[str, Array]]:
    """X times a matrix, plus a tensor with a range `far` times as large."""
    feeds = {"x": values(ROWS, 3), "o": values((2, 70, 20), 4) * np.float32(far)}
    build = network([node("MatMul", "x w", "m"), node("Add", "m o")], {"w": values((1, 12, 20))})
    return calibrated(build, {"x": ROWS, "o": (2, 70, 20)}, feeds), feeds


@pytest.mark.parametrize(
    ("kind", "chip"),
    one_in(3, (("product", "bm1684x"), ("product", "bm1688"), ("detector", "bm1684x"), ("detector", "bm1688"))),
)
def test_machine_and_flat_agree_on_16_bits(kind: str, chip: str) -> None:
    """In random groups, under both DMA timings; and the 16 bits are worth having."""
    top, feeds = product(1000.0) if kind == "product" else detector()
    name, table = ("m", None) if kind == "product" else ("y", "z:F16")
    model = to_tpu(top, chip, qtable=table)
    assert bits(model, name) == 16
    flat, ready, local = run(model, feeds), to_reordered(model), 0
    for trial in range(3):
        divided, plans = randomly_grouped(ready, np.random.default_rng(trial))
        local += any(op_name(op) == name for p in plans for op in p.graph.ops)
        machine = in_every_order(to_program(divided), feeds)
        assert machine[name].dtype == np.int16
        np.testing.assert_array_equal(machine[name], flat[name])
    assert local
    assert np.abs(flat[name]).max() > 10000
    narrow = to_tpu(top, "bm1690", qtable=table)  # the same integers, 8 bits of them kept
    wanted, errors = run(top, feeds)[name], list[float]()
    for one, tensors in ((model, flat), (narrow, run(narrow, feeds))):
        errors.append(float(np.abs(dequantised(one, tensors)[name] - wanted).mean()))
    assert bits(narrow, name) == 8 and errors[0] < errors[1]


def test_16_bits_by_python_integers() -> None:
    """sat16(RSR(sum q*w * m, r, half up)) of every element, and with a multiplier per column."""
    for columns in (False, True):
        model = to_tpu(product(1000.0)[0], "bm1684x", matmul_perchannel=columns)
        op = next(op for op in tpu_ops(model) if op_name(op) == "m")
        w = model.weights[op_name(op.operands[1].owner)]  # type: ignore[arg-type]
        m, r = (np.array([int(v.value.data) for v in op.attributes[k]], object) for k in ("multipliers", "rshifts"))  # type: ignore[attr-defined,union-attr]
        q = np.random.default_rng(0).integers(-128, 128, ROWS).astype(np.int8)
        wide = (q.astype(object) @ w.astype(object)) * m
        expected = np.clip(((wide + (1 << int(r[0]) - 1)) >> int(r[0])).astype(np.int64), -32768, 32767)
        np.testing.assert_array_equal(np.asarray(op.inference([q, w, None])[0]), expected.astype(np.int16))
        assert (np.abs(expected) == 32767).any() or (expected == -32768).any()
