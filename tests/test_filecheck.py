"""The examples of `tests/filecheck`: each gives what its CHECK lines say, and every pattern and pass has one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import Options
from filecheck.parser import Parser
from filecheck_examples import output
from pattern_page import EXAMPLES, Registered, examples, page, registered, subject

from tpusim.canonicalize import automaton
from tpusim.ir.dialects import open_context
from tpusim.ir.pdl import DataPattern
from tpusim.ir.pdl.patterns import Automata
from tpusim.registry import PASSES

PAGE = Path(__file__).parents[1] / "docs" / "patterns.md"
PATTERNS = registered()
CONTEXT = open_context()


def name_of(path: Path) -> str:
    return path.relative_to(EXAMPLES).with_suffix("").as_posix()


def checked(path: Path, text: str) -> int:
    """The exit status of `filecheck PATH` for a text on its input."""
    options = Options(str(path))
    return Matcher(options, FInput(str(path), text), Parser.from_opts(options)).run()


def watch(monkeypatch: pytest.MonkeyPatch, row: Registered, fired: set[str]) -> None:
    """Note the name of a pattern when it changes a module."""
    data = issubclass(row.pattern, DataPattern)
    owner, method = (Automata, "apply") if data else (row.pattern, "match_and_rewrite")
    rewrite: Callable[..., None] = getattr(owner, method)

    def watched(self: Any, *given: Any) -> None:
        pattern, rewriter = given[0] if data else self, given[-1]
        before = rewriter.has_done_action
        rewrite(self, *given)
        if rewriter.has_done_action and not before:
            fired.add(type(pattern).__name__)

    monkeypatch.setattr(owner, method, watched)


@pytest.mark.every
@pytest.mark.filterwarnings("ignore::tpusim.errors.ModeWarning")
@pytest.mark.parametrize("path", [p for files in examples().values() for p in files], ids=name_of)
def test_what_a_pass_makes_of_an_example(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fired = set[str]()
    for row in PATTERNS:
        if row.example == subject(path):
            watch(monkeypatch, row, fired)
    after = output(path.read_text(encoding="utf-8"), tmp_path, CONTEXT)
    assert checked(path, after) == 0
    step, of = subject(path)
    assert of in fired or of == step, f"{of} must have changed the module"


VERIFY = "--verify-passes=random:1"
CHANGES = {row.example for row in PATTERNS if row.request} | {
    ("canonicalize", name)
    for name in ("AffineOfOneElement", "MergeGeluPattern", "PartsToInterp", "TopMoveReluAheadConcatPattern")
}
"""Examples of patterns that change numbers: those asked for, the scale of one element of U-120, the GELU by tanh of
U-24, and the cubic Resize of U-109, which the user is told; and a Concat between a Relu that is repeated before it and
the Relu that stays.
"""
KEPT = [path for of, files in examples().items() if of not in CHANGES for path in files]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tpusim.errors.ModeWarning")
@pytest.mark.parametrize("path", KEPT, ids=name_of)
def test_an_example_keeps_its_numbers(path: Path, tmp_path: Path) -> None:
    """By running the module before and after every pattern and exact pass on a sample."""
    output(path.read_text(encoding="utf-8"), tmp_path, CONTEXT, VERIFY)


@pytest.mark.slow
def test_a_pattern_that_changes_numbers_is_seen(tmp_path: Path) -> None:
    source = (EXAMPLES / "canonicalize" / "MulTooLarge.mlir").read_text(encoding="utf-8")
    with pytest.raises(AssertionError, match="changed numbers"):
        output(source, tmp_path, CONTEXT, VERIFY)


@pytest.mark.every
def test_a_gelu_by_tanh_changes_little(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A default pattern that changes numbers is named, with the largest difference."""
    source = (EXAMPLES / "canonicalize" / "MergeGeluPattern.mlir").read_text(encoding="utf-8")
    with pytest.raises(AssertionError, match="changed numbers"):
        output(source, tmp_path, CONTEXT, VERIFY)
    (moved,) = re.findall(r"MergeGeluPattern .* changed numbers: 'y' by ([\d.e-]+)", capsys.readouterr().err)
    assert 1e-4 < float(moved) < 5e-4  # the greatest distance of the two functions is 4.73e-4


@pytest.mark.every
@pytest.mark.parametrize("damage", ["top.MulConst", "const_val = 6.0", "func.return %y", "%y ="])
def test_a_wrong_check_line_fails(damage: str, tmp_path: Path) -> None:
    source = (EXAMPLES / "canonicalize" / "MergeContinuousMulConst.mlir").read_text(encoding="utf-8")
    after, damaged = output(source, tmp_path, CONTEXT), tmp_path / "damaged.mlir"
    code, checks = source[: source.index("// CHECK")], source[source.index("// CHECK") :]
    damaged.write_text(code + checks.replace(damage, f"{damage}x"), encoding="utf-8")
    assert checked(damaged, after) == 1


def test_every_pattern_and_pass_has_an_example_and_no_other_has_one() -> None:
    files = examples()
    patterns, passes = {row.example for row in PATTERNS}, {(name, name) for name in PASSES.shipped()}
    by_patterns = {(step, step) for step, _ in patterns}
    missing, unknown = (patterns | passes) - by_patterns - set(files), set(files) - patterns - passes
    assert not missing, f"tests/filecheck/PASS/PATTERN.mlir is missing for {sorted(missing)}"
    assert not unknown, f"no registered pattern or pass is called like {sorted(unknown)}"


def test_the_page_of_patterns_is_current() -> None:
    assert PAGE.read_text("utf-8") == page(), "run `make patterns`"


def test_the_stored_automaton_is_current() -> None:
    assert automaton.FILE.read_bytes() == automaton.content(), "run `make patterns`"
