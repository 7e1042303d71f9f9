"""TPU-MLIR's compiler on a top module of ours: the cut that it makes itself, to compare ours with."""

from pathlib import Path

from tpusim.chips import ChipSpec
from tpusim.ir.module import Model, save_model
from tpusim.studies.upstream.road import WEIGHTS, Made, bmodel_path, forget, read_made
from tpusim.studies.upstream.tools import Tools

TOP = "top.mlir"


def compiled(
    model: Model, chip: ChipSpec, mode: str, folder: Path, tools: Tools, *, cores: int = 1, asymmetric: bool = False
) -> Made:
    """Let model_deploy.py lower, group and compile a canonical module, calibrated if the mode needs it.

    Raises UpstreamError with the compiler's reason if it refuses the module.
    """
    folder.mkdir(parents=True, exist_ok=True)
    save_model(model.clone(), folder / TOP, weight_file=WEIGHTS)
    file = bmodel_path(folder, model, chip)
    forget(file)
    tools.run(folder, "model_deploy.py", "--mlir", TOP, "--quantize", mode.upper(), "--processor", chip.name,
              "--num_core", str(cores), "--opt", "2", "--skip_validation", *["--asymmetric"] * asymmetric, "--model",
              file.name)  # fmt: skip
    return read_made(file)
