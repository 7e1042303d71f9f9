"""LSTM, GRU and RNN in INT8: all that they are decomposed into has the float type of TPU-MLIR's one op (DN-34)."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from compiling import to_calibrated, to_canonical, to_tpu
from onnx import TensorProto, helper, numpy_helper
from xdsl.ir import Operation

from tpusim.frontend import import_onnx
from tpusim.inference import run
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ir.types import element_of
from tpusim.ops.framework.base import TopOp, holds
from tpusim.ops.patterns.recurrent import PART_OF

STEPS, SIZE = 3, 4
TYPES = {
    ("LSTM", "bm1684x"): "bf16", ("LSTM", "bm1690"): "bf16", ("LSTM", "bm1688"): "f32", ("LSTM", "cv186x"): "f32",
    ("LSTM", "bm1684"): "f32", ("LSTM", "cv183x"): "bf16",
    ("GRU", "bm1684x"): "f32", ("GRU", "bm1688"): "f32", ("GRU", "bm1684"): "f32", ("GRU", "cv183x"): "bf16",
    ("RNN", "bm1684x"): "f32", ("RNN", "cv183x"): "bf16",
}  # fmt: skip
"""Types of tpu.LSTM and tpu.GRU in INT8 modules of TPU-MLIR 1.30.2 on BM1684X, BM1688, BM1684 and CV183x."""


def network(kind: str) -> Model:
    """A product with weights, two recurrent nodes with a sum between them, a product; lengths of the samples."""
    rng, gates = np.random.default_rng(4), {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    held = {
        "w": (SIZE, SIZE), "v": (SIZE, SIZE), "W": (1, gates * SIZE, SIZE), "R": (1, gates * SIZE, SIZE),
        "B": (1, 2 * gates * SIZE), "c": (SIZE,),
    }  # fmt: skip
    weights = [numpy_helper.from_array(rng.normal(size=s).astype(np.float32) * 0.5, n) for n, s in held.items()]
    weights.append(numpy_helper.from_array(np.array([1], np.int64), "one"))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node(kind, ["a", "W", "R", "B", "n"], ["Y"], hidden_size=SIZE),
        helper.make_node("Squeeze", ["Y", "one"], ["s"]),
        helper.make_node("Add", ["s", "c"], ["between"]),
        helper.make_node(kind, ["between", "W", "R", "B", "n"], ["Z"], hidden_size=SIZE),
        helper.make_node("Squeeze", ["Z", "one"], ["t"]),
        helper.make_node("MatMul", ["t", "v"], ["y"]),
    ]
    shape = (STEPS, 2, SIZE)
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
        helper.make_tensor_value_info("n", TensorProto.INT32, [2]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    return import_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), name=kind)


def sample(seed: int) -> dict[str, np.ndarray]:
    x = np.random.default_rng(seed).normal(size=(STEPS, 2, SIZE)).astype(np.float32)
    return {"x": x, "n": np.array([2, STEPS], np.int32)}


@cache
def calibrated(kind: str) -> Model:
    top = to_canonical(network(kind))
    return to_calibrated(top, [sample(0), sample(1)])


def computes(op: Operation) -> bool:
    return isinstance(op, TopOp) and op.name not in ("top.Input", "top.Weight", "top.None")


def types(model: Model) -> dict[str, str]:
    return {op_name(op): str(element_of(op.results[0])) for op in model.ops if op.name.startswith("tpu.")}


@pytest.mark.parametrize(("kind", "chip"), TYPES)
def test_all_parts_have_the_type_of_the_whole(kind: str, chip: str) -> None:
    top = calibrated(kind)
    tpu = to_tpu(top, chip, "int8")
    found, named = types(tpu), {op_name(op): op for op in tpu.ops}
    parts = [
        op for op in top.ops if PART_OF in op.attributes and op_name(op) in found and holds(op.results[0]) == "real"
    ]
    assert len(parts) > 8 * STEPS and not any(PART_OF in op.attributes for op in tpu.ops)
    assert {found[op_name(op)] for op in parts} == {TYPES[kind, chip]}
    assert sum("DN-34" in str(named[op_name(op)].attributes.get("tpusim.decisions")) for op in parts) > 6 * STEPS
    if chip in ("bm1684x", "bm1688"):  # others have products of three axes, or sums with a constant, in float
        assert all("uniform" in found[name] for name in ("a_MatMul", "between_Add"))


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_what_stands_outside_is_no_part_and_what_rewrites_made_is(kind: str) -> None:
    top = calibrated(kind)
    nodes = {op_name(op): str(op.attributes.get(PART_OF, "")) for op in top.ops if computes(op)}
    assert {name for name, node in nodes.items() if not node} <= {
        "a_MatMul", "between_Add", "y_MatMul", "s_Squeeze", "t_Squeeze"
    }  # fmt: skip
    assert set(nodes.values()) - {""} == {f'"{kind}:Y"', f'"{kind}:Z"'}


def test_the_table_counts_more() -> None:
    top = calibrated("LSTM")
    product = next(op_name(op) for op in top.ops if op.name == "top.MatMul" and PART_OF in op.attributes)
    tpu = to_tpu(top, "bm1684x", "int8", qtable=f"{product}:INT8")
    assert "uniform" in types(tpu)[product]


def test_the_float_modes_do_not_change() -> None:
    tpu = to_tpu(to_canonical(network("LSTM")), "bm1684x", "f32")
    assert set(types(tpu).values()) == {"f32"}
    assert run(tpu, sample(1))
