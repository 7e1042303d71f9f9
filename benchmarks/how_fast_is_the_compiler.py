"""The compiler, stage by stage: CPU seconds of networks and of chains of convolutions, and how they grow with depth.

Every stage runs once, on one thread, without samples: thresholds are all 4, which changes no shape. growth: the ratio
of the time per op between a chain and the previous one; 1.00 is linear.
"""

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np
import onnx
import tyro
from onnx import TensorProto, helper, numpy_helper

from tpusim import chips, zoo
from tpusim.calibration.table import CalibrationTable, Entry
from tpusim.frontend import import_onnx
from tpusim.ir.attrs import value_name
from tpusim.ir.module import Model
from tpusim.ir.types import is_tensor
from tpusim.lowering import LoweringConfig
from tpusim.passes import PassContext, PassManager
from tpusim.passes.calibration import ImportCalibrationTable
from tpusim.passes.canonicalize import Canonicalize
from tpusim.passes.codegen import Codegen
from tpusim.passes.layer_group import LayerGroup
from tpusim.passes.lowering import WeightReorder
from tpusim.passes.memory import AddressAssign
from tpusim.passes.pipelines import lowered
from tpusim.simulator import timeline

T = TypeVar("T")
NETWORKS = (
    ("resnet50", "bm1684x", 1),
    ("densenet121", "bm1684x", 1),
    ("densenet121", "bm1688", 2),
    ("vgg19", "bm1684x", 1),
)
DEPTHS = 10, 100, 1000
STAGES = "import", "canonicalize", "lower", "reorder", "group", "assign", "codegen", "clock"


def main(networks: bool = True, depths: tuple[int, ...] = DEPTHS) -> None:
    """Print a table of Markdown. networks: the classic ones too; depths: of the chains, on bm1684x."""
    print(f"| network | {' | '.join(STAGES)} |")
    print(f"|---|{'---|' * len(STAGES)}")
    for name, chip, cores in NETWORKS if networks else ():
        on = f"{chip}, {cores} cores" if cores > 1 else chip
        print(_row(f"{name}, {on}", compiled(zoo.build(name), chip, cores)), flush=True)
    before: tuple[int, Mapping[str, float]] | None = None
    for depth in depths:
        found = compiled(chain(depth), "bm1684x", 1)
        print(_row(f"chain of {depth:,}", found), flush=True)
        if before is not None:
            growth = {stage: found[stage] / before[1][stage] * before[0] / depth for stage in STAGES}
            print(_row(f"growth per op from {before[0]:,}", growth), flush=True)
        before = depth, found


def _row(name: str, cells: Mapping[str, float]) -> str:
    return f"| {name} | {' | '.join(f'{cells[stage]:.2f}' for stage in STAGES)} |"


def chain(depth: int) -> onnx.ModelProto:
    """So many 3x3 convolutions of 8 channels on 16x16 images, one after the other."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((8, 8, 3, 3), np.float32) / 8 for _ in range(depth)]
    names = [f"t{i}" for i in range(depth + 1)]
    nodes = [
        helper.make_node("Conv", [names[i], f"w{i}"], [names[i + 1]], name=f"c{i}", pads=[1] * 4, kernel_shape=[3, 3])
        for i in range(depth)
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8, 16, 16]) for name in (names[0], names[-1])]
    held = [numpy_helper.from_array(weight, f"w{i}") for i, weight in enumerate(weights)]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def compiled(proto: onnx.ModelProto, chip: str, cores: int) -> dict[str, float]:
    """CPU seconds of each stage."""
    seconds: dict[str, float] = {}

    def timed(stage: str, work: Callable[[], T]) -> T:
        begin = time.process_time()
        found = work()
        seconds[stage] = max(time.process_time() - begin, 1e-3)
        return found

    top = timed("import", lambda: import_onnx(proto, name="network"))
    canonical = timed("canonicalize", lambda: PassManager(Canonicalize()).run(top))
    table = PassContext(table=assumed_four(canonical))
    calibrated = PassManager(ImportCalibrationTable()).run(canonical, table)
    tpu = timed("lower", lambda: PassManager(lowered(LoweringConfig(chip, "int8"))).run(calibrated))
    model = timed("reorder", lambda: PassManager(WeightReorder()).run(tpu))
    grouped = timed("group", lambda: PassManager(LayerGroup(cores=cores)).run(model))
    final = timed("assign", lambda: PassManager(AddressAssign()).run(grouped))
    program = timed("codegen", lambda: PassManager(Codegen()).program(final))
    timed("clock", lambda: timeline(program, chips.load(chip)))
    return seconds


def assumed_four(model: Model) -> CalibrationTable:
    """Thresholds of 4 for all tensors."""
    values = [*model.body.args, *(value for op in model.ops for value in op.results)]
    return CalibrationTable({value_name(v): Entry(4.0, -4.0, 4.0) for v in values if is_tensor(v)})


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
