"""The n-th write, rename, removal or new folder fails, for every n: no file of the user is lost, no result is wrong.

The same where an array finds no memory; `test_workers` kills processes, and `make faults` all in whole commands.
Afterwards the same run, undisturbed, gives what it gives in an empty folder; a run that said it was done is done.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from builders.failing import Points, failing
from builders.stored import content, run
from end_to_end import DIGITS

import tpusim
from tpusim.cli import main
from tpusim.errors import ConfigError, ImportModelError, lacks_memory
from tpusim.running.store import LOCK, MANIFEST, UNFINISHED

MINE = {"thesis.txt": "mine", "notes.npz": "mine too"}
WHOLE = {"a.txt": "1", "b.txt": "2", "c.txt": "3"}
BEFORE = {"a.txt": "old 1", "b.txt": "old 2"}


def prepared(out: Path, *, earlier: bool) -> None:
    """A folder with files of the user, and with an earlier run."""
    out.mkdir()
    for name, text in MINE.items():
        (out / name).write_text(text)
    if earlier:
        run(out, "old 1", "old 2")


def disturbed(out: Path, points: Points) -> bool:
    """Whether the run said that it was done."""
    try:
        with failing(points):
            run(out, "1", "2", "3")
    except BaseException as error:
        if points.count < points.fails:
            raise AssertionError("nothing was to fail") from error
        return False
    return True


@pytest.mark.every(3)
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("earlier", [False, True])
def test_a_run_at_every_point(tmp_path: Path, earlier: bool, error: type[BaseException]):
    n = failed = 0
    while True:
        n += 1
        out, points = tmp_path / f"out{n}", Points(n, error)
        prepared(out, earlier=earlier)
        done = disturbed(out, points)
        now = content(out)
        assert {name: now.pop(name, None) for name in MINE} == MINE, (n, points.name)
        if done:
            assert now == WHOLE, (n, points.name)
        else:  # each file is the earlier run's or this one's, none is half of one
            failed += 1
            assert all(now[name] in (BEFORE.get(name), WHOLE[name]) for name in now if name != LOCK), (n, now)
        run(out, "1", "2", "3")
        after = content(out)
        assert after == {**MINE, **WHOLE}, (n, points.name)
        assert {path.name for path in out.iterdir()} == {*MINE, *WHOLE, MANIFEST}, (n, points.name)
        assert not (out / UNFINISHED).exists()
        if points.count < n:
            break
    assert failed >= 12


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.95])
def test_an_import_that_finds_no_memory(tmp_path: Path, share: float, capsys: pytest.CaptureFixture[str]):
    """At a large array out of four: it says so, and leaves the earlier module."""
    words, out = ["import", str(DIGITS / "digits.onnx"), "--out", str(tmp_path / "1_top.mlir"), "-q"], tmp_path
    with failing(Points(0), "memory") as points:
        assert main(words) == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    capsys.readouterr()
    with failing(Points(1 + int(share * points.count), MemoryError), "memory") as failed:
        assert main(words) == 1 and failed.name
    said = capsys.readouterr().err
    assert said.startswith("tpusim: ") and "there is not enough memory" in said
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def swallowed(handlers: list[ast.ExceptHandler]) -> list[int]:
    """The lines of handlers of every error that raise none, after which MemoryError could be taken for an answer."""
    found, passed = [], False
    for one in handlers:
        kinds = "" if one.type is None else ast.unparse(one.type)
        raises = any(isinstance(node, ast.Raise) for node in ast.walk(one))
        passed = passed or ("MemoryError" in kinds and raises)
        if kinds in ("", "Exception", "BaseException") and not passed and not raises:
            found.append(one.lineno)
    return found


EXCEPTIONS = {
    "host/threads.py": "raised where the item's result is asked for",
    "studies/explore/cost.py": "a row that says so, and is not kept",
    "ir/bytecode/entries.py": "Cursor.fail raises",
    "ir/bytecode/reading.py": "Cursor.fail raises",
}


def test_no_handler_takes_too_little_memory_for_an_answer():
    """Where any error is handled, MemoryError is raised on, or is the cause of the error that is raised."""
    root, found = Path(tpusim.__file__).parent, dict[str, list[int]]()
    for path in root.rglob("*.py"):
        text = path.read_text()
        if "except Exception" in text or "except BaseException" in text or "except:" in text:
            tries = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Try | ast.TryStar)]
            if lines := [line for node in tries for line in swallowed(node.handlers)]:
                found[path.relative_to(root).as_posix()] = lines
    assert found.keys() == EXCEPTIONS.keys(), found


def test_a_shortage_is_known_by_its_causes():
    """An error of ours that hides it, however deep; no other error."""
    for build in (MemoryError, lambda: RuntimeError("RESOURCE_EXHAUSTED: Out of memory")):
        try:
            try:
                raise build()
            except (MemoryError, RuntimeError) as error:
                raise ImportModelError("it cannot be read") from error
        except ImportModelError as error:
            outer = ConfigError("no")
            outer.__cause__ = error
            assert lacks_memory(error) and lacks_memory(outer)
    assert not lacks_memory(ImportModelError("memory")) and not lacks_memory(None)
