"""The table of the two dialects: every op class agrees with it, and what the attributes of TPU-MLIR mean here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from op_cases import CASES, OpCase
from rotation import is_usual, marks
from rows import imported, lowered
from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IntegerAttr, NoneType, StringAttr, i1, i64
from xdsl.ir import Attribute, Operation
from xdsl.irdl import IRDLOperation, OptOperandDef, VarOperandDef

from tpusim.errors import ImportModelError, UnsupportedError
from tpusim.fidelity.dialects import page
from tpusim.ir.attrs import framework_name, op_name
from tpusim.ir.described import described
from tpusim.ir.modes import ActiveMode
from tpusim.ir.opaque import opaque_ops
from tpusim.ir.text import parse_module, print_module
from tpusim.ir.upstream import FRAMEWORK, OWN, Meaning, entry, meaning, names
from tpusim.ir.upstream.absent import completed
from tpusim.ir.upstream.table import AttributeEntry
from tpusim.ir.upstream.values import plain
from tpusim.ops import Top, Tpu
from tpusim.ops import context as ops_context
from tpusim.ops.activation.top import Activation

ROOT = Path(__file__).parents[1]
OURS = {
    *("top.Arcsin", "top.Arctan", "top.LogSoftmax", "top.Trunc"),
    *("tpu.Mod", "tpu.Pow3"),
}
"""Ops that TPU-MLIR does not have."""


def test_the_table_has_all_ops() -> None:
    found = names()
    assert (sum(n.startswith("top.") for n in found), sum(n.startswith("tpu.") for n in found)) == (210, 238)
    assert {name for dialect in (Top, Tpu) for op in dialect.operations if not entry(name := op.name)} == OURS


GENERIC = {"axis"}
"""Attributes that have the prefix on top.Flatten only; code reads them of other ops by name."""


def test_own_attributes_are_reached_by_fields() -> None:
    """Their names in the IR have a prefix, so that a lookup by the Python name sets another attribute, or sees none."""
    classes = [op for dialect in (Top, Tpu) for op in dialect.operations if issubclass(op, IRDLOperation)]
    every = {name for op in classes for name in op.get_irdl_definition().attributes}
    own = "|".join(sorted({name.removeprefix(OWN) for name in every if name.startswith(OWN)} - GENERIC))
    lookup = re.compile(rf"""\.attributes(\.get|\.pop)?[\[(]\s*"({own})"|"({own})" (not )?in \w+\.attributes""")
    assert {"arithmetic", "dtype", "fixed_threshold", "do_relu", "key_block"} <= set(own.split("|"))
    assert lookup.search('op.attributes["dtype"]') and lookup.search('self.attributes.pop("arithmetic", None)')
    found = [(path.name, m.group()) for path in ROOT.glob("tpusim/**/*.py") for m in lookup.finditer(path.read_text())]
    assert not found


def test_entries() -> None:
    conv, concat, topk = entry("tpu.Conv2D"), entry("top.Concat"), entry("top.TopK")
    assert conv and concat and topk
    assert [a.name for a in conv.required] == ["kernel_shape", "strides", "pads", "with_bias"]
    assert [(o.name, o.absent, o.variadic) for o in conv.operands] == [
        ("input", False, False), ("filter", False, False), ("bias", True, False)
    ]  # fmt: skip
    assert (conv.attributes["round_mode"].type, conv.attributes["round_mode"].default) == ("tpu.round_mode", "HalfUp")
    assert "HalfToEven" in conv.attributes["round_mode"].choices
    assert (concat.variadic, concat.attributes["axis"].type, concat.attributes["axis"].default) == (True, "si32", "1")
    assert topk.operands[1].missing
    assert entry("top.Unknown") is None


@pytest.mark.parametrize(
    ("op", "attribute", "expected"),
    [
        ("tpu.Conv2D", "multicore", Meaning.OPAQUE),
        ("tpu.Conv2D", "kernel_zp", Meaning.NEUTRAL),
        ("top.Sigmoid", "log", Meaning.NEUTRAL),
        ("top.Sigmoid", "logarithm", Meaning.UNKNOWN),
        ("top.Unknown", "log", Meaning.UNKNOWN),
    ],
)
def test_meanings(op: str, attribute: str, expected: Meaning) -> None:
    assert meaning(op, attribute) is expected


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        (IntegerAttr(1, i1), True),
        (IntegerAttr(-3, i64), -3),
        (FloatAttr(-1.0, 64), -1.0),
        (StringAttr("HalfUp"), "HalfUp"),
    ],
)
def test_plain_values(attribute: Attribute, value: object) -> None:
    assert plain(attribute) == value
    assert type(plain(attribute)) is type(value)


def test_meanings_name_attributes_of_the_table() -> None:
    from tpusim.ir.upstream.table import EVERY, _meanings  # noqa: PLC0415  private: the file itself is tested

    everywhere = {a for name in names() if (known := entry(name)) for a in known.attributes}
    assert set(_meanings()["opaque"][EVERY]) <= everywhere
    for kind in ("opaque", "neutral"):
        for op, attributes in _meanings()[kind].items():
            known = entry(op)
            assert op == EVERY or (known and set(attributes) <= set(known.attributes)), (kind, op)


MODULE = """module {{
  func.func @main(%arg0: tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32> {{
    %0 = "top.Input"(%arg0) : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32> loc("x")
    %1 = "top.{op}"(%0) {{{attribute}}} : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32> loc("y")
    func.return %1 : tensor<1x4x8x8xf32>
  }}
}}
"""


@pytest.mark.parametrize(
    ("op", "attribute"),
    [
        ("Sigmoid", "log = false"),
        ("Sigmoid", "scale = 1.0 : f64, bias = 0.0 : f64"),
        ("GELU", 'approx_mode = "normal", round_mode = "HalfAwayFromZero"'),
        ("Reciprocal", "const_val = 1.0 : f64, do_relu = false, relu_limit = -1.0 : f64"),
        ("Softmax", "axis = 1 : si32, beta = 1.0 : f64, log = false"),
        ("Relu", "relu_limit = -1.0 : f64"),
    ],
)
def test_a_neutral_attribute_is_kept(op: str, attribute: str) -> None:
    module = parse_module(MODULE.format(op=op, attribute=attribute), ops_context())
    assert all(part.split("=")[0] in print_module(module) for part in attribute.split(", "))


@pytest.mark.parametrize(
    ("op", "attribute", "words"),
    [
        ("Sigmoid", "log = true", "log requires false, got true"),
        ("Sigmoid", "scale = 2.0 : f64", "scale requires 1, got 2"),
        ("GELU", 'approx_mode = "normal", round_mode = "Up"', 'round_mode requires HalfAwayFromZero, got "Up"'),
        ("Softmax", "axis = 1 : si32, beta = 0.5 : f64", "beta requires 1.0, got 5"),
        ("Reciprocal", "const_val = 1.0 : f64, do_relu = true", "do_relu requires false, got true"),
    ],
)
def test_an_attribute_that_is_not_computed_is_refused(op: str, attribute: str, words: str) -> None:
    with pytest.raises(UnsupportedError, match=r"top\.\w+ 'y': ") as caught:
        parse_module(MODULE.format(op=op, attribute=attribute), ops_context())
    assert words in str(caught.value)


def test_an_attribute_of_neither_dialect_is_no_module() -> None:
    with pytest.raises(ImportModelError, match="unknown attribute 'logs'"):
        parse_module(MODULE.format(op="Sigmoid", attribute="logs = true"), ops_context())


def test_page_is_current() -> None:
    assert (ROOT / "docs" / "dialects.md").read_text(encoding="utf-8") == page(), "run `make dialects`"


def test_the_page_names_every_op() -> None:
    text = page()
    for name in {*names(), *OURS}:
        assert any(f"{mark}{name}" in text for mark in ("### ", "| ", "`")), name


# ----------------------------------------------------------------------------------------------------------- spelling

OLD = sorted((ROOT / "tests" / "golden" / "old_spelling").glob("*.mlir"))
"""Lowered modules that a release with other names and types wrote: tests/upstream's networks on BM1684X in INT8."""


@pytest.mark.parametrize("cls", [*Top.operations, *Tpu.operations], ids=lambda cls: cls.name)
def test_a_class_has_the_names_and_types_of_the_table(cls: type[IRDLOperation]) -> None:
    known, definition = entry(cls.name), cls.get_irdl_definition()
    if known is None:
        return
    own = {name for name in definition.attributes if name.startswith("tpusim.")}
    assert set(definition.attributes) - own <= {*known.attributes, "ginfo"}
    assert not {name.removeprefix("tpusim.") for name in own} & set(known.attributes)
    fixed = [name for name, d in definition.operands if not isinstance(d, VarOperandDef | OptOperandDef)]
    if not known.variadic:
        assert len(fixed) <= len(known.operands)


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_a_file_of_an_earlier_release_becomes_the_new_spelling(path: Path) -> None:
    before = path.read_text(encoding="utf-8")
    module = parse_module(before, ops_context())
    after = print_module(module)
    assert " decisions = " not in after
    for op in module.walk():
        known = entry(op.name)
        if known is None or op.name.startswith("top.Weight"):
            continue
        assert not {a.name for a in known.required} - op.attributes.keys(), op.name
        for name, value in op.attributes.items():
            if name in known.attributes and isinstance(value, IntegerAttr):
                assert str(value.type) == {"bool": "i1"}.get(kind := known.attributes[name].type, kind), (op.name, name)
    assert print_module(parse_module(after, ops_context())) == after


def test_all_operands_are_written_and_absent_ones_are_not_read() -> None:
    text = MODULE.format(op="Permute", attribute="order = [0 : i64, 1 : i64, 2 : i64, 3 : i64]")
    module = parse_module(text.replace("top.Permute", "tpu.Permute"), ops_context())
    written = print_module(module)
    assert '%0 = "top.None"()' in written
    assert '"tpu.Permute"(%1, %0)' in written
    again = parse_module(written, ops_context())
    assert [len(op.operands) for op in again.walk() if op.name == "tpu.Permute"] == [1]
    assert not any(op.name == "top.None" for op in again.walk())
    assert print_module(again) == written


@pytest.mark.parametrize(
    ("row", "written"),
    [
        ("scatter-elements", "reduction = 0 : i64"),
        ("scatter-elements-add", "reduction = 1 : i64"),
        ("grid-sample", "mode = 0 : i64, padding_mode = 0 : i64"),
        ("grid-sample-nearest", "mode = 1 : i64, padding_mode = 2 : i64"),
    ],
)
def test_words_are_written_as_the_numbers_of_the_table(row: str, written: str) -> None:
    before = print_module(imported(row).module)
    assert written in before
    assert print_module(parse_module(before, ops_context())) == before
    name, word = (
        ("reduction", {"0": "none", "1": "add"}[written.split()[2]]) if "reduction" in written else ("mode", "")
    )
    if word:
        earlier = before.replace(written, f'{name} = "{word}"')
        assert print_module(parse_module(earlier, ops_context())) == before


def test_a_word_without_a_number_stays_and_a_number_without_a_word_is_refused() -> None:
    text = print_module(imported("scatter-elements-add").module)
    for word in ("max", "mul"):
        with_word = text.replace("reduction = 1 : i64", f'reduction = "{word}"')
        assert print_module(parse_module(with_word, ops_context())) == with_word
    with pytest.raises(ImportModelError, match=r"reduction among 0 \(none\), 1 \(add\) is required, got 2"):
        parse_module(text.replace("reduction = 1", "reduction = 2"), ops_context())
    with pytest.raises(ImportModelError, match="a reduction of .* is required, got 'median'"):
        parse_module(text.replace("reduction = 1 : i64", 'reduction = "median"'), ops_context())


OTHERS = {
    ("tpu.Active", "mode"): ("ARCTAN", "POW", "ROUND_EVEN", "TRUNC"),
    ("top.Compare", "mode"): ("Or",),
    ("tpu.Compare", "mode"): ("Or",),
    ("tpu.RequantIntAxis", "quant"): ("none",),
}
"""Values that TPU-MLIR does not have, and an operand that it has before weights are in the chip's layout."""


def not_in_the_table(op: Operation) -> Iterator[tuple[str, str]]:
    """(attribute or operand, value) of an op as it is written, where the table has another type or other values."""
    known = entry(op.name)
    if known is None:
        return
    for name, value in op.attributes.items():
        if (attribute := known.attributes.get(name)) and not of_type(value, attribute):
            yield name, str(plain(value))
    if not known.variadic:
        for operand, value in zip(known.operands, op.operands, strict=False):
            if isinstance(value.type, NoneType) and not operand.absent:
                yield operand.name, "none"


def of_type(value: Attribute, attribute: AttributeEntry) -> bool:
    if attribute.type.endswith("[]"):
        assert isinstance(value, ArrayAttr)
        one = replace(attribute, type=attribute.type.removesuffix("[]"))
        return all(of_type(item, one) for item in value.data)
    if attribute.type.startswith("tpu."):
        return value.name == attribute.type and (not attribute.choices or plain(value) in attribute.choices)
    if attribute.type.startswith("string"):
        return isinstance(value, StringAttr) and (not attribute.choices or value.data in attribute.choices)
    if attribute.type.startswith("f"):
        return isinstance(value, FloatAttr) and str(value.type) == attribute.type
    return isinstance(value, IntegerAttr)


@pytest.mark.parametrize("case", [pytest.param(c, id=c.id, marks=marks(is_usual(c, 0))) for c in CASES])
def test_all_rows_are_written_with_types_and_values_of_the_table(case: OpCase) -> None:
    chips = [chip for chip in ("bm1684x", "cv183x") if chip not in case.refused_on]
    modules = [imported(case.id), *(lowered(case.id, chip, "int8")[0] for chip in chips)]
    found = [(op.name, name, value) for m in modules for op in completed(m.module).walk()
             for name, value in not_in_the_table(op)]  # fmt: skip
    assert not [f for f in found if f[2] not in OTHERS.get(f[:2], ())]


RESULTS = {
    "argmax": "-> (tensor<3x1x6x5xf32>, none)",
    "topk": "-> (tensor<3x5x6x3xf32>, none)",
    "topk-places": "-> (none, tensor<3x5x6x3xf32>)",
    "lstm": "-> (tensor<4x1x2x5xf32>, none, none)",
    "lstm-cell-state": "-> (none, none, tensor<1x2x5xf32>)",
    "gru-both-ways": "-> (none, tensor<2x2x5xf32>)",
    "flatten": "-> tensor<3x150xf32>",
}
SEVERAL = """module attributes {{module.state = "TOP_F32"}} {{
  func.func @main(%0: tensor<1x2xf32>) -> tensor<{shape}xf32> {{
    %x = "top.Input"(%0) : (tensor<1x2xf32>) -> tensor<1x2xf32> loc("x")
    %n = "top.None"() : () -> none
    {op} : (tensor<1x2xf32>{nones}) -> {results} loc("y")
    func.return %1 : tensor<{shape}xf32>
  }}
}}"""


@pytest.mark.parametrize("row", RESULTS)
def test_all_results_are_written_and_absent_ones_are_not_read(row: str) -> None:
    before = imported(row).module
    written = print_module(before)
    assert RESULTS[row] in written
    again = parse_module(written, ops_context())
    assert print_module(again) == written
    assert [len(op.results) for op in again.walk()] == [len(op.results) for op in before.walk()]


@pytest.mark.parametrize(
    ("name", "results", "missing"),
    [("Arg", "tensor<1x1xf32>, tensor<1x1xf32>", "values"), ("TopK", "tensor<1x2xf32>, none", "values")],
)
def test_results_that_are_not_computed_are_no_other_results(name: str, results: str, missing: str) -> None:
    op = f'%1, %2 = "top.{name}"(%x) {{axis = 1 : i64, keepdims = true, mode = "ArgMax", K = 2 : i64, largest = true}}'
    shape = results[len("tensor<") : results.index("xf32")]
    module = parse_module(SEVERAL.format(op=op, shape=shape, nones="", results=f"({results})"), ops_context())
    (kept,) = opaque_ops(module.walk())
    assert kept.why == f"its result '{missing}' is not computed"


@pytest.mark.parametrize(
    ("stated", "written"),
    [
        ("axis = 1 : i64", 'top.Reshape"(%x) {shape = [2 : i64, 12 : i64]}'),
        ("tpusim.axis = 1 : i64", 'top.Reshape"(%x) {shape = [2 : i64, 12 : i64]}'),
        ("axis = 0 : i64", 'top.Reshape"(%x) {shape = [1 : i64, 24 : i64]}'),
        ("axis = 2 : i64", 'top.Reshape"(%x) {shape = [6 : i64, 4 : i64]}'),
        ("axis = 3 : i64", 'top.Reshape"(%x) {shape = [24 : i64, 1 : i64]}'),
        ("start_dim = 0 : i64, end_dim = -1 : i64", "start_dim = 0 : i64, end_dim = -1 : i64"),
        ("start_dim = 1 : i64, end_dim = 2 : i64", "start_dim = 1 : i64, end_dim = 2 : i64"),
        ("start_dim = -2 : i64", "start_dim = -2 : i64"),
        ("end_dim = 1 : i64", "end_dim = 1 : i64"),
    ],
)
def test_flatten_states_the_axes_that_become_one(stated: str, written: str) -> None:
    shapes = {"axis = 0": "1x24", "axis = 2": "6x4", "axis = 3": "24x1", "start_dim = 0": "24", "end_dim = 1": "6x4"}
    shape = next((shape for start, shape in shapes.items() if stated.startswith(start)), "2x12")
    text = SEVERAL.format(
        op=f'%1 = "top.Flatten"(%x) {{{stated}}}', shape=shape, nones="", results=f"tensor<{shape}xf32>"
    ).replace("tensor<1x2xf32>", "tensor<2x3x4xf32>")
    made = print_module(parse_module(text, ops_context()))
    assert written in made and f"-> tensor<{shape}xf32>" in made
    assert print_module(parse_module(made, ops_context())) == made


@pytest.mark.parametrize(
    ("op", "stated", "written"),
    [
        ("Softmax", "axis = 1 : i64", "axis = 1 : si32"),
        ("Softmax", "axis = 1 : si32", "axis = 1 : si32"),
        ("Softmax", "axis = -1 : i32", "axis = 3 : si32"),
        ("Permute", "order = [0 : i32, 1 : i32, 2 : i32, 3 : i32]", "order = [0 : i64, 1 : i64, 2 : i64, 3 : i64]"),
        ("Elu", "alpha = 1.0 : f64, default_alpha = true", "tpusim.default_alpha = true"),
        ("Sigmoid", 'part_of = "LSTM:lstm"', 'tpusim.part_of = "LSTM:lstm"'),
    ],
)
def test_attributes_are_spelled_as_in_the_table(op: str, stated: str, written: str) -> None:
    assert written in print_module(parse_module(MODULE.format(op=op, attribute=stated), ops_context()))


def test_the_framework_name_of_an_earlier_release_becomes_an_attribute() -> None:
    text = MODULE.format(op="Relu", attribute="").replace('loc("y")', 'loc("y_Relu"("y"))')
    module = parse_module(text, ops_context())
    (relu,) = (op for op in module.walk() if op.name == "top.Relu")
    assert (op_name(relu), framework_name(relu)) == ("y_Relu", "y")
    assert '{tpusim.framework = "y"}' in print_module(module) and 'loc("y_Relu")' in print_module(module)
    place = MODULE.format(op="Relu", attribute="").replace('loc("y")', 'loc("y"("model.py":3:7))')
    assert 'loc("y"("model.py":3:7))' in print_module(parse_module(place, ops_context()))


def test_an_integer_that_the_type_does_not_hold_is_refused() -> None:
    with pytest.raises(ImportModelError, match=r"axis.*2147483648|2147483648"):
        parse_module(MODULE.format(op="Softmax", attribute="axis = 2147483648 : i64"), ops_context())


def test_a_mode_may_be_given_as_a_string() -> None:
    text = MODULE.format(op="Active", attribute='mode = "ABSVAL"').replace("top.Active", "tpu.Active")
    assert "mode = #tpu<active_mode ABSVAL>" in print_module(parse_module(text, ops_context()))
    with pytest.raises(ImportModelError, match=r"tpu.Active"):
        parse_module(text.replace("ABSVAL", "ABS"), ops_context())


def test_every_activation_has_a_mode_of_the_dialect() -> None:
    """`tpu.Active` states its function as a case of an enumeration; a missing case would stop the lowering."""
    pending, modes = [Activation], set[str]()
    while pending:
        cls = pending.pop()
        pending += cls.__subclasses__()
        modes |= {cls.MODE} if "MODE" in vars(cls) else set()
    assert len(modes) > 25 and modes <= {mode.value for mode in ActiveMode}


def test_what_an_op_says_itself_has_no_name_of_the_framework() -> None:
    """Equal ops share their compiled function, whatever their tensors are called in the model's file."""
    text = """
    func.func @main(%in: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %x = "top.Input"(%in) : (tensor<2x3xf32>) -> tensor<2x3xf32> loc("x")
      %a = "top.Abs"(%x) {tpusim.framework = "first"} : (tensor<2x3xf32>) -> tensor<2x3xf32> loc("a")
      %b = "top.Abs"(%a) {tpusim.framework = "second"} : (tensor<2x3xf32>) -> tensor<2x3xf32> loc("b")
      %c = "top.Sign"(%b) {tpusim.framework = "third"} : (tensor<2x3xf32>) -> tensor<2x3xf32> loc("c")
      func.return %c : tensor<2x3xf32>
    }"""
    ops = [op for op in parse_module(text, ops_context()).walk() if FRAMEWORK in op.attributes]
    first, second, other = map(described, ops)
    assert first == second != other
