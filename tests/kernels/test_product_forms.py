"""Every form of integer products (`prim.forms`) gives the int32 of the others; all of them run on a CPU here."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tpusim_kernels import conv, conv3d, deconv, matmul
from tpusim_kernels.prim import forms
from tpusim_kernels.prim.bytedot import byte_dot
from tpusim_kernels.prim.forms import CHUNK, using
from tpusim_kernels.prim.images import WIDE, convolved_by_library

from benchmarks import gpu

RNG = np.random.default_rng(17)
pytestmark = pytest.mark.every
LONG = 2 * CHUNK + 5
FORMS = [name for name in forms.FORMS if forms.is_exact(name)]
"""On a GPU not all of them are."""
BYTES = st.sampled_from([(np.int8, -128, 127), (np.uint8, 0, 255)])


def draw(kind: tuple[type, int, int], seed: int, share: float, shape: tuple[int, ...]) -> np.ndarray:
    """Bytes of which `share` are the extremes of their type."""
    dtype, low, high = kind
    rng = np.random.default_rng(seed)
    extremes = rng.choice([low, high], shape)
    return np.where(rng.random(shape) < share, extremes, rng.integers(low, high + 1, shape)).astype(dtype)


@pytest.mark.parametrize("form", FORMS)
@given(BYTES, BYTES, st.integers(0, 2**32), st.sampled_from([0.0, 0.5, 1.0]))
def test_long_products(form: str, left: tuple, right: tuple, seed: int, share: float) -> None:
    x, w = draw(left, seed, share, (3, LONG)), draw(right, seed + 1, share, (LONG, 4))
    with using(form):
        np.testing.assert_array_equal(byte_dot(x, w), x.astype(np.int64) @ w.astype(np.int64))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [CHUNK, CHUNK + 1])
def test_the_largest_sums(form: str, size: int) -> None:
    """-128 * -128 everywhere: a chunk more than `CHUNK` long would lose the last ones of an odd sum."""
    x, w = np.full((1, size), -128, np.int8), np.full((size, 2), -128, np.int8)
    w[:, 1] = 127
    x[0, -1] = 1
    with using(form):
        np.testing.assert_array_equal(byte_dot(x, w), x.astype(np.int64) @ w.astype(np.int64))


@pytest.mark.parametrize("kinds", [("int8", "int8"), ("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8")])
@pytest.mark.parametrize(
    "shapes", [((1, 9), (9, 5)), ((2, 1, 9), (9, 5)), ((3, 1, 9), (3, 9, 5)), ((3, 4, 9), (3, 9, 5))]
)
def test_one_row_and_bytes_of_either_sign(kinds: tuple[str, str], shapes: tuple[tuple[int, ...], ...]) -> None:
    x, w = (
        RNG.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape).astype(kind)
        for kind, shape in zip(kinds, shapes, strict=True)
    )
    np.testing.assert_array_equal(byte_dot(x, w), x.astype(np.int64) @ w.astype(np.int64))


def convolution(x: np.ndarray, w: np.ndarray, z: int, groups: int) -> np.ndarray:
    geometry = {"strides": (2, 1), "pads": (1, 0, 2, 1), "dilations": (1, 2), "groups": groups}
    return np.asarray(conv.conv2d_accumulate(x, w, np.int32(z), **geometry))


def transposed(x: np.ndarray, w: np.ndarray, z: int, groups: int) -> np.ndarray:
    geometry = {"strides": (2, 1), "pads": (1, 0, 2, 1), "dilations": (1, 1), "groups": groups}
    found = deconv.deconv2d_accumulate(x, w, None, np.int32(z), output_padding=(1, 0), do_relu=False, **geometry)
    return np.asarray(found)


def volume(x: np.ndarray, w: np.ndarray, z: int, groups: int) -> np.ndarray:
    geometry = {"strides": (1, 1, 1), "pads": (0, 1, 1, 0, 1, 1), "dilations": (1, 1, 1), "groups": groups}
    deep = np.stack([x, x[::-1] if len(x) > 1 else x], axis=2)
    found = conv3d.conv3d_accumulate(deep, np.stack([w, w], axis=2), None, np.int32(z), do_relu=False, **geometry)
    return np.asarray(found)


@pytest.mark.parametrize(("kernel", "groups"), [(convolution, 1), (convolution, 2), (transposed, 1), (volume, 2)])
def test_convolutions(kernel, groups: int) -> None:
    """As patches, and as libraries take them."""
    x, w = draw((np.uint8, 0, 255), 1, 0.5, (1, 6, 7, 6)), draw((np.uint8, 0, 255), 2, 0.5, (4, 6 // groups, 3, 2))
    expected = kernel(x, w, 3, groups)
    for form in FORMS:
        with using(form):
            np.testing.assert_array_equal(kernel(x, w, 3, groups), expected)


def windows(x: np.ndarray, w: np.ndarray, strides: tuple[int, int]) -> np.ndarray:
    """The sums of an NHWC image and a filter (kh, kw, ic, oc), by NumPy."""
    views = np.lib.stride_tricks.sliding_window_view(x.astype(np.int64), w.shape[:2], (1, 2))
    return np.einsum("nhwcij,ijco->nhwo", views[:, :: strides[0], :: strides[1]], w.astype(np.int64), optimize=True)


@pytest.mark.parametrize(
    ("image", "filter", "strides"),
    [
        ((2, 9, 8, 32), (3, 3, 32, 5), (1, 1)),  # columns are channels
        ((1, 21, 20, 4), (7, 7, 4, 3), (2, 2)),  # so are strides
        ((1, 15, 12, 3), (4, 5, 3, 2), (3, 1)),
        ((1, 9, 9, 4), (3, 1, 4, 2), (1, 2)),
        ((1, 9, 9, WIDE), (3, 3, WIDE, 2), (1, 1)),  # rows of the filter one by one
        ((1, 9, 12, 2 * WIDE), (3, 3, 2 * WIDE, 2), (2, 3)),
        ((1, 7, 7, 520), (3, 3, 520, 2), (1, 1)),  # channels are cut
        ((1, 8, 6, 2 * CHUNK + 4), (1, 1, 2 * CHUNK + 4, 2), (2, 1)),
        ((1, 14, 15, 200), (7, 7, 200, 2), (1, 1)),
    ],
)
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_convolutions_of_a_gpu(
    image: tuple[int, ...], filter: tuple[int, ...], strides: tuple[int, int], share: float
) -> None:
    """Extremes of bytes, and the least byte everywhere, whose sums are the largest."""
    kind = (np.int8, -128, 127 if share < 1 else -128)
    x, w = draw(kind, 7, share, image), draw(kind, 8, share, filter)
    found = convolved_by_library(jnp.asarray(x), jnp.asarray(w), strides)
    assert found is not None
    np.testing.assert_array_equal(found, windows(x, w, strides))


@pytest.mark.parametrize(
    ("image", "filter"),
    [((1, 5, 9, 8), (4, 4, 8, 2)), ((1, 9, 5, 8), (4, 4, 8, 2)), ((1, 40, 40, 128), (9, 9, 128, 1))],
)
def test_a_gpu_does_not_convolve(image: tuple[int, ...], filter: tuple[int, ...]) -> None:
    """What looks like a gradient: fewer rows or columns than the filter; and windows of too many terms."""
    assert convolved_by_library(jnp.zeros(image, jnp.int8), jnp.zeros(filter, jnp.int8), (1, 1)) is None


@pytest.mark.parametrize("form", [name for name in ("int8", "bfloat16") if name in FORMS])
def test_filters_prepared_on_the_host(form: str) -> None:
    """As compiled networks have them: channels filled up to fours, 1x1 filters as matrices, dense ones of groups."""
    geometry = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "do_relu": True, "out_dtype": "int8"}
    for oc, ic, k, groups in ((4, 6, 3, 1), (4, 6, 1, 1), (4, 6, 1, 2)):
        x, w = (
            draw((np.int8, -128, 127), 3, 0.3, (1, ic, 5, 5)),
            draw((np.int8, -128, 127), 4, 0.3, (oc, ic // groups, k, k)),
        )
        call = [x, conv.filter_of(w, groups), None, np.int32([3]), np.int32([6]), np.int32(0), np.int32(0)]
        expected = np.asarray(conv.conv2d_int(*call, groups=groups, **geometry))
        with using(form):
            np.testing.assert_array_equal(conv.conv2d_int(*call, groups=groups, **geometry), expected)


def test_products_of_many_matrices() -> None:
    x, w = draw((np.uint8, 0, 255), 5, 0.5, (2, 3, 9)), draw((np.int8, -128, 127), 6, 0.5, (2, 9, 4))
    for form in FORMS:
        with using(form):
            found = matmul.matmul_accumulate(x, w, left_transpose=False, right_transpose=False)
        np.testing.assert_array_equal(found, x.astype(np.int64) @ w.astype(np.int64))


def test_the_form_is_the_backends_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for backend, chosen in (("cpu", "library"), ("gpu", "bfloat16"), ("tpu", "float32")):
        monkeypatch.setattr("jax.default_backend", lambda backend=backend: backend)
        assert forms.form() == chosen
    monkeypatch.setenv(forms.VARIABLE, "bfloat16")
    assert forms.form() == "bfloat16"
    monkeypatch.setenv(forms.VARIABLE, "int4")
    with pytest.raises(ValueError, match="TPUSIM_PRODUCTS: one of library, int8, bfloat16, float32 is required, got"):
        forms.form()


@pytest.mark.parametrize(
    ("said", "quick"),
    [
        (["flags\t\t: fpu avx2 fma avx_vnni"], True),
        (["flags\t\t: avx512f avx512_vnni amx_int8"], True),
        (["Features\t: fp asimd asimddp"], True),
        (["flags\t\t: fpu avx avx2 fma", "model name\t: without avx512_vnnis"], False),
        ([], False),
    ],
)
def test_byte_products_are_what_the_processor_says(
    said: list[str], quick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU; a system that describes no processor has none."""
    monkeypatch.setattr(forms, "processor", lambda: said)
    monkeypatch.setattr("jax.default_backend", lambda: "cpu")
    assert forms.has_byte_products.__wrapped__() is quick
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    assert forms.has_byte_products.__wrapped__()


def test_int8_sums_that_a_gpu_doubles_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.delenv("TPUSIM_PRODUCTS", raising=False)
    assert forms.form() == "bfloat16"
    for name in ("int8", "library"):
        with using(name), pytest.raises(ValueError, match=f"TPUSIM_PRODUCTS={name}: .* set it to bfloat16, or set XLA"):
            forms.form()
    monkeypatch.setenv("XLA_FLAGS", f"--xla_dump_to=x {forms.WITHOUT_TRITON}")
    with using("int8"):
        assert forms.form() == "int8"


def test_the_benchmark_counts_wrong_products(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu.wrong_products(8) == 0
    right = gpu.matmul.matmul_accumulate
    monkeypatch.setattr(gpu.matmul, "matmul_accumulate", lambda *operands, **flags: 2 * right(*operands, **flags))
    assert gpu.wrong_products(8) == 8
