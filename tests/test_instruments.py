"""Instruments of passes: what they print and write, and that a reproducer of a crash crashes again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest
from end_to_end import DIGITS, digits_run

from tpusim.cli import main
from tpusim.errors import ConfigError, ImportModelError, UnsupportedError
from tpusim.frontend import import_onnx
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model, State, load_model
from tpusim.ir.text import parse_module, print_module
from tpusim.ops import context
from tpusim.passes import Pass, PassContext, PassManager, Pipeline, print_pipeline
from tpusim.passes.calibration import ImportCalibrationTable
from tpusim.passes.canonicalize import Canonicalize
from tpusim.passes.instruments import Instrument, Step
from tpusim.passes.instruments.dump import Dump
from tpusim.passes.instruments.pictures import nodes
from tpusim.passes.instruments.printing import ALL, PrintIR
from tpusim.passes.instruments.reproducer import Reproducer, read_reproducer
from tpusim.passes.instruments.statistics import PatternStatistics
from tpusim.passes.instruments.timing import Timing
from tpusim.passes.pipelines import lowered
from tpusim.registry import PASSES


@dataclass(frozen=True)
class Crash(Pass):
    """A planted crash."""

    name = "crash"
    anchor = "func.func"
    requires = frozenset({State.TOP, State.CALIBRATED})
    why: str = "planted"

    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        raise UnsupportedError(f"crash: {self.why}")


@pytest.fixture
def crash() -> Iterator[None]:
    PASSES.add("crash", Crash)
    yield
    PASSES.remove("crash")


def top() -> Model:
    return import_onnx(DIGITS / "digits.onnx")


class Watched(Instrument):
    """Writes down what it is told."""

    watches_patterns = True

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.fired: set[str] = set()

    def before(self, step: Step) -> None:
        self.seen.append(f"before {step.name} at {len(step.path)}, {len(step.rest)} follow")

    def after(self, step: Step) -> None:
        self.seen.append(f"after {step.name}")

    def failed(self, step: Step, error: Exception) -> None:
        self.seen.append(f"failed {step.name}")

    def tried(self, pattern: str, step: Step, seconds: float, *, fired: bool) -> None:
        self.fired |= {f"{step.name} {pattern}"} if fired else set()


def test_what_an_instrument_is_told() -> None:
    watched = Watched()
    with pytest.raises(UnsupportedError):
        PassManager([Pipeline((Canonicalize(),), "func.func"), Crash(), Canonicalize()], [watched]).run(top())
    assert watched.seen == [
        "before func.func at 1, 2 follow", "before canonicalize at 2, 0 follow", "after canonicalize",
        "after func.func", "before crash at 1, 1 follow", "failed crash",
    ]  # fmt: skip
    assert "canonicalize FoldBatchNormIntoConv" in watched.fired


def test_printing() -> None:
    said: list[str] = []
    steps = [Canonicalize(), Canonicalize(), Crash()]
    heads = {
        "before one": (PrintIR(said.append, before=["canonicalize"]), ["Before canonicalize"] * 2),
        "after all": (PrintIR(said.append, after=[ALL]), ["After canonicalize"] * 2),
        "after change": (PrintIR(said.append, after=[ALL], changed_only=True), ["After canonicalize"]),
        "failure": (PrintIR(said.append, on_failure=True), ["After crash Failed"]),
        "nothing": (PrintIR(said.append, before=["codegen"]), []),
    }
    for printer, expected in heads.values():
        said.clear()
        with pytest.raises(UnsupportedError):
            PassManager(steps, [printer]).run(top())
        assert [text.partition("\n")[0] for text in said] == [f"// -----// IR Dump {e} //----- //" for e in expected]
        for text in said:
            parse_module(text, context())


def test_files_of_changes(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each parses to the module of its pass; pictures show every op and every group."""
    folder = digits_run(tmp_path_factory, "bm1684x", "int8")
    asked = ["opt", str(folder / "1_top.mlir"), "-p", f"deploy{{file={folder / 'cali_table'}}}"]
    dumps = ["--dump-after-change", str(tmp_path)]
    for form in ("mlir", "svg", "dot"):
        dumps += ["--dump-form", form]
    assert main([*asked, "-o", str(tmp_path / "x.mlir"), *dumps]) == 0
    stems = [path.stem for path in sorted(tmp_path.glob("*_after_*.mlir"))]
    names = [stem.partition("_after_")[2] for stem in stems]
    assert names[:2] == ["canonicalize", "import-calibration-table"]
    assert "convert-ops" in names and "convert-top-to-tpu" not in names
    grouped = ("search-groups", "combine-timesteps", "address-assign")
    assert names[-4:] == ["weight-reorder", *grouped]
    final = load_model(folder / "6_final.mlir", context())
    text = parse_module((tmp_path / f"{stems[-1]}.mlir").read_text(), context())
    assert [op.name for op in text.walk()] == [op.name for op in final.module.walk()]
    shown = {node.name for node in nodes(final)}
    assert {op_name(op) for op in final.module.walk() if op.name.startswith("tpu.") and op.results} - {""} <= shown
    for stem in stems:
        drawing = ElementTree.parse(tmp_path / f"{stem}.svg").getroot()
        graph = (tmp_path / f"{stem}.dot").read_text()
        texts = [found.text or "" for found in drawing.iter("{http://www.w3.org/2000/svg}text")]
        assert len(texts) == graph.count(" [label=") > 10 and len(set(texts)) == len(texts)
        assert len(list(drawing.iter("{http://www.w3.org/2000/svg}path"))) == graph.count(" -> ") >= len(texts) - 2
        assert ("cluster_" in graph) == ("stroke-dasharray" in ElementTree.tostring(drawing, "unicode"))
        assert ("cluster_" in graph) == (stem.partition("_after_")[2] in grouped)
    with pytest.raises(ConfigError, match="--dump-form svg: needs --dump-before"):
        main(["opt", str(folder / "1_top.mlir"), "-p", "canonicalize", "--dump-form", "svg", "--debug"])


def test_a_tree_of_times() -> None:
    timing, statistics = Timing(), PatternStatistics()
    ctx = PassContext()
    PassManager([Pipeline((Canonicalize(),), "func.func")], [timing, statistics]).run(top(), ctx)
    (function,) = timing.total.parts.values()
    (step,) = function.parts.values()
    patterns = sum(part.seconds for part in step.parts.values())
    assert 0 < patterns <= step.seconds <= function.seconds == timing.total.seconds
    assert {pattern: count for (_, pattern), count in statistics.firings.items() if count} == dict(ctx.patterns)
    lines = list(timing.report())
    assert re.fullmatch(r" +[\d.]+ 100.0%  total", lines[1]) and any(
        line.endswith("    canonicalize") for line in lines
    )
    assert sum("other patterns" in line for line in lines) <= 1


def test_a_reproducer_crashes_again(crash: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the same pass, from a file alone, with the passes that were to follow, inside the function it was in."""
    path = tmp_path / "again.mlir"
    steps = [Canonicalize(), Crash("a, b"), *lowered()]
    with pytest.raises(UnsupportedError) as caught:
        PassManager(steps, [Reproducer(path)]).run(top())
    assert caught.value.__notes__ == [f"`tpusim opt --run-reproducer {path}` runs pass crash again"]
    assert print_pipeline(read_reproducer(path)).startswith('builtin.module(crash{why="a, b"},convert-top-to-tpu')
    assert main(["opt", str(path), "--run-reproducer"]) == 1
    assert "crash: a, b" in capsys.readouterr().err
    before = PassManager("canonicalize").run(top())
    texts = (print_module(model.module) for model in (before, load_model(path, context())))
    expected, found = (re.sub(r', module.weight_file = ".*?"', "", text) for text in texts)
    assert found == expected
    inside = Pipeline((Canonicalize(), Crash(), Canonicalize()), "func.func")
    with pytest.raises(UnsupportedError):
        PassManager([inside, *lowered()], [Reproducer(path)]).run(top())
    text = print_pipeline(read_reproducer(path))
    assert text.startswith("builtin.module(func.func(crash,canonicalize),convert-top-to-tpu")


def test_a_reproducer_has_the_table_of_its_context(crash: None, tmp_path: Path) -> None:
    """What travels with the module is in files, too: here the failure is that of a table that lacks tensors."""
    path, ctx = tmp_path / "again.mlir", PassContext()
    PassManager("canonicalize,calibrate{data=random:1 method=max}").run(top(), ctx)
    assert ctx.table is not None
    steps = (Crash(), ImportCalibrationTable())
    with pytest.raises(UnsupportedError):
        PassManager(steps, [Reproducer(path)]).run(PassManager("canonicalize").run(top()), ctx)
    (_, found) = read_reproducer(path).steps
    assert isinstance(found, ImportCalibrationTable)
    again = PassManager([found]).run(load_model(path, context()))
    assert print_module(again.module).count("!quant.calibrated") > 10


def test_a_module_that_does_not_verify_has_a_reproducer(tmp_path: Path) -> None:
    class Breaks(Canonicalize):
        def rewrite(self, model: Model, ctx: PassContext) -> Model:
            next(op for op in model.ops if op.name == "top.Conv").attributes.pop("strides")
            return model

    with pytest.raises(ImportModelError, match="after canonicalize"):
        PassManager([Breaks()], [Reproducer(tmp_path / "x.mlir")]).run(top())
    assert read_reproducer(tmp_path / "x.mlir").steps == (Canonicalize(),)
    with pytest.raises(ConfigError, match="a reproducer is required"):
        (tmp_path / "y.mlir").write_text("module {}")
        read_reproducer(tmp_path / "y.mlir")


def test_a_dump_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        PassManager([Canonicalize()], [Dump(tmp_path / "file" / "folder", ["after"])]).run(top())


def test_a_module_in_a_wrong_state_has_a_reproducer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "again.mlir"
    with pytest.raises(ImportModelError, match="pass layer-group: a module in state"):
        PassManager("canonicalize,layer-group", [Reproducer(path)]).run(top())
    assert [step.name for step in read_reproducer(path).steps] == ["layer-group"]
    assert main(["opt", str(path), "--run-reproducer"]) == 1
    assert "pass layer-group: a module in state" in capsys.readouterr().err


def test_numbers_are_checked_until_inputs_become_frames(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--pixel-format", "gray", "--scale", "0.0625", "--chip", "cv181x", "--method", "max", "--to", "lower"]
    data = ["--data", str(DIGITS / "calibration.npz"), "--samples", "2", "--out", str(tmp_path / "run")]
    assert main(["run", str(DIGITS / "digits.onnx"), *data, *words, "--fuse-preprocess", "--verify-passes"]) == 0
    said = capsys.readouterr().out
    assert re.search(
        r"verify-passes: [1-9]\d* patterns and passes changed no numbers; not checked from [\w-]+ on", said
    )
