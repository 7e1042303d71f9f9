"""`tpusim run` from the command line, cold and warm: resnet50 in INT8 with the defaults, and an MLP of 7 ops.

Cold: no compiled kernels are kept; Python's own compiled modules are, as after any first run. Every run is a process of
its own in an empty folder; seconds are by the clock on whatever else the machine does. ONNX Runtime's time for one
image, in a process of its own before and after, says how fast the machine was.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import tyro
from onnx import TensorProto, helper, numpy_helper

from benchmarks.processes import Cost, tpusim
from tpusim import zoo
from tpusim.bench.about import about
from tpusim.bench.contestants import threads
from tpusim.frontend import OnnxReference

AIMS = {"resnet50 cold": 25, "resnet50 warm": 10, "MLP cold": 3}
"""Seconds by the clock, two processors that nothing else uses."""
MOST_MIB = 1430
WIDTHS = 64, 128, 128, 64, 10


def mlp() -> onnx.ModelProto:
    """Four Gemm and three Relu."""
    rng, nodes, constants = np.random.default_rng(0), list[onnx.NodeProto](), list[onnx.TensorProto]()
    name = "x"
    for i, (before, after) in enumerate(zip(WIDTHS, WIDTHS[1:], strict=False)):
        weights = {f"w{i}": rng.standard_normal((before, after)) / before**0.5, f"b{i}": rng.standard_normal(after)}
        constants += [numpy_helper.from_array(value.astype(np.float32), key) for key, value in weights.items()]
        nodes.append(helper.make_node("Gemm", [name, *weights], [f"gemm{i}"], f"gemm{i}"))
        name = f"gemm{i}"
        if after != WIDTHS[-1]:
            nodes.append(helper.make_node("Relu", [name], [f"relu{i}"], f"relu{i}"))
            name = f"relu{i}"
    values = [
        helper.make_tensor_value_info(key, TensorProto.FLOAT, [1, n])
        for key, n in (("x", WIDTHS[0]), (name, WIDTHS[-1]))
    ]
    graph = helper.make_graph(nodes, "mlp", values[:1], values[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=zoo.IR_VERSION)


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
