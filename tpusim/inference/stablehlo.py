"""Any stage of a module as StableHLO, for compilers that read it (XLA, IREE) and for JAX.

Input: a top or tpu module. Output: a function of the network's inputs in the module's stored types, whose first axis
counts samples as that of `Flat`. Weights are constants of the function or its last arguments. An op's instructions
have the op's name as their location. Integers are exact in every compiler. 16-bit and f32 results of a lowered module
are those of this package bit for bit if the compiler keeps the order of sums and merges no product into a sum; a top
module has sums in any order (`quick` of `Graph`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from tpusim_kernels.lazy import jax
from typing_extensions import override

from tpusim.errors import UnsupportedError, option
from tpusim.inference.executor import Graph, chip_of, input_specs, inputs_of
from tpusim.ir.types import storage_dtype, tensor_of

if TYPE_CHECKING:
    from tpusim.ir.module import Model
    from tpusim.ops.framework.base import Array

GROUPS = "n"
"""The number of the module's batches in a call, where it is left open."""

_JAX: Any = jax
"""Its tree functions are only partly annotated."""
_LIMIT = "jax_traceback_in_locations_limit"


@dataclass(frozen=True)
class Argument:
    """An argument or a result: its name in the module, shape, dtype; a name in a shape stands for any length."""

    name: str
    shape: tuple[int | str, ...]
    dtype: np.dtype

    @override
    def __str__(self) -> str:
        return f"{self.name}: {'x'.join(map(str, (*self.shape, self.dtype)))}"


@dataclass(frozen=True)
class StableHlo:
    """The function @main: what it takes and returns, in order. weights: the arguments after the inputs, by name."""

    exported: jax.export.Exported
    inputs: tuple[Argument, ...]
    results: tuple[Argument, ...]
    weights: Mapping[str, np.ndarray]

    @property
    def text(self) -> str:
        """The module as MLIR text with locations."""
        return str(self.exported.mlir_module())

    @property
    def artefact(self) -> bytes:
        """The module as a portable artefact of StableHLO (MLIR bytecode in the vhlo dialect)."""
        return bytes(self.exported.mlir_module_serialized)

    @property
    def for_jax(self) -> bytes:
        """What `jax.export.deserialize` reads; its `call` takes the arguments in order."""
        return bytes(self.exported.serialize())


def to_stablehlo(
    model: Model, keep: Sequence[str] | str | None = None, *, open_batch: bool = False, arguments: bool = False
) -> StableHlo:
    """A module as StableHLO.

    keep: names of the tensors to return, or None for the network's results, or "all". open_batch: leave the number of
    samples open; it is a multiple of the module's batch then. arguments: take weights as arguments.

    Raises UnsupportedError for a module with an op that StableHLO cannot express for any compiler.
    """
    graph = Graph(model, keep, quick=chip_of(model) is None)
    specs = input_specs(model)
    single = next((name for name, (shape, _) in specs.items() if not shape), None)
    if open_batch and single is not None:
        raise UnsupportedError(
            f"{option('open_batch')}: inputs with an axis of samples are required, '{single}' has none"
        )
    groups: Any = jax.export.symbolic_shape(GROUPS)[0] if open_batch else 1
    stored = [storage_dtype(tensor_of(op.input).element_type) for op in inputs_of(model)]
    taken = [jax.ShapeDtypeStruct(_of_samples(s, groups), t) for (s, _), t in zip(specs.values(), stored, strict=True)]
    leaves, tree = _JAX.tree_util.tree_flatten_with_path(graph.weights)
    names = [_name(path) for path, _ in leaves]
    values = [np.asarray(leaf) for _, leaf in leaves]
    vmapped: Callable[..., list[Array]] = _JAX.vmap(graph.trace, in_axes=(None, 0))

    def main(*given: Array) -> list[Array]:
        inputs, rest = given[: len(taken)], given[len(taken) :]
        weights = _JAX.tree_util.tree_unflatten(tree, rest) if arguments else graph.weights
        stacked = [x.reshape(-1, *shape) for x, (shape, _) in zip(inputs, specs.values(), strict=True)]
        whole = [y if open_batch else y[0] for y in vmapped(weights, stacked)]
        return [y.reshape(-1, *y.shape[2:]) if open_batch and y.ndim > 1 else y for y in whole]

    try:
        with jax.enable_x64(True), without_tracebacks():
            exported = jax.export.export(_JAX.jit(main, keep_unused=True), platforms=("cpu",))(
                *taken, *(values if arguments else ())
            )
    except (ValueError, NotImplementedError, TypeError) as error:
        raise UnsupportedError(f"StableHLO: {_first_line(error)}") from error
    return StableHlo(
        exported,
        tuple(_argument(n, a) for n, a in zip(specs, exported.in_avals, strict=False)),
        tuple(_argument(n, a) for n, a in zip(graph.keep, exported.out_avals, strict=True)),
        dict(zip(names, values, strict=True)) if arguments else {},
    )


@contextmanager
def without_tracebacks() -> Generator[None]:
    """Locations in this package's files, whose paths are this machine's, are left out."""
    before = _JAX.config.jax_traceback_in_locations_limit
    _JAX.config.update(_LIMIT, 0)
    try:
        yield
    finally:
        _JAX.config.update(_LIMIT, before)


def _of_samples(shape: tuple[int, ...], groups: Any) -> tuple[Any, ...]:
    """The shape of an input for so many of the module's batches."""
    return (groups * shape[0], *shape[1:]) if shape else ()


def _argument(name: str, aval: Any) -> Argument:
    return Argument(name, tuple(d if isinstance(d, int) else str(d) for d in aval.shape), np.dtype(aval.dtype))


def _name(path: Sequence[Any]) -> str:
    """The name of a weight, of a part of one with the part's place."""
    return f"{path[0].key}{_JAX.tree_util.keystr(tuple(path[1:]))}"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
