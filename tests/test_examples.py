"""Every example script runs, from a folder that is not the repository."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_example(script: Path, tmp_path: Path):
    """Exit status 0, something to read, no warnings."""
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip()
    assert "Warning" not in done.stderr
