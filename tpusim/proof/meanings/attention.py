"""Attention as one op: product by product (numerics.md 11.5, 11.6)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tpusim.field import PRIME, Elements, Field, Scaling, product, requanted
from tpusim.ir.types import shape_of
from tpusim.ops.attention.flash import TpuFAttention
from tpusim.ops.attention.packed import unpack_biases, unpack_matrices
from tpusim.ops.attention.tpu import BIASES, MASK, MATRICES, TABLE, TpuAttention
from tpusim.proof.meanings.stored import stored_float, type_of


def attention(op: TpuAttention, operands: Sequence[Any], field: Field) -> Elements | None:
    """Queries, keys and values; softmax of the scores; the mixed values; the last layer."""
    sources = [operands[0]]
    for x in operands[1:3]:
        sources.append(sources[-1] if x is None else x)
    matrices, biases = _layers(op, operands)
    mask, table, fits = operands[MASK], operands[TABLE], op.fits

    def stored(total: Elements, layer: int) -> Elements:
        if not fits:
            return stored_float(total, op.output, field)
        multiplier, rshift, zero = fits[layer]
        return requanted(field, total, Scaling(multiplier, rshift, zero, "half_away"), "i8")

    q, k, v = (stored(_sum(x, w, b), i) for i, (x, w, b) in enumerate(zip(sources, matrices, biases[:3], strict=True)))
    scores = product(q, k.swapaxes(-1, -2))
    scores = stored(scores, 3) if fits else scores
    if mask is not None:
        scores = field.apply(("masked",), scores, mask.reshape(-1, 1, mask.shape[-1]))
    key = ("attention_weights", ("scale", op.scale.value.data), ("integer", bool(fits)), ("mask", mask is not None))
    tables = [field.row(table).reshape(())] if fits else []
    weights = field.apply(key, scores, field.row(scores, (-1,)), *tables)
    weights = weights if fits else stored_float(weights, op.output, field)
    found = _sum(stored(product(weights, v), 4), operands[9][0], biases[3])
    return requanted(field, found, Scaling(), type_of(op.output)) if fits else stored_float(found, op.output, field)


def _layers(op: TpuAttention, operands: Sequence[Any]) -> tuple[list[Elements], list[Elements | None]]:
    """Matrices of queries, keys and values, biases of all four layers."""
    if not op.is_packed:
        return [operands[i] for i in MATRICES], [operands[i] for i in BIASES]
    return unpack_matrices(operands[3], op.sizes), unpack_biases(operands[4], op.has_bias.value.data, op.sizes)


def _sum(x: Elements, w: Elements, bias: Elements | None) -> Elements:
    total = product(x, w)
    return total if bias is None else (total + bias.reshape(-1)) % PRIME


def flash_attention(op: TpuFAttention, operands: Sequence[Any], field: Field) -> Elements | None:
    """Scores of every head, weights of their rows, mixed values; in f16 the scores are rounded."""
    q, k, v = (x.swapaxes(1, 2) for x in operands[:3])
    mask, dtype = operands[3], type_of(op.output)
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    if op.key_block is not None:
        found = _by_blocks(op, (q, k, v), mask, field)
        return stored_float(found.swapaxes(1, 2).reshape(shape_of(op.output)), op.output, field)
    scores = field.apply(("scores", float(op.scale.value.data), dtype == "f16"), product(q, k.swapaxes(-1, -2)))
    scores = scores if mask is None else (scores + mask) % PRIME
    scores = stored_float(scores, op.output, field) if dtype == "f16" else scores
    weights = field.apply(("weights", dtype), scores, field.row(scores, (-1,)))
    return stored_float(product(weights, v).swapaxes(1, 2), op.output, field)


def _by_blocks(op: TpuFAttention, heads: Sequence[Elements], mask: Elements | None, field: Field) -> Elements:
    """(B, heads, rows, elements): the state of every query is a function of the next block of keys and of the state.

    A state is the weighed values, the sum of the weights and the largest score, which are numbered 0, 1 and 2.
    """
    q, k, v = heads
    assert op.key_block is not None  # the caller has checked it
    block, length = op.key_block.value.data, k.shape[2]
    given = (("scale", op.scale.value.data), ("mask", mask is not None))
    query = field.row(q, (3,)).reshape(*q.shape[:3], 1)
    parts = np.array([0] * q.shape[3] + [1, 2])
    state = None
    for start in range(0, length, block):
        keys, values = k[:, :, start : start + block], v[:, :, start : start + block]
        of_keys = field.row(keys, (2, 3)).reshape(*k.shape[:2], 1, 1)
        of_values = field.row(values, (2,)).reshape(*v.shape[:2], 1, v.shape[3])
        of_values = np.concatenate([of_values, np.zeros((*v.shape[:2], 1, 2), of_values.dtype)], -1)
        more = [] if mask is None else [field.row(mask[..., start : start + block], (3,)).reshape(1, 1, -1, 1)]
        more += [] if state is None else [state, field.row(state[..., -2:], (3,)).reshape(query.shape)]
        name = ("flash_block", *given, ("first", state is None), ("narrow", type_of(op.output)))
        state = field.apply(name, query, of_keys, of_values, parts, *more)
    assert state is not None  # there are keys
    return field.apply(("flash_result",), state[..., :-2], state[..., -2:-1])
