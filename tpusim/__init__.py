"""tpusim: a numerical simulator of the SOPHGO TPU in JAX, and the compiler in front of it.

`compile` takes an ONNX model to a `Compiled` network for a chip: `.flat(x)` computes samples, `.machine()` executes the
commands, `.verify(x)` compares all levels. `load` reads a model at any stage, `infer` runs one flat, `simulate` runs a
program, `run` does everything with files as `tpusim run` does, `compare` compares tensors.
Importing this package loads none of the heavy parts and changes no global state; they come with the first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from tpusim.errors import TpusimError
from tpusim.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import numpy as np

    from tpusim.calibration.stage import CalibrationConfig
    from tpusim.calibration.table import CalibrationTable
    from tpusim.chips import ChipSpec as Chip
    from tpusim.compiled import Compiled
    from tpusim.frontend.reference import Function, Reference
    from tpusim.ir.formats import NumberFormat
    from tpusim.ir.module import Model
    from tpusim.isa.stream import Program
    from tpusim.layer_group import LayerGroupConfig
    from tpusim.pipeline import Artefacts, RunConfig
    from tpusim.simulator import SimulationResult, SimulatorOptions
    from tpusim.verify.compare import Comparison

__all__ = [
    "Chip", "NumberFormat", "TpusimError", "__version__", "compare", "compile", "infer", "load", "run", "simulate",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """`tpusim.Chip` and `tpusim.NumberFormat`, which come with their first use."""
    if name == "Chip":
        from tpusim.chips import ChipSpec

        return ChipSpec
    if name == "NumberFormat":
        from tpusim.ir.formats import NumberFormat

        return NumberFormat
    raise AttributeError(f"module 'tpusim' has no attribute '{name}'")


def load(
    source: str | Path | object,
    example: object = None,
    *,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    input_values: Mapping[str, Any] | None = None,
    exporter: Literal["dynamo", "torchscript"] = "dynamo",
) -> Model:
    """Read an ONNX model (as a top module), a module of any stage, or a torch.nn.Module with an example of its inputs.

    input_values: numbers or arrays by input name; these inputs become constants. exporter: of PyTorch's two. Raises
    ImportModelError or UnsupportedError, ConfigError for a PyTorch module without torch (extra `torch`).
    """
    from pathlib import Path

    from tpusim.frontend import Cut, import_onnx
    from tpusim.ir.module import load_model
    from tpusim.ops import context

    if not isinstance(source, str | Path):
        from tpusim.frontend.torch import import_torch

        return import_torch(source, example, exporter=exporter)
    path = Path(source)
    if path.suffix == ".mlir":
        return load_model(path, context())
    return import_onnx(path, input_shapes=input_shapes, cut=Cut(values=input_values or {}))


def compile(
    model: str | Path | Model,
    samples: Iterable[Mapping[str, np.ndarray]] = (),
    *,
    chip: str | Path | Chip = "bm1684x",
    mode: str | NumberFormat = "int8",
    asymmetric: bool = False,
    qtable: str | None = None,
    table: CalibrationTable | None = None,
    calibration: CalibrationConfig | None = None,
    layer_group: LayerGroupConfig | None = None,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    input_values: Mapping[str, Any] | None = None,
    also: tuple[str, ...] = (),
    reference: Reference | Function | None = None,
) -> Compiled:
    """Compile an ONNX file or a top module for a chip; int8 needs calibration samples, or a table.

    samples: dicts of arrays by input name, in the network's types. input_values: as of `load`. mode: int8, f32, f16 or
    bf16, or a NumberFormat of one's own. qtable: modes of single ops, a file or "name:MODE,...". also: patterns on
    request, see --also. reference: what `verify` holds the top module against, a function of such a dict for one; ONNX
    Runtime for an ONNX file. Raises a TpusimError of the stage that cannot do its part.
    """
    from pathlib import Path

    from tpusim.artefacts import RunConfig
    from tpusim.calibration.stage import CalibrationConfig
    from tpusim.compiled import compile_network
    from tpusim.frontend import Cut
    from tpusim.layer_group import LayerGroupConfig
    from tpusim.lowering import LoweringConfig

    config = RunConfig(
        Path(),
        lowering=LoweringConfig(str(chip) if isinstance(chip, Path) else chip, mode, asymmetric, qtable),
        calibration=calibration or CalibrationConfig(),
        layer_group=layer_group or LayerGroupConfig(),
        input_shapes=dict(input_shapes or {}),
        cut=Cut(values=input_values or {}),
        also=also,
    )
    return compile_network(model, samples, table, config, reference)


def infer(model: Model, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every tensor of a module of any stage, by name; quantised tensors are their stored integers."""
    from tpusim.inference import run as run_flat

    return run_flat(model, inputs)


def simulate(
    program: Program, inputs: Mapping[str, np.ndarray], options: SimulatorOptions | None = None
) -> SimulationResult:
    """Run a program on the local-memory machine. Raises SimulationError if the command stream is wrong."""
    from tpusim.simulator import simulate as run_machine

    return run_machine(program, inputs, options)


def run(config: RunConfig) -> Artefacts:
    """All stages for one model, as `tpusim run` does, without terminal output."""
    from tpusim.pipeline import run as run_all

    return run_all(config)


def compare(
    target: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray], tolerance: str = "0.99,0.99"
) -> Comparison:
    """Compare tensors by name with upstream's verdicts (EQUAL, CLOSE, SIMILAR ...)."""
    from tpusim.verify.compare import Tolerance
    from tpusim.verify.compare import compare as compare_tensors

    return compare_tensors(target, reference, Tolerance.parse(tolerance))
