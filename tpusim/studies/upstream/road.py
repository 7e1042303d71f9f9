"""A final module of ours through TPU-MLIR's code generator, and the file that it makes on the simulator of its chip."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from xdsl.ir import Attribute, Operation, SSAValue

from tpusim import chips
from tpusim.chips import ChipSpec
from tpusim.inference import results_of
from tpusim.interfaces import implementation
from tpusim.ir.attrs import op_name, texts, texts_attr
from tpusim.ir.functions import SUBNET
from tpusim.ir.module import Model, save_model
from tpusim.ir.types import retyped, set_type, storage_dtype
from tpusim.ir.upstream import FUNCTION
from tpusim.ir.upstream.subnets import IN_NO_FUNCTION
from tpusim.ops.framework.host_functions import host_function_of
from tpusim.ops.host_function import state_host_function
from tpusim.ops.interfaces import LibraryTypes, PartlyGenerated, on_host
from tpusim.ops.structure import TopWeight, TpuLoad
from tpusim.studies.upstream.tools import NAMES_OPS, Tools, UpstreamError
from tpusim.verify.npz import load_tensors, save_tensors

Array = np.ndarray
MODULE, WEIGHTS = "final.mlir", "chip_weights.npz"
SAMPLE, RESULTS = "simulator_in.npz", "simulator_out.npz"
PROFILES = "compiler_profile_*.txt"
"""A profile of each core, which a tool writes into the folder where it runs."""
HOST, CHIP = "host", "chip"
"""Functions of which the next op is in another one."""
SETTINGS = "embed_debug_info=False model_version=latest bmodel_only=False gdma_check=False rvti=False"
"""The options with which model_deploy.py calls the generator."""
_CYCLES = re.compile(r"^TCYC : (\d+)", re.MULTILINE)
_MOVED = re.compile(r"\| *dr\[\d\] (S2L|L2S|S2S|L2L):(\d+)")
_CROSSINGS = {"S2L": 1, "L2S": 1, "S2S": 2, "L2L": 0}
"""How often a transfer moves its bytes from or to global memory: a copy in it is loaded and stored."""


@dataclass(frozen=True)
class Made:
    """What the generator made. cycles and moved_bytes: of its profile; None on chips for which it writes none."""

    file: Path
    cycles: int | None
    moved_bytes: int | None


def generate(model: Model, folder: Path, tools: Tools) -> Made:
    """Write a final module into a folder, and let the generator make a bmodel, or cvimodel, of it in that folder.

    Raises UpstreamError with the generator's reason if it refuses the module.
    """
    model.require_state("TPU_ADDRESSED", stage="codegen --through-upstream")
    if why := chips.of(model).hardware.not_generated:
        raise UpstreamError(
            f"codegen --through-upstream: a chip whose final modules have TPU-MLIR's form is required, got "
            f"{chips.of(model).name}: {why}; choose another chip, or let model_deploy.py compile the canonical module"
        )
    _require_generated(model)
    folder.mkdir(parents=True, exist_ok=True)
    save_model(for_generator(model), folder / MODULE, weight_file=WEIGHTS)
    file = bmodel_path(folder, model, chips.of(model))
    forget(file)
    tools.run(folder, "tpuc-opt", MODULE, NAMES_OPS, f"--codegen=model_file={file.name} {SETTINGS}", "-o", os.devnull)
    return read_made(file)


def _require_generated(model: Model) -> None:
    for op in model.ops:
        if isinstance(op, PartlyGenerated) and (why := op.why_not_generated()):
            raise UpstreamError(
                f"codegen --through-upstream: {op.name} '{op_name(op)}': {why}; transpose the axis to the end, or let "
                "model_deploy.py compile the canonical module"
            )


def bmodel_path(folder: Path, model: Model, chip: ChipSpec) -> Path:
    """Where a tool writes the file of a module: the module's name, without what leads out of the folder."""
    name = re.sub(r"[^\w.-]", "_", model.name) or "model"
    return folder / f"{name}.{chip.hardware.file_suffix}"


def forget(file: Path) -> None:
    """Delete a file, and the profiles next to it, of an earlier call: a tool that fails leaves them."""
    for old in (file, *file.parent.glob(PROFILES)):
        old.unlink(missing_ok=True)


def read_made(file: Path) -> Made:
    """A file that a tool made, with the costs in the profiles next to it. Raises UpstreamError without it."""
    if not file.exists():
        raise UpstreamError(f"TPU-MLIR: a file {file.name} is required, its tool made none and printed no reason")
    profiles = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(file.parent.glob(PROFILES))]
    moved = [_CROSSINGS[way] * int(count) for text in profiles for way, count in _MOVED.findall(text)]
    return Made(file, _cycles(profiles), sum(moved) if moved else None)


def _cycles(profiles: Sequence[str]) -> int | None:
    """The cycles of all parts of a program, on the core that takes longest; None without a profile."""
    return max((sum(map(int, parts)) for text in profiles if (parts := _CYCLES.findall(text))), default=None)


def for_generator(model: Model) -> Model:
    """A copy in the form that the generator reads, as far as that is not the form of our files.

    Constants have the element types in which the library of the chip reads them, and what the host computes is a
    function of the runtime, apart from those that run on the chip, without code of ours.
    """
    made, chip = model.clone(), chips.of(model)
    for code in {found.code for op in made.ops if (found := host_function_of(op)) and found.code}:
        code.detach()
        code.erase()
    for op in list(made.module.walk()):
        if (answering := implementation(op, LibraryTypes, chip)) is not None:
            for index, element in answering.library_types(chip).items():
                _retype(op.operands[index], element, made)
            op.attributes.update(answering.library_attributes(chip))
    if chip.io_start:  # activations of one network alone, apart from those that networks share
        made.set(private_size=made.number("module.neuron_size"), neuron_size=0)
    _set_apart([op for op in made.ops if op.results and op.name not in IN_NO_FUNCTION], chip)
    return made


def _set_apart(ops: Sequence[Operation], chip: ChipSpec) -> None:
    """Put what the host computes into functions of the host, if it computes anything."""
    if not any(on_host(op, chip) for op in ops):
        return
    for op in ops:
        host = on_host(op, chip)
        op.attributes[FUNCTION] = texts_attr([HOST if host else CHIP, "CPU" if host else SUBNET[1]])
        if host:
            state_host_function(op)


def _retype(value: SSAValue, element: Attribute, model: Model) -> None:
    """Give a constant, and its load if the value is one, another element type; its bytes stay where they are."""
    owner = value.owner
    set_type(value, retyped(value, element))
    if isinstance(owner, TpuLoad):
        _retype(owner.input, element, model)
    elif isinstance(owner, TopWeight):
        name = op_name(owner)
        model.weights.replace(name, model.weights[name].astype(storage_dtype(element)))


def simulated(made: Made, sample: Mapping[str, Array], model: Model, tools: Tools) -> dict[str, Array]:
    """The network's results on TPU-MLIR's simulator of the chip, by the names that they have in the module.

    Raises UpstreamError if the simulator refuses the file.
    """
    folder = made.file.parent
    save_tensors(folder / SAMPLE, sample)
    (folder / RESULTS).unlink(missing_ok=True)
    tools.run(folder, "model_runner.py", "--input", SAMPLE, "--model", made.file.name, "--output", RESULTS)
    return results_in(folder, model)


def results_in(folder: Path, model: Model) -> dict[str, Array]:
    """The simulator's results in a folder, by the names of ours. Raises UpstreamError for none or another number."""
    wanted, path = texts(model.module.attributes["module.outputs"]), folder / RESULTS
    if not path.exists():
        raise UpstreamError("model_runner.py: results are required, it wrote none and printed no reason")
    found = load_tensors(path)
    results = [found[name] for name in wanted if name in found] or list(found.values())  # a cvimodel has others, too
    if len(results) != len(wanted):
        raise UpstreamError(f"model_runner.py: {len(wanted)} results are required, got {len(results)}")
    return dict(zip(wanted, results, strict=True))


@dataclass(frozen=True)
class Agreement:
    """A result of the simulator against ours.

    differ: the number of other elements; largest: the largest distance. first: the index of the first other element
    in the flat result, None if all are equal; there and here: the simulator's element and ours at it.
    """

    name: str
    elements: int
    differ: int
    largest: float
    first: int | None = None
    there: float | None = None
    here: float | None = None

    def __str__(self) -> str:
        """The verdict in words."""
        if self.first is None:
            return f"{self.name}: {self.elements:,} elements, equal"
        where = f"the first at [{self.first:,}]: {self.there:.6g} instead of {self.here:.6g}"
        return (
            f"{self.name}: {self.differ:,} of {self.elements:,} elements differ, by up to {self.largest:.6g}; {where}"
        )


def agreements(model: Model, sample: Mapping[str, Array], theirs: Mapping[str, Array]) -> list[Agreement]:
    """The results of the simulator on a sample against those of flat inference, in order."""
    return compared(theirs, dict(zip(theirs, results_of(model, sample), strict=True)))


def compared(theirs: Mapping[str, Array], ours: Mapping[str, Array]) -> list[Agreement]:
    """The results of the simulator against others of the same names, in order."""
    return [_agreement(name, *(side[name].astype(np.float64).ravel() for side in (theirs, ours))) for name in theirs]


def _agreement(name: str, there: Array, here: Array) -> Agreement:
    if there.shape != here.shape:
        raise UpstreamError(f"model_runner.py: {here.size:,} elements of '{name}' are required, got {there.size:,}")
    others = np.flatnonzero(~((there == here) | (np.isnan(there) & np.isnan(here))))
    if not others.size:
        return Agreement(name, here.size, 0, 0.0)
    with np.errstate(invalid="ignore"):
        largest = float(np.abs(there - here)[others].max())
    first = int(others[0])
    return Agreement(name, here.size, others.size, largest, first, float(there[first]), float(here[first]))
