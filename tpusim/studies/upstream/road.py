"""A final module of ours through TPU-MLIR's code generator, and the file that it makes on the simulator of its chip."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from xdsl.ir import Attribute, SSAValue

from tpusim import chips
from tpusim.inference import results_of
from tpusim.interfaces import implementation
from tpusim.ir.attrs import op_name, texts
from tpusim.ir.module import Model, save_model
from tpusim.ir.types import retyped, set_type, storage_dtype
from tpusim.ops.interfaces import LibraryTypes
from tpusim.ops.structure import TopWeight, TpuLoad
from tpusim.studies.upstream.tools import Tools, UpstreamError
from tpusim.verify.npz import load_tensors, save_tensors

Array = np.ndarray
MODULE, WEIGHTS, PROFILE = "final.mlir", "chip_weights.npz", "compiler_profile_0.txt"
SETTINGS = "embed_debug_info=False model_version=latest bmodel_only=False gdma_check=False rvti=False"
"""The options with which model_deploy.py calls the generator."""
_CYCLES = re.compile(r"^TCYC : (\d+)", re.MULTILINE)
_MOVED = re.compile(r"\| *dr\[\d\] (S2L|L2S|S2S|L2L):(\d+)")


@dataclass(frozen=True)
class Made:
    """What the generator made. cycles and moved_bytes: of its profile; None on chips for which it writes none."""

    file: Path
    cycles: int | None
    moved_bytes: int | None


def generate(model: Model, folder: Path, tools: Tools) -> Made:
    """Write a final module into a folder and let the generator make a bmodel, or cvimodel, of it there.

    Raises UpstreamError with the generator's reason if it refuses the module.
    """
    model.require_state("TPU_ADDRESSED", stage="codegen --through-upstream")
    folder.mkdir(parents=True, exist_ok=True)
    save_model(in_library_types(model), folder / MODULE, weight_file=WEIGHTS)
    file = folder / f"{model.name}.{chips.of(model).hardware.file_suffix}"
    for old in (file, folder / PROFILE):
        old.unlink(missing_ok=True)
    tools.run(folder, "tpuc-opt", MODULE, f"--codegen=model_file={file.name} {SETTINGS}", "-o", "/dev/null")
    if not file.exists():
        raise UpstreamError(f"tpuc-opt of {tools.environment} made no {file.name}; it printed no reason")
    return Made(file, *_profile(folder / PROFILE))


def in_library_types(model: Model) -> Model:
    """A copy whose constants have the element types in which the library of the chip reads them."""
    made, chip = model.clone(), chips.of(model)
    for op in list(made.module.walk()):
        if (answering := implementation(op, LibraryTypes, chip)) is not None:
            for index, element in answering.library_types(chip).items():
                _retype(op.operands[index], element, made)
    return made


def _retype(value: SSAValue, element: Attribute, model: Model) -> None:
    """Give a constant, and its load if the value is one, another element type; its bytes stay where they are."""
    owner = value.owner
    set_type(value, retyped(value, element))
    if isinstance(owner, TpuLoad):
        _retype(owner.input, element, model)
    elif isinstance(owner, TopWeight):
        name = op_name(owner)
        model.weights.replace(name, model.weights[name].astype(storage_dtype(element)))


def _profile(path: Path) -> tuple[int | None, int | None]:
    """(cycles, bytes of loads and stores) of a profile; None if there is none."""
    if not path.exists():
        return None, None
    text = path.read_text(encoding="utf-8", errors="replace")
    total = _CYCLES.search(text)
    moved = {kind: int(count) for kind, count in _MOVED.findall(text)}
    # a copy in global memory is loaded and stored
    return int(total[1]) if total else None, moved["S2L"] + moved["L2S"] + 2 * moved["S2S"] if moved else None


def simulated(made: Made, sample: Mapping[str, Array], model: Model, tools: Tools) -> dict[str, Array]:
    """The network's results on TPU-MLIR's simulator of the chip, by the names that they have in the module.

    Raises UpstreamError if the simulator refuses the file.
    """
    folder, wanted = made.file.parent, texts(model.module.attributes["module.outputs"])
    save_tensors(folder / "simulator_in.npz", sample)
    (folder / "simulator_out.npz").unlink(missing_ok=True)
    tools.run(folder, "model_runner.py", "--input", "simulator_in.npz", "--model", made.file.name, "--output",
              "simulator_out.npz")  # fmt: skip
    results = list(load_tensors(folder / "simulator_out.npz").values())
    if len(results) != len(wanted):
        raise UpstreamError(f"model_runner.py: {len(wanted)} results are required, got {len(results)}")
    return dict(zip(wanted, results, strict=True))


@dataclass(frozen=True)
class Agreement:
    """A result of the simulator against ours. differ: the number of other elements; largest: the largest distance."""

    name: str
    elements: int
    differ: int
    largest: float


def agreements(model: Model, sample: Mapping[str, Array], theirs: Mapping[str, Array]) -> list[Agreement]:
    """The results of the simulator on a sample against those of flat inference, in order."""
    found = list[Agreement]()
    for (name, result), ours in zip(theirs.items(), results_of(model, sample), strict=True):
        here = ours.astype(np.float64).ravel()
        distance = np.abs(result.astype(np.float64).ravel() - here)
        found.append(Agreement(name, here.size, int(np.count_nonzero(distance)), float(distance.max(initial=0.0))))
    return found
