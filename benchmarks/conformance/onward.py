"""TPU-MLIR's tools go on from our files, and tpusim from theirs: every result of both is compared.

TPUSIM_UPSTREAM=FOLDER python -m benchmarks.conformance.onward --only 'digits/bm1684x/*' --kept FILE

Each cell NETWORK/CHIP/MODE is taken three ways:

* deployed: model_deploy.py compiles our canonical module with our calibration table. The tensors of its interpreter are
  compared with those of flat inference on the module that tpusim lowers.
* read: tpusim verifies the folder that model_deploy.py leaves, as `tpusim verify` does: the lowered and the final
  module of the real compiler, flat and on the machine, against each other and its interpreter and simulator.
* generated: our final module through the real code generator and its simulator, against flat inference.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import tyro
from ml_dtypes import finfo

from benchmarks.accuracy.measure import config
from benchmarks.accuracy.results import Key
from benchmarks.conformance.ours import NETWORKS, Network, alone, table_text
from benchmarks.groups.through import NETWORKS as SIZED
from tpusim import chips
from tpusim.calibration.stage import CalibrationConfig, apply_table, calibrate
from tpusim.calibration.table import CalibrationTable
from tpusim.errors import TpusimError
from tpusim.inference import results_of, run
from tpusim.ir.attrs import value_name
from tpusim.ir.module import Model, save_model
from tpusim.ir.types import is_tensor, uniform_of
from tpusim.isa.region import DType, numpy_dtype
from tpusim.passes import PassManager
from tpusim.passes.memory import AddressAssign
from tpusim.passes.pipelines import converted, grouped
from tpusim.studies.upstream.road import compared, generate, simulated
from tpusim.studies.upstream.tools import AUTO, Tools
from tpusim.studies.verification.folder import LOWERED, Folder
from tpusim.studies.verification.steps import far_apart, steps_of, stored
from tpusim.verify.npz import load_tensors, save_tensors

WAYS = ("deployed", "read", "generated")
NEAR = 2e-3
"""Largest difference of a float tensor that is not named, as a share of the largest value."""


@dataclass
class Source:
    """A network with its canonical module, calibrated with the largest values of its samples."""

    name: str
    compiled: dict[str, Mapping[str, np.ndarray]] = field(default_factory=dict[str, Mapping[str, np.ndarray]])
    """Results of the chip's simulator on the file that the real compiler made, by cell."""

    @cached_property
    def network(self) -> Network:
        """The network of this benchmark, or of benchmarks.groups.through."""
        if self.name in NETWORKS:
            return Network.prepare(self.name)
        return Network.of(self.name, SIZED[self.name](), "random:2")

    @cached_property
    def table(self) -> CalibrationTable:
        """The calibration table, by our names."""
        samples = (dict(sample) for sample in self.network.samples[:2])
        return calibrate(self.network.canonical, samples, CalibrationConfig("max", tune_samples=0))[0]

    def lowered(self, key: Key) -> Model:
        """Our lowered module of a cell."""
        settings, model = config(key.chip, key.mode), self.network.canonical
        if settings.format.calibrated:
            model = apply_table(model, self.table, asymmetric=settings.asymmetric)
        return PassManager(converted(settings)).run(model)


Way = Callable[[Key, Source, Tools], dict[str, str]]
"""Takes a cell; the verdict of each way."""


@dataclass
class Onward:
    """Take cells all three ways; a line for each cell and way."""

    only: tuple[str, ...] = ("digits/bm1684x/int8",)
    """Cells NETWORK/CHIP/MODE that match one of these globs."""
    ways: tuple[str, ...] = WAYS
    """Some of deployed, read and generated; read goes together with deployed."""
    kept: Path | None = None
    """Append each line to this file, and leave out the cells and ways that are in it."""

    def execute(self) -> None:
        """Print each line; an exception of one cell is its line."""
        tools = Tools.find(AUTO)
        lines = self.kept.read_text(encoding="utf-8").splitlines() if self.kept and self.kept.exists() else []
        done = {tuple(line.split(" ")[:2]) for line in lines}
        for name in dict.fromkeys((*NETWORKS, *SIZED)):
            source = Source(name)
            for key in self._cells(name):
                for ways, take in (WAYS[:2], deployed), (WAYS[2:], generated):
                    wanted = [way for way in ways if way in self.ways and (str(key), way) not in done]
                    if wanted:
                        self._say(key, wanted, take, source, tools)

    def _cells(self, name: str) -> Iterator[Key]:
        keys = (Key(name, chip, mode) for chip in chips.names() for mode in (*chips.load(chip).modes, "int8-asym"))
        return (key for key in keys if key.matches(self.only))

    def _say(self, key: Key, ways: Sequence[str], take: Way, source: Source, tools: Tools) -> None:
        try:
            found = take(key, source, tools)
        except TpusimError as error:
            found = dict.fromkeys(ways, f"failed: {' '.join(str(error).split())[:400]}")
        for way in ways:
            line = f"{key} {way} {found[way]}"
            print(line, flush=True)
            if self.kept:
                with self.kept.open("a", encoding="utf-8") as kept:
                    kept.write(f"{line}\n")


def deployed(key: Key, source: Source, tools: Tools) -> dict[str, str]:
    """The verdicts on the folder that model_deploy.py makes of our canonical module and table."""
    settings, network, name = config(key.chip, key.mode), source.network, source.network.canonical.name
    quantize = key.mode.partition("-")[0].upper()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        save_model(network.canonical.clone(), folder / f"{name}.mlir", weight_file=f"{name}_top_f32_all_weight.npz")
        save_tensors(folder / f"{name}_in_f32.npz", network.sample)
        save_tensors(folder / f"{name}_top_outputs.npz", run(network.canonical, network.sample))
        table = folder / f"{name}_cali_table"
        if settings.format.calibrated:
            table.write_text(table_text(source.table.entries), encoding="utf-8")
        options = ["--calibration_table", table.name] * table.exists() + ["--asymmetric"] * settings.asymmetric
        file = f"{name}.{chips.load(key.chip).hardware.file_suffix}"
        tools.run(folder, "model_deploy.py", "--mlir", f"{name}.mlir", "--quantize", quantize, *options,
                  "--processor", key.chip, "--test_input", f"{name}_in_f32.npz", "--test_reference",
                  f"{name}_top_outputs.npz", "--tolerance", "0.0,0.0", "--compare_all", "--debug", "--model",
                  file)  # fmt: skip
        left = Folder(folder)
        theirs = load_tensors(left.reference(left.lowered[0].stem))
        source.compiled[str(key)] = load_tensors(left.reference(left.lowered[0].name.removesuffix(LOWERED) + "_model"))
        return {"deployed": _compared(source.lowered(key), network.sample, theirs), "read": _read(left)}


def _compared(model: Model, sample: dict[str, np.ndarray], reference: Mapping[str, np.ndarray]) -> str:
    """The results of our ops on the operands of the other side: integers must be equal, floats near."""
    theirs = stored(model, reference)
    equal, integers, near, floats, first = 0, 0, 0, 0, ""
    quantised = {value_name(v): uniform_of(v) is not None for op in model.ops for v in op.results if is_tensor(v)}
    for name, ours in alone(model, sample, theirs).items():
        if name in theirs and name in quantised:
            mine, other = (x.astype(np.float64).ravel() for x in (ours, theirs[name]))
            if quantised[name]:
                why = "" if np.array_equal(mine, other) else f"{np.count_nonzero(mine != other)} of {mine.size} differ"
                equal, integers = equal + (not why), integers + 1
            else:
                why = far_apart(mine, other, NEAR)
                near, floats = near + (not why), floats + 1
            first = first or (why and f"; first {name}: {why}")
    return f"{equal}/{integers} integer tensors equal, {near}/{floats} float tensors near{first}"


def _read(folder: Folder) -> str:
    steps = list(steps_of(folder))
    wrong = [f"{step.file} against {step.against}: {step.problem}" for step in steps if step.problem]
    unchecked = [f"{step.file} against {step.against}: {step.unchecked}" for step in steps if step.unchecked]
    found = f"{len(steps) - len(wrong) - len(unchecked)} of {len(steps)} steps right"
    return "; ".join([found, *("wrong: " + one for one in wrong), *("unchecked: " + one for one in unchecked)])


def generated(key: Key, source: Source, tools: Tools) -> dict[str, str]:
    """The verdict on what the code generator makes of our final module."""
    model, sample = PassManager((*grouped(), AddressAssign())).run(source.lowered(key)), source.network.sample
    with tempfile.TemporaryDirectory() as folder:
        theirs = simulated(generate(model, Path(folder), tools), sample, model, tools)
    ours = dict(zip(theirs, results_of(model, sample), strict=True))
    found, element = compared(theirs, ours), numpy_dtype(cast("DType", config(key.chip, key.mode).format.activation))
    equal = sum(one.elements - one.differ for one in found)
    told = [f"{equal:,}/{sum(one.elements for one in found):,} elements equal"]
    told += [f"{one}, {_units(theirs[one.name], ours[one.name], element)}" for one in found if one.differ]
    real = source.compiled.get(str(key), {})
    if any(one.differ for one in found) and theirs.keys() <= real.keys():
        others = [one for one in compared(theirs, real) if one.differ]
        told.append(f"against the real compiler's file: {'; '.join(map(str, others)) or 'equal'}")
    return {"generated": "; ".join(told)}


def _units(there: np.ndarray, here: np.ndarray, element: np.dtype[Any]) -> str:
    """The largest difference, in units in the last place of the element type."""
    if element.kind in "iu":
        return "integers"
    there, here, limits = there.astype(np.float64).ravel(), here.astype(np.float64).ravel(), finfo(element)
    units = np.exp2(np.floor(np.log2(np.maximum(np.abs(here), float(limits.smallest_normal))))) * float(limits.eps)
    return f"{np.max(np.abs(there - here) / units):.3g} units of {element}"


if __name__ == "__main__":
    try:
        tyro.cli(Onward).execute()
    except TpusimError as error:
        raise SystemExit(str(error)) from None
