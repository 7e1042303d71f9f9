"""TOSA flatbuffers, and Arm's reference model of the specification, which runs them (extra `tosa`)."""

from __future__ import annotations

import subprocess
import tempfile
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tpusim.errors import ConfigError, UnsupportedError, extra_required, option
from tpusim.inference.executor import check_inputs
from tpusim.studies.export.tosa.export import TosaModule, as_stored, given_dtype, to_tosa
from tpusim.studies.export.tosa.graph import as_given

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpusim.ir.module import Model

PACKAGE, TOOL = "tosa-tools", "tosa-opt"
LEVEL = "EIGHTK"


def to_flatbuffer(tosa: TosaModule, asked: str) -> bytes:
    """The module as a TOSA flatbuffer (`.tosa`). asked: the option that needs it, for errors.

    Raises ConfigError without Arm's tools, UnsupportedError with their first words if they refuse the module.
    """
    tool = _tool(asked)
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "module.mlirbc", Path(folder) / "module.tosa"
        source.write_bytes(tosa.bytecode)
        options = ["--tosa-serialize", f"--tosa-flatbuffer-filename={made}", "-o", "/dev/null"]
        ran = subprocess.run([str(tool), str(source), *options], capture_output=True, text=True, check=False)
        if ran.returncode or not made.is_file():
            told = next((line for line in ran.stderr.splitlines() if "error" in line), ran.stderr.strip())
            raise UnsupportedError(f"{asked}: {TOOL} refuses the module: {told}")
        return made.read_bytes()


def _tool(asked: str) -> Path:
    """Arm's optimizer, which writes flatbuffers."""
    try:
        found = Path(str(distribution(PACKAGE).locate_file(Path("bin") / TOOL)))
    except PackageNotFoundError as error:
        raise extra_required(asked, "Arm's TOSA tools", "tosa", error) from error
    if not found.is_file():
        raise ConfigError(f"{asked}: {TOOL} is required in {found.parent}, which package {PACKAGE} lacks; reinstall it")
    return found


class ReferenceModel:
    """The whole network in Arm's reference model of TOSA. Args: the module; the tensors to return, as of `Graph`.

    Raises ConfigError without the packages of the extra `tosa`, UnsupportedError for what TOSA cannot say.
    """

    def __init__(self, model: Model, keep: Sequence[str] | str | None = None) -> None:
        self._run = _reference_model()
        self._model, self._found = model, to_tosa(model, keep)
        self._code = to_flatbuffer(self._found, option("engine", "tosa"))

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """One sample: the kept tensors by name. Raises ConfigError for inputs that do not fit."""
        given = [np.ascontiguousarray(as_given(array)) for array in check_inputs(self._model, inputs)]
        made, status = self._run(self._code, given, tosa_level=LEVEL)
        if status.name != "TOSA_VALID":
            raise UnsupportedError(f"{option('engine', 'tosa')}: the reference model says {status.name}")
        pairs = zip(self._found.results, made, strict=True)
        return {port.name: as_stored(_shaped(np.asarray(y), port.shape, port.dtype), port) for port, y in pairs}


def _shaped(array: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """A result in its type; some come as their bytes."""
    wanted = given_dtype(dtype)
    return (array if array.dtype == wanted else array.view(wanted)).reshape(shape)


def _reference_model() -> Any:
    try:
        return import_module("tosa_reference_model").run
    except ImportError as error:
        raise extra_required(option("engine", "tosa"), "Arm's reference model", "tosa", error) from error
