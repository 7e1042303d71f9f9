"""Host functions compiled to StableHLO: what their members compute, for a machine that knows no op."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from tpusim_kernels.lazy import jax

from tpusim.errors import UnsupportedError, first_line
from tpusim.inference.executor import Environment, Steps
from tpusim.inference.stablehlo import without_tracebacks
from tpusim.ir.attrs import op_name
from tpusim.ir.types import element_of, is_tensor, shape_of, storage_dtype

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpusim.chips import ChipSpec
    from tpusim.ops.framework.base import Array
    from tpusim.ops.framework.host_functions import HostFunction

_JAX: Any = jax


def compiled(function: HostFunction, chip: ChipSpec, weights: Mapping[str, Array]) -> np.ndarray:
    """The bytes (uint8) of a function as `jax.export` serialises it; arguments in order, in the module's stored types.

    weights: for kernels that must see a constant as data. Raises UnsupportedError for an op that StableHLO cannot
    express for any computer.
    """
    absent = [v for op in function.members for v in op.operands if not is_tensor(v)]
    types = [jax.ShapeDtypeStruct(shape_of(v), storage_dtype(element_of(v))) for v in function.arguments]

    def main(*given: Array) -> Array:
        values: Environment = {**dict.fromkeys(absent), **dict(zip(function.arguments, given, strict=True))}
        steps = Steps(weights, chip, located=True)
        for op in function.members:
            steps.step(op, values)
        return values[function.last.results[0]]

    try:
        with jax.enable_x64(True), without_tracebacks():
            made = jax.export.export(_JAX.jit(main, keep_unused=True), platforms=("cpu",))(*types)
    except (ValueError, NotImplementedError, TypeError) as error:
        names = ", ".join(f"{op.name} '{op_name(op)}'" for op in function.members)
        raise UnsupportedError(
            f"host function of {names}: ops that StableHLO expresses are required: {first_line(error)}"
        ) from error
    return np.frombuffer(bytes(made.serialize()), np.uint8)
