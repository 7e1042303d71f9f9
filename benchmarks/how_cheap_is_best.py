"""`--layer-group best` compared with strategy 2 on the clock: networks of the zoo on chips, without samples.

Thresholds are all 4, which changes no shape. Cycles are those of the whole program; seconds are CPU time of grouping.
"""

import time
from collections.abc import Sequence

import tyro

from benchmarks.how_fast_is_the_compiler import assumed_four
from tpusim import zoo
from tpusim.frontend import import_onnx
from tpusim.layer_group import LayerGroupConfig
from tpusim.lowering import LoweringConfig
from tpusim.passes import PassContext, PassManager
from tpusim.passes.calibration import ImportCalibrationTable
from tpusim.passes.canonicalize import Canonicalize
from tpusim.passes.grouping import cycles, divide
from tpusim.passes.lowering import WeightReorder
from tpusim.passes.pipelines import lowered

CELLS = (
    "squeezenet/bm1684x/int8", "squeezenet/bm1688/int8", "squeezenet/cv182x/int8", "squeezenet/cv186x/int8",
    "densenet121/bm1688/int8", "densenet121/cv182x/int8", "inception_v2/bm1684x/int8", "inception_v2/bm1688/int8",
    "inception_v2/cv186x/int8", "resnet50/bm1684x/int8", "shufflenet/bm1688/int8", "inception_v2/bm1688/f16",
    "shufflenet/bm1688/f16",
)  # fmt: skip


def main(cells: Sequence[str] = CELLS) -> None:
    """Print a table of Markdown. cells: NETWORK/CHIP/MODE."""
    print("| network | chip | mode | cycles, 2 | cycles, best | less | s, 2 | s, best |")
    print("|---|---|---|---:|---:|---:|---:|---:|")
    for cell in cells:
        name, chip, mode = cell.split("/")
        top = PassManager(Canonicalize()).run(import_onnx(zoo.build(name), name=name))
        steps = (ImportCalibrationTable(), *lowered(LoweringConfig(chip, mode)), WeightReorder())
        model = PassManager(steps).run(top, PassContext(table=assumed_four(top)))
        found: list[int] = []
        seconds: list[float] = []
        for opt in ("2", "best"):
            begin = time.process_time()
            found.append(cycles(divide(model, LayerGroupConfig(opt))))
            seconds.append(time.process_time() - begin)
        less = f"{1 - found[1] / found[0]:.1%}"
        times = " | ".join(f"{one:.1f}" for one in seconds)
        print(f"| {name} | {chip} | {mode} | {found[0]:,} | {found[1]:,} | {less} | {times} |", flush=True)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
