"""`Flat`: any number of samples in one call gives what one after the other gives, bit for bit."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jax
import numpy as np
import pytest
from compiling import to_canonical, to_tpu
from op_cases import BY_ID
from tpusim_kernels.prim import inorder, library

import tpusim
from tpusim.errors import ConfigError
from tpusim.frontend import import_onnx
from tpusim.inference import Flat, Gradual, Graph
from tpusim.inference.layout import with_few_transpositions
from tpusim.ir.module import Model

DIGITS = Path(__file__).resolve().parent.parent / "examples/digits"
IMAGES = np.load(DIGITS / "calibration.npz")["image"]


@cache
def digits(batch: int, chip: str = "bm1684x") -> Model:
    top = tpusim.load(DIGITS / "digits.onnx", input_shapes={"image": (batch, 1, 8, 8)} if batch > 1 else None)
    canonical = to_canonical(top)
    samples = [{"image": IMAGES[i : i + batch]} for i in range(0, 4 * batch, batch)]
    return to_tpu(canonical, chip, "int8", ranges=samples)


@pytest.mark.parametrize("chip", ["bm1684x", "cv183x"])
def test_samples_at_once_are_samples_one_by_one(chip: str) -> None:
    model = digits(1, chip)
    graph, flat = Graph(model), Flat(model)
    single = [graph({"image": image[None]}) for image in IMAGES[:6]]
    for name, found in flat({"image": IMAGES[:6]}).items():
        np.testing.assert_array_equal(found, np.concatenate([one[name] for one in single]))
        assert isinstance(found, np.ndarray)


def test_fast_f32_is_the_float_network_but_for_rounding() -> None:
    """Sums in any order change a few last bits: 3e-6 of the results' norm is ten times what was seen."""
    model = to_canonical(tpusim.load(DIGITS / "digits.onnx"))
    (found,), run = Flat(model, quick=True)(IMAGES[:6]).values(), Gradual(model)
    expected = np.concatenate([next(iter(run({"image": image[None]}).values())) for image in IMAGES[:6]])
    assert np.linalg.norm(found - expected) <= 3e-6 * np.linalg.norm(expected)
    with jax.enable_x64(True):
        traced = [
            str(jax.make_jaxpr(g.trace)(g.weights, [IMAGES[:1]])) for g in (Graph(model), Graph(model, quick=True))
        ]
    assert ["custom_vmap_call" in text for text in traced] == [True, False]  # sums in order are such calls


@pytest.mark.slow  # two whole graphs are compiled
def test_multiples_of_the_batch_of_a_module() -> None:
    model, (name,) = digits(2), Graph(digits(2)).keep
    found = Flat(model)(IMAGES[:6])[name]
    graph = Graph(model)
    expected = np.concatenate([graph({"image": IMAGES[i : i + 2]})[name] for i in (0, 2, 4)])
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(ConfigError, match=r"shape \(N, 1, 8, 8\) is required, N a multiple of the batch"):
        Flat(model)(IMAGES[:3])


def test_jax_arrays_come_back_as_jax_arrays() -> None:
    flat = Flat(digits(1))
    found, expected = flat(jax.numpy.asarray(IMAGES[:6])), flat(IMAGES[:6])
    assert all(isinstance(y, jax.Array) for y in found.values())
    np.testing.assert_array_equal(*(next(iter(y.values())) for y in (found, expected)))


def test_what_does_not_fit_is_named() -> None:
    flat = Flat(digits(1))
    with pytest.raises(ConfigError, match="input 'image' is missing; given are picture"):
        flat({"picture": IMAGES[:2]})
    with pytest.raises(ConfigError, match=r"input 'image': shape \(N, 1, 8, 8\) is required, any N of samples"):
        flat(IMAGES[:2, 0])
    two = Flat(import_onnx(BY_ID["add"].model()))
    feeds = BY_ID["add"].feeds()
    with pytest.raises(ConfigError, match="a mapping by name is required"):
        two(next(iter(feeds.values())))
    first = next(iter(feeds))
    with pytest.raises(ConfigError, match="one number of samples is required"):
        two({**feeds, first: np.concatenate([feeds[first]] * 2)})


def test_the_same_bits_before_and_after_a_graph_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpusim.inference.gradual.FEW", 2)
    network = Gradual(digits(1))
    found = [network({"image": image[None]}) for image in IMAGES[:4]]
    (expected,) = Flat(digits(1))(IMAGES[:4]).values()
    np.testing.assert_array_equal(np.concatenate([next(iter(one.values())) for one in found]), expected)
    assert network.compiled


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="only the library of a CPU keeps the order of products")
@pytest.mark.parametrize("extents", [(2, 64, 96, 256), (3, 49, 64, 128)])
def test_turned_operands_keep_the_order_of_products(
    extents: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where only upright products are in order: a transposition that is put off would become part of the product."""
    asked = library.keeps_order
    monkeypatch.setattr(library, "keeps_order", lambda *extents: extents[4] and asked(*extents))
    count, m, k, n = extents
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((count, k, m), (count, k, n)))
    whole = jax.jit(with_few_transpositions(lambda a, b: inorder.ordered_product(a, b, upright=False)))
    assert "while" not in whole.lower(a, b).as_text()
    wanted = jax.jit(lambda a, b: inorder._chain(a.swapaxes(1, 2), b))(a, b)  # noqa: SLF001
    assert np.asarray(whole(a, b)).tobytes() == np.asarray(wanted).tobytes()
