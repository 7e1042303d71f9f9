"""A planted crash in every registered pass: the reproducer is a file that fails again in the same pass."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from end_to_end import DIGITS

from tpusim.cli import main
from tpusim.errors import UnsupportedError
from tpusim.frontend import import_onnx
from tpusim.ir.module import Model
from tpusim.passes import PassContext, PassManager, parse_pipeline, print_pipeline
from tpusim.passes.instruments import Instrument, Step
from tpusim.passes.instruments.reproducer import Reproducer, read_reproducer
from tpusim.passes.lowering import STEPS
from tpusim.registry import PASSES

LOWERING = ",".join(("processor-assign{chip=bm1688}", *(step.name for step in STEPS)))
BEFORE = (
    "set-preprocess{pixel_format=gray},func.func(canonicalize),smoothquant{data=random:1},softmax_correction,"
    "calibrate{data=random:1 method=max},import-calibration-table,fuse-preprocess{chip=bm1688}"
)
GROUPS = "search-groups,combine-timesteps,overlap-groups,choose-cores,merge-moves,outline-host-functions"
WHOLE = f"{BEFORE},convert-top-to-tpu{{chip=bm1688}},processor-tpu-optimize,weight-reorder,layer-group"
STEPWISE = f"{BEFORE},{LOWERING},processor-tpu-optimize,weight-reorder,{GROUPS},address-assign,codegen"
GENERIC = "apply-pdl{pdl_file=patterns.pdl},inline,symbol-dce,cse,dce,fold,sccp"
PIPELINES = (WHOLE, STEPWISE, GENERIC)
"""Every registered pass, in one of the three."""


PATTERNS = """pdl.pattern @AbsOfAbs : benefit(2) {
  %type = pdl.type
  %x = pdl.operand
  %inner = pdl.operation "top.Abs" (%x : !pdl.value) -> (%type : !pdl.type)
  %value = pdl.result 0 of %inner
  %outer = pdl.operation "top.Abs" (%value : !pdl.value) -> (%type : !pdl.type)
  pdl.rewrite %outer {
    pdl.replace %outer with %inner
  }
}
"""
"""What apply-pdl is given; the network has no such op."""


def test_the_pipelines_have_every_pass() -> None:
    named = {step.name for text in PIPELINES for step in parse_pipeline(text).flat()}
    assert named == set(PASSES.shipped())


class Snapshots(Instrument):
    """The module before each pass that continues nothing, what follows, and the table that it has."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[Model, PassContext, str]] = {}
        self._begun = ""

    def before(self, step: Step) -> None:
        if len(step.path) > 1:
            return
        rest = print_pipeline(parse_pipeline(",".join(map(print_pipeline, (step.step, *step.rest)))))
        if not step.step.continues:
            self._begun = step.name
            self.found[step.name] = step.model.clone(), PassContext(table=step.ctx.table), rest
        self.found.setdefault(step.name, self.found[self._begun])


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, tuple[Model, PassContext, str]]:
    found: dict[str, tuple[Model, PassContext, str]] = {}
    patterns = tmp_path_factory.mktemp("pdl") / "patterns.pdl"
    patterns.write_text(PATTERNS)
    for text in PIPELINES:
        watched = Snapshots()
        with pytest.MonkeyPatch.context() as patch:  # the network has no tensor for these two
            for name in ("smoothquant", "softmax_correction"):
                patch.setattr(PASSES.get(name), "rewrite", lambda self, model, ctx: model)
            PassManager(text.replace("patterns.pdl", str(patterns)), [watched]).run(import_onnx(DIGITS / "digits.onnx"))
        found |= watched.found
    return found | {"canonicalize": found["func.func"]}


@pytest.mark.every
@pytest.mark.filterwarnings("ignore::tpusim.errors.TpusimWarning")
@pytest.mark.parametrize("name", PASSES.shipped())
def test_a_planted_crash_is_reproduced(
    name: str, snapshots: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the file alone, in a new context."""

    def crash(self: Any, model: Model, ctx: PassContext) -> Model:
        raise UnsupportedError(f"planted in {name}, table {ctx.table is not None}")

    model, ctx, rest = snapshots[name]
    path = tmp_path / "again.mlir"
    monkeypatch.setattr(PASSES.get(name), "rewrite", crash)
    with pytest.raises(UnsupportedError, match=f"planted in {name}, ") as caught:
        PassManager(rest, [Reproducer(path)]).run(model, ctx)
    assert caught.value.__notes__ == [f"`tpusim opt --run-reproducer {path}` runs pass {name} again"]
    assert name in [step.name for step in read_reproducer(path).flat()]
    assert main(["opt", str(path), "--run-reproducer"]) == 1
    assert f"planted in {name}, " in capsys.readouterr().err
