"""`make wheel-test`: the wheel in an empty environment of each Python that is here, digits from ONNX to the verdict.

Everything happens in a temporary folder outside the repository; pip fetches the dependencies from its index.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIGITS = ROOT / "examples" / "digits"
PYTHONS = ("3.11", "3.12", "3.13")
PARTS = ("pyproject.toml", "README.md", "LICENSE", "tpusim", "kernels")
"""What a wheel is made of."""


def build_wheel(folder: Path, *options: str) -> Path:
    """The wheel of this tree, built in a separate folder, so that nothing is left in the repository."""
    tree, out = folder / "tree", folder / "wheel"
    tree.mkdir()
    for name in PARTS:
        (tree / name).symlink_to(ROOT / name)
    build = ["-m", "pip", "wheel", "--quiet", "--no-deps", *options, "--wheel-dir", out, tree]
    run([sys.executable, *build], tree)
    (found,) = out.glob("tpusim-*.whl")
    return found


def run(words: list[str | Path], folder: Path, **more: str) -> str:
    """What a command prints; its output is the error if it fails."""
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env={**os.environ, **more})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def why_not(python: str) -> str:
    """Why this interpreter cannot be used, "" if it can."""
    try:
        done = subprocess.run([python, "-c", "import venv"], capture_output=True, text=True)
    except FileNotFoundError:
        return f"no {python} on the path"
    return (done.stderr.strip().splitlines() or ["it does not start"])[0] if done.returncode else ""


def try_out(wheel: Path, python: str, folder: Path) -> str:
    """Install the wheel into a new environment and run digits there; the last line of the run."""
    run([python, "-m", "venv", folder / "env"], folder)
    binaries = folder / "env" / "bin"
    run([binaries / "python", "-m", "pip", "install", "--quiet", wheel], folder)
    words = f"run {DIGITS}/digits.onnx --chip bm1688 --mode int8 --data {DIGITS}/calibration.npz --samples 8 --out out"
    printed = run([binaries / "tpusim", *words.split()], folder, PYTHONPATH="", XDG_CACHE_HOME=str(folder / "cache"))
    assert (folder / "out" / "report.html").is_file()
    return printed.strip().splitlines()[-1]


def main() -> int:
    """One line per version; 1 if one failed or none is here."""
    tried = 0
    with tempfile.TemporaryDirectory(prefix="tpusim-wheel-") as name:
        wheel = build_wheel(Path(name))
        sys.stdout.write(f"{wheel.name}, {wheel.stat().st_size:,} bytes\n")
        for version in PYTHONS:
            begun = time.monotonic()
            if reason := why_not(f"python{version}"):
                sys.stdout.write(f"Python {version}: not tried: {reason}\n")
                continue
            folder = Path(name) / version
            folder.mkdir()
            last = try_out(wheel, f"python{version}", folder)
            assert last.startswith("PASSED"), last
            sys.stdout.write(f"Python {version}: {last} ({time.monotonic() - begun:.0f} s)\n")
            sys.stdout.flush()
            tried += 1
    return int(not tried)


if __name__ == "__main__":
    sys.exit(main())
