"""A module compiled and run by IREE, from StableHLO: an answer that owes nothing to XLA, which runs all else here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from tpusim.errors import ConfigError, UnsupportedError, option
from tpusim.inference.executor import check_inputs
from tpusim.inference.stablehlo import StableHlo, to_stablehlo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpusim.ir.module import Model

BACKEND, DRIVER, PROCESSOR = "llvm-cpu", "local-task", "--iree-llvmcpu-target-cpu=host"
"""Code for the processor of this machine."""


class Iree:
    """The whole network as one function of IREE. Args as of `Graph`: the module, and the tensors to return.

    Raises ConfigError without the packages of the extra `iree`, UnsupportedError for what StableHLO or IREE refuses.
    """

    def __init__(self, model: Model, keep: Sequence[str] | str | None = None) -> None:
        compiler, self._runtime = _packages()
        self._model, self._found = model, to_stablehlo(model, keep)
        self._context = self._runtime.SystemContext(config=self._runtime.Config(DRIVER))
        code = self._runtime.VmModule.copy_buffer(self._context.instance, _compiled(compiler, self._found))
        self._context.add_vm_module(code)
        self._main = self._context.modules[code.name]["main"]

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """One sample: the kept tensors by name. Raises ConfigError for inputs that do not fit."""
        given = self._main(*check_inputs(self._model, inputs))
        results: list[Any] = list(given) if len(self._found.results) > 1 else [given]
        pairs = zip(self._found.results, results, strict=True)
        return {to.name: _typed(np.asarray(y.to_host()), to.dtype) for to, y in pairs}


def _packages() -> tuple[Any, Any]:
    """IREE's compiler and runtime."""
    try:
        return import_module("iree.compiler"), import_module("iree.runtime")
    except ImportError as error:
        needed = f"needs IREE, extra 'iree': pip install 'tpusim[iree]' ({error})"
        raise ConfigError(f"{option('engine', 'iree')}: {needed}") from error


def _compiled(compiler: Any, found: StableHlo) -> bytes:
    """IREE's code of a function. Raises UnsupportedError with IREE's first words."""
    options: dict[str, Any] = {"target_backends": [BACKEND], "input_type": "stablehlo", "extra_args": [PROCESSOR]}
    try:
        return bytes(compiler.compile_str(found.artefact, **options))
    except compiler.CompilerToolError as error:
        line = next((text for text in str(error).splitlines() if "error:" in text), str(error))
        raise UnsupportedError(f"{option('engine', 'iree')}: IREE refuses the module: {line.strip()}") from error


def _typed(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A result in its type; bf16 comes as its bits."""
    return array.view(dtype) if array.dtype != dtype and array.dtype.itemsize == dtype.itemsize else array
