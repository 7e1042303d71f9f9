"""Options of all registered passes: a wrong one is refused before a pipeline does any work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from end_to_end import DIGITS

from tpusim.cli import main
from tpusim.errors import TpusimError
from tpusim.frontend import import_onnx
from tpusim.passes import Pass, PassManager, parse_pipeline
from tpusim.passes.calibration import Calibrate
from tpusim.passes.instruments import Instrument, Step
from tpusim.registry import PASSES

WRONG: dict[str, str] = {
    "force": "absent.toml",
    "file": "absent_table",
    "qtable": "absent_qtable",
    "data": "absent.npz",
    "model_file": "/dev/null/program",
    "resize_dims": "0,64",
    "scale": "nan,1,1",
    "mean": "1",
}
"""Values that no module makes right, where the type of the option does not say one."""


def wrong_value(name: str, hint: Any) -> str | None:
    """A value that must be refused; None for a switch, of which every value is right."""
    leaves = {leaf for one in (hint, *get_args(hint)) for leaf in (one, *get_args(one))}
    if name in WRONG:
        return WRONG[name]
    if hint is bool:
        return None
    if int in leaves or float in leaves:
        return "-1"
    return "absent"


def options() -> Iterator[Any]:
    """(pass, option, a wrong value) of all registered passes."""
    for name in PASSES:
        cls = PASSES.get(name)
        hints = get_type_hints(cls)
        for field in fields(cls):
            value = wrong_value(field.name, hints[field.name])
            if value is not None and not is_internal(hints[field.name]):
                yield pytest.param(name, field.name, value, id=f"{name}-{field.name}")


def is_internal(hint: Any) -> bool:
    """Whether an option has no text form: what a lowered module says of its frames."""
    return any(isinstance(one, type) and one.__name__ == "Frame" for one in get_args(hint))


class Watched(Instrument):
    """The passes that began."""

    def __init__(self) -> None:
        self.begun: list[str] = []

    def before(self, step: Step) -> None:
        self.begun.append(step.name)


@pytest.mark.every
@pytest.mark.parametrize(("name", "option", "value"), list(options()))
def test_a_wrong_option_is_refused_before_any_pass(name: str, option: str, value: str) -> None:
    """The last pass of a pipeline has it; the message names the option or its value."""
    watched = Watched()
    with pytest.raises(TpusimError) as caught:
        steps = parse_pipeline(f"func.func(canonicalize),{name}{{{option}={value}}}")
        PassManager(steps, [watched]).run(import_onnx(DIGITS / "digits.onnx"))
    assert not watched.begun
    assert option in str(caught.value) or value.partition(",")[0] in str(caught.value)


@pytest.mark.every
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("calibrate{bins=0}", "1 to 1,048,576 is required, got 0"),
        ("calibrate{bins=1048577}", "1 to 1,048,576 is required, got 1,048,577"),
        ("calibrate{bins=99999999999999999999}", "1 to 1,048,576 is required"),
        ("calibrate{method=median}", "method 'median' is unknown"),
        ("calibrate{data=random:0}", "N >= 1 is required"),
        ("calibrate{data=random:x}", "N >= 1 is required"),
        ("layer-group{cores=0}", "cores: 1 or more is required"),
        ("layer-group{opt=absent}", "expected one of 1, 2, off, best"),
        ("search-groups{opt=best}", "expected one of 1, 2, off"),
        ("set-preprocess{inputs=1,0}", "inputs: 1 or more is required, got 0"),
        ("convert-top-to-tpu{chip=bm1684 mode=bf16}", "supported are"),
        ("processor-assign{chip=bm1684x quirks_off=no_quirk}", "no_quirk is no quirk"),
        ("fuse-preprocess{chip=bm1684}", "on bm1684"),
        ("fuse-preprocess{customization_format=RGBA}", "cannot be fused"),
        ("codegen{model_file=/}", "a file is required"),
    ],
)
def test_what_is_refused(text: str, says: str) -> None:
    watched = Watched()
    with pytest.raises(TpusimError) as caught:
        PassManager(f"canonicalize,{text}", [watched]).run(import_onnx(DIGITS / "digits.onnx"))
    assert says in str(caught.value) and not watched.begun


def test_the_largest_and_the_least_are_taken() -> None:
    for step in (Calibrate("max", 1, tune_samples=0), Calibrate("max", 1 << 20, tune_samples=0)):
        assert isinstance(step, Pass)
        PassManager([step]).run(import_onnx(DIGITS / "digits.onnx"))


def test_a_run_is_refused_before_it_begins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", str(DIGITS / "digits.onnx"), "--out", str(tmp_path / "out")]
    assert main([*words, "--data", "absent.npz"]) == 1
    assert main([*words, "--data", "random:1", "--also", "absent"]) == 1
    said = capsys.readouterr().err
    assert "import" not in said and "absent.npz is neither a file nor a folder" in said and "called 'absent'" in said
    assert not (tmp_path / "out").exists()
