"""JAX functions as networks: named inputs, and closed-over arrays as named weights."""

# JAX's tree functions and the bindings are only partly annotated:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

import jax
import numpy as np
import onnx

from tpusim.errors import ConfigError, ImportModelError, first_line, lacks_memory
from tpusim.frontend.stablehlo.convert import onnx_of_stablehlo

_JAX: Any = jax
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
DATA_DEPENDENT = (
    jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError, jax.errors.TracerIntegerConversionError,
    jax.errors.TracerBoolConversionError, jax.errors.NonConcreteBooleanIndexError,
)  # fmt: skip


class Call(NamedTuple):
    """A function as a network: its ONNX model, and the function of a sample, arrays by input name."""

    proto: onnx.ModelProto
    function: Callable[[Mapping[str, Any]], dict[str, np.ndarray]]


def onnx_of_function(function: Callable[..., Any], example: Any) -> Call:
    """The network that a function of arrays computes for inputs of the example's shapes.

    example: the function's argument, or a tuple of its arguments; each an array or a tree of arrays. Raises ConfigError
    without an example, ImportModelError with JAX's reason if the function cannot be traced for it, and UnsupportedError
    with a line for each kind of instruction that no op computes.
    """
    label = name_of(function)
    if example is None:
        raise ConfigError(
            f"function '{label}': an example of its inputs is required, as in tpusim.load(function, example) or "
            "compile(function, samples, example=...)"
        )
    leaves, tree = _JAX.tree_util.tree_flatten_with_path(example if isinstance(example, tuple) else (example,))
    inputs = _unique([_input_name(function, path) for path, _ in leaves])
    specs = [_spec(label, name, leaf) for name, (_, leaf) in zip(inputs, leaves, strict=True)]

    def of_leaves(*given: Any) -> Any:
        return function(*_JAX.tree_util.tree_unflatten(tree, given))

    closed, made = _traced(label, of_leaves, specs)
    names = _unique([_path(path) or "result" for path, _ in _JAX.tree_util.tree_flatten_with_path(made)[0]])
    results = [f"result{name}" if name.isdigit() else name for name in names]
    module = _lowered(label, closed, specs)
    weights = list(zip(_weight_names(function, closed.consts), map(np.asarray, closed.consts), strict=True))
    proto = onnx_of_stablehlo(module, label, inputs=inputs, outputs=results, weights=weights)

    def computed(sample: Mapping[str, Any]) -> dict[str, np.ndarray]:
        given = (_JAX.numpy.asarray(sample[n], s.dtype) for n, s in zip(inputs, specs, strict=True))
        found = of_leaves(*given)
        return {n: _numbers(y) for n, y in zip(results, _JAX.tree_util.tree_leaves(found), strict=True)}

    return Call(proto, computed)


def arguments_of(function: Callable[..., Any], sample: object) -> Any:
    """The arguments that a sample stands for: an array, or arrays by parameter; None if it does not fit."""
    if not isinstance(sample, Mapping):
        return sample
    names = _parameters(function)
    return tuple(sample[n] for n in names if n in sample) if set(sample) <= set(names) and sample else None


def name_of(function: Callable[..., Any]) -> str:
    """How a function is called in messages and modules."""
    inner = function.func if isinstance(function, functools.partial) else function
    found = str(getattr(inner, "__name__", "") or type(inner).__name__)
    return found if found.isidentifier() else "function"


def _spec(label: str, name: str, leaf: Any) -> jax.ShapeDtypeStruct:
    """Shape and type of an input, as JAX takes it. Raises ConfigError for a leaf that is no array."""
    dtype = leaf.dtype if hasattr(leaf, "dtype") and hasattr(leaf, "shape") else np.asarray(leaf).dtype
    if not _JAX.numpy.issubdtype(dtype, np.number) and dtype != np.bool_:
        raise ConfigError(f"function '{label}': an array is required as example of {name}, got {type(leaf).__name__}")
    return jax.ShapeDtypeStruct(np.shape(leaf), _JAX.dtypes.canonicalize_dtype(dtype))


def _traced(label: str, of_leaves: Callable[..., Any], specs: Sequence[Any]) -> tuple[Any, Any]:
    """The function's program and the tree of its results. Raises ImportModelError with JAX's reason."""
    try:
        closed, made = _JAX.make_jaxpr(of_leaves, return_shape=True)(*specs)
    except DATA_DEPENDENT as error:
        raise ImportModelError(
            f"function '{label}': what it computes must not depend on numbers in its inputs, as in `if x > 0`, "
            f"`int(x)` or x[x > 0]; use jax.numpy.where ({first_line(error)})"
        ) from error
    except Exception as error:  # noqa: BLE001  the function's code may raise anything
        raise ImportModelError(
            f"function '{label}': JAX cannot trace it for this example ({type(error).__name__}: {first_line(error)}); "
            "it must take the example and compute with jax.numpy"
        ) from error
    if not _JAX.tree_util.tree_leaves(made):
        raise ImportModelError(f"function '{label}': at least one array is required as result, got none")
    return closed, made


def _lowered(label: str, closed: Any, specs: Sequence[Any]) -> Any:
    """The StableHLO of a program, whose first arguments are the closed-over arrays."""

    def program(weights: Sequence[Any], given: Sequence[Any]) -> Any:
        return _JAX.core.eval_jaxpr(closed.jaxpr, weights, *given)

    try:
        return _JAX.jit(program, keep_unused=True).lower(closed.consts, specs).compiler_ir("stablehlo")
    except Exception as error:  # noqa: BLE001  primitives of packages may raise anything
        raise ImportModelError(f"function '{label}': JAX cannot lower it ({first_line(error)})") from error


def _numbers(array: Any) -> np.ndarray:
    """The elements as NumPy has them; floats as f32."""
    return np.asarray(array, np.float32) if _JAX.numpy.issubdtype(array.dtype, np.floating) else np.asarray(array)


def _parameters(function: Callable[..., Any]) -> list[str]:
    """The names of positional parameters; none if they are not known."""
    try:
        return [p.name for p in inspect.signature(function).parameters.values() if p.kind in POSITIONAL]
    except (TypeError, ValueError):
        return []


def _input_name(function: Callable[..., Any], path: Sequence[Any]) -> str:
    """The parameter's name, and the path in its tree."""
    number, names = path[0].idx, _parameters(function)
    first = names[number] if number < len(names) else f"arg{number}"
    return _join(first, _path(path[1:]))


def _path(path: Sequence[Any]) -> str:
    """A path in a tree, as in `layers.0.kernel`."""
    return ".".join(str(getattr(part, "key", getattr(part, "name", getattr(part, "idx", part)))) for part in path)


def _unique(names: Sequence[str]) -> list[str]:
    """The names, numbered where they repeat; a numbered name equals no other."""
    taken, found = {name for name in names if names.count(name) == 1}, list[str]()
    for name in names:
        numbered = name if names.count(name) == 1 else next(n for i in count() if (n := f"{name}_{i}") not in taken)
        taken.add(numbered)
        found.append(numbered)
    return found


def _weight_names(function: Callable[..., Any], consts: Sequence[Any]) -> list[str]:
    """The path of each closed-over array in the objects that the function refers to; a number if it has no path."""
    known = {id(leaf): name for name, leaf in _leaves_of(function, "", set())}
    return _unique([known.get(id(array), f"weight{number}") for number, array in enumerate(consts)])


def _leaves_of(thing: Any, name: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """The arrays inside a callable or a tree, with their paths."""
    if id(thing) in seen or inspect.ismodule(thing) or inspect.isclass(thing):
        return
    seen.add(id(thing))
    parts = list(_parts(thing))
    for key, one in parts:
        yield from _leaves_of(one, _join(name, key), seen)
    if parts:
        return
    try:
        leaves = _JAX.tree_util.tree_flatten_with_path(thing)[0]
    except Exception as error:  # noqa: BLE001  globals are of any type, and names are all that is looked for
        if lacks_memory(error):
            raise
        return
    for path, leaf in leaves:
        if hasattr(leaf, "dtype"):
            yield _join(name, _path(path)), leaf
        elif leaf is not thing or hasattr(thing, "__dict__"):
            for key, one in getattr(leaf, "__dict__", {}).items():
                yield from _leaves_of(one, _join(name, _path(path), key), seen)


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    """What a partial, function, method or wrapper is made of, with names."""
    if isinstance(thing, functools.partial):
        yield from ((str(number), one) for number, one in enumerate(thing.args))
        yield from thing.keywords.items()
        yield "", thing.func
    elif inspect.ismethod(thing):
        yield "", thing.__self__
        yield "", thing.__func__
    elif inspect.isfunction(thing):
        for key, cell in zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=True):
            yield key, _content(cell)
        for key in thing.__code__.co_names:
            if key in thing.__globals__:
                yield key, thing.__globals__[key]
    if callable(thing) and hasattr(thing, "__wrapped__"):
        yield "", getattr(thing, "__wrapped__")  # noqa: B009  no attribute of a function's type


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not yet assigned
        return None


def _join(*parts: str) -> str:
    return ".".join(filter(None, parts))
