"""The local-memory machine: the time of a network, with and without sanitizer, compared with flat inference.

Prints medians and ratios of CPU time measured alternately in one process, which other load does not change much, and
the peak memory: ResNet-50 INT8 on BM1684X, batch 1. The machine works on one thread, flat inference on all.
"""

import resource
import statistics
import time
from collections.abc import Callable

import tyro

from tpusim import zoo
from tpusim.calibration.stage import CalibrationConfig
from tpusim.frontend import import_onnx
from tpusim.inference import Graph
from tpusim.layer_group import LayerGroupConfig
from tpusim.lowering import LoweringConfig
from tpusim.passes import PassContext, PassManager
from tpusim.passes.pipelines import calibrated, canonical, commands, converted, grouped
from tpusim.simulator import Simulator, SimulatorOptions
from tpusim.simulator.debugger import Debugger

ROUNDS = 5


def main() -> None:
    """Compile once, measure in turns."""
    sample = {"gpu_0/data_0": zoo.images(1)}
    ranged = (*canonical(), *calibrated(config=CalibrationConfig("max")))
    steps = (*ranged, *converted(LoweringConfig("bm1684x", "int8")))
    tpu = PassManager(steps).run(import_onnx(zoo.build("resnet50"), name="resnet50"), PassContext(samples=[sample]))
    begin = time.perf_counter()
    divided = PassManager(grouped(LayerGroupConfig("1"))).run(tpu)
    print(f"layer groups: {time.perf_counter() - begin:.2f} s")
    program = PassManager(commands()).program(divided)
    graph = Graph(tpu)
    print(f"before the machine: {_peak():,.0f} MiB at most")
    checked, bare = Simulator(program), Simulator(program, options=SimulatorOptions(sanitize=False))
    contestants: dict[str, Callable[[], object]] = {
        "flat INT8 graph": lambda: graph(sample),
        "prepare with all checks": lambda: Simulator(program),
        "run, checked": lambda: checked.run(sample),
        "run, bare": lambda: bare.run(sample),
        "run, every tensor watched": lambda: checked.run(sample, watch=True),
        "debugger, to the end": lambda: Debugger(program, sample).finish(),
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
    for call in contestants.values():
        call()
    for _ in range(ROUNDS):
        for name, call in contestants.items():
            begin, cpu = time.perf_counter(), time.process_time()
            call()
            times[name].append((time.process_time() - cpu, time.perf_counter() - begin))
    base = statistics.median(cpu for cpu, _ in times["flat INT8 graph"])
    for name, measured in times.items():
        cpu, wall = (statistics.median(column) for column in zip(*measured, strict=True))
        print(f"{name:<26} {cpu * 1000:8.1f} ms CPU  {wall * 1000:8.1f} ms  {cpu / base:6.2f} x flat")
    print(f"after it: {_peak():,.0f} MiB at most")


def _peak() -> float:
    """MiB of memory this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
