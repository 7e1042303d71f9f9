"""The store of a run's artefacts: a folder in which no file of the user is ever lost.

A run writes into `unfinished/` inside its folder and moves the files to their places when it is done. So a run that
fails or is interrupted leaves the earlier run's artefacts alone, and its files can be read and resumed from.
`manifest.json` says which files a run wrote, with their SHA-256, and which stages are complete with which
configuration: only a file that still has the recorded content is replaced or removed. A lock keeps a second run out;
the system takes it from a process that dies.

A stage's files are written and hashed by a thread while the next stage computes. There is one such thread, no daemon:
the next stage's files, the end of the run and an error all wait for it.

A manifest is data of whoever wrote the folder: what it names is replaced, copied or removed only if it is a name of an
artefact, in this folder, and no link (`Folder`).

The store knows names, bytes and keys; what an artefact is, and what its stage depends on, is the pipeline's to say.
"""

import hashlib
import os
import re
import shutil
import signal
import stat
import threading
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from tpusim.errors import ConfigError, option
from tpusim.host.documents import decode
from tpusim.host.files import is_file_name, opened, replacing

if TYPE_CHECKING:
    from filelock import FileLock

MANIFEST = "manifest.json"
UNFINISHED = "unfinished"
"""Folder of a run that is going on, or did not finish."""
LOCK = ".tpusim.lock"
_HOLDER = re.compile(rb"\d*\r?\n?")
"""Content of a lock: the number of a process."""
_MOST = 32
"""Bytes of that number."""
Write = Callable[[Path], object]
"""Writes the files of a stage into a folder."""


class FileEntry(msgspec.Struct):
    """A file that a run wrote. before: the content that it replaces, while files are being moved.

    sizes: bytes of both. A file of another size is neither and need not be read; empty: not known (earlier versions).
    """

    sha256: str
    stage: str
    before: str = ""
    sizes: list[int] = []

    @classmethod
    def of(cls, path: Path, stage: str) -> "FileEntry":
        """The entry of a file with its content of now."""
        return cls(digest(path), stage, sizes=[path.stat().st_size])

    def replaces(self, old: "FileEntry | None") -> "FileEntry":
        """The entry while the file takes the place of an earlier one."""
        if old is None:
            return self
        sizes = [*self.sizes, *old.sizes] if self.sizes and old.sizes else []
        return FileEntry(self.sha256, self.stage, old.sha256, sizes)

    def has(self, path: Path) -> bool:
        """Whether a file has this content, or what it replaces."""
        if self.sizes and path.stat().st_size not in self.sizes:
            return False
        return digest(path) in (self.sha256, self.before)


class StageEntry(msgspec.Struct):
    """A complete stage. key: of everything it depends on; files: what it wrote, by name."""

    key: str
    seconds: float
    files: list[str]


class Manifest(msgspec.Struct):
    """The files that a run wrote into a folder. writing: files of the running stage, perhaps incomplete."""

    tpusim: str
    config: dict[str, Any] = {}
    stages: dict[str, StageEntry] = {}
    files: dict[str, FileEntry] = {}
    writing: list[str] = []

    @classmethod
    def read(cls, folder: Path) -> "Manifest | None":
        """The manifest of a folder; None without one, or if another kind of file has its name.

        Names that lead out of the folder are left out, with the stages that have one; so are unfinished files in a
        folder that no run works in.
        """
        path = folder / MANIFEST
        try:
            found = decode(path.read_bytes() if path.is_file() else b"", cls)
        except (OSError, msgspec.MsgspecError):
            return None
        found.files = {name: entry for name, entry in found.files.items() if is_file_name(name)}
        found.stages = {stage: e for stage, e in found.stages.items() if all(map(is_file_name, e.files))}
        found.writing = [name for name in found.writing if is_file_name(name)] if folder.name == UNFINISHED else []
        return found

    def write(self, folder: Path) -> None:
        """Write the manifest; its name appears only when the content is complete."""
        with replacing(folder / MANIFEST) as temporary:
            temporary.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")


def digest(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Folder:
    """A folder and what its manifest says of the files in it. known: the names that any run may write."""

    def __init__(self, path: Path, known: Collection[str]) -> None:
        self.path = path
        self.manifest = Manifest.read(path)
        self._known = {*known, MANIFEST}

    def owns(self, name: str) -> bool:
        """Whether a run wrote the file, as it is now."""
        path, found = self.path / name, self.manifest
        if found is None or name not in self._known or path.is_symlink() or not path.is_file():
            return False
        if name == MANIFEST or name in found.writing:
            return True
        entry = found.files.get(name)
        return entry is not None and entry.has(path)

    def require_free(self, names: Iterable[str], contents: Mapping[str, FileEntry] | None = None) -> None:
        """Raise ConfigError for a file that a run would replace and did not write, unless the contents are the same."""
        for name in names:
            if os.path.lexists(self.path / name) and not self.owns(name) and not self._has(name, contents or {}):
                known = self.manifest is not None and name in self.manifest.files
                why = "was changed since a run wrote it" if known else "was not written by a run"
                raise ConfigError(
                    f"{option('out')}: {self.path / name} {why} and would be lost; move it, or give another folder"
                )

    def _has(self, name: str, contents: Mapping[str, FileEntry]) -> bool:
        path = self.path / name
        return name in contents and path.is_file() and not path.is_symlink() and contents[name].has(path)

    def complete(self, keys: dict[str, str], *, edited: bool = False) -> list[str]:
        """The leading stages that are complete with these keys, and whose files are as recorded, or at least exist."""
        found: list[str] = []
        for stage, key in keys.items():
            entry = self.manifest.stages.get(stage) if self.manifest is not None else None
            if entry is None or entry.key != key:
                return found
            if not all(self._there(name) if edited else self.owns(name) for name in entry.files):
                return found
            found.append(stage)
        return found

    def _there(self, name: str) -> bool:
        return name in self._known and (self.path / name).is_file()

    def clear(self, keep: Iterable[str] = ()) -> None:
        """Remove what a run wrote, but for `keep`, and the folder if nothing else is in it."""
        if self.manifest is not None:
            written = [*self.manifest.files, *self.manifest.writing, MANIFEST]
            for name in set(written) - set(keep):
                if self.owns(name):
                    (self.path / name).unlink()
            self.manifest = Manifest.read(self.path)
        with suppress(OSError):
            self.path.rmdir()


def note_written(path: Path, command: str, known: Collection[str]) -> None:
    """Record that a command wrote a file of a run's folder by default, so that a later run may replace it.

    Stages that have this file are then no longer complete, because its content differs. Without a manifest, it is the
    user's.
    """
    manifest = Manifest.read(path.parent)
    if manifest is None or path.name not in known or path.is_symlink() or not path.is_file():
        return
    entry = manifest.files.get(path.name)
    if entry is not None and entry.has(path):
        return
    manifest.files[path.name] = FileEntry.of(path, command)
    stale = next((i for i, e in enumerate(manifest.stages.values()) if path.name in e.files), len(manifest.stages))
    manifest.stages = dict(list(manifest.stages.items())[:stale])
    manifest.write(path.parent)


class Store:
    """The folder of a run, open for one run: `with Store(out, names, version, known) as store`.

    names: every file the run may write; known: every file that any run may write, an earlier one included. Raises
    ConfigError on entering if another run has the folder, or if a file that no run wrote has one of the names.
    """

    def __init__(self, out: Path, names: Sequence[str], version: str, known: Collection[str] = ()) -> None:
        self.out = out
        self._known = {*known, *names}
        self.staging = out / UNFINISHED
        self._names = names
        self._version = version
        self._created = [p for p in (out, *out.parents) if not p.exists()]
        self._lock: FileLock | None = None
        self._manifest = Manifest(version)
        self._writer = ThreadPoolExecutor(1, "artefacts")
        self._under_way: list[Future[None]] = []

    def __enter__(self) -> Self:
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            self._lock = self._locked()
            self._require_no_link()
            self._folder(self.out).require_free((*self._names, MANIFEST))
            self._folder(self.staging).require_free((*self._names, MANIFEST))
        except OSError as error:
            raise self._unusable(error) from error
        except ConfigError:
            self._close()
            raise
        return self

    def _folder(self, path: Path) -> Folder:
        return Folder(path, self._known)

    def _require_no_link(self) -> None:
        if self.staging.is_symlink():
            raise ConfigError(
                f"{option('out', self.out)}: {self.staging} must be a folder in it, got a link; remove the link"
            )

    def _unusable(self, error: OSError) -> ConfigError:
        self._close()
        return ConfigError(
            f"{option('out', self.out)}: a folder to write to is required, got {error.strerror or error}"
        )

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        wait(self._under_way)
        if error is not None and self._manifest.stages:
            last = list(self._manifest.stages)[-1]
            error.add_note(
                f"finished up to '{last}', see {self.staging}; {option('resume', True)} continues from there"
            )
        elif error is not None and self._manifest.config:
            self._folder(self.staging).clear()
        self._close()

    def _close(self) -> None:
        self._writer.shutdown()
        if self._lock is not None:
            removed = _removed(self.out / LOCK)
            self._lock.release()
            if not removed:  # a system that removes no open file
                _removed(self.out / LOCK)
            self._lock = None
        for path in self._created:
            with suppress(OSError):
                path.rmdir()

    def _locked(self) -> "FileLock":
        """The lock that this run holds; the system frees it when the process ends, however that happens."""
        from filelock import FileLock, Timeout  # imports asyncio

        path = self.out / LOCK
        while True:
            _require_lock(path)
            path.touch()
            lock = FileLock(path, blocking=False, thread_local=False)
            with suppress(FileNotFoundError):
                before = path.stat().st_ino
                try:
                    lock.acquire()
                except Timeout:
                    raise ConfigError(
                        f"{option('out', self.out)}: another run (process {_holder(path)}) writes to it; wait for "
                        "it, or give another folder"
                    ) from None
                if path.stat().st_ino == before:
                    with suppress(OSError):  # a system that lets nobody write to a locked file
                        path.write_text(f"{os.getpid()}\n", encoding="ascii")
                    return lock
            lock.release()  # the run before removed its file while this one opened it

    def completed(self, keys: dict[str, str], *, edited: bool = False) -> tuple[Path, list[str]]:
        """(folder, leading stages) from which to continue: the unfinished run if it came as far as the finished one.

        keys: stage -> key of what it depends on. edited: files need not be as the run wrote them.
        """
        folders = self._folder(self.staging), self._folder(self.out)
        found = [(folder.path, folder.complete(keys, edited=edited)) for folder in folders]
        return max(found, key=lambda item: len(item[1]))

    def begin(self, config: dict[str, Any], source: Path, stages: Sequence[str]) -> None:
        """Prepare the unfinished folder: the files of complete `stages` of `source`, nothing else of an earlier run."""
        earlier = Manifest.read(source) or Manifest(self._version)
        entries = {stage: earlier.stages[stage] for stage in stages}
        reused = {name for entry in entries.values() for name in entry.files}
        self._manifest = Manifest(self._version, config)
        staging = self._folder(self.staging)
        staging.clear(keep=reused if source == self.staging else ())
        self.staging.mkdir(exist_ok=True)
        staging.require_free(reused if source != self.staging else ())
        for name in reused if source != self.staging else ():
            shutil.copy2(source / name, self.staging / name)
        for stage, entry in entries.items():
            self._record(stage, entry.key, entry.seconds, entry.files)
        self._manifest.write(self.staging)

    def seconds(self, stage: str) -> float:
        """How long a complete stage took."""
        return self._manifest.stages[stage].seconds

    def keep(self, stage: str, key: str, seconds: float, names: Sequence[str], write: Write) -> None:
        """Have a stage's files (those of `names` that it has) written into the unfinished folder, and record them.

        They are written later, but before those of the next stage. Raises what writing the last stage's files raised.
        """
        self.settle()
        self._under_way = [self._writer.submit(self._keep, stage, key, seconds, names, write)]

    def settle(self) -> None:
        """Wait for the files that are being written. Raises what writing them raised."""
        while self._under_way:
            wait(self._under_way)
            self._under_way.pop().result()

    def _keep(self, stage: str, key: str, seconds: float, names: Sequence[str], write: Write) -> None:
        self._manifest.writing = list(names)
        self._manifest.write(self.staging)
        write(self.staging)
        self._manifest.writing = []
        self._record(stage, key, seconds, [name for name in names if (self.staging / name).is_file()])
        self._manifest.write(self.staging)

    def _record(self, stage: str, key: str, seconds: float, names: list[str]) -> None:
        for name in names:
            self._manifest.files[name] = FileEntry.of(self.staging / name, stage)
        self._manifest.stages[stage] = StageEntry(key, seconds, names)

    def publish(self, spare: Callable[[Path], bool]) -> None:
        """Move the unfinished run to its place: its files, then its manifest; an earlier run's other files go.

        spare: which files of an earlier run stay, since this one read them. Raises ConfigError, and moves nothing, if a
        file in the way was changed while the run went on.
        """
        self.settle()
        target, new = self._folder(self.out), self._manifest.files
        target.require_free((*new, MANIFEST), new)
        old = target.manifest.files if target.manifest is not None else {}
        gone = {n: e for n, e in old.items() if n not in new and target.owns(n)}
        spared = {name: entry for name, entry in gone.items() if spare(self.out / name)}
        with _uninterrupted():
            before = {name: entry.replaces(old.get(name)) for name, entry in new.items()}
            msgspec.structs.replace(self._manifest, files={**gone, **before}).write(self.out)
            for name in new:
                (self.staging / name).replace(self.out / name)
            for name in set(gone) - set(spared):
                (self.out / name).unlink()
            msgspec.structs.replace(self._manifest, files={**spared, **new}).write(self.out)
            (self.staging / MANIFEST).unlink()
            with suppress(OSError):
                self.staging.rmdir()
        self._created = []


def _require_lock(path: Path) -> None:
    """Raise ConfigError if a link, or a file that is no lock, has the lock's name."""
    with suppress(FileNotFoundError):
        found = path.lstat()
        content = b""
        with suppress(OSError):  # a system that lets nobody read a locked file
            content = path.read_bytes() if stat.S_ISREG(found.st_mode) and found.st_size < _MOST else b"?"
        if found.st_nlink > 1 or not _HOLDER.fullmatch(content):
            raise ConfigError(
                f"{path}: the lock of a run is required, which this is not; remove it, or give another folder"
            )


def _removed(path: Path) -> bool:
    """Remove a file; whether it is gone."""
    with suppress(OSError):
        path.unlink(missing_ok=True)
        return True
    return False


def _holder(path: Path) -> str:
    """The process that wrote its number into a lock."""
    with suppress(OSError):
        return path.read_bytes()[:32].decode(errors="replace").strip() or "unknown"
    return "unknown"


@contextmanager
def _uninterrupted() -> Generator[None]:
    """Ctrl-C waits: for a few renames it must not come between. Only the main thread gets it anyway."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
    if came and callable(before):
        before(came[0], None)
