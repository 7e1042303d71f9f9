"""W4INT8: INT8 with weights of 4 bits in filters and matrices, packed for the chip.

The numbers of the real chip are in tests/upstream (four_bit_filters, four_bit_products).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from builders.timings import in_every_order
from op_row import network, node, values

import tpusim
from tpusim.compiled import Compiled
from tpusim.errors import UnsupportedError
from tpusim.inference import run
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.packing import pack
from tpusim.isa.commands import Conv, GlobalKernel, MatMul

SHAPE = (1, 5, 6, 7)
FEEDS = {"x": values(SHAPE, 3, -1.0, 2.0)}


@cache
def compiled(chip: str = "bm1688", mode: str = "w4int8", **options: Any) -> Compiled:
    """A convolution of odd channels, a depthwise one, a product, and a matrix for the whole image."""
    window = dict(kernel_shape=[3, 3], pads=[1] * 4)
    nodes = [
        node("Conv", "x w b", "c", **window), node("Conv", "c dw", "d", group=3, **window), node("MatMul", "d m", "p"),
        node("Flatten", "p", "f"), node("Gemm", "f g", "y", transB=1),
    ]  # fmt: skip
    shapes = {"w": (3, 5, 3, 3), "b": (3,), "dw": (3, 1, 3, 3), "m": (7, 5), "g": (9, 90)}
    constants = {name: values(shape, at) for at, (name, shape) in enumerate(shapes.items())}
    return tpusim.compile(network(nodes, constants)({"x": SHAPE}), [FEEDS], chip=chip, mode=mode, **options)


def weights(found: Compiled, name: str) -> np.ndarray:
    """The constant of a lowered product or convolution."""
    op = next(op for op in found.tpu.ops if op.name in ("tpu.Conv2D", "tpu.MatMul") and op_name(op).startswith(name))
    return found.tpu.weights[value_name(op.operands[1])]


def test_which_weights_have_4_bits() -> None:
    """The filter by channel and the matrices as a whole; a depthwise filter has 8 bits."""
    found = compiled()
    largest = {name: int(np.abs(weights(found, name).astype(int)).max()) for name in ("c", "d", "p", "y")}
    assert largest == {"c": 7, "d": 127, "p": 7, "y": 7}
    assert (np.abs(weights(found, "c").reshape(3, -1)).max(axis=1) == 7).all()
    assert {op.number for op in found.fidelity.ops} == {"int8"}


def test_two_weights_share_a_byte_on_the_chip() -> None:
    """In the coefficients, in the views of the commands, and in the bytes that are loaded."""
    found, wide = compiled(), compiled(mode="int8")
    image = found.program.coefficients.tobytes()
    matrix = weights(found, "y")
    assert pack(matrix).tobytes() in image and pack(weights(found, "p")).tobytes() in image
    bodies = [c.body if isinstance(c, GlobalKernel) else c for c in found.program.commands]
    assert {c.right.dtype for c in bodies if isinstance(c, MatMul)} == {"i4"}
    assert {c.op: c.filter.dtype for c in bodies if isinstance(c, Conv)} == {"c_Conv": "i4", "d_Conv": "i8"}
    loaded = [sum(c.traffic()[0] for c in one.program.commands) for one in (found, wide)]
    assert loaded[0] < loaded[1] - matrix.size // 3


@pytest.mark.parametrize("options", [{}, {"asymmetric": True}, {"chip": "cv186x", "cores": 1}], ids=str)
def test_machine_and_flat_inference_agree_in_every_bit(options: dict[str, Any]) -> None:
    """In every order of DMA; and the program provably computes its module."""
    found = compiled(**options)
    flat, machine = run(found.tpu, FEEDS), in_every_order(found.program, FEEDS)
    shared = [name for name in machine if name in flat and machine[name].dtype.kind in "iu"]
    assert len(shared) >= 3
    assert all(np.array_equal(machine[name], flat[name].reshape(machine[name].shape)) for name in shared)
    assert found.verify(FEEDS).bit_exact and found.prove().passed


@pytest.mark.parametrize(("shape", "columns", "groups"), [
    ((3, 9), 1, "auto"), ((3, 8), 1, "auto"), ((1, 1), 1, "auto"), ((2, 4, 3), 1, "auto"), ((2, 4, 3), 1, "off"),
    ((3, 9), 17, "auto"), ((2, 5), 257, "auto"),
])  # fmt: skip
def test_each_row_begins_at_a_byte(shape: tuple[int, ...], columns: int, groups: str) -> None:
    """Also of one weight, and in a last tile of one column: so the real chip loads them (four_bit_column)."""
    model = network([node("MatMul", "x w", "y")], {"w": values((shape[-1], columns))})({"x": shape})
    strategy = {"layer_group": groups} if groups == "off" else {}
    found = tpusim.compile(model, [{"x": values(shape, 1)}], chip="bm1688", mode="w4int8", **strategy)
    proof = found.prove()
    assert proof.passed and not proof.unjudged, proof
    assert pack(weights(found, "y")).nbytes == shape[-1] * -(-columns // 2)


def test_powers_of_two_stay_as_they_are_only_if_they_fit() -> None:
    """3/4 is 3 of 4 bits and a scale of 1/4; 5 is 20, which needs 6 bits, so that the filter has scales by channel."""
    for largest, stored in ((0.75, 3), (5.0, 7)):
        filter = np.full((2, 3, 1, 1), -0.25, np.float32)
        filter[1] = largest
        model = network([node("Conv", "x w", "y")], {"w": filter})({"x": (1, 3, 4, 4)})
        found = tpusim.compile(model, [{"x": values((1, 3, 4, 4), 1, -1.0, 1.0)}], chip="bm1688", mode="w4int8")
        assert weights(found, "y").max() == stored


def test_a_table_gives_single_ops_4_bits() -> None:
    found = compiled(mode="int8", qtable="p:W4INT8")
    assert [int(np.abs(weights(found, name).astype(int)).max()) for name in ("p", "y")] == [7, 127]
    assert [str(op.attributes.get("weight_bits")) for op in found.tpu.ops if op.name == "tpu.Conv2D"] == ["None"] * 2


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "bm1684x": (
        dict(chip="bm1684x"),
        "mode w4int8 on bm1684x: .* weights of 4 bits is required; bm1688, cv186x have it",
    ),
    "bm1690": (dict(chip="bm1690"), "mode w4int8 on bm1690"),
    "cv183x": (dict(chip="cv183x"), "mode w4int8 on cv183x"),
    "a table": (dict(chip="bm1684x", mode="int8", qtable="p:W4INT8"), "mode w4int8 on bm1684x"),
    "columns": (dict(matmul_perchannel=True), "w4int8 with matmul_perchannel: bm1688 computes such products wrongly"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_refused(case: str) -> None:
    options, words = WRONG[case]
    with pytest.raises(UnsupportedError, match=words):
        compiled(**options)


def test_a_matrix_for_every_batch_is_refused() -> None:
    model = network([node("MatMul", "x w", "y")], {"w": values((3, 4, 5))})({"x": (3, 2, 4)})
    with pytest.raises(UnsupportedError, match=r"top.MatMul 'y_MatMul': one matrix .* got 3, .* INT8 for this op"):
        tpusim.compile(model, [{"x": values((3, 2, 4), 1)}], chip="bm1688", mode="w4int8")
