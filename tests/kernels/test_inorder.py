"""Sums of products in order: every element against a chain of exact fused multiply-adds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import jax
import numpy as np
import pytest
from tpusim_kernels.conv_float import conv2d_float
from tpusim_kernels.matmul import matmul_float
from tpusim_kernels.prim.forms import estimates
from tpusim_kernels.prim.inorder import convolution_blocks, dot_in_order, matmul_blocks


def narrowed(value: Fraction) -> np.float32:
    """The nearest f32, ties to even: f64 is wide enough to see on which side of a tie a value lies."""
    near = np.float32(float(value))
    below, above = np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))
    distance = {n: abs(Fraction(float(n)) - value) for n in (below, near, above)}
    least = min(distance.values())
    nearest = [n for n, d in distance.items() if d == least]
    return nearest[0] if len(nearest) == 1 else next(n for n in nearest if not int(n.view(np.int32)) & 1)


def chain(a: np.ndarray, b: np.ndarray) -> np.float32:
    """fma(a_k, b_k, acc) for k = 0 ..., each rounded once."""
    total = np.float32(0)
    for x, y in zip(a, b, strict=True):
        total = narrowed(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(total)))
    return total


def expected(a: np.ndarray, b: np.ndarray, blocks: tuple[int, ...]) -> np.float32:
    total, start = None, 0
    for size in blocks:
        part = chain(a[start : start + size], b[start : start + size])
        total = part if total is None else total + part
        start += size
    assert total is not None
    return total


@pytest.mark.parametrize("blocks", [(1,), (2,), (16,), (17,), (18,), (50,), (20, 19)])
def test_every_term_is_rounded_once_and_in_order(blocks: tuple[int, ...]):
    rng = np.random.default_rng(len(blocks))
    k = sum(blocks)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((3, k), (k, 5)))
    found = np.asarray(jax.jit(dot_in_order, static_argnums=2)(a, b, blocks))
    wanted = np.array([[expected(row, column, blocks) for column in b.T] for row in a], np.float32)
    np.testing.assert_array_equal(found, wanted)


def test_convolutions_and_products_use_it():
    """The order is channel, row, column; the bias comes last."""
    rng = np.random.default_rng(5)
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in ((1, 7, 4, 4), (2, 7, 3, 3), (2,)))
    found = np.asarray(
        conv2d_float(x, w, b, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), groups=1, do_relu=False)
    )
    window = x[0, :, 1:4, 0:3].ravel()
    assert found[0, 1, 1, 0] == chain(w[1].ravel(), window) + b[1]
    left, right = x.reshape(2, 56), w.reshape(-1)[: 56 * 2].reshape(56, 2)
    product = np.asarray(matmul_float(left, right, None, left_transpose=False, right_transpose=False, do_relu=False))
    assert product[1, 0] == chain(left[1], right[:, 0])


def test_blocks_are_upstreams():
    """What model_runner.py 1.30.2 computes with, found by trying every cut."""
    assert [convolution_blocks(k) for k in (1, 384, 385, 767, 768, 769, 1153)] == [
        (1,), (384,), (193, 192), (384, 383), (384, 384), (384, 193, 192), (384, 384, 193, 192),
    ]  # fmt: skip
    assert [matmul_blocks(k) for k in (512, 513, 1024, 1025, 2048)] == [
        (512,), (512, 1), (512, 512), (1024, 1), (1024, 1024),
    ]  # fmt: skip


def test_estimates_differ_by_rounding_and_only_inside():
    """The same kernel, compiled for both, in and out of the context, and in another thread."""
    rng = np.random.default_rng(6)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((2, 33, 9, 9), (6, 33, 3, 3)))

    def convolved() -> np.ndarray:
        return np.asarray(
            conv2d_float(x, w, None, strides=(2, 1), pads=(1, 0, 1, 2), dilations=(1, 2), groups=1, do_relu=False)
        )

    before = convolved()
    with estimates(), ThreadPoolExecutor(1) as pool:
        near, elsewhere = convolved(), pool.submit(convolved).result()
    np.testing.assert_array_equal(elsewhere, before)
    np.testing.assert_array_equal(convolved(), before)
    assert 0 < abs(near - before).max() < 1e-5 * np.linalg.norm(before)
