"""Reads untrusted `.npy` and `.npz` files: nothing is unpickled, and sizes are checked before memory is taken.

`load` takes the place of `numpy.load`. What a file declares (the sizes in the zip directory, the shape in the npy
header) is compared with the real bytes before anything is allocated, so that a small file cannot cause a large
allocation: an uncompressed array never takes more than the file, a compressed one at most `MAX_RATIO` times as much,
all arrays together at most `MAX_BYTES`.
"""

import os
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from math import prod
from tokenize import TokenError
from typing import IO, Any

import numpy as np

MAX_BYTES = 1 << 33
"""Most bytes of all arrays of one file (8 GiB)."""
MAX_UNPACKED, USUAL_RATIO = 1 << 29, 20
"""The most bytes that compressed arrays may unpack to: 512 MiB, or for a large file this multiple of its size.

Zeros shrink to a thousandth, tensors to a half.
"""
MAX_RATIO = 1032
"""Deflate cannot make less than 1/1032 of anything; an archive that says so lies."""
UNREADABLE = (
    *(OSError, ValueError, EOFError, KeyError, RuntimeError, MemoryError, SyntaxError),
    *(zipfile.BadZipFile, zlib.error, TokenError),
)
"""The errors of `load`, and of reading its arrays, for damaged files and files of another kind."""
_MAGIC = b"\x93NUMPY"
_CHUNK = 1 << 20


def file_bytes(file: IO[bytes]) -> int:
    """How long an open file is; its position stays."""
    here = file.tell()
    size = file.seek(0, os.SEEK_END)
    file.seek(here)
    return size


def load(file: IO[bytes]) -> "np.ndarray | ArrayArchive":
    """The array of an `.npy`, or the arrays of an `.npz` by name, read when asked for.

    Raises ValueError, or another error of zipfile and NumPy, for a file that is damaged, too large or something else.
    """
    magic = file.read(len(_MAGIC))
    file.seek(0)
    return read_npy(file, file_bytes(file)) if magic == _MAGIC else ArrayArchive(file)


def read_npy(stream: IO[bytes], length: int) -> np.ndarray:
    """The array of the next `length` bytes of a stream: an npy header and exactly the bytes it declares."""
    start = stream.tell()
    shape, fortran, dtype = _header(stream)
    if dtype.hasobject or dtype.itemsize == 0:
        raise ValueError(f"an array of plain numbers is required, got {dtype}")
    if any(size < 0 for size in shape):
        raise ValueError(f"an array's axes must not be negative, got {shape}")
    declared, there = prod(shape) * dtype.itemsize, length - (stream.tell() - start)
    if declared != there:
        raise ValueError(f"the array's header declares {declared:,} bytes, the file has {there:,}")
    if declared > MAX_BYTES:
        raise ValueError(f"an array of at most {MAX_BYTES:,} bytes is read, got {declared:,}")
    content = bytearray(declared)
    _fill(stream, memoryview(content))
    return np.ndarray(shape, dtype, content, order="F" if fortran else "C")


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """(shape, Fortran order, dtype).

    A header that is not today's Python is read as one of Python 2 without NumPy's warning about it: the reader cannot
    save the file again, and a damaged header must raise one of `UNREADABLE`.
    """
    version = np.lib.format.read_magic(stream)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if version == (1, 0):
            return np.lib.format.read_array_header_1_0(stream)
        if version == (2, 0):
            return np.lib.format.read_array_header_2_0(stream)
    raise ValueError(
        f"an array of npy format 1.0 or 2.0 is required, got {version[0]}.{version[1]}; save it again with numpy.save, "
        "the fields of a structured array one by one"
    )


def _fill(stream: IO[bytes], target: memoryview) -> None:
    """Read from the stream until `target` is full; ValueError if the stream ends before."""
    at = 0
    while at < len(target):
        part = stream.read(min(_CHUNK, len(target) - at))
        if not part:
            raise ValueError(f"the array's bytes end after {at:,} of {len(target):,}")
        target[at : at + len(part)] = part
        at += len(part)


class ArrayArchive(Mapping[str, np.ndarray]):
    """The arrays of an `.npz` by name; each is read when it is asked for. The file must stay open."""

    def __init__(self, file: IO[bytes]) -> None:
        self._zip = zipfile.ZipFile(file)
        entries = self._zip.infolist()
        check_sizes(entries, file_bytes(file))
        self._members = {entry.filename.removesuffix(".npy"): entry for entry in entries}
        if len(self._members) != len(entries):
            raise ValueError("each array must have its own name, got two of the same name")

    def __getitem__(self, name: str) -> np.ndarray:
        entry = self._members[name]
        with self._zip.open(entry) as stream:
            return read_npy(stream, entry.file_size)

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


def check_sizes(entries: list[zipfile.ZipInfo], available: int) -> None:
    """Raise ValueError unless the sizes in a zip directory are possible for a file of `available` bytes."""
    for entry in entries:
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(
                f"member '{entry.filename[:80]}': compression method 0 (stored) or 8 (deflate) is required, "
                f"got {entry.compress_type}"
            )
        stored = entry.compress_type == zipfile.ZIP_STORED
        most = entry.compress_size if stored else entry.compress_size * MAX_RATIO
        if entry.file_size > most:
            raise ValueError(
                f"member '{entry.filename[:80]}' declares {entry.file_size:,} bytes and has {entry.compress_size:,}"
            )
    packed, whole = (sum(getattr(e, size) for e in entries) for size in ("compress_size", "file_size"))
    if packed > available:
        raise ValueError(f"its members declare {packed:,} bytes, the file has {available:,}")
    unpacked = sum(e.file_size for e in entries if e.compress_type != zipfile.ZIP_STORED)
    if unpacked > (most := max(MAX_UNPACKED, USUAL_RATIO * available)):
        raise ValueError(
            f"compressed arrays of at most {most:,} bytes are read from {available:,}, the file declares {unpacked:,}; "
            "store them without compression (numpy.savez)"
        )
    if whole > MAX_BYTES:
        raise ValueError(f"arrays of at most {MAX_BYTES:,} bytes are read, the file declares {whole:,}")
