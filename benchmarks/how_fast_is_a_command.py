"""What a command costs before it does anything: CPU seconds of each command on digits, a small network.

Each runs in a separate process, with compiled kernels and Python's compiled modules kept. The commands take turns, so
that all meet the same load. The lowest of each is printed, because other work only adds. Libraries: which of those that
take long to import the process had loaded at its end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import tyro

from benchmarks.processes import with_compiled_modules

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "examples" / "digits"
LIBRARIES = "jax", "onnx", "onnxruntime", "scipy", "xdsl", "PIL", "jinja2"
MEASURED = f"""
import resource, sys
from tpusim.cli import main
try:
    main(sys.argv[1:])
finally:
    libraries = [name for name in {LIBRARIES} if name in sys.modules]
    used = resource.getrusage(resource.RUSAGE_SELF)
    print("cost", used.ru_utime + used.ru_stime, *libraries, file=sys.stderr)
"""
"""Runs a command, then prints its CPU seconds and libraries."""
COMMANDS: Mapping[str, Sequence[str]] = {
    "--version": (),
    "chips": (),
    "inspect": ("run/7_model.tpusim",),
    "import": ("digits.onnx",),
    "canonicalize": ("run/1_top.mlir",),
    "lower": ("run/3_calibrated.mlir",),
    "group": ("run/4_tpu.mlir",),
    "assign": ("run/5_grouped.mlir",),
    "codegen": ("run/6_final.mlir",),
    "opt": ("run/1_top.mlir", "-p", "canonicalize"),
    "check": ("digits.onnx",),
    "fit": ("digits.onnx",),
    "dis": ("run/7_model.tpusim",),
    "compare": ("run/tpu_outputs.npz", "run/top_outputs.npz", "--tolerance", "0.5,0.1"),
    "npz": ("--help",),
    "simulate": ("run/7_model.tpusim", "--input", "run/inputs.npz"),
    "infer": ("run/4_tpu.mlir", "--input", "run/inputs.npz"),
    "calibrate": ("run/2_canonical.mlir", "--data", "random:1", "--method", "max"),
    "run": ("digits.onnx", "--data", "random:1", "--method", "max", "--tune-num", "0", "--out", "again"),
}
"""What each command is given, in the folder of a run of digits."""


def main(turns: int = 5, commands: tuple[str, ...] = tuple(COMMANDS)) -> None:
    """Print a table of Markdown. turns: how often each command runs; commands: which ones."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "digits.onnx").write_bytes((DIGITS / "digits.onnx").read_bytes())
        _cost(folder, "run", ("digits.onnx", "--data", str(DIGITS / "calibration.npz"), "--out", "run"))
        costs: dict[str, list[tuple[float, list[str]]]] = {command: [] for command in commands}
        for _ in range(turns):
            for command, taken in costs.items():
                taken.append(_cost(folder, command, COMMANDS[command]))
    print("| command | CPU s | libraries |\n|---|---|---|")
    for command, taken in costs.items():
        least, libraries = min(taken)
        print(f"| `tpusim {command}` | {least:.2f} | {', '.join(libraries)} |")


def _cost(folder: Path, command: str, arguments: Sequence[str]) -> tuple[float, list[str]]:
    """CPU seconds and libraries of one command. Raises CalledProcessError if it fails."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "kernels"), os.environ.get("PYTHONPATH", "")])
    variables = {
        **with_compiled_modules(folder / "modules"), "PYTHONPATH": paths, "TPUSIM_KERNELS": str(folder / "kernels"),
    }  # fmt: skip
    done = subprocess.run(  # noqa: S603  ours
        [sys.executable, "-c", MEASURED, command, *arguments],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    last = (done.stderr.splitlines() or [""])[-1].split()
    if done.returncode or last[:1] != ["cost"]:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    return float(last[1]), last[2:]


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
