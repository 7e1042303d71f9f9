"""The time limits of the machine, as CPU time in a separate process; they are its acceptance criteria."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from end_to_end import floats, node, save_network

from tpusim import zoo
from tpusim.calibration.stage import CalibrationConfig
from tpusim.running.pipeline import RunConfig, run

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


MEMORY = """
import gc, json, sys
import jax.numpy, onnxruntime  # so that a stage does not count the libraries that it loads first
from pathlib import Path
from tpusim.running import pipeline
from tpusim.calibration.stage import CalibrationConfig
from tpusim.lowering import LoweringConfig

def status(word):
    return int(Path("/proc/self/status").read_text().split(word)[1].split()[0]) / 1024

peaks = {}
def measured(name, stage):
    def run(a):
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        stage(a)
        peaks[name] = status("VmHWM:") - idle
    return run

for name, stage in pipeline.STAGES.items():
    pipeline.STAGES[name] = measured(name, stage)
model, out = Path(sys.argv[1]), Path(sys.argv[2])
idle = status("VmRSS:")
pipeline.run(pipeline.RunConfig(model=model, lowering=LoweringConfig("bm1684x", sys.argv[3]), data="random:1",
             calibration=CalibrationConfig("max", max_samples=1), out=out, to="lower"))
print(json.dumps({name: peak / (model.stat().st_size / 2**20) for name, peak in peaks.items()}))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peaks by stage are read from Linux")
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["int8", "f16"])
def test_memory_of_large_weights(tmp_path: Path, mode: str) -> None:
    """No stage takes three times the file; 120 MB, so that the buffers of JAX and the checkers count little."""
    weights = {f"w{i}": floats(3_000, 3_000, seed=i) * 0.02 for i in range(3)} | {"v": floats(3_000, 500)}
    names = ["x", "a", "b", "c", "y"]
    nodes = [node("MatMul", f"{x} {w}", y) for x, w, y in zip(names, weights, names[1:], strict=False)]
    model = save_network(tmp_path / "m.onnx", nodes, {"x": (1, 3_000)}, ["y"], weights)
    words = [sys.executable, "-c", MEMORY, str(model), str(tmp_path / "out"), mode]
    found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT).stdout)
    assert list(found) == ["import", "canonicalize", "calibrate", "lower"]
    assert found["import"] < 2.7 and max(found.values()) < 3, found
