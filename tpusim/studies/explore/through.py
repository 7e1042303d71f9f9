"""Points on TPU-MLIR's tools: its code generator makes a bmodel of each cut, its simulator computes the results.

The costs are those of the generator's profile. They are compared with those of the cut that TPU-MLIR's compiler makes
of the same network, and the simulated results with flat inference and with the compiler's. Bmodels, profiles and
results stay in the exploration's folder.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tpusim import chips
from tpusim.chips import ChipSpec
from tpusim.errors import ConfigError, option
from tpusim.inference import results_of
from tpusim.ir.module import Model
from tpusim.lowering import LoweringConfig
from tpusim.studies.explore.space import Point
from tpusim.studies.upstream.compiler import compiled
from tpusim.studies.upstream.road import (
    PROFILES,
    RESULTS,
    Made,
    bmodel_path,
    compared,
    generate,
    read_made,
    results_in,
    simulated,
)
from tpusim.studies.upstream.tools import Tools, UpstreamError

Tensors = Mapping[str, np.ndarray]
COMPILER = "tpu-mlir"
"""In names of folders, in place of a strategy: the cut of TPU-MLIR's compiler."""
UPSTREAM = "upstream"
"""The folder of bmodels in that of an exploration."""
SUFFIXES = (".bmodel", ".cvimodel")


@dataclass(frozen=True)
class Road:
    """The tools for the points of a network and batch.

    folder: of the exploration. sample: the inputs of the simulator. key: a hash of everything that the network, its
    calibration table and the sample depend on, and of the version of the tools.
    """

    tools: Tools
    folder: Path
    sample: Tensors
    key: str


@dataclass(frozen=True)
class Outcome:
    """A bmodel and its simulated results; without them, why a tool refused."""

    made: Made | None = None
    results: Tensors = field(default_factory=dict[str, np.ndarray])
    error: str = ""


@dataclass
class Through:
    """A lowered network on the tools. top: its canonical module, with ranges if the mode needs them."""

    road: Road
    top: Model
    tpu: Model
    config: LoweringConfig
    _compiler: dict[int, Outcome] = field(default_factory=dict[int, Outcome])

    def figures(self, final: Model, point: Point) -> dict[str, Any]:
        """The `upstream_` and `compiler_` fields of a point's row."""
        try:
            require_shipped(point.spec())
        except UpstreamError as error:
            return {"upstream_error": str(error)}
        name = self._name(point, Path(point.strategy).stem)
        ours = self._kept(name, final, lambda folder: generate(final, folder, self.road.tools))
        theirs = self._theirs(point, final)
        found = {"compiler_error": theirs.error, "upstream_error": ours.error}
        if ours.made is not None:
            file = ours.made.file.relative_to(self.road.folder).as_posix()
            found |= {
                "upstream_file": file,
                "upstream_cycles": ours.made.cycles,
                "upstream_bytes": ours.made.moved_bytes,
            }
        if theirs.made is not None:
            found |= {"compiler_cycles": theirs.made.cycles, "compiler_bytes": theirs.made.moved_bytes}
        try:
            return found | self._differences(ours.results, theirs.results)
        except UpstreamError as error:
            return found | {"upstream_error": str(error)}

    def _differences(self, ours: Tensors, theirs: Tensors) -> dict[str, Any]:
        """How many elements of the results differ from flat inference, and from TPU-MLIR's compile."""
        if not ours:
            return {}
        flat = compared(ours, dict(zip(ours, self._flat, strict=True)))
        others = [str(one) for one in flat if one.differ]
        found = {"upstream_differ": sum(one.differ for one in flat), "upstream_first": (others or [""])[0]}
        if theirs:
            found |= {"compiler_differ": sum(one.differ for one in compared(ours, theirs))}
        return found

    @cached_property
    def _flat(self) -> Sequence[np.ndarray]:
        return list(results_of(self.tpu, self.road.sample))

    def _theirs(self, point: Point, final: Model) -> Outcome:
        """What TPU-MLIR's compiler makes of the network for so many cores; compiled once."""
        if point.cores not in self._compiler:
            name = self._name(point, COMPILER)
            self._compiler[point.cores] = self._earlier(name, final) or self._kept(
                name, final, lambda folder: self._compiled(folder, point)
            )
        return self._compiler[point.cores]

    def _compiled(self, folder: Path, point: Point) -> Made:
        return compiled(self.top, point.spec(), str(self.config.mode), folder, self.road.tools, cores=point.cores,
                        asymmetric=self.config.asymmetric)  # fmt: skip

    def _name(self, point: Point, cut: str) -> str:
        """The folder of a cut: words for people, and a hash of what the bmodel depends on."""
        parts = [bmodel_path(Path(), self.top, point.chip).stem, point.chip.name, point.mode, cut]
        strategy = "" if cut == COMPILER else point.strategy
        how = self.road.key, *parts, strategy, point.batch, point.cores, self.config.asymmetric
        return "_".join([*parts, hashlib.sha256(repr(how).encode()).hexdigest()[:8]])

    def _kept(self, name: str, final: Model, make: Callable[[Path], Made]) -> Outcome:
        """Make and simulate a bmodel in a new folder, which takes its name when all is done."""
        place = self.road.folder / UPSTREAM
        place.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=place, prefix=".work-") as work:
            folder = Path(work, "made")
            try:
                one = make(folder)
            except UpstreamError as error:
                return Outcome(error=str(error))
            results, error = self._simulated(one, final)
            _tidy(folder)
            rmtree(place / name, ignore_errors=True)
            try:
                folder.rename(place / name)
            except OSError:
                if not (place / name).is_dir():  # else another worker made the same and was faster
                    raise
        return Outcome(replace(one, file=place / name / one.file.name), results, error)

    def _simulated(self, one: Made, final: Model) -> tuple[Tensors, str]:
        """The results of a bmodel, or {} and why it has none."""
        try:
            return simulated(one, self.road.sample, final, self.road.tools), ""
        except ConfigError as error:
            return {}, str(error)

    def _earlier(self, name: str, final: Model) -> Outcome | None:
        """The result of an exploration that was stopped, if it got that far."""
        folder = self.road.folder / UPSTREAM / name
        files = [path for path in folder.glob("*") if path.suffix in SUFFIXES]
        if not files or not (folder / RESULTS).exists():
            return None
        with suppress(ConfigError):
            return Outcome(read_made(files[0]), results_in(folder, final))
        return None


def require_shipped(chip: ChipSpec) -> None:
    """Raise UpstreamError unless the chip is one of ours with its figures: the tools know no other."""
    if chip not in map(chips.load, chips.available()):
        raise UpstreamError(
            f"{chip.name}: TPU-MLIR knows {', '.join(chips.available())} with their figures, and no other chip; leave "
            f"out {option('set')}, or {option('through_upstream')}"
        )


def _tidy(folder: Path) -> None:
    """Delete all but the bmodel, its profiles and its results."""
    kept = {RESULTS, *(path.name for path in folder.glob(PROFILES))}
    for path in folder.iterdir():
        if path.is_dir():
            rmtree(path)
        elif path.name not in kept and path.suffix not in SUFFIXES:
            path.unlink()
