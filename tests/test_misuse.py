"""What people write in Python: taken where the meaning is plain, else one sentence that names the argument."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from builders.w4a8 import W4A8
from end_to_end import conv_and_gemm

import tpusim
from tpusim.calibration.table import read_table, with_thresholds, write_table
from tpusim.cli import main
from tpusim.compiled import Compiled
from tpusim.errors import TpusimError, option, spelled_as_options
from tpusim.isa.stream import load

X = np.random.default_rng(5).standard_normal((4, 3, 16, 16), dtype=np.float32)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return conv_and_gemm(tmp_path_factory.mktemp("misuse") / "net.onnx", 1)


@pytest.fixture(scope="module")
def net(path: Path) -> Compiled:
    return tpusim.compile(path, X, calibration="max")


def same(one: Compiled, other: Compiled) -> bool:
    """Whether two networks are the same program."""
    coefficients = one.program.coefficients, other.program.coefficients
    return one.program.commands == other.program.commands and np.array_equal(*coefficients)


# --- what is taken


@pytest.mark.every
@pytest.mark.parametrize(
    "samples",
    [
        X,
        [{"x": x[None]} for x in X],
        ({"x": x[None]} for x in X),
        {"x": X},
        [x[None] for x in X],
        [X[:2], X[2:]],
        "file",
        Path("file"),
        X.astype(np.float64),
    ],
    ids=["array", "dicts", "generator", "one dict", "arrays", "batches", "text", "path", "double"],
)
def test_samples_come_in_every_form(samples: Any, path: Path, net: Compiled, tmp_path: Path) -> None:
    if isinstance(samples, str | Path):
        np.savez(tmp_path / "samples.npz", x=X)
        samples = type(samples)(tmp_path / "samples.npz")
    assert same(tpusim.compile(path, samples, calibration="max"), net)


def test_tables_come_as_file_text_and_value(path: Path, net: Compiled, tmp_path: Path) -> None:
    assert net.table is not None
    write_table(tmp_path / "table", net.table, method="max", samples=4, bins=0, tune=0, module="m")
    for table in (tmp_path / "table", str(tmp_path / "table"), read_table(tmp_path / "table")):
        assert same(tpusim.compile(path, table=table), net)


def test_models_come_as_file_text_proto_and_module(path: Path, net: Compiled) -> None:
    for model in (str(path), onnx.load(path), tpusim.load(path)):
        found = tpusim.compile(model, X, calibration="max")
        assert found.flat(X[:1]).keys() == net.flat(X[:1]).keys()
        np.testing.assert_array_equal(*(next(iter(n.flat(X).values())) for n in (found, net)))
    assert list(tpusim.compile(onnx.load(path), mode="f32").verify(X[:1]).comparisons)[0] == "top_vs_onnx"
    with pytest.raises(TpusimError, match=r"input_shapes=\{'x': \(1, 3, 16, 16\)\}"):
        tpusim.load(conv_and_gemm(path.with_name("free.onnx"), "N"))


def test_other_arguments_are_taken_as_they_are_meant(path: Path, net: Compiled) -> None:
    f16 = tpusim.compile(path, table=net.table, qtable={"y_Gemm": "F16"})
    assert same(f16, tpusim.compile(path, table=net.table, qtable="y_Gemm:F16")) and not same(f16, net)
    off = tpusim.compile(path, table=net.table, layer_group="off")
    options = tpusim.LayerGroupConfig("off")
    assert same(off, tpusim.compile(path, table=net.table, layer_group=options)) and not same(off, net)
    cut = tpusim.compile(path, mode="f32", outputs="mean")
    assert next(iter(cut.flat(X[:1]).values())).shape == (1, 8, 1, 1)


def test_one_array_is_the_only_input(net: Compiled) -> None:
    sample = {"x": X[:1]}
    for one, other in (
        (net.flat(X[:1]), net.flat(sample)),
        (net.machine().run(X[:1]).tensors, net.machine().run(sample).tensors),
        (tpusim.infer(net.tpu, X[:1]), tpusim.infer(net.tpu, sample)),
        (tpusim.simulate(net, X[:1]).tensors, tpusim.simulate(net.program, sample).tensors),
        (net.tensors(X[:1]), net.tensors(sample, "tpu")),
    ):
        assert one.keys() == other.keys() and all(np.array_equal(one[n], other[n]) for n in one)
    assert net.verify(X[:1]).passed


def test_inner_tensors_of_every_level(net: Compiled) -> None:
    """Those of the machine are the flat ones; floats are what the float module computes."""
    top, tpu, local = (net.tensors(X[:1], level) for level in ("top", "tpu", "local"))  # type: ignore[arg-type]
    np.testing.assert_allclose(top["r_Relu"], np.maximum(top["r_Relu"], 0))
    assert {"r_Relu", "mean_GlobalAveragePool", "y_Gemm"} <= top.keys() & tpu.keys()
    assert local.keys() <= tpu.keys() and all(np.array_equal(local[n], tpu[n]) for n in local) and local


def test_a_saved_network_is_read_again(net: Compiled, tmp_path: Path) -> None:
    folder = net.save(tmp_path / "saved")
    again = tpusim.load_compiled(folder)
    assert same(again, net) and load(folder / "7_model.tpusim").commands == net.program.commands
    assert again.table is not None and net.table is not None and again.table.entries == net.table.entries
    np.testing.assert_array_equal(*(next(iter(n.flat(X).values())) for n in (again, net)))
    assert again.verify(X[:1]).bit_exact and str(tpusim.load(folder)) == str(net.top)
    assert again.save(tmp_path / "twice") == tmp_path / "twice"
    assert (tmp_path / "twice/6_final.mlir").read_text() == (folder / "6_final.mlir").read_text()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "4_tpu.mlir").write_text("mine")
    with pytest.raises(TpusimError, match="was not written by a run and would be lost"):
        net.save(tmp_path / "mine")


@pytest.mark.every
@pytest.mark.parametrize("form", ["array", "file", "table", "floats"])
def test_a_run_of_a_saved_network_has_its_integers(form: str, path: Path, tmp_path: Path) -> None:
    """Samples and tables in memory become files of the folder; missing samples are not listed."""
    np.savez(tmp_path / "samples.npz", x=3 * X)
    first: dict[str, Any] = {"array": {"samples": 3 * X}, "file": {"samples": tmp_path / "samples.npz"}}.get(form, {})
    if form == "table":
        first = {"table": tpusim.compile(path, 3 * X, calibration="max").table}
    net = tpusim.compile(path, calibration="max", mode="f16" if form == "floats" else "int8", **first)
    folder = net.save(tmp_path / "saved")
    assert main(["run", str(folder), "--out", str(tmp_path / "again")]) == 0
    assert same(tpusim.load_compiled(tmp_path / "again"), net)
    assert main(["run", str(folder)]) == 0 and (folder / "report.json").is_file()  # in the same folder
    assert same(tpusim.load_compiled(folder), net)
    if form in ("array", "file"):
        held_out = tpusim.load_compiled(folder).why(top=0)
        wanted = net.why((3 * X) if form == "file" else net._sample(None), top=0)
        assert held_out.cosine == pytest.approx(wanted.cosine, abs=1e-9)


@pytest.mark.every
@pytest.mark.parametrize("bad", ["r_Relu", "y_Gemm", "mean_GlobalAveragePool"])
def test_the_remedy_of_why_is_compiled(bad: str, path: Path, net: Compiled) -> None:
    """A threshold that is far too wide costs steps; what `why` gives back goes into `compile` as it is."""
    assert net.table is not None
    spoilt = tpusim.compile(path, table=with_thresholds(net.table, {bad: 200 * net.table.entries[bad].threshold}))
    why = spoilt.why(X, expected_cos=0.9999)
    assert why.remedy.changes and why.remedy.cosine > why.cosine and "with the remedy" in repr(why)
    repaired = tpusim.compile(path, table=why.table, qtable=why.qtable)
    floats = net.fast_f32(X[1::2])["y_Gemm"]
    for compiled, said in ((spoilt, why.cosine), (repaired, why.remedy.cosine)):
        (found,) = compiled.flat(X[1::2]).values()
        each = [np.dot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b)) for a, b in zip(found, floats, strict=True)]
        assert np.mean(each) == pytest.approx(said, abs=1e-4)


def test_a_saved_network_in_a_format_of_ones_own(path: Path, tmp_path: Path) -> None:
    """Its methods are code and not in the files: existing stages are read, but nothing is lowered again."""
    net = tpusim.compile(path, X, mode=W4A8, calibration="max")
    again = tpusim.load_compiled(net.save(tmp_path / "saved"))
    assert same(again, net) and again.verify(X[:1]).bit_exact
    with pytest.raises(TpusimError, match="the methods of w4a8 are not in its files; compile it again"):
        tpusim.compile(tmp_path / "saved", chip="bm1688")


def test_why_bisect_and_groups_are_methods(net: Compiled) -> None:
    why = net.why(X[:1])
    assert {loss.name for loss in why.losses} >= {"r_Relu", "y_Gemm"} and 0.9 < why.cosine <= 1
    assert net.why(X).cosine == net.why().cosine  # on the samples that it was calibrated with
    assert net.bisect(X[:1]) is None
    broken = net.bisect(X[:1], "0.999999,0.999999")
    assert broken is not None and broken.name in net.tensors(X[:1])
    found = net.explore_group(0)
    assert found.alternatives[0].shipped and found.alternatives[0].figures["cycles"] == net.report().totals.cycles


def test_run_takes_a_model_and_arguments(path: Path, tmp_path: Path) -> None:
    made = tpusim.run(path, chip="bm1688", mode="f16", data="random:1", out=str(tmp_path / "out"), to="codegen")
    assert made.program is not None and made.program.header.chip == "bm1688"
    assert same(tpusim.load_compiled(tmp_path / "out"), tpusim.compile(path, chip="bm1688", mode="f16"))


# --- what is not, in Python's words

MISUSES: dict[str, tuple[Callable[[Path, Compiled], object], str]] = {
    "no samples": (lambda p, n: tpusim.compile(p), "at least one sample is required, got none; inputs are x"),
    "a number of samples": (lambda p, n: tpusim.compile(p, 5), "samples: a dict of arrays by input name.* got int"),
    "pairs with labels": (lambda p, n: tpusim.compile(p, [(X[:1], 3)]), "sample 1: a dict of arrays .* got tuple"),
    "another input": (
        lambda p, n: tpusim.compile(p, [{"image": X[:1]}]),
        "sample 1: an array for input x is .* got image",
    ),
    "another shape": (
        lambda p, n: tpusim.compile(p, X[:, :, :8]),
        r"'x' must have shape \(1, 3, 16, 16\).* \(4, 3, 8, 16\)",
    ),
    "channels last": (lambda p, n: tpusim.compile(p, X.transpose(0, 2, 3, 1)), r"must have shape \(1, 3, 16, 16\)"),
    "a missing file": (
        lambda p, n: tpusim.compile(p, "nowhere.npz"),
        "samples: nowhere.npz is neither a file nor a folder",
    ),
    "a missing table": (lambda p, n: tpusim.compile(p, table="nowhere"), "calibration table nowhere: cannot be read"),
    "thresholds": (
        lambda p, n: tpusim.compile(p, table={"x": 1.0}),
        "table: a calibration table or its path .* got dict",
    ),
    "a strategy's number": (lambda p, n: tpusim.compile(p, X, layer_group=2), "layer_group: '1', '2', 'off'.* got int"),
    "no strategy": (
        lambda p, n: tpusim.compile(p, X, layer_group="fast"),
        "layer_group='fast': expected one of 1, 2, off",
    ),
    "a list of modes": (
        lambda p, n: tpusim.compile(p, X, qtable=["y"]),
        "qtable: a file, 'name:MODE.*' or a dict .* got list",
    ),
    "a mode's number": (lambda p, n: tpusim.compile(p, X, qtable={"y_Gemm": 16}), "qtable: a dict of modes by op name"),
    "no mode": (
        lambda p, n: tpusim.compile(p, X, qtable={"y_Gemm": "F15"}),
        "MODE one of .* is required, got 'y_Gemm F15'",
    ),
    "a list of shapes": (
        lambda p, n: tpusim.compile(p, X, input_shapes=[1, 3]),
        "input_shapes: a dict of shapes .* got list",
    ),
    "a shape as text": (
        lambda p, n: tpusim.compile(p, X, input_shapes={"x": "1x3"}),
        "input_shapes: .* got '1x3' for 'x'",
    ),
    "a number of bits": (
        lambda p, n: tpusim.compile(p, X, mode=8),
        "mode: int8, f32, f16, bf16 or a NumberFormat .* got int",
    ),
    "no number format": (lambda p, n: tpusim.compile(p, X, mode="int9"), "mode int9 on bm1684x: supported are f32"),
    "no chip": (lambda p, n: tpusim.compile(p, X, chip="bm16"), "unknown chip 'bm16'"),
    "a class": (lambda p, n: tpusim.compile(p, X, chip=3), "chip: a chip's name, a TOML file or a ChipSpec .* got int"),
    "a text for a switch": (
        lambda p, n: tpusim.compile(p, X, asymmetric="yes"),
        "asymmetric: True or False .* got str",
    ),
    "a method's number": (lambda p, n: tpusim.compile(p, X, calibration=1), "calibration: a method .* got int"),
    "no method": (lambda p, n: tpusim.compile(p, X, calibration="best"), "'best'"),
    "no model": (lambda p, n: tpusim.compile(None, X), "model: an ONNX, TFLite or StableHLO model.* got NoneType"),
    "an array as model": (lambda p, n: tpusim.compile(X, X), "model: .* an onnx.ModelProto.* got ndarray"),
    "an array to load": (lambda p, n: tpusim.load(X), "model: an ONNX, TFLite or StableHLO model"),
    "a missing model": (lambda p, n: tpusim.load("nowhere.onnx"), "nowhere.onnx"),
    "a folder of nothing": (lambda p, n: tpusim.load_compiled(p.parent), "no manifest.json of a run"),
    "a path to infer": (lambda p, n: tpusim.infer(p, X[:1]), "model: a module .* got PosixPath"),
    "a path to simulate": (lambda p, n: tpusim.simulate(p, X[:1]), "program: a program .* got PosixPath"),
    "a model to run": (lambda p, n: tpusim.run(n), "config: a RunConfig, or the path of a model .* got Compiled"),
    "an unknown argument": (lambda p, n: tpusim.run(p, samples=X), "samples: arguments of .* are required"),
    "many to the machine": (lambda p, n: n.machine().run(X), r"f32 of shape \(1, 3.* got .* \(4, 3, 16, .*; give one"),
    "a list to the machine": (lambda p, n: n.machine().run([1]), "inputs: a dict of arrays .* got list"),
    "many at once": (lambda p, n: n.tensors(X), "inputs: one sample is required, 'x' of shape .* got 4 samples"),
    "none to verify": (lambda p, n: n.verify([]), "inputs: a sample or several are required, got none"),
    "text to flat": (lambda p, n: n.flat("x"), "input 'x'"),
    "nothing to flat": (lambda p, n: n.flat({}), "input 'x' is missing; given are .none."),
    "lists to flat": (lambda p, n: n.flat({"x": [1.0]}), "input 'x'"),
    "another level": (lambda p, n: n.tensors(X[:1], "onnx"), "level='onnx': top, tpu or local is required"),
    "a group that is not there": (lambda p, n: n.explore_group(99), "group=99: the module has"),
    "arrays to compare": (lambda p, n: tpusim.compare(X, X), "target: a dict of arrays by tensor name .* got ndarray"),
    "an unknown field": (
        lambda p, n: tpusim.compile(p, X, preprocess={"std": 1}),
        "preprocess: fields of mean, scale.*'std'",
    ),
    "a number for means": (
        lambda p, n: tpusim.compile(p, X, preprocess={"mean": 1}),
        "preprocess: mean: a list of numbers .* got int",
    ),
    "a word in a scale": (
        lambda p, n: tpusim.compile(p, X, preprocess={"scale": ["a"]}),
        "preprocess: scale: a list of numbers .* got str",
    ),
    "arrays as data": (lambda p, n: tpusim.run(p, data=X), "data: a file, a folder or 'random:N' .* got ndarray"),
    "a dict of test data": (lambda p, n: tpusim.run(p, test_data={}), "test_data: a file, .* got dict"),
    "a text for a number": (lambda p, n: tpusim.run(p, compare_samples="3"), "compare_samples: a number .* got str"),
    "a number as folder": (lambda p, n: tpusim.run(p, out=3), "out: a path is required, got int"),
    "no path to write to": (lambda p, n: tpusim.run(p, out=""), "out: a path is required, got an empty text"),
    "no folder to save": (lambda p, n: n.save(None), "folder: a path is required, got NoneType"),
    "an empty folder's name": (lambda p, n: n.save(""), "folder: a path is required, got an empty text"),
    "a number to load": (lambda p, n: tpusim.load_compiled(4), "folder: a path is required, got int"),
    "an empty model": (lambda p, n: tpusim.compile("", X), "model: .* got an empty text"),
    "ragged lists to flat": (lambda p, n: n.flat([[1, 2], [3]]), "input 'x'"),
    "a float as shape": (
        lambda p, n: tpusim.compile(p, X, input_shapes={"x": (1.0, 3)}),
        "input_shapes: a dict of shapes",
    ),
}  # fmt: skip


@pytest.mark.every
@pytest.mark.parametrize("name", MISUSES)
def test_misuse_is_answered_by_argument(name: str, path: Path, net: Compiled) -> None:
    call, sentence = MISUSES[name]
    with pytest.raises(TpusimError, match=f"(?s){sentence}") as caught:
        call(path, net)
    assert " --" not in re.sub(r"`tpusim [^`]*`", "", str(caught.value)) and len(str(caught.value)) < 700


def test_the_same_message_for_who_types_and_who_writes() -> None:
    assert (option("table", "t"), option("resume", True), option("start", "lower")) == (
        "table='t'", "resume=True", "start='lower'",
    )  # fmt: skip
    with spelled_as_options():
        assert (option("table", "t"), option("resume", True), option("start", "lower"), option("layer_group")) == (
            "--table t", "--resume", "--from lower", "--layer-group",
        )  # fmt: skip
