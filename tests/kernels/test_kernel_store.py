"""Kernels on disk: found without tracing, with the same bits, and only where they are the same kernels."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tpusim_kernels import store
from tpusim_kernels.base import kernel

X = np.linspace(-2, 2, 7, dtype=np.float32)


class Counted:
    """A kernel that counts how often it is traced; `new` is the same one in another process."""

    def __init__(self) -> None:
        self.traces = 0
        self.new()

    def new(self) -> None:
        def scaled(x: Any, by: Any, *, power: int = 1, mode: object = None) -> Any:
            self.traces += 1
            return x * by**power

        scaled.__module__ = "tpusim_kernels.base"
        self.call = kernel(static=("power", "mode"))(scaled)


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[Counted]:
    before = store.store()
    store.use(tmp_path)
    yield Counted()
    store.use(before.folder if before else None)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_another_process_finds_it_without_tracing(counted: Counted, tmp_path: Path) -> None:
    first = counted.call(X, jnp.float32(3))
    assert counted.traces == len(files(tmp_path)) == 1
    counted.new()
    again = counted.call(X, jnp.float32(3))
    assert counted.traces == 1 and type(again) is type(first) and again.dtype == jnp.float32
    assert np.asarray(again).tobytes() == np.asarray(first).tobytes() == (X * np.float32(3)).tobytes()


def test_fixed_arrays_are_described_once_and_others_anew(tmp_path: Path) -> None:
    """The file is that of the same function without fixed arrays; other arrays in their place are still seen."""
    before, fixed = store.store(), {"w": X}
    store.use(tmp_path)
    try:
        calls = [
            store.Stored(lambda w, x: w["w"].astype(x.dtype) * x, lambda: "product", fixed=f) for f in (fixed, None)
        ]
        for call in calls:
            for given in (fixed, fixed, {"w": X[:1]}, {"w": X.astype(np.float16)}):
                found = np.asarray(call(given, X[:1]))
                assert found.tobytes() == (given["w"].astype(np.float32) * X[:1]).tobytes()
        assert len(files(tmp_path)) == 3
    finally:
        store.use(before.folder if before else None)


def test_what_differs_is_another_kernel(counted: Counted, tmp_path: Path) -> None:
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((X, jnp.float32(3)), {}),
        ((X, jnp.float32(3)), {"power": 2}),
        ((X, jnp.float32(3)), {"power": 2, "mode": "half up"}),
        ((X, jnp.float32(3)), {"power": 2, "mode": "half to even"}),
        ((X[:5], jnp.float32(3)), {}),
        ((X.astype(np.int32), jnp.int32(3)), {}),
        ((X.astype(np.int32), 3), {}),
        ((), {"x": X, "by": jnp.float32(3)}),
    ]
    for number, (args, kwargs) in enumerate(calls, start=1):
        counted.call(*args, **kwargs)
        assert len(files(tmp_path)) == number
    assert counted.traces == len(calls)
    counted.new()
    for args, kwargs in calls:
        found = counted.call(*args, **kwargs)
        x, by = (*args, *kwargs.values())[:2] if args else (kwargs["x"], kwargs["by"])
        assert np.array_equal(found, x * np.asarray(by, x.dtype) ** kwargs.get("power", 1))
    assert counted.traces == len(calls)


def test_the_text_of_a_kernel_and_of_what_it_imports_is_part_of_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {
        "conv": "from tpusim_kernels.base import f32\nfrom tpusim_kernels.prim import rounding",
        "base": "import jax",
        "prim/rounding": "import tpusim_kernels.prim.scale",
        "prim/scale": "x = 1",
        "pool": "",
    }
    monkeypatch.setattr(store, "_FOLDER", tmp_path)
    (tmp_path / "prim").mkdir()
    found = list[str]()
    for changed in (None, *texts):
        for name, text in texts.items():
            (tmp_path / f"{name}.py").write_text(text + "\n# edited" * (name == changed))
        store._read.cache_clear()
        found.append(store.text_with_imports("tpusim_kernels.conv"))
    store._read.cache_clear()
    assert len(set(found)) == len(texts) and found[0] == found[-1]  # of pool nothing is imported
    assert store.text_with_imports("tpusim_kernels.base") != store.text_with_imports("tpusim_kernels.conv")


def test_another_processor_or_version_is_another_kernel(
    counted: Counted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted.call(X, jnp.float32(3))
    monkeypatch.setattr(store, "_surroundings", lambda: "another processor")
    counted.new()
    counted.call(X, jnp.float32(3))
    assert counted.traces == len(files(tmp_path)) == 2


@pytest.mark.parametrize("damage", [b"", b"short", None])
def test_a_damaged_file_is_made_anew(counted: Counted, tmp_path: Path, damage: bytes | None) -> None:
    counted.call(X, jnp.float32(3))
    (path,) = files(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]) if damage is None else damage)
    counted.new()
    assert np.array_equal(counted.call(X, jnp.float32(3)), X * 3)
    assert counted.traces == 2
    counted.new()
    assert np.array_equal(counted.call(X, jnp.float32(3)), X * 3)
    assert counted.traces == 2


def test_traces_of_others_and_unknown_attributes_are_not_stored(counted: Counted, tmp_path: Path) -> None:
    by = jnp.float32(3)
    expected = X * 3
    assert np.array_equal(jax.jit(lambda x: counted.call(x, by))(X), expected)
    assert np.array_equal(jax.jit(jax.vmap(lambda x: counted.call(x, by)))(X), expected)
    assert np.array_equal(jax.vmap(jax.jit(lambda x: counted.call(x, by)))(X), expected)
    assert np.array_equal(counted.call(X, by, mode=frozenset({1})), expected)
    with jax.disable_jit():
        assert np.array_equal(counted.call(X, by), expected)
    assert np.array_equal(kernel()(lambda x: x * 3)(X), expected)  # of another package, whose text is in no key
    store.use(None)
    assert np.array_equal(counted.call(X, by), expected)
    assert not files(tmp_path)


BATCH = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
BATCHED: dict[str, tuple[Callable[[Callable[..., Any]], Any], np.ndarray]] = {
    "an operand that all samples share": (lambda f: jax.vmap(lambda x: f(x, X[:4]))(BATCH), BATCH * X[:4]),
    "a number": (lambda f: jax.vmap(lambda x: f(x, 3.0))(BATCH), BATCH * np.float32(3)),
    "both operands": (lambda f: jax.vmap(f)(BATCH, BATCH[::-1]), BATCH * BATCH[::-1]),
    "the other operand": (lambda f: jax.vmap(lambda y: f(X[:4], y))(BATCH), X[:4] * BATCH),
    "another axis": (lambda f: jax.vmap(f, in_axes=(1, 0))(BATCH, X[:4]), BATCH.T * X[:4, None]),
    "by name": (lambda f: jax.vmap(lambda x, y: f(by=y, x=x))(BATCH, BATCH), BATCH * BATCH),
    "an attribute": (lambda f: jax.vmap(lambda x: f(x, X[:4], power=2))(BATCH), BATCH * X[:4] ** 2),
    "an array of a device": (lambda f: jax.vmap(f)(jnp.asarray(BATCH), jnp.asarray(BATCH)), BATCH * BATCH),
    "nested": (lambda f: jax.vmap(lambda x: f(jax.vmap(f)(x, x), x))(BATCH), BATCH**3),
}


@pytest.mark.every
@pytest.mark.parametrize("name", BATCHED)
def test_a_batch_outside_of_a_trace_is_stored_as_one_function(counted: Counted, tmp_path: Path, name: str) -> None:
    run, expected = BATCHED[name]
    first = run(counted.call)
    made, traces = files(tmp_path), counted.traces
    assert made and (len(made) == traces or name == "nested")
    counted.new()
    again = run(counted.call)
    assert files(tmp_path) == made and (counted.traces == traces or name == "nested")
    assert np.asarray(first).tobytes() == np.asarray(again).tobytes()
    np.testing.assert_allclose(again, expected, rtol=2e-7)


def test_several_results_of_a_batch_and_its_derivative(tmp_path: Path) -> None:
    """A result without an element of the batch is one for each sample; a gradient is taken through the batch."""

    def several(x: Any, y: Any) -> Any:
        return {"sum": x + y, "other": (y, x * y)}

    several.__module__ = "tpusim_kernels.base"
    before, call = store.store(), kernel()(several)
    store.use(tmp_path)
    try:
        found = jax.vmap(lambda x: call(x, X[:4]))(BATCH)
        assert len(files(tmp_path)) == 1
        np.testing.assert_array_equal(found["sum"], BATCH + X[:4])
        np.testing.assert_array_equal(found["other"][0], np.broadcast_to(X[:4], BATCH.shape))
        np.testing.assert_array_equal(found["other"][1], BATCH * X[:4])
        for one in (
            jax.vmap(jax.grad(lambda x: call(x, X[:4])["other"][1].sum())),
            jax.grad(lambda b: jax.vmap(lambda x: call(x, X[:4])["other"][1])(b).sum()),
        ):
            np.testing.assert_array_equal(one(BATCH), np.broadcast_to(X[:4], BATCH.shape))
    finally:
        store.use(before.folder if before else None)


def test_a_folder_that_cannot_be_written_changes_nothing(counted: Counted, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store.use(tmp_path / "file")
    with pytest.warns(store.StoreWarning, match="kept in this folder, .* set TPUSIM_KERNELS to a folder"):
        assert np.array_equal(counted.call(X, jnp.float32(3)), X * 3)
    counted.new()
    assert np.array_equal(counted.call(X, jnp.float32(3)), X * 3)  # said once
    assert [path.name for path in files(tmp_path)] == ["file"]


def test_a_write_that_fails_leaves_nothing(counted: Counted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, f"no space left for {target} from {source}")

    with monkeypatch.context() as patch, pytest.warns(store.StoreWarning, match="no space left"):
        patch.setattr(Path, "replace", full)
        assert np.array_equal(counted.call(X, jnp.float32(3)), X * 3)
    assert not files(tmp_path)


def test_what_cannot_be_loaded_is_made_anew(counted: Counted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(parts: object) -> None:
        raise jax.errors.JaxRuntimeError(f"INTERNAL: {type(parts).__name__} of another machine")

    counted.call(X, jnp.float32(3))
    assert len(files(tmp_path)) == 1
    counted.new()
    monkeypatch.setattr(store, "_loaded", refuses)
    assert np.array_equal(counted.call(X, jnp.float32(3)), X * 3)
    assert counted.traces == 2


def test_the_least_used_leave_a_full_folder(counted: Counted, tmp_path: Path) -> None:
    for power in range(4):
        counted.call(X, jnp.float32(3), power=power)
    sizes = [path.stat().st_size for path in files(tmp_path)]
    store.use(tmp_path, limit=sum(sizes) - 1)
    counted.new()
    counted.call(X, jnp.float32(3), power=0)  # loaded, thereby used last
    counted.call(X, jnp.float32(3), power=4)  # written, after at least half has left
    assert counted.traces == 5 and 2 <= len(files(tmp_path)) <= 3
    counted.new()
    counted.call(X, jnp.float32(3), power=0)
    counted.call(X, jnp.float32(3), power=4)
    assert counted.traces == 5


def test_the_folder_by_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(store, "_in_use", [])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TPUSIM_KERNELS", raising=False)
    for named, folder in ((None, tmp_path / "tpusim" / "kernels"), (str(tmp_path / "here"), tmp_path / "here")):
        if named:
            monkeypatch.setenv("TPUSIM_KERNELS", named)
        store._in_use.clear()
        found = store.store()
        assert found is not None and found.folder == folder
    monkeypatch.setenv("TPUSIM_KERNELS", "off")
    store._in_use.clear()
    assert store.store() is None


@pytest.mark.every
@pytest.mark.parametrize(
    ("function", "shapes", "quick"),
    [
        (lambda x: jnp.right_shift(x * x + 1, 2), [(64, 64)], True),
        (lambda x: jnp.right_shift(x * x + 1, 2), [(65, 64)], False),  # too large
        (lambda x: jnp.broadcast_to(x, (80, 60)).sum(1), [(60,)], False),  # what is inside counts too
        (lambda x: (x / 3).astype(jnp.int32), [(4,)], False),  # floats inside
        (lambda x: x.astype(jnp.bfloat16), [(4,)], False),
        (lambda x, w: jax.lax.conv(x, w, (1, 1), "SAME"), [(1, 2, 8, 8), (2, 2, 3, 3)], True),
        (lambda x, w: jax.lax.conv(x, w, (1, 1), "SAME"), [(1, 2, 9, 8), (8, 2, 3, 3)], False),
    ],
)
def test_only_small_integers_are_not_optimised(
    function: Callable[..., Any], shapes: list[tuple[int, ...]], quick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bits are those of optimised code, also where sums wrap around; an XLA without the options ignores them."""
    told = list[Mapping[str, str | bool]]()
    arrays = [np.random.default_rng(0).integers(-(2**31), 2**31, shape, dtype=np.int32) for shape in shapes]
    lowered = jax.jit(function).lower(*arrays)
    compiled = lowered.compile

    def compile_by(compiler_options: dict[str, str | bool] | None = None) -> jax.stages.Compiled:
        told.append(compiler_options or {})
        return compiled(compiler_options=compiler_options)

    monkeypatch.setattr(lowered, "compile", compile_by)
    found = np.asarray(store._quickly_compiled(lowered)(*arrays))
    assert told[0].get("xla_backend_optimization_level", "3") == ("0" if quick else "3")
    assert found.tobytes() == np.asarray(compiled()(*arrays)).tobytes()


def test_a_digest_of_a_folder_changes_with_every_name_and_byte(tmp_path: Path) -> None:
    digest, found = store.text_of.__wrapped__, list[str]()
    for name, text in (("a.py", "1"), ("a.py", "2"), ("b.py", ""), ("c/d.py", "")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        found.append(digest(tmp_path))
    (tmp_path / "notes.txt").write_text("nothing")
    assert len(set(found)) == 4 and digest(tmp_path) == found[-1]
