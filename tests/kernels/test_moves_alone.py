"""Moves outside of a trace are NumPy's: nothing is compiled, and bits, dtype and ownership are as with JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tpusim_kernels.movement import joined, moved

MOVES = {
    "reshape": lambda m, x: m.reshape(x, (3, 2, 4)),
    "transpose": lambda m, x: m.transpose(x, (1, 0)),
    "backwards": lambda _, x: x[1::-1, ::3],
    "tile": lambda m, x: m.tile(x, (2, 1)),
    "roll": lambda m, x: m.roll(x, -3, 1),
    "repeat": lambda m, x: m.repeat(m.repeat(x, 2, axis=0), 3, axis=1),
}
DTYPES = ("float32", "int8", "uint8", "int64", "bfloat16", "float8_e4m3fn")


def numbers(dtype: str, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 100, (4, 6)).astype(jnp.dtype(dtype))


def all_moved(x: Any, libraries: list[Any]) -> list[Any]:
    """The results of all moves; libraries: takes the library that each move was given."""

    def watched(move: Any) -> Any:
        return lambda m, v: (libraries.append(m), move(m, v))[1]

    return [moved(watched(move), x) for move in MOVES.values()]


@pytest.mark.every
@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_moves_what_jax_moves(dtype: str):
    x, libraries = numbers(dtype), list[Any]()
    with jax.enable_x64(True):
        alone, traced = all_moved(jnp.array(x), libraries), jax.jit(lambda v: all_moved(v, libraries))(x)
    assert libraries == [np] * len(MOVES) + [jnp] * len(MOVES)
    for name, one, other in zip(MOVES, alone, traced, strict=True):
        assert isinstance(one, jax.Array) and one.dtype == other.dtype == x.dtype, name
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes() and one.shape == other.shape, name


def test_arrays_are_joined_with_constants_of_a_trace():
    a, b = numbers("int8"), numbers("int8", 1)
    wanted = np.concatenate([a, b], 1)
    assert np.array_equal(joined([jnp.array(a), b], 1), wanted)
    assert np.array_equal(jax.jit(lambda x: joined([x, b], 1))(a), wanted)
    assert np.array_equal(jax.jit(lambda x: joined([a, x], 1))(b), wanted)


def test_a_view_of_the_callers_array_is_copied():
    x = np.zeros((64, 64), np.float32)
    result = moved(lambda m, v: m.reshape(v, (32, 128)), x)  # type: ignore[arg-type]
    x[:] = 1
    assert not np.asarray(result).any()
