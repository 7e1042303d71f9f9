"""Transpositions put off: the same results, and none left where a graph allows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tpusim.inference.layout import with_few_transpositions

X = np.random.default_rng(0).integers(-128, 128, (2, 3, 4, 5)).astype(np.int32)
NHWC, NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


def between(body: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A layer that works in NHWC, `body` in NCHW, and another such layer."""
    return lambda x: lax.transpose(body(lax.transpose(lax.transpose(x, NHWC) + 1, NCHW)), NHWC)


def row(x: Any) -> Any:
    return jnp.broadcast_to(jnp.arange(3, dtype=jnp.int32).reshape(1, 3, 1, 1), x.shape)


STAYS = {
    "element by element": lambda x: jnp.maximum(x * 2 - row(x), row(x)),
    "with another tensor": lambda x: x + jnp.asarray(X),
    "window": lambda x: lax.slice(lax.pad(x, jnp.int32(7), ((0, 0, 0), (0, 0, 0), (1, 2, 0), (0, 1, 1))),
                                  (0, 1, 0, 1), (2, 3, 6, 9), (1, 1, 2, 3)),
    "channels": lambda x: jnp.concatenate([x, x * 3], axis=1),
    "mean": lambda x: jnp.sum(x, axis=(2, 3), keepdims=True),
    "barrier": lambda x: lax.optimization_barrier((x, x + 1))[1],
    "a kernel of its own": jax.jit(lambda x: jnp.clip(x, 0, 9)),
    "merged and split": lambda x: x.reshape(2, 3, 20).reshape(1, 2, 3, 4, 5)[0],
}  # fmt: skip
IN_ORDER = {
    "merged across": lambda x: (x.reshape(6, 20) + 1).reshape(2, 3, 4, 5),
    "sorted": lambda x: jnp.sort(x, axis=1),
    "cumulated": lambda x: jnp.cumsum(x, axis=3),
    "shuffled": lambda x: x.reshape(2, 3, 2, 2, 5).swapaxes(1, 2).reshape(2, 3, 4, 5),
}


@pytest.mark.parametrize("name", [*STAYS, *IN_ORDER])
def test_the_same_results(name: str) -> None:
    body = between({**STAYS, **IN_ORDER}[name])
    np.testing.assert_array_equal(with_few_transpositions(body)(X), body(X))
    for batch in (jax.vmap(body), body):
        images = np.stack([X, X + 1]) if batch is not body else X
        np.testing.assert_array_equal(with_few_transpositions(batch)(images), batch(images))


@pytest.mark.parametrize("name", STAYS)
def test_what_stays_in_place_is_not_transposed(name: str) -> None:
    sizes = [
        equation.invars[0].aval.size
        for equation in jax.make_jaxpr(with_few_transpositions(between(STAYS[name])))(X).jaxpr.eqns
        if equation.primitive.name == "transpose"
    ]
    assert len(sizes) <= 2, f"the image and a constant, got {sizes}"


def test_terms_of_a_float_sum_keep_their_order() -> None:
    """Along the axis that is stored last XLA has several sums at once, along another one it has not."""
    x = np.random.default_rng(1).standard_normal((3, 900, 40)).astype(np.float32)

    def body(x: Any) -> Any:
        return jnp.sum(lax.transpose(x, (0, 2, 1)), axis=2)

    def traced(body: Callable[[Any], Any]) -> list[Any]:
        return [e.params["axes"] for e in jax.make_jaxpr(body)(x).jaxpr.eqns if e.primitive.name == "reduce_sum"]

    assert traced(with_few_transpositions(body)) == traced(body) == [(2,)]
