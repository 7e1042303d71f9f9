"""The command line: what it refuses it refuses in one message, with status 1, and leaves the artefacts alone."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from math import prod
from pathlib import Path

import numpy as np
import onnx
import pytest
from end_to_end import (
    DIGITS,
    assert_equal,
    digits_run,
    floats,
    hashes,
    node,
    report_of,
    save_network,
    small_convnet,
    tensors,
)

from tpusim.cli import main
from tpusim.errors import TpusimError
from tpusim.ir.attrs import op_name
from tpusim.ir.module import load_model
from tpusim.ir.types import element_of
from tpusim.ops import context
from tpusim.registry import CLI
from tpusim.verify.about import read_about
from tpusim.verify.npz import save_tensors
from tpusim.version import __version__


class Refusals:
    """Runs commands that must fail."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str | Path) -> str:
        """The one message; status 1 and no traceback."""
        self._capsys.readouterr()
        status = main([str(w) for w in words])
        captured = self._capsys.readouterr()
        assert status == 1, captured.out
        assert "Traceback" not in captured.out + captured.err
        progress, _, message = captured.err.partition("tpusim: ")
        assert all(re.fullmatch(r" ?\d+ \w+ +[\d.]+ s", line) for line in progress.splitlines()), captured.err
        assert message and "tpusim: " not in message
        assert len(message) < 1300 or "is no quirk; expected some of" in message  # a row for each quirk
        return message


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Refusals:
    return Refusals(capsys)


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Iterator[Path]:
    """A copy of the digits artefacts; files that a refused command did not name must be the same afterwards."""
    path = tmp_path / "artefacts"
    shutil.copytree(digits_run(tmp_path_factory, "bm1684x", "int8"), path)
    return path


@pytest.fixture
def convnet(tmp_path: Path) -> Path:
    return small_convnet(tmp_path / "small.onnx")


# --- help and the installed command


def test_installed_command():
    """One run as users start it."""
    command = Path(sys.executable).with_name("tpusim")
    done = subprocess.run([command, "chips"], capture_output=True, text=True, check=True)
    assert "bm1684x: 64 lanes" in done.stdout and done.stderr == ""
    done = subprocess.run([command, "run", "nothing.onnx"], capture_output=True, text=True)
    assert done.returncode == 1 and "nothing.onnx" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [[], *([name] for name in CLI.shipped()), ["opt"]])
def test_help(words: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as caught:
        main([*words, "--help"])
    out = capsys.readouterr().out
    assert caught.value.code == 0
    assert all(name in out for name in (*CLI.shipped(), "opt")) if not words else "usage" in out.lower()


@pytest.mark.parametrize("name", CLI.shipped())
def test_no_option_is_a_double_negative(name: str, capsys: pytest.CaptureFixture[str]):
    """A switch that is called no_... would also be offered as --no-no-..."""
    with pytest.raises(SystemExit):
        main([name, "--help"])
    assert "--no-no-" not in capsys.readouterr().out


@pytest.mark.parametrize("words", [["frobnicate"], [], ["run"], ["run", "m.onnx", "--mode", "int9"], ["lower", "--x"]])
def test_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]):
    """Usage errors are the argument parser's: status 2, as everywhere."""
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]):
    assert main(["--version"]) == 0
    assert __version__ in capsys.readouterr().out


def test_debug_gives_the_traceback(tmp_path: Path):
    with pytest.raises(TpusimError):
        main(["import", str(tmp_path / "nothing.onnx"), "--debug"])


# --- models


def test_missing_model(refusal: Refusals, tmp_path: Path):
    message = refusal("run", tmp_path / "no.onnx", "--out", tmp_path / "out")
    assert "no.onnx" in message and "No such file" in message


@pytest.mark.parametrize("content", [b"this is a text\n" * 20, b"", bytes(range(256)), b"\x08\x09PK"])
def test_file_that_is_no_model(refusal: Refusals, tmp_path: Path, content: bytes):
    path = tmp_path / "text.onnx"
    path.write_bytes(content)
    before = hashes(tmp_path)
    assert "text.onnx" in refusal("import", path)
    assert hashes(tmp_path) == before


def test_what_is_no_network_is_named(refusal: Refusals):
    """The message says what the file is."""
    message = refusal("why", DIGITS / "calibration.npz")
    assert "calibration.npz' is an npz of arrays; give it as samples" in message


def test_truncated_model(refusal: Refusals, tmp_path: Path):
    content = (DIGITS / "digits.onnx").read_bytes()
    path = tmp_path / "cut.onnx"
    path.write_bytes(content[: len(content) // 2])
    assert "cut.onnx" in refusal("import", path)


def test_all_unsupported_ops_are_named(refusal: Refusals, tmp_path: Path):
    """Both at once, each with node, op type and opset."""
    nodes = [node("Det", "x", "e"), node("Relu", "e", "r"), node("NonZero", "r", "y")]
    message = refusal("run", save_network(tmp_path / "m.onnx", nodes, {"x": (2, 3)}, ["y"]), "--out", tmp_path / "out")
    for words in ("Det 'n_e'", "NonZero 'n_y'"):
        assert words in message
    assert message.count("opset 17") == 2 and "2 problems" in message


def test_dynamic_dims(refusal: Refusals, tmp_path: Path):
    model = small_convnet(tmp_path / "dynamic.onnx", batch="N")
    message = refusal("import", model)
    assert "'x' has shape (N, 3, 16, 16)" in message and "--input-shapes" in message
    assert main(["import", str(model), "--input-shapes", "x=2x3x16x16"]) == 0
    assert "tensor<2x5xf32>" in (tmp_path / "1_top.mlir").read_text()
    status = main(
        ["run", str(model), "--input-shapes", "x=1x3x16x16", "--data", "random:2", "--out", str(tmp_path / "out")]
    )
    assert status == 0 and report_of(tmp_path / "out")["passed"]


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ("x=1x3", "rank 4"),
        ("y=1x3x16x16", "no input 'y'"),
        ("x=0x3x16x16", "1 or more"),
        ("1x3x16x16", "NAME=1x3x224x224"),
        ("x=1x3x16xW", "NAME=1x3x224x224"),
        ("x=", "NAME=1x3x224x224"),
        ("x=1x4x16x16", "n_c1"),
    ],
)
def test_wrong_input_shapes(refusal: Refusals, convnet: Path, shapes: str, words: str):
    assert words in refusal("import", convnet, "--input-shapes", shapes)


# --- options


def test_unknown_chip(refusal: Refusals, convnet: Path, tmp_path: Path):
    message = refusal("run", convnet, "--chip", "bm1690z", "--out", tmp_path / "out")
    assert "'bm1690z'" in message and "bm1684x" in message
    assert not (tmp_path / "out").exists()


def test_unknown_stage(refusal: Refusals, convnet: Path, tmp_path: Path):
    message = refusal("run", convnet, "--to", "lowerr", "--out", tmp_path / "out")
    assert "lowerr" in message and "canonicalize" in message
    assert not (tmp_path / "out").exists()


def test_asymmetric_is_refused_on_a_chip_without_it(refusal: Refusals, convnet: Path, tmp_path: Path):
    chip = ("--chip", "bm1684", "--asymmetric")
    message = refusal("run", convnet, *chip, "--data", "random:1", "--out", tmp_path / "out")
    assert "asymmetric" in message and "bm1684x" in message


def test_out_is_a_file(refusal: Refusals, convnet: Path, tmp_path: Path):
    (tmp_path / "taken").write_text("mine")
    assert "taken" in refusal("run", convnet, "--out", tmp_path / "taken")
    assert "taken" in refusal("run", convnet, "--out", tmp_path / "taken" / "below")
    assert (tmp_path / "taken").read_text() == "mine"


UNWRITABLE = Path("/proc/tpusim")
"""A folder nobody may make, root included."""


@pytest.mark.parametrize("command", ["run", "import", "canonicalize", "codegen", "simulate", "infer", "compare", "zoo"])
def test_unwritable_out(refusal: Refusals, folder: Path, command: str):
    inputs = ("--input", folder / "inputs.npz")
    out = ("--out", UNWRITABLE / "out")
    words = {
        "run": (DIGITS / "digits.onnx", *out),
        "import": (DIGITS / "digits.onnx", *out),
        "canonicalize": (folder / "1_top.mlir", *out),
        "codegen": (folder / "6_final.mlir", *out),
        "simulate": (folder / "7_model.tpusim", *inputs, *out),
        "infer": (folder / "4_tpu.mlir", *inputs, *out),
        "compare": (folder / "inputs.npz", folder / "inputs.npz", "--save", UNWRITABLE / "out"),
        "zoo": ("squeezenet", UNWRITABLE / "out.onnx"),
    }[command]
    assert "/proc/tpusim" in refusal(command, *words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--samples", "-1"), "--samples -1: 0 or more is required; 0 uses all"),
        (("--local-samples", "-1"), "--local-samples -1: 0 or more is required; 0 runs all"),
        (("--local-samples", "4"), "--local-samples 4: needs --labels"),
        (("--test-data", "t.npz"), "--test-data t.npz: needs --labels"),
        (
            ("--asymmetric", "--mode", "f32"),
            "--asymmetric: needs --mode int8, or a --qtable with INT8 ops; got --mode f32",
        ),
        (("--matmul-perchannel", "--mode", "bf16"), "--matmul-perchannel: needs --mode int8"),
        (("--layer-group", "1", "--shape-secs-search-strategy", "1"), "needs --layer-group 2, got --layer-group 1"),
        (("--table", "no-table", "--mode", "f32"), "calibration table no-table: cannot be read, No such file"),
        (("--seed", "3"), "--seed 3: needs --dma random, got --dma early"),
        (("--seed", "-3", "--dma", "random"), "--seed -3: 0 or more is required"),
    ],
)
def test_run_refuses_options_without_effect(
    refusal: Refusals, convnet: Path, tmp_path: Path, words: tuple[str, ...], message: str
):
    """And numbers below 0; at once."""
    assert message in refusal("run", convnet, "--out", tmp_path / "out", *words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("command", "words", "message"),
    [
        ("calibrate", ("2_canonical.mlir", "--samples", "-2"), "--samples -2: 0 or more is required; 0 uses all"),
        ("lower", ("2_canonical.mlir", "--mode", "f32", "--asymmetric"), "--asymmetric: needs --mode int8"),
        (
            "lower",
            ("2_canonical.mlir", "--mode", "f16", "--matmul-perchannel"),
            "--matmul-perchannel: needs --mode int8",
        ),
        ("infer", ("4_tpu.mlir", "--input", "inputs.npz", "--input-shapes", "image=1x1x8x8"), "needs an .onnx"),
        ("infer", ("4_tpu.mlir", "--input", "inputs.npz", "--fast-f32"), "--fast-f32: computes the results of a float"),
        (
            "infer",
            ("2_canonical.mlir", "--input", "inputs.npz", "--fast-f32", "--all-tensors"),
            "--fast-f32: computes the results of a float",
        ),
        (
            "infer",
            ("7_model.tpusim", "--input", "inputs.npz"),
            "is a program, which `tpusim simulate` runs; give an .onnx",
        ),
        ("simulate", ("7_model.tpusim", "--input", "inputs.npz", "--ulps", "-1"), "--ulps -1: 0 or more is required"),
        ("simulate", ("7_model.tpusim", "--input", "inputs.npz", "--ulps", "4"), "--ulps 4: needs --check"),
        ("simulate", ("7_model.tpusim", "--input", "inputs.npz", "--seed", "4"), "--seed 4: needs --dma random"),
        (
            "simulate",
            ("7_model.tpusim", "--input", "inputs.npz", "--chip", "bm9"),
            "unknown chip 'bm9': expected one of bm",
        ),
        (
            "calibrate",
            ("2_canonical.mlir", "--table", "cali_table", "--out-table", "mine"),
            "--out-table mine: nothing is measured with --table cali_table",
        ),
        ("debug", ("7_model.tpusim", "--ulps", "-1"), "--ulps -1: 0 or more is required; 0 lets no float differ"),
        ("debug", ("7_model.tpusim", "--ulps", "4"), "--ulps 4: needs --check REF.npz"),
        ("debug", ("7_model.tpusim", "--history", "-1"), "--history -1: 0 or more is required; 0 keeps nothing"),
        ("debug", ("7_model.tpusim", "--seed", "-1"), "--seed -1: 0 or more is required"),
        ("zoo", ("squeezenet", "s.onnx", "--seed", "-1"), "zoo: seed -1: 0 or more is required"),
    ],
)
def test_commands_refuse_options_without_effect(
    refusal: Refusals,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    words: tuple[str, ...],
    message: str,
):
    monkeypatch.chdir(folder)
    before = hashes(folder)
    assert message in refusal(command, *words)
    assert hashes(folder) == before


def test_a_float_run_with_a_table_of_modes_may_be_asymmetric(folder: Path):
    """The table may ask for integers."""
    words = ("--mode", "f32", "--asymmetric", "--matmul-perchannel", "--qtable", "logits_Gemm:INT8")
    assert main(["lower", str(folder / "3_calibrated.mlir"), *words, "--out", str(folder / "mixed.mlir")]) == 0


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ((), "small_bm1684x_int8"),
        (("--asymmetric",), "small_bm1684x_int8_asym"),
        (("--asymmetric", "--chip", "bm1688", "--cores", "2"), "small_bm1688_int8_asym_2cores"),
    ],
)
def test_the_usual_folder_of_a_run(
    convnet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], name: str
):
    monkeypatch.chdir(tmp_path)
    assert main(["run", str(convnet), "--to", "import", *words]) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == [name]


# --- samples and labels


def run_words(model: Path, out: Path, *more: str | Path) -> tuple[str | Path, ...]:
    return ("run", model, "--out", out, *more)


def test_samples_of_the_wrong_shape(refusal: Refusals, convnet: Path, tmp_path: Path):
    np.savez(tmp_path / "s.npz", x=floats(4, 3, 15, 16))
    message = refusal(*run_words(convnet, tmp_path / "out", "--data", tmp_path / "s.npz"))
    assert "'x' must have shape (1, 3, 16, 16)" in message and "(4, 3, 15, 16)" in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("missing.npz", "neither a file"),
        ("random:0", "N >= 1"),
        ("random:many", "random:N"),
        ("empty", "must hold"),
        ("other.npz", "no array for input x"),
        ("text.npz", "readable"),
        ("pickled.npz", "readable"),
        ("none.npz", "has no arrays"),
    ],
)
def test_unusable_samples(refusal: Refusals, convnet: Path, tmp_path: Path, data: str, words: str):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.npz").write_text("no archive")
    np.savez(tmp_path / "other.npz", z=floats(1, 3, 16, 16))
    np.savez(tmp_path / "none.npz")
    np.savez(tmp_path / "pickled.npz", x=np.array([{}], object))
    source = data if data.startswith("random") else tmp_path / data
    assert words in refusal(*run_words(convnet, tmp_path / "out", "--data", source))


def test_samples_without_one_of_two_inputs(refusal: Refusals, tmp_path: Path):
    nodes = [node("Add", "a b", "s"), node("Relu", "s", "y")]
    model = save_network(tmp_path / "two.onnx", nodes, {"a": (1, 4, 4, 4), "b": (1, 4, 4, 4)}, ["y"])
    np.savez(tmp_path / "s.npz", a=floats(3, 4, 4, 4))
    message = refusal(*run_words(model, tmp_path / "out", "--data", tmp_path / "s.npz"))
    assert "no array for input b" in message and "it has: a" in message


@pytest.mark.parametrize("command", ["infer", "simulate"])
@pytest.mark.parametrize("kind", ["missing", "shape", "file", "garbage"])
def test_unusable_inputs(refusal: Refusals, folder: Path, command: str, kind: str):
    path = folder / "in.npz"
    arrays = {"missing": {"picture": floats(1, 1, 8, 8)}, "shape": {"image": floats(1, 1, 8, 9)}}
    if kind == "garbage":
        path.write_bytes(b"PK\x03\x04 but no archive")
    elif kind != "file":
        np.savez(path, **arrays[kind])
    before = hashes(folder)
    target = folder / ("4_tpu.mlir" if command == "infer" else "7_model.tpusim")
    message = refusal(command, target, "--input", path)
    assert {"missing": "image", "shape": "(1, 1, 8, 8)", "file": "no such file", "garbage": "in.npz"}[kind] in message
    assert hashes(folder) == before


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.zeros(3, np.int64), "got 3"),
        (np.array([0, 1, 2, 3, 10]), "class indices from 0 to 9 are required, got 0 to 10"),
        (np.array([0, 1, 2, 3, -1]), "got -1 to 3"),
        (np.zeros(7, np.int64), "got 7"),
        (np.zeros((4, 2), np.int64), "one array of class indices"),
        (np.zeros(4, np.float32), "one array of class indices (integers, 1-D) is required, got float32 of shape (4,)"),
    ],
)
def test_labels_that_do_not_fit(refusal: Refusals, tmp_path: Path, labels: np.ndarray, words: str):
    np.savez(tmp_path / "test.npz", image=np.load(DIGITS / "test.npz")["image"][:5])
    np.savez(tmp_path / "labels.npz", label=labels)
    data = ("--data", "random:2", "--test-data", tmp_path / "test.npz", "--labels", tmp_path / "labels.npz")
    assert words in refusal(*run_words(DIGITS / "digits.onnx", tmp_path / "out", *data))


# --- calibration tables


def test_table_without_some_tensors(refusal: Refusals, folder: Path):
    table = folder / "cali_table"
    kept = [line for line in table.read_text().splitlines() if not line.startswith(("half_", "mix_"))]
    (folder / "short").write_text("\n".join(kept))
    before = hashes(folder)
    message = refusal("calibrate", folder / "2_canonical.mlir", "--table", folder / "short")
    assert "2 are missing" in message and "half" in message and "mix" in message
    assert hashes(folder) == before


def test_table_reads_and_out_table_writes(folder: Path):
    """--table means the same in calibrate as in run: what is read."""
    table = folder / "cali_table"
    table.write_text(re.sub(r"(?m)^(half\S*) .*$", r"\1 1.25 0.0 1.25", table.read_text()))
    text = table.read_text()
    assert main(["calibrate", str(folder / "2_canonical.mlir"), "--table", str(table)]) == 0
    assert table.read_text() == text
    assert "f32<0.0:1.25>" in (folder / "3_calibrated.mlir").read_text()
    words = ["calibrate", str(folder / "2_canonical.mlir"), "--data", "random:2", "--out-table", str(folder / "new")]
    assert main(words) == 0
    assert (folder / "new").read_text().startswith("#") and table.read_text() == text


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("half_MaxPool 1.0", "got 2 fields"),
        ("half_MaxPool a b c", "decimal number"),
        ("half_MaxPool -1.0 0.0 1.0", "threshold >= 0"),
        ("half_MaxPool 1.0 2.0 1.0", "min <= max"),
        ("half_MaxPool nan 0.0 1.0", "decimal number"),
    ],
)
def test_malformed_table(refusal: Refusals, folder: Path, line: str, words: str):
    path = folder / "bad_table"
    path.write_text(re.sub(r"^half_MaxPool .*$", line, (folder / "cali_table").read_text(), flags=re.MULTILINE))
    before = hashes(folder)
    message = refusal("calibrate", folder / "2_canonical.mlir", "--table", path)
    assert words in message and re.search(r"bad_table:\d+", message)
    assert hashes(folder) == before


# --- artefacts that were damaged


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("canonicalize", "1_top.mlir"),
        ("calibrate", "2_canonical.mlir"),
        ("lower", "3_calibrated.mlir"),
        ("group", "4_tpu.mlir"),
        ("assign", "5_grouped.mlir"),
        ("codegen", "6_final.mlir"),
    ],
)
def test_damaged_modules(refusal: Refusals, folder: Path, command: str, name: str):
    """Cut off, a bit changed in an op's name, bytes that are no text; to what needs floats, a lowered module."""
    path = folder / name
    content = path.read_bytes()
    place = content.index(b'"top.Input"') + 1
    flipped = content[:place] + bytes([content[place] ^ 2]) + content[place + 1 :]
    lowered = [(folder / "4_tpu.mlir").read_bytes()] if command in ("canonicalize", "calibrate", "lower") else []
    for damaged in (content[: len(content) // 2], flipped, b"\xff" + content, b"", *lowered):
        path.write_bytes(damaged)
        before = hashes(folder)
        message = refusal(command, path)
        assert name in message
        assert hashes(folder) == before


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_random_bit_flips_in_a_module(folder: Path, capsys: pytest.CaptureFixture[str], count: int):
    """One flipped bit anywhere: the stage works or says what is wrong."""
    path = folder / "6_final.mlir"
    content = path.read_bytes()
    generator = np.random.default_rng(3)
    for _ in range(count):
        place = int(generator.integers(len(content)))
        changed = content[place] ^ (1 << int(generator.integers(8)))
        path.write_bytes(content[:place] + bytes([changed]) + content[place + 1 :])
        status = main(["codegen", str(path), "--out", str(folder / "flipped.tpusim")])
        assert status in (0, 1)
        assert (capsys.readouterr().err != "") == (status == 1)


def test_weights_are_missing(refusal: Refusals, folder: Path):
    (folder / "tpu_weights.npz").unlink()
    before = hashes(folder)
    message = refusal("group", folder / "4_tpu.mlir")
    assert "tpu_weights.npz" in message
    assert hashes(folder) == before


@pytest.mark.parametrize("command", ["group", "infer"])
def test_weights_of_another_stage(refusal: Refusals, folder: Path, command: str):
    shutil.copy(folder / "canonical_weights.npz", folder / "tpu_weights.npz")
    more = ("--input", folder / "inputs.npz") if command == "infer" else ()
    message = refusal(command, folder / "4_tpu.mlir", *more)
    assert "'stem_conv_Conv_filter_int8' is not there" in message


def test_damaged_weights(refusal: Refusals, folder: Path):
    path = folder / "tpu_weights.npz"
    content = path.read_bytes()
    middle = len(content) // 2
    for damaged in (content[:-200], content[:middle] + b"\x55" * 40 + content[middle + 40 :], b"", b"text"):
        path.write_bytes(damaged)
        assert "tpu_weights.npz" in refusal("group", folder / "4_tpu.mlir")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.7, 0.999])
def test_truncated_program(refusal: Refusals, folder: Path, share: float):
    path = folder / "7_model.tpusim"
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    before = hashes(folder)
    assert "7_model.tpusim" in refusal("simulate", path, "--input", folder / "inputs.npz")
    assert hashes(folder) == before


def test_random_bit_flips_in_a_program(folder: Path, capsys: pytest.CaptureFixture[str]):
    """Checksums detect them; a flip in the archive's bookkeeping may also be without consequence."""
    path, out = folder / "7_model.tpusim", folder / "flipped.npz"
    content = path.read_bytes()
    generator = np.random.default_rng(4)
    reference = tensors(folder / "local_outputs.npz")
    refused = 0
    for _ in range(40):
        place = int(generator.integers(len(content)))
        changed = content[place] ^ (1 << int(generator.integers(8)))
        path.write_bytes(content[:place] + bytes([changed]) + content[place + 1 :])
        status = main(["simulate", str(path), "--input", str(folder / "inputs.npz"), "--out", str(out)])
        assert status in (0, 1)
        assert "Traceback" not in capsys.readouterr().err
        refused += status
        if status == 0:
            found = tensors(out)
            assert_equal(found, {name: reference[name] for name in found})
    assert refused > 30


def test_compare_refuses_and_fails(refusal: Refusals, folder: Path, capsys: pytest.CaptureFixture[str]):
    assert "nothing.npz" in refusal("compare", folder / "nothing.npz", folder / "inputs.npz")
    assert "tolerance" in refusal("compare", folder / "inputs.npz", folder / "inputs.npz", "--tolerance", "high")
    np.savez(folder / "other.npz", image=-np.load(folder / "inputs.npz")["image"])
    assert main(["compare", str(folder / "other.npz"), str(folder / "inputs.npz")]) == 1
    assert capsys.readouterr().err == ""
    assert main(["compare", str(folder / "inputs.npz"), str(folder / "inputs.npz")]) == 0


@pytest.mark.parametrize(("target", "reference"), [("top", "onnx"), ("tpu", "top"), ("local", "tpu"), ("local", "top")])
def test_compare_gives_the_verdict_of_the_run(folder: Path, tmp_path: Path, target: str, reference: str):
    """The files say what their integers stand for and how a run compares them, wherever they are taken."""
    words = [str(shutil.copy(folder / f"{level}_outputs.npz", tmp_path)) for level in (target, reference)]
    assert main(["compare", *words, "--save", str(tmp_path / "out.csv")]) == 0
    rows = [row.split(", ") for row in (tmp_path / "out.csv").read_text().splitlines()[1:]]
    report = report_of(folder)["compare"].get(f"{target}_vs_{reference}")
    if report is not None:
        cosines = {tensor["name"]: pytest.approx(tensor["cosine"], abs=1e-6) for tensor in report["tensors"]}
        assert {row[0]: float(row[4]) for row in rows} == cosines


def test_compare_holds_the_machine_to_the_bound_of_a_run(folder: Path, tmp_path: Path):
    """A float that is off by 1e-4 is CLOSE to the tool and wrong to a run, which has the module."""
    machine, path = tensors(folder / "local_outputs.npz"), folder / "local_outputs.npz"
    name = next(n for n, v in machine.items() if n.startswith("logits") and v.dtype == np.float32)
    machine[name] = machine[name] * np.float32(1.0001)
    save_tensors(path, machine, read_about(path))
    assert main(["compare", str(path), str(folder / "tpu_outputs.npz")]) == 1
    words = [str(shutil.copy(folder / f"{level}_outputs.npz", tmp_path)) for level in ("local", "tpu")]
    assert main(["compare", *words]) == 0


def test_compare_warns_of_bytes_without_scale(folder: Path, capsys: pytest.CaptureFixture[str]):
    """A file that another program wrote again is plain arrays."""
    np.savez(folder / "plain.npz", **tensors(folder / "tpu_outputs.npz"))
    assert main(["compare", str(folder / "plain.npz"), str(folder / "top_outputs.npz")]) == 1
    assert "does not say what the bytes stand for" in capsys.readouterr().out
    assert main(["compare", str(folder / "plain.npz"), str(folder / "tpu_outputs.npz")]) == 0


def test_compare_of_files_that_the_stages_wrote(folder: Path):
    """`infer` and `simulate` say what their integers stand for, too."""
    inputs = ("--input", str(folder / "inputs.npz"))
    assert main(["infer", str(folder / "4_tpu.mlir"), *inputs, "--all-tensors"]) == 0
    assert main(["simulate", str(folder / "7_model.tpusim"), *inputs]) == 0
    for name in ("4_tpu_outputs.npz", "local_outputs.npz"):
        assert main(["compare", str(folder / name), str(folder / "top_outputs.npz")]) == 0


def test_opt_lowers_with_a_table_and_without_quirks(folder: Path, tmp_path: Path):
    out, options = tmp_path / "out.mlir", "chip=bm1684x quirks_off=avgpool_full_kernel"
    name = next(op_name(op) for op in load_model(folder / "3_calibrated.mlir", context()).ops if op.name == "top.Conv")
    for table in ("", f' qtable="{name}:F32"'):
        assert (
            main(
                [
                    "opt",
                    str(folder / "3_calibrated.mlir"),
                    "-p",
                    f"convert-top-to-tpu{{{options}{table}}}",
                    "-o",
                    str(out),
                ]
            )
            == 0
        )
        conv = next(op for op in load_model(out, context()).ops if op_name(op) == name)
        assert str(element_of(conv.results[0])).startswith("f32" if table else "!quant.uniform")


def test_opt_makes_the_folder(refusal: Refusals, folder: Path, tmp_path: Path):
    words = ("opt", folder / "1_top.mlir", "-p", "canonicalize", "-o")
    path = tmp_path / "some" / "where" / "x.mlir"
    assert main([str(w) for w in (*words, path)]) == 0
    assert "top.Conv" in path.read_text()
    assert "/proc/tpusim/x.mlir: cannot be written" in refusal(*words, UNWRITABLE / "x.mlir")


def test_opt_refuses(refusal: Refusals, folder: Path):
    before = hashes(folder)
    assert "TOP_CALIBRATED" in refusal("opt", folder / "1_top.mlir", "-p", "convert-top-to-tpu")
    assert "no-table" in refusal("opt", folder / "2_canonical.mlir", "-p", "import-calibration-table{file=no-table}")
    for passes in (
        "no-such-pass",
        "canonicalize{no-option=1}",
        "canonicalize{",
        "canonicalize,,",
        "layer-group{opt=9}",
    ):
        assert refusal("opt", folder / "1_top.mlir", "-p", passes)
    assert "bm9" in refusal("opt", folder / "3_calibrated.mlir", "-p", "convert-top-to-tpu{chip=bm9}")
    assert "no-table" in refusal("opt", folder / "3_calibrated.mlir", "-p", "convert-top-to-tpu{qtable=no-table}")
    assert "no-quirk" in refusal("opt", folder / "3_calibrated.mlir", "-p", "convert-top-to-tpu{quirks_off=no-quirk}")
    assert "absent.mlir" in refusal("opt", folder / "absent.mlir", "-p", "canonicalize")
    assert hashes(folder) == before


# --- what does not fit


def wide_conv(path: Path) -> Path:
    """One row of the input alone is larger than a lane's memory: only columns can be cut."""
    nodes = [node("Conv", "x w b", "c", kernel_shape=[3, 3], pads=[1, 1, 1, 1]), node("Relu", "c", "y")]
    weights = {"w": floats(4, 2, 3, 3), "b": floats(4)}
    return save_network(path, nodes, {"x": (1, 2, 2, 60000)}, ["y"], weights)


def long_add(path: Path) -> Path:
    nodes = [node("Add", "x z", "s"), node("Relu", "s", "y")]
    return save_network(path, nodes, {"x": (1, 1, 2, 60000), "z": (1, 1, 2, 60000)}, ["y"])


@pytest.mark.parametrize("mode", ["int8", "f32"])
@pytest.mark.parametrize("chip", ["bm1684x", "bm1684"])
@pytest.mark.parametrize("make", [wide_conv, long_add])
def test_rows_that_do_not_fit_are_cut_or_run_from_global_memory(tmp_path: Path, make, chip: str, mode: str):  # noqa: ANN001
    """BM1684X cuts the columns, as w or as h of a SMALL_C group; BM1684 cannot, and the group says why, in bytes."""
    model = make(tmp_path / "wide.onnx")
    out = tmp_path / "out"
    words = run_words(model, out, "--chip", chip, "--mode", mode, "--data", "random:2")
    assert main([str(w) for w in words]) == 0
    report = report_of(out)
    reasons = [group["reason"] for group in report["groups"] if group["reason"]]
    if chip == "bm1684x":
        alone = {f"the library has a kernel for a {what} that is alone in its group" for what in ("cast", "sum")}
        whole = make is long_add  # a sum alone runs in tiles of its kernel
        assert set(reasons) <= alone
        assert whole or any(prod(group["secs"].values()) > 2 for group in report["groups"])
    else:
        why = r"local memory needs [\d,]+ bytes per lane at nsecs=\d+, hsecs=\d+, bm1684 has"
        assert any(re.search(why, reason) for reason in reasons)
    assert report["passed"] and report["compare"]["local_vs_tpu"]["bit_exact"] | (mode == "f32")


def test_onnx_model_larger_than_it_says(refusal: Refusals, tmp_path: Path):
    """A weight whose data is shorter than its dims."""
    model = onnx.load(small_convnet(tmp_path / "m.onnx"))
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-4]
    onnx.save(model, tmp_path / "m.onnx")
    assert "m.onnx" in refusal("import", tmp_path / "m.onnx")
