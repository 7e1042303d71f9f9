"""Small decoders, and runtimes with a fault: each does one thing around the nets that a runtime must not do."""

from __future__ import annotations

from typing import Any

import numpy as np
from typing_extensions import override

from tests.builders.llama_block import Sizes, llama_block
from tpusim.decoder import BlockNet, Decoder
from tpusim.decoder.decoder import HIDDEN

SMALL = Sizes(hidden=64, heads=4, kv_heads=2, size=16, inner=128, positions=32)


def nets(capacity: int, chunk: int, sizes: Sizes = SMALL, layer: int = 0, *, mask: bool = True) -> dict[str, Any]:
    """Nets of a block: prefill of the capacity, chunk, decode; without a mask decode after some lengths only."""
    made: dict[str, Any] = {f"block_{layer}": llama_block(capacity, sizes=sizes, seed=layer, mask=mask)}
    if mask:
        made[f"block_kv_{layer}"] = llama_block(chunk, capacity, sizes=sizes, seed=layer)
        made[f"block_cache_{layer}"] = llama_block(1, capacity, sizes=sizes, seed=layer)
        return made
    made[f"block_kv_{layer}"] = llama_block(chunk, chunk, sizes=sizes, seed=layer, mask=False)
    for history in sorted({chunk, chunk + 1, capacity - 1}):
        made[f"block_cache_{layer}_{history}"] = llama_block(1, history, sizes=sizes, seed=layer, mask=False)
    return made


class MaskOneShort(Decoder):
    """The last cached token is hidden."""

    @override
    def mask(self, net: BlockNet, at: int, count: int) -> np.ndarray:
        return super().mask(net, max(at - 1, 0), count)


class MaskOneLong(Decoder):
    """A position without a token is seen."""

    @override
    def mask(self, net: BlockNet, at: int, count: int) -> np.ndarray:
        return super().mask(net, at + 1, count)


class MaskShifted(Decoder):
    """The mask of cached tokens begins one position late."""

    @override
    def mask(self, net: BlockNet, at: int, count: int) -> np.ndarray:
        mask = super().mask(net, at, count)
        mask[..., : net.history] = np.roll(mask[..., : net.history], 1, axis=-1)
        return mask


class MaskTooWeak(Decoder):
    """Hidden keys get -5 instead of -10000."""

    @override
    def mask(self, net: BlockNet, at: int, count: int) -> np.ndarray:
        return np.maximum(super().mask(net, at, count), np.float32(-5 if net.history else HIDDEN))


class MaskWithoutSelf(Decoder):
    """After cached tokens a token does not see itself."""

    @override
    def mask(self, net: BlockNet, at: int, count: int) -> np.ndarray:
        mask = super().mask(net, at, count)
        rows = np.arange(net.rows)
        if net.history:
            mask[..., rows, net.history + rows] = HIDDEN
        return mask


class MaskOfLater(Decoder):
    """A token of a chunk sees the later ones."""

    @override
    def mask(self, net: BlockNet, at: int, count: int) -> np.ndarray:
        mask = super().mask(net, at, count)
        mask[..., net.history : net.history + count] = 0 if net.history else mask[..., :count]
        return mask


class PositionLate(Decoder):
    """Decode counts positions from 1."""

    @override
    def positions(self, net: BlockNet, at: int, count: int) -> np.ndarray:
        return super().positions(net, at + (net.rows == 1), count)


class PositionOfChunk(Decoder):
    """Every chunk counts positions from 0."""

    @override
    def positions(self, net: BlockNet, at: int, count: int) -> np.ndarray:
        return super().positions(net, 0 if net.rows > 1 else at, count)


class AppendLate(Decoder):
    """New keys and values are written one position late."""

    @override
    def append(self, cache: str, values: np.ndarray, at: int, axis: int) -> None:
        super().append(cache, values, at + (values.shape[axis] == 1), axis)


class AppendStale(Decoder):
    """New values are not written; the cache keeps what it had there."""

    @override
    def append(self, cache: str, values: np.ndarray, at: int, axis: int) -> None:
        kept = self.session.read(cache)[:, at : at + values.shape[axis]]
        super().append(cache, kept if cache.startswith("v") else values, at, axis)


class AppendFirstOnly(Decoder):
    """Of a chunk the first token's keys are written for all."""

    @override
    def append(self, cache: str, values: np.ndarray, at: int, axis: int) -> None:
        super().append(cache, np.repeat(values[:, :1], values.shape[axis], axis), at, axis)


class AppendSwapped(Decoder):
    """Keys go to the cache of values, and values to that of keys."""

    @override
    def append(self, cache: str, values: np.ndarray, at: int, axis: int) -> None:
        super().append(("v" if cache[0] == "k" else "k") + cache[1:], values, at, axis)


RUNTIMES: tuple[type[Decoder], ...] = (
    MaskOneShort, MaskOneLong, MaskShifted, MaskTooWeak, MaskWithoutSelf, MaskOfLater, PositionLate, PositionOfChunk,
    AppendLate, AppendStale, AppendFirstOnly, AppendSwapped,
)  # fmt: skip
