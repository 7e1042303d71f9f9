"""What a terminal shows: tables of any width, help in groups, results and progress apart, JSON, any encoding."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from end_to_end import DIGITS, digits_run
from rich.console import Console
from rich.text import Text

from examples.decoder import write_nets
from tests.real_folders import folder_of
from tpusim.cli import main
from tpusim.cli.command import Command
from tpusim.cli.help import GROUPS, LISTED, OWN, parser_of
from tpusim.cli.output import Output
from tpusim.cli.streams import PLAIN
from tpusim.host.tables import GAP, NAME, Table
from tpusim.registry import CLI
from tpusim.running.pipeline import STAGES

WIDTHS = (60, 80, 100, 120, 200)
NAMES = ("model.22/cv2/Conv_output_0", "model.22/cv2/Concat_output_0", "model.9/cv1/conv/Conv", "x")


def table() -> Table:
    """All kinds of columns; what does not fit into 80 columns and what does."""
    made = Table("Groups").numbers("#").names("ops").words("sections").numbers("load", "cycles").prose("why")
    for i, name in enumerate(NAMES):
        why = f"reason {i % 2} is a long sentence that says why this layer has a kernel of its own" if i else ""
        made.row(str(i), name, "1×1×1×2×1", f"{1234.5 * i:,.1f}", f"{10**i:,}", why)
    return made


def printed(made: Table, width: int, *, whole: bool = False) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.whole = whole
    console.print(made)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [40, *WIDTHS])
def test_a_table_keeps_numbers_and_words_whole(width: int) -> None:
    lines = printed(table(), width)
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    for cell in ("1×1×1×2×1", "1,234.5", "2,469.0", "1,000"):
        assert cell in text, (width, cell)
    assert text.count("reason 0 is a long sentence that says why this layer has a kernel of its own") == 1


def test_names_lose_their_middles_and_stay_distinct() -> None:
    made = Table("").names("op").numbers("cycles")
    for i, name in enumerate(NAMES):
        made.row(name, f"{10**i:,}")
    lines = printed(made, NAME + GAP + len("cycles"))
    shown = [line.split()[0] for line in lines[1:]]
    assert len(set(shown)) == len(NAMES) and all(len(name) <= NAME for name in shown)
    assert shown[2].startswith("model.9") and shown[2].endswith("Conv") and "…" in shown[2] and shown[3] == "x"


def test_reasons_stand_below_once_each() -> None:
    lines = printed(table(), 80)
    assert sum("reason 1" in line for line in lines) == 1 and lines[-1].startswith(("2  ", "   "))
    wide = printed(table(), 200)
    assert sum("reason 1" in line for line in wide) == 2  # in their rows


def test_a_column_in_which_nobody_says_anything_is_left_out() -> None:
    made = Table("").names("op").prose("why")
    made.row("a", "")
    assert printed(made, 80) == ["op", "a"]


@pytest.mark.parametrize(
    ("kinds", "begins"),
    [
        ("wnn", "row 0"),  # comparison, samples, name: numbers have their heads
        ("nw", "1 row 1"),
        ("Nnw", "name 0"),
        ("nNw", "1 name 1"),
        ("wNn", "row 0 name 1"),
        ("wwNn", "row 0 row 1 name 2"),
        ("wwn", "row 0"),
        ("eNn", "* name 1"),  # a mark without a head goes with the name
    ],
)
def test_a_stacked_row_begins_with_what_it_is_called(kinds: str, begins: str) -> None:
    """Where there is no room for columns; every other cell stands after its head."""
    made, cells = Table(""), []
    for i, kind in enumerate(kinds):
        add = {"w": made.words, "n": made.numbers, "N": made.names, "e": made.words}[kind]
        add("" if kind == "e" else f"head{i}")
        cells.append({"w": f"row {i}", "n": "1", "N": f"name {i}", "e": "*"}[kind])
    made.words("long")
    made.row(*cells, "x" * 40)
    first, *others = printed(made, 30)
    assert first == begins
    said = " ".join(" ".join(others).split())
    shown = begins.split()[-1]
    for i in range(int(shown) + 1, len(kinds)):
        assert f"head{i} {cells[i]}" in said


def test_verbose_cuts_no_name() -> None:
    lines = printed(table(), 60, whole=True)
    assert all(any(name in line for line in lines) for name in NAMES)


def test_cells_are_not_markup() -> None:
    made = Table("[red]t").names("op").words("verdict")
    made.row("a[red]", Text("FAILED", "red"))
    assert printed(made, 80) == ["[red]t", "op      verdict", "a[red]  FAILED"]


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="2 cells are required, got 1"):
        Table("t").names("a", "b").row("x")


@pytest.fixture
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return digits_run(tmp_path_factory, "bm1684x", "int8")


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_of_a_table_or_map_is_wider_than_the_terminal(
    width: int, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of commands with tables and of the map of local memory; sentences are lines, which terminals wrap."""
    monkeypatch.setenv("COLUMNS", str(width))
    for words in (
        ["group", str(run / "5_grouped.mlir"), "--show"],
        ["check", str(DIGITS / "digits.onnx")],
        ["explore", "roofline", str(run / "4_tpu.mlir")],
        ["support", "--op", "Conv"],
        ["explore", "diff", str(run), str(run), "--all"],
        ["run", "--help"],
        ["--help"],
    ):
        try:
            assert main(words) == 0
        except SystemExit as end:
            assert end.code == 0
        out = capsys.readouterr().out
        sentence = r"[A-Z]?[\w ]+[:,] |digits on|\d+ of|  \S+.*: |usage| ops?, |MiB moved|nothing is refused|roofs"
        assert not [line for line in out.splitlines() if len(line) > width and not re.search(sentence, line)]


def test_help_is_in_groups() -> None:
    listed = [name for group in LISTED.values() for name in group]
    assert sorted(listed) == sorted([*CLI.shipped(), "opt"])
    headings = {name: heading for heading, names in GROUPS.items() for name in names.split()}
    loose = [
        flag
        for action in parser_of(CLI.get("run"))._actions
        for flag in action.option_strings[:1]
        if flag.startswith("--") and flag[2:].removeprefix("no-") not in headings
    ]
    assert not loose, f"options of run without a group (of {list(GROUPS)}, not {OWN})"
    assert all(len(f"  {name:<17}{says}") <= 80 for group in LISTED.values() for name, says in group.items())


def test_help_of_run_has_the_headings(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    out = capsys.readouterr().out.splitlines()
    at = [out.index(heading) for heading in GROUPS]
    assert at == sorted(at)
    with pytest.raises(SystemExit):
        main(["help", "run"])
    assert capsys.readouterr().out.splitlines() == out


# --- results, progress, JSON


def test_progress_goes_to_stderr_line_by_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", str(DIGITS / "digits.onnx"), "--data", "random:1", "--to", "lower"]
    assert main([*words, "--out", str(tmp_path / "a")]) == 0
    out, err = capsys.readouterr()
    stages = (rf" {i} {name} +[\d.]+ s\n" for i, name in enumerate(list(STAGES)[:4], 1))
    assert re.fullmatch("".join(stages), err)
    assert "Fidelity" in out and "Stopped after 'lower'" in out
    assert main([*words, "--out", str(tmp_path / "b"), "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert err == "" and out == f"Stopped after 'lower'; artefacts are in {tmp_path / 'b'}\n"


def test_quiet_is_the_verdict(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", str(DIGITS / "digits.onnx"), "--chip", "BM1684X", "--mode", "INT8", "--resume", "-q"]
    data = ["--data", str(DIGITS / "calibration.npz"), "--samples", "24", "--out", str(tmp_path / "out")]
    shutil.copytree(run, tmp_path / "out")
    assert main([*words, *data]) == 0
    out, err = capsys.readouterr()
    assert out == f"PASSED  digits on bm1684x in int8; artefacts in {tmp_path / 'out'}\n" and err == ""


def json_calls(run: Path, out: Path) -> dict[str, list[str]]:
    """A quick call of every command that prints a result."""
    model, grouped = str(DIGITS / "digits.onnx"), str(run / "5_grouped.mlir")
    calibrated, canonical, tpu = (str(run / f"{name}.mlir") for name in ("3_calibrated", "2_canonical", "4_tpu"))
    program, inputs, text = str(run / "7_model.tpusim"), str(run / "inputs.npz"), str(out / "p.txt")
    table = ["--out-table", str(out / "t"), "--out", str(out / "c.mlir"), "--data", "random:1"]
    return {
        "run": [model, "--data", "random:1", "--to", "import", "--out", str(out / "run")],
        "check": [model],
        "fit": [model],
        "import": [model, "--out", str(out / "1.mlir")],
        "canonicalize": [str(run / "1_top.mlir"), "--out", str(out / "2.mlir")],
        "calibrate": [canonical, *table, "--method", "max"],
        "lower": [calibrated, "--out", str(out / "4.mlir")],
        "group": [grouped, "--show"],
        "assign": [grouped, "--out", str(out / "6.mlir")],
        "codegen": [str(run / "6_final.mlir"), "--out", str(out / "7.tpusim")],
        "export": [model, tpu, "--out", str(out / "qdq.onnx")],
        "inspect": [str(out / "b.mlirbc")],
        "infer": [tpu, "--input", inputs, "--out", str(out / "o.npz")],
        "simulate": [program, "--input", inputs, "--out", str(out / "l.npz"), "--trace", str(out / "trace.json")],
        "dis": [program, "--out", text],
        "asm": [text, "--coefficients", program, "--out", str(out / "p.tpusim")],
        "compare": [str(run / "local_outputs.npz"), str(run / "tpu_outputs.npz")],
        "why": [calibrated, "--top", "1", "--worst", "0", "--cycles", "0"],
        "search-qtable": [calibrated, "--clocked", "1", "--out", str(out / "q")],
        "search-threshold": [canonical, *table, "--inference-num", "1", "--tune-num", "0"],
        "correct-bias": [canonical, *table, "--expected-cos", "0", "--tune-num", "0"],
        "bisect": [calibrated],
        "explore": [model, "--data", "random:1", "--tune-num", "0", "--out", str(out / "space")],
        "explore-group": [tpu, "--out", str(out / "w.html")],
        "explore-diff": [str(run), str(run), "--all"],
        "explore-roofline": [tpu],
        "zoo": ["squeezenet", str(out / "s.onnx")],
        "chips": [],
        "plugins": [],
        "verify": [str(out / "tpu-mlir")],
        "support": ["--op", "Conv", "--chip", "bm1688"],
        "bench": [model, "--rounds", "1"],
        "npz": ["show", inputs],
        "link": [str(out / "nets"), "--mode", "f16", "--out", str(out / "decoder.tpusim")],
        "prove": [str(out / "decoder.tpusim")],
    }


SLOW = (
    "search-threshold", "bench", "why", "search-qtable", "explore", "bisect", "correct-bias", "zoo", "link", "prove",
)  # fmt: skip


def test_every_command_that_prints_a_result_has_json() -> None:
    without = [name for name, kind in CLI.shipped().items() if not issubclass(kind, Command)]
    assert without == ["debug"]  # a prompt
    assert all(kind.says and "\n" not in kind.says for name, kind in CLI.shipped().items() if name != "debug")
    assert set(json_calls(Path(), Path())) == set(CLI.shipped()) - {"debug"}


def said(name: str, run: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = json_calls(run, out)
    if name == "asm":
        assert main(["dis", *calls["dis"]]) == 0
    if name == "inspect":
        assert main(["opt", *calls["bisect"], "--emit-bytecode", "-o", *calls["inspect"]]) == 0
    if name in ("link", "prove"):
        write_nets(out / "nets")
    if name == "prove":
        assert main(["link", *calls["link"]]) == 0
    if name == "verify":
        folder_of("bm1684x-INT8", out / "tpu-mlir")
    capsys.readouterr()
    status = main([name, *calls[name], "--json"])
    found = json.loads(capsys.readouterr().out, parse_constant=lambda word: pytest.fail(word))
    assert found["command"] == name and found["passed"] is (status == 0)
    keys = re.findall(r"`(\w+)`", CLI.get(name).says)
    optional = {
        "report",
        "best",
        "mismatches",
        "lines",
        "differences",
        "diff",
        *(["inputs", "results", "weights", "nodes", "ops"] if name == "export" else []),  # with --to of another form
        *(["upstream"] if name == "codegen" else []),  # with --through-upstream
        *(["recommended"] if name == "explore" else []),  # the same
        *(["nets", "persistent"] if name == "inspect" else []),  # of a program
        *(["card"] if name == "support" else []),
    }
    assert not [key for key in keys if key not in found and key not in optional], (name, list(found))
    written = [Path(path) for path in found.get("wrote", ())]
    assert all(path.exists() for path in written), written


@pytest.mark.every
@pytest.mark.parametrize("name", [name for name in CLI.shipped() if name not in ("debug", *SLOW)])
def test_json_parses(name: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(name, run, tmp_path, capsys)


def test_json_of_stablehlo(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["export", str(run / "1_top.mlir"), "--to", "stablehlo", "--out", str(tmp_path / "net.mlir"), "--json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["inputs"]) == len(found["results"]) == 1 and found["weights"] == []
    assert found["wrote"] == [str(tmp_path / "net.mlir")]


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_json_of_slow_commands_parses(name: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(name, run, tmp_path, capsys)


def test_an_error_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "nothing.onnx", "--json"]) == 1
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["passed"] is False and "nothing.onnx" in found["error"] and err.startswith("tpusim: ")


def test_numbers_that_are_none_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(as_json=True)
    output.result(a=float("nan"), b=[float("inf"), 1.5], c={"d": Path("x")}, e=(1, None, True))
    output.finish("t", passed=True)
    found = json.loads(capsys.readouterr().out)
    assert found == {"command": "t", "passed": True, "a": None, "b": [None, 1.5], "c": {"d": "x"}, "e": [1, None, True]}


# --- encodings


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "cp437", "latin-1", "koi8-r", "utf-8"])
def test_any_encoding_prints_every_letter_somehow(encoding: str, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results and errors; lines keep their widths, so that columns stay under each other."""
    texts: dict[str, str] = {}
    for name in (encoding, "utf-8"):
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding=name) for _ in range(2))
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        assert main(["group", str(run / "5_grouped.mlir"), "--show"]) == 0
        assert main(["chips", "show", "\N{SNOWMAN}…×→"]) == 1
        texts[name] = out.buffer.getvalue().decode(name)
        assert "unknown chip" in err.buffer.getvalue().decode(name)
    assert [len(line) for line in texts[encoding].splitlines()] == [len(line) for line in texts["utf-8"].splitlines()]


def test_the_nearest_letters_are_ascii_and_of_the_same_width() -> None:
    assert all(len(letter) == len(plain) == 1 and plain.isascii() for letter, plain in PLAIN.items())
    assert "│├─┐ é ß ①".encode("ascii", "tpusim.nearest") == b"|+-+ e ? 1"


COMPILED = """
import sys
from tpusim.cli import main
tpu, program, *made = sys.argv[1:]
assert main(["group", tpu, "--out", made[0]]) == 0 and main(["assign", made[0], "--out", made[1]]) == 0
assert main(["codegen", made[1], "--out", made[2]]) == 0 and main(["dis", program]) == 0
print([name for name in ("jax", "onnx", "onnxruntime") if name in sys.modules], file=sys.stderr)
"""


def test_what_compiles_a_module_loads_no_library_of_frameworks(run: Path, tmp_path: Path) -> None:
    """They take longer to import than the compiler (docs/performance.md)."""
    made = [tmp_path / name for name in ("5.mlir", "6.mlir", "7.tpusim")]
    words = [sys.executable, "-c", COMPILED, *map(str, (run / "4_tpu.mlir", run / "7_model.tpusim", *made))]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]" and made[2].exists()
