"""Functions of the host: StableHLO of the program, which XLA compiles for this computer's processor.

Nothing here knows an op. The code comes from a file, so that all it says is checked before it is called: it may be
damaged, or of another function. It reaches nothing but its operands, and its work is bounded before XLA compiles it
(`host_work`). The memory that XLA plans for it is bounded before it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from tpusim.errors import SimulationError, first_line
from tpusim.isa import functions as fn
from tpusim.isa.region import View, numpy_dtype

Operands = tuple[np.ndarray, ...]
_NARROW = ("float16", "bfloat16", "float8_e5m2")
_MOST_BYTES = 2 << 30
"""Most memory of a call, with its operands."""


def host_function(function: fn.HostFunction, operands: Operands, output: View) -> np.ndarray:
    """The only result of the code in the first operand. Raises SimulationError for code that is not such a function."""
    code, *given = operands
    found = _compiled(function.symbol, code.tobytes())(given)
    if found.size != prod(output.shape) or found.dtype != numpy_dtype(output.dtype):
        raise _refused(
            function.symbol, f"a result of {output.dtype} {output.shape}", f"{found.dtype.name} {found.shape}"
        )
    return found.reshape(output.shape)


@lru_cache(64)
def _compiled(symbol: str, code: bytes) -> Callable[[Sequence[np.ndarray]], np.ndarray]:
    """The function of these bytes, for operands whose axes may be folded."""
    jax, exported = _read(symbol, code)
    arguments: list[Any] = list(exported.in_avals)
    call = _executable(jax, symbol, exported)

    def called(given: Sequence[np.ndarray]) -> np.ndarray:
        if len(given) != len(arguments) or not all(map(_fits, given, arguments)):
            got = ", ".join(f"{x.dtype.name}{list(x.shape)}" for x in given) or "none"
            raise _refused(symbol, f"operands of types like {', '.join(map(str, arguments)) or 'none'}", got)
        taken = [x.reshape(to.shape).astype(to.dtype) for x, to in zip(given, arguments, strict=True)]
        try:
            with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
                return np.asarray(call(*taken))
        except Exception as error:  # XLA's errors have no common class
            raise _refused(symbol, "code that runs", first_line(error)) from error

    return called


def _executable(jax: Any, symbol: str, exported: Any) -> Any:
    """What XLA makes of code whose work is bounded. Raises SimulationError if it needs too much memory."""
    try:
        with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
            made = jax.jit(exported.call).lower(*exported.in_avals).compile()
            planned = made.memory_analysis()
    except Exception as error:  # XLA's errors have no common class
        raise _refused(symbol, "code that XLA compiles", first_line(error)) from error
    needed = planned.temp_size_in_bytes + planned.argument_size_in_bytes + planned.output_size_in_bytes
    if needed > _MOST_BYTES:
        raise _refused(symbol, f"at most {_MOST_BYTES:,} bytes of memory", f"{needed:,}")
    return made


def _fits(array: np.ndarray, argument: Any) -> bool:
    """Whether an operand is one of an argument's type; commands read 16-bit floats as f32."""
    same = array.dtype == argument.dtype or (array.dtype == np.float32 and argument.dtype.name in _NARROW)
    return same and array.size == prod(argument.shape)


def _read(symbol: str, code: bytes) -> tuple[Any, Any]:
    """JAX, which is imported here because few programs need it, and the function of these bytes."""
    import jax  # noqa: PLC0415
    from jax import export  # noqa: PLC0415
    from jax.extend.mlir.dialects import stablehlo  # noqa: PLC0415
    from jax.interpreters.mlir import make_ir_context  # noqa: PLC0415

    from tpusim.simulator.host_work import Unbounded, require_bounded  # noqa: PLC0415

    try:
        exported = export.deserialize(bytearray(code))
        context: Any = make_ir_context()
        context.attach_diagnostic_handler(_silent)
        module = stablehlo.deserialize_portable_artifact(context, exported.mlir_module_serialized)
    except Exception as error:  # damaged bytes end in errors of any class
        raise _refused(symbol, "StableHLO as jax.export serialises it", first_line(error)) from error
    shapes = [*exported.in_avals, *exported.out_avals]
    if any(not isinstance(size, int) for aval in shapes for size in aval.shape):
        raise _refused(symbol, "fixed shapes", ", ".join(map(str, shapes)))
    if len(exported.out_avals) != 1 or "cpu" not in exported.platforms:
        got = f"{len(exported.out_avals)} for {', '.join(exported.platforms)}"
        raise _refused(symbol, "a function of one result for a processor", got)
    try:
        require_bounded(module)
    except Unbounded as why:
        raise _refused(symbol, *why.args) from why
    except (LookupError, ValueError, TypeError) as error:  # of the bindings, for ops of odd forms
        raise _refused(symbol, "functions of StableHLO alone", first_line(error)) from error
    return jax, exported


def _silent(diagnostic: Any) -> bool:
    """Print nothing of what MLIR says, which may be text of the file."""
    del diagnostic
    return True


def _refused(symbol: str, required: str, got: str) -> SimulationError:
    return SimulationError(
        f"host function '{symbol}': {required} is required, got {got}; generate the program again with `tpusim codegen`"
    )
