"""F8E5M2: floats of 8 bits in the ops that have them, with the numbers of the closed simulator.

The numbers of the real chip are in tests/upstream (eight_bit_floats).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from builders.timings import in_every_order
from op_row import network, node, values

import tpusim
from tpusim.compiled import Compiled
from tpusim.errors import UnsupportedError
from tpusim.inference import run
from tpusim.ir.attrs import op_name
from tpusim.ir.module import load_model, save_model
from tpusim.ops import context

SHAPE = (1, 5, 6, 8)
FEEDS = {"x": values(SHAPE, 3, -1.0, 2.0)}
F8 = ml_dtypes.float8_e5m2
TIES = {"x": np.array([[1.125, -1.375, 2.25, 7.6293945e-6, 7e4, -1.5]], np.float32)}


@cache
def compiled(mode: str = "f8e5m2", **options: Any) -> Compiled:
    """A convolution, pools, a number, a product with a relu, and ops that run in F16 and F32."""
    window = dict(kernel_shape=[2, 2], strides=[1, 1])
    nodes = [
        node("Conv", "x w b", "c", kernel_shape=[3, 3], pads=[1] * 4), node("Relu", "c", "r"),
        node("MaxPool", "r", "p", **window), node("AveragePool", "p", "q", **window), node("Mul", "q t", "f"),
        node("Concat", "f q", "l", axis=1), node("MatMul", "l m", "s"), node("Relu", "s", "u"),
        node("Softmax", "u", "y", axis=-1),
    ]  # fmt: skip
    constants: dict[str, np.ndarray] = {"w": values((8, 5, 3, 3)), "b": values((8,), 1), "m": values((6, 7), 2)}
    model = network(nodes, constants | {"t": np.array(0.7, np.float32)})({"x": SHAPE})
    return tpusim.compile(model, [FEEDS], chip="bm1690", mode=mode, **options)


def ties(**options: Any) -> Compiled:
    """A cast, and a sum, of which numbers lie in the middle of two numbers of 8 bits."""
    model = network([node("Relu", "x", "r"), node("Add", "r x")])({"x": (1, 6)})
    return tpusim.compile(model, chip="bm1690", mode="f8e5m2", **options)


def test_machine_and_flat_inference_agree_in_every_bit() -> None:
    """In every order of DMA; and the program provably computes its module."""
    found = compiled()
    flat, machine = run(found.tpu, FEEDS), in_every_order(found.program, FEEDS)
    narrow = [name for name in machine if name in flat and machine[name].dtype == F8]
    assert len(narrow) >= 4
    assert all(np.array_equal(machine[n].view(np.uint8).ravel(), flat[n].view(np.uint8).ravel()) for n in narrow)
    proof = found.prove()
    assert proof.passed and not proof.unjudged


def test_which_ops_have_8_bits() -> None:
    """A Concat and its operands are in F16, a Softmax in F32; a table gives single ops the type."""
    numbers = {op.op: op.number for op in compiled().fidelity.ops}
    wide = {"f_Mull_Concat_f16": "f16", "l_Concat": "f16", "y_Softmax": "f32"}
    assert {name: number for name, number in numbers.items() if number != "f8E5M2"} == wide
    mixed = {op.op: op.number for op in compiled("bf16", qtable="r_Relu:F8E5M2").fidelity.ops}
    assert [name for name, number in mixed.items() if number == "f8E5M2"] == ["r_Relu"]


def test_casts_round_ties_away_and_results_round_them_to_even() -> None:
    """1.125 is 1.25 on the chip and 1 in the interpreter; beyond 57344 is an infinity."""
    chip, interpreter = (run(ties(**o).tpu, TIES) for o in ({}, {"arithmetic": "interpreter"}))
    cast = "x_f8e5m2"
    assert chip[cast].astype(np.float32).tolist() == [[1.25, -1.5, 2.5, 2.0**-16, np.inf, -1.5]]
    assert interpreter[cast].astype(np.float32).tolist() == [[1.0, -1.5, 2.0, 0.0, np.inf, -1.5]]
    assert np.array_equal(in_every_order(ties().program, TIES)[cast].view(np.uint8), chip[cast].view(np.uint8))


def test_the_relu_of_a_product_is_lost_as_by_the_real_compiler() -> None:
    """In F8 only, until the quirk is off."""
    kept = {"quirks_off": ("f8_product_without_relu",)}
    lost, found = (run(compiled(**o).tpu, FEEDS)["u_Relu"].astype(np.float32) for o in ({}, kept))
    assert lost.min() < 0 == found.min()
    marks = {op.op: op.decisions for op in compiled().fidelity.ops}
    assert marks["u_Relu"] == ("DN-02 f8_product_without_relu",)


def test_a_product_with_a_number_has_the_type_of_its_cast() -> None:
    """No rounding to 8 bits lies between a MulConst and the F16 of a Concat (FuseCastToF8MulConst)."""
    op = next(op for op in compiled().tpu.ops if op.name == "tpu.MulConst")
    assert (op_name(op), str(op.results[0].type)) == ("f_Mull_Concat_f16", "tensor<1x8x4x6xf16>")


def test_modules_and_weights_are_read_again(tmp_path: Path) -> None:
    found = compiled()
    save_model(found.tpu, tmp_path / "4_tpu.mlir")
    again = load_model(tmp_path / "4_tpu.mlir", context())
    one, other = (run(model, FEEDS)["u_Relu"] for model in (found.tpu, again))
    assert one.dtype == other.dtype == F8 and np.array_equal(one.view(np.uint8), other.view(np.uint8))


def test_chips_without_the_type_refuse_it() -> None:
    model = network([node("Relu", "x")])({"x": (1, 6)})
    with pytest.raises(UnsupportedError, match="mode f8e5m2 on bm1684x: supported are f32, f16, bf16, int8"):
        tpusim.compile(model, chip="bm1684x", mode="f8e5m2")
