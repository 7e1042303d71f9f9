"""Passes over any dialect: equal to those of MLIR, harmless to networks, independent of the number of workers."""

from __future__ import annotations

import json
import operator
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from compiling import to_tpu
from generic_modules import COUNT, OPTIONS, RECORDED, case, made, module, short
from relu_chain import chain
from xdsl.dialects.builtin import BFloat16Type, Float16Type, Float32Type

from tpusim.cli import main
from tpusim.host.workers import processes
from tpusim.inference import run
from tpusim.ir.attrs import op_name
from tpusim.ir.dialects import context, open_context
from tpusim.ir.generic import arith, floats
from tpusim.ir.module import Model, is_weight
from tpusim.ir.text import parse_module, print_module
from tpusim.ir.weights import WeightStore
from tpusim.passes import PassContext, PassManager, parse_pipeline

pytestmark = pytest.mark.every
SHARE = 20
"""Every so many of the recorded modules are tried in a run of each pass; `slow` tries all."""


def recorded(name: str) -> list[str]:
    joined = json.loads(RECORDED.read_text())[name]
    return [joined[i : i + 12] for i in range(0, len(joined), 12)]


def different(name: str, seeds: range) -> list[int]:
    expected = recorded(name)
    assert len(expected) == COUNT
    return [seed for seed in seeds if short(made(case(name, seed), name)) != expected[seed]]


@pytest.mark.parametrize("name", OPTIONS)
def test_passes_make_what_those_of_mlir_make(name: str) -> None:
    first = list(OPTIONS).index(name) % SHARE
    assert different(name, range(first, COUNT, SHARE)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_passes_make_what_those_of_mlir_make_of_all_modules(name: str) -> None:
    assert different(name, range(COUNT)) == []


def test_canonicalize_ends_after_as_many_rounds_as_that_of_mlir() -> None:
    """The block before the last decided one can be decided a round later; mlir-opt leaves 31 of these blocks."""
    given = ", ".join(f"%c{i}: i1" for i in range(40))
    blocks = "".join(f"^b{i}:\n  cf.cond_br %c{i}, ^b{i + 1}, ^end\n" for i in range(40))
    text = f"func.func @f({given}) {{\n  cf.br ^b0\n{blocks}^b40:\n  cf.br ^end\n^end:\n  func.return\n}}\n"
    assert made(text, "canonicalize").count("  ^") == 31


HOLDS = (operator.eq, operator.gt, operator.ge, operator.lt, operator.le, operator.ne)
OF_FLOATS = ("eq", "gt", "ge", "lt", "le", "ne")


def test_comparisons_of_integers_that_were_floats() -> None:
    """Every i8 compares with a constant as its float does: with bounds, fractions, zeros and numbers out of range."""
    constants = (-129.0, -128.0, -4.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 4.5, 127.0, 128.0, 254.5, 255.0, 256.0)
    cases = [(u, i, c) for u in (False, True) for i in range(len(OF_FLOATS)) for c in constants]
    text = "".join(
        f"func.func @f{number}(%x: i8) -> i1 {{ %y = arith.{'ui' if unsigned else 'si'}tofp %x : i8 to f16\n"
        f"%c = arith.constant {constant} : f16\n%z = arith.cmpf {'ou'[number % 2]}{'n' if i == 5 else ''}"
        f"{'e' if i == 5 else OF_FLOATS[i]}, %y, %c : f16\nfunc.return %z : i1 }}\n"
        for number, (unsigned, i, constant) in enumerate(cases)
    )
    canonical = PassManager("canonicalize").run(Model(parse_module(text, open_context()), WeightStore())).module
    for (unsigned, i, constant), function in zip(cases, canonical.ops, strict=True):
        *_, last = [op for op in function.walk() if op.name in ("arith.constant", "arith.cmpi", "arith.cmpf")]
        for x in range(256):
            stored = arith.signed(x, 8)
            value = x if unsigned else stored
            bits = [arith.number(arith.constant_of(v)) for v in last.operands]
            holds = (
                arith.PREDICATES[arith.predicate_of(last)](stored, bits[1] or 0, 8)
                if last.name == "arith.cmpi"
                else bool(arith.number(last.properties["value"]))
            )
            assert holds == HOLDS[i](value, constant), (unsigned, OF_FLOATS[i], constant, value)


@pytest.mark.parametrize(
    ("kind", "type_", "places"),
    [(Float16Type, np.float16, 20), (BFloat16Type, ml_dtypes.bfloat16, 130), (Float32Type, np.float32, 140)],
)
def test_constants_are_rounded_once(kind: type, type_: type, places: int) -> None:
    """Numbers of all sizes, subnormal and too large ones, and ones halfway between two of the type."""
    rng = np.random.default_rng(3)
    exact = type_(rng.uniform(1, 2, 300)).astype(np.float64)
    halfway = exact + 2.0 ** -floats.FORMATS[kind].digits
    values = np.concatenate([rng.uniform(-2, 2, 300), exact, halfway]) * 2.0 ** rng.integers(-places, places, 900)
    with np.errstate(over="ignore"):
        expected = values.astype(type_).astype(np.float64)
    found = np.array([floats.FORMATS[kind].rounded(Fraction(value)) for value in values])
    np.testing.assert_array_equal(found, expected)
    assert np.isinf(found).any() and (found[np.signbit(values)] <= 0).all()


def test_selects_that_share_an_operand_stay() -> None:
    """`mlir-opt` 22 joins no conditions; it has a rule for the same condition twice."""
    text = (
        "func.func @f(%a: i1, %b: i1, %x: i8, %y: i8) -> i8 { %0 = arith.select %b, %x, %y : i8\n"
        "%1 = arith.select %a, %0, %y : i8\nfunc.return %1 : i8 }"
    )
    assert made(text, "canonicalize").count("arith.select") == 2
    assert made(text.replace("select %a", "select %b"), "canonicalize").count("arith.select") == 1


# ---------------------------------------------------------------------------------------------------------- networks

WEIGHTS = """module attributes {module.state = "TOP_F32"} {
  func.func @main(%0: tensor<2x4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>) {
    %x = "top.Input"(%0) : (tensor<2x4xf32>) -> tensor<2x4xf32> loc("x")
    %a = "top.Weight"() : () -> tensor<2x4xf32> loc("a")
    %b = "top.Weight"() : () -> tensor<2x4xf32> loc("b")
    %c = "top.Weight"() : () -> tensor<2x4xf32> loc("a")
    %unused = "top.Weight"() : () -> tensor<2x4xf32> loc("unused")
    %1 = "top.Add"(%x, %a) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32> loc("1")
    %2 = "top.Add"(%1, %b) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32> loc("2")
    %3 = "top.Add"(%x, %c) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32> loc("3")
    %4 = "top.Add"(%3, %b) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32> loc("4")
    %5 = "top.Relu"(%3) : (tensor<2x4xf32>) -> tensor<2x4xf32> loc("5")
    func.return %2, %4 : tensor<2x4xf32>, tensor<2x4xf32>
  }
}"""
NAMES = ("a", "b", "unused")
ALL = "builtin.module(cse,dce,fold,sccp,symbol-dce,inline)"


def with_weights() -> Model:
    rng = np.random.default_rng(1)
    arrays = {name: rng.standard_normal((2, 4)).astype(np.float32) for name in NAMES}
    return Model(parse_module(WEIGHTS, context()), WeightStore(arrays))


def names(model: Model, *, weights: bool) -> list[str]:
    return [op_name(op) for op in model.ops if op_name(op) and is_weight(op) == weights]


def test_cse_merges_weights_of_one_name_only() -> None:
    done = PassManager("cse").run(with_weights())
    assert names(done, weights=True) == ["a", "b"] and set(done.weights) == {"a", "b"}
    assert names(done, weights=False) == ["x", "1", "2", "4"], "both results keep their names; 5 is dead"


def test_dce_keeps_inputs_and_what_is_used() -> None:
    source = WEIGHTS.replace("(%x, %", "(%a, %")
    done = PassManager("dce").run(Model(parse_module(source, context()), with_weights().weights))
    assert names(done, weights=False) == ["x", "1", "2", "3", "4"] and set(done.weights) == {"a", "b"}


def test_generic_passes_change_no_bit_of_a_network() -> None:
    x = {"x": np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4)}
    before = with_weights()
    after = PassManager(ALL).run(before)
    assert [*run(before, x)].index("2") > 0
    for name in ("2", "4"):
        np.testing.assert_array_equal(run(after, x)[name], run(before, x)[name])


@pytest.mark.parametrize("chip", ["bm1684x", "bm1684"])
def test_generic_passes_leave_lowered_networks_as_they_are(chip: str) -> None:
    for model in (chain(), to_tpu(chain(), chip, "f32")):
        assert print_module(PassManager(ALL).run(model).module) == print_module(model.module)


CALLS = """module attributes {module.state = "TOP_F32"} {
  func.func private @block(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
    %a = "top.Weight"() : () -> tensor<2x4xf32> loc("a")
    %s = "top.Add"(%x, %a) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32> loc("s")
    %r = "top.Relu"(%s) : (tensor<2x4xf32>) -> tensor<2x4xf32> loc("r")
    func.return %r : tensor<2x4xf32>
  }
  func.func @main(%0: tensor<2x4xf32>) -> tensor<2x4xf32> {
    %x = "top.Input"(%0) : (tensor<2x4xf32>) -> tensor<2x4xf32> loc("x")
    %1 = func.call @block(%x) : (tensor<2x4xf32>) -> tensor<2x4xf32> loc("first")
    %2 = func.call @block(%1) : (tensor<2x4xf32>) -> tensor<2x4xf32> loc("second")
    func.return %2 : tensor<2x4xf32>
  }
}"""


def test_inlining_a_network_keeps_weights_and_gives_every_op_a_name() -> None:
    weights = with_weights().weights.restricted({"a"})
    done = PassManager("inline").run(Model(parse_module(CALLS, context()), weights))
    assert names(done, weights=False) == ["x", "s", "first", "s_1", "second"] and set(done.weights) == {"a"}
    x = np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4)
    expected = np.maximum(np.maximum(x + weights["a"], 0) + weights["a"], 0)
    np.testing.assert_array_equal(run(done, {"x": x})["second"], expected)


# ----------------------------------------------------------------------------------------------------------- workers


def test_workers_make_what_one_process_makes() -> None:
    source = "".join(module(seed).replace("@f", f"@g{seed}_").replace("@main", f"@m{seed}") for seed in (3, 10))
    read = Model(parse_module(source, open_context()), WeightStore())
    alone = PassManager("cse,canonicalize").run(read)
    together = PassManager("cse,canonicalize").run(read, PassContext(workers=processes(2)))
    assert print_module(alone.module) == print_module(together.module)


# ------------------------------------------------------------------------------------------------------- mixed modules

MIXED = """module attributes {module.state = "TOP_F32"} {
  func.func @main(%0: tensor<2x4xf32>) -> tensor<2x4xf32> {
    %x = "top.Input"(%0) : (tensor<2x4xf32>) -> tensor<2x4xf32> loc("x")
    %y = "top.Relu"(%x) : (tensor<2x4xf32>) -> tensor<2x4xf32> loc("y")
    %z = "top.Relu"(%y) : (tensor<2x4xf32>) -> tensor<2x4xf32> loc("z")
    %dead = "top.Relu"(%y) : (tensor<2x4xf32>) -> tensor<2x4xf32> loc("dead")
    func.return %z : tensor<2x4xf32>
  }
  func.func private @size(%n: i32) -> i32 {
    %a = arith.constant 3 : i32
    %b = arith.constant 4 : i32
    %c = arith.muli %a, %b : i32
    %d = arith.addi %c, %n : i32
    func.return %d : i32
  }
}"""


def test_canonicalize_takes_both_kinds_of_a_mixed_module(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.mlir").write_text(MIXED)
    assert main(["opt", str(tmp_path / "a.mlir"), "-p", "canonicalize"]) == 0
    out = capsys.readouterr().out
    assert out.count("top.Relu") == 2 and "arith.muli" not in out and "arith.constant 12" in out
    assert main(["opt", str(tmp_path / "a.mlir"), "-p", "builtin.module(canonicalize,symbol-dce)"]) == 0
    assert "@size" not in capsys.readouterr().out


LOOP = """func.func @f(%n: i32) -> i32 {
  %k = arith.constant 5 : i32
  cf.br ^head(%k : i32)
^head(%x: i32):
  %c = arith.cmpi sgt, %n, %x : i32
  cf.cond_br %c, ^body, ^end
^body:
  %one = arith.constant 1 : i32
  %y = arith.muli %x, %one : i32
  cf.br ^head(%y : i32)
^end:
  func.return %x : i32
}
"""


def test_sccp_knows_a_constant_that_goes_round_a_loop() -> None:
    """The argument is 5 from both sides, which folding alone does not see."""
    assert "func.return %0 : i32" not in made(LOOP, "fold")
    text = made(LOOP, "builtin.module(sccp,canonicalize)")
    assert "arith.muli" not in text and "^bb1(" not in text


# ---------------------------------------------------------------------------------------------------------- pipelines


def test_the_pipeline_of_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.mlir").write_text(module(5))
    assert main(["opt", str(tmp_path / "a.mlir"), "-p", "builtin.module(cse,symbol-dce)", "--jobs", "1"]) == 0
    assert main(["opt", str(tmp_path / "a.mlir"), "--jobs", "0"]) == 1
    assert "1 or more" in capsys.readouterr().err
    assert parse_pipeline("func.func(cse,dce,fold,sccp)").steps
