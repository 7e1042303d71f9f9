"""Models made to break an importer end in a TpusimError that names what is wrong, soon and in little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import hostile_models

SECONDS, KIBIBYTES = 5, 1 << 20


def test_hostile_models_are_refused_by_name() -> None:
    """All in one separate process, so that its memory is theirs."""
    command = [sys.executable, "-m", "hostile_models"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=Path(__file__).parent, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["kibibytes"] < KIBIBYTES
    wrong = {
        name: (seconds, error, message)
        for name, (seconds, error, message) in found["models"].items()
        if error != "TpusimError"
        or seconds >= SECONDS
        or not all(word in message for word in hostile_models.MODELS[name].words)
    }
    assert not wrong
    assert len(found["models"]) == len(hostile_models.MODELS) >= 30
