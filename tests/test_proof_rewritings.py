"""Passes by proof: those that keep every expression are proven, a planted fault of a pass is named with its tensor."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiling import Becomes, to_addressed, to_reordered, to_tpu
from end_to_end import DIGITS
from networks import random_network, random_tokens
from xdsl.ir import Operation

from tpusim.cli import main
from tpusim.ir.attrs import flag, ints, ints_attr, op_name, set_op_name, text, value_name
from tpusim.ir.module import Model
from tpusim.ir.upstream import DECISIONS, PART_OF
from tpusim.ops.framework.base import TopOp, TpuOp
from tpusim.ops.structure import TopInput, TopNone, TopWeight
from tpusim.passes import PassContext, PassManager
from tpusim.passes.base import Pass
from tpusim.proof.rewritings import ExpressionsChanged


@dataclass(frozen=True)
class Rewrites(Pass):
    """A pass that claims to keep numbers."""

    name = "rewrites"
    change: Callable[[Model], object]

    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        self.change(model)
        return model


@cache
def lowered(kind: str) -> Model:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "tokens":
            return to_tpu(random_tokens(1, (2, 10, 12)).top(), "bm1684x", "f16")
        return to_tpu(random_network(1).top(), "bm1684x", "int8")


def told(model: Model, change: Callable[[Model], object]) -> ExpressionsChanged:
    check = ExpressionsChanged()
    PassManager([Rewrites(change)], [check], verify=False).run(model)
    return check


@pytest.mark.parametrize("kind", ["tokens", "images"])
def test_groups_and_addresses_keep_every_expression(kind: str) -> None:
    check = ExpressionsChanged()
    model = to_reordered(lowered(kind))
    PassManager([Becomes(to_addressed(model))], [check]).run(model)
    assert (check.proven, check.compared, check.others) == (1, 1, {})
    assert list(check.report()) == ["verify-passes: 1 of 1 patterns and passes are proven for all inputs"]


def test_remarks_on_ops_and_names_of_the_framework_change_no_expression() -> None:
    def remark(model: Model) -> None:
        for op in ops_of(model, TopOp, lambda op: not isinstance(op, TopInput | TopWeight | TopNone)):
            op.attributes |= {DECISIONS: text("DN-01"), PART_OF: text("a node")}

    check = told(random_tokens(1, (2, 10, 12)).top(), remark)
    assert (check.proven, check.compared, check.others) == (1, 1, {})


def test_tensors_of_another_size_or_without_a_counterpart_prove_nothing() -> None:
    def renamed(model: Model) -> None:
        for op in ops_of(model, TopOp, lambda _: True):
            set_op_name(op, f"{op_name(op)}_renamed")

    model = random_tokens(1, (2, 10, 12)).top()
    for other in (random_tokens(1, (2, 10, 14)).top(), random_tokens(1, (2, 5, 12)).top()):
        check = ExpressionsChanged()
        PassManager([Becomes(other)], [check], verify=False).run(model)
        assert check.proven == 0 and check.others
    assert told(model.clone(), renamed).proven == 0


def ops_of(model: Model, kind: type[Operation], test: Callable[[Any], bool]) -> list[Any]:
    return [op for op in model.body.walk() if isinstance(op, kind) and test(op)]


def set_of_first(kind: type[Operation], name: str, new: Callable[[Any], Any]) -> Callable[[Model], None]:
    """A change of an attribute of the first op with an attribute of this name."""

    def change(model: Model) -> None:
        op = ops_of(model, kind, lambda op: name in op.attributes)[0]
        op.attributes[name] = new(op.attributes[name])

    return change


def other_weight(model: Model) -> None:
    name = next(name for name, array in model.weights.items() if array.size > 8)
    array = np.array(model.weights[name])
    array.reshape(-1)[3] += 1
    model.weights.replace(name, array)


FAULTS: dict[str, tuple[str, Callable[[Model], object]]] = {
    "a constant": ("images", other_weight),
    "a relu that is dropped": ("images", set_of_first(TpuOp, "do_relu", lambda v: flag(not v.value.data))),
    "a pad on the other side": (
        "images",
        set_of_first(TpuOp, "pads", lambda v: ints_attr([ints(v)[0] + 1, *ints(v)[1:2], ints(v)[2] - 1, ints(v)[3]])),
    ),
    "a multiplier": ("images", set_of_first(TpuOp, "multiplier", lambda v: ints_attr([m + 1 for m in ints(v)]))),
    "a shift": ("images", set_of_first(TpuOp, "rshift", lambda v: ints_attr([r + 1 for r in ints(v)]))),
    "a mean that counts its padding": ("images", set_of_first(TpuOp, "count_include_pad", lambda v: flag(True))),
    "a constant of tokens": ("tokens", other_weight),
    "another function": ("tokens", set_of_first(TpuOp, "mode", lambda v: text("TANH"))),
    "a relu of tokens": ("tokens", set_of_first(TpuOp, "do_relu", lambda v: flag(True))),
}
"""What a pass does wrongly, and to which module."""


@pytest.mark.parametrize("what", FAULTS)
def test_a_pass_that_changes_an_expression_is_named(what: str) -> None:
    kind, change = FAULTS[what]
    model = lowered(kind).clone()
    check = told(model, change)
    assert check.proven == 0 and list(check.others) == ["rewrites"]
    names = {value_name(value) for op in model.body.walk() if isinstance(op, TpuOp) for value in op.results}
    assert check.others["rewrites"] in names
    assert "judged by the sample alone, for they change an expression: rewrites ('" in list(check.report())[-1]


def test_nothing_changed_is_proven() -> None:
    for model in (lowered("images").clone(), random_network(1).top()):
        check = told(model, lambda model: None)
        assert (check.proven, check.compared) == (1, 1)


def test_top_ops_are_judged_by_their_attributes_operands_and_relu() -> None:
    for name, new in (
        ("do_relu", lambda v: flag(not v.value.data)),
        ("strides", lambda v: ints_attr([3, *ints(v)[1:]])),
    ):
        model = random_network(1).top()
        check = told(model, set_of_first(TopOp, name, new))
        assert list(check.others) == ["rewrites"]
    model = random_network(1).top()
    named = {op_name(op) for op in model.ops}
    check = told(model, other_weight)
    assert set(check.others.values()) <= named and check.others


def test_a_run_says_what_it_has_proven(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", str(DIGITS / "digits.onnx"), "--data", str(DIGITS / "calibration.npz"), "--samples", "2"]
    assert main([*words, "--verify-passes", "--to", "assign", "--mode", "f16", "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr()
    assert "patterns and passes changed no numbers" in said.out
    assert "patterns and passes are proven for all inputs" in said.err
