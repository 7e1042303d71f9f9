"""TPU-MLIR's output and results for the small networks, as data: one file per network.

A file contains every tensor once (chips often agree) as bytes of its type, and a description in JSON. Written by `make
upstream-data`, read by tests/test_upstream.py. See `Cell` for the data of a network on a chip in a mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.conformance.text import Op

FOLDER = Path(__file__).parents[2] / "tests" / "upstream" / "data"
Array = NDArray[Any]


class Place(msgspec.Struct, frozen=True):
    """The place of a tensor: offset into the bytes, type, shape."""

    offset: int
    dtype: str
    shape: tuple[int, ...]


class Cell(msgspec.Struct, frozen=True, omit_defaults=True):
    """One chip and mode.

    The lowered ops (of attributes the numbers only) and constants, all tensors of the interpreter, what the chip's
    closed simulator gives where it differs from them, layer groups (ops, sections), the totals of the profile, and in
    f32 the 16-bit tensors that the interpreter does not round.
    """

    ops: tuple[Op, ...]
    constants: dict[str, Place]
    tensors: dict[str, Place]
    outputs: dict[str, Place]
    agreeing: tuple[str, ...]
    groups: tuple[tuple[tuple[str, ...], tuple[int, ...]], ...] = ()
    cycles: int | None = None
    load_bytes: int = 0
    store_bytes: int = 0
    unrounded: dict[str, Place] = {}


class Content(msgspec.Struct, frozen=True):
    """The description of a file.

    fingerprint: of the network. table, own: lines of the calibration table by upstream's names and by tpusim's.
    top: ops of upstream's canonical module.
    """

    upstream: str
    fingerprint: int
    table: str
    own: str
    top: tuple[Op, ...]
    inputs: dict[str, Place]
    cells: dict[str, Cell]


FEW = 64
"""Float constants of more values are not recorded: they are rounded constants of the network, and their effect shows in
the tensors. Integer constants are recorded in full."""


def is_kept(constant: Array) -> bool:
    """Whether a constant is recorded."""
    return constant.dtype.kind in "iu" or constant.dtype.itemsize == 1 or constant.size <= FEW


@dataclass
class Bytes:
    """Tensors under construction, each kept once."""

    parts: list[bytes] = field(default_factory=list[bytes])
    known: dict[bytes, int] = field(default_factory=dict[bytes, int])
    size: int = 0

    def add(self, array: Array) -> Place:
        """The place of a tensor."""
        raw = np.ascontiguousarray(array).tobytes()
        if raw not in self.known:
            self.known[raw] = self.size
            self.parts.append(raw)
            self.size += len(raw)
        return Place(self.known[raw], array.dtype.name, array.shape)


@dataclass(frozen=True)
class Recorded:
    """A file that was read."""

    content: Content
    raw: bytes

    def array(self, place: Place) -> Array:
        """A tensor in its recorded type."""
        dtype = np.dtype(ml_dtypes.bfloat16) if place.dtype == "bfloat16" else np.dtype(place.dtype)
        count = int(np.prod(place.shape, dtype=np.int64))
        return np.frombuffer(self.raw, dtype, count, place.offset).reshape(place.shape)

    def arrays(self, places: Mapping[str, Place]) -> dict[str, Array]:
        """Tensors by name."""
        return {name: self.array(place) for name, place in places.items()}


def path_of(network: str) -> Path:
    """The file of a network."""
    return FOLDER / f"{network}.npz"


def write(network: str, content: Content, data: Bytes) -> int:
    """Write a file; returns its size in bytes."""
    path = path_of(network)
    path.parent.mkdir(exist_ok=True)
    text = np.frombuffer(msgspec.json.encode(content), np.uint8)
    np.savez_compressed(path, content=text, data=np.frombuffer(b"".join(data.parts), np.uint8))
    return path.stat().st_size


@cache
def read(network: str) -> Recorded:
    """Read a file, once."""
    with np.load(path_of(network)) as found:
        return Recorded(msgspec.json.decode(found["content"].tobytes(), type=Content), found["data"].tobytes())


def networks() -> list[str]:
    """The networks with a file."""
    return sorted(path.stem for path in FOLDER.glob("*.npz"))
