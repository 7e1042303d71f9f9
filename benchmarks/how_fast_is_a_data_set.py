"""Data sets: calibration in images per second compared with flat F32, its memory, and digits flat and on the machine.

Rates are of ResNet-50 in one process, kernels kept, in turns: flat F32 image by image, and calibrations of the same
images; medians. The peaks of memory are those of separate processes. digits are all 1,797 of scikit-learn.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import tyro
from sklearn.datasets import load_digits

import tpusim as product
from benchmarks.accuracy.measure import DIGITS
from benchmarks.processes import Cost, tpusim
from tpusim import zoo
from tpusim.calibration.stage import CalibrationConfig, calibrate
from tpusim.frontend import import_onnx
from tpusim.inference import Graph
from tpusim.passes import PassManager
from tpusim.passes.canonicalize import Canonicalize
from tpusim.studies.bench.about import about

INPUT = "gpu_0/data_0"


def main(images: int = 32, many: int = 512, turns: int = 3) -> None:
    """Measure. images: of the timed calibrations; many: of the calibrations whose memory is measured, and 32.

    turns: of the calibrations that are timed.
    """
    print(about())
    _rates(images, turns)
    _peaks(32, many)
    _digits()


def _rates(count: int, turns: int) -> None:
    model = PassManager(Canonicalize()).run(import_onnx(zoo.build("resnet50"), name="resnet50"))
    samples = [{INPUT: image[None]} for image in zoo.images(count)]
    graph = Graph(model)
    graph(samples[0])
    ways: dict[str, Callable[[], object]] = {"flat F32": lambda: [graph(sample) for sample in samples]}
    for name, config in (
        ("calibration by max", CalibrationConfig("max")),
        ("by kl, not tuned", CalibrationConfig("kl", tune_samples=0)),
        ("by kl, tuned with 5", CalibrationConfig("kl")),
    ):
        calibrate(model, samples[:2], config)
        ways[name] = lambda config=config: calibrate(model, samples, config)
    times = [{name: _seconds(way) for name, way in ways.items()} for _ in range(turns)]
    for name in ways:
        rate = statistics.median(count / seconds[name] for seconds in times)
        shares = sorted(seconds["flat F32"] / seconds[name] for seconds in times)
        spread = f"({shares[0]:.2f} to {shares[-1]:.2f})"
        share = f"{statistics.median(shares):5.2f} {spread} x flat F32"
        print(f"resnet50, {count} images, {name:<20} {rate:6.1f} images/s  {share}", flush=True)


def _peaks(few: int, many: int) -> None:
    """Peak memory of `tpusim run --to calibrate`; every tensor of squeezenet is large, those of digits are small.

    The many images repeat the few: with other images other ops would be tuned, which needs additional memory.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        onnx.save(zoo.build("squeezenet"), folder / "squeezenet.onnx")
        images = {
            "squeezenet": zoo.images(few)[:, None],
            "digits": np.load(DIGITS / "calibration.npz")["image"][:few, None],
        }
        for network, (file, key) in {
            "digits": (str(DIGITS / "digits.onnx"), "image"),
            "squeezenet": ("squeezenet.onnx", "data_0"),
        }.items():
            for i, image in enumerate(images[network]):
                np.savez(folder / f"{network}{i}.npz", **{key: image})
            costs = [_calibrated(folder, network, file, few, count) for count in (few, few, many)]
            for count, cost in zip((few, many), costs[1:], strict=True):
                print(f"{network}, calibrated with {count:>4} images {cost}")
            print(f"{network}: {costs[2].mib / costs[1].mib:.3f} x the memory", flush=True)


def _calibrated(folder: Path, network: str, file: str, few: int, count: int) -> Cost:
    listed = folder / f"{count}.txt"
    listed.write_text("".join(f"{network}{i % few}.npz\n" for i in range(count)))
    asked = ["run", file, "--to", "calibrate", "--data", str(listed), "--out", f"{network}{count}"]
    return tpusim(*asked, folder=folder, kernels=folder / "kernels")


def _digits() -> None:
    pixels = load_digits().images.astype(np.float32)[:, None]  # type: ignore[union-attr]
    calibration = [{"image": image[None]} for image in np.load(DIGITS / "calibration.npz")["image"][:32]]
    net = product.compile(DIGITS / "digits.onnx", calibration)
    net.flat(pixels)
    warm = statistics.median(_seconds(lambda: net.flat(pixels)) for _ in range(3))
    machine = net.machine()
    checked = _seconds(lambda: [machine.run({"image": image[None]}) for image in pixels])
    print(f"digits, {len(pixels)} images, flat INT8, warm:   {warm:6.2f} s  (aim 2)")
    print(f"digits, {len(pixels)} images, machine, checked: {checked:6.2f} s  (aim 30)")


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
