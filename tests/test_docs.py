"""README, tutorial and how-tos as a reader follows them: each command and block runs, and prints what the page says.

Of ```console a line that begins with `$` is a command; the others are its output, `...` stands for anything. ```sh has
commands alone, ```python runs, a block with a title is written to that file, ```text is for reading.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from end_to_end import digits_run

from tpusim import zoo
from tpusim.cli import main
from tpusim.cli.page import page
from tpusim.registry import CLI
from tpusim.running.pipeline import STAGES

CHIPS = sorted(path.stem for path in Path(zoo.__file__).parent.glob("chips/*.toml"))
ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = ("tutorial.md", *(f"howto/{file.name}" for file in sorted((DOCS / "howto").glob("*.md"))))
LONG = {f"howto/{name}.md" for name in ("own_model", "bad_int8", "calibration_data", "tune", "first_hour")}
"""Pages whose commands take long: networks of the zoo, one op after the other in float, whole test sets."""
BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MAKE = re.compile(r"(?:`|^ +|^)make ((?:[a-z-]+ ?)+?)(?:`|#|\(| {2}|$)", re.MULTILINE)
"""Targets, where a page says `make TARGET`."""
SHARED = (
    "tpusim run examples/digits/digits.onnx --chip bm1684x --mode int8 --data examples/digits/calibration.npz "
    "--samples 24 --out out"
)
"""The run that the tests share (end_to_end.digits_run)."""
OF_SHARED = "PASSED digits on bm1684x in int8"


def blocks(name: str) -> list[tuple[str, str, str]]:
    """(language, title, text) of the blocks of a page."""
    return [(m[1], m[2] or "", m[3]) for m in BLOCK.finditer((DOCS / name).read_text(encoding="utf-8"))]


README = "../README.md"
SLOW_LINES = ("resnet50",)
"""What stands in lines of README that take long."""


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Each command of a console block, and the parts of its output between the dots."""
    found: list[tuple[str, list[str]]] = []
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        parts = re.split(r"^\.\.\.$", output, flags=re.MULTILINE)
        found.append((line, [words for one in parts if (words := " ".join(one.split()))]))
    return found


def follow(name: str, capsys: pytest.CaptureFixture[str], ready: Path | None) -> None:
    """Do what a page says in this folder; the shared run is taken from `ready`, if given."""
    variables: dict[str, object] = {}
    for language, title, text in blocks(name):
        if language == "console":
            for line, expected in commands(text):
                got = taken(ready, expected) if ready and line == SHARED else done(line, expected, capsys)
                assert not [part for part in expected if part not in got], f"{name}: {line}\n{got}"
        elif language == "python":
            exec(compile(text, name, "exec"), variables)
        elif language == "sh":
            for line in text.splitlines():
                if not (ready and any(word in line for word in SLOW_LINES)):
                    typed(line, capsys)
        elif title:
            Path(title).write_text(text)
        else:
            assert language in ("text", "toml"), f"{name}: a block of {language} is not run"


def typed(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A line of a block of commands, with a comment or without: `tpusim` runs, `make` has the target."""
    words = shlex.split(line, comments=True)
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE), line
    elif words[0] == "tpusim":
        try:
            status = main(words[1:])
        except SystemExit as end:  # of help and completion
            status = end.code
        assert not status, f"{line}\n{capsys.readouterr()}"
    else:
        assert words == [".", ".venv/bin/activate"] or words[:2] == ["pip", "install"], line


def taken(ready: Path, expected: list[str]) -> str:
    assert expected == [OF_SHARED]
    shutil.copytree(ready, "out")
    return OF_SHARED


def done(line: str, expected: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command printed, on one line; its status is 1 if the page shows an error or a failure."""
    words = shlex.split(line)
    assert words[0] == "tpusim"
    fails = any(part.startswith(("tpusim: ", "FAILED ")) or part.endswith("FAILED.") for part in expected)
    capsys.readouterr()
    assert main(words[1:]) == int(fails), f"{line}\n{capsys.readouterr()}"
    return " ".join("\n".join(capsys.readouterr()).split())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the repository's examples are."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.every
@pytest.mark.parametrize("name", [name for name in PAGES if name not in LONG])
def test_a_page_does_what_it_says(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
):
    ready = digits_run(tmp_path_factory, "bm1684x", "int8") if SHARED in (DOCS / name).read_text() else None
    follow(name, capsys, ready)


def follow_readme(folder: Path, capsys: pytest.CaptureFixture[str], ready: Path, name: Path | None) -> None:
    """Its MODEL.onnx is digits here, and its `make demo` the run that the tests share."""
    (folder / "MODEL.onnx").symlink_to(ROOT / "examples" / "digits" / "digits.onnx")
    images = np.load(ROOT / "examples" / "digits" / "calibration.npz")["image"]
    np.savez("samples.npz", image=images[:8])
    shutil.copytree(ready, "out/digits_bm1684x_int8")
    follow(README, capsys, name)
    assert "multipliers = [1 : i64, 3 : i64], rshifts = [1 : i64, 2 : i64]" in Path("4_tpu.mlir").read_text()


def test_readme_does_what_it_says(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path_factory):
    ready = digits_run(tmp_path_factory, "bm1684x", "int8")
    follow_readme(folder, capsys, ready, ready)


@pytest.mark.slow
def test_readme_does_what_it_says_of_resnet50(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path_factory):
    follow_readme(folder, capsys, digits_run(tmp_path_factory, "bm1684x", "int8"), None)
    assert Path("r50.onnx").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tutorial.md", *sorted(LONG)])
def test_a_page_does_what_it_says_from_nothing(name: str, folder: Path, capsys: pytest.CaptureFixture[str]):
    follow(name, capsys, ready=None)


def test_pages_have_blocks_that_run():
    """Followed pages would pass with nothing to follow."""
    found = [language for name in PAGES for language, _, _ in blocks(name)]
    assert found.count("console") > 8 and found.count("python") > 4
    assert commands('$ a "b c"\none\n  two\n...\nthree\n$ d\n') == [('a "b c"', ["one two", "three"]), ("d", [])]


@cache
def help_page() -> str:
    """What every command says of itself, which takes a second."""
    return page()


def test_the_command_line_page_has_every_option():
    """`make cli` writes it anew."""

    def options(text: str) -> dict[str, set[str]]:
        sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
        return {s.split("\n")[0]: set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", s, re.MULTILINE)) for s in sections}

    kept = options((DOCS / "cli.md").read_text(encoding="utf-8"))
    assert kept == options(help_page()) and list(kept) == list(CLI.shipped())
    assert {"--chip", "--samples", "--layer-group"} <= kept["run"]


def test_help_lists_the_values_of_names():
    """Chips, stages and networks are found out when they are needed; help, which imports nothing, names them all."""
    said = {one.split("\n")[0]: one.split() for one in re.split(r"^## ", help_page(), flags=re.MULTILINE)[1:]}
    for command, names in (("run", [*CHIPS, *STAGES]), ("lower", CHIPS), ("zoo", zoo.ZOO)):
        assert not set(names) - {word.strip(",.:();") for word in said[command]}, command


def test_the_migration_page_names_options_that_exist():
    """What stands in the second column of its tables are commands, options and files of tpusim."""
    text = (DOCS / "howto" / "from_tpu_mlir.md").read_text(encoding="utf-8")
    ours = " ".join(row.split(" | ")[1] for row in text.splitlines() if row.startswith("| ") and row.count(" | ") > 1)
    known = (DOCS / "cli.md").read_text(encoding="utf-8")
    named = set(re.findall(r"--[a-z-]+", ours)) | {f"## {word}" for word in re.findall(r"`tpusim (\w+)", ours)}
    assert len(named) > 20 and not [one for one in named - {"## opt"} if one not in known]


def test_the_migration_page_has_every_option_of_the_tools():
    """tests/upstream/options.json has what `--help` of TPU-MLIR 1.30.2 lists."""
    text = (DOCS / "howto" / "from_tpu_mlir.md").read_text(encoding="utf-8")
    for tool, options in json.loads((ROOT / "tests" / "upstream" / "options.json").read_text()).items():
        section = re.split(r"^##", text.split(f"### {tool}.py\n")[1], flags=re.MULTILINE)[0]
        theirs = [row.split(" | ")[0] for row in section.splitlines() if row.startswith("| `")]
        assert sorted(re.findall(r"--\w+", " ".join(theirs))) == sorted(options), tool


def test_every_make_target_that_a_page_names_exists():
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    texts = {page: page.read_text(encoding="utf-8") for page in (*ROOT.glob("*.md"), *DOCS.rglob("*.md"))}
    named = {page: MAKE.findall(text) for page, text in texts.items()}
    wrong = {page.name: set(" ".join(found).split()) - targets for page, found in named.items()}
    assert {name: words for name, words in wrong.items() if words} == {}
    assert sum(map(len, named.values())) > 20


@pytest.mark.slow
def test_the_site_builds_without_warnings(tmp_path: Path):
    """`make docs`, where the extra 'docs' is installed."""
    pytest.importorskip("material", reason="mkdocs-material comes with the extra 'docs'")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, env=quiet)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "site" / "notebooks" / "why_int8_is_bad.html").is_file()
