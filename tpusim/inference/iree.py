"""A module compiled and run by IREE, from StableHLO: an answer that owes nothing to XLA, which runs all else here.

`Compiled` is a function of any dialect that IREE reads; `Iree` is that of StableHLO.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from tpusim.errors import UnsupportedError, extra_required, option
from tpusim.inference.executor import check_inputs
from tpusim.inference.stablehlo import to_stablehlo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpusim.ir.module import Model

NAME = "iree"
BACKEND, DRIVER = "llvm-cpu", "local-task"
OPTIONS = ("--iree-llvmcpu-target-cpu=host", "--iree-input-demote-f64-to-f32=false")
"""Code for the processor of this machine, and f64 as it stands."""


class Compiled:
    """@main of a module in a dialect that IREE reads. dialect: IREE's name of it. engine: who asks, for errors.

    Raises ConfigError without the packages of the extra `iree`, UnsupportedError for what IREE refuses.
    """

    def __init__(self, module: bytes, dialect: str, engine: str) -> None:
        compiler, runtime = _packages(engine)
        self._context = runtime.SystemContext(config=runtime.Config(DRIVER))
        code = runtime.VmModule.copy_buffer(self._context.instance, _compiled(compiler, module, dialect, engine))
        self._context.add_vm_module(code)
        self._main = self._context.modules[code.name]["main"]

    def __call__(self, arguments: Sequence[np.ndarray], dtypes: Sequence[np.dtype]) -> list[np.ndarray]:
        """The results in their types."""
        given = self._main(*arguments)
        results: list[Any] = list(given) if len(dtypes) > 1 else [given]
        return [_typed(np.asarray(y.to_host()), dtype) for y, dtype in zip(results, dtypes, strict=True)]


class Iree:
    """The whole network as one function of IREE. Args as of `Graph`: the module, and the tensors to return.

    Raises ConfigError without the packages of the extra `iree`, UnsupportedError for what StableHLO or IREE refuses.
    """

    def __init__(self, model: Model, keep: Sequence[str] | str | None = None) -> None:
        _packages(NAME)
        self._model, self._found = model, to_stablehlo(model, keep)
        self._main = Compiled(self._found.artefact, "stablehlo", NAME)

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """One sample: the kept tensors by name. Raises ConfigError for inputs that do not fit."""
        made = self._main(check_inputs(self._model, inputs), [to.dtype for to in self._found.results])
        return {to.name: y for to, y in zip(self._found.results, made, strict=True)}


def _packages(engine: str) -> tuple[Any, Any]:
    """IREE's compiler and runtime."""
    try:
        return import_module("iree.compiler"), import_module("iree.runtime")
    except ImportError as error:
        raise extra_required(option("engine", engine), "IREE", "iree", error) from error


def _compiled(compiler: Any, module: bytes, dialect: str, engine: str) -> bytes:
    """IREE's code of a function. Raises UnsupportedError with IREE's first words."""
    options: dict[str, Any] = {"target_backends": [BACKEND], "input_type": dialect, "extra_args": [*OPTIONS]}
    try:
        return bytes(compiler.compile_str(module, **options))
    except compiler.CompilerToolError as error:
        line = next((text for text in str(error).splitlines() if "error:" in text), str(error))
        raise UnsupportedError(f"{option('engine', engine)}: IREE refuses the module: {line.strip()}") from error


def _typed(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A result in its type; bf16 comes as its bits."""
    return array.view(dtype) if array.dtype != dtype and array.dtype.itemsize == dtype.itemsize else array
