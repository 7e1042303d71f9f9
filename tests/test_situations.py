"""Situations in which a command may meet the system: a full disk, a kill, two at once, odd terminals and folders.

No traceback, no lost file, and the next step is named. Each is a separate process if the situation is one of a
process; the quick ones belong to the default tests.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from end_to_end import DIGITS, digits_run, hashes
from rich.text import Text

from tpusim.cli import entry, main
from tpusim.running.store import LOCK, MANIFEST, UNFINISHED

MODEL = str(DIGITS / "digits.onnx")
HERE = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
RUN = [MODEL, "--data", "random:2", "--tune-num", "0"]


def command(
    *words: str, shell: str = "", environment: dict[str, str] | None = None, **how: Any
) -> subprocess.CompletedProcess[str]:
    """`tpusim WORDS` in a separate process; shell: what a shell does before, or after a | a redirection."""
    call = [sys.executable, "-m", "tpusim", *words]
    if shell:
        before, _, redirection = shell.partition("|")
        call = ["sh", "-c", f'{before or ":"}; exec "$@" {redirection}', "sh", *call]
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
    return subprocess.run(call, text=True, env=HERE | (environment or {}), timeout=120, **how)


def explained(done: subprocess.CompletedProcess[str], *says: str, status: int = 1) -> None:
    """One message, without a traceback."""
    err = done.stderr or ""
    assert done.returncode == status and "Traceback" not in err and "Exception ignored" not in err, err
    assert err.splitlines()[-1].startswith("tpusim: ") and all(part in err for part in says), err


@pytest.fixture
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return digits_run(tmp_path_factory, "bm1684x", "int8")


@pytest.fixture
def out(run: Path, tmp_path: Path) -> Path:
    """A copy of a finished run."""
    shutil.copytree(run, tmp_path / "out")
    return tmp_path / "out"


# --- disks and pipes


@pytest.mark.parametrize("words", [["chips"], ["chips", "--json"], ["--help"], ["run", "--help"]])
def test_1_standard_output_is_full(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        explained(command(*words, stdout=full), "No space left on device", "make room, or write elsewhere")


def test_2_standard_error_is_full(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        assert command("chips", "show", "bm0", stderr=full).returncode == 1


SMALL_FILES = "ulimit -f 8"
"""No file of the process may have more than 4 or 8 KiB, by the shell's unit."""


def test_3_the_disk_is_full_for_a_module(tmp_path: Path) -> None:
    target = tmp_path / "1_top.mlir"
    target.write_text("mine")
    done = command("import", MODEL, "--out", str(target), shell=SMALL_FILES)
    explained(done, "cannot be written, File too large", "give a path")
    assert target.read_text() == "mine" and [path.name for path in tmp_path.iterdir()] == ["1_top.mlir"]


@pytest.mark.slow
def test_4_the_disk_is_full_for_a_run(out: Path) -> None:
    before = hashes(out)
    done = command("run", *RUN, "--out", str(out), shell=SMALL_FILES, environment={"TPUSIM_KERNELS": "off"})
    explained(done, "cannot be written, File too large")
    assert {name: value for name, value in hashes(out).items() if not name.startswith(UNFINISHED)} == before


@pytest.mark.parametrize("words", [["chips"], ["support", "--op", "Conv"], ["chips", "--json"], ["run", "--help"]])
def test_5_a_pipe_to_head(words: list[str]) -> None:
    """The reader goes before anything is written."""
    with subprocess.Popen(
        [sys.executable, "-m", "tpusim", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=HERE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode in (0, 1)


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_6_a_closed_stream(closed: int, run: Path) -> None:
    words = ["debug", str(run / "7_model.tpusim")] if closed == 0 else ["chips", "--json"]
    done = command(*words, shell=f"|{closed}{'<' if closed == 0 else '>'}&-")
    assert done.returncode == 0 and "Traceback" not in done.stderr + done.stdout


# --- interrupted, killed, two at once


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C reaches processes that begin inside; a shell's background jobs, as these tests may be, ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def begun(out: Path, *words: str) -> subprocess.Popen[str]:
    """A long calibration, when it has begun."""
    with interruptible():
        process = subprocess.Popen(
            [sys.executable, "-m", "tpusim", "run", MODEL, "--data", "random:4000", "--out", str(out), *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=HERE, start_new_session=True,
        )  # fmt: skip
    assert process.stderr is not None
    lines = [process.stderr.readline() for _ in range(2)]
    assert "canonicalize" in lines[1], lines
    return process


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_7_ctrl_c(jobs: str, out: Path) -> None:
    """Of the whole group of processes, as a terminal sends it."""
    before = hashes(out)
    process = begun(out, "--jobs", jobs)
    time.sleep(2)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130 and "Traceback" not in err and err.count("\n") == 1
    assert err.startswith("tpusim: interrupted; finished up to 'canonicalize'") and "--resume continues" in err
    assert {name: value for name, value in hashes(out).items() if not name.startswith(UNFINISHED)} == before


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_8_killed_and_resumed(number: signal.Signals, out: Path) -> None:
    before = hashes(out)
    process = begun(out)
    process.send_signal(number)
    process.communicate(timeout=30)
    kept = hashes(out)
    assert {name: kept[name] for name in before} == before  # a lock and an unfinished folder are left
    assert main(["run", *RUN, "--to", "calibrate", "--resume", "--out", str(out)]) == 0
    assert not (out / LOCK).exists() and not (out / UNFINISHED).exists()


@pytest.mark.slow
def test_9_two_at_once(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    process = begun(out)
    try:
        assert main(["run", *RUN, "--out", str(out)]) == 1
        err = capsys.readouterr().err
        assert f"another run (process {process.pid}) writes to it; wait for it, or give another folder" in err
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_10_two_at_once_in_two_folders_with_one_kernel_store(tmp_path: Path) -> None:
    words = ["run", *RUN, "--to", "infer"]
    environment = {**HERE, "TPUSIM_KERNELS": str(tmp_path / "kernels")}
    both = [
        subprocess.Popen([sys.executable, "-m", "tpusim", *words, "--out", str(tmp_path / name)], env=environment)
        for name in "ab"
    ]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    first, second = (np.load(tmp_path / name / "tpu_outputs.npz") for name in "ab")
    assert first.files == second.files and all(np.array_equal(first[key], second[key]) for key in first.files)


def test_11_ctrl_c_within_an_import_or_a_callback_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python only prints what a callback of its collector raises; the interrupt comes again a moment later."""

    def lost(words: list[str]) -> int:
        sys.unraisablehook(type("U", (), {"exc_type": KeyboardInterrupt, "exc_value": None, "object": None})())
        time.sleep(5)
        return 0

    monkeypatch.setattr(entry, "_execute", lost)
    with interruptible():
        begin = time.monotonic()
        assert main(["chips"]) == 130
        assert time.monotonic() - begin < 4


# --- homes, folders, names


@pytest.fixture
def no_kernels() -> object:
    """The store of kernels as it was."""
    from tpusim_kernels import store

    before = list(store._in_use)
    store._in_use.clear()
    yield
    store._in_use[:] = before


@pytest.mark.parametrize("variable", ["HOME", "XDG_CACHE_HOME", "TPUSIM_KERNELS"])
def test_12_folders_of_the_user_that_cannot_be_written(
    variable: str, out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], no_kernels: object
) -> None:
    from tpusim_kernels import store

    for name in ("XDG_CACHE_HOME", "TPUSIM_KERNELS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "/proc/nothing")
    found = store.store()
    assert found is not None
    monkeypatch.setattr(store, "_loaded", lambda parts: lambda *arrays, **named: 0)
    with pytest.warns(store.StoreWarning, match=r"/proc/nothing.*kept in this folder, .* or to off"):
        import jax

        found.put("ab" * 20, jax.jit(lambda x: x + 1).lower(np.ones(3, np.float32)).compile(), [], {})


def test_13_no_home_at_all(monkeypatch: pytest.MonkeyPatch, no_kernels: object) -> None:
    from tpusim_kernels import store

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("XDG_CACHE_HOME", "TPUSIM_KERNELS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.warns(store.StoreWarning, match="the user has no home folder; .* set TPUSIM_KERNELS"):
        assert store.store() is None


def test_14_the_working_directory_is_gone(tmp_path: Path) -> None:
    done = command("check", "m.onnx", shell=f"cd '{tmp_path}' && rmdir '{tmp_path}'")
    explained(done, "cd to a folder that exists")


@pytest.mark.parametrize("name", ["with blank.onnx", "caf\xe9 \N{SNOWMAN}.onnx", "two\nlines.onnx"])
def test_15_names_of_files(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(MODEL, tmp_path / name)
    assert main(["import", name, "--out", "1_top.mlir"]) == 0
    assert main(["import", f"no {name}"]) == 1
    assert "cannot be read" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["import", "caf\udce9.onnx"])  # a byte that is not UTF-8
    assert "rename the file" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["file", "dangling link", "folder of somebody"])
def test_16_places_to_write_to_that_are_taken(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "taken"
    if kind == "file":
        place.write_text("mine")
    elif kind == "dangling link":
        place.symlink_to(tmp_path / "nothing" / "there")
    else:
        place.mkdir()
        (place / MANIFEST).write_text("mine")
    before = hashes(tmp_path)
    assert main(["run", *RUN, "--out", str(place)]) == 1
    assert "--out" in capsys.readouterr().err and hashes(tmp_path) == before and os.path.lexists(place)


# --- terminals and limits


@pytest.mark.parametrize("columns", ["0", "1", "20", "x", "100000"])
def test_17_widths(columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["support", "--op", "Conv", "--chip", "bm1684"]) == 0
    assert "exact" in "".join(capsys.readouterr().out.split())


C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""Without the UTF-8 that Python would make of it."""


@pytest.mark.parametrize("more", [{"TERM": "dumb"}, {"NO_COLOR": "1"}, C_LOCALE, {"PYTHONIOENCODING": "cp1252"}])
def test_18_terminals(more: dict[str, str]) -> None:
    done = command("support", "--op", "Conv", environment=more)
    assert done.returncode == 0 and done.stderr == "" and "exact" in done.stdout


def test_19_a_real_terminal(tmp_path: Path) -> None:
    """80 columns of a pseudo-terminal: no line is wider, and control codes only where the terminal gets them."""
    import fcntl
    import pty
    import struct
    import termios

    first, second = pty.openpty()
    fcntl.ioctl(second, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {name: value for name, value in HERE.items() if name != "COLUMNS"} | {"TERM": "xterm"}
    words = [sys.executable, "-m", "tpusim", "check", MODEL]
    with subprocess.Popen(words, stdout=second, stderr=second, env=environment) as process:
        os.close(second)
        text = bytearray()
        while True:
            try:
                text += os.read(first, 65536)
            except OSError:
                break
    assert process.returncode == 0
    lines = [Text.from_ansi(line).plain for line in text.decode().splitlines()]
    assert max(map(len, lines)) <= 80 and any("Import" in line for line in lines)


def test_20_not_enough_memory(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    raising(monkeypatch, MemoryError())
    assert main(["chips"]) == 1
    assert "not enough memory; take a smaller batch" in capsys.readouterr().err


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fails(words: list[str]) -> int:
        raise error

    monkeypatch.setattr(entry, "_execute", fails)


@pytest.mark.parametrize(
    ("error", "says", "status"),
    [
        (ImportError("libjax.so: no segment"), "a library cannot be loaded, libjax.so", 1),
        (OSError(28, "No space left on device", "/tmp/x"), "/tmp/x: cannot be written, No space", 1),
        (OSError(122, "Disk quota exceeded"), "Disk quota exceeded; make room", 1),
        (OSError(36, "File name too long", "/tmp/x"), "/tmp/x: cannot be used, File name too long; give another", 1),
        (OSError(40, "Too many levels of symbolic links", "x"), "x: cannot be used, Too many levels", 1),
        (PermissionError(13, "Permission denied", "/root/x"), "/root/x: cannot be used, Permission denied", 1),
        (NotADirectoryError(20, "Not a directory", "a/b"), "a/b: cannot be used, Not a directory", 1),
        (FileExistsError(17, "File exists", "upstream"), "upstream: cannot be used, File exists", 1),
        (IsADirectoryError(21, "Is a directory", "a"), "a: cannot be used, Is a directory", 1),
        (KeyboardInterrupt(), "interrupted", 130),
        (BrokenPipeError(), "", 1),
    ],
)
def test_21_to_25_what_a_system_says(
    error: BaseException, says: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(monkeypatch, error)
    monkeypatch.setattr(entry, "_drop_output", lambda: None)
    assert main(["chips"]) == status
    err = capsys.readouterr().err
    assert says in err and "Traceback" not in err and err.count("\n") == bool(says)
    with pytest.raises(type(error)) if says else io.StringIO():
        assert main(["chips", "--debug"]) == 1
    monkeypatch.undo()
    if says and status == 1:
        raising(monkeypatch, OSError(13, "not of the disk"))
        with pytest.raises(OSError, match="not of the disk"):  # a defect of tpusim
            main(["chips"])


SITUATIONS: list[Callable[..., None]] = [value for name, value in globals().items() if name.startswith("test_")]


def test_there_are_at_least_twenty_five() -> None:
    assert len(SITUATIONS) >= 21  # the last of them has five


@pytest.mark.parametrize(
    "words",
    [
        ("check", "LONG"),
        ("run", "LONG"),
        ("run", "--again", "LONG"),
        ("compare", "LONG", "LONG"),
        ("infer", "LONG", "--input", "LONG"),
        ("run", MODEL, "--data", "LONG"),
        ("run", MODEL, "--qtable", "LONG"),
        ("run", MODEL, "--out", "LONG"),
    ],
)
def test_a_name_too_long_for_the_system_is_one_line(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["x" * 300 if word == "LONG" else str(word) for word in words]) == 1
    assert "File name too long; give another path" in capsys.readouterr().err
