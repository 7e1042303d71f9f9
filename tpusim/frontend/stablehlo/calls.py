"""JAX functions as networks: named inputs, and closed-over arrays as named weights."""

# JAX's tree functions and the bindings are only partly annotated:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import onnx

from tpusim.errors import ConfigError, ImportModelError, TpusimError, first_line
from tpusim.frontend.stablehlo.convert import onnx_of_stablehlo

_JAX: Any = jax


class Call(NamedTuple):
    """A function as a network: its ONNX model, and the function of a sample, arrays by input name."""

    proto: onnx.ModelProto
    function: Callable[[Any], dict[str, np.ndarray]]


def onnx_of_function(function: Callable[..., Any], example: Any) -> Call:
    """The network that a function of arrays computes for inputs of the example's shapes.

    example: the function's argument, or a tuple of its arguments; each an array or a tree of arrays. Raises ConfigError
    without an example, ImportModelError with JAX's reason if the function cannot be traced for it, and UnsupportedError
    with a line for each kind of instruction that no op computes.
    """
    label = getattr(function, "__name__", None) or type(function).__name__
    if example is None:
        raise ConfigError(f"load: function '{label}' needs an example of its inputs: tpusim.load(function, example)")
    arguments = example if isinstance(example, tuple) else (example,)
    leaves, tree = _JAX.tree_util.tree_flatten_with_path(arguments)
    inputs = _unique([_input_name(function, path) for path, _ in leaves])

    def of_leaves(*given: Any) -> Any:
        return function(*_JAX.tree_util.tree_unflatten(tree, given))

    specs = [jax.ShapeDtypeStruct(np.shape(x), np.asarray(x).dtype) for _, x in leaves]
    try:
        closed, made = _JAX.make_jaxpr(of_leaves, return_shape=True)(*specs)
        traced = _JAX.jit(lambda weights, given: _JAX.core.eval_jaxpr(closed.jaxpr, weights, *given))
        module = traced.lower(closed.consts, specs).compiler_ir("stablehlo")
    except TpusimError:
        raise
    except Exception as error:  # noqa: BLE001  the function's code may raise anything
        raise ImportModelError(f"function '{label}': JAX cannot trace it for this example ({first_line(error)})") from error
    results = _unique([_path(path) or "result" for path, _ in _JAX.tree_util.tree_flatten_with_path(made)[0]])
    weights = list(zip(_weight_names(function, closed.consts), map(np.asarray, closed.consts), strict=True))
    proto = onnx_of_stablehlo(module, label, inputs=inputs, outputs=results, weights=weights)

    def computed(sample: Any) -> dict[str, np.ndarray]:
        found = of_leaves(*(np.asarray(sample[n], s.dtype) for n, s in zip(inputs, specs, strict=True)))
        return {n: np.asarray(y) for n, y in zip(results, _JAX.tree_util.tree_leaves(found), strict=True)}

    return Call(proto, computed)


def _input_name(function: Callable[..., Any], path: Sequence[Any]) -> str:
    """The parameter's name, and the path in its tree."""
    number = path[0].idx
    try:
        names = [p.name for p in inspect.signature(function).parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    except (TypeError, ValueError):
        names = []
    first = names[number] if number < len(names) else f"arg{number}"
    return ".".join(filter(None, (first, _path(path[1:]))))


def _path(path: Sequence[Any]) -> str:
    """A path in a tree, as in `layers.0.kernel`."""
    return ".".join(str(getattr(part, "key", getattr(part, "name", getattr(part, "idx", part)))) for part in path)


def _unique(names: Sequence[str]) -> list[str]:
    """The names, numbered where they repeat."""
    return [name if names.count(name) == 1 else f"{name}_{names[:i].count(name)}" for i, name in enumerate(names)]


def _weight_names(function: Callable[..., Any], consts: Sequence[Any]) -> list[str]:
    """The path of each closed-over array in what the function holds; a number for one that is in no tree."""
    known = {id(leaf): name for name, leaf in _held(function, "", set())}
    return _unique([known.get(id(array), f"weight{number}") for number, array in enumerate(consts)])


def _held(thing: Any, name: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Arrays that a callable or a tree holds, with their paths."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, functools.partial):
        for number, one in enumerate(thing.args):
            yield from _held(one, _join(name, str(number)), seen)
        for key, one in thing.keywords.items():
            yield from _held(one, _join(name, key), seen)
        yield from _held(thing.func, name, seen)
        return
    closure = getattr(thing, "__closure__", None)
    if closure is not None:
        for key, cell in zip(thing.__code__.co_freevars, closure, strict=True):
            yield from _held(_content(cell), _join(name, key), seen)
    if inspect.isfunction(thing):
        for key in thing.__code__.co_names:
            if key in thing.__globals__ and not inspect.ismodule(thing.__globals__[key]):
                yield from _held(thing.__globals__[key], _join(name, key), seen)
        if hasattr(thing, "__wrapped__"):
            yield from _held(thing.__wrapped__, name, seen)
        return
    if inspect.ismethod(thing):
        yield from _held(thing.__self__, name, seen)
        yield from _held(thing.__func__, name, seen)
        return
    if callable(thing) and hasattr(thing, "__wrapped__"):
        yield from _held(thing.__wrapped__, name, seen)
        return
    leaves = _JAX.tree_util.tree_flatten_with_path(thing)[0]
    for path, leaf in leaves:
        if leaf is not thing or hasattr(leaf, "dtype"):
            yield _join(name, _path(path)), leaf
    if leaves and leaves[0][1] is thing and hasattr(thing, "__dict__") and not inspect.isclass(thing):
        for key, one in vars(thing).items():
            yield from _held(one, _join(name, key), seen)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not yet assigned
        return None


def _join(*parts: str) -> str:
    return ".".join(filter(None, parts))
