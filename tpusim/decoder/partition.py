"""The blocks in which a token's keys are added up, which decide whether two ways to a token agree in every bit.

Attention goes through the keys block by block: a block's maximum rescales what came before, and probabilities are
rounded by the maximum so far. So two ways give the same bits if they add up the same keys in the same blocks; otherwise
they differ by roundings of probabilities and of the result.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from tpusim.decoder.nets import BlockNet
from tpusim.isa.commands import Command, Fn, Move
from tpusim.isa.functions import FlashAttention, FlashBlock
from tpusim.isa.region import DType, numpy_dtype
from tpusim.isa.stream import Program

Run = tuple[int, int, int]
"""Keys of adjacent positions in one block: the first one's place in the block, its position, and their number."""
Partition = tuple[tuple[Run, ...], ...]
"""The keys that a token sees, block by block."""
_SIGNIFICANT = {"f16": 11, "bf16": 8}
"""Bits of a significand."""


@dataclass(frozen=True)
class Attention:
    """An attention of a net.

    queries, result: stored tensors (1, n, heads * size), "" if queries are not stored. blocks: keys of each of its
    blocks; (): all at once. narrow: the type of probabilities and of the result. scale: of the scores.
    """

    queries: str
    result: str
    blocks: tuple[int, ...]
    narrow: DType
    scale: float


def attentions(program: Program) -> tuple[Attention, ...]:
    """The attentions of a program that are one op, in its order."""
    stored: dict[str, DType] = {entry.name: entry.view.dtype for entry in program.tensors}
    loads = {c.op: c.sources[0].name for c in program.commands if isinstance(c, Move) and len(c.sources) == 1}
    found: dict[str, Attention] = {}
    for command in program.commands:
        body = command.computed
        if command.op in found or command.op not in stored or not isinstance(body, Fn):
            continue
        if isinstance(body.function, FlashBlock | FlashAttention):
            source = command.sources[0].name if command.sources else ""
            queries = loads.get(source, source)
            blocks = _blocks(program, command)
            found[command.op] = Attention(
                queries if queries in stored else "", command.op, blocks, stored[command.op], body.function.scale
            )
    return tuple(found.values())


def _blocks(program: Program, first: Command) -> tuple[int, ...]:
    """Keys of each block that the op of a command takes."""
    body = first.computed
    assert isinstance(body, Fn)
    if isinstance(body.function, FlashAttention):
        keys, size = body.inputs[1].shape[1], body.function.key_block
        return tuple(min(size, keys - at) for at in range(0, keys, size)) if size else ()
    sizes: list[int] = []
    for command in program.commands:
        if command.op == first.op and isinstance(command, Fn) and isinstance(command.function, FlashBlock):
            if command.function.first and sizes:
                break
            sizes.append(command.inputs[1].shape[1])
    return tuple(sizes)


def partition(net: BlockNet, blocks: tuple[int, ...], at: int, row: int) -> Partition:
    """The keys of token number `row` of a run after `at` cached tokens. Without blocks all keys have one place."""
    runs = [(0, 0, at), (net.history, at, row + 1)]  # place among all keys, position, number
    if not blocks:
        return (((0, 0, at + row + 1),),)
    found: list[tuple[Run, ...]] = []
    start = 0
    for size in blocks:
        mine: list[Run] = []
        for place, position, count in runs:
            low, high = max(place, start), min(place + count, start + size)
            if low < high:
                mine.append((low - start, position + low - place, high - low))
        if mine:
            found.append(_joined(mine))
        start += size
    return tuple(found)


def _joined(runs: list[Run]) -> tuple[Run, ...]:
    """Runs that follow each other in place and position as one; a single key has no place, for its sum is itself."""
    found: list[Run] = []
    for run in runs:
        if found and (found[-1][0] + found[-1][2], found[-1][1] + found[-1][2]) == run[:2]:
            found[-1] = found[-1][0], found[-1][1], found[-1][2] + run[2]
        else:
            found.append(run)
    return ((0, *found[0][1:]),) if sum(run[2] for run in found) == 1 else tuple(found)


def shown(keys: Partition) -> str:
    """Positions of the keys, block by block: "0-63 | 64"."""
    texts: list[str] = []
    for block in keys:
        parts = [str(p) if n == 1 else f"{p}-{p + n - 1}" for _, p, n in block]
        texts.append("+".join(parts))
    return " | ".join(texts)


def bound(values: np.ndarray, narrow: DType, heads: int) -> np.ndarray:
    """The largest difference of two results of one attention, (heads, size).

    values: (keys, heads of keys, size), of the keys that the token sees. Each way rounds the probabilities once and the
    result once; each of these four roundings changes the result by at most 2**-bits of the largest value. One hundredth
    is added for sums in f32.
    """
    most = np.abs(values.astype(np.float64)).max(axis=0)
    return np.repeat(4.04 * rounding(narrow) * most, heads // most.shape[0], axis=0)


def mixed_by(
    attention: Attention, queries: np.ndarray, keys: np.ndarray, values: np.ndarray, blocks: Partition
) -> np.ndarray:  # fmt: skip
    """What attention with high precision gives a token by its blocks of keys, (heads, size), in f32.

    queries (heads, size), keys and values (positions, heads of keys, size). Scores, maxima and sums are f32, products
    are exact before they are f32, and probabilities are rounded to the narrow type (numerics.md 11.6).
    """
    times = len(queries) // keys.shape[1]
    k, v = (np.repeat(x.astype(np.float64), times, axis=1) for x in (keys, values))
    largest, total = np.full(len(queries), -np.inf, np.float32), np.zeros(len(queries), np.float32)
    mixed = np.zeros(queries.shape, np.float32)
    for block in blocks:
        at = np.concatenate([np.arange(position, position + count) for _, position, count in block])
        scores = np.einsum("hd,khd->hk", queries.astype(np.float64), k[at]).astype(np.float32)
        scores = scores * np.float32(attention.scale)
        most = np.maximum(largest, scores.max(axis=1))
        factor, powers = np.exp(largest - most), np.exp(scores - most[:, None])
        total = total * factor + powers.sum(axis=1, dtype=np.float64).astype(np.float32)
        rounded = powers.astype(numpy_dtype(attention.narrow)).astype(np.float64)
        mixed = mixed * factor[:, None] + np.einsum("hk,khd->hd", rounded, v[at]).astype(np.float32)
        largest = most
    return (mixed * (np.float32(1) / total)[:, None]).astype(numpy_dtype(attention.narrow)).astype(np.float32)


def is_near(a: np.ndarray, b: np.ndarray, values: np.ndarray, narrow: DType) -> bool:
    """Whether results of one attention by the same blocks of keys are equal but for a unit in the last place.

    Another rounding of an exponential may lead to another rounding of a probability: 1/4096 of the largest value is
    allowed for that, far less than what one key contributes.
    """
    unit = 2.02 * rounding(narrow) * 2.0 ** np.ceil(np.log2(np.maximum(np.abs(a), np.abs(b)) + np.float32(1e-30)))
    return bool((np.abs(a - b) <= unit + np.abs(values).max() * 2.0**-12).all())


def rounding(narrow: DType) -> float:
    """The largest relative change by a rounding to a type."""
    return 2.0 ** -_SIGNIFICANT.get(narrow, _SIGNIFICANT["bf16"])


def keys_first(net: BlockNet, new: np.ndarray) -> np.ndarray:
    """New keys or values as (tokens, heads, size)."""
    rows = np.moveaxis(new, net.axis, 0)
    return rows.reshape(rows.shape[0], prod(net.heads[:-1]), net.heads[-1])


def rows_of(tensors: Mapping[str, np.ndarray], name: str, rows: int) -> np.ndarray | None:
    """A stored tensor by token; None if it is not stored or has no row for each token."""
    found = tensors.get(name)
    if found is None or found.size % rows:
        return None
    return found.reshape(rows, -1)
