"""Files: read where they end, written whole or not at all; and file names that were read from other files."""

import errno
import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from io import BufferedReader, TextIOWrapper
from pathlib import Path

from tpusim.errors import ConfigError, WriteError

MOST_FILES = 2_000_000
"""Files of a folder of samples; ImageNet has 1.4 million."""
_SEPARATORS = frozenset("/\\:\0")
"""Characters that lead out of a folder on some system, or end a name."""


def is_file_name(name: str) -> bool:
    """Whether a text that was read from a file is a plain file name, which leads out of its folder on no system."""
    return name not in ("", ".", "..") and not _SEPARATORS.intersection(name)


def files_in(folder: Path) -> list[Path]:
    """All files of a folder and of the folders in it, sorted; no links to folders are followed.

    Raises ConfigError for a folder with far too many files, such as `/proc`; files that vanish meanwhile are left out.
    """
    found: list[Path] = []
    for where, _, names in os.walk(folder):
        found += (path for name in names if (path := Path(where, name)).is_file())
        if len(found) > MOST_FILES:
            raise ConfigError(f"{folder}: at most {MOST_FILES:,} files are read from a folder, it has more")
    return sorted(found)


def real(path: str | os.PathLike[str]) -> Path:
    """The path without links. Links that lead in a circle, and names that no file can have, stay as they are."""
    try:
        return Path(os.path.realpath(path))
    except ValueError:  # a zero byte
        return Path(path)


def opened(path: str | os.PathLike[str]) -> BufferedReader:
    """A file to read its bytes from. Raises OSError as `open` does, and for a device, which may never end."""
    file = Path(path).open("rb")  # noqa: SIM115  the caller closes it
    mode = os.fstat(file.fileno()).st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        file.close()
        raise OSError(errno.EINVAL, "a file is required, this is a device", os.fspath(path))
    return file


def content(path: str | os.PathLike[str]) -> bytes:
    """All bytes of a file. Raises OSError as `opened` does."""
    with opened(path) as file:
        return file.read()


def text(path: str | os.PathLike[str]) -> str:
    """All of a UTF-8 file, lines separated by \\n. Raises OSError as `opened` does, and UnicodeDecodeError."""
    with TextIOWrapper(opened(path), encoding="utf-8") as file:
        return file.read()


@contextmanager
def replacing(path: Path) -> Generator[Path]:
    """A temporary path in the folder of `path`; it takes the name `path` when the context ends without an error.

    Its name cannot be guessed, so nobody can put a link in its place. Raises ConfigError if the folder or the file
    cannot be written, and for a path that names a device, a pipe or a folder.
    """
    temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}.tmp"
    try:
        _require_no_folder(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        temporary.replace(path)
    except OSError as error:
        why = error.strerror or str(error)
        raise WriteError(f"{path}: cannot be written, {why}; give a path you may write to") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def require_file(path: Path) -> None:
    """Check a path before the work whose result it will contain. Raises ConfigError if no file can be made there."""
    _require_no_folder(path)
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir():
        raise WriteError(f"{path}: cannot be written, {folder} is no folder; give a path you may write to")


def _require_no_folder(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path}: a file is required, which this is not; give another path")
