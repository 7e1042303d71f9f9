"""Derivatives of functions that JAX cannot differentiate usefully.

Exact kernels work on the bits of floats, and JAX takes the derivative of a bit cast as zero. So a function gets the
derivative of a second function that computes the same up to rounding.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

from tpusim_kernels.lazy import is_traced, jax, jnp

P = ParamSpec("P")
R = TypeVar("R")


def differentiable(exact: Callable[P, R], expression: Callable[P, R]) -> Callable[P, R]:
    """`exact` with the derivatives of `expression`; both take and give arrays of the same shapes and dtypes.

    Without traced floats among the arguments nothing is differentiated: `exact` is called as it is.
    """

    @functools.wraps(exact)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        leaves, tree = jax.tree.flatten((args, kwargs))
        at = [i for i, leaf in enumerate(leaves) if is_traced(leaf)]
        if not any(is_float(leaves[i]) for i in at):
            return exact(*args, **kwargs)

        def of(function: Callable[..., R], traced: Sequence[Any]) -> R:
            given = dict(zip(at, traced, strict=True))
            args, kwargs = jax.tree.unflatten(tree, [given.get(i, leaf) for i, leaf in enumerate(leaves)])
            return function(*args, **kwargs)

        run: Any = cast("Any", jax).custom_jvp(lambda *traced: of(exact, traced))

        @run.defjvp
        def derivative(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
            return run(*primals), _tangents(lambda *traced: of(expression, traced), primals, tangents)

        return run(*(leaves[i] for i in at))

    return call


def _tangents(expression: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """Tangents of the results of `expression`, with 64-bit types enabled.

    They consist of ordinary operations, so that every transform of JAX applies to them.
    """
    at = [i for i, x in enumerate(primals) if is_float(x)]

    def floats(*given: Any) -> list[Any]:
        """The float results as a function of the float arguments."""
        filled = dict(zip(at, given, strict=True))
        found = expression(*(filled.get(i, x) for i, x in enumerate(primals)))
        return [y for y in jax.tree.leaves(found) if is_float(y)]

    with jax.enable_x64(True):
        moved = iter(cast("Any", jax).jvp(floats, [primals[i] for i in at], [tangents[i] for i in at])[1])
    results, tree = jax.tree.flatten(cast("Any", jax).eval_shape(expression, *primals))
    zeros = (np.zeros(y.shape, cast("Any", jax).dtypes.float0) for y in results if not is_float(y))
    return tree.unflatten([next(moved if is_float(y) else zeros) for y in results])


def straight_through(function: Callable[[Any], Any], x: Any) -> Any:
    """`function(x)` with the derivative 1: a rounding, which keeps shape and dtype."""
    run: Any = cast("Any", jax).custom_jvp(function)

    @run.defjvp
    def derivative(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
        return run(*primals), tangents[0]

    return run(x)


def not_differentiable(x: Any, error: Callable[[], Exception]) -> Any:
    """`x` unchanged; differentiating it raises what `error` gives. Integers and arrays outside a trace just pass."""
    if not is_traced(x) or not is_float(x):
        return x
    run: Any = cast("Any", jax).custom_jvp(lambda v: v)

    def derivative(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
        if not isinstance(tangents[0], cast("Any", jax).custom_derivatives.SymbolicZero):
            raise error()
        return run(*primals), tangents[0]

    run.defjvp(derivative, symbolic_zeros=True)
    return run(x)


def is_float(x: Any) -> bool:
    """Whether an array's elements are floats of any width."""
    return jnp.issubdtype(x.dtype, jnp.floating)
