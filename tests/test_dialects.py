"""The table of the two dialects: every op class agrees with it, and what the attributes of TPU-MLIR mean here."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, StringAttr, i1, i64
from xdsl.ir import Attribute

from tpusim.errors import ImportModelError
from tpusim.fidelity.dialects import page
from tpusim.ir.text import parse_module, print_module
from tpusim.ir.upstream import Meaning, entry, meaning, names
from tpusim.ir.upstream.values import plain
from tpusim.ops import Top, Tpu
from tpusim.ops import context as ops_context

ROOT = Path(__file__).parents[1]
OURS = {
    *("top.Arcsin", "top.Arctan", "top.LogSoftmax", "top.Trunc"),
    *("tpu.Mod", "tpu.PRelu", "tpu.Pow3"),
}
"""Ops that TPU-MLIR does not have."""


def test_the_table_has_all_ops() -> None:
    found = names()
    assert (sum(n.startswith("top.") for n in found), sum(n.startswith("tpu.") for n in found)) == (210, 238)
    assert {name for dialect in (Top, Tpu) for op in dialect.operations if not entry(name := op.name)} == OURS


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
        ("Sigmoid", "logs = true", "unknown attribute 'logs'"),
    ],
)
def test_an_attribute_that_is_not_computed_is_refused(op: str, attribute: str, words: str) -> None:
    with pytest.raises(ImportModelError, match=r"top\.\w+ 'y': ") as caught:
        parse_module(MODULE.format(op=op, attribute=attribute), ops_context())
    assert words in str(caught.value)


def test_page_is_current() -> None:
    assert (ROOT / "docs" / "dialects.md").read_text(encoding="utf-8") == page(), "run `make dialects`"


def test_the_page_names_every_op() -> None:
    text = page()
    for name in {*names(), *OURS}:
        assert any(f"{mark}{name}" in text for mark in ("### ", "| ", "`")), name
