"""Top-1 of the float module, the flat tpu module and the machine over labelled samples, in units that add up."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache
from itertools import islice, tee
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tpusim.calibration.samples import load_samples
from tpusim.errors import CalibrationError, ConfigError, option
from tpusim.images import images_of, inputs_of
from tpusim.inference import Gradual, float_upstream, input_specs
from tpusim.ir.attrs import value_name
from tpusim.ir.module import Model, load_model, save_one_file
from tpusim.ir.types import shape_of
from tpusim.isa.stream import Program, load, save
from tpusim.ops import context
from tpusim.running.artefacts import Artefacts, Tensors, need
from tpusim.simulator import Simulator, SimulatorOptions
from tpusim.verify.npz import load_tensors

UNIT = 16
"""Samples of a unit for workers."""


class LabelledSample(NamedTuple):
    """A labelled sample. truth: class indices of its images; on_machine: whether the machine runs it too."""

    sample: Mapping[str, np.ndarray]
    truth: np.ndarray
    on_machine: bool


@dataclass(frozen=True)
class Score:
    """Images seen and classified as labelled; `identical`: those whose integer tensors are the flat ones bit by bit.

    lost: right in float and wrong quantised; gained: the other way round.
    """

    count: int = 0
    float_hits: int = 0
    int8_hits: int = 0
    local: int = 0
    local_hits: int = 0
    identical: int = 0
    lost: int = 0
    gained: int = 0

    def __add__(self, other: "Score") -> "Score":
        return Score(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))


class Levels:
    """A network on its three levels. machine: runs `program`, which was made from `tpu`."""

    def __init__(self, top: Model, tpu: Model, program: Program, machine: Simulator) -> None:
        stored = [t.name for t in program.tensors if t.role != "input" and not t.parts]
        floats = float_upstream(tpu)
        self.exact = [name for name in stored if name not in floats]
        self._machine = machine
        self._tpu, self._images = tpu, images_of(top)
        self._top, self._top_results = Gradual(top), _result_names(top)
        self._results = _result_names(tpu)
        self._flat = Gradual(tpu, list(dict.fromkeys([*stored, *self._results])))

    def scores(self, rows: Iterable[LabelledSample]) -> Iterator[Score]:
        """Of one row after the other."""
        rows, first, second = tee(rows, 3)
        reals, flats = self._top.each(row.sample for row in first), self._flat.each(self._given(row) for row in second)
        for row, (_, real), (_, flat) in zip(rows, reals, flats, strict=True):
            yield self._score(row, real, flat)

    def _given(self, row: LabelledSample) -> Tensors:
        """The sample as the tpu module takes it."""
        return inputs_of(self._tpu, row.sample, self._images)

    def _score(self, row: LabelledSample, real: Tensors, flat: Tensors) -> Score:
        images, local, local_hits, identical = len(row.truth), 0, 0, 0
        if row.on_machine:
            found = self._machine.run(self._given(row)).tensors
            local, local_hits = images, int(_right(found, self._results, row.truth).sum())
            same = bool(self.exact) and all(np.array_equal(found[name], flat[name]) for name in self.exact)
            identical = images * same
        before, after = _right(real, self._top_results, row.truth), _right(flat, self._results, row.truth)
        lost, gained = (int(np.count_nonzero(found)) for found in (before & ~after, after & ~before))
        return Score(images, int(before.sum()), int(after.sum()), local, local_hits, identical, lost, gained)


@dataclass(frozen=True)
class Job:
    """What every unit needs: a folder with the two modules and the program."""

    folder: Path
    options: SimulatorOptions

    @classmethod
    def put(cls, a: Artefacts, folder: Path) -> "Job":
        """Write what a run has made so far for workers."""
        for name in ("canonical", "tpu"):
            save_one_file(need(getattr(a, name), name), folder / f"{name}.mlir")
        save(need(a.program, "the program"), folder / "model.tpusim")
        return cls(folder, a.config.simulator)


@lru_cache(maxsize=1)
def _loaded(job: Job) -> Levels:
    if not job.folder.is_dir():
        raise ConfigError(
            f"evaluation: a worker cannot see {job.folder}; give {option('share')} a folder that all workers have"
        )
    top, tpu = (load_model(job.folder / f"{name}.mlir", context()) for name in ("canonical", "tpu"))
    program = load(job.folder / "model.tpusim")
    return Levels(top, tpu, program, Simulator(program, options=job.options))


def score_of(job: Job, rows: Sequence[LabelledSample]) -> Score:
    """A unit of work: the rows' scores, added up."""
    return sum(_loaded(job).scores(rows), Score())


def evaluate(a: Artefacts, labels: Path) -> dict[str, Any]:
    """Top-1 of the float module, the flat tpu module and the machine over all labelled samples."""
    top = need(a.canonical, "the canonical module")
    wanted = labels_of(labels, classes=prod(shape_of(top.results[0])[1:]))
    samples = load_samples(a.config.test_data or a.config.data, input_specs(top), images=images_of(top))
    rows = _rows(samples, wanted, a.config.local_samples)
    machine, program = need(a.machine, "the machine"), need(a.program, "the program")
    levels, total = Levels(top, need(a.tpu, "the tpu module"), program, machine), Score()
    for score in _scores(a, levels, rows):
        total += score
        a.observer.progress(total.count, len(wanted))
    return {
        "samples": total.count,
        "float_top1": total.float_hits / total.count,
        "int8_top1": total.int8_hits / total.count,
        "local_top1": total.local_hits / total.local,
        "local_samples": total.local,
        "local_bit_exact_samples": total.identical,
        "local_exact_tensors": len(levels.exact),
        "lost": total.lost,
        "gained": total.gained,
    }


def _scores(a: Artefacts, levels: Levels, rows: Iterable[LabelledSample]) -> Iterator[Score]:
    if a.config.workers is None:
        yield from levels.scores(rows)
        return
    with a.config.workers.begun() as crew:
        job = Job.put(a, crew.folder)
        yield from crew.results(score_of, ((job, unit) for unit in _units(rows)))


def _rows(samples: Iterable[Tensors], wanted: np.ndarray, limit: int) -> Iterator[LabelledSample]:
    """limit: how many images the machine runs at least, 0: all."""
    count = 0
    for sample in samples:
        batch = batch_of(sample)
        yield LabelledSample(sample, wanted[count : count + batch], limit == 0 or count < limit)
        count += batch


def _units(rows: Iterable[LabelledSample]) -> Iterator[list[LabelledSample]]:
    left = iter(rows)
    while unit := list(islice(left, UNIT)):
        yield unit


def require_labels(path: Path, labels: int, samples: int) -> None:
    """Raise CalibrationError unless there is one label per sample."""
    if labels != samples:
        raise CalibrationError(f"labels '{path}': {samples} are required, one per sample, got {labels}")


def labels_of(path: Path, classes: int) -> np.ndarray:
    """The class indices in a file. Raises ConfigError for anything else."""
    arrays = load_tensors(path)
    if len(arrays) != 1:
        raise ConfigError(f"labels '{path}': one array of class indices is required, got {', '.join(arrays) or 'none'}")
    (array,) = arrays.values()
    if array.ndim != 1 or array.dtype.kind not in "iu" or not len(array):
        got = f"{array.dtype} of shape {array.shape}"
        raise ConfigError(f"labels '{path}': one array of class indices (integers, 1-D) is required, got {got}")
    if array.min() < 0 or array.max() >= classes:
        got = f"{array.min()} to {array.max()}"
        raise ConfigError(f"labels '{path}': class indices from 0 to {classes - 1} are required, got {got}")
    return array


def batch_of(sample: Mapping[str, np.ndarray]) -> int:
    """Images in a sample: the extent of its first array's first axis."""
    return len(next(iter(sample.values())))


def _result_names(model: Model) -> list[str]:
    return [value_name(v) for v in model.results]


def _right(tensors: Mapping[str, np.ndarray], names: list[str], truth: np.ndarray) -> np.ndarray:
    """For each image, whether the largest score is that of its class."""
    scores = tensors[names[0]].reshape(len(truth), -1)
    return scores.argmax(axis=1) == truth
