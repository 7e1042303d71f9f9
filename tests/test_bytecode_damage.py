"""Damaged bytecode is refused with byte offset and section, quickly, and in memory bounded by the file."""

import random
import re
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects.builtin import ArrayAttr, DenseIntOrFPElementsAttr, ModuleOp, StringAttr, TensorType, i32

from tpusim.errors import ImportModelError
from tpusim.ir.bytecode import Bytecode, encode
from tpusim.ir.bytecode.varints import flagged, signed, varint
from tpusim.ir.text import context, parse_module

FILES = Path(__file__).parent / "bytecode"
SEEDS = [path.read_bytes() for path in sorted(FILES.glob("*.mlirbc"))]
PLACE = re.compile(r"byte [\d,]+ in section [A-Z_a-z]+: ")
SECONDS = 0.5


def outcome(data: bytes) -> str:
    """The word read, or the message of the refusal, which must name a place."""
    ctx = context()
    ctx.allow_unregistered = True
    try:
        file = Bytecode(data, ctx)
        assert file.op_counts
        file.module()
    except ImportModelError as error:
        assert PLACE.search(str(error)), error
        return str(error)
    return "read"


def cut(data: bytes, dice: random.Random) -> bytes:
    return data[: dice.randrange(len(data))]


def flip(data: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(data))
    return data[:at] + bytes((data[at] ^ 1 << dice.randrange(8),)) + data[at + 1 :]


def overwrite(data: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(data))
    return data[:at] + dice.randbytes(dice.randrange(1, 20)) + data[at + 9 :]


def enlarge(data: bytes, dice: random.Random) -> bytes:
    """A number of 64 bits somewhere: a count, a length, an id."""
    at = dice.randrange(len(data))
    return data[:at] + b"\0" + dice.choice([b"\xff" * 8, (1 << 40).to_bytes(8, "little")]) + data[at + 9 :]


def move(data: bytes, dice: random.Random) -> bytes:
    """A piece from elsewhere in the file: ids that exist, of the wrong kind, and circles."""
    here, there, size = dice.randrange(len(data)), dice.randrange(len(data)), dice.randrange(1, 60)
    return data[:here] + data[there : there + size] + data[here + size :]


DAMAGES = (cut, flip, overwrite, enlarge, move)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files(damage: Callable[[bytes, random.Random], bytes]) -> None:
    dice = random.Random(damage.__name__)
    refused = 0
    for _ in range(60):
        data = damage(dice.choice(SEEDS), dice)
        began = time.process_time()
        refused += outcome(data) != "read"
        assert time.process_time() - began < SECONDS
    assert refused > 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_5000_damaged_files(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(500):
        data = dice.choice(DAMAGES)(dice.choice(SEEDS), dice)
        began = time.process_time()
        outcome(data)
        assert time.process_time() - began < SECONDS


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    assert outcome(data) != "read"
    assert outcome(b"ML\xefR\x09x\0" + data) != "read"


def peak(work: Callable[[], object]) -> int:
    """The most bytes of Python at a time; refusals are results."""
    tracemalloc.start()
    try:
        with suppress(ImportModelError):
            work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


FIXED = 16 << 10
"""Bytes that an opened file of any size takes."""


@pytest.mark.parametrize("damage", DAMAGES)
def test_memory_of_an_opened_file(damage: Callable[[bytes, random.Random], bytes]) -> None:
    """Header, tables and resources take at most four times the file."""
    dice, ctx = random.Random(damage.__name__), context()
    for _ in range(40):
        data = damage(dice.choice(SEEDS), dice)
        assert peak(lambda data=data: Bytecode(data, ctx)) <= 4 * len(data) + FIXED


def test_memory_follows_the_file() -> None:
    """Numbers of 64 bits at any place: no peak is above that of the whole file, with a megabyte that splats may use."""
    data = (FILES / "corpus.6.mlirbc").read_bytes()
    dice = random.Random(1)
    limit = 2 * peak(lambda: outcome(data)) + (2 << 20)
    for _ in range(15):
        damaged = enlarge(data, dice)
        assert peak(lambda damaged=damaged: outcome(damaged)) < limit


def section(code: int, body: bytes) -> bytes:
    return bytes((code,)) + varint(len(body)) + body


def file_of(entries: list[bytes], *, more: bytes = b"", version: int = 0, attribute: int = 0) -> bytes:
    """A file of one module whose attributes are the entry `attribute`; the entries are attributes of builtin."""
    entries = [*entries, varint(15)]  # the last is the location
    strings = [b"builtin\0", b"module\0", b"a\0"]
    table = varint(3) + b"".join(varint(len(s)) for s in reversed(strings)) + b"".join(strings)
    names = varint(1) + varint(0) + varint(0) + varint(1) + varint(1)
    offsets = varint(len(entries)) + varint(0) + varint(0) + varint(len(entries))
    offsets += b"".join(flagged(len(entry), True) for entry in entries)
    ir = flagged(1, False) + varint(0) + b"\x11" + varint(len(entries) - 1) + varint(attribute)
    ir += flagged(1, True) + varint(1) + varint(0) + varint(0)
    parts = (section(1, names), section(2, b"".join(entries)), section(3, offsets), section(4, ir), section(0, table))
    return b"ML\xefR" + varint(version) + b"test\0" + b"".join(parts) + more


NAME = varint(2) + varint(2)
"""The string "a"."""


def entry_of(value: int) -> bytes:
    """A dictionary {a = the attribute of this id}; the name is attribute 1."""
    return varint(1) + varint(1) + varint(1) + varint(value)


def array_of(*values: int) -> bytes:
    """An array of the attributes of these ids."""
    return varint(0) + varint(len(values)) + b"".join(map(varint, values))


def test_the_file_that_is_damaged_below_is_read() -> None:
    assert outcome(file_of([entry_of(2), NAME, varint(7)])) == "read"


CASES = {
    "a part of itself": file_of([entry_of(0), NAME]),
    "and regions of at most 72 levels": file_of(
        [entry_of(2), NAME, *[array_of(n) for n in range(3, 300)], varint(7)]
    ),
    "in attributes and regions of at most 72 levels": file_of(  # each array is decoded before the next that names it
        [entry_of(2), NAME, array_of(*range(3, 300)), varint(7), *[array_of(n) for n in range(3, 300)]]
    ),
    "at most 134,217,728 bytes more than the file has are required after shared parts": file_of(
        [entry_of(2), NAME, *[array_of(n, n) for n in range(3, 50)], varint(7)]
    ),
    "does not exist": file_of([entry_of(99), NAME]),
    "no attribute of code 99": file_of([entry_of(2), NAME, varint(99)]),
    "must be of StringAttr": file_of([varint(1) + varint(1) + varint(2) + varint(2), NAME, varint(7)]),
    "must fill its bytes exactly": file_of([entry_of(2), NAME, varint(7) + varint(7)]),
    "elements are announced": file_of([entry_of(2), NAME, varint(0) + varint(1 << 62)]),
    "a second section STRING": file_of([entry_of(2), NAME, varint(7)], more=section(0, b"")),
    "DIALECT_VERSIONS at the top": file_of([entry_of(2), NAME, varint(7)], more=section(7, b"")),
    "requires section RESOURCE_OFFSET": file_of([entry_of(2), NAME, varint(7)], more=section(5, b"")),
    "requires section PROPERTIES": file_of([entry_of(2), NAME, varint(7)], version=5),
    "a version from 0 to 6": file_of([entry_of(2), NAME, varint(7)], version=7),
    "an alignment that is a power of two": file_of(
        [entry_of(2), NAME, varint(7)], more=bytes((0x86,)) + varint(1) + varint(3) + b"\1"
    ),
    "a section id from 0 to 8": file_of([entry_of(2), NAME, varint(7)], more=section(9, b"")),
    "must be a dictionary": file_of([NAME, NAME]),
    "two entries of a dictionary": file_of(
        [varint(1) + varint(2) + (varint(1) + varint(2)) * 2, NAME, varint(7)]
    ),
    "at most 4 numbers of a place": file_of(
        [entry_of(2), NAME, varint(22) + varint(1) + varint(9) + varint(1) * 9]
    ),
    "at most 4,096 dimensions": file_of([entry_of(2), NAME, varint(23) + varint(1 << 40)]),
}  # fmt: skip


def text_of(value: str) -> bytes:
    """A file whose one attribute is written as text."""
    text = value.encode() + b"\0"
    data = file_of([entry_of(2), NAME, text])
    begin = data.index(text) + len(text) + len(varint(15))  # of section ATTR_TYPE_OFFSET
    place = data.index(flagged(len(text), True), begin)
    return data[:place] + flagged(len(text), False) + data[place + 1 :]


MANY = 300
IDENTITIES = [
    varint(0) + varint(MANY) + b"".join(varint(n) for n in range(3, 3 + MANY)),
    *[varint(23) + varint(1 << 14)] * MANY,
]
LARGE = {
    "identity maps": file_of([entry_of(2), NAME, *IDENTITIES]),
    "a splat": text_of("dense<0> : tensor<1000000000xi8>"),
    "a splat of more bytes than there are": text_of("dense<1.0> : tensor<99999999x99999999xf32>"),
    "a splat in hexadecimal": text_of('dense<"0x00"> : tensor<1000000000xi8>'),
    "an empty tensor": text_of("dense<> : tensor<0x99999999999xf32>"),
}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("dense<[1, 2]> : tensor<1000000000xi8>", r"Expected \[1000000000\] shape"),
        ("dense<[1]> : tensor<1000000000xi8>", r"Expected \[1000000000\] shape"),
        ("dense< [[(1, 2)]]> : tensor<99999x99999xcomplex<i8>>", r"Expected \[99999, 99999\] shape"),
        ('dense<"0x0102"> : tensor<1000000000xi8>', "Expected 1000000000 elements"),
        ('dense<"0x0000"> : tensor<1000000000xf32>', "Expected 1000000000 elements"),
        ('dense<"0102"> : tensor<1000000000xi8>', "begins with 0x"),
        ("tensor<9223372036854775808xi8>", "below 2"),
    ],
)
def test_literals_that_do_not_fit_their_type(value: str, told: str) -> None:
    """In text and as text in bytecode; `mlir-opt` refuses all of them."""
    with pytest.raises(ImportModelError, match=told):
        parse_module(f"builtin.module attributes {{a = {value}}} {{}}", context())
    assert re.search(told, outcome(text_of(value)))


@pytest.mark.parametrize("what", LARGE)
def test_a_few_bytes_that_stand_for_many(what: str) -> None:
    began = time.process_time()
    assert peak(lambda: outcome(LARGE[what])) < 2 << 20
    assert time.process_time() - began < SECONDS


@pytest.mark.parametrize("why", CASES)
def test_what_is_wrong_is_said(why: str) -> None:
    assert why in outcome(CASES[why])


def test_deep_regions_and_shared_arrays() -> None:
    """What stands for more than fits on a disk, and a hundred levels of regions, are refused in no time."""
    arrays = ArrayAttr([StringAttr("leaf")])
    for _ in range(40):
        arrays = ArrayAttr([arrays, arrays])
    began = time.process_time()
    assert "after shared parts are written out" in outcome(encode(ModuleOp([], {"x": arrays})))
    assert time.process_time() - began < SECONDS
    module = ModuleOp([])
    for _ in range(100):
        module = ModuleOp([module])
    assert "regions in regions of at most 64 levels" in outcome(encode(module))


def test_only_what_is_shared_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large constant is read whole; an array that is named fifty times counts fifty times."""
    monkeypatch.setattr("tpusim.ir.bytecode.entries.MOST", 0)
    numbers = DenseIntOrFPElementsAttr.from_list(TensorType(i32, [200]), list(range(200)))
    assert outcome(encode(ModuleOp([], {"x": numbers}))) == "read"
    array = ArrayAttr([StringAttr("a"), StringAttr("b")])
    assert "more than the file has" in outcome(encode(ModuleOp([], {"x": ArrayAttr([array] * 50)})))


def test_signed_numbers() -> None:
    """The zigzag order of the format's description."""
    assert [signed(value)[0] >> 1 for value in (0, -1, 1, -2, 2)] == [0, 1, 2, 3, 4]
    assert varint((1 << 64) - 1) == b"\0" + b"\xff" * 8
