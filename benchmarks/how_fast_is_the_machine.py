"""The local-memory machine: how long a network takes, with and without sanitizer, against flat inference.

Prints medians and ratios measured alternately in one process: ResNet-50 INT8 on BM1684X, batch 1.
"""

import statistics
import time
from collections.abc import Callable

from tpusim.calibration.stage import CalibrationConfig, apply_table, calibrate
from tpusim.canonicalize import canonicalize
from tpusim.codegen import generate
from tpusim.frontend import import_onnx, zoo
from tpusim.inference import Graph
from tpusim.layer_group import LayerGroupConfig, group_layers
from tpusim.lowering import LoweringConfig, lower, reorder_weights
from tpusim.memory import assign_addresses
from tpusim.simulator import Simulator, SimulatorOptions

ROUNDS = 5


def main() -> None:
    """Compile once, measure in turns."""
    model, _ = canonicalize(import_onnx(zoo.build("resnet50"), name="resnet50"))
    sample = {"gpu_0/data_0": zoo.images(1)}
    table, _ = calibrate(model, [sample], CalibrationConfig("max"))
    tpu, _ = lower(apply_table(model, table), LoweringConfig("bm1684x", "int8"))
    begin = time.perf_counter()
    grouped = group_layers(reorder_weights(tpu), LayerGroupConfig("1"))
    print(f"layer groups: {time.perf_counter() - begin:.2f} s")
    program = generate(assign_addresses(grouped))
    graph = Graph(tpu)
    checked, bare = Simulator(program), Simulator(program, options=SimulatorOptions(sanitize=False))
    contestants: dict[str, Callable[[], object]] = {
        "flat INT8 graph": lambda: graph(sample),
        "prepare with all checks": lambda: Simulator(program),
        "run, checked": lambda: checked.run(sample),
        "run, bare": lambda: bare.run(sample),
        "run, every tensor watched": lambda: checked.run(sample, watch=True),
    }
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for call in contestants.values():
        call()
    for _ in range(ROUNDS):
        for name, call in contestants.items():
            begin = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - begin)
    base = statistics.median(times["flat INT8 graph"])
    for name, measured in times.items():
        median = statistics.median(measured)
        print(f"{name:<26} {median * 1000:8.1f} ms  {median / base:6.2f} x flat")


if __name__ == "__main__":
    main()
