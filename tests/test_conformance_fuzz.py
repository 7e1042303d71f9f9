"""Generator, idioms, minimiser and triage of make conformance-fuzz, without the real tool."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from builders.calibrated import ranged
from compiling import to_canonical, to_tpu
from msgspec.structs import replace

from benchmarks.accuracy.results import Key
from benchmarks.conformance.fuzz import statistics
from benchmarks.conformance.fuzz.batch import joined, split
from benchmarks.conformance.fuzz.case import Case, cells, keys
from benchmarks.conformance.fuzz.grammar import PRODUCTIONS, is_finite, random_network
from benchmarks.conformance.fuzz.idioms import ROWS
from benchmarks.conformance.fuzz.idioms.table import FORMS, Form
from benchmarks.conformance.fuzz.judge import Finding, Judged, cause
from benchmarks.conformance.fuzz.minimise import minimise, size
from benchmarks.conformance.fuzz.store import Record, Store
from benchmarks.conformance.fuzz.summary import Summary, publish, published, section
from benchmarks.conformance.fuzz.triage import kinds, refusals, signature
from benchmarks.conformance.upstream import Files
from tpusim.frontend import import_onnx
from tpusim.ir.attrs import op_name
from tpusim.ops.framework.base import TopOp


def types(proto: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in proto.graph.node]


# --- random networks


def test_a_network_is_the_same_for_the_same_seed_and_index():
    once, again = random_network(7, 3), random_network(7, 3)
    assert once.SerializeToString(deterministic=True) == again.SerializeToString(deterministic=True)
    assert types(once) != types(random_network(8, 3)) or types(once) != types(random_network(7, 4))


def test_the_grammar_reaches_every_rank_and_most_ops():
    networks = [random_network(5, index) for index in range(40)]
    ranks = {len(v.type.tensor_type.shape.dim) for p in networks for v in p.graph.input}
    ops = {op for p in networks for op in types(p)}
    assert ranks >= {1, 2, 3, 4, 5}
    assert len(ops) > 40
    assert any(len(p.graph.output) > 1 for p in networks)
    assert any(len(p.graph.input) > 1 for p in networks)
    read = [[name for node in p.graph.node for name in dict.fromkeys(node.input)] for p in networks]
    assert any(len(names) > len(set(names)) for names in read), "a tensor that several nodes read"


def test_productions_have_names_of_their_own():
    names = [p.name for p in PRODUCTIONS]
    assert len(names) == len(set(names)) > 50


@pytest.mark.parametrize("index", range(4))
def test_random_networks_run_in_onnx_runtime_and_have_inferred_shapes(index: int):
    proto = random_network(11, index)
    onnx.checker.check_model(proto, full_check=True)
    assert is_finite(proto)


def test_degenerate_weights_are_what_their_names_say():
    rng, shape = np.random.default_rng(0), (4, 3, 3)
    assert not statistics.zeros(rng, shape, 1).any()
    assert (statistics.ones(rng, shape, 1) == 1).all()
    assert len(np.unique(statistics.equal_channels(rng, shape, 1), axis=0)) == 1
    assert np.abs(statistics.tiny(rng, shape, 1)).max() < 1e-4 < np.abs(statistics.huge(rng, shape, 1)).max() / 1e5


# --- idioms


def test_the_table_has_a_row_for_each_of_at_least_150_idioms_of_every_exporter():
    assert len(ROWS) == len({row.name for row in ROWS}) >= 150
    assert {row.exporter for row in ROWS} == {"torchscript", "dynamo", "tf2onnx", "paddle", "sklearn", "keras"}


@pytest.mark.parametrize("row", ROWS[::12], ids=lambda row: row.name)
def test_rows_are_networks_that_onnx_runtime_runs(row):
    proto = row.network(Form())
    onnx.checker.check_model(proto)
    assert is_finite(proto)


def test_forms_change_the_rank_of_constants_the_order_of_operands_and_the_opset():
    row = next(r for r in ROWS if r.name == "hardswish_div")
    found = dict(row.variants())
    assert len(found) == len(FORMS)
    three = {form: next(c for c in proto.graph.initializer if c.float_data == [3] or _value(c) == 3)
             for form, proto in found.items()}  # fmt: skip
    assert {len(three[form].dims) for form in found} == {0, 1, 4}
    assert found[Form(swapped=True)].graph.node[0].input[1] == "x" == found[Form()].graph.node[0].input[0]
    assert found[Form(11)].opset_import[0].version == 11


def test_a_row_without_constants_has_no_variants_of_their_rank():
    row = next(r for r in ROWS if r.name == "silu")
    assert [form for form, _ in row.variants()] == [Form(), Form(swapped=True), Form(11), Form(13), Form(18), FORMS[-1]]


def _value(tensor: onnx.TensorProto) -> float | None:
    array = onnx.numpy_helper.to_array(tensor)
    return float(array.reshape(-1)[0]) if array.size == 1 else None


# --- minimiser


def chain() -> onnx.ModelProto:
    """A network with a Softmax among others."""
    return next(r for r in ROWS if r.name == "attention_div").network(Form())


def test_the_smallest_network_keeps_the_difference():
    proto = chain()
    small = minimise(proto, lambda candidate: "Softmax" in types(candidate))
    assert types(small) == ["Softmax"]
    assert size(small) < (2, 10) < size(proto)
    assert small.graph.name == proto.graph.name


def test_constants_become_plain_and_attributes_go():
    row = next(r for r in ROWS if r.name == "leaky_of_conv")
    small = minimise(
        row.network(Form()), lambda candidate: "Conv" in types(candidate) and "LeakyRelu" in types(candidate)
    )
    assert types(small) == ["Conv", "LeakyRelu"]
    assert not small.graph.node[1].attribute
    assert all(not onnx.numpy_helper.to_array(c).any() for c in small.graph.initializer)


def test_minimising_asks_no_more_often_than_it_may():
    asked = list[int]()

    def holds(candidate: onnx.ModelProto) -> bool:
        asked.append(1)
        return True

    minimise(chain(), holds, tries=3)
    assert len(asked) <= 3


# --- triage, store, batches


def cell(network: str, *found: Finding, there: str = "") -> Judged:
    return Judged(Key(network, "bm1684x", "int8"), found, there)


ADD = Finding("ops", "tpu.Add", "Add in i8", "y", 0.5, 3)


def test_differences_of_one_kind_have_one_signature():
    scale = Finding("lowering", "tpu.Cast", "scale 0.5 here, 1.25e-05 there", "a")
    assert signature(scale) == signature(Finding("lowering", "tpu.Cast", "scale 3.0 here, 7.0 there", "b"))
    assert signature(scale) != signature(Finding("lowering", "tpu.Add", "scale 3.0 here, 7.0 there", "b"))
    assert signature(ADD) != signature(scale)


def test_kinds_are_sorted_by_the_networks_that_have_them():
    found = kinds([cell("a", ADD), cell("b", ADD), cell("c", Finding("cycles", "", "9 here, 3 there")), cell("d")])
    assert [(k.stage, k.networks) for k in found] == [("ops", ["a", "b"]), ("cycles", ["c"])]


def test_a_cell_is_equal_in_spite_of_its_clock_but_not_of_a_refused_table():
    assert cell("a", Finding("cycles", "", "9 here, 3 there")).equal
    assert not cell("a", Finding("table", "", "1 is missing")).equal


def test_refusals_of_the_real_tool_are_counted_by_message():
    assert refusals([cell("a", there="line 3: bad"), cell("b", there="line 14: bad"), cell("c")]) == {"line #: bad": 2}


def test_the_cause_is_the_line_that_tells_most(tmp_path: Path):
    (tmp_path / "failure.txt").write_text("model_deploy.py: exit 1\\nRuntimeError: [!Error]: tpuc-opt m.mlir")
    (tmp_path / "deploy.log").write_text(
        "fine\nNot support now.\nUNREACHABLE executed at /home/a/b.cpp:3!\nStack dump:\nAborted\n"
    )
    assert cause(Files(tmp_path)) == "Not support now. UNREACHABLE executed at b.cpp:3!"
    assert not cause(Files(tmp_path / "none"))


def test_a_store_continues_where_it_was(tmp_path: Path):
    store, proto = Store(tmp_path), chain()
    store.write(Record("a").with_cell(cell("a", ADD)), proto)
    again = Store(tmp_path).read("a")
    assert again.get(Key("a", "bm1684x", "int8")) == cell("a", ADD)
    assert again.get(Key("a", "bm1688", "int8")) is None
    assert types(store.network("a")) == types(proto)
    assert len(again.with_cell(cell("a")).cells) == 1
    assert [r.name for r in store.records()] == ["a"]


def test_a_published_set_says_how_many_are_equal_where_the_real_tool_agrees_with_itself(tmp_path: Path):
    odd = Judged(Key("e", "bm1684x", "int8"), (ADD,), disagreeing=("y",))
    slow = Judged(Key("f", "bm1684x", "int8"), groups=(3, 4), cycles=(150, 100), bytes=(10, 10))
    summary = Summary.of("seed9", [cell("a", ADD), cell("b"), cell("c", there="refused"), odd, slow])
    rate = summary.rates["bm1684x/int8"]
    assert (rate.cells, rate.compiled, rate.comparable, rate.equal) == (5, 4, 3, 2)
    assert (rate.timed, rate.cycles_near, rate.bytes_near, rate.groups_equal, rate.groups) == (1, 0, 1, 3, 4)
    for _ in range(2):
        publish(summary, tmp_path / "published.json")
    assert published(tmp_path / "published.json") == (summary,)
    page = section([summary])
    assert "seed9" in page
    assert "| bm1684x/int8 | 5 | 4 | 3 | 2 (67%)" in page
    assert "2 networks, 2 cells: ops tpu.Add: Add in i#" not in page
    assert "ops Add: Add in i#" in page


def test_cells_take_turns_over_a_set_of_networks():
    of = cells()
    met = {(k.chip, k.mode) for number in range(60) for k in keys(f"n{number}", of, 2)}
    assert met == set(of)
    assert len([*keys("n", of, 0)]) == len(of) == len({*keys("n", of, 0)})


def test_a_batch_is_its_cases_side_by_side_and_each_gets_the_findings_of_its_tensors():
    cases = [Case(next(r for r in ROWS if r.name == name).network(Form())) for name in ("silu", "relu_by_max", "mish")]
    both = joined(cases)
    assert len(both.proto.graph.node) == sum(len(c.proto.graph.node) for c in cases)
    assert is_finite(both.proto)
    wrong, slow = Finding("ops", "tpu.Max", "Max in i8", "1_max0_Max"), Finding("cycles", "", "off")
    found = list(split(cases, replace(cell("batch", wrong, slow), disagreeing=("2_mul2_Mul_f32",))))
    assert [c.key.network for c in found] == [c.name for c in cases]
    assert [[f.tensor for f in c.findings] for c in found] == [[], ["max0_Max"], []]
    assert [c.disagreeing for c in found] == [(), (), ("mul2_Mul_f32",)]
    assert not any(c.timed for c in found)
    assert not list(split(cases, cell("batch", there="crash")))
    assert not list(split(cases, cell("batch", Finding("compile", "", "refused"))))


@pytest.mark.parametrize("mode", ["int8", "f16"])
def test_heads_that_share_keys_stay_in_parts(mode: str) -> None:
    """Multi-query attention: one pair of keys and values for all queries, where an Attention has one for each head."""
    row = next(row for row in ROWS if row.name == "multi_query")
    _, proto = next(iter(row.variants()))
    top = to_canonical(import_onnx(proto))
    ranges = {op_name(op): (-3.0, 3.0) for op in top.ops if isinstance(op, TopOp)}
    tpu = to_tpu(ranged(top, ranges), "bm1684x", mode)
    assert not any(op.name == "tpu.Attention" for op in tpu.ops)
