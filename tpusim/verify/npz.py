"""Tensor files: `.npz` (name -> array) and `.npy` (one array), read without pickle and written atomically."""

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

import numpy as np

from tpusim.errors import ConfigError
from tpusim.host import arrays
from tpusim.host.files import opened, replacing
from tpusim.verify.about import About
from tpusim.verify.similarity import Tensor


def load_tensors(path: str | Path) -> dict[str, Tensor]:
    """Read all arrays of an `.npz`; an `.npy` gives one array under the file's stem."""
    path = Path(path)
    try:
        with opened(path) as file:
            loaded = arrays.load(file)
            return {path.stem: loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; give an .npz (name -> array) or .npy file") from None
    except arrays.UNREADABLE as error:
        raise ConfigError(
            f"{path}: an .npz or .npy of plain arrays is required, which this is not ({_reason(error)}); "
            "write it again with numpy.savez or numpy.save"
        ) from error


def save_tensors(path: str | Path, tensors: Mapping[str, Tensor], about: About | None = None) -> None:
    """Write an `.npz`, with what it says of itself; the name appears only when the content is complete.

    An array may have any name, "file" included, so the archive is written member by member. bf16 is stored as its bit
    pattern in uint16, which is how `npz_tool.py` reads uint16.
    """
    stored = {name: _storable(path, name, value) for name, value in tensors.items()}

    def write(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            archive.comment = about.comment() if about else b""
            for name, value in stored.items():
                info = zipfile.ZipInfo(f"{name}.npy")
                info.comment = about.comment_of(name) if about else b""
                with archive.open(info, "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, value, allow_pickle=False)

    write_atomically(path, write)


def write_atomically(path: str | Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill a temporary file, then rename it; a failure leaves what was there."""
    with replacing(Path(path)) as temporary, temporary.open("wb") as file:
        write(file)


def _storable(path: str | Path, name: str, value: Tensor) -> Tensor:
    if value.dtype.name == "bfloat16":
        return np.ascontiguousarray(value).view(np.uint16).reshape(value.shape)
    if value.dtype.name.startswith("float8"):
        return value.astype(np.float32)  # exact; NumPy has no such type
    if value.dtype.kind not in "biufc":
        raise ConfigError(f"{path}: tensor '{name}' must hold plain numbers, got {value.dtype}; convert it first")
    return value


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = str(error).split("\n", 1)[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
