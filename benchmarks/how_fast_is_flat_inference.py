"""Flat inference compared with ONNX Runtime F32, in turns in one process, with the same inputs and threads.

ResNet-50, one image and eight in a call, and networks shaped like MobileNet-V2, ShuffleNet and ViT-Tiny. Flat F32
keeps TPU-MLIR's order of sums, fast F32 uses the library's; INT8 has the bits of the machine. Numbers are medians by
the clock and, in brackets, the fastest and slowest.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
import tyro

from benchmarks.explore import networks
from tpusim import zoo
from tpusim.calibration.samples import load_samples
from tpusim.calibration.stage import CalibrationConfig
from tpusim.frontend import import_onnx
from tpusim.inference import input_specs
from tpusim.running.network import open_network
from tpusim.studies.bench import Measurement, contestants, measure
from tpusim.studies.bench.about import about

NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "resnet50": lambda: zoo.build("resnet50"),
    "mobilenet_v2": networks.mobilenet_v2,
    "shufflenet": lambda: zoo.build("shufflenet"),
    "vit": networks.vit,
}
AIMS = {
    ("resnet50", 1, "tpusim flat INT8"): 1.25, ("resnet50", 8, "tpusim flat INT8"): 1 / 0.9,
    ("resnet50", 1, "tpusim flat F32"): 1.5,
    **{(name, 1, "tpusim flat INT8"): 2.0 for name in ("mobilenet_v2", "shufflenet", "vit")},
}  # fmt: skip
"""Times ONNX Runtime F32, at most."""
WHO = "ONNX Runtime F32", "tpusim flat F32", "tpusim fast F32", "tpusim flat INT8"


def main(rounds: int = 9, only: tuple[str, ...] = ()) -> None:
    """Measure. rounds: turns; only: networks by name, all by default."""
    print(about())
    for name, batch in (("resnet50", 1), ("resnet50", 8), ("mobilenet_v2", 1), ("shufflenet", 1), ("vit", 1)):
        if not only or name in only:
            for row in _rows(name, batch, rounds):
                print(_line(name, batch, row), flush=True)


def _rows(name: str, batch: int, rounds: int) -> list[Measurement]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.onnx"
        onnx.save(NETWORKS[name](), path)
        samples = [dict(sample) for sample in load_samples(f"random:{batch}", input_specs(import_onnx(path)))]
        network = open_network(path, lambda usual: replace(usual, calibration=CalibrationConfig("max")))
        return measure((one for one in contestants(network, samples) if one.name in WHO), batch, rounds)


def _line(name: str, batch: int, row: Measurement) -> str:
    if row.error:
        return f"{name:<13} {batch}  {row.name:<17} {row.error}"
    aim = AIMS.get((name, batch, row.name))
    spread = f"({row.fastest:.1f} to {row.slowest:.1f})"
    said = f"  (aim {aim:.2f})" if aim else ""
    return f"{name:<13} {batch}  {row.name:<17} {row.milliseconds:7.1f} ms {spread:<18} {row.ratio:5.2f} x{said}"


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
