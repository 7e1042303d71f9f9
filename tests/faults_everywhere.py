"""Faults at every point of whole commands: `python -m faults_everywhere` (`make faults`).

A command runs in this process in a folder with files of the user, and its n-th write, rename, removal or new folder
fails (disk), its n-th large array finds no memory (memory), or a child process is killed when the n-th unit of work is
given out (processes), for every n. What counts: its exit status is 1 and a message says why, or it is done; no file of
the user changes; repeated undisturbed, with `--resume` where it has that, it writes what it writes in an empty folder.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from builders.failing import Kind, Points, failing
from builders.forking import Forks, Serial
from end_to_end import DIGITS
from right_programs import compile_quickly

from tpusim.cli import main as command_line
from tpusim.host import threads

DATA = str(DIGITS / "calibration.npz")
TIMED = ("report.json", "report.html", "manifest.json", "results.json", "results.csv", "trials.csv")
"""Files that say when they were made, or how long it took."""
MINE = "thesis.txt"
KINDS: tuple[Kind, ...] = ("disk", "memory", "processes")


@dataclass(frozen=True)
class Study:
    """A command, by the folder that it writes to. again: the options of the command that repeats it.

    forks: it has thousands of large arrays and writes files at the end alone, so that forked processes meet the faults.
    """

    words: Callable[[Path], list[str]]
    again: tuple[str, ...] = ()
    kinds: tuple[Kind, ...] = ("disk", "memory")
    forks: bool = False


def _search(out: Path) -> list[str]:
    words = ["search-qtable", str(DIGITS / "digits.onnx"), "--data", DATA, "--samples", "2"]
    return [*words, "--out", str(out / "qtable")]


STUDIES = {
    "run": Study(
        lambda out: ["run", str(DIGITS / "digits.onnx"), "--data", DATA, "--samples", "2", "--out", str(out)],
        ("--resume",),
    ),
    "run --to lower": Study(
        lambda out: [
            *("run", str(DIGITS / "digits.onnx"), "--data", DATA, "--samples", "2"),
            *("--to", "lower", "--out", str(out)),
        ],
        ("--resume",),
    ),
    "calibrate --state": Study(
        lambda out: [
            *(
                "calibrate",
                str(DIGITS / "digits.onnx"),
                "--data",
                DATA,
                "--samples",
                "2",
                "--state",
                str(out / "state"),
            ),
            *("--out-table", str(out / "cali_table"), "--out", str(out / "3_calibrated.mlir")),
        ]
    ),
    "explore": Study(
        lambda out: ["explore", str(DIGITS / "digits.onnx"), "--data", DATA, "--samples", "2", "--out", str(out)]
    ),
    "search-qtable": Study(_search, forks=True),
    "run --jobs": Study(
        lambda out: [
            *("run", str(DIGITS / "digits.onnx"), "--data", DATA, "--samples", "6", "--jobs", "2"),
            *("--to", "calibrate", "--out", str(out)),
        ],
        ("--resume",),
        ("processes",),
    ),
}


def said(words: list[str], points: Points | None = None, kind: Kind = "disk") -> tuple[int | str, str]:
    """(exit status, or the name of what escaped; what was printed)."""
    sink = io.StringIO()
    try:
        with redirect_stdout(sink), redirect_stderr(sink):
            if points is None:
                return command_line(words), sink.getvalue()
            with failing(points, kind):
                return command_line(words), sink.getvalue()
    except SystemExit as stop:
        return f"exit {stop.code}", sink.getvalue()
    except BaseException as error:  # noqa: BLE001  whatever escapes is the finding
        return type(error).__name__, f"{sink.getvalue()}{error}"


def prepared(folder: Path) -> Path:
    """A new folder with a file of the user."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / MINE).write_text("mine")
    return folder


def content(folder: Path) -> dict[str, str]:
    """SHA-256 of every file that is the same whenever it is made, and which others there are."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {
        str(path.relative_to(folder)): "" if path.name in TIMED or "points" in path.parts or path.suffix == ".npz"
        else hashlib.sha256(_untimed(path.read_bytes())).hexdigest()
        for path in files
    }  # fmt: skip


def _untimed(content: bytes) -> bytes:
    """Without the comments of a table, which say when it was made."""
    return b"\n".join(line for line in content.split(b"\n") if not line.startswith(b"#"))


def judged(study: Study, folder: Path, right: dict[str, str], n: int, kind: Kind) -> tuple[Points, str]:
    """(what failed, what is wrong then; empty if nothing is) of one point."""
    out, points = prepared(folder), Points(n, MemoryError if kind == "memory" else OSError)
    status, text = said(study.words(out), points, kind)
    return points, ended(out, right, status, text, points.name) or repeated(study, out, right)


def ended(out: Path, right: dict[str, str], status: int | str, text: str, failed: str) -> str:
    """What is wrong with the end of a command that met a fault."""
    if (out / MINE).read_text() != "mine":
        return "a file of the user is lost"
    if status not in (0, 1) or (status == 1 and "tpusim: " not in text):
        return f"ends with {status}: {text[-200:]}"
    if status == 0 and content(out) != right and failed not in ("unlink", "rmdir"):
        return f"says it is done and is not: {sorted(set(content(out).items()) ^ set(right.items()))[:4]}"
    return ""


def repeated(study: Study, out: Path, right: dict[str, str]) -> str:
    """What is wrong with a command that is repeated undisturbed in a folder."""
    status, text = said([*study.words(out), *study.again])
    if status != 0:
        return f"cannot be repeated: {text[-200:]}"
    return "" if content(out) == right else f"differs: {sorted(set(content(out).items()) ^ set(right.items()))[:4]}"


def studied(name: str, folder: Path, right: dict[str, str], kind: Kind, every: int) -> int:
    """Try the points of a kind and print what was wrong; how many were."""
    if STUDIES[name].forks and kind == "memory":
        return forked(name, folder, right)
    n, wrong, seen = 1, 0, Counter[str]()
    while True:
        points, finding = judged(STUDIES[name], folder, right, n, kind)
        if points.count < n:
            break
        seen[points.name] += 1
        if finding:
            wrong += 1
            sys.stdout.write(f"{name}, {kind}, point {n} ({points.name}): {finding}\n")
        n += every
    sys.stdout.write(f"{name}, {kind}: {sum(seen.values())} points, {dict(sorted(seen.items()))}\n")
    return wrong


def forked(name: str, folder: Path, right: dict[str, str]) -> int:
    """Try all points of large arrays in forked processes of one run."""
    study, out, folders = STUDIES[name], prepared(folder), prepared(folder.with_name("folders"))
    (folders / MINE).unlink()
    points = Forks(MemoryError, out, folders)
    with mock.patch.object(threads, "ThreadPoolExecutor", Serial):
        status, text = said(study.words(out), points, "memory")
    if points.forked:
        points.end(ended(out, right, status, text, points.name))
    wrong = points.findings()
    if status != 0 or content(out) != right:
        wrong.append(f"the process that forked ends with {status}: {text[-200:]}")
    for n in points.late:  # a process that goes on computing
        finding = judged(study, folder, right, n, "memory")[1]
        wrong += [f"point {n}: {finding}"] * bool(finding)
    for state in list(folders.iterdir()):
        shutil.rmtree(folder)
        state.rename(folder)
        finding = repeated(study, folder, right)
        wrong += [f"the folder {state.name}: {finding}"] * bool(finding)
    sys.stdout.write("".join(f"{name}, memory, {what}\n" for what in wrong))
    tried = f"{points.count} points, {len(points.late)} of them again in this process"
    sys.stdout.write(f"{name}, memory: {tried}, {dict(sorted(points.seen.items()))}\n")
    return len(wrong)


def main(arguments: list[str]) -> int:
    """Print a table of all points; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(STUDIES))
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS)
    parser.add_argument("--every", nargs=3, type=int, default=[1, 25, 1], help="take one in so many points, by kind")
    given = parser.parse_args(arguments)
    compile_quickly()
    wrong = 0
    with tempfile.TemporaryDirectory() as place:
        for name in given.only:
            study, folder = STUDIES[name], Path(place) / "out"
            status, text = said(study.words(prepared(folder)))
            if status != 0:
                raise SystemExit(f"{name}: {status} {text}")
            right = content(folder)
            for kind, every in zip(KINDS, given.every, strict=True):
                if kind in study.kinds and kind in given.kinds:
                    wrong += studied(name, folder, right, kind, every)
    sys.stdout.write(f"{wrong} wrong\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
