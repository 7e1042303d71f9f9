"""Modules that cannot be right: one clear sentence each, and nothing else."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tpusim import chips, ops
from tpusim.errors import TpusimError
from tpusim.ir.module import load_model

GOOD = """module @m attributes {module.chip = "ALL", module.state = "TOP_F32", module.weight_file = "w.npz"} {
  func.func @main(%arg0: tensor<2x4xf32>) -> tensor<2x4xf32> {
    %0 = "top.None"() : () -> none loc(unknown)
    %1 = "top.Input"(%arg0) : (tensor<2x4xf32>) -> tensor<2x4xf32> loc("x")
    %2 = "top.Weight"() : () -> tensor<4x4xf32> loc("w")
    %3 = "top.MatMul"(%1, %2, %0) {do_relu = false} : OPERANDS -> tensor<2x4xf32> loc("y")
    %4 = call @f(%3) : (tensor<2x4xf32>) -> tensor<2x4xf32>
    return %4 : tensor<2x4xf32> loc(unknown)
  }
  func.func @f(%arg0: tensor<2x4xf32>) -> tensor<2x4xf32> attributes {mode = #tpu<run_mode TPU_STATIC>} {
    %0 = "top.Relu"(%arg0) : (tensor<2x4xf32>) -> tensor<2x4xf32> loc("r")
    return %0 : tensor<2x4xf32>
  }
}
""".replace("OPERANDS", "(tensor<2x4xf32>, tensor<4x4xf32>, none)")
F = GOOD[GOOD.index("  func.func @f") : GOOD.rindex("}\n")]
RELU = '(%arg0) : (tensor<2x4xf32>) -> tensor<2x4xf32> loc("r")'
INPUT = RELU.replace('"r"', '"x"')
MATMUL, OF_MATMUL = "(%1, %2, %0)", "(tensor<2x4xf32>, tensor<4x4xf32>, none)"
EYE = np.eye(4, dtype=np.float32)
Changes = Mapping[str, str]

TEXTS: dict[str, tuple[Changes, str]] = {
    "a function that calls itself": (
        {'"top.Relu"(%arg0)': "call @f(%arg0)", ' loc("r")': ""},
        "but @f calls @f; remove",
    ),
    "a call of main": ({"call @f": "call @main"}, "@main calls @main"),
    "two functions of one name": ({"func.func @f": "func.func @main"}, "one function @main is required, got two"),
    "a call of nothing": ({"call @f": "call @g"}, "@g in @main: a function of that name is required, there is none"),
    "a call with other types": (
        {
            "@f(%arg0: tensor<2x4xf32>": "@f(%arg0: tensor<4x2xf32>",
            RELU: RELU.replace("2x4", "4x2", 1),
        },
        "in @main has arguments of tensor<2x4xf32>, @f is of tensor<4x2xf32>",
    ),
    "a call with more values": (
        {"@f(%3) : (tensor<2x4xf32>)": "@f(%3, %3) : (tensor<2x4xf32>, tensor<2x4xf32>)"},
        "@f is of tensor<2x4xf32>",
    ),
    "a function without a body": (
        {F: "  func.func private @f(tensor<2x4xf32>) -> tensor<2x4xf32>\n"},
        "a function with one block is required, @f has 0",
    ),
    "a function without a type": (
        {F: '  "func.func"() <{sym_name = "f"}> ({}) : () -> ()\n'},
        "property 'function_type' expected in operation 'func.func'",
    ),
    "a function without a name": (
        {F: '  "func.func"() <{function_type = () -> ()}> ({}) : () -> ()\n'},
        "property 'sym_name' expected in operation 'func.func'",
    ),
    "a function that does not return": (
        {"    return %0 : tensor<2x4xf32>\n": ""},
        "in @main: a function that ends with func.return is required, got top.Relu",
    ),
    "a function that returns nothing": ({"    return %0 : tensor<2x4xf32>\n": "    return\n"}, "@f is of no type"),
    "a function that loops": (
        {"TPU_STATIC": "LOOP"},
        "in @main: a run mode among TPU_STATIC, TPU_DYNAMIC, CPU is required, @f has LOOP",
    ),
    "another result": (
        {'-> tensor<2x4xf32> {\n    %0 = "top.None"': '-> tensor<2x5xf32> {\n    %0 = "top.None"'},
        "expected [tensor<2x5xf32>], got [tensor<2x4xf32>]",
    ),
    "two inner modules": (
        {
            "module @m": "module @o",
            "{\n  func.func @main": "{\n module @a {\n  func.func @main",
            F: F + "}\nmodule @b { }\n",
        },
        "at most one module inside it is read, got 2",
    ),
    "a neutral value": ({"do_relu = false": "keep_dims = false"}, "keep_dims requires true, got false"),
    "an attribute of another op": (
        {"do_relu = false": "relu_limits = 1.0"},
        "unknown attribute 'relu_limits', did you mean 'relu_limit'",
    ),
    "a word for a flag": (
        {"do_relu = false": 'do_relu = "no"'},
        "top.MatMul 'y': \"no\" should be of base attribute integer",
    ),
    "an unknown op": ({"top.MatMul": "top.MatMull"}, "line 6: Operation top.MatMull is not registered"),
    "an unknown dialect": ({"top.MatMul": "topp.MatMul"}, "the dialect 'topp' is required"),
    "no data of a weight's name": ({'loc("w")': 'loc("v")'}, "'v' is not there"),
    "a weight without a name": (
        {'loc("w")': "loc(unknown)"},
        "a name for each weight is required, got 1 of 1 without one",
    ),
    "weights elsewhere": ({'"w.npz"': '"../w.npz"'}, "module.weight_file must be a file name, got '../w.npz'"),
    "a use before the op": ({MATMUL: "(%3, %2, %0)"}, "top.MatMul uses its operand 0 before it is made"),
    "an unknown extent": (
        {
            "@main(%arg0: tensor<2x4xf32>)": "@main(%arg0: tensor<?x4xf32>)",
            INPUT: INPUT.replace("2x4", "?x4", 1),
        },
        "requires tensors of known extents, got tensor<?x4xf32>",
    ),
    "an operand that is none": (
        {MATMUL: "(%0, %2, %0)", OF_MATMUL: "(none, tensor<4x4xf32>, none)"},
        "top.MatMul 'y': none should be of base attribute tensor",
    ),
    "operands that are not there": (
        {MATMUL: "(%1)", OF_MATMUL: "(tensor<2x4xf32>)"},
        "top.MatMul 'y': Expected 3 operands, but got 1",
    ),
    "a scale of 0": (
        {'tensor<2x4xf32> loc("y")': 'tensor<2x4x!quant.uniform<i8:f32, 0.0>> loc("y")'},
        "a positive finite scale, got 0.0",
    ),
    "a range the wrong way": (
        {'tensor<2x4xf32> loc("x")': 'tensor<2x4x!quant.calibrated<f32<3.0:-3.0>>> loc("x")'},
        "finite min <= max, got <3.0:-3.0>",
    ),
    "a text that ends early": (
        {F: "", "return %4 : tensor<2x4xf32> loc(unknown)\n  }\n": "return %4 : tensor<2x4"},
        "does not parse: line",
    ),
    "an empty file": ({GOOD: "\n"}, "one module is required, the file is empty"),
    "a location of itself": (
        {'loc("y")': "loc(#a)", "module @m": "#a = loc(#a)\nmodule @m"},
        "location alias #a is defined by itself",
    ),
    "many brackets": (
        {'loc("y")': f'loc({"fused[" * 300}"y"{"]" * 300})'},
        "line 6: at most 64 brackets in one another",
    ),
    "an unknown chip": ({'"ALL"': '"bm1"', '"TOP_F32"': '"TPU_LOWERED"'}, "unknown chip 'bm1'"),
}
"""What is wrong -> (text -> what stands in its place, words of the error)."""

WEIGHTS: dict[str, tuple[Mapping[str, np.ndarray] | bytes | None, str]] = {
    "another shape": ({"w": np.eye(5, dtype=np.float32)}, "'w' is float32 (5, 5), not float32 (4, 4)"),
    "fewer numbers": ({"w": EYE.reshape(-1)[:15]}, "'w' is float32 (15,), not float32 (4, 4)"),
    "another type": ({"w": EYE.astype(np.float64)}, "'w' is float64 (4, 4)"),
    "bytes": ({"w": EYE.astype(np.uint8)}, "'w' is uint8 (4, 4)"),
    "objects": ({"w": np.array([{}], dtype=object)}, "an array of plain numbers is required"),
    "no zip": (b"PK", "a readable npz without pickled objects is required"),
    "no file": (None, "No such file"),
}


def refused(place: Path) -> str:
    with pytest.raises(TpusimError) as caught:
        chips.of(load_model(place / "m.mlir", ops.context()))
    return str(caught.value)


@pytest.mark.parametrize("what", TEXTS)
def test_a_module_that_cannot_be_right_is_refused_in_one_sentence(tmp_path: Path, what: str):
    changes, words = TEXTS[what]
    text = GOOD
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new, 1)
    (tmp_path / "m.mlir").write_text(text)
    np.savez(tmp_path / "w.npz", w=EYE)
    said = refused(tmp_path)
    assert words in said and "\n" not in said and len(said) < 700


@pytest.mark.parametrize("what", WEIGHTS)
def test_weights_that_do_not_fit_are_refused(tmp_path: Path, what: str):
    given, words = WEIGHTS[what]
    (tmp_path / "m.mlir").write_text(GOOD)
    if isinstance(given, bytes):
        (tmp_path / "w.npz").write_bytes(given)
    elif given is not None:
        np.savez(tmp_path / "w.npz", **given)  # pyright: ignore[reportArgumentType]
    said = refused(tmp_path)
    assert words in said and "\n" not in said


def test_the_module_itself_is_right(tmp_path: Path):
    (tmp_path / "m.mlir").write_text(GOOD)
    np.savez(tmp_path / "w.npz", w=EYE)
    assert [f.name for f in load_model(tmp_path / "m.mlir", ops.context()).functions] == ["main", "f"]
