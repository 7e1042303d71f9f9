"""How long the machine may take, as CPU time in a process of its own; the limits are the acceptance of the machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tpusim import zoo
from tpusim.calibration.stage import CalibrationConfig
from tpusim.pipeline import RunConfig, run

ROOT = Path(__file__).resolve().parent.parent

MEASURE = """
import json, sys, time
from pathlib import Path
import numpy as np
from tpusim.isa.stream import load
from tpusim.simulator import Simulator, SimulatorOptions

folder, seconds = Path(sys.argv[1]), {}
program = load(folder / "7_model.tpusim")
with np.load(folder / "inputs.npz") as found:
    inputs = dict(found)
for name, sanitize in (("sanitized", True), ("bare", False)):
    begin = time.process_time()
    result = Simulator(program, options=SimulatorOptions(sanitize=sanitize)).run(inputs)
    seconds[name] = time.process_time() - begin
with np.load(folder / "local_outputs.npz") as expected:
    same = all(result.tensors[name].tobytes() == expected[name].tobytes() for name in result.tensors)
status = Path("/proc/self/status").read_text()  # getrusage counts what the parent had before exec
mib = int(status.split("VmHWM:")[1].split()[0]) / 1024
print(json.dumps({"seconds": seconds, "mib": mib, "same": same, "tensors": len(result.tensors)}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet50", pytest.param("densenet121", marks=pytest.mark.rotated)])
def test_a_whole_network(name: str, tmp_path: Path) -> None:
    zoo.save(name, tmp_path / "model.onnx")
    untuned = CalibrationConfig(tune_samples=0)
    run(RunConfig(model=tmp_path / "model.onnx", out=tmp_path / "out", data="random:1", calibration=untuned))
    words = [sys.executable, "-c", MEASURE, str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    found = json.loads(done.stdout)
    assert found["same"] and found["tensors"] >= 2
    assert found["seconds"]["sanitized"] < 8 and found["seconds"]["bare"] < 3, found
    assert found["mib"] < 1536, found
