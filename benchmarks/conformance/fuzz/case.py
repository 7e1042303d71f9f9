"""A case: one drawn network with its samples, and the cells in which it is compared."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx

from benchmarks.accuracy.results import Key
from benchmarks.conformance.measure import cells as every_cell
from tests.upstream.networks import Array, samples


@dataclass(frozen=True)
class Case:
    """One network. Its samples follow from its name, so that a case is its ONNX file alone."""

    proto: onnx.ModelProto

    @property
    def name(self) -> str:
        """The graph's name."""
        return self.proto.graph.name

    @property
    def samples(self) -> list[dict[str, Array]]:
        """Four samples."""
        return samples(self.proto)


def cells() -> list[tuple[str, str]]:
    """Every (chip, mode) that is compared: F32 is not, in which nothing is quantised or rounded."""
    return [(chip, mode) for chip, mode in every_cell() if mode != "f32"]


def keys(name: str, of: Sequence[tuple[str, str]], count: int) -> Iterator[Key]:
    """`count` of these cells, others for every name, so that a set of networks meets all of them; 0: every cell."""
    begin = zlib.crc32(name.encode()) % len(of)
    turned = [*of[begin:], *of[:begin]]
    step = 5 if len(of) % 5 else 7
    chosen = [turned[i * step % len(of)] for i in range(count)] if count and count < len(of) else of
    yield from (Key(name, chip, mode) for chip, mode in dict.fromkeys(chosen))
