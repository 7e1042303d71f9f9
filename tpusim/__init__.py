"""tpusim: a numerical simulator of the SOPHGO TPU in JAX, and the compiler in front of it.

`load` reads a model at any stage, `compile` turns it into a program for a chip, `simulate` runs a program on the
local-memory machine, `infer` runs a model flat, `run` does everything and verifies it, `compare` compares tensors.
Importing this package loads none of the heavy parts and changes no global state; they come with the first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpusim.errors import TpusimError
from tpusim.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import numpy as np

    from tpusim.chips import ChipSpec as Chip
    from tpusim.ir.module import Model
    from tpusim.isa.stream import Program
    from tpusim.pipeline import Artefacts, RunConfig
    from tpusim.simulator import SimulationResult, SimulatorOptions
    from tpusim.verify.compare import Comparison

__all__ = ["Chip", "TpusimError", "__version__", "compare", "compile", "infer", "load", "run", "simulate"]


def __getattr__(name: str) -> Any:
    """`tpusim.Chip`, which comes with its first use."""
    if name == "Chip":
        from tpusim.chips import ChipSpec

        return ChipSpec
    raise AttributeError(f"module 'tpusim' has no attribute '{name}'")


def load(path: str | Path, *, input_shapes: Mapping[str, tuple[int, ...]] | None = None) -> Model:
    """Read an ONNX model (as a top module) or a module of any stage.

    Raises ImportModelError or UnsupportedError.
    """
    from pathlib import Path

    from tpusim.frontend import import_onnx
    from tpusim.ir.module import load_model
    from tpusim.ops import context

    if Path(path).suffix == ".mlir":
        return load_model(Path(path), context())
    return import_onnx(path, input_shapes=input_shapes)


def compile(
    model: Model,
    samples: Iterable[Mapping[str, np.ndarray]] = (),
    *,
    chip: str | Path | Chip = "bm1684x",
    mode: str = "int8",
    layer_group: str = "2",
) -> Program:
    """Compile a top module to a program; int8 needs calibration samples (dicts of f32 arrays by input name).

    Raises a TpusimError of the stage that cannot do its part.
    """
    from tpusim.calibration.stage import CalibrationConfig, apply_table, calibrate
    from tpusim.canonicalize import canonicalize
    from tpusim.codegen import generate
    from tpusim.layer_group import LayerGroupConfig, group_layers
    from tpusim.lowering import LoweringConfig, lower, reorder_weights
    from tpusim.memory import assign_addresses

    work, _ = canonicalize(model)
    if mode == "int8":
        work = apply_table(work, calibrate(work, samples, CalibrationConfig())[0])
    lowered, _ = lower(work, LoweringConfig(chip, mode))  # type: ignore[arg-type]
    grouped = group_layers(reorder_weights(lowered), LayerGroupConfig(layer_group))  # type: ignore[arg-type]
    return generate(assign_addresses(grouped))


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
