"""Compiled kernels kept on disk and loaded without being traced again.

The key of JAX's compilation cache is known only after tracing and lowering; for kernels as small as these that costs
more (20 to 40 ms) than anything else. Here the key is what a kernel depends on: its name and attributes, the shapes and
dtypes of its arrays, the text of its module and of the modules that it imports, the versions and flags of JAX and XLA,
and the processor. Loading takes a few milliseconds. Kernels inside another trace are not looked up; those in a
`jax.vmap` outside of a trace are, as functions of the whole batch.

A file holds machine code, and JAX's form of it is a pickle: loading it can run anything. So a file is loaded only if it
is this user's or the administrator's and nobody else can write it, and a folder that others can write is not used.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import math
import os
import pickle
import platform
import re
import secrets
import stat
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np

from tpusim_kernels.batches import Axis, is_batched, on_whole_batch
from tpusim_kernels.lazy import is_traced, jax
from tpusim_kernels.prim.forms import choice, processor

Key = tuple[object, ...]

DIGEST = 32
"""Bytes of the SHA-256 at the head of every file, which covers its key and the rest of the file."""
_FORM = 4
"""The form of the files and how they are compiled, which is part of every key."""
_QUICK: dict[str, str | bool] = {"xla_cpu_use_fusion_emitters": False}
_QUICKEST = _QUICK | {"xla_backend_optimization_level": "0"}
_FLOAT = re.compile(r"[x<](?:bf16|f\d+)")
"""A type in the text of a module; without any, there is no rounding that LLVM's optimisations could change."""
_EXTENTS = re.compile(r"tensor<((?:\d+x)+)")
SMALL = {"stablehlo.convolution": 512, "": 4096}
"""Elements, by what is in a kernel: integer kernels whose largest array has no more are compiled without LLVM's
optimisations. A call takes 0.04 to 0.065 ms then, at most 0.01 more; a convolution of 1,000 elements 1.6 ms."""
_KERNEL = re.compile(r"[0-9a-f]{2}/[0-9a-f]+")
"""The path of a kernel in the folder."""
_USER = getattr(os, "geteuid", None)
"""The user of this process; None on Windows."""
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_FOLDER = Path(__file__).parent
LIMIT = 1 << 30
"""If the folder exceeds so many bytes, the least recently used kernels are removed until half of it is left."""


class StoreWarning(UserWarning):
    """Kernels cannot be kept on disk."""


class KernelStore:
    """Executables in one folder. Another process may use the folder at the same time."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self.folder, self._limit, self._pruned, self._failed = folder, limit, False, False
        self._refused: bool | None = None

    def get(self, key: str) -> jax.stages.Compiled | None:
        """The executable in the file of this key.

        None if the file is missing, damaged, cannot be loaded, or could have been written by another user.
        """
        if self._is_refused():
            return None
        path = self._path(key)
        with suppress(OSError, jax.errors.JaxRuntimeError):
            raw = _read_trusted(path)
            content = raw[DIGEST:]
            if _digest(key, content) == raw[:DIGEST]:
                found = _loaded(pickle.loads(content))
                with suppress(OSError):  # a read-only folder
                    os.utime(path)  # its last use, for `_prune`
                return found
        return None

    def put(self, key: str, made: jax.stages.Compiled, arrays: Sequence[Any], named: Mapping[str, Any]) -> None:
        """Write an executable that runs on these arguments.

        Executables that JAX cannot write are not stored: those with captured constants, and those that JAX loaded from
        its compilation cache, which lack their functions when they are written again (this shows only when they run).
        A full or read-only folder is left unchanged, with one StoreWarning.
        """
        if self._failed or self._is_refused():
            return
        try:
            parts = _serialize_executable().serialize(made)
            jax.block_until_ready(_loaded(parts)(*arrays, **named))
            self._write(key, pickle.dumps(parts))
        except (NotImplementedError, jax.errors.JaxRuntimeError):
            return
        except OSError as error:
            self._failed = True
            _warn(f"{self.folder}: kernels cannot be kept in this folder, {error.strerror or error}")

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key[2:]

    def _is_refused(self) -> bool:
        """Whether somebody else can write the folder, which is said once, as a StoreWarning; no folder is nobody's."""
        if self._refused is None:
            why = ""
            with suppress(OSError):
                why = _why_untrusted(self.folder.stat())
            self._refused = bool(why)
            if why:
                _warn(f"{self.folder}: kernels are code and not kept in a folder that {why}")
        return self._refused

    def _write(self, key: str, content: bytes) -> None:
        path = self._path(key)
        if not self._pruned:
            self._pruned = True
            self._prune()
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        for folder in (self.folder, path.parent):
            folder.mkdir(0o700, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            written = Path(file.name)
            try:
                file.write(_digest(key, content) + content)
                file.close()  # Windows renames no open file
                written.replace(path)
            except OSError:
                file.close()
                written.unlink(missing_ok=True)  # the disk is full: nothing half written stays
                raise

    def _prune(self) -> None:
        files: list[tuple[os.stat_result, Path]] = []
        for entry in self.folder.glob("*/*"):
            if not _KERNEL.fullmatch(entry.relative_to(self.folder).as_posix()):
                continue  # the folder is one that the user named: whatever else is in it is none of ours
            with suppress(FileNotFoundError):  # another process removed it
                files.append((entry.stat(), entry))
        total = sum(stat.st_size for stat, _ in files)
        if total <= self._limit:
            return
        for found, entry in sorted(files, key=lambda file: file[0].st_mtime):
            if total <= self._limit // 2:
                return
            entry.unlink(missing_ok=True)
            total -= found.st_size


def _digest(key: str, content: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\0" + content).digest()


def _why_untrusted(found: os.stat_result) -> str:
    """Who else can write a file or folder; "" if nobody but this user and the administrator can.

    Windows has neither owners nor modes here: a folder of the user's profile is its user's.
    """
    if _USER is None:
        return ""
    if found.st_uid not in (0, _USER()):
        return "belongs to another user"
    return "others can write" if found.st_mode & _OTHERS else ""


def _read_trusted(path: Path) -> bytes:
    """The bytes of a file that nobody else could have written. Raises OSError for another one, and for a link."""
    number = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
    with open(number, "rb") as file:
        found = os.fstat(number)
        if _why_untrusted(found) or not stat.S_ISREG(found.st_mode):
            raise PermissionError(path)
        return file.read()


def _warn(text: str) -> None:
    advice = f"every run compiles them anew: set {_VARIABLE} to a folder that only you may write to, or to off"
    warnings.warn(f"{text}; {advice}", StoreWarning, stacklevel=3)


def _serialize_executable() -> ModuleType:
    from jax.experimental import serialize_executable  # not loaded with JAX itself

    return serialize_executable


def _loaded(parts: tuple[Any, ...]) -> jax.stages.Compiled:
    return _serialize_executable().deserialize_and_load(*parts, execution_devices=[_device()])


def _quickly_compiled(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    """The executable of one kernel, by XLA's older emitters on a CPU: same bits and speed, a third less to compile.

    Small kernels of integers are not optimised either, which halves the rest. Floats are: without optimisation LLVM
    contracts no product with a sum, which gives other bits. Whole graphs, which XLA has more to fuse in, do without all
    this. A version of XLA that has no such options does, too.
    """
    if _device().platform == "cpu":
        with suppress(jax.errors.JaxRuntimeError):
            return lowered.compile(compiler_options=_QUICKEST if _is_small_integer(lowered.as_text()) else _QUICK)
    return lowered.compile()


def _is_small_integer(text: str) -> bool:
    """Whether a StableHLO module has no floats, and no array of more than SMALL elements."""
    if _FLOAT.search(text):
        return False
    most = next(elements for name, elements in SMALL.items() if name in text)
    return all(math.prod(map(int, extents[:-1].split("x"))) <= most for extents in set(_EXTENTS.findall(text)))


# ------------------------------------------------------------------------------------------------------------- keys


@functools.cache
def _device() -> Any:
    return jax.local_devices()[0]


@functools.cache
def text_of(folder: Path) -> str:
    """A digest of every Python file in a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def text_with_imports(module: str) -> str:
    """A digest of a module of this package and of all of the package that it imports, at any distance."""
    texts: dict[str, str] = {}
    left = {module}
    while left:
        name = left.pop()
        path = _FOLDER.joinpath(*name.split(".")[1:]).with_suffix(".py")
        if name != __name__ and name not in texts and path.is_file():  # this module does not change what is computed
            texts[name], imported = _read(path)
            left |= imported
    return hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest()


_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]+)|import[ \t]+([^\n]+))", re.MULTILINE
)
_NAME = re.compile(r"[\w.]+")


@functools.cache
def _read(path: Path) -> tuple[str, frozenset[str]]:
    """(text of a module, modules that it may import and names that may be modules).

    Imports are matched by a pattern: parsing all modules costs as much as loading the kernels of a network.
    """
    text = path.read_text(encoding="utf-8")
    found: set[str] = set()
    for module, names, plain in _IMPORT.findall(text):
        found |= {module, *(f"{module}.{name}" for name in _NAME.findall(names))} if module else {*_NAME.findall(plain)}
    return text, frozenset(found)


def _processor() -> str:
    """The features of the host's processor if the system lists them, otherwise the processor's name."""
    return "\n".join(processor()) or f"{platform.machine()} {platform.processor()}"


@functools.cache
def _surroundings() -> str:
    """Everything that an executable depends on except its kernel."""
    device = _device()
    parts = (
        jax.__version__, platform.python_version(), np.__version__, _processor(),
        device.platform, device.device_kind, device.client.platform_version, os.environ.get("XLA_FLAGS"),
    )  # fmt: skip
    return repr(parts)


def _must_trace() -> bool:
    """Whether JAX is told to do more than run an executable on its first device."""
    config: Any = jax.config
    return config.jax_disable_jit or config.jax_debug_nans or config.jax_default_device is not None


def _disk_key(identity: str, known: Key) -> str:
    """The name of an executable's file, from the key that this process uses for it."""
    return hashlib.sha256(repr((_FORM, identity, known, _surroundings())).encode()).hexdigest()


class _Unknown(Exception):
    """A kernel cannot be identified by these arguments."""


def _described(value: object) -> object:
    """A compile-time attribute as a value whose `repr` identifies it completely."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Enum):
        return f"{type(value).__qualname__}.{value.name}"
    if isinstance(value, (tuple, list)):
        return type(value).__name__, *(_described(v) for v in cast("Sequence[object]", value))
    if isinstance(value, (np.dtype, type)) or hasattr(value, "dtype"):
        return f"dtype {np.dtype(cast('Any', value)).name}"
    raise _Unknown


def _are_batched(arrays: Any) -> bool:
    """Whether all traced arrays are samples of a batch that is not traced itself; there is at least one."""
    traced = [leaf for leaf in jax.tree.leaves(arrays) if is_traced(leaf)]
    return bool(traced) and all(map(is_batched, traced))


@functools.cache
def _name_of(dtype: Any) -> str:
    """The name of a dtype, cached: NumPy builds it anew each time, which takes as long as the rest of a key."""
    return dtype.name


def _aval(leaf: Any) -> object:
    """Shape and dtype of a dynamic argument, which must be a concrete array on the first device."""
    if is_traced(leaf) or (isinstance(leaf, jax.Array) and leaf.sharding.device_set != {_device()}):
        raise _Unknown
    if isinstance(leaf, jax.Array):
        return leaf.shape, _name_of(leaf.dtype), leaf.weak_type
    if isinstance(leaf, (np.ndarray, np.generic)):
        return leaf.shape, _name_of(leaf.dtype)
    return type(leaf).__name__


def _signature(arrays: Any) -> Key:
    """Structure, shapes and dtypes of dynamic arguments."""
    leaves, tree = jax.tree.flatten(arrays)
    return str(tree), *(_aval(leaf) for leaf in leaves)


# ------------------------------------------------------------------------------------------------- the store in use


_VARIABLE = "TPUSIM_KERNELS"
_in_use: list[KernelStore | None] = []


def store() -> KernelStore | None:
    """The store that kernels are looked up in.

    By default the folder `tpusim/kernels` of the user's cache (`XDG_CACHE_HOME`, else `~/.cache`); the environment
    variable TPUSIM_KERNELS names another one, or is "off".
    """
    if not _in_use:
        named = os.environ.get(_VARIABLE)
        use(None if named == "off" else Path(named) if named else _of_user())
    return _in_use[0]


def _of_user() -> Path | None:
    """The folder in the user's cache, closed to others; None if the system knows no home of the user."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tpusim" / "kernels"
    except RuntimeError:
        _warn("kernels cannot be kept, the user has no home folder")
        return None
    with suppress(OSError):  # under a umask of 002 older versions made it writable by the user's group
        mode = folder.stat().st_mode
        if mode & _OTHERS:
            folder.chmod(stat.S_IMODE(mode) & ~_OTHERS)
    return folder


def use(folder: Path | None, limit: int = LIMIT) -> KernelStore | None:
    """Keep kernels in `folder` from now on; None: nowhere. limit: bytes, enforced when a process starts to write."""
    _in_use[:] = [KernelStore(folder, limit) if folder is not None else None]
    return _in_use[0]


def _distinct(body: Callable[..., Any]) -> Callable[..., Any]:
    """The same function as a new object, so that JAX does not reuse a trace made under another `forms.choice`."""

    @functools.wraps(body)
    def distinct(*args: Any, **kwargs: Any) -> Any:
        return body(*args, **kwargs)

    return distinct


class Stored:
    """A function of arrays compiled like `jax.jit`, with the executables of this process in memory and others on disk.

    identity: called at the first call, names everything that the function depends on apart from its arguments and JAX;
    None if the function is not to be stored. fixed: arrays that are the first argument of every call, described once.
    """

    def __init__(
        self,
        body: Callable[..., Any],
        identity: Callable[[], str | None],
        static: Sequence[str] = (),
        *,
        inline: bool = False,
        fixed: Any = None,
    ) -> None:
        self._body, self._static, self._inline, self._fixed = body, frozenset(static), inline, fixed
        self._fixed_key = functools.cache(lambda: _signature([fixed]))
        self._identity = functools.cache(identity)
        self._at = tuple(i for i, name in enumerate(inspect.signature(body).parameters) if name in self._static)
        self._by_choice: dict[tuple[str, bool, bool], Any] = {}
        self._known: dict[Key, jax.stages.Compiled] = {}

    def _traced(self) -> Any:
        """The jitted function for the choice in use (`prim.forms.choice`)."""
        chosen = choice()
        if chosen not in self._by_choice:
            self._by_choice[chosen] = self._jitted(_distinct(self._body))
        return self._by_choice[chosen]

    def _jitted(self, body: Callable[..., Any]) -> Any:
        return jax.jit(body, static_argnames=tuple(self._static), inline=self._inline)

    def _compiled(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> jax.stages.Compiled:
        """The function compiled under a new name: an executable that JAX loads from its cache cannot be written."""

        @functools.wraps(self._body)
        def named(*args: Any, **kwargs: Any) -> Any:
            return self._body(*args, **kwargs)

        named.__name__ = f"{self._body.__name__}_{secrets.token_hex(4)}"
        lowered = self._jitted(named).lower(*args, **kwargs)
        return _quickly_compiled(lowered) if self._fixed is None else lowered.compile()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it on these arguments, without tracing if its executable is known."""
        kept, identity = store(), self._identity()
        if kept is None or identity is None or _must_trace():
            return self._traced()(*args, **kwargs)
        arrays = [a for i, a in enumerate(args) if i not in self._at]
        named = {k: v for k, v in kwargs.items() if k not in self._static}
        try:
            key = self._key(args, kwargs, arrays, named)
        except _Unknown:
            if _are_batched((arrays, named)):
                return self._on_batch(args, kwargs, arrays, named)
            return self._traced()(*args, **kwargs)
        run = self._known.get(key)
        if run is None:
            name = _disk_key(identity, key)
            run = kept.get(name)
            if run is None:
                run = self._compiled(args, kwargs)
                kept.put(name, run, arrays, named)
            self._known[key] = run
        return run(*arrays, **named)

    def _on_batch(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], arrays: list[Any], named: Mapping[str, Any]
    ) -> Any:
        """Run it on every sample of a batch, as one function that is stored as well."""
        leaves, tree = jax.tree.flatten((arrays, named))
        at = [i for i, leaf in enumerate(leaves) if is_batched(leaf)]
        attributes = tuple((i, args[i]) for i in self._at if i < len(args))
        more = tuple((k, kwargs[k]) for k in sorted(self._static & kwargs.keys()))
        form: list[Any] = []

        def whole(batches: Sequence[Any], axes: Sequence[Axis]) -> Sequence[Any]:
            given, along = dict(zip(at, batches, strict=True)), dict(zip(at, axes, strict=True))
            filled = tree.unflatten([given.get(i, leaf) for i, leaf in enumerate(leaves)])
            every = tuple(along.get(i) for i in range(len(leaves)))
            results, of_results = jax.tree.flatten(self._of_each(*filled, every, attributes, more))
            form.append(of_results)
            return results

        results = on_whole_batch(whole, [leaves[i] for i in at])
        return form[0].unflatten(results)

    @functools.cached_property
    def _of_each(self) -> Stored:
        """The function mapped over samples. axes: of the leaves of arrays and named; the others are its attributes."""

        def of_each(
            arrays: list[Any],
            named: dict[str, Any],
            axes: tuple[Axis, ...],
            attributes: tuple[tuple[int, Any], ...],
            more: tuple[tuple[str, Any], ...],
        ) -> Any:
            leaves, tree = jax.tree.flatten((arrays, named))

            def one(*own: Any) -> Any:
                args, kwargs = tree.unflatten(own)
                for i, value in attributes:
                    args.insert(i, value)
                return self._body(*args, **kwargs, **dict(more))

            return cast("Any", jax).vmap(one, in_axes=axes)(*leaves)

        def identity() -> str | None:
            alone = self._identity()
            return alone and f"{alone} on each sample"

        return Stored(of_each, identity, ("axes", "attributes", "more"))

    def _key(self, args: Sequence[Any], kwargs: Mapping[str, Any], arrays: list[Any], named: Mapping[str, Any]) -> Key:
        known = self._fixed is not None and bool(arrays) and arrays[0] is self._fixed
        signature = _signature((arrays[1:], named)), self._fixed_key() if known else _signature(arrays[:1])
        attributes = tuple((i, _described(args[i])) for i in self._at if i < len(args))
        more = tuple((k, _described(kwargs[k])) for k in sorted(self._static & kwargs.keys()))
        config: Any = jax.config
        how = config.jax_default_matmul_precision, config.read("jax_disable_most_optimizations"), choice()
        return attributes, more, signature, how
