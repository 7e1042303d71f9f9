"""Damaged and hand-edited files through every command: a message or success, no traceback, in bounded time and memory.

`python -m hostile_files --count 5000` (`make hostile`). A case is one file of a run of the digits network with bytes or
words changed, and the command that reads it, executed in this process under a limit of address space and a clock.
"""

from __future__ import annotations

import argparse
import io
import re
import resource
import signal
import sys
import tempfile
import traceback
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from time import process_time
from unittest import mock

import jax
import numpy as np
from right_programs import compile_quickly

from tpusim.cli import main as command_line

DIGITS = Path(__file__).resolve().parent.parent / "examples" / "digits"
SECONDS = 60
BYTES = 8 << 30
_NUMBER = re.compile(rb"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])")
_WORD = re.compile(rb"[A-Za-z_][\w.]*")


def artefacts(folder: Path, chip: str = "bm1684x") -> Path:
    """A run of the digits network, and the text of its program."""
    data, out = str(DIGITS / "calibration.npz"), folder / "run"
    words = ["run", str(DIGITS / "digits.onnx"), "--chip", chip, "--data", data, "--samples", "4", "--out", str(out)]
    quiet(words)
    quiet(["dis", str(out / "7_model.tpusim"), "--out", str(out / "program.txt")])
    return out


def quiet(words: list[str], stdin: str = "") -> int:
    """The exit status of a command whose output nobody reads."""
    sink = io.StringIO()
    with redirect_stdout(sink), redirect_stderr(sink), mock.patch("sys.stdin", io.StringIO(stdin)):
        return command_line(words)


def uses(run: Path, bad: Path, out: Path) -> dict[str, list[list[str]]]:
    """File of a run -> the commands that read it, with the damaged one in its place."""
    program, inputs, flat = (str(run / name) for name in ("7_model.tpusim", "inputs.npz", "tpu_outputs.npz"))
    made = ["--out", str(out)]
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
    }


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
            odd = rng.choice(["-1", "0", "1", "7", "65536", "1e30", "99999999999999999999", "nan"])
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
        raise TimeoutError(f"more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
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
        signal.signal(signal.SIGALRM, before)


def case(run: Path, folder: Path, seed: int) -> tuple[str, str]:
    """(command, finding) of one damaged file."""
    rng = np.random.default_rng([seed, 5])
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
    return f"{words[0]} {name}", tried(words)


def main(arguments: list[str]) -> int:
    """Try `--count` files from `--first` on; 1 if something escapes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args(arguments)
    compile_quickly()
    seen, failed = Counter[str](), 0
    with tempfile.TemporaryDirectory() as place:
        run, folder = artefacts(Path(place)), Path(place) / "files"
        folder.mkdir()
        pages = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (pages + BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
        for seed in range(given.first, given.first + given.count):
            what, finding = case(run, folder, seed)
            seen[what] += 1
            if finding:
                failed += 1
                sys.stdout.write(f"{seed}: {what}: {finding}\n")
            if seed % 500 == 499:
                sys.stderr.write(f"{seed}: {failed} with tracebacks, {process_time():.0f} s of CPU\n")
                jax.clear_caches()
    sys.stdout.write(f"{given.count} files, {failed} with tracebacks; {dict(sorted(seen.items()))}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
