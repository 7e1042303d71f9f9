"""f32 products by XLA's library: only where it adds up in order, then with the bits of the loop in every program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tpusim_kernels.conv_float import conv2d_estimate, conv2d_float, is_product
from tpusim_kernels.conv_graph import OrderedFilter, ordered_filter
from tpusim_kernels.conv_trial import conv2d_trial, rounded_filter
from tpusim_kernels.prim import inorder, library
from tpusim_kernels.prim.inorder import convolution_blocks, dot_in_order, matmul_blocks

Made = Callable[..., np.ndarray]
RNG = np.random.default_rng(5)
EXTENTS = [(1, 64, 49), (7, 33, 5), (64, 40, 196), (3, 700, 100), (70, 1100, 65)]


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order() -> None:
    """A test has the same random numbers alone and after others, in whatever order workers run them."""
    RNG.bit_generator.state = np.random.default_rng(5).bit_generator.state


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def by_loops(monkeypatch: pytest.MonkeyPatch, work: Callable[[], Any]) -> np.ndarray:
    with monkeypatch.context() as patch:
        patch.setattr(inorder, "product", lambda a, b, upright=True: None)
        return np.asarray(work())


def same_bits(found: Any, wanted: np.ndarray) -> None:
    np.testing.assert_array_equal(np.asarray(found).view(np.uint32), wanted.view(np.uint32))


@pytest.mark.parametrize("extents", EXTENTS)
@pytest.mark.parametrize("blocks", [convolution_blocks, matmul_blocks])
def test_the_library_gives_the_bits_of_the_loop(
    extents: tuple[int, int, int], blocks: Callable[[int], tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
):
    """Alone, for many samples at once, and one after the other inside a loop."""
    m, k, n = extents
    a, b = floats(m, k), floats(3, k, n)
    a[0], b[0] = -abs(a[0]), 0  # products that are all -0

    def one(b: Any) -> Any:
        return dot_in_order(jnp.asarray(a), b, blocks(k))

    wanted = by_loops(monkeypatch, lambda: [jax.jit(lambda b: one(b))(image) for image in b])
    same_bits([jax.jit(one)(image) for image in b], wanted)
    same_bits(jax.jit(jax.vmap(one))(b), wanted)
    same_bits(jax.jit(lambda b: jax.lax.map(one, b))(b), wanted)


def test_another_order_is_not_taken(monkeypatch: pytest.MonkeyPatch):
    """A product of which one column is added up from the end is found out."""

    def other(a: Any, b: Any, upright: bool) -> Any:
        last = jnp.einsum("bmk,bk->bm", a[:, :, ::-1], b[:, ::-1, -1], precision="highest")
        return FENCED(a, b, upright).at[:, :, -1].set(last)

    a, b = jnp.asarray(floats(1, 64, 40)), jnp.asarray(floats(1, 40, 64))
    assert library.product(a, b) is not None
    monkeypatch.setattr(library, "_fenced", other)
    library.keeps_order.cache_clear()
    assert library.product(a, b) is None
    library.keeps_order.cache_clear()


FENCED = library._fenced
GEOMETRIES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 5, 9, 8), (6, 5, 3, 2), {"strides": (2, 1), "pads": (0, 2, 1, 0), "dilations": (2, 1), "groups": 1}),
    ((2, 8, 8, 8), (8, 8, 1, 1), {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "groups": 1}),
    ((2, 8, 7, 7), (12, 2, 3, 3), {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "groups": 4}),
    ((2, 6, 7, 9), (6, 1, 3, 3), {"strides": (2, 1), "pads": (1, 0, 1, 2), "dilations": (1, 2), "groups": 6}),
    ((1, 100, 5, 5), (4, 100, 3, 3), {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "groups": 1}),
    ((1, 2, 24, 24), (2, 1, 21, 20), {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "groups": 2}),
]

UNIT: dict[str, Any] = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "groups": 1}
IN_GRAPHS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 70, 24, 23), (20, 70, 3, 3), UNIT),
    ((1, 3, 30, 30), (8, 3, 5, 5), UNIT | {"strides": (2, 2)}),
    ((1, 900, 5, 9), (40, 900, 1, 1), UNIT | {"strides": (2, 1), "pads": (0, 1, 1, 0)}),
    ((2, 24, 8, 9), (40, 6, 1, 1), UNIT | {"pads": (0, 0, 0, 0), "groups": 4}),
]


@pytest.mark.parametrize(("image", "filters", "geometry"), GEOMETRIES)
def test_windows_of_numpy_are_those_of_the_graph(
    image: tuple[int, ...], filters: tuple[int, ...], geometry: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    """By parts, inside a trace and in loops: the same bits; every result is one chain for each block."""
    x, w, b = floats(*image), floats(*filters), floats(filters[0])

    def convolved(x: Any) -> Any:
        return conv2d_float(x, w, b, do_relu=True, relu_limit=3.0, **geometry)

    whole = np.asarray(jax.jit(convolved)(x))
    same_bits(convolved(x), whole)
    same_bits(by_loops(monkeypatch, lambda: jax.jit(lambda x: convolved(x))(x)), whole)
    n, c, i, j = whole.shape[0] - 1, whole.shape[1] - 1, whole.shape[2] - 1, 0
    group = c // (filters[0] // geometry["groups"])
    top, left, bottom, right = geometry["pads"]
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    (sh, sw), (dh, dw), (kh, kw) = geometry["strides"], geometry["dilations"], filters[2:]
    channels = slice(group * filters[1], (group + 1) * filters[1])
    rows = slice(i * sh, i * sh + dh * (kh - 1) + 1, dh)
    window = padded[n, channels, rows, j * sw : j * sw + dw * (kw - 1) + 1 : dw].ravel()
    total, start = np.float32(0), 0
    for size in convolution_blocks(window.size):
        part = slice(start, start + size)
        total = total + np.asarray(library._chain(w[c].ravel()[part][None, None], window[part][None, :, None]))[0, 0, 0]
        start += size
    assert whole[n, c, i, j] == pytest.approx(np.clip(total + b[c], 0, 3), rel=1e-6)  # f64 rounds twice, rarely


@pytest.mark.parametrize(("image", "filters", "geometry"), [*GEOMETRIES, *IN_GRAPHS])
def test_filters_in_the_form_of_their_products_change_no_bit(
    image: tuple[int, ...], filters: tuple[int, ...], geometry: dict[str, Any]
):
    """In a graph, and for several samples at once; windows as rows and as columns."""
    x, w, b = floats(2, *image), floats(*filters), floats(filters[0])
    x[0, :, 0], w[0] = -0.0, -abs(w[0])
    formed = ordered_filter(w, geometry["groups"], 64)
    assert isinstance(formed, OrderedFilter) or geometry["groups"] not in (1, filters[0]) and filters[2:] != (1, 1)

    def convolved(x: Any, w: Any) -> Any:
        return conv2d_float(x, w, b, do_relu=False, **geometry)

    wanted = np.stack([np.asarray(convolved(image, w)) for image in x])
    same_bits(np.stack([np.asarray(jax.jit(convolved)(image, formed)) for image in x]), wanted)
    same_bits(jax.jit(jax.vmap(convolved, in_axes=(0, None)))(x, formed), wanted)


@pytest.mark.parametrize(
    ("image", "filters", "geometry", "one"),
    [
        ((3, 20, 9, 9), (9, 20, 1, 1), {"strides": (2, 2), "pads": (0, 0, 0, 0), "dilations": (1, 1)}, True),
        ((1, 5, 4, 6), (9, 5, 1, 1), {"strides": (1, 1), "pads": (1, 0, 2, 1), "dilations": (1, 1)}, True),
        ((1, 5, 12, 14), (9, 5, 3, 2), {"strides": (2, 3), "pads": (1, 0, 1, 2), "dilations": (2, 1)}, True),
        ((1, 5, 12, 14), (9, 5, 3, 2), {"strides": (1, 1), "pads": (1, 0, 1, 2), "dilations": (1, 1)}, True),
        ((1, 6, 12, 14), (9, 6, 3, 2), {"strides": (1, 1), "pads": (1, 0, 1, 2), "dilations": (1, 1)}, False),
    ],
)
def test_estimates_are_near(
    image: tuple[int, ...], filters: tuple[int, ...], geometry: dict[str, Any], one: bool, monkeypatch: Any
):
    """As one product, or as the library's convolution, which other backends than a CPU always have."""
    x, w, b = floats(*image), floats(*filters), floats(filters[0])
    assert is_product(image, filters, **geometry) == one
    wanted = np.asarray(conv2d_float(x, w, b, groups=1, do_relu=True, **geometry)).transpose(0, 2, 3, 1)
    for product, order in ((False, (2, 3, 1, 0)), (True, (0, 2, 3, 1))):
        found = conv2d_estimate(
            x.transpose(0, 2, 3, 1), w.transpose(order), b, groups=1, do_relu=True, product=product, **geometry
        )
        assert found.shape == wanted.shape
        assert np.linalg.norm(found - wanted) <= 1e-6 * np.linalg.norm(wanted)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert not is_product(image, filters, **geometry)


@pytest.mark.parametrize("kernel", [1, 3])
def test_trials_by_integers_are_near(kernel: int):
    """The difference of a rounded image's convolution, bytes against f32, with a filter of integers; of zeros too.

    A far outlier, of no weight, leaves steps enough for the rest.
    """
    x, b = abs(floats(2, 6, 7, 20)), floats(9)
    w, scales = floats(9, 20, kernel, kernel), np.float32([60, 20])
    w[2], w[3] = 0, w[3] * np.float32(1e-30)
    x[0, 2, 3, 4], w[:, 4] = 1000, 0
    bytes_of, error = rounded_filter(w)
    assert 0.002 < error < 0.02 and rounded_filter(0 * w)[1] == 0
    steps = np.asarray(bytes_of.steps).reshape(-1, 1, 1, 1)
    assert np.abs(np.rint(w / steps) * steps - w).max() <= steps.max() / 2
    w = np.rint(w / steps) * steps
    geometry: dict[str, Any] = {"strides": (2, 1), "pads": (1, 0, 1, 2), "dilations": (1, 1), "groups": 1}
    hwio = w.transpose(2, 3, 1, 0)
    wanted = conv2d_estimate(x, hwio, b, do_relu=True, **geometry)
    found = conv2d_trial(x, scales, bytes_of, b, do_relu=True, **geometry)
    for scale, square in zip(scales, np.asarray(found), strict=True):
        rounded = np.clip(np.rint(x * scale), -128, 127) / scale
        direct = np.asarray(wanted) - np.asarray(conv2d_estimate(rounded, hwio, b, do_relu=True, **geometry))
        assert abs(np.sqrt(square) - np.linalg.norm(direct)) < 1e-5 * np.linalg.norm(wanted) < np.linalg.norm(direct)


def test_a_trial_tells_products_that_are_rounded_before_the_sum() -> None:
    """Some of the library's kernels multiply, round and add: without AVX-512 those of few columns."""
    a, b = library._trial((1, 8, 16), 1), library._trial((1, 16, 24), 2)  # pyright: ignore[reportPrivateUsage]
    total = np.zeros((1, 8, 24), np.float32)
    for k in range(16):
        total += a[:, :, k : k + 1] * b[:, k : k + 1]
    fused = library._chain(a, b)  # pyright: ignore[reportPrivateUsage]
    assert np.mean(total != fused) > 0.2
