"""Forms in which exporters write functions, against the canonical modules that TPU-MLIR makes of them.

tests/upstream/forms.json has kind, name and number of tensors of each op of `m.mlir`, as model_transform.py wrote it.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from compiling import to_canonical
from exporter_forms import FORMS, ROWS, WIDTH, layer_norm, network
from rotation import first_of

from tpusim.frontend import import_onnx, onnx_outputs
from tpusim.inference import run
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.module import Model
from tpusim.ir.types import is_tensor
from tpusim.ops.framework.base import TopOp
from tpusim.ops.structure import TopInput, TopNone, TopWeight

Made = list[list[str | int]]
"""Kind, name and number of tensors of each op."""
RECORDED: dict[str, Made] = json.loads((Path(__file__).parent / "upstream" / "forms.json").read_text("utf-8"))


def made(model: Model) -> Made:
    ops = (op for op in model.ops if isinstance(op, TopOp) and not isinstance(op, TopInput | TopWeight | TopNone))
    return [[op.name, op_name(op), sum(map(is_tensor, op.operands))] for op in ops]


def test_every_form_is_recorded() -> None:
    assert set(RECORDED) == set(FORMS)


@pytest.mark.parametrize("name", FORMS)
def test_a_form_becomes_the_ops_that_it_becomes_there(name: str) -> None:
    assert made(to_canonical(import_onnx(FORMS[name]()))) == RECORDED[name]


@pytest.mark.parametrize("name", [name for name in FORMS if "tanh" in name])
def test_a_gelu_by_tanh_that_becomes_another_is_told(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Its values differ; those that stay in parts say nothing."""
    found = made(to_canonical(import_onnx(FORMS[name]())))
    told = [record.getMessage() for record in caplog.records if "error function" in record.getMessage()]
    assert bool(told) == any(kind == "top.GELU" for kind, *_ in found)


@pytest.mark.parametrize("name", first_of([name for name in FORMS if "tanh" not in name]))
def test_a_form_computes_what_onnx_runtime_does(name: str) -> None:
    """Not GELU by tanh, which TPU-MLIR takes for that by the error function (U-24)."""
    proto = FORMS[name]()
    model = to_canonical(import_onnx(proto))
    shape = [dim.dim_value for dim in proto.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
    (wanted,) = onnx_outputs(proto, {"x": x}, [proto.graph.output[0].name]).values()
    np.testing.assert_allclose(run(model, {"x": x})[value_name(model.results[0])], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("read", ["elsewhere", "by the network"])
def test_a_sequence_stays_if_an_inner_tensor_is_read(read: str) -> None:
    proto = FORMS["layer_norm-17"]()
    inner = next(node.output[0] for node in proto.graph.node if node.op_type == "Sub")
    if read == "elsewhere":
        proto.graph.node[-1].input[0] = proto.graph.node[-2].output[0]
        proto.graph.node[-1].op_type = "Add"
        proto.graph.node[-1].input.append(inner)
    else:
        proto.graph.output.add(name=inner).type.CopyFrom(proto.graph.output[0].type)
    kinds = [kind for kind, _, _ in made(import_onnx(proto))]
    assert "top.LayerNorm" not in kinds
    assert "top.Sub" in kinds


def test_a_factor_of_another_axis_is_a_product() -> None:
    """TPU-MLIR takes the constant for the channels' and stops, unless it has as many elements."""
    proto = network(layer_norm, (1, WIDTH, 4, WIDTH + 2), axes=(1,), shape=(WIDTH + 2,))
    model = to_canonical(import_onnx(proto))
    assert [kind for kind, *_ in made(model)] == ["top.PixelNorm", "top.Mul", "top.Add"]
    x = np.random.default_rng(7).standard_normal((1, WIDTH, 4, WIDTH + 2)).astype(np.float32)
    (wanted,) = onnx_outputs(proto, {"x": x}, [proto.graph.output[0].name]).values()
    np.testing.assert_allclose(run(model, {"x": x})[value_name(model.results[0])], wanted, rtol=1e-4, atol=1e-5)


def test_opset_18_is_fused_too() -> None:
    """TPU-MLIR stops at ReduceMean of opset 18, whose axes are an operand."""
    kinds = [kind for kind, _, _ in made(import_onnx(network(layer_norm, (1, ROWS, WIDTH), opset=18)))]
    assert kinds == ["top.LayerNorm", "top.Relu"]
