"""Models as bytecode: recognised by content, weights in the file, and the commands that write and show it."""

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from relu_chain import chain
from xdsl.dialects import builtin
from xdsl.ir import Attribute
from xdsl.rewriter import Rewriter

from tpusim.cli import main
from tpusim.errors import ImportModelError
from tpusim.ir.bytecode import Blob, Bytecode, encode, is_bytecode
from tpusim.ir.content import is_module
from tpusim.ir.module import Form, Model, load_model, save_model, save_one_file, without_weights
from tpusim.ir.one_file import SCHEMA, TOOL, WEIGHTS, digest_of, encode_module
from tpusim.ir.text import parse_module, print_module
from tpusim.ir.weights import WeightStore, save_weights
from tpusim.lowering import LoweringConfig
from tpusim.ops import context
from tpusim.running.artefacts import RunConfig, Silent
from tpusim.running.persistence import model_key
from tpusim.running.pipeline import run

TEXT = """
module @net attributes {module.state = "TOP_F32", module.weight_file = "weights.npz"} {
  func.func @main(%arg0: tensor<1x3xf32>) -> tensor<1x3xf32> {
    %0 = "top.Input"(%arg0) : (tensor<1x3xf32>) -> tensor<1x3xf32> loc("in")
    %1 = "top.Weight"() : () -> tensor<3xf32> loc("w")
    %2 = "top.Weight"() : () -> tensor<3xi4> loc("packed")
    %3 = "top.Add"(%0, %1) {do_relu = false, relu_limit = -1.0 : f64} : (tensor<1x3xf32>, tensor<3xf32>) -> tensor<1x3xf32> loc("y")
    func.return %3 : tensor<1x3xf32>
  }
}
"""  # noqa: E501
VALUES = {"w": np.array([1, -2, 0.5], np.float32), "packed": np.array([-8, 3, 7], np.int8)}


@pytest.fixture
def model() -> Model:
    return Model(parse_module(TEXT, context()), WeightStore(VALUES))


def test_weights_in_one_file(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "net.any"
    save_one_file(model, path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["net.any"]
    assert is_bytecode(path) and is_module(path)
    read = load_model(path, context())
    assert read.module.is_structurally_equivalent(model.module)
    assert {name: array.tolist() for name, array in read.weights.items()} == {
        name: array.tolist() for name, array in VALUES.items()
    }
    assert not read.weights["w"].flags.owndata and not read.weights["w"].flags.writeable
    packed = Bytecode.open(path, context()).resources.external[WEIGHTS]["packed"]
    assert isinstance(packed, Blob) and len(packed.raw) == 2


def test_weights_in_an_npz(model: Model, tmp_path: Path) -> None:
    save_model(model, tmp_path / "net.mlir")
    (tmp_path / "net.mlir").write_bytes(encode_module(model.module))
    assert load_model(tmp_path / "net.mlir", context()).weights["w"].tolist() == VALUES["w"].tolist()


@pytest.mark.parametrize(
    ("weights", "why"),
    (
        ({"w": VALUES["w"][:2], "packed": np.zeros(2, np.uint8)}, "'w' of tensor<3xf32> requires a blob of 12 bytes"),
        ({"w": VALUES["w"]}, "'packed' is not there"),
    ),
)  # fmt: skip
def test_weights_that_do_not_fit(model: Model, tmp_path: Path, weights: dict[str, np.ndarray], why: str) -> None:
    (tmp_path / "net").write_bytes(encode_module(model.module, weights))
    with pytest.raises(ImportModelError, match=why):
        load_model(tmp_path / "net", context())


@pytest.mark.parametrize("element", [builtin.f64, builtin.IndexType(), builtin.i1])
def test_a_weight_of_a_type_that_is_not_stored(model: Model, tmp_path: Path, element: Attribute) -> None:
    weight = next(op for op in model.ops if op.name == "top.Weight").results[0]
    Rewriter.replace_value_with_new_type(weight, builtin.TensorType(element, [3]))
    (tmp_path / "net").write_bytes(encode_module(model.module, {"w": np.zeros(3), "packed": np.zeros(2, np.uint8)}))
    with pytest.raises(ImportModelError, match="net': the weight 'w': no storage for element type"):
        load_model(tmp_path / "net", context())


def test_schema(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later schema is refused; an earlier one is brought up to date, step by step."""
    path = tmp_path / "net"
    save_one_file(model, path)
    assert Bytecode.open(path, context()).resources.external[TOOL] == {"schema": str(SCHEMA)}
    for name, value in (("SCHEMA", SCHEMA + 2), ("UPGRADES", {})):
        monkeypatch.setattr(f"tpusim.ir.one_file.{name}", value)
    steps: list[int] = []
    for step in (SCHEMA, SCHEMA + 1):
        monkeypatch.setitem(
            sys.modules["tpusim.ir.one_file"].UPGRADES, step, lambda module, step=step: steps.append(step)
        )
    save_one_file(model, tmp_path / "later")
    assert load_model(path, context()).weights["w"].tolist() == VALUES["w"].tolist()
    assert steps == [SCHEMA, SCHEMA + 1]
    monkeypatch.setattr("tpusim.ir.one_file.SCHEMA", SCHEMA)
    with pytest.raises(ImportModelError, match=f"schema {SCHEMA + 2} of the dialects top and tpu"):
        load_model(tmp_path / "later", context())


def test_commands(model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def tpusim(*words: object) -> str:
        assert main(list(map(str, words))) == 0
        return capsys.readouterr().out

    save_model(model, tmp_path / "net.mlir")
    tpusim("opt", tmp_path / "net.mlir", "--one-file", "--bytecode-for", "llvm19", "-o", tmp_path / "net.mlirbc")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["net.mlir", "net.mlirbc", "weights.npz"]
    assert load_model(tmp_path / "net.mlirbc", context()).weights["w"].tolist() == VALUES["w"].tolist()
    told = json.loads(tpusim("inspect", tmp_path / "net.mlirbc", "--json"))
    assert (told["version"], told["producer"], told["ops"]["top.Weight"]) == (4, "tpusim", 2)
    assert told["resources"] == {"tpusim.schema": str(SCHEMA), "tpusim_weights.w": 12, "tpusim_weights.packed": 2}
    printed = tpusim("opt", tmp_path / "net.mlirbc")
    assert '"top.Add"' in printed and print_module(model.module).count("loc(") == printed.count("loc(")


class Stages(Silent):
    """Notes the stages that are computed."""

    def __init__(self) -> None:
        self.computed: list[str] = []

    @contextmanager
    def stage(self, name: str) -> Generator[None]:
        self.computed.append(name)
        yield


def test_the_modules_of_a_run(tmp_path: Path) -> None:
    """In each form a run has the same modules; other stages, --resume and commands read them."""
    source = tmp_path / "net.mlir"
    save_model(chain(), source)
    base = RunConfig(source, LoweringConfig("bm1684x", "f16"), to="assign", data="random:1")
    forms: tuple[Form, ...] = ("text", "bytecode", "one-file")
    for form in forms:
        run(replace(base, form=form, out=tmp_path / form))
    for name in ("1_top.mlir", "2_canonical.mlir", "4_tpu.mlir", "5_grouped.mlir", "6_final.mlir"):
        text, *others = (load_model(tmp_path / form / name, context()) for form in forms)
        assert [is_bytecode(tmp_path / form / name) for form in forms] == [False, True, True]
        for other in others:
            for model in (text, other):
                model.module.attributes.pop("module.weight_file", None)
            assert other.module.is_structurally_equivalent(text.module)
    assert sorted(path.name for path in (tmp_path / "one-file").glob("*.npz")) == ["inputs.npz"]
    observer = Stages()
    run(replace(base, form="one-file", out=tmp_path / "one-file", to="codegen", resume=True), observer)
    assert observer.computed == ["codegen"]


def test_a_key_does_not_depend_on_how_a_module_was_stored(model: Model, tmp_path: Path) -> None:
    forms: tuple[Form, ...] = ("text", "bytecode", "one-file")
    for form in forms:
        save_model(model, tmp_path / form, form=form)
    (key,) = model_key(tmp_path / "text")
    assert [model_key(tmp_path / form) for form in forms] == [[key]] * 3
    assert digest_of(model.module, model.weights) == key != digest_of(model.module, {})
    changed = {name: array + 1 for name, array in model.weights.items()}
    save_weights(changed, tmp_path / "weights.npz")
    assert all((model_key(tmp_path / form) == [key]) == (form == "one-file") for form in forms)


def test_files_of_the_schema_before_load() -> None:
    """schema1.mlir is a module of the release before TPU-MLIR's spelling, schema1.mlirbc the same as it wrote it."""
    path = Path(__file__).parent / "bytecode" / "schema1.mlirbc"
    assert Bytecode.open(path, context()).resources.external[TOOL] == {"schema": "1"}
    found, source = load_model(path, context()), path.with_suffix(".mlir").read_text()
    assert digest_of(found.module, {}) == digest_of(without_weights(parse_module(source, context())).module, {})
    assert len(found.weights) == 6
    assert {op.name for op in found.module.walk()} >= {"tpu.Conv2D", "tpu.PReluOp"} and '"tpu.PRelu"' in source


def test_inspect_tells_the_functions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "func.func @a(%x: i32) -> i32 { func.return %x : i32 }\nfunc.func private @b()"
    (tmp_path / "net").write_bytes(encode(parse_module(text, context())))
    assert main(["inspect", str(tmp_path / "net"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["functions"] == {"a": {"func.func": 1, "func.return": 1}, "b": {"func.func": 1}}
    assert found["ops"] == {"func.func": 2, "func.return": 1, "builtin.module": 1}
