"""MLIR bytecode: files of real writers, every code there and back, lazy reading, versions of dialects, resources.

The files in tests/bytecode were written by the tools that their names say (its README says how). The texts of the
corpus were recorded when `mlir-opt` 22 had read them back and printed what it prints of the file.
"""

import random
import re
import struct
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_modules import plain
from xdsl.context import Context
from xdsl.dialects.arith import Arith
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    BytesAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    DictionaryAttr,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    ModuleOp,
    NameLoc,
    NoneAttr,
    Signedness,
    StringAttr,
    TensorType,
    UnitAttr,
    bf16,
    f16,
    f32,
    f64,
    i32,
)
from xdsl.dialects.cf import Cf
from xdsl.dialects.func import FuncOp
from xdsl.dialects.memref import MemRef
from xdsl.ir import Attribute, ParametrizedAttribute, SSAValue
from xdsl.irdl import irdl_attr_definition

from tpusim.errors import ConfigError, ImportModelError, UnsupportedError
from tpusim.ir.attrs import LayerGroupAttr, LayerGroupInfo
from tpusim.ir.bytecode import (
    RELEASES,
    VERSIONS,
    Blob,
    Bytecode,
    DialectCodes,
    Form,
    encode,
    is_bytecode,
    release,
)
from tpusim.ir.bytecode.forms import TEXT
from tpusim.ir.bytecode.operations import order_uses
from tpusim.ir.bytecode.releases import EVERYBODY
from tpusim.ir.dialects import open_context
from tpusim.ir.text import ModuleParser, context

FILES = Path(__file__).parent / "bytecode"
RECORDED = sorted(
    path.name for path in FILES.glob("*.mlirbc") if not path.name.startswith(("corpus", "layouts", "schema", "uses"))
)
EVERY_CODE = RELEASES["llvm24"]
READERS = {"everybody": EVERYBODY, **RELEASES}


def any_dialect() -> Context:
    """A context in which unknown ops and attributes are allowed, as `--allow-unregistered-dialect` does."""
    ctx = context()
    ctx.allow_unregistered = True
    return ctx


def parsed(text: str, ctx: Context | None = None) -> ModuleOp:
    return ModuleParser(ctx or any_dialect(), text).parse_module()


def read(data: bytes, ctx: Context | None = None) -> ModuleOp:
    return Bytecode(data, ctx or any_dialect()).module()


def holding(*attributes: Attribute) -> ModuleOp:
    """A module that has the attributes."""
    return ModuleOp([], {"x.held": ArrayAttr(attributes)})


def held(module: ModuleOp) -> tuple[Attribute, ...]:
    found = module.attributes["x.held"]
    assert isinstance(found, ArrayAttr)
    return found.data


@pytest.mark.parametrize("name", RECORDED)
def test_files_of_real_writers(name: str) -> None:
    source = "top.mlir" if name.startswith("tpuc-opt") else "module.mlir"
    found = Bytecode.open(FILES / name, any_dialect())
    assert plain(found.module()) == plain(parsed((FILES / source).read_text()))
    assert found.version == int(name.split(".")[1])
    assert is_bytecode(FILES / name) and not is_bytecode(FILES / source)


@pytest.mark.parametrize("name", [name for name in RECORDED if name.startswith("llvm")])
def test_resources_of_real_writers(name: str) -> None:
    group = Bytecode.open(FILES / name, any_dialect()).resources.external["tpusim"]
    blob = group["w"]
    assert isinstance(blob, Blob)
    assert (group["schema"], group["flag"], bytes(blob.data), blob.alignment) == ("1", True, b"\1\2\3\xff", 16)


def corpus(data: bytes) -> list[str]:
    (op,) = read(data).body.block.ops
    values = {name: f"{name} = {value}" for name, value in op.attributes.items() if name != "op_name__"}
    return [values[name] for name in sorted(values, key=lambda name: int(name[1:].split("_")[0]))]


@pytest.mark.parametrize("version", (0, 6))
def test_every_attribute_and_type_of_llvm(version: int) -> None:
    """183 attributes, types and locations that LLVM 22 wrote."""
    data = (FILES / f"corpus.{version}.mlirbc").read_bytes()
    assert corpus(data) == (FILES / "corpus.txt").read_text().splitlines()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ("everybody", "llvm24"))
def test_every_attribute_there_and_back(name: str, version: int) -> None:
    """Of what has no code for everybody, the text is read again; quant types of narrower ranges need their code."""
    file = Bytecode((FILES / "corpus.6.mlirbc").read_bytes(), any_dialect())
    module = file.module()
    (op,) = module.body.block.ops
    if name == "everybody":  # xDSL's parser reads neither distinct attributes nor what mentions an unknown one
        for key in [key for key, value in op.attributes.items() if "distinct" in str(value)]:
            del op.attributes[key]
    data = encode(module, version=version, release=READERS[name], of_dialects=file.resources.of_dialects)
    assert plain(read(data)) == plain(module)


LACKED = {  # what mlir-opt 16 and 19 and tpuc-opt refuse of the corpus, as text and as bytecode
    "llvm19": "f8E3M4 f4E2M1FN f6E2M3FN f6E3M2FN f8E8M0FNU",
    "llvm18": "f8E4M3 f8E3M4 f4E2M1FN f6E2M3FN f6E3M2FN f8E8M0FNU",
    "llvm16": "distinct tf32 f8E5M2FNUZ f8E4M3FNUZ f8E4M3B11FNUZ f8E4M3 f8E3M4 f4E2M1FN f6E2M3FN f6E3M2FN f8E8M0FNU",
    "llvm22": "",
}


@pytest.mark.parametrize("name", LACKED)
def test_what_a_reader_lacks_is_refused(name: str) -> None:
    (op,) = read((FILES / "corpus.6.mlirbc").read_bytes()).body.block.ops
    for value in op.attributes.values():
        lacked = set(LACKED[name].split()) & set(re.split(r"\W+", str(value)))
        with pytest.raises(UnsupportedError, match=f"for {name}: it has no ") if lacked else nullcontext():
            encode(holding(value), release=release(name))


@pytest.mark.parametrize("value", ("none", "nsw"))
def test_llvm_16_gets_its_attributes(value: str) -> None:
    """No overflow flags but those by default, which are left out, and the segment sizes by their name in LLVM 16."""
    ctx = any_dialect()
    ctx.load_dialect(Arith)
    ctx.load_dialect(Cf)
    flags = "" if value == "none" else f" overflow<{value}>"
    module = parsed(
        f"func.func @f(%0: i1, %1: i32) -> i32 {{ %2 = arith.addi %1, %1{flags} : i32\n"
        "cf.cond_br %0, ^a(%2 : i32), ^b\n^a(%3: i32): func.return %3 : i32\n^b: func.return %2 : i32 }", ctx,
    )  # fmt: skip
    with pytest.raises(UnsupportedError, match="no arith.overflow") if flags else nullcontext():
        data = encode(module, release=release("llvm16"))
        assert b"operand_segment_sizes" in data and b"verflow" not in data
        assert "cf.cond_br %0, ^bb1(%2 : i32), ^bb2" in str(read(data, ctx))


@pytest.mark.parametrize("version", (5, 6))
@pytest.mark.parametrize("name", ("everybody", "llvm22"))
def test_properties_without_a_measured_layout_are_attributes(name: str, version: int) -> None:
    """Readers put attributes into properties; the layout of memref.load differs between releases."""
    ctx = any_dialect()
    ctx.load_dialect(MemRef)
    module = parsed("func.func @f(%0: memref<f32>) { %1 = memref.load %0[] {nontemporal = true} : memref<f32>\n"
                    "func.return }", ctx)  # fmt: skip
    file = Bytecode(encode(module, version=version, release=READERS[name]), ctx)
    registered = dict(zip(file._names.ops, file._names.registered, strict=True))
    assert not registered["memref.load"] and registered["func.func"] is (name == "llvm22")
    assert plain(file.module()) == plain(module)


@pytest.mark.parametrize("version", (5, 6))
@pytest.mark.parametrize("writer", ("layouts", "layouts19"))
def test_properties_of_real_writers(writer: str, version: int) -> None:
    """Segment sizes come in alphabetical order in version 5, last in version 6; memref.load has more in LLVM 22."""
    ctx = open_context()
    found = Bytecode.open(FILES / f"{writer}.{version}.mlirbc", ctx).module()
    found.verify()
    assert plain(found) == plain(parsed((FILES / "layouts.mlir").read_text(), open_context()))


STRUCTURE = (FILES / "module.mlir").read_text()


@pytest.mark.parametrize("name", RELEASES)
@pytest.mark.parametrize("version", VERSIONS)
def test_structure_there_and_back(name: str, version: int) -> None:
    module = parsed(STRUCTURE)
    found = Bytecode(encode(module, version=version, release=release(name)), any_dialect())
    assert plain(found.module()) == plain(module)
    assert found.op_counts["t.br"] == 2 and found.op_counts["func.func"] == 3
    assert found.op_counts.total() == sum(1 for _ in module.walk())


def test_bytes_depend_on_contents_alone() -> None:
    """Not on which objects a module shares: read modules share equal attributes, parsed ones do not."""
    module = parsed(STRUCTURE)
    data = encode(module, use_lists=False)
    assert encode(read(data), use_lists=False) == data == encode(module.clone(), use_lists=False)
    assert encode(read(encode(module))) == encode(module)


USES = """func.func @main(%x: i32, %y: i32) -> i32 {
  %a, %b = "t.two"(%x, %y, %x) : (i32, i32, i32) -> (i32, i32)
  %c = "t.inside"(%x, %a) ({
    "t.use"(%x, %y, %x, %b, %a) : (i32, i32, i32, i32, i32) -> ()
  ^more(%z: i32):
    "t.use"(%z, %a, %z, %late, %z) : (i32, i32, i32, i32, i32) -> ()
    %late = "t.one"(%x, %y) : (i32, i32) -> i32
    "t.use"(%late, %late, %a, %x, %y) : (i32, i32, i32, i32, i32) -> ()
  }) : (i32, i32) -> i32
  return %a : i32
}"""


def uses(module: ModuleOp) -> list[list[tuple[int, int]]]:
    """(op, operand) of every use of every value, in the order of the use lists."""
    ops = {op: number for number, op in enumerate(module.walk())}
    blocks = [block for op in ops for region in op.regions for block in region.blocks]
    values = [value for values in (*(op.results for op in ops), *(block.args for block in blocks)) for value in values]
    return [[(ops[use.operation], use.index) for use in value.uses] for value in values]


def test_use_list_orders_of_a_real_writer() -> None:
    """LLVM 22 wrote USES with the first use of each value first, and printed the users of the file in that order."""
    found = uses(read((FILES / "uses.mlirbc").read_bytes()))
    assert found == [sorted(one) for one in uses(parsed(USES))]


@pytest.mark.parametrize("seed", range(6))
def test_use_lists_there_and_back(seed: int) -> None:
    """Any order comes back; without them the last use that is read comes first, also of values that are made later."""
    module, rng = parsed(USES), random.Random(seed)
    for op in module.walk():
        for value in (*op.results, *(argument for r in op.regions for block in r.blocks for argument in block.args)):
            found = list(value.uses)
            if seed < 3:
                rng.shuffle(found)
            elif len(found) > 1:  # a cycle of three in a long list is written as pairs
                found[:3] = [*found[1:3], found[0]]
            order_uses(value, found)
    assert uses(read(encode(module))) == uses(module)
    for data in (encode(module, version=2), encode(module, use_lists=False)):
        assert uses(read(data)) == [sorted(one, reverse=True) for one in uses(module)]


@pytest.mark.parametrize("op", ("%1 = arith.addi %0, %0 : i32", "%1 = arith.addi %0, %0 overflow<nsw> : i32"))
@pytest.mark.parametrize("version", VERSIONS)
def test_properties_of_ops_that_xdsl_defines(op: str, version: int) -> None:
    ctx = any_dialect()
    ctx.load_dialect(Arith)
    module = parsed(f"builtin.module {{ %0 = arith.constant 3 : i32\n {op} }}", ctx)
    assert plain(read(encode(module, version=version), ctx)) == plain(module)


# -- numbers


INTEGERS = st.sampled_from([1, 4, 8, 9, 16, 31, 32, 33, 63, 64, 65, 128, 200]).flatmap(
    lambda width: st.tuples(
        st.integers(-(1 << (width - 1)), (1 << (width - 1)) - 1), st.just(width), st.sampled_from(list(Signedness))
    )
)


@given(st.lists(INTEGERS, max_size=6))
def test_integers(values: list[tuple[int, int, Signedness]]) -> None:
    made = [
        IntegerAttr(value & ((1 << width) - 1) if sign is Signedness.UNSIGNED else value, IntegerType(width, sign))
        for value, width, sign in values
    ]
    assert held(read(encode(holding(*made)))) == tuple(made)


@given(st.lists(st.tuples(st.floats(width=16), st.sampled_from([f16, bf16, f32, f64])), max_size=6))
def test_floats(values: list[tuple[float, Any]]) -> None:
    found = held(read(encode(holding(*[FloatAttr(value, kind) for value, kind in values]))))
    for (value, kind), attribute in zip(values, found, strict=True):
        assert isinstance(attribute, FloatAttr)
        assert kind.pack([attribute.value.data]) == kind.pack([value])


def test_minus_zero_is_not_zero() -> None:
    """Nor are arrays of them one entry."""
    made = [ArrayAttr([FloatAttr(zero, f64)]) for zero in (0.0, -0.0)]
    first, second = held(read(encode(holding(*made))))
    assert (str(first), str(second)) == ("[0.000000e+00 : f64]", "[-0.000000e+00 : f64]")


def test_nan_keeps_its_payload() -> None:
    quiet = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]
    (found,) = held(read(encode(holding(FloatAttr(quiet, f64)))))
    assert isinstance(found, FloatAttr)
    assert struct.pack("<d", found.value.data) == struct.pack("<d", quiet)


@given(st.lists(st.integers(-8, 7), min_size=1, max_size=40), st.sampled_from([4, 8, 12, 20, 32, 33, 48, 64]))
def test_dense_integers(values: list[int], width: int) -> None:
    made = DenseIntOrFPElementsAttr.from_list(TensorType(IntegerType(width), [len(values)]), values)
    assert held(read(encode(holding(made)))) == (made,)


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_dense_bits(values: list[bool]) -> None:
    made = DenseIntOrFPElementsAttr.from_list(TensorType(IntegerType(1), [len(values)]), values)
    assert held(read(encode(holding(made)))) == (made,)


def test_splats_stay_small() -> None:
    """A splat is one element in the file; a splat above the size limit is one element in memory too."""
    made = DenseIntOrFPElementsAttr.from_list(TensorType(i32, [1000]), [7])
    data = encode(holding(made))
    assert len(data) < 200 and held(read(data)) == (made,)
    huge = DenseIntOrFPElementsAttr(TensorType(i32, [1 << 40]), BytesAttr(struct.pack("<i", 7)))
    assert held(read(encode(holding(huge)))) == (huge,)


TEXTS = st.text(max_size=12)
SIMPLE = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1).map(lambda value: IntegerAttr(value, 64)),
    TEXTS.map(StringAttr),
    st.just(UnitAttr()),
    st.sampled_from([i32, f32, TensorType(f32, [2, DYNAMIC_INDEX]), TensorType(i32, [], IntegerAttr(4096, 64))]),
    st.lists(st.integers(-128, 127), max_size=4).map(lambda v: DenseArrayBase.from_list(IntegerType(8), v)),
    TEXTS.map(lambda name: NameLoc(StringAttr(name), NoneAttr())),
)
NESTED = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(ArrayAttr), st.dictionaries(TEXTS, inner, max_size=4).map(DictionaryAttr)
    ),
    max_leaves=12,
)


@given(st.lists(NESTED, max_size=5), st.sampled_from(list(VERSIONS)))
def test_nested_attributes(attributes: list[Attribute], version: int) -> None:
    data = encode(holding(*attributes), version=version)
    assert [str(value) for value in held(read(data))] == [str(in_order(value)) for value in attributes]


def in_order(attribute: Attribute) -> Attribute:
    """An attribute with the entries of its dictionaries in MLIR's order."""
    if isinstance(attribute, ArrayAttr):
        return ArrayAttr(map(in_order, attribute.data))
    if isinstance(attribute, DictionaryAttr):
        return DictionaryAttr({name: in_order(attribute.data[name]) for name in sorted(attribute.data, key=str.encode)})
    return attribute


# -- lazy reading


FUNCTIONS = "builtin.module {" + "\n".join(
    f"""func.func @block{n}(%a: i32) -> i32 {{
      %0 = "t.op"(%a) {{only = "block {n}"}} : (i32) -> i32 loc("op{n}")
      func.return %0 : i32 }}"""
    for n in range(24)
) + "}"  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_one_function_of_many(version: int) -> None:
    """The attributes of the others are not decoded, and the function is as in the whole module."""
    module = parsed(FUNCTIONS)
    file = Bytecode(encode(module, version=version), any_dialect())
    assert file.symbols == tuple(f"block{n}" for n in range(24))
    found = file.function("block7")
    whole = next(op for op in module.ops if isinstance(op, FuncOp) and op.sym_name.data == "block7")
    assert found.is_structurally_equivalent(whole) and 'only = "block 7"' in str(found)
    decoded = [value for value in file._entries._attributes.values if isinstance(value, StringAttr)]
    assert not [value.data for value in decoded if value.data.startswith("block ") and value.data != "block 7"]
    with pytest.raises(ImportModelError, match="'block99': one of block0, block1"):
        file.function("block99")


def test_functions_of_real_writers() -> None:
    for name in ("llvm22.6.mlirbc", "llvm19.0.mlirbc", "iree.4.mlirbc"):
        file = Bytecode.open(FILES / name, any_dialect())
        assert file.symbols == ("ext", "loop", "main")
        assert "quant.uniform<i8:f32, 0.25:3>" in str(file.function("main"))


def test_symbol_that_uses_values_around_it() -> None:
    """Only an op that is not isolated can; it is read with the whole module."""
    text = """builtin.module { %0 = "t.mk"() : () -> i32
      "t.symbol"() ({ "t.use"(%0) : (i32) -> () }) {sym_name = "x"} : () -> () }"""
    file = Bytecode(encode(parsed(text)), any_dialect())
    with pytest.raises(ImportModelError, match="uses values of the module around it"):
        file.function("x")
    assert plain(file.module()) == plain(parsed(text))


def other_dialect(data: bytes) -> bytes:
    """A file whose entries of dialect quant are of dialect "abcde", which nothing knows."""
    return data.replace(b"quant\0", b"abcde\0")


def test_encoding_of_an_unknown_dialect_is_refused_by_name_when_used() -> None:
    file = Bytecode(other_dialect((FILES / "llvm22.4.mlirbc").read_bytes()), any_dialect())
    assert file.op_counts["t.axis"] == 1 and "abcde" in file.dialects
    assert '"t.two"' in str(file.function("loop"))
    for ask in (file.module, lambda: file.function("main")):
        with pytest.raises(ImportModelError, match=r"byte \d+ in section ATTR_TYPE: type \d+ is of dialect 'abcde'"):
            ask()


def test_op_of_no_dialect() -> None:
    data = encode(parsed('builtin.module { "t.op"() : () -> () }'))
    with pytest.raises(ImportModelError, match="'t.op' is an op of a dialect that is not registered"):
        Bytecode(data, context()).module()


# -- use-list orders


def test_use_list_orders() -> None:
    """The second value has three uses; the file states the order 1, 2, 0."""
    text = """builtin.module { %0 = "t.mk"() : () -> i32
      "t.a"(%0) : (i32) -> ()  "t.b"(%0) : (i32) -> ()  "t.c"(%0) : (i32) -> () }"""
    data = encode(parsed(text), version=3)
    made = next(iter(read(data).body.block.ops)).results[0]
    assert names_of_users(made) == ["t.c", "t.b", "t.a"]
    orders = {(1, 2, 0): ["t.a", "t.c", "t.b"], (0, 2, 1): ["t.c", "t.a", "t.b"]}
    for order, wanted in orders.items():
        changed = with_order(data, order)
        value = next(iter(read(changed).body.block.ops)).results[0]
        assert names_of_users(value) == wanted
    with pytest.raises(ImportModelError, match="must be a permutation"):
        read(with_order(data, (0, 0, 1)))


def names_of_users(value: SSAValue) -> list[str]:
    return [str(use.operation.attributes["op_name__"]).strip('"') for use in value.uses]


def with_order(data: bytes, order: tuple[int, ...]) -> bytes:
    """The file with a use-list order for the result of its first op in the module."""
    file = Bytecode(data, any_dialect())
    cursor = file._ir
    begin = cursor.base
    ir = bytearray(cursor.data)
    name = file._names.ops.index("t.mk") << 1 | 1
    at = next(i for i in range(len(ir)) if ir[i] == name and ir[i + 1] == 0b10)
    ir[at + 1] |= 0b100000
    uses = bytes((len(order) << 2 | 1, *(place << 1 | 1 for place in order)))
    ir[at + 5 : at + 5] = uses
    return grown(data, begin, ir, len(uses))


def grown(data: bytes, begin: int, ir: bytearray, more: int) -> bytes:
    """The file with other contents of section IR, in which the module's section is `more` bytes longer."""
    inner = next(i for i in range(len(ir)) if ir[i] == 4 and i + 2 + (ir[i + 1] >> 1) + more == len(ir))
    ir[inner + 1] += more << 1
    old = data[begin - 1] >> 1
    return data[: begin - 1] + bytes((len(ir) << 1 | 1,)) + bytes(ir) + data[begin + old :]


# -- dialects with encodings and versions


@irdl_attr_definition
class PointAttr(ParametrizedAttribute):
    """An attribute of a plug-in."""

    name = "plug.point"
    label: StringAttr


def plug_in(
    version: int = 2, upgrade: Callable[[ModuleOp, object], None] = lambda module, version: None
) -> DialectCodes:
    form = Form(0, PointAttr, (TEXT,), lambda a: (a.label.data,), lambda text: PointAttr(StringAttr(text)))
    return DialectCodes("plug", (form,), (), lambda: bytes((version,)), lambda data: data[0], upgrade)


def test_dialect_with_its_encoding() -> None:
    data = encode(holding(PointAttr(StringAttr("here"))), dialects=[plug_in()])
    file = Bytecode(data, any_dialect(), dialects=[plug_in()])
    assert held(file.module()) == (PointAttr(StringAttr("here")),) and file.dialect_versions == {"plug": b"\2"}
    with pytest.raises(ImportModelError, match="dialect 'plug' has a version, and nothing here knows its versions"):
        read(data)


def test_version_is_written_read_and_upgraded() -> None:
    def upgrade(module: ModuleOp, version: object) -> None:
        module.attributes["x.from"] = IntegerAttr(version, 64) if isinstance(version, int) else UnitAttr()

    data = encode(holding(PointAttr(StringAttr("old"))), dialects=[plug_in(1)])
    module = Bytecode(data, any_dialect(), dialects=[plug_in(2, upgrade)]).module()
    assert module.attributes["x.from"] == IntegerAttr(1, 64)
    oldest = encode(holding(PointAttr(StringAttr("old"))), dialects=[plug_in(1)], version=0)  # has no place for it
    assert "x.from" not in Bytecode(oldest, any_dialect(), dialects=[plug_in(2, upgrade)]).module().attributes


# -- resources


@pytest.mark.parametrize("size", (10, 100_000))
def test_resources_are_aligned_views_of_the_file(tmp_path: Path, size: int) -> None:
    weights = {f"w{n}": np.arange(size + n, dtype=np.float32) for n in range(3)}
    blobs = {name: Blob(array) for name, array in weights.items()}
    path = tmp_path / "m.mlirbc"
    path.write_bytes(encode(holding(), external={"tool": {**blobs, "note": "text", "yes": True, "empty": None}}))
    group = Bytecode.open(path, any_dialect()).resources.external["tool"]
    assert list(group) == ["w0", "w1", "w2", "note", "yes", "empty"]
    assert (group["note"], group["yes"], group["empty"]) == ("text", True, None)
    for name, array in weights.items():
        blob = group[name]
        assert isinstance(blob, Blob)
        view = np.frombuffer(blob.data, np.float32)
        assert np.array_equal(view, array) and not view.flags.owndata and not view.flags.writeable
        assert view.ctypes.data % (64 if size > 1000 else 16) == 0 and blob.alignment == (64 if size > 1000 else 16)


def test_versions_and_releases_that_do_not_exist() -> None:
    with pytest.raises(ConfigError, match="bytecode version 7: one of 0 to 6"):
        encode(holding(), version=7)
    with pytest.raises(ConfigError, match=r"bytecode for 'llvm23': one of llvm16, .*did you mean"):
        release("llvm23")


def test_layer_groups_are_read_without_the_parser() -> None:
    """In the printed form; in any other spelling the parser reads the same."""
    printed = str(
        LayerGroupAttr.of_text(str(LayerGroupAttr(LayerGroupInfo(out_addr=-3, eu_align=False, n_idx=(), h_idx=(0, 5)))))
    )
    assert printed == str(LayerGroupAttr(LayerGroupInfo(out_addr=-3, eu_align=False, n_idx=(), h_idx=(0, 5))))
    assert LayerGroupAttr.of_text("#tpu.lg<out_addr = 5>") is None
    assert LayerGroupAttr.of_text(printed.replace("id = 0", "id = x")) is None
