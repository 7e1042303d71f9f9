"""What a block of attention computes, in NumPy (numerics.md 11.5)."""

from collections.abc import Iterator

import numpy as np

from tpusim.isa import functions as fn
from tpusim.isa.commands import Requant
from tpusim.isa.layout import align
from tpusim.isa.region import View, numpy_dtype
from tpusim.simulator.integer import float_to_integer, requantize, round_half_away
from tpusim.simulator.product import carrier, product_by_depth

Operands = tuple[np.ndarray, ...]


def attention_weights(function: fn.AttentionWeights, operands: Operands, output: View) -> np.ndarray:
    """Integers: the f32 sum in index order. Floats: the sum in float64, rounded to f32 once."""
    mask = operands[-1] if function.mask else None
    return _weights(function, operands[0], operands[1] if function.integer else None, mask)


def _weights(
    function: fn.AttentionWeights | fn.Attention, scores: np.ndarray, table: np.ndarray | None, mask: np.ndarray | None
) -> np.ndarray:
    scale = np.float32(function.scale)
    if table is None:
        shifted = scores.astype(np.float32) * scale
        shifted = shifted if mask is None else shifted + mask.astype(np.float32)
        powers = np.exp((shifted - shifted.max(axis=-1, keepdims=True)).astype(np.float64)).astype(np.float32)
        return powers / powers.sum(axis=-1, keepdims=True, dtype=np.float64).astype(np.float32)
    below = scores.astype(np.int16)
    below = below if mask is None else np.where(mask != 0, np.maximum(below - 255, -128), below)
    terms = table.reshape(-1)[127 - below]
    total = np.add.accumulate(terms, axis=-1, dtype=np.float32)[..., -1:]
    return float_to_integer(round_half_away(terms / (total * scale)), 0, "u8")


def attention(function: fn.Attention, operands: Operands, output: View) -> np.ndarray:
    """Product by product; floats are rounded to the type of the result wherever a result is stored."""
    sources, rest = list(operands[: function.sources]), list(operands[function.sources :])
    sources += sources[-1:] * (3 - function.sources)
    matrices = unpacked_matrices(rest.pop(0), function.sizes)
    biases = unpacked_biases(rest.pop(0), function) if function.has_bias else [None] * 4
    last = rest.pop(0)[0]
    mask = rest.pop(0) if function.mask else None
    table = rest.pop(0) if function.requants else None
    made = [
        _stored(_product(x, w, b), function, i, output)
        for i, (x, w, b) in enumerate(zip(sources, matrices, biases[:3], strict=True))
    ]
    scores = _product(made[0], made[1].swapaxes(-1, -2), None)
    scores = _stored(scores, function, 3, output) if function.requants else scores.astype(np.float32)
    rows = None if mask is None else mask.reshape(-1, 1, mask.shape[-1])
    weights = _weights(function, scores, table, rows)
    weights = weights if function.requants else _narrow(weights, output)
    mixed = _stored(_product(weights, made[2], None), function, 4, output)
    result = _product(mixed, last, biases[3])
    return requantize(result, Requant(), output.dtype) if function.requants else result.astype(np.float32)


def flash_attention(function: fn.FlashAttention, operands: Operands, output: View) -> np.ndarray:
    """Batch by batch, heads first, like a tile with all keys, or like one with its blocks of keys."""
    if function.key_block:
        return _flash_by_blocks(function, operands, output)
    half, found = output.dtype == "f16", list[np.ndarray]()
    for q, k, v, *mask in by_batch(operands):
        scores = _flash_scores(function, (q, k, *mask), half=half)
        scores = _narrow(scores, output) if half else scores
        found.append(flash_mix(fn.FlashMix(), (v, scores), output).swapaxes(0, 1))
    return np.stack(found).reshape(output.shape)


def _flash_by_blocks(function: fn.FlashAttention, operands: Operands, output: View) -> np.ndarray:
    found = list[np.ndarray]()
    for of_batch in by_batch(operands):
        state = ()
        for block, part in by_blocks(function, of_batch, output):
            state = (flash_block(block, (*part, *state), output),)
        found.append(flash_result(fn.FlashResult(), state, output).swapaxes(0, 1))
    return np.stack(found).reshape(output.shape)


def by_batch(operands: Operands) -> Iterator[Operands]:
    """Queries, keys and values of a batch item, heads first, and the mask."""
    mask = tuple(x.reshape(1, x.shape[2], 1, x.shape[3]) for x in operands[3:])
    for rows in zip(*(x.swapaxes(1, 2)[:, :, :, None] for x in operands[:3]), strict=True):
        yield *rows, *mask


def by_blocks(
    function: fn.FlashAttention, operands: Operands, output: View
) -> Iterator[tuple[fn.FlashBlock, Operands]]:
    """The function of each block of keys, and its operands without the state; operands: of a batch item."""
    (q, k, v, *mask), narrow = operands, output.dtype
    assert narrow in ("f16", "bf16")
    for key in range(0, k.shape[1], function.key_block):
        part = slice(key, key + function.key_block)
        block = fn.FlashBlock(function.scale, function.mask, not key, function.depth, narrow)
        yield block, (q, k[:, part], v[:, part], *(x[..., part] for x in mask))


_LEAST_SCORE = {"f16": -15000.0, "bf16": -1.5e10}
"""The largest score before the first block."""


def flash_block(function: fn.FlashBlock, operands: Operands, output: View) -> np.ndarray:
    """Products as the array makes them; exponentials and the sum of a block in float64, rounded to f32 once."""
    q, k, v, *more = operands
    times, narrow = len(q) // len(k), numpy_dtype(function.narrow)
    scores = product_by_depth(_matrices(q, 1), _matrices(k, times).swapaxes(-1, -2), function.depth)
    scores = scores * np.float32(function.scale)
    scores = scores + more[0][:, :, 0].astype(np.float32) if function.mask else scores
    if function.first:
        total = np.zeros((*scores.shape[:2], 1), np.float32)
        largest, mixed = np.full_like(total, _LEAST_SCORE[function.narrow]), np.zeros(q[:, :, 0].shape, np.float32)
    else:
        mixed, total, largest = np.split(more[-1][:, :, 0], [-2, -1], axis=-1)
    most = np.maximum(largest, scores.max(axis=-1, keepdims=True))
    factor, powers = (np.exp((s - most).astype(np.float64)).astype(np.float32) for s in (largest, scores))
    total = total * factor + powers.sum(axis=-1, keepdims=True, dtype=np.float64).astype(np.float32)
    weights = powers.astype(narrow).astype(np.float32)
    mixed = mixed * factor + product_by_depth(weights, _matrices(v, times), function.depth)
    return np.concatenate([mixed, total, most], axis=-1)[:, :, None]


def flash_result(function: fn.FlashResult, operands: Operands, output: View) -> np.ndarray:
    """The product with the reciprocal of the sum; NaN if every score is minus infinity."""
    (state,) = operands
    with np.errstate(divide="ignore", invalid="ignore"):
        return state[..., :-2] * (np.float32(1) / state[..., -2:-1])


def flash_scores(function: fn.FlashScores, operands: Operands, output: View) -> np.ndarray:
    """Step by step in the type of the result; the scores of bf16 are f32 and are not rounded."""
    return _flash_scores(function, operands, half=output.dtype == "f16")


def _flash_scores(function: fn.FlashScores | fn.FlashAttention, operands: Operands, *, half: bool) -> np.ndarray:
    """half: the product and the scale go through f16."""
    q, k, *mask = operands
    scores = _product(_matrices(q, 1), _matrices(k, len(q) // len(k)).swapaxes(-1, -2), None).astype(np.float32)
    scores, scale = scores[:, :, None], np.float32(function.scale)
    if half:
        scores, scale = scores.astype(np.float16).astype(np.float32), np.float32(np.float16(scale))
    scores = scores * scale
    return scores + mask[0].astype(np.float32) if function.mask else scores


def flash_mix(function: fn.FlashMix, operands: Operands, output: View) -> np.ndarray:
    """The softmax is rounded to the type of the result step by step. The product in float64."""
    values, scores = operands[0], operands[1].astype(np.float32)
    below = _narrow(scores - _narrow(scores, output).max(axis=-1, keepdims=True), output)
    powers = _narrow(np.exp(below), output)
    total = np.add.accumulate(powers, axis=-1, dtype=np.float32)[..., -1:]
    weights = _narrow(powers * _narrow(np.float32(1) / _narrow(total, output), output), output)
    mixed = _product(_matrices(weights, 1), _matrices(values, len(scores) // len(values)), None)
    return mixed[:, :, None].astype(np.float32)


def _matrices(x: np.ndarray, times: int) -> np.ndarray:
    """(heads, rows, columns) in f32; each head is repeated for the heads of the queries that share it."""
    return np.repeat(x[:, :, 0].astype(np.float32), times, axis=0)


def unpacked_matrices(packed: np.ndarray, sizes: tuple[int, int, int, int]) -> list[np.ndarray]:
    """The matrices of queries, keys and values of an attention."""
    _, lanes, rows, width = packed.shape
    joined, start, found = packed[0].swapaxes(0, 1).reshape(rows * lanes, width), 0, list[np.ndarray]()
    for length in (sizes[0], sizes[1], sizes[1]):
        found.append(joined[start : start + length, : sizes[2]])
        start += align(length, lanes)
    return found


def unpacked_biases(row: np.ndarray, function: fn.Attention) -> list[np.ndarray | None]:
    """The biases of queries, keys, values and the last layer of an attention; None for absent ones."""
    found, start, sizes = list[np.ndarray | None](), 0, function.sizes
    for i, length in enumerate((sizes[2],) * 3 + (sizes[3],)):
        there = function.has_bias >> i & 1
        found.append(row.reshape(-1)[start : start + length] if there else None)
        start += length * there
    return found


def _product(x: np.ndarray, w: np.ndarray, b: np.ndarray | None) -> np.ndarray:
    """Exact for integers; floats in float64."""
    wide = carrier(x.dtype, w.dtype, x.shape[-1])
    total = x.astype(wide) @ w.astype(wide)
    total = total.astype(np.int64) if x.dtype.kind in "iu" else total
    return total if b is None else total + b


def _stored(total: np.ndarray, function: fn.Attention, index: int, output: View) -> np.ndarray:
    if not function.requants:
        return _narrow(total, output)
    multiplier, rshift = function.requants[index]
    return requantize(total, Requant(multiplier, rshift, rounding="half_away"), "i8")


def _narrow(values: np.ndarray, output: View) -> np.ndarray:
    """Through the type of the result, in f32."""
    return values.astype(np.float32).astype(numpy_dtype(output.dtype)).astype(np.float32)
