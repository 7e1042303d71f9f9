"""Patterns as data: PDL files with constraints, native rewrites and benefits, under the pass manager."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, StringAttr, f16, f32
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker

from tpusim.cli import main
from tpusim.errors import ConfigError
from tpusim.ir.attrs import flag, op_name
from tpusim.ir.dialects import context
from tpusim.ir.module import Model
from tpusim.ir.pdl import DataPattern, Drawing, Node, one_use
from tpusim.ir.pdl.automaton import Automaton
from tpusim.ir.pdl.patterns import automaton_of
from tpusim.ir.rewriting import rewrite
from tpusim.ir.text import parse_module
from tpusim.ir.weights import WeightStore
from tpusim.ops.relu import TopRelu
from tpusim.passes import PassContext, PassManager

pytestmark = pytest.mark.every
NET = """module attributes {{module.state = "TOP_F32"{chip}}} {{
  func.func @main(%in: tensor<1x4xf32>) -> tensor<1x4xf32> {{
    %x = "top.Input"(%in) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("x")
    %a = "top.Abs"(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("a")
    %y = "top.Relu"(%a) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("y")
    func.return %y : tensor<1x4xf32>
  }}
}}"""
PATTERN = """pdl.pattern @{name} : benefit({benefit}) {{
  %type = pdl.type
  %x = pdl.operand
  %inner = pdl.operation "top.Abs" (%x : !pdl.value) -> (%type : !pdl.type)
  %value = pdl.result 0 of %inner
  {constraint}
  %outer = pdl.operation "top.Relu" (%value : !pdl.value) -> (%type : !pdl.type)
  pdl.rewrite %outer {{
    {body}
  }}
}}
"""
RELU_IS_NOTHING = "pdl.replace %outer with (%value : !pdl.value)"
TWO_OPS = """%first = pdl.operation "top.Relu" (%x : !pdl.value) -> (%type : !pdl.type)
    %between = pdl.result 0 of %first
    %new = pdl.operation "top.Abs" (%between : !pdl.value) -> (%type : !pdl.type)
    pdl.replace %outer with %new"""
NATIVE = """%new = pdl.apply_native_rewrite "test_pdl:make_relu"(%x, %outer : !pdl.value, !pdl.operation)
      : !pdl.operation
    pdl.replace %outer with %new"""


def never(value: SSAValue) -> bool:
    return value.name_hint == "never"


def fails(value: SSAValue) -> bool:
    return len(value.type.name) // 0 == 1


def make_relu(rewriter: PatternRewriter, x: SSAValue, outer: Operation) -> Operation:
    made = TopRelu.create(operands=[x], result_types=[outer.results[0].type], attributes=outer.attributes.copy())
    rewriter.insert(made)
    return made


def pattern(constraint: str = "", wanted: str = "1", body: str = RELU_IS_NOTHING, **more: object) -> str:
    if "%wanted" in constraint:
        constraint = f"%wanted = pdl.attribute = {wanted}\n  {constraint}"
    return PATTERN.format(**{"name": "P", "benefit": 1, **more}, constraint=constraint, body=body)


def applied(text: str, tmp_path: Path, chip: str = "") -> tuple[list[tuple[str, str]], PassContext]:
    """Op and name of what a file of patterns leaves."""
    (tmp_path / "p.pdl").write_text(text)
    ctx = PassContext()
    read = Model(parse_module(NET.format(chip=chip), context()), WeightStore())
    done = PassManager(f'apply-pdl{{pdl_file="{tmp_path / "p.pdl"}"}}').run(read, ctx)
    return [(op.name, op_name(op)) for op in done.ops][1:-1], ctx


BEFORE, SHORT = [("top.Abs", "a"), ("top.Relu", "y")], [("top.Abs", "y")]


@pytest.mark.parametrize(
    ("constraint", "wanted", "fires"),
    [
        ("", "1", True),
        ('pdl.apply_native_constraint "one_use"(%value : !pdl.value)', "1", True),
        ('pdl.apply_native_constraint "one_use"(%inner : !pdl.operation)', "1", True),
        ('pdl.apply_native_constraint "element_type"(%x, %wanted : !pdl.value, !pdl.attribute)', "f32", True),
        ('pdl.apply_native_constraint "element_type"(%x, %wanted : !pdl.value, !pdl.attribute)', "f16", False),
        ('pdl.apply_native_constraint "shape"(%x, %wanted : !pdl.value, !pdl.attribute)', "[1, 4]", True),
        ('pdl.apply_native_constraint "shape"(%x, %wanted : !pdl.value, !pdl.attribute)', "[-1, 4]", True),
        ('pdl.apply_native_constraint "shape"(%x, %wanted : !pdl.value, !pdl.attribute)', "[1, 4, 1]", False),
        ('pdl.apply_native_constraint "chip"(%x, %wanted : !pdl.value, !pdl.attribute)', '"bm1684x"', False),
        ('pdl.apply_native_constraint "test_pdl:never"(%x : !pdl.value)', "1", False),
    ],
)
def test_constraints(constraint: str, wanted: str, fires: bool, tmp_path: Path) -> None:
    found, ctx = applied(pattern(constraint, wanted), tmp_path)
    assert found == (SHORT if fires else BEFORE) and ctx.patterns["P"] == fires


def test_a_chip(tmp_path: Path) -> None:
    asked = pattern('pdl.apply_native_constraint "chip"(%x, %wanted : !pdl.value, !pdl.attribute)', '"bm1688"')
    assert applied(asked, tmp_path, ', module.chip = "bm1688"')[0] == SHORT
    assert applied(asked, tmp_path, ', module.chip = "bm1684"')[0] == BEFORE


def test_the_result_keeps_its_name_and_others_get_one(tmp_path: Path) -> None:
    assert applied(pattern(body=TWO_OPS), tmp_path)[0] == [("top.Abs", "a"), ("top.Relu", "y_1"), ("top.Abs", "y")]


def test_a_native_rewrite(tmp_path: Path) -> None:
    assert applied(pattern(body=NATIVE), tmp_path)[0] == [("top.Abs", "a"), ("top.Relu", "y")]


def test_the_highest_benefit_goes_first(tmp_path: Path) -> None:
    both = pattern(body=TWO_OPS, name="Low") + pattern(name="High", benefit=5)
    assert applied(both, tmp_path)[1].patterns == {"High": 1}


def test_patterns_that_change_numbers_are_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """max(0, |x|) is |x|, but |max(0, x)| is not."""
    (tmp_path / "net.mlir").write_text(NET.format(chip=""))
    for body, status in ((RELU_IS_NOTHING, 0), (TWO_OPS, 1)):
        (tmp_path / "p.pdl").write_text(pattern(body=body, name="Named"))
        words = ["opt", str(tmp_path / "net.mlir"), "-p", f'apply-pdl{{pdl_file="{tmp_path / "p.pdl"}"}}']
        assert main([*words, "--verify-passes"]) == status
        error = capsys.readouterr().err
        assert "Named" in error and ("changed no numbers" in error) != bool(status)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("module {}", "a pdl.pattern is required"),
        (pattern('pdl.apply_native_constraint "one_ues"(%x : !pdl.value)'), "one_use.* or MODULE:FUNCTION is required"),
        (pattern('pdl.apply_native_constraint "no_module:f"(%x : !pdl.value)'), "cannot be imported"),
        (pattern(body=TWO_OPS.replace("top.Abs", "top.Nothing")), "top.Nothing"),
        (pattern(body=NATIVE.replace("make_relu", "nobody")), "cannot be imported"),
        (
            pattern(
                body='%new = pdl.operation "top.Relu" (%value : !pdl.value) -> (%type : !pdl.type)\n'
                "pdl.replace %outer with %new"
            ),
            "a fix point is required, P has fired",
        ),
        (pattern('pdl.apply_native_constraint "test_pdl:fails"(%x : !pdl.value)'), "top.Relu 'y': ZeroDivisionError"),
        (pattern(body="pdl.replace %outer with (%x, %x : !pdl.value, !pdl.value)"), "1 results, 2 values"),
        (pattern(body="pdl.erase %inner"), "mend the pattern"),
        (pattern()[: pattern().index("pdl.rewrite")] + 'pdl.rewrite %outer with "test_pdl:fails" }', "and a body"),
    ],
)
def test_what_is_refused(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=why) as error:
        applied(text, tmp_path)
    assert not getattr(error.value, "__notes__", [])  # the module is not pasted
    assert str(error.value).count("p.pdl") <= 1  # the file is named once


def test_a_file_is_required() -> None:
    with pytest.raises(ConfigError, match="pdl_file=FILE is required"):
        PassManager("apply-pdl").run(Model(parse_module(NET.format(chip=""), context()), WeightStore()))


# ------------------------------------------------------------------------------------------------------ the Python form


class ReluOfAbs(DataPattern):
    """Relu of Abs -> Abs."""

    @classmethod
    def draw(cls, p: Drawing) -> None:
        inner = p.op("top.Abs", p.operand())
        cls.demand(p, inner)
        p.rewrite(p.op("top.Relu", inner, **cls.stated())).replace(inner)

    @classmethod
    def demand(cls, p: Drawing, inner: Node) -> None:
        p.require(one_use, inner)

    @classmethod
    def stated(cls) -> dict[str, Attribute]:
        return {}


DEMANDS: list[tuple[str, tuple[Any, ...], bool]] = [
    ("one_use", (), True),
    ("element_type", (f32,), True),
    ("element_type", (f16,), False),
    ("shape", ((1, -1),), True),
    ("shape", ((4,),), False),
    ("chip", ("bm1684x",), False),
    ("chip", ("bm1688", "cv183x"), True),
    ("test_pdl:is_op", ("top.Abs",), True),
    ("test_pdl:is_op", ("top.Relu",), False),
]


def is_op(op: Operation, name: StringAttr) -> bool:
    return op.name == name.data


def rewritten(patterns: list[DataPattern], stored: Automaton | None = None) -> tuple[Model, dict[str, int]]:
    model = Model(parse_module(NET.format(chip=', module.chip = "bm1688"'), context()), WeightStore())
    return model, rewrite(model, patterns, stored=stored)


@pytest.mark.parametrize(("name", "given", "fires"), DEMANDS)
@pytest.mark.parametrize("negated", [False, True])
def test_what_is_drawn_may_demand(
    name: str, given: tuple[Any, ...], fires: bool, negated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def demand(p: Drawing, inner: Node) -> None:
        p.require(name, inner, *given, negated=negated)

    monkeypatch.setattr(ReluOfAbs, "demand", demand)
    assert rewritten([ReluOfAbs()])[1] == ({"ReluOfAbs": 1} if fires != negated else {})


def test_what_is_drawn_is_a_file(tmp_path: Path) -> None:
    """The PDL that a drawing writes does the same when it is read."""
    made, fired = rewritten([ReluOfAbs()])
    assert applied("\n".join(map(str, ReluOfAbs().forms())), tmp_path)[0] == SHORT
    assert fired == {"ReluOfAbs": 1} and [(op.name, op_name(op)) for op in made.ops][1:-1] == SHORT


@pytest.mark.parametrize("value", [IntegerAttr(0, 64), flag(False), ArrayAttr[Attribute]([]), StringAttr("")])
def test_attributes_that_python_counts_as_false(value: Attribute, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReluOfAbs, "stated", lambda: {"key": value})
    for other, fires in ((value, True), (IntegerAttr(1, 64), False), (None, False)):
        model = Model(parse_module(NET.format(chip=""), context()), WeightStore())
        (relu,) = (op for op in model.ops if op.name == "top.Relu")
        relu.attributes |= {} if other is None else {"key": other}
        assert bool(rewrite(model, [ReluOfAbs()])) == fires


class ReluOfAbsTwice(ReluOfAbs):
    """Relu of Abs -> Relu of Abs; never, because the other pattern has the higher benefit."""

    benefit = 0


def test_one_rewrite_for_a_match_that_of_the_highest_benefit() -> None:
    assert rewritten([ReluOfAbsTwice(), ReluOfAbs()])[1] == {"ReluOfAbs": 1}


class AbsOfX(DataPattern):
    """Relu of Abs -> Relu of x, a choice of places."""

    @classmethod
    def draw(cls, p: Drawing) -> None:
        x, (first, second) = p.operand(), p.choice(("top.Relu", "top.Abs"), ("top.Abs", "top.Relu"))
        becomes = p.rewrite(p.op(second, p.op(first, x)))
        becomes.replace(becomes.make("top.Sigmoid", x))


def test_choices_and_the_fused_location() -> None:
    assert len(AbsOfX().forms()) == 2
    model, fired = rewritten([AbsOfX()])
    assert fired == {"AbsOfX": 1}
    (made,) = (op for op in model.ops if op.name == "top.Sigmoid")
    assert str(made.location) == 'loc(fused["y", "a"])' and op_name(made) == "y"


def test_stored_patterns_are_not_compiled_and_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    from tpusim.ir.pdl import patterns

    stored, compiled = automaton_of([ReluOfAbs()]), list[str]()
    rows_of = patterns.rows_of
    monkeypatch.setattr(patterns, "rows_of", lambda p: compiled.extend(one.key for one in p) or rows_of(p))
    assert rewritten([ReluOfAbs()], stored)[1] and not compiled
    assert rewritten([AbsOfX(), ReluOfAbs()], stored)[1] == {"AbsOfX": 1} and compiled == ["test_pdl:AbsOfX"]


def test_a_pattern_alone() -> None:
    model = Model(parse_module(NET.format(chip=""), context()), WeightStore())
    PatternRewriteWalker(ReluOfAbs()).rewrite_module(model.module)
    assert [(op.name, op_name(op)) for op in model.ops][1:-1] == SHORT
