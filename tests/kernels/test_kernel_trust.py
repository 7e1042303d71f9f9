"""Kernels are code: what somebody else could have written is neither loaded nor removed."""

from __future__ import annotations

import hashlib
import os
import pickle
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
from tpusim_kernels import store

KEY = "ab" * 32
pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no modes of files")


class Trap:
    """A pickle that runs code: it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self.path,)


@pytest.fixture(autouse=True)
def unchanged() -> Iterator[None]:
    before = list(store._in_use)
    yield
    store._in_use[:] = before


def executable() -> jax.stages.Compiled:
    """An executable that JAX did not load from its cache: JAX cannot write a loaded one."""

    def added(x: object) -> object:
        return x + 1  # type: ignore[operator]

    added.__name__ = f"added_{secrets.token_hex(4)}"
    return jax.jit(added).lower(np.ones(3, np.float32)).compile()


def planted(folder: Path, sprung: Path) -> Path:
    """A file as the store writes it, with a trap as its content."""
    path = folder / KEY[:2] / KEY[2:]
    path.parent.mkdir(parents=True)
    content = pickle.dumps(Trap(sprung))
    path.write_bytes(hashlib.sha256(KEY.encode() + b"\0" + content).digest() + content)
    path.chmod(0o600)
    return path


def foreign(path: Path) -> None:
    """Of another user, where the one who runs the tests may give files away."""
    if os.geteuid():
        pytest.skip("only the administrator can give a file away")
    os.chown(path, 12345, -1)


def by_group(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o020)


def by_all(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o002)


def sticky(path: Path) -> None:
    """As /tmp is."""
    path.chmod(0o1777)


@pytest.mark.parametrize("open_to", [foreign, by_group, by_all, sticky])
def test_a_folder_that_others_can_write_is_not_used(tmp_path: Path, open_to: Callable[[Path], None]) -> None:
    planted(tmp_path / "kernels", tmp_path / "sprung")
    open_to(tmp_path / "kernels")
    kept = store.KernelStore(tmp_path / "kernels")
    with pytest.warns(store.StoreWarning, match="kernels are code and not kept in a folder that"):
        assert kept.get(KEY) is None
    assert kept.get(KEY) is None  # said once
    kept.put("cd" * 32, executable(), [np.ones(3, np.float32)], {})
    assert not (tmp_path / "sprung").exists() and not (tmp_path / "kernels" / "cd").exists()


def as_link(path: Path) -> None:
    path.replace(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("change", [foreign, by_group, by_all, as_link, as_folder])
def test_a_file_that_others_can_write_is_not_loaded(tmp_path: Path, change: Callable[[Path], None]) -> None:
    change(planted(tmp_path / "kernels", tmp_path / "sprung"))
    assert store.KernelStore(tmp_path / "kernels").get(KEY) is None
    assert not (tmp_path / "sprung").exists()


def test_the_trap_is_one(tmp_path: Path) -> None:
    """The tests above could not fail otherwise: in a folder of the user's the same file is loaded."""
    planted(tmp_path / "kernels", tmp_path / "sprung")
    with pytest.raises(TypeError):  # what it gives is no executable
        store.KernelStore(tmp_path / "kernels").get(KEY)
    assert (tmp_path / "sprung").exists()


def test_a_kernel_under_the_key_of_another_is_not_loaded(tmp_path: Path) -> None:
    path = planted(tmp_path / "kernels", tmp_path / "sprung")
    path.replace(path.with_name("00" * 31))
    assert store.KernelStore(tmp_path / "kernels").get(KEY[:2] + "00" * 31) is None
    assert not (tmp_path / "sprung").exists()


def test_what_the_store_makes_is_the_users_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        kept = store.KernelStore(tmp_path / "a" / "kernels")
        kept.put(KEY, executable(), [np.ones(3, np.float32)], {})
    finally:
        os.umask(before)
    paths = [kept.folder, *kept.folder.rglob("*")]
    assert len(paths) == 3 and not any(path.stat().st_mode & 0o077 for path in paths)
    assert kept.get(KEY) is not None


def test_the_default_folder_of_older_versions_is_closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TPUSIM_KERNELS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = planted(tmp_path / "tpusim" / "kernels", tmp_path / "sprung")
    by_group(path.parent.parent)
    store._in_use.clear()
    kept = store.store()
    assert kept is not None and not kept._is_refused() and kept.folder.stat().st_mode & 0o777 == 0o755


def test_files_of_the_user_in_a_named_folder_stay(tmp_path: Path) -> None:
    """However large they are: a full folder loses kernels alone."""
    kernel = planted(tmp_path, tmp_path / "sprung")
    (tmp_path / "papers").mkdir()
    mine = [tmp_path / "papers" / "thesis.txt", tmp_path / "ab" / "notes.txt", tmp_path / "abc"]
    for path in mine:
        path.write_bytes(b"m" * 1000)
    store.KernelStore(tmp_path, limit=10)._prune()
    assert all(path.exists() for path in mine) and not kernel.exists()
