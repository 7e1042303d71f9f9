"""Command lines that are wrong: no traceback, nothing written, one message that names what to do next."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from end_to_end import DIGITS, digits_run, hashes

from tpusim.cli import main

MODEL = "digits.onnx"
USAGE = {  # status 2: the line cannot be read
    "": "a command is required, such as `tpusim run MODEL.onnx`",
    "runn digits.onnx": "tpusim: no command 'runn'; did you mean run?",
    "RUN digits.onnx": "did you mean run?",
    "search_qtable out/3_calibrated.mlir": "did you mean search-qtable?",
    "calibrat": "did you mean calibrate?",
    "exploregroup": "did you mean explore-group",
    "quantise": "no command 'quantise'; `tpusim --help` lists what there is",
    "--verison": "did you mean --version?",
    "help runn": "did you mean run?",
    "run": "NETWORK must be given, or --again",
    "export": "tpusim export: NETWORK must be given",
    "compare out/inputs.npz": "REFERENCE.npz must be given",
    "explore diff": "A and B must be given",
    "zoo resnet50": "OUT.onnx must be given",
    "run --chp bm1688": "no option --chp; did you mean --chip?",
    "run --modee int8 digits.onnx": "no option --modee; did you mean --mode?",
    "run digits.onnx --calibration-data x.npz": "no option --calibration-data",
    "run digits.onnx --tune_nm 3": "no option --tune_nm; did you mean --tune-num?",
    "run digits.onnx --no-resum": "did you mean --no-resume",
    "lower out/3_calibrated.mlir --asymetric": "did you mean --asymmetric",
    "run digits.onnx -x": "no option -x",
    "run --mode int9": "--mode int9: one of f32, f16, bf16, int8, w4f16, w4bf16, w8f16, w8bf16, w4int8, f8e5m2 is "
    "required; "
    "did you mean int8?",
    "run digits.onnx --mode=int9": "--mode int9: one of",
    "run digits.onnx --method KLM": "did you mean kl?",
    "run digits.onnx --dma never": "one of early, late, random is required",
    "run digits.onnx --layer-group 3": "one of 1, 2, off, best is required",
    "run digits.onnx --samples many": "--samples many: a whole number is required",
    "run digits.onnx --samples 1.5": "a whole number is required",
    "run digits.onnx --max-drop much": "--max-drop much: a number is required",
    "run --jobs two": "--jobs two: a whole number is required",
    "run digits.onnx --pixel-format grey": "did you mean gray?",
    "dis out/7_model.tpusim --engine tpu": "--engine tpu: one of tiu, gdma is required; did you mean tiu?",
    "run digits.onnx --out ''": "--out '': a path is required, got an empty word",
    "run digits.onnx --data ''": "--data '': a value is required, got an empty word",
    "run digits.onnx --table=": "--table '': a path is required",
    "lower out/3_calibrated.mlir --chip ''": "--chip '': a value is required",
    "import ''": "a path is required, got an empty word",
    "compare '' ''": "a path is required, got an empty word",
    "run digits.onnx --outputs ''": "--outputs '': a value is required",
}
REFUSED = {  # status 1: the line can be read, and what it asks for cannot be done
    "run digits.onnx --chip bm168": "unknown chip 'bm168': expected one of bm1684, bm1684x, .*; did you mean bm1688",
    "chips show BM1684Y": "did you mean bm1684 or bm1684x",
    "chips list": "show CHIP, diff CHIP CHIP, or no word at all is required",
    "run nothing.onnx": "model 'nothing.onnx' cannot be read: .*No such file",
    "run digits.onnx --to verfy": "expected one of import, .*; did you mean verify?",
    "run digits.onnx --resume --from lower": "leave one out",
    "run digits.onnx --samples -1": "0 or more is required; 0 uses all",
    "run digits.onnx --input-shapes image=axb": "NAME=1x3x224x224 is required",
    "run digits.onnx --input-shapes imag=1x1x8x8": "no input 'imag', its inputs are image",
    "run digits.onnx --outputs nothing": "no tensor named 'nothing' to cut at",
    "run digits.onnx --qtable nothing": "a file, or name:MODE,name:MODE is required",
    "run digits.onnx --table nothing": "calibration table nothing: cannot be read",
    "run digits.onnx --executor spark://x": "dask://HOST:PORT or ray://HOST:PORT is required",
    "run digits.onnx --force nothing.toml": "nothing.toml: No such file",
    "run digits.onnx --cores 9": "bm1684x has 1 core; give 1",
    "why digits.onnx --chip bm1": "digits.onnx|unknown chip",
    "npz shwo out/inputs.npz": "show FILE, dump FILE NAME, .* is required",
    "npz dump out/inputs.npz imag": "did you mean image",
    "group out/5_grouped.mlir --show --group 99": "--group 99: the module has",
    "simulate out/cali_table --input out/inputs.npz": "cali_table.*is required|is not an ONNX protobuf",
    "simulate out/7_model.tpusim --input nothing.npz": "nothing.npz: no such file; give",
    "infer out/7_model.tpusim --input out/inputs.npz": "is a program, which `tpusim simulate` runs",
    "compare out/inputs.npz out/inputs.npz --tolerance x": "two numbers are required",
    "explore digits.onnx --modes int99": "did you mean int8?",
    "explore digits.onnx --strategies bst": "expected one of 1, 2, off, best, or a file of groups; did you mean best?",
    "explore digits.onnx --set lane=1": "did you mean lanes?",
    "zoo resnet51 x.onnx": "the zoo has .*; did you mean resnet50?",
    "support --op Conf": "did you mean Conv",
    "support --chip BM1689": "did you mean .*bm1688",
    "asm out/4_tpu.mlir --coefficients out/7_model.tpusim": "`tpusim dis` shows what a line looks like",
    "opt out/1_top.mlir -p nothing": "no pass is called 'nothing'; the passes are address-assign",
    "debug nothing.tpusim": "program file 'nothing.tpusim': cannot be opened",
}


@pytest.fixture
def place(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the network and its artefacts, and the working directory."""
    shutil.copytree(digits_run(tmp_path_factory, "bm1684x", "int8"), tmp_path / "out")
    shutil.copy(DIGITS / MODEL, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def typed(line: str) -> list[str]:
    return ["" if word == "''" else word for word in line.split()]


def test_there_are_at_least_sixty() -> None:
    assert len(USAGE) + len(REFUSED) >= 60


def test_a_wrong_line_is_explained(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = hashes(place)
    for line, says in USAGE.items():
        with pytest.raises(SystemExit) as caught:
            main(typed(line))
        out, err = capsys.readouterr()
        assert caught.value.code == 2 and out == "", line
        assert err.startswith("tpusim") and err.count("\n") == 1 and says in err, (line, err)
        assert re.search(r"did you mean .*\?|--help` lists what there is|must be given", err), (line, err)
    assert hashes(place) == before


def test_what_cannot_be_done_is_explained(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = hashes(place)
    for line, says in REFUSED.items():
        assert main(typed(line)) == 1, line
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err and err.splitlines()[-1].startswith("tpusim: "), (line, err)
        assert re.search(says, err), (line, err)
    assert hashes(place) == before


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("chips show BM1688", "name = "),
        ("chips diff BM1684X bm1688", "cores"),
        ("support --chip BM1688 --mode INT8 --op conv", "Conv"),
        ("fit digits.onnx --chip BM1688 --mode BF16", "fits bm1688 in bf16"),
        ("check digits.onnx --chip Cv183x --mode Bf16", "On cv183x in bf16"),
        ("explore digits.onnx --chips BM1684X --modes F16", " f16 "),
        ("lower out/3_calibrated.mlir --chip BM1684X --mode INT8", "exact to spec"),
        ("simulate out/7_model.tpusim --input out/inputs.npz --chip BM1684X", "cycles"),
    ],
)
def test_chips_and_modes_in_capitals(line: str, says: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(typed(line)) == 0
    assert says in capsys.readouterr().out
