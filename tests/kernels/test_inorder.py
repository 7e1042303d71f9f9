"""Sums of products in order: every element against a chain of exact fused multiply-adds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import jax
import numpy as np
import pytest
from tpusim_kernels.base import Array, kernel
from tpusim_kernels.conv_float import conv2d_float
from tpusim_kernels.deconv_float import deconv2d_float
from tpusim_kernels.matmul import matmul_float
from tpusim_kernels.prim.exponential import exp_of_libm, exp_of_onednn
from tpusim_kernels.prim.forms import estimates
from tpusim_kernels.prim.inorder import convolution_blocks, dot_in_order, matmul_blocks, matrix_vector, sum_in_lanes


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


def by_eight(sums: Sequence[np.float32]) -> np.float32:
    """By neighbours, halves and neighbours."""
    a, b, c, d = (sums[i] + sums[i + 1] for i in range(0, 8, 2))
    return (a + c) + (b + d)


@pytest.mark.parametrize("k", [1, 2, 15, 16, 45, 63])
def test_a_matrix_times_a_vector_has_eight_chains(k: int) -> None:
    rng = np.random.default_rng(k)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((3, k), (k,)))
    found = np.asarray(jax.jit(matrix_vector)(a, b[None]))
    for y, row in zip(found, a, strict=True):
        start = k - k % 16
        parts = [by_eight([chain(row[i:start:8], b[i:start:8]) for i in range(8)])] * (start > 0)
        for size in (8, 4, 2, 1):
            if k & size:
                terms = row[start : start + size] * b[start : start + size]
                parts.append(by_eight([*terms, *np.zeros(8 - size, np.float32)]))
                start += size
        assert y == sum(parts[1:], start=parts[0])


def test_one_window_is_a_matrix_times_a_vector() -> None:
    """With several filters; a depthwise filter is a chain."""
    rng = np.random.default_rng(4)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((2, 6, 3, 3), (4, 3, 3, 3)))
    window = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "do_relu": False}
    found = np.asarray(conv2d_float(x, w, None, groups=2, **window))
    wanted = matrix_vector(w.reshape(1, 2, 2, -1), x.reshape(2, 2, 1, -1))
    np.testing.assert_array_equal(found.reshape(2, 2, 2), wanted)
    found = np.asarray(conv2d_float(x, w.reshape(6, 2, 3, 3)[:, :1], None, groups=6, **window))
    assert found[1, 5, 0, 0] == chain(x[1, 5].ravel(), w.reshape(6, 2, 3, 3)[5, 0].ravel())


@pytest.mark.parametrize("lanes", [2, 16])
def test_lanes_are_added_up_by_halves(lanes: int) -> None:
    terms = np.random.default_rng(lanes).standard_normal((37, 3)).astype(np.float32)
    sums = [np.add.accumulate(terms[i::lanes], axis=0)[-1] for i in range(lanes)]
    while len(sums) > 1:
        sums = [a + b for a, b in zip(sums[: len(sums) // 2], sums[len(sums) // 2 :], strict=True)]
    np.testing.assert_array_equal(sum_in_lanes(terms, lanes), sums[0])


@pytest.mark.parametrize(("groups", "stride", "dilation"), [(1, 2, 1), (1, 3, 1), (1, 1, 2), (1, 3, 2), (2, 2, 1)])
def test_transposed_convolutions_add_up_by_vectors_or_by_taps(groups: int, stride: int, dilation: int) -> None:
    """A chain over row, column and channel of 16 channels at a time, or products in the order of the turned filter."""
    rng = np.random.default_rng(3)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((1, 18, 3, 4), (2, 18 // groups, 3, 2)))
    window = {"strides": (stride,) * 2, "pads": (1, 0, 0, 1), "output_padding": (1, 0), "dilations": (dilation,) * 2}
    found = np.asarray(deconv2d_float(x, w, None, groups=groups, do_relu=False, **window))
    by_vectors = groups == 1 and 1 in (stride, dilation)
    for oc, oh, ow in np.ndindex(*found.shape[1:]):
        taps = [
            (i, j, *where)
            for i, j in np.ndindex(3, 2)
            if (where := source((oh + 1 - i * dilation, ow - j * dilation), stride, (3, 4))) is not None
        ]
        group = slice(oc * 18 // 2, (oc + 1) * 18 // 2) if groups == 2 else slice(18)
        image, filter = x[0, group], w[oc]
        if by_vectors:
            blocks = [range(16), range(16, 18)] if taps else []
            sums = [chain(*zip(*[(image[c, h, v], filter[c, i, j]) for i, j, h, v in taps for c in b], strict=True)) for b in blocks]  # fmt: skip  # noqa: E501
        else:
            sums = [chain(image[:, h, v], filter[:, i, j]) for i, j, h, v in reversed(taps)]
        assert found[0, oc, oh, ow] == sum(sums, start=np.float32(0))


def source(place: tuple[int, int], stride: int, extents: tuple[int, int]) -> tuple[int, int] | None:
    """The element that a tap meets, None where it meets a zero that was inserted, or none."""
    (h, no_h), (w, no_w) = (divmod(p, stride) for p in place)
    inside = 0 <= h < extents[0] and 0 <= w < extents[1]
    return (h, w) if inside and not no_h and not no_w else None


@pytest.mark.parametrize(("function", "units"), [(exp_of_libm, 0.51), (exp_of_onednn, 6)])
def test_exponentials_are_near(function: Callable[[Array], Array], units: float) -> None:
    """By oneDNN n*ln 2 is taken off in one step: the error grows with n, and below -86.6 nothing is left."""
    x = -np.random.default_rng(2).uniform(0, 86, 4096).astype(np.float32)
    exact, found = np.exp(x.astype(np.float64)), np.asarray(kernel()(function)(x))
    unit = 2.0 ** (np.floor(np.log2(exact)) - 23)
    assert units / 2 < np.max(np.abs(found - exact) / unit) < units
    assert np.asarray(kernel()(function)(np.float32([0, -200, -np.inf]))).tolist() == [1, 0, 0]
    above = kernel()(exp_of_libm)(np.float32([88, 89, 2000, np.inf]))
    assert np.asarray(above).tolist() == [np.float32(np.exp(88.0)), np.inf, np.inf, np.inf]
