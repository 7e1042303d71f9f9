"""Elementwise kernels on rows: the bits of each shape alone, and one executable for shapes of about one size."""

from __future__ import annotations

from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tpusim_kernels.base import Array
from tpusim_kernels.cast import dequantize, quantize
from tpusim_kernels.prim.flat import in_rows
from tpusim_kernels.prim.smallfloat import narrowed

SHAPES = (3, 5, 7), (105,), (0, 4), (2, 2048), (4097,)


@pytest.mark.parametrize("shape", SHAPES)
def test_bits_are_those_of_the_shape_alone(shape: tuple[int, ...]) -> None:
    """As in a trace, which has no rows; with numbers that saturate, infinities, NaN and subnormals."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(shape) * 10.0 ** rng.integers(-42, 6, shape)).astype(np.float32)
    x.flat[:4] = (np.inf, -np.inf, np.nan, 1e-41)[: x.size]
    scale = np.float32(20.5)
    for alone in (
        lambda v: quantize(v, scale, 3, out_dtype="int8"),
        lambda v: dequantize(v, scale, 3),
        lambda v: narrowed(v, np.dtype(np.float16)),
    ):
        given = x if alone(x[:0]).dtype != np.float32 else rng.integers(-128, 128, shape).astype(np.int8)
        found, expected = np.asarray(alone(given)), np.asarray(jax.jit(alone)(given))
        assert found.shape == shape and found.dtype == expected.dtype and found.tobytes() == expected.tobytes()


def test_shapes_share_executables() -> None:
    """Of 105, 210 and 4096 elements; 4097 need the next size, and more than 2**20 a second row."""
    given: list[tuple[int, ...]] = []

    @in_rows
    def doubled(x: Array) -> Array:
        given.append(x.shape)
        return jnp.asarray(x) * np.float32(2)

    for shape, rows in (
        ((3, 5, 7), {4096}),
        ((2, 105), {4096}),
        ((2, 2048), {4096}),
        ((4097,), {4096, 8192}),
        ((3, 349_527), {4096, 8192, 1 << 20}),
    ):
        assert float(doubled(jnp.ones(shape, jnp.float32)).sum()) == 2 * np.prod(shape)
        assert set(given) == {(row,) for row in rows}


def test_what_numpy_holds_is_numpys_again() -> None:
    """A large constant is not copied into JAX and back."""
    x = np.ones((2, 3), np.float32)
    assert type(narrowed(cast("Array", x), np.dtype(np.float16))) is np.ndarray
    assert isinstance(narrowed(jnp.asarray(x), np.dtype(np.float16)), jax.Array)
