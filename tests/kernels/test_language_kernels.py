"""Kernels of language models against the closed simulators and the interpreter of TPU-MLIR 1.30.2, and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from llm_numbers import NARROW, TYPES, a16_weights, kind_of, names, record, rounded
from tpusim_kernels import a16, attention, norm
from tpusim_kernels.prim.grouped import GroupedWeights, grouped_weights, packed_codes
from tpusim_kernels.rope import rope

UNSIGNED = "a16_07_bm1684x"
"""8 bits without groups: the codes are signed, and the chip reads them as unsigned."""
DEPTHS = {"bm1684x": 32, "bm1688": 16, "bm1690": 16}
"""Products that the multiplier array of a chip adds up at once."""
KEY_BLOCKS = {"fattention_fa2_bm1688_bf16_hp": 32}
"""Keys of a block; 64 in all others."""


def depth_of(name: str) -> int:
    """That of the chip of a record."""
    return next(depth for chip, depth in DEPTHS.items() if chip in name)


def quantised(name: str) -> tuple[GroupedWeights, int]:
    """The weights of a product, of a multiple of the lanes; bits."""
    found, (matrix, _) = record(name), a16_weights(name)
    columns = matrix.shape[1] // 64 * 64
    bits = int(str(found["mode"])[1])
    return grouped_weights(matrix.T[:columns], bits, int(found["group"]), symmetric=bool(found["symmetric"])), bits


@pytest.mark.parametrize("name", names("a16"))
def test_weights_as_stored(name: str) -> None:
    weights, bits = quantised(name)
    found, kind = record(name), kind_of(name)
    assert np.array_equal(packed_codes(weights.codes, bits).ravel(), found["codes"])
    assert np.array_equal(rounded(weights.scales, kind).ravel(), found["scale16"].ravel())
    assert np.array_equal(weights.zero_points.ravel(), found["zp"])


@pytest.mark.parametrize("name", names("a16"))
def test_products_of_few_bits(name: str) -> None:
    weights, bits = quantised(name)
    found, kind, (_, bias) = record(name), kind_of(name), a16_weights(name)
    columns = len(weights.codes)
    codes: Any = packed_codes(weights.codes, bits)
    scales, bias = rounded(weights.scales, kind), None if bias is None else bias[:columns]
    zeros: Any = weights.zero_points
    given = scales, zeros, bias
    seen = codes.view(np.uint8) if name == UNSIGNED else codes
    y = np.asarray(a16.a16_matmul(found["x"], seen, *given, bits=bits, narrow=NARROW[kind], depth=depth_of(name)))
    assert np.array_equal(y, found["simulator"][:, :columns])
    y = np.asarray(a16.a16_matmul_interpreter(found["x"], codes, *given, bits=bits, narrow=NARROW[kind]))
    assert np.array_equal(y, found["interpreter"][:, :columns])


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_rmsnorm(kind: str) -> None:
    """One number of 4,096 in F16 is one unit away on the chip."""
    found = record(f"rms_bm1684x_{kind}")
    weight = found["y_weight"]
    y = np.asarray(norm.rmsnorm_chip(found["x"], weight, epsilon=1e-6, narrow=NARROW[kind]))
    units = np.abs(_ordinal(y, kind) - _ordinal(found["simulator"], kind))
    assert units.max() <= 1 and np.count_nonzero(units) == (kind == "f16")
    other = norm.rmsnorm_bf16 if kind == "bf16" else norm.rmsnorm_float
    y = rounded(np.asarray(other(found["x"], weight, epsilon=1e-6)), kind)
    assert np.array_equal(y, found["interpreter"])


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_rope(kind: str) -> None:
    found = record(f"rope_bm1684x_{kind}")
    rows = found["position_ids"][0]
    sin, cos = (found[key][rows] for key in ("sin_weight", "cos_weight"))
    y = rope(found["x"], sin[None], cos[None], interleaved=False, narrow=NARROW[kind])
    assert np.array_equal(np.asarray(y), found["simulator"])
    y = rope(found["x"], sin[None], cos[None], interleaved=False)
    assert np.array_equal(rounded(np.asarray(y), kind), found["interpreter"])


def test_rope_of_neighbours() -> None:
    """Against complex numbers: a pair is turned by its angle."""
    rng = np.random.default_rng(0)
    x: Any
    x, angles = rng.standard_normal((1, 3, 2, 8)).astype(np.float32), rng.uniform(-3, 3, (1, 3, 1, 4))
    turned = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)
    wanted = np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)
    sin: Any
    cos: Any
    sin, cos = (np.repeat(f(angles), 2, axis=-1).astype(np.float32) for f in (np.sin, np.cos))
    assert np.allclose(rope(x, sin, cos, interleaved=True), wanted, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in names("fattention")])
def test_attention(name: str) -> None:
    """The interpreter's arithmetic is the same with and without high precision; the chip's without is not known."""
    found, narrow = record(name), NARROW[kind_of(name)]
    operands, scale = [found[key] for key in ("q", "k", "v", "mask")], float(found["dim"]) ** -0.5
    y = np.asarray(attention.flash_attention(*operands, scale=scale, narrow=narrow))
    assert np.array_equal(y, found["interpreter"])
    if found["high_precision"]:
        block = KEY_BLOCKS.get(name, 64)
        y = attention.flash_attention_by_blocks(
            *operands, scale=scale, narrow=narrow, key_block=block, depth=depth_of(name)
        )
        assert np.array_equal(np.asarray(y), found["simulator"])


def test_attention_by_blocks_is_attention() -> None:
    """Blocks that divide nothing, no mask, several batches: against the softmax in double."""
    rng = np.random.default_rng(0)
    arrays: list[Any] = [
        rng.standard_normal(shape).astype(np.float32) for shape in ((2, 3, 4, 8), (2, 7, 2, 8), (2, 7, 2, 8))
    ]
    q, k, v = arrays
    keys, values = (np.repeat(a, 2, axis=2).astype(np.float64) for a in (k, v))
    scores = np.einsum("bmhd,bnhd->bhmn", q, keys) * 0.3
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = np.einsum("bhmn,bnhd->bmhd", weights / weights.sum(-1, keepdims=True), values).reshape(2, 3, 32)
    for block in (1, 3, 7, 64):
        y = attention.flash_attention_by_blocks(q, k, v, None, scale=0.3, narrow="float16", key_block=block, depth=3)
        assert np.abs(np.asarray(y) - wanted).max() < 2e-3, block  # two roundings to F16 of numbers below 2


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [False, True])
def test_extreme_groups(bits: int, symmetric: bool) -> None:
    """Groups of zeros, of one number, of positive and of negative numbers are within half a scale of the weight."""
    rows = np.zeros((5, 32), np.float32)
    rows[1] = 3.0
    rows[2, 5] = -7.0
    rows[3], rows[4] = np.linspace(1, 2, 32), np.linspace(-2, -1, 32)
    found = grouped_weights(rows, bits, 16, symmetric=symmetric)
    back = (found.codes - np.repeat(found.zero_points, 16, 1).astype(float)) * np.repeat(found.scales, 16, 1)
    inside = slice(None) if symmetric else slice(0, 4, 2)  # a range without 0 loses what the zero point cannot move
    assert (np.abs(back - rows)[inside] <= 0.501 * np.repeat(found.scales, 16, 1)[inside]).all()
    assert found.codes.min() >= 0 and found.codes.max() < 2**bits and np.isfinite(found.scales).all()


def test_a_length_without_whole_groups() -> None:
    for group in (0, 64):
        with pytest.raises(ValueError, match="multiple"):
            grouped_weights(np.ones((2, 96), np.float32), 4, group, symmetric=False)


def _ordinal(x: np.ndarray, kind: str) -> np.ndarray:
    """Consecutive integers for consecutive 16-bit floats."""
    bits = x.astype(TYPES[kind]).view(np.int16).astype(np.int32)
    return np.where(bits < 0, -32768 - bits, bits)
