"""`tpusim run` from the command line, cold and warm: resnet50 in INT8 with the defaults, and an MLP of 7 ops.

Cold: no compiled kernels are kept, but Python's compiled modules are, as after any first run. Every run is a separate
process in an empty folder; seconds are by the clock, under any load of the machine. ONNX Runtime's time for one image,
in a separate process before and after, says how fast the machine was.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import onnx
import tyro

from benchmarks.explore.networks import Net
from benchmarks.processes import Cost, tpusim
from tpusim import zoo
from tpusim.frontend import OnnxReference
from tpusim.studies.bench.about import about
from tpusim.studies.bench.contestants import threads

AIMS = {"resnet50 cold": 25, "resnet50 warm": 10, "MLP cold": 3}
"""Seconds by the clock, two processors that nothing else uses."""
MOST_MIB = 1430
WIDTHS = 64, 128, 128, 64, 10


def mlp() -> onnx.ModelProto:
    """Four Gemm and three Relu."""
    net, x = Net(), "image"
    for before, after in pairwise(WIDTHS):
        x = net("Gemm", x, net.rng.standard_normal((before, after)) / before**0.5, net.rng.standard_normal(after))
        x = net("Relu", x) if after != WIDTHS[-1] else x
    return net.model("mlp", (1, WIDTHS[0]), x)


def main(warm: int = 2) -> None:
    """Run all of them. warm: how often with kernels kept."""
    print(about())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = {"resnet50": zoo.build("resnet50"), "MLP": mlp()}
        for key, model in models.items():
            onnx.save(model, folder / f"{key}.onnx")
        _run(folder, "MLP", "first")  # compiles Python's modules
        print(f"ONNX Runtime F32, resnet50: {_reference(models['resnet50']):.1f} ms an image")
        for key in models:
            _say(f"{key} cold", _run(folder, key, key))
            for _ in range(warm):
                _say(f"{key} warm", _run(folder, key, key))
        print(f"ONNX Runtime F32, resnet50: {_reference(models['resnet50']):.1f} ms an image")


def _run(folder: Path, model: str, kernels: str) -> Cost:
    with tempfile.TemporaryDirectory() as place:
        file, kept = str(folder / f"{model}.onnx"), folder / f"kernels of {kernels}"
        return tpusim("run", file, "--out", str(Path(place) / "out"), folder=Path(place), kernels=kept)


def _say(name: str, cost: Cost) -> None:
    aim = f"  (aim {AIMS[name]} s, {MOST_MIB} MiB)" if name in AIMS else ""
    print(f"{name:<14} {cost}{aim}", flush=True)


def _reference(model: onnx.ModelProto) -> float:
    """Milliseconds of ONNX Runtime for one image, the median."""
    run = OnnxReference(model, [o.name for o in model.graph.output], threads=threads()).run
    sample, times = {"gpu_0/data_0": zoo.images(1)}, list[float]()
    for _ in range(9):
        begin = time.perf_counter()
        run(sample)
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1000


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
