"""Every example script runs, from a folder that is not the repository; every benchmark starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
LONG = {"tune_digits"}
"""Some 20 seconds; tests/test_training.py has the parts."""
SCRIPTS = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in LONG else [])
    for path in sorted(EXAMPLES.glob("*.py"))
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_example(script: Path, tmp_path: Path):
    """Exit status 0, something to read, no warnings; kernels are kept between test runs, apart from the user's."""
    kernels = Path(str(jax.config.jax_compilation_cache_dir))  # pyright: ignore[reportAttributeAccessIssue]
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(kernels.parent / "examples")},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip()
    assert "Warning" not in done.stderr


def test_the_example_halves_what_it_says_it_halves():
    text = (EXAMPLES / "stop_look_edit.py").read_text()
    assert "// 2" in text and "halve one multiplier" in text and "double" not in text


@pytest.mark.slow  # ten processes that import JAX
def test_benchmarks_start(tmp_path: Path):
    """The recipe of `make bench`, without what only the tests' search path finds."""
    root, benchmarks = EXAMPLES.parent, sorted((EXAMPLES.parent / "benchmarks").glob("how_*.py"))
    here = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    words = ["make", "bench", "-o", ".venv/.test", f"BIN={Path(sys.executable).parent}", "ARGS=--help"]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, env=here)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-2000:]
    assert benchmarks and all(f"== {file.stem}" in done.stdout for file in benchmarks)
    assert done.stdout.count("usage:") == len(benchmarks)
