"""What no sample could make right is refused before samples are measured, and before anything is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tpusim
from tpusim.cli import main
from tpusim.errors import ConfigError
from tpusim.ir.attrs import op_name
from tpusim.ir.types import element_of, storage_dtype
from tpusim.lowering.qtable import read_qtable
from tpusim.ops.framework.base import TpuOp

NAMES = ("x", "c", "r", "y")


def small(path: Path, *, names: tuple[str, ...] = NAMES, shape: tuple[int, ...] = (1, 3, 8, 8)) -> Path:
    """Conv, Relu, MatMul of an image; for NHWC images a Transpose before it."""
    x, c, r, y = names
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((4, 3, 3, 3)), "m": rng.standard_normal((6, 5))}
    last = shape[-1] == 3
    nodes = [helper.make_node("Transpose", [x], ["t"], perm=[0, 3, 1, 2])] if last else []
    nodes += [
        helper.make_node("Conv", ["t" if last else x, "w"], [c]),
        helper.make_node("Relu", [c], [r]),
        helper.make_node("MatMul", [r, "m"], [y]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(x, TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


WRONG = [
    ("--qtable nope:F16", "quantisation table: no op is called nope"),
    ("--qtable QTABLE", "quantisation table: no op is called rr_Relu"),
    ("--asymmetric --chip bm1684", "asymmetric quantisation on bm1684 is not supported"),
    ("--asymmetric --chip cv183x", "asymmetric quantisation on cv183x is not supported"),
    ("--matmul-perchannel --chip bm1690", "matmul_perchannel on bm1690"),
    ("--quirks-off nope", "quirks_off: nope is no quirk"),
    ("--fuse-preprocess", "--fuse-preprocess: an input that is an image is required"),
    ("--fuse-preprocess --pixel-format rgb --customization-format YUV_NV12", "frames in YUV require aligned frames"),
    ("--customization-format RGB_PLANAR", "--customization-format: needs --fuse-preprocess"),
    ("--aligned-input --chip cv183x", "--aligned-input: needs --fuse-preprocess"),
    ("--force FORCE", "rule op-name: the module has no op 'rr_Relu'; did you mean 'r_Relu'"),
    ("--force ORDER", "rule consecutive: 'r_Relu' (op 1) stands before 'y_MatMul'"),
    ("--keep nope", "--keep nope: the name of a tensor of the network"),
    ("--keep nope*", "--keep nope*: the name of a tensor of the network"),
    ("--also nope", "no optional pattern is called 'nope'"),
]


@pytest.mark.parametrize(("words", "message"), WRONG, ids=[words for words, _ in WRONG])
def test_options_are_refused_first(
    words: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        "QTABLE": "rr_Relu F16\n",
        "FORCE": '[[groups]]\nfirst = "rr_Relu"\nlast = "rr_Relu"\n',
        "ORDER": '[[groups]]\nfirst = "y_MatMul"\nlast = "r_Relu"\n',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    given = [str(tmp_path / word) if word in files else word for word in words.split()]
    out = tmp_path / "out"
    assert main(["run", str(small(tmp_path / "net.onnx")), *given, "--data", "random:2", "--out", str(out)]) == 1
    error = " ".join(capsys.readouterr().err.split())
    assert message in error and "finished up to" not in error
    assert not out.exists()


def test_fused_images_of_another_order_are_refused_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = small(tmp_path / "net.onnx", shape=(1, 8, 8, 3)), tmp_path / "out"
    words = ["--fuse-preprocess", "--pixel-format", "rgb", "--channel-format", "nhwc", "--data", "random:2"]
    assert main(["run", str(path), *words, "--out", str(out)]) == 1
    assert "nhwc" in capsys.readouterr().err and not out.exists()


@pytest.mark.parametrize("bad", [0, 2, 3])
@pytest.mark.parametrize("name", ["#n", " n", "n\nn"])
def test_names_that_no_table_can_have_are_refused_first(
    name: str, bad: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = tuple(name if i == bad else other for i, other in enumerate(NAMES))
    path, out = small(tmp_path / "net.onnx", names=names), tmp_path / "out"
    assert main(["run", str(path), "--data", "random:2", "--out", str(out)]) == 1
    assert "a tensor name must not begin with '#'" in " ".join(capsys.readouterr().err.split())
    assert not out.exists()


@pytest.mark.parametrize("command", ["calibrate", "search-threshold", "explore"])
def test_commands_that_write_tables_refuse_such_names_first(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, module = small(tmp_path / "net.onnx", names=("#x", "c", "r", "y")), tmp_path / "2_canonical.mlir"
    assert main(["import", str(path)]) == 0 and main(["canonicalize", str(tmp_path / "1_top.mlir")]) == 0
    nans = tmp_path / "nans.npz"  # which measuring would refuse
    np.savez(nans, allow_pickle=False, **{"#x": np.full((2, 3, 8, 8), np.nan, np.float32)})
    more = ["--out", str(tmp_path / "out")] if command == "explore" else []
    found = main([command, str(path if more else module), "--data", str(nans), *more])
    assert found == (0 if more else 1)  # a point that cannot be computed is a row of the report
    said = (tmp_path / "out" / "results.json").read_text() if more else capsys.readouterr().err
    assert "a tensor name must not begin with '#'" in " ".join(said.split())


def test_names_of_casts_are_left_to_the_run(tmp_path: Path) -> None:
    """Which casts exist depends on ranges: their names are no mistake before samples are measured."""
    path = small(tmp_path / "net.onnx")
    words = ["--data", "random:2", "--keep", "y_MatMul_f32", "--to", "infer", "--out", str(tmp_path / "out")]
    assert main(["run", str(path), *words]) == 0
    with np.load(tmp_path / "out" / "tpu_outputs.npz") as found:
        assert list(found) == ["y_MatMul_f32"]


def test_in_memory_too(tmp_path: Path) -> None:
    """`compile` looks at no sample before."""

    def samples() -> object:
        raise AssertionError("a sample was asked for")
        yield {}

    with pytest.raises(ConfigError, match="no op is called nope"):
        tpusim.compile(small(tmp_path / "net.onnx"), samples(), qtable="nope:F16")  # type: ignore[arg-type]


@pytest.mark.parametrize("names", [("my in", "a conv", "r  r", "the out"), ("a:b", "a,b", 'q"u', "ü;t")])
def test_names_with_blanks_work_to_the_end(names: tuple[str, ...], tmp_path: Path) -> None:
    """Table, quantisation table, forced groups, npz and module files of tensors with such names."""
    path, out = small(tmp_path / "net.onnx", names=names), tmp_path / "out"
    np.savez(
        tmp_path / "data.npz",
        allow_pickle=False,
        **{names[0]: np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)},
    )
    data = ["--data", str(tmp_path / "data.npz")]
    assert main(["run", str(path), *data, "--out", str(out)]) == 0
    qtable, pins = tmp_path / "qtable", tmp_path / "pins.toml"
    qtable.write_text(f"# float\n{names[3]}_MatMul F16\n", encoding="utf-8")
    again = ["run", str(path), *data, "--table", str(out / "cali_table"), "--out", str(tmp_path / "again")]
    assert main([*again, "--qtable", str(qtable)]) == 0
    lowered = tpusim.load(tmp_path / "again" / "4_tpu.mlir")
    stored = {op_name(op): storage_dtype(element_of(op.results[0])) for op in lowered.ops if isinstance(op, TpuOp)}
    assert stored[f"{names[3]}_MatMul"] == np.float16 and stored[f"{names[2]}_Relu"] == np.uint8
    group = ["group", str(out / "4_tpu.mlir"), "--out", str(tmp_path / "g.mlir")]
    assert main([*group, "--write-groups", str(pins)]) == 0
    assert main([*group, "--force", str(pins)]) == 0


@pytest.mark.parametrize("name", ["a b", "a  b", "block 1", "a#b", 'q"u', "a:b"])
def test_quantisation_tables_read_such_names(name: str, tmp_path: Path) -> None:
    """The last word of a line is the mode; a comment begins a line, or follows a blank."""
    path = tmp_path / "qtable"
    path.write_text(f"# comment\n  # another\n{name} F16\n\nother\tint8  # why\n", encoding="utf-8")
    assert read_qtable(path) == {name: "f16", "other": "int8"}
    assert read_qtable(f"{name}:F16,other:INT8") == {name: "f16", "other": "int8"}
    path.write_text(f"{name}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="'name MODE' with MODE one of"):
        read_qtable(path)
