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
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import TypeAlias

    import numpy as np

    from tpusim.calibration.stage import CalibrationConfig
    from tpusim.calibration.table import CalibrationTable
    from tpusim.chips import ChipSpec as Chip
    from tpusim.compiled import Compiled
    from tpusim.compiled_nets import CompiledNets
    from tpusim.decoder import Decoder
    from tpusim.frontend.onnx import ModelProto
    from tpusim.frontend.reference import Function, Reference
    from tpusim.images import Preprocess
    from tpusim.ir.formats import NumberFormat
    from tpusim.ir.module import Model
    from tpusim.isa.nets import Nets
    from tpusim.isa.stream import Program
    from tpusim.layer_group import LayerGroupConfig
    from tpusim.running.pipeline import Artefacts, RunConfig
    from tpusim.simulator import SimulationResult, SimulatorOptions
    from tpusim.simulator.session import Session
    from tpusim.verify.compare import Comparison

    Sample: TypeAlias = Mapping[str, np.ndarray] | np.ndarray
    Samples: TypeAlias = str | Path | Sample | Iterable[Sample]

__all__ = [
    "CalibrationConfig", "CalibrationTable", "Chip", "Compiled", "CompiledNets", "Decoder", "LayerGroupConfig", "Model",
    "NumberFormat", "Preprocess", "RunConfig", "Session", "SimulatorOptions", "TpusimError", "__version__", "compare",
    "compile", "compile_nets", "infer", "load", "load_compiled", "load_nets", "run", "simulate",
]  # fmt: skip


_CLASSES = {
    "CalibrationConfig": "calibration.stage", "CalibrationTable": "calibration.table", "Chip": "chips",
    "Compiled": "compiled", "CompiledNets": "compiled_nets", "Decoder": "decoder", "LayerGroupConfig": "layer_group",
    "Model": "ir.module", "NumberFormat": "ir.formats", "Preprocess": "images", "RunConfig": "running.artefacts",
    "Session": "simulator.session", "SimulatorOptions": "simulator",
}  # fmt: skip
"""Classes that calls take or give, and where they are."""


def __getattr__(name: str) -> Any:
    """`tpusim.Chip` and the other classes, which come with their first use."""
    from importlib import import_module

    if name not in _CLASSES:
        raise AttributeError(f"module 'tpusim' has no attribute '{name}'")
    return getattr(import_module(f"tpusim.{_CLASSES[name]}"), "ChipSpec" if name == "Chip" else name)


def load(
    source: str | Path | object,
    example: object = None,
    *,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    input_values: Mapping[str, Any] | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    exporter: Literal["dynamo", "torchscript"] = "dynamo",
) -> Model:
    """The module of a network: a model (ONNX, TFLite, StableHLO) as a top module, a module file as it is.

    source: also an onnx.ModelProto, a torch.nn.Module or a JAX function with an example of its inputs (an argument or a
    tuple of arguments; arrays or trees of arrays), or the folder of a run, of which the canonical module comes.
    input_values: numbers or arrays by input name; these inputs become constants. inputs, outputs: tensors by ONNX name
    between which the network lies. exporter: of PyTorch's two. Raises ImportModelError or
    UnsupportedError, ConfigError for what is no network.
    """
    from pathlib import Path

    from tpusim.running.calling import configure
    from tpusim.running.network import network_from

    put = configure({"input_shapes": input_shapes, "input_values": input_values, "inputs": inputs, "outputs": outputs})
    network = network_from(source, put, example=example, exporter=exporter)
    return network.floats if isinstance(source, str | Path) and Path(source).is_dir() else network.latest


def load_compiled(folder: str | Path) -> Compiled:
    """The network that a run, or `Compiled.save`, left in a folder; what is there is read when it is asked for.

    Raises ConfigError for a folder of no run.
    """
    from tpusim.compiled import Compiled
    from tpusim.running.network import open_run

    return Compiled(open_run(folder))


def compile(
    model: str | Path | Model | ModelProto | object,
    samples: Samples | None = None,
    *,
    chip: str | Path | Chip | None = None,
    mode: str | NumberFormat | None = None,
    asymmetric: bool | None = None,
    qtable: str | Path | Mapping[str, str] | None = None,
    table: str | Path | CalibrationTable | None = None,
    calibration: str | CalibrationConfig | None = None,
    layer_group: str | LayerGroupConfig | None = None,
    cores: int | None = None,
    addr_mode: str | None = None,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    input_values: Mapping[str, Any] | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    preprocess: Preprocess | Mapping[str, object] | None = None,
    also: Sequence[str] | None = None,
    quirks_off: Sequence[str] | None = None,
    matmul_perchannel: bool | None = None,
    q_group_size: int | None = None,
    q_symmetric: bool | None = None,
    arithmetic: str | None = None,
    high_precision: bool | None = None,
    fuse_preprocess: bool | None = None,
    customization_format: str | None = None,
    aligned_input: bool | None = None,
    quant_input: bool | None = None,
    quant_output: bool | None = None,
    simulator: SimulatorOptions | None = None,
    reference: Reference | Function | None = None,
    example: object = None,
) -> Compiled:
    """Compile a network for a chip; int8 needs calibration samples, or a table.

    model: an ONNX or TFLite file, an onnx.ModelProto, a module or its file, the folder of a run, or a torch.nn.Module
    or a JAX function with an `example` of its inputs, as of `load`; a function of arrays takes its example from the
    samples where none is given. samples: dicts of arrays by input name, an array of them for a network with one
    input, a dict of stacked arrays, or a source as of `tpusim run --data`. chip: bm1684x by default; mode: int8 (the
    default), f32, f16, bf16, w4f16, w4bf16, w8f16, w8bf16, w4int8 or f8e5m2, or a NumberFormat; a run's folder and a
    lowered module have theirs. qtable: modes of single ops, a file, "name:MODE,..." or a dict. table: a calibration
    table or its file.
    calibration: a method or all options; layer_group: a strategy or all options. preprocess: how inputs are made of
    images. also: patterns on request. input_values: as of `load`. inputs, outputs: tensors by ONNX name between which
    the network lies. reference: what `verify` holds the top module against, a function of such a dict for one; ONNX
    Runtime for an ONNX file, a JAX function itself. The others are as the options of `tpusim run`. Raises a TpusimError
    of the stage that cannot do its part.
    """
    arguments = {**locals()}
    from tpusim.compiled import compile_network
    from tpusim.running.calling import configure

    return compile_network(model, samples, table, configure(arguments), reference, example=example)


def compile_nets(
    models: Mapping[str, Any] | str | Path,
    samples: Mapping[str, Samples] | None = None,
    *,
    persistent: Mapping[str, Mapping[str, str]] | None = None,
    **options: Any,
) -> CompiledNets:
    """Compile several networks into one program with one weight store, such as the blocks of a decoder.

    models: by the name of their net, each as `compile` takes it; or a folder of ONNX files. samples: calibration
    samples by net. persistent: name -> net -> the input that keeps its bytes across runs; default: the caches of a
    decoder. options: as of `compile`, for all nets. Raises ConfigError for nets that do not fit together.
    """
    from inspect import signature

    from tpusim.compiled_nets import compile_all

    return compile_all(models, samples, persistent, options, list(signature(compile).parameters))


def load_nets(path: str | Path) -> Nets:
    """The nets of a program file; `Session` runs them, `simulate` runs one of them. Raises ImportModelError."""
    from tpusim.isa.nets import load_nets as load_file
    from tpusim.running.network import path_of

    return load_file(path_of("path", path))


def infer(model: Model, inputs: Sample) -> dict[str, np.ndarray]:
    """Every tensor of a module of any stage, by name; quantised tensors are their stored integers.

    inputs: one sample, arrays by input name; the array alone for a network with one input.
    """
    from tpusim.inference import run as run_flat
    from tpusim.running.calling import require_model

    return run_flat(*require_model(model, inputs))


def simulate(program: Program | Compiled, inputs: Sample, options: SimulatorOptions | None = None) -> SimulationResult:
    """Run a program on the local-memory machine. Raises SimulationError if the command stream is wrong."""
    from tpusim.running.calling import require_program
    from tpusim.simulator import simulate as run_machine

    return run_machine(require_program(program), inputs, options)


def run(config: RunConfig | str | Path, **options: Any) -> Artefacts:
    """All stages for one model, as `tpusim run` does, without terminal output.

    config: a RunConfig, or the model, with what `compile` takes and the fields of RunConfig as arguments, as in
    `run("m.onnx", chip="bm1688", data="samples", out="out")`.
    """
    from tpusim.running.calling import run_config_of
    from tpusim.running.pipeline import run as run_all

    return run_all(run_config_of(config, options))


def compare(
    target: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray], tolerance: str = "0.99,0.99"
) -> Comparison:
    """Compare tensors by name with upstream's verdicts (EQUAL, CLOSE, SIMILAR ...)."""
    from tpusim.running.calling import require_tensors
    from tpusim.verify.compare import Tolerance
    from tpusim.verify.compare import compare as compare_tensors

    tensors = require_tensors("target", target), require_tensors("reference", reference)
    return compare_tensors(*tensors, Tolerance.parse(tolerance))
