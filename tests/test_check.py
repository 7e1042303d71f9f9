"""`tpusim check` and sub-networks: the report is what a run makes; a cut computes the whole network's tensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from exported import FLOATS, NETWORKS, Net, sample
from onnx import TensorProto, helper

import tpusim
from tpusim.calibration.stage import CalibrationConfig
from tpusim.cli import main
from tpusim.errors import ImportModelError
from tpusim.fidelity import card_of
from tpusim.frontend import Cut, OnnxReference, import_onnx
from tpusim.ir.attrs import op_name
from tpusim.layer_group import GlobalView, views


def saved(folder: Path, proto: onnx.ModelProto) -> Path:
    path = folder / "net.onnx"
    onnx.save(proto, path)
    return path


def checked(path: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    status = main(["check", str(path), "--json", *words])
    return status, json.loads(capsys.readouterr().out)


def test_what_is_foretold_is_what_compiling_makes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto, feeds = NETWORKS["gpt-where-lowest"]()
    status, told = checked(saved(tmp_path, proto), capsys, "--quirks-off", "masks_in_integers")
    method = CalibrationConfig("max")
    net = tpusim.compile(import_onnx(proto), [feeds], calibration=method, quirks_off="masks_in_integers")
    made = {op.op: op for op in card_of(net.tpu).ops}
    foretold = {op["op"]: op for op in told["ops"] if op["kind"] != "tpu.Cast"}
    assert status == 0 and told["taken"] and foretold.keys() == made.keys()
    assert {name: (op["kind"], op["number"], op["status"]) for name, op in foretold.items()} == {
        name: (op.kind, op.number, op.status) for name, op in made.items()
    }
    away = {view.name for view in views(net.grouped) if isinstance(view, GlobalView)}
    assert {name for name, op in foretold.items() if op["not_local"]} <= away
    masked = foretold["t16_Softmax"]
    assert masked["status"] == "float" and "mask" in masked["reason"]


def test_every_way_of_import_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = Net(18)
    x = net("Relu", net("Identity", "x"))
    x = net("Add", net("Mish", net("Celu", x)), net("Mul", np.ones(4), 2.0))
    same = [net("Exp", x), net("Exp", x)]
    path = saved(tmp_path, net.model({"x": (FLOATS, (2, 4))}, net("CumSum", net("Add", *same), np.array(1))))
    _, told = checked(path, capsys, "--mode", "f32")
    hows = {(n["op_type"], n["how"]) for n in told["nodes"]}
    assert hows == {
        ("Identity", "passed on"), ("Relu", "mapped"), ("Celu", "function body"), ("Mish", "mapped"), ("Mul", "folded"),
        ("Add", "mapped"), ("Exp", "mapped"), ("Exp", "merged"), ("CumSum", "mapped"),
    }  # fmt: skip
    held = {op["op"] for op in told["ops"]}
    assert all(n["inside"] in held for n in told["nodes"] if n["top"])


def test_what_is_refused_is_named_with_the_cut_before_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = Net()
    y = net("Relu", net("Neg", "x"))
    z = net("Abs", net("Bernoulli", y))
    path = saved(tmp_path, net.model({"x": (FLOATS, (2, 4))}, z, net("Exp", y)))
    status, told = checked(path, capsys)
    assert status == 1 and not told["taken"] and told["cut"] == [y] and "Bernoulli" in told["refused"]
    assert [n["how"] for n in told["nodes"]] == ["mapped", "mapped", "refused", "mapped", "mapped"]
    assert main(["check", str(path)]) == 1
    assert f"--outputs {y}" in capsys.readouterr().out
    status, told = checked(path, capsys, "--outputs", y)
    assert status == 0 and not told["cut"]


def test_a_cut_computes_what_the_whole_does_there(tmp_path: Path) -> None:
    net = Net()
    x = net("Conv", "x", np.ones((4, 2, 1, 1)))
    parts = ["left", "right"]
    net.nodes.append(helper.make_node("Split", [x], parts, axis=1, num_outputs=2))
    y = net("Add", net("Relu", "left"), net("Exp", "right"))
    proto = net.model({"x": (FLOATS, (1, 2, 3, 3))}, net("Neg", y), net("Abs", "x"))
    proto.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "h"
    shapes = {"x": (1, 2, 3, 3)}
    cut = Cut(("left",), (y,))  # the other part still comes from x
    feeds = {"x": sample(1, 2, 3, 3), "left": sample(1, 2, 3, 3)}
    whole = OnnxReference(proto, input_shapes=shapes).run(feeds)
    wanted = np.maximum(feeds["left"], 0) + np.exp(whole["right"])
    theirs = OnnxReference(proto, [y], input_shapes=shapes, cut=cut).run(feeds)
    np.testing.assert_allclose(theirs[y], wanted, rtol=1e-6)
    model = import_onnx(proto, input_shapes=shapes, cut=cut)
    found = tpusim.infer(model, feeds)
    np.testing.assert_allclose(found[f"{y}_Add"], wanted, rtol=1e-6)
    assert sorted(op_name(op) for op in model.ops if op.name == "top.Input") == ["left", "x"]
    path, out = saved(tmp_path, proto), tmp_path / "top.mlir"
    words = ["import", str(path), "--out", str(out), "--inputs", "left", "right", "--outputs", y]
    assert main([*words, "--input-shapes", "x=1x2x3x3"]) == 0
    assert "top.Conv" not in out.read_text() and '"top.Add"' in out.read_text()


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (Cut(outputs=("t9",)), "no tensor named 't9' to cut at, ONNX names are required; similar names are"),
        (Cut(("t1",), ("t0",)), r"'t0' do not depend on input 't1'; leave it out of inputs="),
        (
            Cut(("t0",)),
            r"static input shapes are required, got 't0' has shape .*; give them as input_shapes=\{'t0': \(1, ",
        ),
    ],
    ids=["unknown", "later", "extents"],
)
def test_cuts_that_are_none(cut: Cut, message: str) -> None:
    net = Net()
    x = net("Expand", "x", "extents")
    net("Neg", x)
    inputs = {"x": (FLOATS, (1, 4)), "extents": (TensorProto.INT64, (2,))}
    with pytest.raises(ImportModelError, match=message):
        import_onnx(net.model(inputs, net("Abs", "t1")), cut=cut)
