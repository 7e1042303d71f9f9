"""Former names of modules on the Python page."""

import subprocess
import sys

MOVED = (
    ("tpusim.explore.whatif", "WhatIf", "tpusim.studies.explore.whatif"),
    ("tpusim.explore.run", "explore", "tpusim.studies.explore.run"),
    ("tpusim.explore.row", "Row", "tpusim.studies.explore.row"),
    ("tpusim.explore.space", "Space", "tpusim.studies.explore.space"),
    ("tpusim.diagnosis.losses", "Loss", "tpusim.studies.diagnosis.losses"),
    ("tpusim.diagnosis.causes", "Cause", "tpusim.studies.diagnosis.causes"),
    ("tpusim.diagnosis.bisect", "Broken", "tpusim.studies.diagnosis.bisect"),
    ("tpusim.artefacts", "RunConfig", "tpusim.running.artefacts"),
    ("tpusim.ops.builder", "ModuleBuilder", "tpusim.ops.framework.builder"),
)
"""Module of 0.2.0, a public name in it, and where it is now."""


def test_former_names_import_with_a_warning() -> None:
    lines = ["import warnings", "warnings.simplefilter('always')"]
    for former, name, place in MOVED:
        lines += [f"from {former} import {name} as a", f"from {place} import {name} as b", "assert a is b"]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for place in ("studies.explore", "studies.diagnosis", "running.artefacts", "ops.framework.builder"):
        assert f"is now tpusim.{place}; the former name is removed in version 0.4" in done.stderr
