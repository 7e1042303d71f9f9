"""Streams as text and as files: text assembles to the same stream, files that are not whole and true are refused."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from builders.commands import LEGAL, make
from builders.commands import program as hand_built
from compiling import to_groups, to_program
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from networks import CHIPS, cached_lowered, randomly_grouped
from op_cases import CASES
from rotation import slow_marks
from rows import lowered
from streams import Builder, lmem, neuron

from tpusim.errors import ImportModelError
from tpusim.isa import archive, functions
from tpusim.isa.commands import Arith, Command, Fill, Fn, Move, Requant, Select
from tpusim.isa.listing import assemble, extract, listing
from tpusim.isa.region import View
from tpusim.isa.stream import Program, load, save
from tpusim.isa.text import command_line, parse_command, view_text
from tpusim.registry import COMMANDS

ROWS = tuple(case for i, case in enumerate(CASES) if i % 9 == 2)


def identical(one: object, other: object) -> None:
    """Equal, the sign of zero included; a whole number in a field of floats may come back as a float."""
    assert one == other
    assert repr(one).count("-0.0") == repr(other).count("-0.0")


def assert_same_program(one: Program, other: Program) -> None:
    identical(one.commands, other.commands)
    identical((one.tensors, one.groups, one.locations), (other.tensors, other.groups, other.locations))
    identical(structs.replace(one.header, checksums={}), structs.replace(other.header, checksums={}))
    np.testing.assert_array_equal(one.coefficients, other.coefficients)


def assert_round_trips(program: Program, folder: Path) -> None:
    text = listing(program)
    assert_same_program(assemble(text, program.coefficients), program)
    assert listing(assemble(text, program.coefficients)) == text
    path = folder / "program.tpusim"
    save(program, path)
    assert_same_program(load(path), program)


# ---------------------------------------------------------------------------------------------------------------- text


@pytest.mark.parametrize("command", LEGAL, ids=lambda c: type(c).__name__)
def test_a_command_is_one_line(command: Command) -> None:
    line = command_line(command)
    assert "\n" not in line
    identical(parse_command(line), command)


def test_every_opcode_has_a_legal_example() -> None:
    missing = set(COMMANDS) - {str(c.__struct_config__.tag) for c in LEGAL}
    rows = {"compare", "where", "channel_rescale", "float_lut"}  # round-tripped by op rows
    messages = {"send_msg", "wait_msg", "dma_send_msg", "dma_wait_msg"}  # by test_machine_cores.py
    assert missing <= rows | messages


def test_a_line_reads_well() -> None:
    a = lmem(64, (1, 3, 4, 4))
    output = lmem(0x200, (4, 3, 4, 4), "i8", "strided", strides=(16, 16, 4, 1), interleave=4, lane=7)
    command = make(Arith, id=12, dep=3, op="/block 1/Add", step="n0h2", kind="add", a=a, b=-1.5, output=output)
    assert command_line(command).split() == [
        "tiu", "12", "dep=3", "arith", 'op="/block', '1/Add"', "step=n0h2", "kind=add",
        "a=lmem:0x40:1x3x4x4:i8:aligned", "b=-1.5",
        "output=lmem:0x200:4x3x4x4:i8:strided:strides=16,16,4,1:interleave=4:lane=7",
    ]  # fmt: skip
    identical(parse_command(command_line(command)), command)


FLOATS = st.floats(allow_nan=False)
WHOLE = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4).map(tuple)
NAMES = st.text(max_size=12) | st.sampled_from(
    ["true", "null", "NaN", "Infinity", "computes", "a=b", "lmem:0", ";", ""]
)
LENGTHS = st.integers(0, 70000)


@st.composite
def views(draw: st.DrawFn) -> View:
    shape = tuple(draw(st.lists(LENGTHS, max_size=5)))
    strides = draw(st.none() | st.lists(st.integers(0, 1 << 40), max_size=5).map(tuple))
    return View(
        draw(st.sampled_from(["lmem", "gmem"])), draw(st.integers(0, 1 << 48)), shape,
        draw(st.sampled_from(["i8", "u8", "i32", "bf16"])), draw(st.sampled_from(["aligned", "dense", "strided"])),
        strides, draw(st.integers(1, 4)), draw(st.integers(0, 63)), draw(LENGTHS), draw(st.integers(0, 4)),
    )  # fmt: skip


MACROS = (
    st.builds(functions.Active, st.sampled_from(sorted(functions.ACTIVATIONS)), st.lists(FLOATS).map(tuple))
    | st.builds(functions.Pad, st.sampled_from(["constant", "edge"]), WHOLE, WHOLE, FLOATS)
    | st.builds(functions.ConcatShift, st.integers(-(2**63), 2**63 - 1), WHOLE, WHOLE)
    | st.builds(functions.LayerNorm, LENGTHS, FLOATS, *[st.booleans()] * 4)
)


@settings(max_examples=200, deadline=None)
@given(NAMES, NAMES, st.lists(views(), max_size=3), views(), MACROS)
def test_any_names_numbers_and_views_survive(
    op: str, step: str, inputs: list[View], output: View, function: Any
) -> None:
    command = make(Fn, op=op, step=step, function=function, inputs=tuple(inputs), output=output)
    identical(parse_command(command_line(command)), command)


@settings(max_examples=100, deadline=None)
@given(views(), st.floats(allow_nan=False) | views(), st.integers(-(2**31), 2**31 - 1))
def test_constants_survive(x: View, slope: float | View, multiplier: int) -> None:
    command = make(Select, input=x, output=x, slope=slope, positive=Requant(multiplier, -3, 4, "half_away", "qdm"))
    identical(parse_command(command_line(command)), command)


def test_special_numbers_survive() -> None:
    for value in (float("inf"), float("-inf"), -0.0, 5e-324, 1 / 3):
        identical(parse_command(command_line(make(Fill, output=neuron(0, ()), value=value))).value, value)  # type: ignore[union-attr]
    found = parse_command(command_line(make(Fill, output=neuron(0, ()), value=float("nan"))))
    assert isinstance(found, Fill) and found.value != found.value


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "begins with engine, id, dep and opcode"),
        ("tiu 1 dep=0 fly op=a", "Invalid value 'fly'"),
        ("gdma 1 dep=0 lut op=a input=lmem:0x0:1x1x1x1:i8:aligned table=lmem:0x0:1x1x1x256:i8:aligned "
         "output=lmem:0x0:1x1x1x1:i8:aligned", "lut is a command of the tiu engine, not of gdma"),
        ("gdma 1 dep=0 fill op=a value=0", "missing required field `output`"),
        ("gdma 1 dep=0 fill op=a value=0 value=1 output=lmem:0x0:1:i8:aligned", "'value' is given twice"),
        ("gdma 1 dep=0 fill op=a value=0 colour=1 output=lmem:0x0:1:i8:aligned", "unknown field `colour`"),
        ("gdma 1 dep=0 fill op=a value=zero output=lmem:0x0:1:i8:aligned", "Expected `float`, got `str`"),
        ("gdma 1 dep=0 fill op=a value= output=lmem:0x0:1:i8:aligned", "a value is required at column"),
        ("gdma 1 dep=0 fill op=a value=0 output=lmem:zero:1:i8:aligned", "a view is memory:address"),
        ("gdma 1 dep=0 fill op=a value=0 output=lmem:0x0:1:i8:aligned:depth=3", "a view is memory:address"),
        ("gdma 1 dep=0 fill op=a value=0 output=lmem:0x0:1:i9:aligned", "Invalid enum value 'i9'"),
        ("gdma 1 dep=0 fill op=a value=0 output=lmem:0x0:99999999999:i8:aligned", "Expected `int` <"),
        ("gdma 1 dep=0 fill op=a value=0 output=lmem:0x0", "Invalid enum value"),
        ("gdma 1 dep=0 fill op=a value=0 output=lmem:0x0:1:i8:aligned computes fill value=0", "only a global kernel"),
        ("gdma 1 dep=0 fill op=a loose value=0 output=lmem:0x0:1:i8:aligned", "field=value is required at column 23"),
    ],
)  # fmt: skip
def test_wrong_lines_are_refused(line: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_command(line)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_random_networks_round_trip(chip: str, seed: int, tmp_path: Path) -> None:
    model, _ = cached_lowered(seed, chip)
    grouped, _ = randomly_grouped(model, np.random.default_rng(seed))
    assert_round_trips(to_program(grouped), tmp_path)


def assert_row_round_trips(case: Any, chip: str, mode: str, folder: Path) -> None:
    grouped = to_groups(lowered(case.id, chip, mode)[0])
    assert_round_trips(to_program(grouped), folder)


@pytest.mark.parametrize("case", ROWS, ids=lambda c: c.id)
def test_op_rows_round_trip(case: Any, tmp_path: Path) -> None:
    assert_row_round_trips(case, "bm1684x", "int8", tmp_path)


@pytest.mark.parametrize(
    ("case", "chip", "mode"),
    [
        pytest.param(case, *config, id="-".join((case.id, *config)), marks=slow_marks(case, number))
        for number, config in enumerate((("bm1684x", "f16"), ("bm1684", "int8"), ("cv183x", "int8")))
        for case in CASES
    ],
)
def test_all_op_rows_round_trip(case: Any, chip: str, mode: str, tmp_path: Path) -> None:
    assert_row_round_trips(case, chip, mode, tmp_path)


def test_a_hand_built_program_round_trips(tmp_path: Path) -> None:
    assert_round_trips(hand_built(), tmp_path)


def test_texts_that_are_no_program_are_refused() -> None:
    whole = hand_built()
    text = listing(whole)
    lines = text.split("\n")
    for changed, words in (
        (extract(whole, engine="tiu"), "one header line is required, got 0; a listing of some commands"),
        (text.replace("format_version=8", "format_version=9"), "format versions 7 and 8 are read here, the text has 9"),
        ("\n".join([*lines[:3], "sausage", *lines[3:]]), r"text:4: a line begins with header, .* got 'sausage'"),
        ("slice tensor=t\n" + text, "text:1: a slice line must follow the command"),
        ("\n".join(lines[:3]), rf"its header has commands={len(whole.commands)}, the text has 0; take the whole text"),
    ):
        with pytest.raises(ImportModelError, match=words):
            assemble(changed, whole.coefficients)
    with pytest.raises(ImportModelError, match="has 100 bytes of coefficients, got 0; give the program"):
        assemble(text, np.zeros(0, np.uint8))


def test_a_text_without_its_end_is_refused() -> None:
    """A text cut at any line end is refused; a text edited by hand, whose header has no counts, is read."""
    whole = to_program(cached_lowered(0, "bm1684x")[0])
    text = listing(whole)
    assert whole.locations and len(whole.commands) > 1
    lines = text.splitlines()
    records = [n for n, line in enumerate(lines) if not line.startswith((";", "header", "group", "tensor"))]
    for end in records:
        with pytest.raises(ImportModelError, match="its header has (commands|slices)="):
            assemble("\n".join(lines[:end]), whole.coefficients)
    counts = f" commands={len(whole.commands)} slices={len(whole.locations)}"
    assert text.count(counts) == 1
    assert_same_program(assemble(text.replace(counts, ""), whole.coefficients), whole)
    header = next(n for n, line in enumerate(lines) if line.startswith("header"))
    for cut in range(len(lines[header])):
        with pytest.raises(ImportModelError):
            assemble("\n".join([*lines[:header], lines[header][:cut]]), whole.coefficients)


def test_an_extract_is_of_one_op_or_engine() -> None:
    program = hand_built()
    text = extract(program, engine="gdma")
    assert all(line.startswith("gdma ") for line in text.split("\n")[1:-1])
    assert f"{sum(c.engine == 'gdma' for c in program.commands)} of {len(program.commands)}" in text
    with pytest.raises(
        ImportModelError, match=r"no command of op 'x' on engine tiu or gdma; cores are \[0\], ops are conv1, op"
    ):
        extract(program, op="x")


def test_view_text_leaves_out_what_is_usual() -> None:
    assert view_text(View("gmem", 0x1000, (2, 3), "f32", "dense")) == "gmem:0x1000:2x3:f32:dense"


# ---------------------------------------------------------------------------------------------------------------- file


def small() -> Program:
    build = Builder("bm1684")
    x = build.tensor("x", neuron(0, (2, 3, 4, 4), interleave=4), "input", scale=0.5)
    y = build.tensor("y", neuron(4096, (2, 3, 4, 4), interleave=4), "output", shape=(2, 48))
    build.coefficient(np.arange(8, dtype=np.int8))
    build.add(Move, input=x, output=y, tensor="y")
    return build.program()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "model.tpusim"
    save(small(), path)
    return path


def rewrite(path: Path, change: Callable[[dict[str, bytes]], None], *, sign: bool = True, pack: int = 0) -> None:
    """Change members; `sign`: with checksums that fit, as only someone who means it can."""
    with zipfile.ZipFile(path) as found:
        members = {name: found.read(name) for name in found.namelist()}
    change(members)
    if sign and archive.HEADER in members:
        header = msgspec.json.decode(members[archive.HEADER])
        header["checksums"] = {n: archive.checksum(d) for n, d in members.items() if n != archive.HEADER}
        members[archive.HEADER] = msgspec.json.encode(header)
    with zipfile.ZipFile(path, "w", pack) as target:
        for name, data in members.items():
            target.writestr(name, data)
        target.comment = archive._MAGIC + archive.checksum(members.get(archive.HEADER, b"")).encode()


def changed_header(**fields: Any) -> Callable[[dict[str, bytes]], None]:
    def change(members: dict[str, bytes]) -> None:
        members["header.json"] = msgspec.json.encode(msgspec.json.decode(members["header.json"]) | fields)

    return change


def test_tensor_table_has_bmodels_names(saved: Path) -> None:
    with zipfile.ZipFile(saved) as found:
        assert found.namelist()[0] == "header.json"
        tensors, header = (msgspec.json.decode(found.read(f"{n}.json")) for n in ("tensors", "header"))
    assert tensors[1] == {
        "name": "y", "role": "output", "dtype": "i8", "device_addr": 0x2_0000_1000, "size": 96, "shape": [2, 48],
        "stmode": 2, "scale": 0.0, "zero_point": 0, "layout": "dense", "strides": None, "batch_axis": 0,
        "view_shape": [2, 3, 4, 4], "parts": [],
    }  # fmt: skip
    assert {"name", "chip", "coeff_addr", "coeff_size", "ctx_addr", "ctx_size", "tpusim"} < set(header)


def test_same_program_same_bytes(saved: Path, tmp_path: Path) -> None:
    save(small(), tmp_path / "again.tpusim")
    assert (tmp_path / "again.tpusim").read_bytes() == saved.read_bytes()


def append_text(name: str, text: bytes) -> Callable[[dict[str, bytes]], None]:
    return lambda members: members.update({name: members[name] + text})


def huge_npy(members: dict[str, bytes]) -> None:
    """An npy header that declares 2**60 bytes and has 8."""
    members["coefficients.npy"] = members["coefficients.npy"].replace(b"(8,)", b"(1152921504606846976,)", 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (changed_header(chip="tpu9000"), "unknown chip 'tpu9000': expected one of bm1684"),
        (changed_header(format_version=10), "format versions 7, 8 and 9 are read here, the file has 10"),
        (changed_header(ctx_size=1 << 50), "asks for 1,125,899,906,842,624 bytes of global memory"),
        (changed_header(ctx_size=-1), "is malformed .Expected `int` >= 0"),
        (changed_header(coeff_size=9), "has 8 bytes of coefficients, its header says 9"),
        (changed_header(surprise=1), "unknown field `surprise`"),
        (changed_header(padding="x" * (1 << 20)), "has a header of 1,049"),
        (lambda m: m.pop("header.json"), "is a zip archive, but no tpusim program"),
        (lambda m: m.pop("groups.json"), "has the members .*, not header.json, tensors.json"),
        (lambda m: m.update(evil=b""), "has the members .*evil"),
        (append_text("commands.txt", b"gdma 2 dep=0 fill\n"), "line 2 of commands.txt: Object missing required"),
        (append_text("tensors.json", b","), "is malformed"),
        (huge_npy, "header declares|is malformed"),
        (lambda m: m.update({"coefficients.npy": archive.npy_bytes(np.zeros(2))}), "coefficients are bytes"),
    ],
)  # fmt: skip
def test_files_that_lie_are_refused(saved: Path, change: Callable[[dict[str, bytes]], None], words: str) -> None:
    rewrite(saved, change)
    with pytest.raises(ImportModelError, match=words):
        load(saved)


def test_an_altered_header_is_refused(saved: Path) -> None:
    content = saved.read_bytes()
    with zipfile.ZipFile(saved) as found:
        comment = found.comment
    rewrite(saved, changed_header(macs=3))
    data = saved.read_bytes()
    saved.write_bytes(data[: -len(comment)] + comment)
    with pytest.raises(ImportModelError, match=r"member header\.json does not match its checksum"):
        load(saved)
    saved.write_bytes(content)
    assert load(saved).header.model == "hand"


def test_another_chips_program_is_refused(saved: Path) -> None:
    assert load(saved, chip="bm1684").header.chip == "bm1684"
    with pytest.raises(ImportModelError, match="is for chip bm1684, not for the requested bm1684x"):
        load(saved, chip="bm1684x")


def test_zip_bombs_are_refused_before_they_are_unpacked(saved: Path) -> None:
    """Compressed members, a declared size that cannot be there, members that share their bytes."""
    rewrite(saved, lambda m: m.update({"coefficients.npy": bytes(1 << 24)}), pack=zipfile.ZIP_DEFLATED)
    assert saved.stat().st_size < 1 << 18
    with pytest.raises(ImportModelError, match="compressed members"):
        load(saved)
    save(small(), saved)
    data = bytearray(saved.read_bytes())
    entry = data.rindex(b"PK\x01\x02")
    data[entry + 20 : entry + 28] = struct.pack("<II", 1 << 31, 1 << 31)
    saved.write_bytes(data)
    with pytest.raises(ImportModelError, match=r"declare 2,147,\d{3},\d{3} bytes, the file has"):
        load(saved)
    data[entry + 20 : entry + 24] = struct.pack("<I", 100)
    saved.write_bytes(data)
    with pytest.raises(ImportModelError, match="declares 2,147,483,648 bytes and has 100"):
        load(saved)


def test_a_failed_write_leaves_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", fail)
    with pytest.raises(Exception, match="cannot be written"):
        save(small(), saved)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]
