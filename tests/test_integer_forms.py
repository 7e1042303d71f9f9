"""Texts whose ops compute on quantised integers without saying how to requantise are refused, not run as floats."""

import re

import pytest
from compiling import to_tpu
from rows import calibrated

from tpusim.errors import ImportModelError
from tpusim.ir.text import parse_module, print_module
from tpusim.ops import context

REQUANTS = re.compile(
    r"\b(multipliers?|rshifts?|multiplier_(?:neg|pos)|rshift_(?:neg|pos)) = (\[[^]]*\]|-?\d+(?: : \w+)?)(, )?"
)
STRIPPED = [
    ("conv-3x3", "bm1684x", "multiplier and rshift, or channel_packed, or coeff_merged"),
    ("deconv-requant", "bm1684", "multiplier and rshift, or channel_packed"),
    ("add", "bm1684x", "multipliers and rshifts"), ("sub", "bm1684x", "multipliers and rshifts"),
    ("mul", "bm1684x", "multiplier and rshift"), ("addconst", "bm1684x", "multiplier and rshift"),
    ("matmul-3d", "bm1684x", "multipliers and rshifts, or fuse_rq and rshifts"),
    ("avgpool-2x2", "bm1684x", "multiplier and rshift, or scale and offset"),
    ("leaky", "bm1684x", "multiplier and rshift"), ("prelu", "bm1684x", "rshift"),
    ("deconv-requant", "bm1684x", "multiplier and rshift"),
]  # fmt: skip
"""Row, chip, and what its op is found to lack; on the X family the requant of Deconv is a separate op."""
FUNCTION = """"builtin.module"() ({{
  "func.func"() <{{sym_name = "main", function_type = (tensor<1x4x2x2xf32>) -> {out}}}> ({{
  ^bb0(%arg0: tensor<1x4x2x2xf32>):
    %x = "top.Input"(%arg0) : (tensor<1x4x2x2xf32>) -> tensor<1x4x2x2xf32>
    %q = "tpu.Cast"(%x) : (tensor<1x4x2x2xf32>) -> tensor<1x4x2x2x{i8}>
    %y = "{op}"(%q) {{{attributes}}} : (tensor<1x4x2x2x{i8}>) -> {out}
    "func.return"(%y) : ({out}) -> ()
  }}) : () -> ()
}}) : () -> ()
"""
I8 = "!quant.uniform<i8:f32, 0.5>"


@pytest.mark.parametrize(("row", "chip", "lacks"), STRIPPED)
def test_an_integer_op_without_its_requant_is_refused(row: str, chip: str, lacks: str) -> None:
    lowered = to_tpu(calibrated(row), chip)
    text = print_module(lowered.module)
    parse_module(text, context())
    stripped = REQUANTS.sub("", text).replace(", }", "}")
    with pytest.raises(ImportModelError, match=rf"tpu\.\w+ '\w+': quantised integers require {re.escape(lacks)}, got"):
        parse_module(stripped, context())


@pytest.mark.parametrize("out", [f"tensor<1x4x2x2x{I8}>", "tensor<1x4x2x2xf32>"])
@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("tpu.Active", 'mode = "SIGMOID"'),
        ("tpu.Clip", "min = 0.0 : f64, max = 1.0 : f64"),
        ("tpu.Reciprocal", "const_val = 1.0 : f64"),
    ],
)
def test_a_float_function_of_integers_is_refused(op: str, attributes: str, out: str) -> None:
    with pytest.raises(ImportModelError, match=f"{op} 'y': the op has no form on quantised integers"):
        parse_module(FUNCTION.format(op=op, attributes=attributes, out=out, i8=I8), context())


def test_the_magnitude_of_integers_is_a_form() -> None:
    out = f"tensor<1x4x2x2x{I8}>"
    parse_module(FUNCTION.format(op="tpu.Active", attributes='mode = "ABSVAL"', out=out, i8=I8), context())
