"""Attention of all heads as tiles: some queries of some heads, with all keys, block by block (numerics.md 11.6).

While the scores of one block of keys are computed, the keys and values of the next block are loaded. All values and
scores of a tile stay in local memory, because the softmax is over all keys. The next tile begins after this one is
stored. In local memory heads are batches, and queries and keys are divided over the lanes, as in the library.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, product
from typing import Literal, cast

from msgspec.structs import replace

from tpusim.chips import ChipSpec
from tpusim.isa.commands import Command, Fn
from tpusim.isa.functions import FlashAttention, FlashBlock, FlashMix, FlashResult, FlashScores
from tpusim.isa.functions.flash import heads_are_rows
from tpusim.isa.layout import align, ceil_div, lmem_bytes, lmem_strides
from tpusim.isa.region import DType, View, itemsize
from tpusim.kernel_library.forms import Part, seen
from tpusim.kernel_library.pieces import Piece, Transfer, transfers

_MOST_ROWS = 8
"""The most rows of lanes that the queries or keys of a tile fill."""
_SCORE_BYTES, _HEAD_BYTES = 14, 10
"""Bytes of a lane that a tile needs for each score (F-25) and for each element of a head (F-26)."""
_PRECISE_BYTES = 25
"""Bytes of a lane that a tile with high precision needs for each score (F-51)."""
_HALF_BYTES, _DECODE_BYTES = 2, 8192
"""Bytes of an element, and of a lane that the keys of a block fill at most if there is one query."""


def block_sizes(
    rows: int, keys: int, heads: int, size: int, chip: ChipSpec, shared: int = 1, *, high_precision: bool = False
) -> tuple[int, int, int]:
    """(queries, keys of a block, heads of keys) of a tile; shared: heads of queries that read one head of keys.

    Blocks are powers of two. Heads are halved until the tile fits, then the block. One query reads half of the keys at
    a time, at least a row of lanes, if these keys of all heads fit.
    """
    if rows == 1 and keys > 1:
        return (1, *_decode_sizes(keys, heads, size, chip, shared))
    block = min(1 << min(rows, keys).bit_length() - 1, _MOST_ROWS * chip.lanes)
    room = min(chip.lmem_bytes, chip.kernel_memory_bytes // chip.lanes or chip.lmem_bytes)

    score = _PRECISE_BYTES if high_precision else _SCORE_BYTES

    def each(block: int) -> int:
        return shared * ceil_div(block, chip.lanes) * (score * block + _HEAD_BYTES * size)

    while heads > 1 and heads * each(block) > room:
        heads //= 2
    while block > chip.lanes and each(block) > room:
        block //= 2
    return block, block, heads


def _decode_sizes(keys: int, heads: int, size: int, chip: ChipSpec, shared: int) -> tuple[int, int]:
    """Several heads share a tile unless those of the queries are rows."""
    least = min(chip.lanes, 1 << keys.bit_length() - 1)
    block = max(1 << (keys // 2).bit_length() - 1, least)
    heads = 1 if heads_are_rows(1, shared) else heads
    while block > least and heads * ceil_div(block, chip.lanes) * size * _HALF_BYTES > _DECODE_BYTES:
        block //= 2
    return block, heads


_LEAST_ROWS = 4


def attention_pieces(body: Fn, chip: ChipSpec) -> tuple[Piece, ...]:
    """The tiles of FlashAttention over tensors in global memory; none if four queries of one head do not fit."""
    whole = _Whole(body, chip)
    precise = whole.function.key_block
    sizes = (whole.rows, whole.keys, whole.heads, whole.size)
    rows, keys, heads = block_sizes(*sizes, chip, whole.shared, high_precision=precise > 0)
    keys = precise or rows
    while whole.areas(rows, heads, keys)[-1] > chip.lmem_bytes:
        if rows <= min(_LEAST_ROWS, whole.rows) and heads == 1:
            return ()
        rows, heads = (rows, heads // 2) if heads > 1 else (rows // 2, heads)
    starts = product(range(whole.batch), range(0, whole.heads, heads), range(0, whole.rows, rows))
    found: list[Piece] = []
    for number, (batch, head, row) in enumerate(starts):
        sizes = (min(rows, whole.rows - row), min(heads, whole.heads - head))
        found += _Tile(whole, number, (batch, head, row), *sizes, keys, whole.areas(rows, heads, keys)).pieces()
    return tuple(found)


class _Whole:
    """Operands and result in global memory: (batch, rows or keys, heads, elements); the mask is (1, 1, rows, keys).

    heads: heads of the keys; each serves `shared` heads of the queries.
    """

    def __init__(self, body: Fn, chip: ChipSpec) -> None:
        self.body, self.chip = body, chip
        self.queries, self.keys_of, self.values, *self.masks = body.inputs
        self.batch, self.rows, _, self.size = self.queries.shape
        _, self.keys, self.heads, _ = self.keys_of.shape
        self.shared = self.queries.shape[2] // self.heads
        self.result = seen(body.output, self.queries.shape)
        self.dtype: DType = body.output.dtype
        self.scores: DType = "f16" if self.dtype == "f16" else "f32"

    @property
    def narrow(self) -> Literal["f16", "bf16"]:
        """The type of operands and result."""
        return "f16" if self.dtype == "f16" else "bf16"

    @property
    def function(self) -> FlashAttention:
        """The function of the body."""
        return cast("FlashAttention", self.body.function)

    def areas(self, rows: int, heads: int, keys: int) -> list[int]:
        """Addresses of queries, two blocks of keys, two of the mask, values, scores and result; then the end."""
        queries = self._bytes(heads * self.shared, rows, self.size, self.dtype)
        if self.function.key_block:
            return self._areas_of_blocks(rows, heads, queries)
        block, values = (self._bytes(heads, count, self.size, self.dtype) for count in (keys, self.keys))
        mask = self._bytes(len(self.masks), rows, keys, self.dtype)
        scores = self._bytes(heads * self.shared, rows, self.keys, self.scores)
        return list(accumulate([0, queries, block, block, mask, mask, values, scores, queries]))

    def _areas_of_blocks(self, rows: int, heads: int, queries: int) -> list[int]:
        """The same with two blocks of values, two states and the result in place of values, scores and result."""
        keys = self.function.key_block
        block, mask = (
            self._bytes(heads, keys, self.size, self.dtype),
            self._bytes(len(self.masks), rows, keys, self.dtype),
        )
        state = self._bytes(heads * self.shared, rows, self.size + 2, "f32")
        return list(accumulate([0, queries, block, block, mask, mask, block, block, state, state, queries]))

    def _bytes(self, batches: int, lanes: int, width: int, dtype: DType) -> int:
        return align(lmem_bytes((batches, lanes, 1, width), dtype, self.chip, packed=False), self.chip.eu_bytes)


@dataclass(frozen=True)
class _Tile:
    """Some queries of some heads of one batch item. start: batch item, head of the keys, query. at: `_Whole.areas`."""

    whole: _Whole
    number: int
    start: tuple[int, int, int]
    rows: int
    heads: int
    keys: int
    at: list[int]

    def pieces(self) -> Iterator[Piece]:
        """A piece for each block of keys, then one for the product with the values."""
        whole = self.whole
        if whole.function.key_block:
            yield from self._by_blocks()
            return
        for turn, key in enumerate(range(0, whole.keys, self.keys)):
            yield self._block(turn, key, min(self.keys, whole.keys - key))
        values, store = self._values(0, whole.keys), self._moved(whole.result, self.start[2], self.rows, self.at[7])
        body = self._command(FlashMix(), (values.inside, self._scores(0, whole.keys)), store.inside)
        yield Piece(self.number, (), (values,), (self.number,), body, store, kept=1)

    def _block(self, turn: int, key: int, count: int) -> Piece:
        whole, (_, _, row) = self.whole, self.start
        queries = self._moved(whole.queries, row, self.rows, self.at[0])
        operands = [queries, self._moved(whole.keys_of, key, count, self.at[1 + turn % 2])]
        operands += self._masks(turn, key, count)
        loads = (*operands[min(turn, 1) : 2], self._values(key, count), *operands[2:])
        function = FlashScores(whole.function.scale, whole.function.mask)
        body = self._command(function, tuple(t.inside for t in operands), self._scores(key, count))
        by = (self.number,) * len(operands)
        return Piece(self.number, loads, tuple(operands), by, body, None, first=not turn)

    def _by_blocks(self) -> Iterator[Piece]:
        """A piece for each block of keys and values, which takes the state of the piece before, then the division."""
        whole, state = self.whole, None
        for turn, key in enumerate(range(0, whole.keys, self.keys)):
            count, following = min(self.keys, whole.keys - key), self._state(turn)
            operands = [
                self._moved(whole.queries, self.start[2], self.rows, self.at[0]),
                self._moved(whole.keys_of, key, count, self.at[1 + turn % 2]),
                self._moved(whole.values, key, count, self.at[5 + turn % 2]),
                *self._masks(turn, key, count),
            ]
            function = FlashBlock(
                whole.function.scale, whole.function.mask, state is None, whole.function.depth, whole.narrow
            )
            views = (*(t.inside for t in operands), *(() if state is None else (state,)))
            body, by = self._command(function, views, following), (self.number,) * len(operands)
            loads = tuple(operands[min(turn, 1) :])
            yield Piece(self.number, loads, tuple(operands), by, body, None, kept=int(turn > 0), first=not turn)
            state = following
        assert state is not None  # there are keys
        store = self._moved(whole.result, self.start[2], self.rows, self.at[9])
        yield Piece(
            self.number, (), (), (), self._command(FlashResult(whole.shared), (state,), store.inside), store, kept=1
        )

    def _state(self, turn: int) -> View:
        """The state after a block; two areas are used alternately."""
        shape = (self.heads * self.whole.shared, self.rows, 1, self.whole.size + 2)
        return View("lmem", self.at[7 + turn % 2], shape, "f32", "aligned")

    def _masks(self, turn: int, key: int, count: int) -> Iterator[Transfer]:
        """The transfer of the mask of some keys, if there is one."""
        whole, row = self.whole, self.start[2]
        for view in whole.masks:
            part = Part(seen(view, (1, whole.rows, 1, whole.keys)))
            yield transfers(part)(([0, row, 0, key], [1, self.rows, 1, count]), self.at[3 + turn % 2])

    def _command(
        self, function: FlashScores | FlashMix | FlashBlock | FlashResult, inputs: tuple[View, ...], output: View
    ) -> Command:
        return replace(self.whole.body, function=function, inputs=inputs, output=output)

    def _moved(self, view: View, first: int, count: int, address: int) -> Transfer:
        """The transfer of some rows, or keys, of the tile's heads."""
        batch, head, _ = self.start
        batches, length, heads, size = view.shape
        each, item = heads // self.whole.heads, length * heads * size
        at = view.address + batch * item * itemsize(view.dtype)
        image = seen(replace(view, address=at), (heads, length, 1, size), (size, heads * size, item, 1))
        frame = ((0, 0, batch, 0), (heads, length, batches, size))
        window = ([head * each, first, 0, 0], [self.heads * each, count, 1, size])
        return transfers(Part(image, kind="heads", frame=frame))(window, address)

    def _values(self, key: int, count: int) -> Transfer:
        """The transfer of the values of some keys, to their place among the values of all keys."""
        whole, lanes = self.whole, self.whole.chip.lanes
        moved = self._moved(whole.values, key, count, self.at[5])
        area = replace(moved.inside, shape=(self.heads, whole.keys, 1, whole.size))
        strides = lmem_strides(area, whole.chip)
        address = area.address + key // lanes * strides[1] * itemsize(area.dtype)
        return moved._replace(inside=_window(area, count, 1, strides, address, key % lanes))

    def _scores(self, key: int, count: int) -> View:
        """The scores of some keys, as a part of the scores of all keys."""
        whole = self.whole
        shape = (self.heads * whole.shared, self.rows, 1, whole.keys)
        area = View("lmem", self.at[6], shape, whole.scores, "aligned")
        return _window(area, count, 3, lmem_strides(area, whole.chip), area.address + key * itemsize(area.dtype))


def _window(area: View, count: int, axis: int, strides: tuple[int, ...], address: int, lane: int = 0) -> View:
    """A part of an area of local memory along one axis."""
    if count == area.shape[axis]:
        return area
    shape = (*area.shape[:axis], count, *area.shape[axis + 1 :])
    return replace(area, address=address, shape=shape, layout="strided", strides=strides, lane=lane)
