"""A module compiled by MLIR from TOSA to LLVM, and run in this process: an answer that owes nothing to XLA."""

from __future__ import annotations

import ctypes
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tpusim.errors import UnsupportedError, extra_required, option
from tpusim.inference.executor import check_inputs
from tpusim.studies.export.tosa.export import as_stored, given_dtype, to_tosa
from tpusim.studies.export.tosa.graph import as_given

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpusim.ir.module import Model

TO_BUFFERS = (
    "tosa-to-linalg-pipeline", "func.func(tosa-to-arith{include-apply-rescale=true}, tosa-to-tensor)",
    "func.func(linalg-fuse-elementwise-ops)", "canonicalize", "cse",
    "one-shot-bufferize{bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map}",
    "buffer-results-to-out-params{modify-public-functions}", "buffer-deallocation-pipeline",
)  # fmt: skip
"""TOSA -> linalg on tensors -> linalg on buffers."""
TO_LLVM = (
    "func.func(convert-linalg-to-loops)", "expand-strided-metadata", "lower-affine", "convert-scf-to-cf",
    "func.func(arith-expand)", "convert-math-to-llvm", "convert-math-to-libm", "finalize-memref-to-llvm",
    "convert-arith-to-llvm", "convert-func-to-llvm", "convert-cf-to-llvm", "convert-index-to-llvm",
    "reconcile-unrealized-casts",
)  # fmt: skip
"""linalg on buffers -> loops -> LLVM."""
BITS = re.compile(r"memref\.alloc.*xi1>")
"""The allocation of a buffer of bits, in the text of a module on buffers."""
SHOWN = 16
"""Elements of the largest constant that is printed."""


class MlirJit:
    """The whole network as one function of MLIR's JIT. Args: the module; the tensors to return, as of `Graph`; a folder
    for the module after each pass.

    Raises ConfigError without the packages of the extra `mlir`, UnsupportedError for what TOSA or MLIR refuses.
    """

    def __init__(self, model: Model, keep: Sequence[str] | str | None = None, *, levels: Path | None = None) -> None:
        ir, passes, engines = _packages()
        self._model, self._found = model, to_tosa(model, keep)
        with ir.Context() as context, ir.Location.unknown():
            try:
                module = ir.Module.parse(self._found.bytecode)
                module.operation.regions[0].blocks[0].operations[0].attributes["llvm.emit_c_interface"] = (
                    ir.UnitAttr.get()
                )
                if levels is not None:
                    levels.mkdir(parents=True, exist_ok=True)
                    context.enable_multithreading(False)
                _manager(passes, TO_BUFFERS, levels and levels / "0_to_buffers").run(module.operation)
                require_bytes(module.operation.get_asm(large_elements_limit=SHOWN))
                _manager(passes, TO_LLVM, levels and levels / "1_to_llvm").run(module.operation)
            except ir.MLIRError as error:
                lines = str(error).splitlines()
                first = next((line for line in lines if "error:" in line), lines[0]).strip()
                raise UnsupportedError(f"{option('engine', 'mlir')}: MLIR refuses the module: {first}") from error
            self._engine = engines.ExecutionEngine(module, opt_level=3, shared_libs=_runtime())
            self._context = context

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """One sample: the kept tensors by name. Raises ConfigError for inputs that do not fit."""
        given = [np.ascontiguousarray(as_given(array)) for array in check_inputs(self._model, inputs)]
        made = [np.zeros(port.shape, given_dtype(port.dtype)) for port in self._found.results]
        descriptors = [_descriptor(array) for array in (*given, *made)]
        self._engine.invoke("main", *(ctypes.pointer(ctypes.pointer(one)) for one in descriptors))
        return {port.name: as_stored(y, port) for port, y in zip(self._found.results, made, strict=True)}


def _manager(passes: Any, pipeline: Sequence[str], level: Path | None) -> Any:
    """A pass manager of a pipeline, which writes the module after each pass into a folder if it is given one."""
    manager = passes.PassManager.parse(f"builtin.module({', '.join(pipeline)})")
    if level is not None:
        manager.enable_ir_printing(
            tree_printing_dir_path=str(level), print_after_change=True, large_elements_limit=SHOWN
        )
    return manager


def require_bytes(text: str) -> None:
    """Raise UnsupportedError for a module with a buffer of bits: MLIR 22 ends the process where it stores into one."""
    if BITS.search(text):
        raise UnsupportedError(
            f"{option('engine', 'mlir')}: MLIR cannot store the bits of a comparison, which it does not fuse with "
            "their reader; run the module with another engine, iree-tosa or tosa"
        )


def _descriptor(array: np.ndarray) -> ctypes.Structure:
    """The descriptor of a memref, as LLVM code takes it."""
    rank = array.ndim
    fields: list[tuple[str, Any]] = [
        ("allocated", ctypes.c_void_p),
        ("aligned", ctypes.c_void_p),
        ("offset", ctypes.c_longlong),
    ]
    if rank:
        fields += [("shape", ctypes.c_longlong * rank), ("strides", ctypes.c_longlong * rank)]
    kind = type("Memref", (ctypes.Structure,), {"_fields_": fields})
    strides = [stride // array.itemsize for stride in array.strides]
    values: list[Any] = [array.ctypes.data, array.ctypes.data, 0]
    if rank:
        values += [(ctypes.c_longlong * rank)(*array.shape), (ctypes.c_longlong * rank)(*strides)]
    return kind(*values)


def _runtime() -> list[str]:
    """MLIR's library with what the code calls, as installed next to the bindings."""
    places: Sequence[str] = import_module("mlir").__path__
    found = [file for place in places for file in Path(place).rglob("libmlir_c_runner_utils.*")]
    return [str(file) for file in found[:1]]


def _packages() -> tuple[Any, Any, Any]:
    """MLIR's IR, pass manager and execution engine."""
    try:
        return import_module("mlir.ir"), import_module("mlir.passmanager"), import_module("mlir.execution_engine")
    except ImportError as error:
        raise extra_required(option("engine", "mlir"), "MLIR's Python bindings", "mlir", error) from error
