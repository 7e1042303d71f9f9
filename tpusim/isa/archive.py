"""The container of a program file: a zip of known members, read only if it is exactly what a writer wrote.

Members are stored, not compressed, so that a declared size is the real size. The first member is `header.json`
with the SHA-256 of the others; the archive's comment has the SHA-256 of the header. The directory is checked before
anything is unpacked or allocated.
"""

import hashlib
import io
import zipfile
import zlib
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeAlias

import msgspec
import numpy as np

from tpusim.errors import ImportModelError
from tpusim.host import arrays
from tpusim.host.documents import decode
from tpusim.host.files import opened, replacing

HEADER = "header.json"
_MAGIC = b"tpusim program, sha256(header.json) = "
_LONGEST_HEADER = 1 << 20
_ADVICE = "write it again with `tpusim codegen`, `tpusim link` or `tpusim asm`"
Names: TypeAlias = Callable[[bytes], tuple[str, ...]]
"""A header's bytes -> the members that a file with it has."""
_DATE = (1980, 1, 1, 0, 0, 0)


class _Checksums(msgspec.Struct):
    """The part of a header that the container needs."""

    format_version: int
    checksums: dict[str, str]


def refusal(path: Path, why: str) -> ImportModelError:
    """The error for a file that is no program."""
    return ImportModelError(f"program file '{path}': {why}; {_ADVICE}")


def checksum(data: bytes) -> str:
    """SHA-256 as the header writes it."""
    return hashlib.sha256(data).hexdigest()


def write_members(path: Path, header: bytes, members: Mapping[str, bytes]) -> None:
    """Write the archive atomically; the same content gives the same bytes."""
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
        for name, data in {HEADER: header, **members}.items():
            archive.writestr(zipfile.ZipInfo(name, _DATE), data)
        archive.comment = _MAGIC + checksum(header).encode()


def read_members(path: Path, versions: tuple[int, ...], names: Names) -> tuple[bytes, dict[str, bytes]]:
    """(header, members) of an archive that is whole and in one of these formats. Raises ImportModelError.

    names: the members that a header promises.
    """
    with _opened(path) as file:
        return _read(path, file, versions, names)


@contextmanager
def _opened(path: Path) -> Generator[IO[bytes]]:
    """A program file; what fails while it is read is an ImportModelError."""
    try:
        with opened(path) as file:
            yield file
    except OSError as error:
        raise refusal(path, f"cannot be opened ({error.strerror or error})") from error
    except (zipfile.BadZipFile, zlib.error, KeyError, ValueError, RuntimeError, EOFError) as error:
        raise refusal(path, f"is not a complete program archive ({_reason(error)})") from error


def format_version(path: Path, versions: tuple[int, ...]) -> int:
    """The format version of a program file, which must be one of these. Raises ImportModelError."""
    with _opened(path) as file, zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        arrays.check_sizes(entries, arrays.file_bytes(file))
        sizes = {entry.filename: entry.file_size for entry in entries}
        return decode(_checked_header(path, archive, sizes, versions), _Checksums).format_version


def _read(path: Path, file: IO[bytes], versions: tuple[int, ...], named: Names) -> tuple[bytes, dict[str, bytes]]:
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        arrays.check_sizes(entries, arrays.file_bytes(file))
        sizes = {entry.filename: entry.file_size for entry in entries}
        header = _checked_header(path, archive, sizes, versions)
        if archive.comment != _MAGIC + checksum(header).encode():
            raise refusal(path, f"member {HEADER} does not match its checksum")
        names = named(header)
        if len(entries) != len(sizes) or set(sizes) != {HEADER, *names}:
            raise refusal(path, f"has the members {', '.join(sorted(sizes))[:200]}, not {', '.join((HEADER, *names))}")
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise refusal(path, "has compressed members; a program's members are stored")
        members = {name: archive.read(name) for name in names}
    sums = decode(header, _Checksums).checksums
    for name, data in members.items():
        if checksum(data) != sums.get(name):
            raise refusal(path, f"member {name} does not match its checksum")
    return header, members


def _checked_header(path: Path, archive: zipfile.ZipFile, sizes: Mapping[str, int], versions: tuple[int, ...]) -> bytes:
    """The header of a file in one of these versions of the format."""
    if HEADER not in sizes:
        raise refusal(path, "is a zip archive, but no tpusim program")
    if sizes[HEADER] > _LONGEST_HEADER:
        raise refusal(path, f"has a header of {sizes[HEADER]:,} bytes, at most {_LONGEST_HEADER:,} are read")
    header = archive.read(HEADER)
    found = decode(header, _Checksums).format_version
    if found not in versions:
        raise refusal(path, f"format versions {read_here(versions)} are read here, the file has {found}")
    return header


def read_here(versions: tuple[int, ...]) -> str:
    """Versions of the format in a sentence: "7 and 8"."""
    *others, last = map(str, versions)
    return " and ".join((", ".join(others), last)) if others else last


def _reason(error: Exception) -> str:
    return str(error).split("\n", 1)[0][:200] or type(error).__name__


def npy_bytes(array: np.ndarray) -> bytes:
    """An array as an npy member."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def npy_array(data: bytes) -> np.ndarray:
    """The uint8 vector of an npy member. Raises ValueError."""
    array = arrays.read_npy(io.BytesIO(data), len(data))
    if array.ndim != 1 or array.dtype != np.uint8:
        raise ValueError(f"coefficients are bytes, got {array.dtype} of shape {array.shape}")
    return array
