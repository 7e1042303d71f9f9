"""Files that are written whole or not at all, and names of files that come out of other files."""

import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from tpusim.errors import ConfigError

_SEPARATORS = frozenset("/\\:\0")
"""What leads out of a folder on one system or another, and what ends a name."""


def is_file_name(name: str) -> bool:
    """Whether a text out of a file can name a file of a folder: it leads nowhere else, on any system."""
    return name not in ("", ".", "..") and not _SEPARATORS.intersection(name)


@contextmanager
def replacing(path: Path) -> Generator[Path]:
    """A temporary path in the folder of `path`; it takes the name `path` when the context ends without an error.

    Nobody can know its name before, and so put a link in its place. Raises ConfigError if the folder or the file cannot
    be written, and for a path that names a device, a pipe or a folder.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path}: a file is required, which this is not; give another path")
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        temporary.replace(path)
    except OSError as error:
        why = error.strerror or str(error)
        raise ConfigError(f"{path}: cannot be written, {why}; give a path you may write to") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
