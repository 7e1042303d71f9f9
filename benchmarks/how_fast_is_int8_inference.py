"""Whole-graph INT8 inference in JAX: how fast against ONNX Runtime in f32, and against going op by op.

Prints medians and ratios measured alternately in one process: ResNet-50, batch 1.
"""

import statistics
import time
from collections.abc import Callable

import tyro

import tpusim
from tpusim import zoo
from tpusim.calibration.stage import CalibrationConfig, apply_table, calibrate
from tpusim.canonicalize import canonicalize
from tpusim.frontend import OnnxReference, import_onnx
from tpusim.inference import Graph, run
from tpusim.lowering import LoweringConfig, lower

ROUNDS = 5


def main() -> None:
    """Build, warm up, measure in turns."""
    proto = zoo.build("resnet50")
    model, _ = canonicalize(import_onnx(proto, name="resnet50"))
    sample = {"gpu_0/data_0": zoo.images(1)}
    table, _ = calibrate(model, [sample], CalibrationConfig("max"))
    tpu, _ = lower(apply_table(model, table), LoweringConfig("bm1684x", "int8"))
    graph = Graph(tpu)
    reference = OnnxReference(proto, [o.name for o in proto.graph.output])
    contestants: dict[str, Callable[[], object]] = {
        "ONNX Runtime f32": lambda: reference.run(sample),
        "tpusim INT8 graph": lambda: graph(sample),
        "tpusim INT8 op by op": lambda: run(tpu, sample),
    }
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for call in contestants.values():
        call()
    for _ in range(ROUNDS):
        for name, call in contestants.items():
            begin = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - begin)
    base = statistics.median(times["ONNX Runtime f32"])
    print(f"tpusim {tpusim.__version__}, median of {ROUNDS}")
    for name, measured in times.items():
        median = statistics.median(measured)
        print(f"{name:<22} {median * 1000:8.1f} ms  {median / base:6.2f} x ONNX Runtime")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
