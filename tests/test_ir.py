"""The text form of modules: what MLIR prints is read, what we print MLIR reads, and nothing else gets through.

The texts in `golden/` are written as MLIR prints them with debug information: sorted attributes, i64 arrays without
types, quantised types with 17 digits, locations as aliases whose definitions stand at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from compiling import to_tpu
from end_to_end import MODULES, digits_run
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax._src.interpreters import mlir as jax_mlir
from jax.extend.mlir import ir as mlir
from tpusim_kernels.prim.scale import asymmetric_scale
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError, VerifyException

from tpusim.errors import ImportModelError, TpusimError
from tpusim.ir import text
from tpusim.ir.attrs import framework_name, int_attr, ints, op_name, value_name
from tpusim.ir.module import Model, load_model, save_model
from tpusim.ir.types import address_of, calibrated_range, uniform_of
from tpusim.ir.weights import WeightStore, load_weights, save_weights
from tpusim.ops import context
from tpusim.ops.structure import TpuGroup, group_info

GOLDEN = Path(__file__).parent / "golden"
TEXTS = {name: (GOLDEN / f"{name}.mlir").read_text(encoding="utf-8") for name in ("conv_top", "cast_tpu", "group_tpu")}
CONV, CAST, GROUP = TEXTS.values()


def parse(source: str, name: str = "<text>") -> ModuleOp:
    return text.parse_module(source, context(), name)


def ops(module: ModuleOp) -> dict[str, Operation]:
    """Ops with a name, by name."""
    return {op_name(op): op for op in module.walk() if op_name(op)}


def names(module: ModuleOp) -> list[str]:
    """Every op's location in order, then the arguments'."""
    arguments = [a for op in module.walk() if isinstance(op, FuncOp) for a in op.body.block.args]
    return [str(op.location) for op in module.walk()] + [str(a.location) for a in arguments]


def assert_same(one: ModuleOp, other: ModuleOp) -> None:
    assert one.is_structurally_equivalent(other)
    assert names(one) == names(other)


@contextmanager
def real_mlir() -> Iterator[None]:
    """MLIR as jaxlib ships it, taking our dialects as unknown ones."""
    found = jax_mlir.make_ir_context()
    found.allow_unregistered_dialects = True
    with found:
        yield


def through_mlir(source: str) -> str:
    """The text as real MLIR parses, verifies and prints it again."""
    with real_mlir():
        module = mlir.Module.parse(source)
        assert module.operation.verify()
        return module.operation.get_asm(enable_debug_info=True)


# --- texts as MLIR prints them


@pytest.mark.parametrize("name", TEXTS)
def test_golden_is_what_mlir_prints(name: str):
    """So that the other tests say something about MLIR; its numbering of aliases is the only freedom."""

    def unnumbered(source: str) -> str:
        found: dict[str, str] = dict(re.findall(r"^(#loc\d*) = (.*)$", source, re.MULTILINE))
        body = re.sub(r"^#loc.*\n", "", source, flags=re.MULTILINE)
        return re.sub(r"loc\((#loc\d*)\)", lambda m: found[m.group(1)], body)

    assert unnumbered(through_mlir(TEXTS[name])) == unnumbered(TEXTS[name])


@pytest.mark.parametrize("name", TEXTS)
def test_round_trip(name: str):
    """Text -> module -> text -> the same module and the same text."""
    module = parse(TEXTS[name])
    printed = text.print_module(module)
    again = parse(printed)
    assert_same(again, module)
    assert text.print_module(again) == printed


@pytest.mark.parametrize("name", TEXTS)
def test_mlir_reads_what_we_print(name: str):
    module = parse(TEXTS[name])
    assert_same(parse(through_mlir(text.print_module(module))), module)


PLACES = """module {
  func.func @main(%0: tensor<1x4x2x2xf32>) -> tensor<1x4x2x2xf32> {
    %1 = "top.Input"(%0) : (tensor<1x4x2x2xf32>) -> tensor<1x4x2x2xf32> loc(fused<"tuple">["x":1:2, "x", "more"])
    %2 = "top.Relu"(%1) : (tensor<1x4x2x2xf32>) -> tensor<1x4x2x2xf32> loc(callsite("model.py":3:7 at "called"))
    %3 = "top.Abs"(%2) : (tensor<1x4x2x2xf32>) -> tensor<1x4x2x2xf32> loc("named"(callsite("inner" at unknown)))
    %typed = "top.Exp"(%3) : (tensor<1x4x2x2xf32>) -> tensor<1x4x2x2xf32> loc("model.py":5:1)
    %5 = "top.Tanh"(%typed) : (tensor<1x4x2x2xf32>) -> tensor<1x4x2x2xf32> loc("model.py":6:1)
    func.return %5 : tensor<1x4x2x2xf32>
  }
}
"""
"""Locations of every kind; `"x":1:2` is a place in a file that is called x."""


def test_locations_of_every_kind_are_kept():
    """Parsed, printed, and read by MLIR, each is what it was; a name that was typed stands in front of a place."""
    module = parse(PLACES)
    body = [op for op in module.walk() if op.name.startswith("top.")]
    assert [op_name(op) for op in body] == ["x", "called", "named", "typed", ""]
    assert [framework_name(op) for op in body] == ["x", "called", "named", "typed", ""]
    printed = text.print_module(module)
    for place in re.findall(r"loc\(.*\)$", PLACES, re.MULTILINE):
        assert place in printed or place == 'loc("model.py":5:1)'
    assert 'loc("typed"("model.py":5:1))' in printed
    assert_same(parse(printed), module)
    assert_same(parse(through_mlir(printed)), module)


def test_each_result_has_its_part_of_a_fused_location():
    source = """module {
  func.func @main(%0: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    %1:2 = "tpu.Group"(%0) ({
      %2 = "tpu.Load"(%0) : (tensor<4xf32>) -> tensor<4xf32> loc("load")
      "tpu.Yield"(%2, %2) : (tensor<4xf32>, tensor<4xf32>) -> ()
    }) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) loc(fused["a", "b"])
    func.return %1#0, %1#1 : tensor<4xf32>, tensor<4xf32>
  }
}
"""
    group = next(op for op in text.ModuleParser(context(), source).parse_module().walk() if op.name == "tpu.Group")
    assert [value_name(v) for v in group.results] == ["a", "b"]
    assert op_name(group) == "a"


def test_integers_made_without_checks_are_those_of_xdsl():
    """Values beyond i64 go through xDSL's constructor, which refuses them."""
    for value in (0, -1, 2**63 - 1, -(2**63), True):
        made, wanted = int_attr(value), IntegerAttr(value, i64)
        assert made == wanted and hash(made) == hash(wanted) and str(made) == str(wanted)
        made.verify()
    with pytest.raises(VerifyException):
        int_attr(2**70)


@pytest.mark.parametrize(
    "source",
    [
        "[1 : i64, -2 : i64, 30]", "[]", "[999999999999999999, -999999999999999999 : i64]", "[9223372036854775807]",
        "[-0, 007]", "[1 : i32, 2 : i64]", "[1, 2.5]", "[[1, 2], [3]]", "[ 1,2 ]", "[1, true]", "[0x1F, 2]", "[1:i64]",
        "[9223372036854775808]", "[1, ٣]",
    ],
)  # fmt: skip
def test_lists_are_read_as_xdsl_reads_them(source: str):
    entry = f"{{a = {source}, b = 7 : i64}}"
    assert text.ModuleParser(context(), entry).parse_attribute() == Parser(context(), entry).parse_attribute()


@pytest.mark.parametrize("source", ["[1, 2", "[1, 2,]", "[1 2]", "[1 : i64 : i64]"])
def test_broken_lists_fail_as_in_xdsl(source: str):
    said = []
    for kind in (text.ModuleParser, Parser):
        with pytest.raises((ParseError, VerifyException)) as caught:
            kind(context(), source).parse_attribute()
        said.append(str(caught.value).replace("<text>", "<unknown>"))
    assert said[0] == said[1]


def test_conv_module():
    module = parse(CONV)
    found = ops(module)
    assert list(found) == ["input", "filter_conv1", "bias_conv1", "conv1"]
    conv = found["conv1"]
    assert conv.name == "top.Conv"
    assert {k: ints(conv.attributes[k]) for k in ("dilations", "kernel_shape", "pads", "strides")} == {
        "dilations": (1, 1), "kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "strides": (1, 1)
    }  # fmt: skip
    assert str(conv.results[0].type) == "tensor<1x32x100x100xf32>"
    assert Model(module, WeightStore()).attribute("module.weight_file") == "conv_top_f32_all_weight.npz"


def test_quantised_types():
    cast = ops(parse(CAST))["input_si8"]
    assert calibrated_range(cast.operands[0]) == (-4.1780586242675781, 4.4932479858398438)
    found = uniform_of(cast.results[0])
    assert found is not None
    assert (found.scale.data, found.zero_point.value.data, found.signed) == (0.034005123961205579, -5, True)


def test_scale_of_the_calibrated_range():
    """The kernels' formula gives the very numbers of the type."""
    cast = ops(parse(CAST))["input_si8"]
    found, measured = uniform_of(cast.results[0]), calibrated_range(cast.operands[0])
    assert found is not None and measured is not None
    assert asymmetric_scale(*measured) == (found.scale.data, found.zero_point.value.data, found.signed)


def test_group_module():
    module = parse(GROUP)
    group = next(op for op in module.walk() if isinstance(op, TpuGroup))
    assert group.sections() == {"n": 1, "c": 1, "d": 1, "h": 2, "w": 1}
    kinds = [op.name for op in group.body.block.ops]
    assert kinds == [
        *("tpu.Load", "tpu.Cast", "tpu.Load", "tpu.Conv2D", "tpu.Cast", "tpu.Store", "tpu.Yield"),
    ]
    assert address_of(group.results[0]) == 4295618560
    load, conv = ops(module)["load_input"], ops(module)["conv1"]
    info, inner = group_info(load), group_info(conv)  # type: ignore[arg-type]
    assert info is not None and inner is not None
    assert (info.out_size, info.h_idx, info.h_slice, info.w_slice, info.stage) == (6400, (0, 49), (51, 51), (100,), 0)
    # fields that were left out
    assert (info.buffer_addr, info.can_merge, info.in_hslice_offset, info.n_idx, info.n_slice) == (
        *(0, False, ()),
        *((0,), (1,)),
    )
    assert (inner.in_hslice_offset, inner.eu_align, inner.id) == ((0, 0), True, 3)


def test_every_field_of_lg_is_printed():
    printed = text.print_module(parse(GROUP))
    first = next(re.finditer(r"#tpu\.lg<(.*?)>", printed)).group(1)
    assert re.findall(r"(\w+) =", first) == [
        *("out_addr", "out_size", "buffer_addr", "buffer_size", "eu_align", "can_merge", "in_hslice_offset"),
        *("n_idx", "n_slice", "c_idx", "c_slice", "d_idx", "d_slice", "h_idx", "h_slice", "w_idx", "w_slice"),
        *("id", "stage", "slice_idx", "group_type"),
    ]


def test_names_that_need_escapes():
    """A tensor name may hold any character; MLIR writes what is not ASCII as bytes."""
    for name in ("a b", 'quoted"name', "back\\slash", "Schritt_größer", "層/1:0", "tab\there"):
        module = parse(CONV)
        ops(module)["conv1"].location = text_location(name)
        printed = text.print_module(module)
        assert op_name(list(ops(parse(printed)).values())[-1]) == name
        assert_same(parse(through_mlir(printed)), module)


def text_location(name: str):  # noqa: ANN201
    from tpusim.ir.attrs import name_location

    return name_location(name)


# --- the artefacts of a run


@pytest.mark.parametrize("stage", MODULES)
@pytest.mark.parametrize("chip", ["bm1684x", "bm1684"])
def test_artefacts_are_mlir(tmp_path_factory: pytest.TempPathFactory, chip: str, stage: str):
    """Every stage's module of the digits network: read by MLIR, and what it prints is the module again."""
    path = digits_run(tmp_path_factory, chip, "int8") / stage
    source = path.read_text(encoding="utf-8")
    module = parse(source)
    assert text.print_module(module) == source
    assert_same(parse(through_mlir(source)), module)


def test_artefact_of_mlir_runs(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path):
    """A module that went through MLIR gives the same tensors as the one it was made from."""
    from tpusim.inference import run

    folder = digits_run(tmp_path_factory, "bm1684x", "int8")
    (tmp_path / "4_tpu.mlir").write_text(through_mlir((folder / "4_tpu.mlir").read_text()))
    (tmp_path / "tpu_weights.npz").write_bytes((folder / "tpu_weights.npz").read_bytes())
    inputs = dict(np.load(folder / "inputs.npz"))
    one = run(load_model(folder / "4_tpu.mlir", context()), inputs)
    other = run(load_model(tmp_path / "4_tpu.mlir", context()), inputs)
    assert list(one) == list(other)
    assert all(np.array_equal(one[n], other[n]) for n in one)


# --- what is refused


def refused(source: str) -> str:
    """The message of the one error for a text; it names the file."""
    with pytest.raises(ImportModelError) as caught:
        parse(source, "folder/model.mlir")
    message = str(caught.value)
    assert "module 'folder/model.mlir'" in message
    assert len(message) < 700
    return message


def typed(element: str) -> str:
    """A module whose argument has an element type, in line 2."""
    tensor = f"tensor<1x2x{element}>"
    return f"module {{\n func.func @main(%a: {tensor}) -> {tensor} {{\n  return %a : {tensor}\n }}\n}}\n"


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("top.Conv", "top.Conf", 8, "top.Conf"),
        ("top.Conv", "conv.Conv", 8, "conv.Conv"),
        ("strides = [1, 1]", "strides = [1, 1", 8, "']'"),
        ("loc(#loc4)", "loc(#loc44)", 8, "#loc44"),
        ('#loc4 = loc("conv1")', "#loc4 = loc(#loc4)", 15, "#loc4 is defined by itself"),
        ('#loc4 = loc("conv1")', "#loc4 = loc(#loc3)\n#loc3 = loc(#loc4)", 16, "#loc3 is defined twice"),
        ('#loc4 = loc("conv1")', '#loc4 = loc("conv1")\n#loc4 = loc("conv2")', 16, "#loc4 is defined twice"),
        ('#loc4 = loc("conv1")', '#loc4 = "conv1"', 8, "#loc4"),
        ("tensor<32x16x3x3xf32>", "tensor<32x16x3x3xf31>", 6, "f31"),
        ("tensor<32xf32>", "tensor<32xi32, >", 7, ""),
        ("(%1, %2, %3)", "(%1, %2, %9)", 8, "%9"),
        ("return %4", "return %1", 9, "tensor<1x16x100x100xf32>"),
    ],
)
def test_text_errors_name_the_line(old: str, new: str, line: int, words: str):
    message = refused(CONV.replace(old, new))
    found = re.search(r"line (\d+)", message)
    assert found is not None and words in message
    # an undefined value is only known at the end of its region
    assert int(found.group(1)) == line or (words == "%9" and int(found.group(1)) >= line)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("kernel_shape = [3, 3], ", "", "kernel_shape"),
        ("kernel_shape = [3, 3]", "kernel_shape = 3 : i64", "array"),
        ("kernel_shape = [3, 3]", "kernel_shape = [7, 3]", "kernel_shape (7, 3)"),
        ("1x32x100x100", "1x32x99x100", "(1, 32, 99, 100)"),
        ("tensor<32x16x3x3xf32>", "tensor<32x17x3x3xf32>", "'conv1'"),
        ("(%1, %2, %3)", "(%1, %2)", "conv1"),
    ],
)
def test_ops_that_do_not_verify_are_named(old: str, new: str, words: str):
    changed = CONV.replace(old, new)
    if new == "(%1, %2)":
        changed = changed.replace("tensor<32x16x3x3xf32>, tensor<32xf32>)", "tensor<32x16x3x3xf32>)")
    message = refused(changed)
    assert "top.Conv 'conv1'" in message and words in message


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("out_adr = 0", "'out_adr'"),
        ("out_addr = 0, out_addr = 1", "'out_addr'"),
        ("n_idx = 3", "line 8"),
        ("out_addr = [1]", "line 8"),
        ("eu_align = 2", "line 8"),
        ("out_addr", "line 8"),
        ("out_addr = ", "line 8"),
    ],
)
def test_lg_fields(field: str, words: str):
    message = refused(GROUP.replace("#tpu.lg<out_addr = 0, ", f"#tpu.lg<{field}, "))
    assert words in message and "line 8" in message


def test_lg_without_fields():
    assert parse(re.sub(r"#tpu\.lg<.*?>", "#tpu.lg<>", GROUP))


@pytest.mark.parametrize(
    "element",
    [
        "!quant.calibrated<f32<1.0:-1.0>>",
        "!quant.calibrated<f32<-inf:inf>>",
        "!quant.calibrated<f32<0.0:1.0e400>>",
        "!quant.calibrated<f32<0.0>>",
        "!quant.calibrated<f32>",
        "!quant.calibrated<-1.0:1.0>",
        "!quant.uniform<i8:f32, inf>",
        "!quant.uniform<i8:f32, nan>",
        "!quant.uniform<i8:f32, 1.0e400>",
        "!quant.uniform<i8:f32, 0.0>",
        "!quant.uniform<i8:f32, -0.1>",
        "!quant.uniform<i8:f32, 0.1:128>",
        "!quant.uniform<i8:f32, 0.1:-129>",
        "!quant.uniform<u8:f32, 0.1:256>",
        "!quant.uniform<u8:f32, 0.1:-1>",
        "!quant.uniform<i8:f32, 0.1:0.5>",
        "!quant.uniform<i9:f32, 0.1>",
        "!quant.uniform<f8:f32, 0.1>",
        "!quant.uniform<i8, 0.1>",
        "!quant.uniform<>",
        "!quant.unknown<i8:f32, 0.1>",
        "!quant",
    ],
)
def test_bad_quantised_types(element: str):
    assert "line 2" in refused(typed(element))


@pytest.mark.parametrize(
    "element",
    [
        "!quant.calibrated<f32<0.0:0.0>>",
        "!quant.calibrated<f32<-1:1.5e-30>>",
        "!quant.uniform<i8:f32, 1.0e-38:-128>",
        "!quant.uniform<u8:f32, 3.0e+38:255>",
        "!quant.uniform<i16:f32, 0.5:-32768>",
        "!quant.uniform<i4:f32, 0.5:7>",
    ],
)
def test_quantised_types_at_the_limits(element: str):
    module = parse(typed(element))
    assert_same(parse(text.print_module(module)), module)
    assert_same(parse(through_mlir(text.print_module(module))), module)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
@pytest.mark.parametrize("name", TEXTS)
def test_truncated_files(name: str, share: float):
    assert "line" in refused(TEXTS[name][: int(len(TEXTS[name]) * share)])


@pytest.mark.parametrize("source", ["", " \n", "\x00\x01\x02", "module", "module {", "}", "PK\x03\x04", "{" * 5000])
def test_garbage(source: str):
    refused(source)


def test_deep_nesting_is_an_error():
    refused('module { "top.None"() {a = ' + "[" * 20000 + "]" * 20000 + "} : () -> none }")


@pytest.mark.parametrize("name", TEXTS)
def test_unclosed_strings(name: str):
    """Each quote left out once; the parser answers at once."""
    for quote in [m.start() for m in re.finditer('"', TEXTS[name])][:30]:
        refused(TEXTS[name][:quote] + TEXTS[name][quote + 1 :])
    refused('"' + "a" * 5000)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", bytes(range(256)), b"\x80" * 100])
def test_binary_files(tmp_path: Path, content: bytes):
    path = tmp_path / "model.mlir"
    path.write_bytes(content)
    with pytest.raises(ImportModelError, match=re.escape(str(path))):
        load_model(path, context())


def test_unknown_attribute_of_an_op():
    """XDSL lets an op carry any attribute; a misspelt one would have no effect."""
    refused(CONV.replace("do_relu = false", "do_rellu = false"))


PIECES = [
    "tensor<",
    "!quant.uniform<i8:f32, ",
    "#tpu.lg<",
    "loc(",
    "#loc1",
    "[",
    "]",
    "<",
    ">",
    "{",
    "}",
    '"',
    "%1",
    "=",
]
PIECES += ["-1", "1e999", "99999999999999999999999", "\\", "\x00", "é", "top.Conv", "#loc1 = loc(#loc2)\n", ": i64", ""]


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(list(TEXTS)),
    edits=st.lists(
        st.tuples(st.integers(0, 10_000), st.integers(0, 12), st.sampled_from(PIECES) | st.text(max_size=3)),
        min_size=1,
        max_size=3,
    ),
)
@example(name="conv_top", edits=[(0, 0, "\ud800")])
def test_random_changes_parse_or_are_refused(name: str, edits: list[tuple[int, int, str]]):
    """Whatever happens to a text, the result is a module or a TpusimError."""
    source = TEXTS[name]
    for place, cut, piece in edits:
        at = place % (len(source) + 1)
        source = source[:at] + piece + source[at + cut :]
    try:
        module = parse(source)
    except TpusimError:
        return
    assert_same(parse(text.print_module(module)), module)


# --- module and weights on disk


def saved(folder: Path, **arrays: np.ndarray) -> Path:
    """The conv module with its weight file."""
    weights = {"filter_conv1": np.zeros((32, 16, 3, 3), np.float32), "bias_conv1": np.zeros(32, np.float32)}
    save_model(Model(parse(CONV), WeightStore(weights | arrays)), folder / "1_top.mlir", weight_file="w.npz")
    return folder / "1_top.mlir"


def test_model_on_disk(tmp_path: Path):
    model = load_model(saved(tmp_path), context())
    assert (model.name, model.state, list(model.weights)) == ("conv", "TOP_F32", ["filter_conv1", "bias_conv1"])


@pytest.mark.parametrize("name", ["../w.npz", "/tmp/w.npz", "a/w.npz"])
def test_weight_file_stays_beside_the_module(tmp_path: Path, name: str):
    path = saved(tmp_path)
    path.write_text(path.read_text().replace('"w.npz"', f'"{name}"'))
    with pytest.raises(ImportModelError, match="must be a file name"):
        load_model(path, context())


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((32, 16, 3, 1), np.float32), "float32 (32, 16, 3, 1), not float32 (32, 16, 3, 3)"),
        (np.zeros((32, 16, 3, 3), np.int8), "int8 (32, 16, 3, 3), not float32"),
    ],
)
def test_weights_must_fit_the_module(tmp_path: Path, array: np.ndarray, words: str):
    path = saved(tmp_path, filter_conv1=array)
    with pytest.raises(ImportModelError) as caught:
        load_model(path, context())
    assert words in str(caught.value) and "'filter_conv1'" in str(caught.value)


def test_missing_weights_are_all_named(tmp_path: Path):
    path = saved(tmp_path)
    path.write_text(path.read_text().replace('loc("filter', 'loc("f').replace('loc("bias', 'loc("b'))
    with pytest.raises(ImportModelError, match="'f_conv1' is not there; 'b_conv1' is not there"):
        load_model(path, context())


def test_weight_of_a_type_without_storage(tmp_path: Path):
    path = saved(tmp_path)
    path.write_text(path.read_text().replace("tensor<32xf32>", "tensor<32xf64>"))
    with pytest.raises(ImportModelError, match="bias_conv1"):
        load_model(path, context())


def test_properties_are_read_as_attributes() -> None:
    """MLIR with registered dialects prints `<{...}>` for an op's attributes; the meaning is the same."""
    plain = (Path(__file__).parent / "golden" / "conv_top.mlir").read_text()
    line = next(s for s in plain.splitlines() if '"top.Conv"' in s)
    start, stop = line.index("{"), line.index("}") + 1
    with_properties = plain.replace(line, f"{line[:start]}<{line[start:stop]}>{line[stop:]}")
    one, other = (text.parse_module(s, context()) for s in (with_properties, plain))
    assert with_properties != plain
    assert one.is_structurally_equivalent(other)


def test_weights_keep_their_type_in_the_file(tmp_path: Path):
    kinds = (np.float32, np.int8, np.uint8, np.int16, np.uint16, np.int32)
    stored = {np.dtype(k).name: np.arange(-6, 6).reshape(3, 4).astype(k) for k in kinds}
    save_weights(WeightStore(stored), tmp_path / "w.npz")
    found = load_weights(tmp_path / "w.npz")
    assert {name: array.dtype.name for name, array in found.items()} == {name: name for name in stored}
    for name, array in stored.items():
        np.testing.assert_array_equal(found[name], array)


def test_16_bit_floats_are_bits_in_the_file_as_in_tpu_mlir(tmp_path: Path):
    values = np.array([[-2.0, 0.5, 1.0], [3.0, 65280.0, -0.0]])
    bits = {
        "float16": [0xC000, 0x3800, 0x3C00, 0x4200, 0x7BF8, 0x8000],
        "bfloat16": [0xC000, 0x3F00, 0x3F80, 0x4040, 0x477F, 0x8000],
    }
    stored = {"float16": values.astype(np.float16), "bfloat16": values.astype(ml_dtypes.bfloat16)}
    save_weights(WeightStore(stored), tmp_path / "w.npz")
    with np.load(tmp_path / "w.npz") as found:
        for name, wanted in bits.items():
            assert (found[name].dtype, found[name].shape, found[name].ravel().tolist()) == (np.uint16, (2, 3), wanted)


@pytest.mark.parametrize("chip", ["bm1684x", "cv183x"])
def test_modules_with_bf16_weights_are_read_back(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, chip: str):
    """CV18xx has BF16 tables even in INT8 networks; BM chips have BF16 filters in that mode."""
    top = load_model(digits_run(tmp_path_factory, "bm1684x", "int8") / "2_canonical.mlir", context())
    tpu = to_tpu(top, chip, "bf16")
    save_model(tpu, tmp_path / "tpu.mlir")
    found = load_model(tmp_path / "tpu.mlir", context())
    assert "bfloat16" in {a.dtype.name for a in tpu.weights.values()}
    assert {n: a.dtype for n, a in found.weights.items()} == {n: a.dtype for n, a in tpu.weights.items()}
