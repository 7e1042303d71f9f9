"""Write a file whole or not at all."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from tpusim.errors import ConfigError


@contextmanager
def replacing(path: Path) -> Generator[Path]:
    """A temporary path beside `path` to write to; it takes the name `path` when the context ends without an error.

    Raises ConfigError if the folder or the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        temporary.replace(path)
    except OSError as error:
        why = error.strerror or str(error)
        raise ConfigError(f"{path}: cannot be written, {why}; give a path you may write to") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
