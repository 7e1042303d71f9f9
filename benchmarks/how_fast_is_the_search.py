"""`tpusim search-qtable` compared with TPU-MLIR's search: whole commands, in turns, same thresholds and samples.

TPUSIM_UPSTREAM names the environment with TPU-MLIR, as for `benchmarks.conformance`; its search draws the network at
its end and needs graphviz's `dot`. Both searches get a calibration table of TPU-MLIR, so that neither calibrates, and
the same number of samples. The goal of theirs is a given similarity; if theirs reaches less, the goal of ours is what
it reached. Cosines and cycles are tpusim's, of all samples and on bm1684x. Seconds are CPU time and elapsed time of the
processes as a user starts them: theirs; ours with an initially empty folder of kernels, and again with the kernels
kept. OMP_NUM_THREADS sets the threads of both, except those of JAX.
"""

from __future__ import annotations

import resource
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import tyro

from benchmarks.accuracy.measure import DIGITS
from benchmarks.conformance.upstream import CACHE, Upstream
from benchmarks.processes import tpusim
from tests.upstream import networks as small
from tpusim import zoo
from tpusim.errors import ConfigError
from tpusim.frontend import import_onnx
from tpusim.lowering import LoweringConfig
from tpusim.lowering.qtable import read_qtable
from tpusim.passes import PassManager
from tpusim.passes.pipelines import calibrated, canonical
from tpusim.studies.search import Cosine, Trials

NETWORKS = "digits:16", "vit:16", "bert:16", "squeezenet:4", "squeezenet:30", "shufflenet:30", "resnet50:30"
CHIP = "bm1684x"


@dataclass(frozen=True)
class Seconds:
    """The time of a command: CPU, including its children, and elapsed."""

    cpu: float
    wall: float

    @classmethod
    def of(cls, work: Callable[[], object]) -> Seconds:
        """Run it."""
        before, begin = _cpu(), time.monotonic()
        work()
        return cls(_cpu() - before, time.monotonic() - begin)

    def __str__(self) -> str:
        """Seconds of CPU, and in brackets on the wall."""
        return f"{self.cpu:.1f} ({self.wall:.1f})"


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(networks: tuple[str, ...] = NETWORKS, cosine: float = 0.9999, folder: Path = CACHE.parent / "search") -> None:
    """Print a table of Markdown. networks: NAME:SAMPLES; cosine: the goal of theirs; folder: for the files."""
    upstream = Upstream.find()
    if shutil.which("dot") is None:
        raise ConfigError("graphviz is required: TPU-MLIR's search calls `dot` before it writes its table, got none")
    print("| network (samples) | INT8 | theirs: cosine, cycles, ops | ours | s, theirs | ours | without kernels |")
    print("|---|---|---|---|---:|---:|---:|")
    for entry in networks:
        name, _, count = entry.partition(":")
        print(_row(upstream, folder.resolve() / f"{name}-{count}", name, int(count), cosine), flush=True)


def _row(upstream: Upstream, place: Path, name: str, count: int, cosine: float) -> str:
    if not (place / "table").exists():
        _prepare(upstream, place, name, count)
    theirs = Seconds.of(lambda: _theirs(upstream, place, count, cosine))
    trials = _trials(place, count)
    reached = frozenset(read_qtable(place / "theirs" / "qtable"))
    asked = min(cosine, trials.score(reached).cosine)
    shutil.rmtree(place / "kernels", ignore_errors=True)
    first, again = (_ours(place, count, asked) for _ in range(2))
    sets = frozenset[str](), reached, frozenset(read_qtable(place / "qtable"))
    cells = [f"{trials.score(one).cosine:.6f}, {trials.cycles(one):,}, {len(one)}" for one in sets]
    return f"| {name} ({count}) | {' | '.join(cells)} | {theirs} | {again} | {first} |"


def _prepare(upstream: Upstream, place: Path, name: str, count: int) -> None:
    """The network as ONNX and as TPU-MLIR's, samples and thresholds."""
    proto, samples = _source(name, count)
    (place / "data").mkdir(parents=True, exist_ok=True)
    onnx.save(proto, place / "m.onnx")
    for number, sample in enumerate(samples):
        np.savez(place / "data" / f"{number:03}.npz", **sample)  # type: ignore[arg-type]
    upstream.run(place, "model_transform.py", "--model_name", "m", "--model_def", "m.onnx", "--mlir", "m.mlir")
    upstream.run(place, "run_calibration.py", "m.mlir", "--dataset", "data", "--input_num", str(count), "-o", "table")


def _source(name: str, count: int) -> tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]:
    if name == "digits":
        images = np.load(DIGITS / "calibration.npz")["image"][:count]
        return onnx.load(str(DIGITS / "digits.onnx")), [{"image": image[None]} for image in images]
    proto = zoo.build(name) if name in zoo.ZOO else small.build(name)
    return proto, small.samples(proto, count)


def _theirs(upstream: Upstream, place: Path, count: int, cosine: float) -> None:
    """Run their search in a separate folder; its similarity is (1 + cosine) / 2."""
    folder = place / "theirs"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path in (*place.glob("m*.mlir"), *place.glob("m*.npz"), place / "table"):
        shutil.copy(path, folder)
    upstream.run(
        folder, "run_calibration.py", "m.mlir", "--dataset", "../data", "--input_num", str(count), "--inference_num",
        str(count), "--search", "search_qtable", "--expected_cos", str((1 + cosine) / 2), "--chip", CHIP,
        "--quantize_table", "qtable", "-o", "table",
    )  # fmt: skip


def _ours(place: Path, count: int, cosine: float) -> Seconds:
    asked = ["m.onnx", "--table", "table", "--data", "data", "--samples", str(count), "--chip", CHIP]
    asked += ["--expected-cos", repr(cosine), "--out", "qtable"]
    cost = tpusim("search-qtable", *asked, folder=place, kernels=place / "kernels")
    return Seconds(cost.cpu, cost.wall)


def _trials(place: Path, count: int) -> Trials:
    """The trials that judge both tables."""
    model = PassManager((*canonical(), *calibrated(place / "table"))).run(import_onnx(place / "m.onnx"))
    samples = [dict(np.load(path)) for path in sorted((place / "data").glob("*.npz"))[:count]]
    return Trials(model, LoweringConfig(CHIP, "int8"), samples, Cosine(1.0))


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
