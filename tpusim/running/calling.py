"""The arguments of Python calls as people write them, and the configuration that they mean.

An argument may have the forms that its name suggests: a table may be a path, layer groups the name of a strategy, a
quantisation table a dict. None is an argument that was not given. Any other form raises a ConfigError that names the
argument.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from tpusim.calibration.given import one_sample
from tpusim.calibration.stage import CalibrationConfig
from tpusim.calibration.table import CalibrationTable
from tpusim.chips import ChipSpec
from tpusim.errors import ConfigError
from tpusim.images import Preprocess
from tpusim.inference import input_specs
from tpusim.ir.formats import NumberFormat
from tpusim.ir.module import Model
from tpusim.isa.stream import Program
from tpusim.layer_group import LayerGroupConfig
from tpusim.lowering import LoweringConfig
from tpusim.running.artefacts import RunConfig
from tpusim.running.network import Configure, path_of
from tpusim.simulator import SimulatorOptions

T = TypeVar("T")
_LOWERING = {f.name for f in fields(LoweringConfig)}


def configure(arguments: Mapping[str, Any]) -> Configure:
    """The arguments of `tpusim.compile` that were given, put into a configuration."""
    given = {name: value for name, value in arguments.items() if value is not None}
    lowering = {name: _READ[name](given[name]) for name in given.keys() & _LOWERING}
    cut: dict[str, Any] = {name: names_of(name, given[name]) for name in given.keys() & {"inputs", "outputs"}}
    if "input_values" in given:
        cut["values"] = values_of(given["input_values"])
    direct = given.keys() & {"input_shapes", "also", "calibration", "layer_group", "preprocess", "simulator", "table"}
    direct |= given.keys() & {"addr_mode"}
    found = {name: _READ[name](given[name]) for name in direct}
    if isinstance(found.get("table"), CalibrationTable):
        del found["table"]  # it is no file
    if "cores" in given:
        groups = found.get("layer_group", LayerGroupConfig())
        found["layer_group"] = replace(groups, cores=_kind("cores", given["cores"], int, "a number"))

    def put(base: RunConfig) -> RunConfig:
        how = {**found, "lowering": replace(base.lowering, **lowering), "cut": replace(base.cut, **cut)}
        return replace(base, **how)

    return put


def chip_of(given: object) -> str | ChipSpec:
    """A name, a TOML file or a chip."""
    found = _kind("chip", given, (str, Path, ChipSpec), "a chip's name, a TOML file or a ChipSpec")
    return str(found) if isinstance(found, Path) else found


def mode_of(given: object) -> str | NumberFormat:
    """A name or a number format."""
    return _kind("mode", given, (str, NumberFormat), "int8, f32, f16, bf16 or a NumberFormat")


def qtable_of(given: object) -> str:
    """A file, `name:MODE,...`, or a dict of modes by op name."""
    if not isinstance(given, Mapping):
        return str(_kind("qtable", given, (str, Path), "a file, 'name:MODE,name:MODE' or a dict {name: mode}"))
    modes = cast("Mapping[object, object]", given)
    for name, mode in modes.items():
        if not isinstance(name, str) or not isinstance(mode, str | NumberFormat) or "," in name or not name:
            raise ConfigError(
                f"qtable: a dict of modes by op name is required, as {{'conv1': 'F16'}}, got {name!r}: {mode!r}"
            )
    if not modes:
        raise ConfigError("qtable: a mode for at least one op is required, got an empty dict; leave it out")
    return ",".join(f"{name}:{mode}" for name, mode in modes.items())


def table_of(given: object) -> Path | CalibrationTable:
    """A file or a calibration table."""
    found = _kind("table", given, (str, Path, CalibrationTable), "a calibration table or its path")
    return Path(found) if isinstance(found, str) else found


def layer_group_of(given: object) -> LayerGroupConfig:
    """The name of a strategy, or all options."""
    found = _kind("layer_group", given, (str, LayerGroupConfig), "'1', '2', 'off', 'best' or a LayerGroupConfig")
    return LayerGroupConfig(found) if isinstance(found, str) else found


def calibration_of(given: object) -> CalibrationConfig:
    """The name of a method, or all options."""
    found = _kind("calibration", given, (str, CalibrationConfig), "a method ('kl', 'max' ...) or a CalibrationConfig")
    return CalibrationConfig(found) if isinstance(found, str) else found


def preprocess_of(given: object) -> Preprocess:
    """A Preprocess, or a dict of its fields."""
    found = _kind("preprocess", given, (Mapping, Preprocess), "a Preprocess or a dict of its fields")
    if isinstance(found, Preprocess):
        return found
    known = {f.name: f.default for f in fields(Preprocess) if f.name != "frame"}
    stated = cast("Mapping[str, Any]", found)
    if unknown := [name for name in stated if name not in known]:
        raise ConfigError(f"preprocess: fields of {', '.join(known)} are required, got {', '.join(map(repr, unknown))}")
    return Preprocess(**{name: _like(f"preprocess: {name}", value, known[name]) for name, value in stated.items()})


def _like(argument: str, given: object, default: object) -> Any:
    """A value of the kind that its default is: numbers, a number, a switch, or a name."""
    if isinstance(default, tuple):
        numbers = tuple(cast("list[object]", _kind(argument, given, (tuple, list, np.ndarray), "a list of numbers")))
        return tuple(_kind(argument, number, (int, float, np.number), "a list of numbers") for number in numbers)
    if isinstance(default, bool):
        return _kind(argument, given, bool, "True or False")
    if isinstance(default, int | float):
        return _kind(argument, given, (int, type(default)), "a number")
    return _kind(argument, given, str, "a name") if isinstance(default, str) else given


def shapes_of(given: object) -> dict[str, tuple[int, ...]]:
    """A dict of shapes by input name."""
    wanted = "a dict of shapes by input name, as {'x': (1, 3, 224, 224)}"
    found = cast("Mapping[str, Any]", _kind("input_shapes", given, Mapping, wanted))
    for name, shape in found.items():
        if not isinstance(shape, tuple | list) or not all(
            isinstance(size, int) for size in cast("list[object]", shape)
        ):
            raise ConfigError(f"input_shapes: {wanted} is required, got {shape!r} for {name!r}")
    return {name: tuple(shape) for name, shape in found.items()}


def values_of(given: object) -> dict[str, Any]:
    """A dict of numbers or arrays by input name."""
    found = _kind("input_values", given, Mapping, "a dict of numbers or arrays by input name, as {'sr': 16000}")
    return dict(cast("Mapping[str, Any]", found))


def names_of(argument: str, given: object) -> tuple[str, ...]:
    """Names; one may stand without a list."""
    if isinstance(given, str):
        return (given,)
    found = _kind(argument, given, (tuple, list), "a name or a list of names")
    for name in cast("list[object]", found):
        _kind(argument, name, str, "a name or a list of names")
    return tuple(cast("list[str]", found))


def require_model(model: object, inputs: object) -> tuple[Model, Mapping[str, np.ndarray]]:
    """A module and a sample of its inputs by name. Raises ConfigError for something else."""
    found = _kind("model", model, Model, "a module (tpusim.load gives one)")
    if isinstance(inputs, Mapping):
        return found, cast("Mapping[str, np.ndarray]", inputs)
    return found, one_sample(inputs, input_specs(found))


def require_program(program: object) -> Program:
    """A program, or that of a compiled network."""
    found = getattr(program, "program", program)
    return _kind("program", found, Program, "a program (Compiled.program) or a compiled network")


def require_tensors(argument: str, tensors: object) -> dict[str, np.ndarray]:
    """Arrays by tensor name."""
    found = cast("Mapping[object, object]", _kind(argument, tensors, Mapping, "a dict of arrays by tensor name"))
    return {str(name): np.asarray(cast("Any", array)) for name, array in found.items()}


def run_config_of(given: object, options: Mapping[str, Any]) -> RunConfig:
    """A configuration, or one of a model and what `tpusim.compile` takes and RunConfig has, by name."""
    if not isinstance(given, RunConfig):
        wanted = "a RunConfig, or the path of a model with its fields as arguments"
        given = RunConfig(Path(_kind("config", given, (str, Path), wanted)))
    known = [f.name for f in fields(RunConfig) if f.name != "model"]
    taken = {*known, *_LOWERING, "inputs", "outputs", "input_values", "cores"}
    if unknown := [name for name in options if name not in taken]:
        raise ConfigError(f"{', '.join(unknown)}: arguments of {', '.join(sorted(taken))} are required")
    if isinstance(options.get("table"), CalibrationTable):
        raise ConfigError("table: the path of a calibration table is required, got a CalibrationTable; write it first")
    rest = {name: _plain(name, value) for name, value in options.items() if name in known and name not in _READ}
    return replace(configure(options)(given), **rest)


def _plain(argument: str, given: object) -> Any:
    """A path, source, number or switch of RunConfig, as its default is one; None is one where that is the default."""
    default = {f.name: f.default for f in fields(RunConfig)}[argument]
    if given is None and default is None:
        return None
    if argument in ("out", "labels"):
        return path_of(argument, given)
    if argument in ("data", "test_data"):
        return str(_kind(argument, given, (str, Path), "a file, a folder or 'random:N'"))
    return given if isinstance(default, tuple) else _like(argument, given, default)


def _kind(argument: str, given: object, kinds: type[T] | tuple[type[Any], ...], wanted: str) -> Any:
    if not isinstance(given, kinds):
        raise ConfigError(f"{argument}: {wanted} is required, got {type(given).__name__}")
    return given


def _switch(argument: str) -> Callable[[object], bool]:
    return lambda given: _kind(argument, given, bool, "True or False")


_READ: dict[str, Callable[[object], Any]] = {
    "chip": chip_of,
    "mode": mode_of,
    "qtable": qtable_of,
    "table": table_of,
    "layer_group": layer_group_of,
    "calibration": calibration_of,
    "preprocess": preprocess_of,
    "input_shapes": shapes_of,
    "also": lambda given: names_of("also", given),
    "quirks_off": lambda given: names_of("quirks_off", given),
    "addr_mode": lambda given: _kind("addr_mode", given, str, "basic or io_alone"),
    "arithmetic": lambda given: _kind("arithmetic", given, str, "chip or interpreter"),
    "q_group_size": lambda given: int(_kind("q_group_size", given, int, "a number of elements")),
    "customization_format": lambda given: _kind("customization_format", given, str, "the name of a format of frames"),
    "simulator": lambda given: _kind("simulator", given, SimulatorOptions, "SimulatorOptions"),
    **{
        name: _switch(name)
        for name in (
            "asymmetric", "matmul_perchannel", "q_symmetric", "high_precision", "fuse_preprocess", "aligned_input",
            "quant_input", "quant_output",
        )
    },
}  # fmt: skip
"""Argument -> what reads it."""
