"""Damaged and hostile files: a reader gives a result or a TpusimError, in bounded time and memory, whatever the bytes.

`make fuzz` runs over 10,000 new cases, `make slow` as many that are always the same, the default run a selection.
`within` turns a hang, an allocation out of proportion and any other exception into a failure.
"""

from __future__ import annotations

import io
import re
import resource
import signal
import tempfile
import zipfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import hostile_files
import msgspec
import numpy as np
import pytest
from compiling import to_program
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from networks import cached_lowered, cached_network, randomly_grouped

from tpusim.calibration.samples import load_samples
from tpusim.calibration.table import Entry, read_table
from tpusim.cli import main
from tpusim.errors import TpusimError
from tpusim.ir.module import load_model, save_model
from tpusim.ir.weights import load_weights
from tpusim.isa import archive
from tpusim.isa.listing import assemble, listing
from tpusim.isa.stream import load, save
from tpusim.lowering.qtable import read_qtable
from tpusim.ops import context
from tpusim.simulator import Simulator
from tpusim.verify.npz import load_tensors

SECONDS = 10
"""Longest time for one file of some kilobytes, on a busy machine."""
HEADROOM_BYTES = 6 << 30
"""Address space a reader may take beyond what the process has: far more than these files need, far less than the sizes
a flipped bit declares. (The machine's memories are of the size a program's header says, and untouched.)"""


@contextmanager
def within() -> Generator[None]:
    """Fail on a hang or an allocation out of proportion; a TpusimError is what a reader may raise."""

    def stop(*_: Any) -> None:
        pytest.fail(f"hangs: more than {SECONDS} s")

    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    limits = resource.getrlimit(resource.RLIMIT_AS)
    if pages:
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + HEADROOM_BYTES, limits[1]))
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    except TpusimError as error:
        assert len(str(error)) < 4000
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)


# ------------------------------------------------------------------------------------------------------------- readers


@cache
def folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="tpusim-fuzz-"))


def small_program() -> Any:
    model, _ = cached_lowered(1, "bm1684x", 3)
    return to_program(randomly_grouped(model, np.random.default_rng(5))[0])


def read_program(path: Path) -> None:
    load(path)


def run_program(path: Path) -> None:
    """Also what a program that was read does on the machine."""
    program = load(path)
    net = cached_network(1, 3)
    Simulator(program).run(net.feeds(), watch=True)


def read_module(path: Path) -> None:
    load_model(path, context())


def read_samples(path: Path) -> None:
    for _ in load_samples(str(path), {"x": ((1, 3, 4, 4), np.dtype(np.float32))}, 4):
        pass


def read_listing(path: Path) -> None:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return
    assemble(text, small_coefficients())


@cache
def small_coefficients() -> np.ndarray:
    return small_program().coefficients


READERS: dict[str, Callable[[Path], object]] = {
    "program": read_program,
    "listing": read_listing,
    "module": read_module,
    "table": read_table,
    "qtable": read_qtable,
    "tensors": load_tensors,
    "packed": load_tensors,
    "array": load_tensors,
    "weights": load_weights,
    "samples": read_samples,
}
SUFFIX = {"array": ".npy", "tensors": ".npz", "packed": ".npz", "weights": ".npz", "samples": ".npz"}


@cache
def valid(kind: str) -> bytes:
    """A file of this kind that can be read."""
    path = folder() / f"valid_{kind}{SUFFIX.get(kind, '')}"
    arrays = {"x": np.arange(96, dtype=np.float32).reshape(2, 3, 4, 4), "label": np.arange(2)}
    if kind == "program":
        save(small_program(), path)
    elif kind == "listing":
        path.write_text(listing(small_program()))
    elif kind == "module":
        save_model(cached_lowered(1, "bm1684x", 3)[0], path, weight_file="weights.npz")
    elif kind == "table":
        path.write_text(
            "# head\na 1.5 -1.5 1\nb inf 0 2\n#weight_scale\na_weight 2 0.1 0.2\n#asym_op\na\n#int4_th\nc 1 -1 1\n"
        )
    elif kind == "qtable":
        path.write_text("# head\nconv1 F32\nconv2 INT8\n\nconv3 bf16 # why\n")
    elif kind == "array":
        np.save(path, arrays["x"])
    else:
        (np.savez_compressed if kind == "packed" else np.savez)(path, **arrays)  # type: ignore[arg-type]
    return path.read_bytes()


def read_bytes(kind: str, data: bytes) -> None:
    path = folder() / f"case{SUFFIX.get(kind, '')}"
    path.write_bytes(data)
    with within():
        READERS[kind](path)


# ------------------------------------------------------------------------------------------------------------- damages


class Case(bytes):
    """The bytes of a file; a failure shows how they were made, not all of them."""

    made: str = ""

    def __repr__(self) -> str:
        return f"<{len(self)} bytes, {self.made or bytes(self[:200])!r}>"


FLIPS = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 7)), min_size=1, max_size=8)


def flipped(data: bytes, flips: list[tuple[float, int]]) -> Case:
    spoiled = bytearray(data)
    for place, bit in flips:
        spoiled[int(place * len(data))] ^= 1 << bit
    case = Case(spoiled)
    case.made = f"flips {flips}"
    return case


@st.composite
def spliced(draw: st.DrawFn, kind: str) -> Case:
    """A valid file with a piece cut out, repeated, or replaced by other bytes."""
    data = valid(kind)
    start, stop = sorted(draw(st.tuples(st.integers(0, len(data)), st.integers(0, len(data)))))
    middle = draw(
        st.sampled_from([b"", data[start:stop] * 2, b"\xff" * 8, b"\0" * 16, b"9" * 30]) | st.binary(max_size=40)
    )
    case = Case(data[:start] + middle + data[stop:])
    case.made = f"[{start}:{stop}] replaced by {middle[:60]!r}"
    return case


def damaged(kind: str) -> st.SearchStrategy[bytes]:
    data = valid(kind)
    magic = st.binary(max_size=200).map(lambda tail: data[:10] + tail)
    return st.one_of(FLIPS.map(lambda flips: flipped(data, flips)), spliced(kind), st.binary(max_size=400), magic)


COMMON: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "phases": (Phase.explicit, Phase.generate),
    "database": None,
}


@pytest.mark.parametrize("kind", READERS)
def test_valid_files_are_read(kind: str) -> None:
    path = folder() / f"good{SUFFIX.get(kind, '')}"
    path.write_bytes(valid(kind))
    READERS[kind](path)


@pytest.mark.parametrize("kind", READERS)
def test_some_damaged_files(kind: str) -> None:
    @settings(max_examples=20 if kind == "module" else 50, **COMMON)
    @given(damaged(kind))
    def check(data: bytes) -> None:
        read_bytes(kind, data)

    check()


@pytest.mark.slow
@pytest.mark.parametrize("kind", READERS)
def test_many_damaged_files(kind: str) -> None:
    @settings(max_examples=800 if kind == "module" else 1500, **COMMON)
    @given(damaged(kind))
    def check(data: bytes) -> None:
        read_bytes(kind, data)

    check()


# --------------------------------------------------------------------------------------- files made to fit their checks


def resigned(members: dict[str, bytes]) -> bytes:
    """A program file with these members whose checksums are right: damage beyond what checksums see."""
    header = msgspec.json.decode(members[archive.HEADER])
    header["checksums"] = {n: archive.checksum(d) for n, d in members.items() if n != archive.HEADER}
    members = {**members, archive.HEADER: msgspec.json.encode(header)}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as target:
        for name, data in members.items():
            target.writestr(name, data)
        target.comment = archive._MAGIC + archive.checksum(members[archive.HEADER]).encode()
    return buffer.getvalue()


@cache
def members_of_program() -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(valid("program"))) as found:
        return {name: found.read(name) for name in found.namelist()}


NUMBERS = st.sampled_from(b"0 -1 1 2 7 64 65535 65536 2147483647 1152921504606846976 99999999999999999999".split())
EDITED = ("commands.txt", "commands.txt", "tensors.json", "groups.json", "slices.jsonl", "header.json")


@st.composite
def edited_programs(draw: st.DrawFn) -> Case:
    """Some numbers of the text members replaced by others; checksums fit."""
    members = dict(members_of_program())
    name = draw(st.sampled_from(EDITED))
    data, edits = members[name], [name]
    for _ in range(draw(st.integers(1, 3))):
        places = [i for i, byte in enumerate(data) if chr(byte).isdigit()]
        start = stop = draw(st.sampled_from(places))
        while stop < len(data) and chr(data[stop]).isdigit():
            stop += 1
        number = draw(NUMBERS)
        edits.append(f"{data[max(0, start - 60) : stop].decode()} -> {number.decode()}")
        data = data[:start] + number + data[stop:]
    members[name] = data
    try:
        case = Case(resigned(members))
    except (msgspec.DecodeError, TypeError):
        case = Case(resigned(members_of_program()))
    case.made = str(edits)
    return case


def check_edited(examples: int) -> None:
    path = folder() / "edited.tpusim"

    @settings(max_examples=examples, **COMMON)
    @given(edited_programs())
    def check(data: bytes) -> None:
        path.write_bytes(data)
        with within():
            run_program(path)

    check()


def test_some_edited_programs_run_or_are_refused() -> None:
    check_edited(20)


@pytest.mark.slow
def test_many_edited_programs_run_or_are_refused() -> None:
    check_edited(300)


def npy(shape: str, descr: str = "'<f4'", body: bytes = bytes(16), version: bytes = b"\x01\x00") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY" + version + len(header).to_bytes(2 if version[0] == 1 else 4, "little") + header + body


HOSTILE = {
    "terabytes": npy("(1099511627776,)"),
    "more digits than an int has": npy(f"({'9' * 6000},)"),
    "negative": npy("(-4,)"),
    "no elements of huge axes": npy("(0, 4611686018427387904, 4)", body=b""),
    "elements without bytes": npy("(1099511627776,)", "'|V0'", b""),
    "objects": npy("(2,)", "'|O'"),
    "objects in a struct": npy("(2,)", "[('a', '|O')]"),
    "deep": npy("(" * 3000 + ")" * 3000),
    "minus signs": npy("(" + "-" * 4000 + "1,)"),
    "call": npy("(__import__('os').getpid(),)"),
    "newer": npy("(4,)", version=b"\x09\x00"),
    "long header": b"\x93NUMPY\x02\x00" + b"\xff" * 40,
    "pickle": b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("packed", [None, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_hostile_arrays_are_refused(name: str, packed: int | None, tmp_path: Path) -> None:
    path = tmp_path / ("x.npy" if packed is None else "x.npz")
    if packed is None:
        path.write_bytes(HOSTILE[name])
    else:
        with zipfile.ZipFile(path, "w", packed) as target:
            target.writestr("x.npy", HOSTILE[name])
    for reader in (load_tensors, load_weights, read_samples):
        refused = False
        with within():
            try:
                reader(path)
            except TpusimError:
                refused = True
        assert refused


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions_are_refused(method: int, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w", method) as target:
        target.writestr("x.npy", npy("(4,)"))
    with pytest.raises(TpusimError, match=rf"method 0 \(stored\) or 8 \(deflate\) is required, got {method}"):
        load_tensors(tmp_path / "x.npz")


def test_calibration_tables_are_not_evaluated(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("a 1.5 -1.5 1\n")
    assert read_table(tmp_path / "t").entries == {"a": Entry(1.5, -1.5, 1.0)}
    for line in ("a __import__('os') 0 1", "a 1e1000000 nan 1", "a 1_0 0 1", "a \u0661 0 1"):
        (tmp_path / "t").write_text(line)
        with pytest.raises(TpusimError):
            read_table(tmp_path / "t")


# ----------------------------------------------------------------------------------------------------- every command


DEVICES = {
    "a.npz": lambda path: ["compare", path, path],
    "a.onnx": lambda path: ["fit", path],
    "a.tflite": lambda path: ["fit", path],
    "a.mlir": lambda path: ["group", path],
    "a.mlirbc": lambda path: ["inspect", path],
    "a.tpusim": lambda path: ["dis", path],
    "a.txt": lambda path: ["asm", path, "--coefficients", path, "--out", f"{path}.tpusim"],
    "a.toml": lambda path: ["chips", "show", path],
    "a.json": lambda path: ["explore-diff", path, path],
}


@pytest.mark.parametrize("name", DEVICES)
def test_devices_are_not_read_to_their_end(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A link to a device without an end: a file is required, and memory does not grow."""
    path = tmp_path / name
    path.symlink_to("/dev/zero")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert main(DEVICES[name](str(path))) == 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB, imports included
    assert re.search("is a device|is no program and no file of MLIR", capsys.readouterr().err)


def test_tables_and_weights_that_are_devices_are_refused() -> None:
    for read in (load_weights, load_tensors, read_table, load):
        with pytest.raises(TpusimError, match="is a device"):
            read(Path("/dev/zero"))


@pytest.mark.slow
def test_damaged_files_through_every_command(tmp_path: Path) -> None:
    """`make hostile` tries 8,000; the address space of this process is not limited."""
    run = hostile_files.artefacts(tmp_path)
    folder = tmp_path / "files"
    folder.mkdir()
    found = [hostile_files.case(run, folder, seed) for seed in range(10_000, 10_200)]
    assert [one for one in found if one[1]] == []
