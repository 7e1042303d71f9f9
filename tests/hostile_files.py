"""Damaged and hand-edited files and folders through every command: a message or success, and nothing else.

`python -m hostile_files --count 8000` (`make hostile`). A case is one file of a run of the digits network, or of what
it is made of, with bytes or words changed, and a command that reads it; or the folder of a run with such a file, or
with a link, a pipe, a device or a folder in its place. Commands are executed in this process under a limit of address
space and a clock. No traceback may escape, and nothing outside of the output folder may be written, moved or removed;
nor may a path in a file make a command read a file of the user.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from time import process_time
from unittest import mock

import jax
import numpy as np
from builders.outside import Outside
from right_programs import compile_quickly

from tpusim import chips
from tpusim.cli import main as command_line

DIGITS = Path(__file__).resolve().parent.parent / "examples" / "digits"
SECONDS, WAITED = 60, 600
"""CPU time of a case, and time by the clock, in which other work of this computer counts."""
BYTES = 8 << 30
CACHES = (Path.home() / ".cache", Path(os.environ.get("TPUSIM_CACHE_DIR") or Path.home() / ".cache"))
"""Where compiled kernels are kept."""
ODD = (
    *("-1", "0", "1", "7", "65536", "1e30", "99999999999999999999", "nan"),
    *("../user/thesis.txt", "../../user/thesis.txt", "/dev/zero", "/proc/self/mem", "..", "."),
)
"""Numbers and paths in place of others."""
_NUMBER = re.compile(rb"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])")
_WORD = re.compile(rb"[A-Za-z_][\w.]*")


def artefacts(folder: Path, chip: str = "bm1684x") -> Path:
    """A run of the digits network, the text of its program, and copies of what a user has."""
    data, out = str(DIGITS / "calibration.npz"), folder / "run"
    words = ["run", str(DIGITS / "digits.onnx"), "--chip", chip, "--data", data, "--samples", "4", "--out", str(out)]
    quiet(words)
    quiet(["dis", str(out / "7_model.tpusim"), "--out", str(out / "program.txt")])
    for path in (DIGITS / "digits.onnx", DIGITS / "calibration.npz"):
        shutil.copy(path, out)
    for name in ("bm1688", "cv183x"):
        shutil.copy(Path(chips.__file__).parent / f"{name}.toml", out)
    names = [line.split()[0] for line in (out / "cali_table").read_text().splitlines() if line and line[0] != "#"]
    (folder / "user").mkdir()
    (folder / "user" / MINE).write_text("mine")
    (out / "qtable").write_text("".join(f"{name} {mode}\n" for name, mode in zip(names, ("F16", "F32", "BF16") * 9)))  # noqa: B905
    quiet(["opt", str(out / "4_tpu.mlir"), "--emit-bytecode", "-o", str(out / "4_tpu.mlirbc")])
    return out


def quiet(words: list[str], stdin: str = "") -> int:
    """The exit status of a command whose output nobody reads."""
    sink = io.StringIO()
    with redirect_stdout(sink), redirect_stderr(sink), mock.patch("sys.stdin", io.StringIO(stdin)):
        return command_line(words)


def uses(run: Path, bad: Path, out: Path) -> dict[str, list[list[str]]]:
    """File of a run -> the commands that read it, with the damaged one in its place."""
    program, inputs, flat = (str(run / name) for name in ("7_model.tpusim", "inputs.npz", "tpu_outputs.npz"))
    made, table = ["--out", str(out)], ["--out-table", f"{out}_table"]
    simulate = ["simulate", program, "--input", inputs, *made, "--trace", str(out) + ".json"]
    asm = ["asm", str(bad), "--coefficients", program, *made]
    return {
        "1_top.mlir": [["canonicalize", str(bad), *made]],
        "2_canonical.mlir": [
            ["calibrate", str(bad), "--data", str(DIGITS / "calibration.npz"), "--samples", "2", *made]
        ],
        "3_calibrated.mlir": [["lower", str(bad), "--chip", "bm1684x", *made]],
        "4_tpu.mlir": [["group", str(bad), *made], ["infer", str(bad), "--input", inputs, *made]],
        "5_grouped.mlir": [["assign", str(bad), *made], ["group", str(bad), "--show"]],
        "6_final.mlir": [
            ["codegen", str(bad), *made],
            ["infer", str(bad), "--input", inputs, *made],
            ["codegen", str(bad), *made, "+", "simulate", str(out), "--prove"],
        ],
        "7_model.tpusim": [["dis", str(bad)], ["simulate", str(bad), *simulate[2:]], ["simulate", str(bad), "--prove"]],
        "program.txt": [
            asm,
            [*asm, "+", "simulate", str(out), "--input", inputs, "--out", f"{out}.npz", "--trace", f"{out}.json"],
            [*asm, "+", "simulate", str(out), "--input", inputs, "--no-sanitize", "--out", f"{out}.npz"],
            [*asm, "+", "simulate", str(out), "--no-sanitize", "--prove"],
            [*asm, "+", "debug", str(out), "--no-sanitize"],
        ],
        "inputs.npz": [[*simulate[:3], str(bad), *simulate[4:]]],
        "tpu_outputs.npz": [["compare", str(bad), flat], [*simulate, "--check", str(bad)]],
        "cali_table": [["calibrate", str(run / "2_canonical.mlir"), "--table", str(bad), *made]],
        "digits.onnx": [["check", str(bad)], ["import", str(bad), *made], ["fit", str(bad)]],
        "calibration.npz": [
            [*("calibrate", str(run / "2_canonical.mlir"), "--data", str(bad), "--samples", "2", *made), *table],
            ["npz", "print", str(bad)],
        ],
        "bm1688.toml": [["chips", str(bad)], ["lower", str(run / "3_calibrated.mlir"), "--chip", str(bad), *made]],
        "cv183x.toml": [["lower", str(run / "3_calibrated.mlir"), "--chip", str(bad), *made]],
        "qtable": [
            ["lower", str(run / "3_calibrated.mlir"), "--chip", "bm1684x", "--qtable", str(bad), *made],
        ],
        "4_tpu.mlirbc": [["inspect", str(bad)], ["group", str(bad), *made]],
        "report.json": [["explore-diff", str(bad), str(run)]],
    }


def of_folder(run: Path, bad: Path, out: Path) -> list[list[str]]:
    """Commands that read the folder of a run, or go on in it."""
    again = ["run", str(DIGITS / "digits.onnx"), "--chip", "bm1684x", "--data", str(DIGITS / "calibration.npz")]
    return [
        [*again, "--samples", "4", "--out", str(bad), "--resume"],
        [*again, "--samples", "4", "--out", str(bad)],
        ["explore-diff", str(bad), str(run)],
        ["explore-roofline", str(bad)],
        ["verify", str(bad)],
        ["why", str(bad)],
        ["export", str(bad), "--out", str(out)],
        ["simulate", str(bad / "7_model.tpusim"), "--prove"],
        ["debug", str(bad)],
    ]


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """One or a few numbers, words, lines or bytes are others, or the file ends early."""
    text = b"\0" not in data[:4096]
    for _ in range(int(rng.integers(1, 4))):
        kind = int(rng.integers(5)) if text else 4
        if kind in (0, 1):
            found = list((_NUMBER if kind == 0 else _WORD).finditer(data))
            if not found:
                continue
            one, other = (found[int(rng.integers(len(found)))] for _ in range(2))
            odd = rng.choice(ODD)
            new = other.group() if kind == 1 or rng.integers(3) == 0 else str(odd).encode()
            data = data[: one.start()] + new + data[one.end() :]
        elif kind in (2, 3):
            lines = data.split(b"\n")
            a, b = (int(rng.integers(len(lines))) for _ in range(2))
            lines[a], lines[b] = (lines[b], lines[a]) if kind == 2 else (b"", lines[b])
            data = b"\n".join(lines)
        elif rng.integers(6) == 0:
            data = data[: int(rng.integers(len(data) + 1))]
        else:
            at = int(rng.integers(max(len(data), 1)))
            data = data[:at] + bytes([int(rng.integers(256))]) + data[at + 1 :]
    return data


def tried(words: list[str]) -> str:
    """What is wrong with how commands end; empty if nothing is."""

    def late(*_: object) -> None:
        raise TimeoutError(f"more than {SECONDS} s of CPU, or {WAITED} s")

    before = [(kind, signal.signal(kind, late)) for kind in (signal.SIGALRM, signal.SIGPROF)]
    signal.alarm(WAITED)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        parts = " ".join(words).split(" + ") if "+" in words else [" ".join(words)]
        for part in parts:
            if quiet(part.split(" "), "info\nstep 3\nprint\nback\nfinish\ninfo\nquit\n") not in (0, 1):
                break
        return ""
    except SystemExit as stop:
        return "" if stop.code in (0, 1, 2) else f"exit {stop.code}"
    except BaseException:  # noqa: BLE001  whatever escapes is the finding
        return traceback.format_exc(limit=-3)
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for kind, handler in before:
            signal.signal(kind, handler)


def case(run: Path, folder: Path, seed: int) -> tuple[str, str]:
    """(command, finding) of one damaged file, or folder of a run."""
    rng = np.random.default_rng([seed, 5])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if rng.integers(3) == 0:
        return _folder_case(run, folder, rng)
    bad, out = folder / "bad", folder / "made"
    known = uses(run, bad, out)
    name = str(rng.choice(sorted(known)))
    bad = folder / f"bad{Path(name).suffix}"
    known = uses(run, bad, out)
    bad.write_bytes(damaged((run / name).read_bytes(), rng))
    for neighbour in (*run.glob("*.npz"), run / "6_final.mlir"):  # what a module reads, and a proof
        if not (folder / neighbour.name).exists():
            (folder / neighbour.name).symlink_to(neighbour)
    words = known[name][int(rng.integers(len(known[name])))]
    return f"{words[0]} {name}", watched(words, folder, secret=True)


def _folder_case(run: Path, folder: Path, rng: np.random.Generator) -> tuple[str, str]:
    """The folder of a run in which one file is another, or something else."""
    bad = folder / "bad"
    shutil.copytree(run, bad)
    names = sorted(path.name for path in bad.iterdir())
    name = str(rng.choice(["manifest.json", "report.json", *names]))
    how = str(rng.choice(["damaged", "damaged", *STRANGE]))
    place, user = bad / name, folder.parent / "user"
    content = place.read_bytes()
    place.unlink()
    if how == "damaged":
        place.write_bytes(damaged(content, rng))
    else:
        STRANGE[how](place, user)
    known = of_folder(run, bad, folder / "made")
    words = known[int(rng.integers(len(known)))]
    return f"{words[0]} a folder", watched(words, folder, secret=how == "damaged")


STRANGE: dict[str, Callable[[Path, Path], object]] = {
    "removed": lambda place, user: None,
    "empty": lambda place, user: place.touch(),
    "folder": lambda place, user: place.mkdir(),
    "pipe": lambda place, user: os.mkfifo(place),
    "link": lambda place, user: place.symlink_to(user / MINE),
    "relative link": lambda place, user: place.symlink_to(Path("..", "..", "user", MINE)),
    "link to nothing": lambda place, user: place.symlink_to(user / "new.txt"),
    "link to itself": lambda place, user: place.symlink_to(place),
    "endless": lambda place, user: place.symlink_to("/dev/zero"),
    "huge": lambda place, user: (place.touch(), os.truncate(place, 1 << 40)),
}
"""What may lie in place of a file of a run; user: a folder with files that are no matter of a run."""
MINE = "thesis.txt"
OUTSIDE = Outside()


def watched(words: list[str], folder: Path, *, secret: bool) -> str:
    """What is wrong with how commands end, or with what they touch. secret: files of the user are not read either."""
    user, temporary = folder.parent / "user", Path(tempfile.gettempdir())
    with OUTSIDE.watching([folder, temporary, *CACHES], user if secret else None) as touched:
        finding = tried(words)
    if {path.name: path.read_text() for path in user.iterdir()} != {MINE: "mine"}:
        return f"files of the user: {[path.name for path in user.iterdir()]} {touched}"
    return finding or "; ".join(touched[:3])


def main(arguments: list[str]) -> int:
    """Try `--count` files from `--first` on; 1 if something escapes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=8000)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args(arguments)
    compile_quickly()
    seen, failed = Counter[str](), 0
    with tempfile.TemporaryDirectory() as place:
        run, folder = artefacts(Path(place)), Path(place) / "files"
        tempfile.tempdir = str(Path(place) / "temporary")
        Path(tempfile.tempdir).mkdir()
        pages = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (pages + BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
        for seed in range(given.first, given.first + given.count):
            what, finding = case(run, folder, seed)
            seen[what] += 1
            if finding:
                failed += 1
                sys.stdout.write(f"{seed}: {what}: {finding}\n")
            if seed % 500 == 499:
                sys.stderr.write(f"{seed}: {failed} with findings, {process_time():.0f} s of CPU\n")
                jax.clear_caches()
    sys.stdout.write(f"{given.count} files and folders, {failed} with findings; {dict(sorted(seen.items()))}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
