"""The contract between code generation and machine: command fields, legality rules, the program file."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders.commands import LEGAL, F, T, U, conv, global_conv, make, of_host, program, rows
from msgspec import structs
from streams import gmem, lmem, neuron

from tpusim import chips
from tpusim.errors import CommandError, ImportModelError
from tpusim.isa import check as rules
from tpusim.isa import functions
from tpusim.isa.check import RULES, check
from tpusim.isa.commands import (
    Arith,
    ChannelScale,
    Command,
    Depthwise,
    Dequantize,
    Fill,
    FloatLut,
    Fn,
    GlobalKernel,
    LaneCopy,
    Lut,
    MatMul,
    Move,
    Pick,
    Pool,
    Quantize,
    Requant,
    Rescale,
    Select,
    SendMessage,
)
from tpusim.isa.layout import extent
from tpusim.isa.page import page
from tpusim.isa.region import View
from tpusim.isa.stream import load, save
from tpusim.registry import COMMANDS, FUNCTIONS

RNG = np.random.default_rng(0)
AREA = lmem(0, (1, 64, 1, 64), "u8", "compact")
LINE = lmem(2048, (1, 64, 1, 1), layout="compact")


BROKEN: list[tuple[str, Any, str]] = [
    ("functions", make(Fn, function=functions.Softmax(4), inputs=(F,), output=F), "an axis of 0 to 3, got 4"),
    ("sequence_ids", make(Fill, id=0, output=T, value=0), "got id 0, dep 0"),
    ("sequence_ids", make(Fill, id=1 << 20, output=T, value=0), "1 <= id < 1,048,576"),
    ("memories", make(Arith, kind="copy", a=neuron(0, (1, 64, 4, 4)), output=U), "operand a in lmem, got gmem"),
    ("executors", make(GlobalKernel, body=of_host()), "a call of the host around .* got GlobalKernel"),
    ("executors", of_host(), "a call of the host around .* got Fn"),
    ("memories", make(GlobalKernel, body=conv()), "operand input in gmem, got lmem"),
    ("layouts", make(Fill, output=lmem(0, (4, 4)), value=0), "4 axes, got aligned with 2 axes"),
    ("layouts", make(Fill, output=lmem(0, (1, 1, 1, 1), layout="dense"), value=0), "aligned or compact or strided"),
    ("layouts", make(Fill, output=neuron(0, (4,), layout="aligned"), value=0), "layout dense or strided, got aligned"),
    ("layouts", make(Fill, output=neuron(0, (4,), strides=(2,)), value=0), r"one stride per axis .* got \(2,\)"),
    ("layouts", make(Fill, output=neuron(0, (4,), layout="strided"), value=0), "one stride per axis .* got None"),
    ("layouts", make(Fill, output=neuron(9, (4,), layout="strided", strides=(-1,)), value=0), "output >= 0"),
    ("interleaves", make(Fill, output=lmem(0, (4, 1, 1, 1), interleave=4), value=0), "output 1 or 1, got 4"),
    ("lmem_bounds", make(Fill, output=lmem(1 << 18, (1, 1, 1, 1)), value=0), "inside the 262,144 bytes of a lane"),
    ("start_lanes", make(Fill, output=lmem(0, (1, 1, 1, 1), lane=64), value=0), "within 0-63, got 64"),
    ("lmem_bounds", make(Fill, output=lmem(-64, (1, 1, 1, 1)), value=0), r"got bytes \[-64, -63\)"),
    ("addresses", make(Fill, output=lmem(32, (1, 1, 1, 1)), value=0), "a multiple of 64 bytes, got 32"),
    ("addresses", make(Fill, output=lmem(6, (1, 1, 1, 1), "i32", "compact"), value=0), "a multiple of 4 bytes, got 6"),
    ("coefficient_addresses", conv(requant_table=lmem(8260, (1, 64, 1, 3), "i32", "compact")), "multiple of 8 bytes"),
    ("coefficient_addresses", conv(bias=lmem(8194, (1, 64, 1, 1), "i16", "compact")), "bias at a multiple of 4 bytes"),
    ("conv_input_lane", conv(input=lmem(0, (1, 64, 4, 4), lane=1)), "input at lane 0, got lane 1"),
    (
        "coefficient_lanes",
        conv(filter=lmem(2048, (1, 64, 1, 576), layout="compact", lane=3)),
        "filter at the output's lane 0, got lane 3",
    ),
    ("shared_lane", make(Arith, kind="add", a=T, b=lmem(2048, T.shape, lane=1), output=U), "b at the output's lane 0"),
    (
        "arith_strides",
        make(Arith, kind="copy", a=lmem(0, (1, 1, 1, 1), layout="strided", strides=(1 << 18, 1, 1, 1)), output=U),
        "strides of a < 262,144",
    ),
    ("dimensions", make(Fill, output=lmem(0, (1, 1, 1, 65536)), value=0), "axes of output within 1-65535"),
    ("dimensions", make(Move, input=neuron(0, (0,)), output=neuron(0, (0,))), r"got \(0,\)"),
    ("in_place", conv(output=lmem(0, (1, 64, 4, 4))), r"or replaces one element by element, got bytes \[0, 16\) and"),
    ("in_place", make(LaneCopy, input=T, output=T), "a result that overlaps no operand"),
    ("in_place", make(Arith, kind="add", a=lmem(0, (1, 64, 1, 4)), b=T, output=T), "and a at 0"),
    ("in_place", make(Arith, kind="add", a=lmem(64, (1, 128, 4, 4)), output=lmem(0, (1, 128, 4, 4))), "and a at 64"),
    ("in_place", make(Rescale, input=T, output=lmem(0, T.shape, "i16"), requant=Requant()), "and input at 0"),
    ("window_ranges", conv(strides=(16, 1)), r"strides within 1-15, got \(16, 1\)"),
    ("window_ranges", conv(pads=(16, 1, 1, 1)), "pads within 0-15"),
    ("window_ranges", conv(pads=(1, 1, 1, -1)), "pads within 0-15"),
    ("window_ranges", conv(dilations=(1, 0)), "dilations within 1-15"),
    ("window_ranges", make(Pool, mode="max", input=T, output=U, kernel=(1, 1), strides=(0, 1)), "strides within 1-15"),
    ("requant_ranges", make(Rescale, input=T, output=U, requant=Requant(1 << 31)), "int32 multiplier"),
    ("requant_ranges", make(Rescale, input=T, output=U, requant=Requant(1, 128)), "rshift 128"),
    ("requant_ranges", make(Rescale, input=T, output=U, requant=Requant(1, 0, 1 << 15)), "int16 zero point"),
    ("requant_ranges", global_conv(requant=Requant(1, -129)), "rshift -129"),
    ("requant_modes", make(Rescale, input=T, output=U, requant=Requant(mode="qdm")), "mode shift, got qdm"),
    ("requant_modes", conv(requant_table=None, requant=Requant(mode="f32")), "mode shift, got f32"),
    ("requant_modes", global_conv(requant=Requant(mode="qdm")), "mode shift, got qdm"),
    (
        "small_multipliers",
        make(Pool, mode="avg", input=T, output=U, kernel=(1, 1), first_rounding="half_up"),
        "no first_rounding, got half_up",
    ),
    ("small_multipliers", make(Select, input=T, slope=1, output=U, positive=Requant()), "no positive"),
    ("small_multipliers", make(Fn, function=functions.SumShift((1,), 0), inputs=(T,), output=U), "got SumShift"),
    ("accumulators_of_16_bits", make(ChannelScale, input=T, scale=LINE, output=U, clamp16=True), "no clamp16"),
    ("float_units", make(Quantize, input=F, output=lmem(8192, F.shape), scale=1.0, bf16=True), "no bf16"),
    ("float_units", make(Arith, kind="truncate", a=F, output=F), "other than truncate"),
    ("work_areas", make(Fill, output=T, value=0, work=(AREA,)), "apart from output"),
    ("apart", make(Move, input=neuron(0, (64,)), output=neuron(32, (64,))), "apart from its operands"),
    ("apart", global_conv(output=neuron(64, (1, 64, 4, 4))), "apart from its operands, tile by tile"),
    ("copies", make(Move, input=neuron(0, (1, 64, 2, 8)), output=T), r"be i8 \(1, 64, 2, 8\), got i8 \(1, 64, 4"),
    ("copies", make(Move, input=neuron(0, T.shape), output=T, kind="turns"), "a copy by turns inside gmem"),
    ("rows", rows(indices=neuron(256, (4,), "f32")), "one axis of i32 indices"),
    ("rows", rows(input=neuron(0, (9, 5))), "an input of three axes"),
    ("rows", rows(input=neuron(0, (2, 9, 5), "u8")), r"the output to be u8 \(2, 4, 5\)"),
    ("rows", rows(output=neuron(512, (2, 3, 5))), r"be i8 \(2, 4, 5\), got i8 \(2, 3, 5\)"),
    ("rows", rows(indices=lmem(0, (1, 1, 1, 4), "i32")), "indices in gmem"),
    ("apart", rows(output=neuron(80, (2, 4, 5))), "apart from its operands"),
    ("cores", make(Fill, core=1, output=T, value=0), "a core within 0-0, got 1"),
    ("messages", make(SendMessage, message=0, count=1), "several cores for a message, got one core"),
    ("copies", make(LaneCopy, input=T, output=lmem(0, T.shape, "u8")), "got u8"),
    ("windows", conv(pads=(1, 1, 0, 1)), "got a reach of 6 into 5 padded rows"),
    ("windows", global_conv(pads=(1, 1, 1, 0)), "got a reach of 6 into 5 padded columns"),
    ("windows", conv(input=lmem(0, (2, 64, 4, 4))), "one batch"),
    ("filters", conv(filter=lmem(2048, (1, 64, 1, 64), layout="compact")), r"filter \(1, 64, 1, 576\)"),
    ("filters", conv(groups=3), "channels that 3 groups divide"),
    ("sums_that_go_on", conv(accumulate=True), "an i32 or f32 output without requant, got i8 with requant"),
    ("filters", make(Depthwise, input=T, filter=U, output=lmem(0, (1, 8, 4, 4)), kernel=(1, 1)), "8 input channels"),
    ("channel_operands", conv(bias=lmem(8192, (1, 1, 1, 64), "i32", "compact")), r"bias \(1, 64, 1, 1\)"),
    ("channel_operands", conv(requant_table=lmem(8256, (1, 64, 1, 3), "i16", "compact")), "requant_table i32, got i16"),
    ("elementwise_shapes", make(Rescale, input=T, output=lmem(0, (1, 64, 4, 3)), requant=Requant()), "input"),
    ("elementwise_shapes", make(Arith, kind="add", a=T, b=lmem(0, (1, 64, 2, 4)), output=U), "b to broadcast"),
    ("matrices", make(MatMul, left=T, right=T, output=U), "x .* K, N"),
    ("matrices", make(MatMul, left=lmem(0, (1, 4, 4, 1)), right=T, output=lmem(0, (1, 4, 4, 1))), "correct the views"),
    (
        "matrices",
        make(MatMul, left=lmem(0, (1, 4, 4, 1)), right=lmem(64, (1, 4, 2, 1)), output=lmem(0, (1, 4, 2, 1)), bias=T),
        "a bias of 2 elements, got 1024",
    ),
    ("windows", make(Pool, mode="max", input=T, output=lmem(0, (1, 8, 4, 4)), kernel=(1, 1)), "64 output channels"),
    ("tables", make(Lut, input=F, table=lmem(2048, (1, 1, 1, 256)), output=T), "an i8 or u8 input, got f32"),
    ("tables", make(Lut, input=T, table=lmem(2048, (1, 1, 1, 255)), output=U), "table i8 .1, 1, 1, 256., got i8"),
    ("tables", make(Lut, input=T, table=lmem(2048, (1, 1, 1, 256), "u8"), output=U), "got u8"),
    ("picked", make(Pick, input=T, indices=lmem(2048, (1, 64, 1, 1), "u16"), output=U), "indices .* got u16 .1, 64,"),
    ("picked", make(Pick, input=T, indices=lmem(2048, (1, 32, 1, 1), "i16"), output=U), r"1, 64, h, w\) of 16 places"),
    ("picked", make(Pick, input=F, indices=lmem(8192, (1, 64, 1, 1), "i16"), output=U), "channels of input and output"),
    ("float_tables", make(FloatLut, mode="log", input=T, table=T, mantissa=T, output=T), "tables, got bm1684x"),
    ("elementwise_shapes", make(Lut, input=T, table=lmem(2048, (1, 1, 1, 256)), output=lmem(0, (1, 1, 4, 3))), "input"),
    ("shared_lane", make(Lut, input=lmem(0, (1, 4, 2, 2), lane=1), table=T, output=lmem(0, (1, 4, 2, 2))), "input at"),
    ("channel_operands", make(Select, input=T, slope=lmem(2048, (1, 1, 1, 64)), output=U), r"slope \(1, 64, 1, 1\)"),
    ("element_types", make(Select, input=T, slope=0.5, output=U), "an integral slope, got 0.5"),
    ("element_types", make(Select, input=F, slope=1, output=T), "operands all integer or all float"),
    ("four_bits", make(Fill, output=lmem(0, (1, 1, 1, 1), "i4"), value=0), "output of 8 bits or more, got i4"),
    ("four_bits", conv(input=lmem(0, (1, 64, 4, 4), "u4")), "input of 8 bits or more, got u4"),
    (
        "four_bits",
        make(Move, input=neuron(0, (8, 4), "i4"), output=neuron(64, (8, 4), "i4", layout="strided", strides=(5, 1))),
        "output by whole bytes, got .*an even stride along axis 0 is required, got 5",
    ),
    (
        "four_bits",
        make(Move, input=neuron(0, (8, 4), "i4"), output=neuron(64, (8, 4), "i4", layout="strided", strides=(8, 2))),
        "a stride of 1 along axis 1 is required, got 2",
    ),
    ("fill_values", make(Fill, output=T, value=128), "an integer within -128..127, got 128"),
    ("fill_values", make(Fill, output=T, value=0.5), "got 0.5"),
    ("element_types", make(Arith, kind="add", a=T, b=0.5, output=U), "an integral constant b, got 0.5"),
    ("element_types", make(Arith, kind="copy", a=F, output=U), "a of an integer type, got f32"),
    ("element_types", conv(input=F), "operands all integer or all float"),
    ("element_types", make(Quantize, input=T, output=U, scale=1.0), "a float input, got i8"),
    ("element_types", make(Dequantize, input=T, output=U, scale=1.0), "a float output, got i8"),
]  # fmt: skip

BROKEN_ON_BM1684: list[tuple[str, Any, str]] = [
    ("fused_multiplier", conv(filter=lmem(2048, (1, 64, 1, 576), layout="compact")), "no requant table"),
    ("fused_multiplier", conv(requant_table=None, requant=Requant(3, 1)), "multiplier 1, got 3"),
    (
        "four_bits",
        make(Move, input=neuron(0, (4, 1, 1, 2), "i4", interleave=4), output=neuron(64, (4, 1, 1, 2), "i4")),
        "without batch packing, got interleave 4",
    ),
    ("rows", rows(), "a chip that gathers rows, got bm1684"),
    ("conv_channels", conv(input=lmem(0, (1, 4096, 4, 4), interleave=4)), "at most 4095 channels, got 4096"),
    ("interleaves", make(Fill, output=lmem(0, (4, 1, 1, 1), "i16", interleave=4), value=0), "1 or 2, got 4"),
    ("addresses", make(Fill, output=lmem(64, (1, 1, 1, 1), interleave=4), value=0), "a multiple of 128 bytes"),
    ("window_ranges", conv(pads=(16, 1, 1, 1)), "pads within 0-15"),
]

BROKEN_ON_CV183X: list[tuple[str, Any, str]] = [
    ("requant_modes", global_conv(filter=neuron(8192, (1, 64, 9, 64)), requant=Requant(mode="f32")), "mode f32"),
    ("requant_modes", global_conv(filter=neuron(8192, (1, 64, 9, 64)), requant=Requant(3)), "multiplier 3"),
]


@pytest.mark.parametrize("command", LEGAL, ids=lambda c: type(c).__name__)
def test_legal(command: Command) -> None:
    check(command, chips.load("bm1684x"))


def refuse(chip: str, name: str, command: Command, message: str) -> None:
    with pytest.raises(CommandError, match=message) as caught:
        check(command, chips.load(chip))
    assert f"{name} requires" in str(caught.value)
    assert str(caught.value).startswith(f"{command.label} on {chip}: ")


@pytest.mark.parametrize("name, command, message", BROKEN)
def test_broken_rule(name: str, command: Command, message: str) -> None:
    refuse("bm1684x", name, command, message)


@pytest.mark.parametrize("name, command, message", BROKEN_ON_BM1684)
def test_broken_rule_on_bm1684(name: str, command: Command, message: str) -> None:
    refuse("bm1684", name, command, message)


@pytest.mark.parametrize("name, command, message", BROKEN_ON_CV183X)
def test_broken_rule_on_cv183x(name: str, command: Command, message: str) -> None:
    refuse("cv183x", name, command, message)


def test_every_rule_is_documented_and_has_a_failing_command() -> None:
    assert {rule.__name__ for rule in RULES} == {name for name, _, _ in BROKEN + BROKEN_ON_BM1684}
    assert all(rule.__doc__ for rule in RULES)
    assert set(rules.BODY_RULES) < set(RULES)


def test_a_command_names_itself_and_its_operands() -> None:
    command = structs.replace(conv(), step="h1")
    assert command.label == "Conv 1 (tiu) of op 'conv1' step 'h1'"
    assert [name for name, _ in command.operands()] == ["input", "filter", "bias", "requant_table", "output"]
    assert command.reads() == (T, command.filter, command.bias, command.requant_table)
    assert command.writes() == (U,)
    assert (
        make(Fn, function=functions.Concat(0), inputs=(T, U), output=U).reads(),
        make(Fill, output=T, value=0).reads(),
    ) == (
        (T, U),
        (),
    )
    kernel = global_conv()
    assert (kernel.engine, kernel.reads(), kernel.writes()) == ("tiu", kernel.body.reads(), kernel.body.writes())


def test_extents_of_lanes_and_lane_images() -> None:
    chip = chips.load("bm1684x")
    two_rows = extent(lmem(64, (1, 10, 1, 3), lane=60), chip)
    assert (two_rows.start, two_rows.stop, two_rows.first_lane, two_rows.last_lane) == (64, 64 + 64 + 3, 0, 63)
    one_row = extent(lmem(64, (1, 4, 1, 3), lane=60), chip)
    assert (one_row.stop, one_row.first_lane, one_row.last_lane) == (67, 60, 63)
    image = extent(gmem(1000, (1, 4, 1, 3), layout="compact", lane=2, lane_pitch=100), chip)
    assert (image.start, image.stop) == (1200, 1503)
    words = extent(gmem(0, (2, 5, 3), layout="dense", interleave=4, batch_axis=1), chips.load("bm1684"))
    assert (words.start, words.stop) == (0, 2 * 2 * 3 * 4)


# ------------------------------------------------------------------------------------------------ the program file


def test_program_file_round_trip(tmp_path: Path) -> None:
    written = program()
    path = tmp_path / "7_model.tpusim"
    save(written, path)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    read = load(path)
    assert read.commands == written.commands
    assert (read.tensors, read.groups) == (written.tensors, written.groups)
    np.testing.assert_array_equal(read.coefficients, written.coefficients)
    assert structs.replace(read.header, checksums={}) == written.header
    assert read.tensor("y").shape == (64, 16)
    with pytest.raises(KeyError):
        read.tensor("nobody")


def test_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.tpusim"
    save(program(), path)
    data = path.read_bytes()
    for length in (0, 10, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(ImportModelError, match=r"program file '.*model\.tpusim': .*write it again"):
            load(path)


def test_flipped_bits_are_refused(tmp_path: Path) -> None:
    """Any flipped bit of a member's data is noticed; flips of archive padding cannot change a program."""
    path = tmp_path / "model.tpusim"
    written = program()
    save(written, path)
    data = path.read_bytes()
    entry = data.index(b"PK\x01\x02")  # in the directory: flags say "encrypted" (8), the method unpacks (10)
    bits = [(entry + 8, 0), (entry + 10, 3), *((int(at), int(at) % 8) for at in RNG.integers(0, len(data), 60))]
    for at, bit in bits:
        spoiled = bytearray(data)
        spoiled[at] ^= 1 << bit
        path.write_bytes(spoiled)
        try:
            read = load(path)
        except ImportModelError:
            continue
        assert (read.commands, read.tensors, read.groups) == (written.commands, written.tensors, written.groups)
        np.testing.assert_array_equal(read.coefficients, written.coefficients)
        assert structs.replace(read.header, checksums={}) == written.header


def test_an_altered_member_and_a_newer_format_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.tpusim"
    save(program(), path)
    with zipfile.ZipFile(path) as archive:
        comment, members = archive.comment, {name: archive.read(name) for name in archive.namelist()}

    def rewrite(changed: dict[str, bytes]) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            archive.comment = comment
            for name, content in {**members, **changed}.items():
                archive.writestr(name, content)

    rewrite({"groups.json": b"[]"})
    with pytest.raises(ImportModelError, match=r"member groups\.json does not match its checksum"):
        load(path)
    rewrite({"header.json": members["header.json"].replace(b'"format_version": 8', b'"format_version": 99')})
    with pytest.raises(ImportModelError, match="format versions 7, 8 and 9 are read here, the file has 99"):
        load(path)
    with pytest.raises(ImportModelError, match="cannot be opened"):
        load(tmp_path / "missing.tpusim")


def test_views_count_elements_not_padding() -> None:
    view = View("lmem", 0, (2, 3, 4, 5), "i16", "aligned")
    assert (view.elements, view.nbytes, view.laned) == (120, 240, True)
    assert gmem(0, (), "f32").elements == 1


# ------------------------------------------------------------------------------------------------------------ the page


def test_page_is_current() -> None:
    path = Path(__file__).parents[1] / "docs" / "isa.md"
    assert path.read_text(encoding="utf-8") == page(), "run `make isa`"


def test_page_has_every_command_field_and_rule() -> None:
    text = page()
    for opcode in COMMANDS:
        kind = COMMANDS.get(opcode)
        section = text.split(f"### {opcode}\n")[1].split("\n### ")[0]
        assert all(f"| `{f}` |" in section for f in set(kind.__struct_fields__) - set(Command.__struct_fields__))
    for rule in RULES:
        assert sum(line.startswith(f"| `{rule.__name__}` |") for line in text.splitlines()) == 1
        assert len(rule.__doc__ or "") > 20
    for name in FUNCTIONS:
        assert sum(line.startswith(f"| `{name}` |") for line in text.splitlines()) == 1
