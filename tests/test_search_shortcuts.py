"""What the group search does not compute twice, or at all: sums that refuse, tails cut once, rows costed once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise, permutations

import msgspec
import numpy as np
import onnx
import pytest
from compiling import to_canonical, to_groups, to_reordered, to_tpu
from networks import cached_lowered
from onnx import TensorProto, helper, numpy_helper
from xdsl.ir import SSAValue

from benchmarks.conformance.replay import Replay
from benchmarks.how_fast_is_the_compiler import assumed_four, chain
from tpusim import chips
from tpusim.errors import TpusimError
from tpusim.frontend import import_onnx
from tpusim.inference import input_specs, run
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ir.text import print_module, verify
from tpusim.layer_group import CostModel, ForcedGroup, LayerGroupConfig, base_groups, orders
from tpusim.layer_group.planning import Crowded, plan
from tpusim.layer_group.search import dynamic
from tpusim.layer_group.search.dynamic import Ways
from tpusim.layer_group.search.interval_names import Names
from tpusim.layer_group.slicing import SliceError, slice_group
from tpusim.ops.framework.base import TpuOp
from tpusim.passes.grouping import cycles, divide
from tpusim.schedule import GroupSchedule, Memo, Sections, ValueSlices, subgraph

ONE_OF_EACH = "bm1684", "bm1684x", "bm1688", "cv183x"


def runs(chip: str) -> list[list[TpuOp]]:
    """The base groups of two networks, one of batch 4."""
    models = [cached_lowered(seed, chip, ops, batch)[0] for seed, ops, batch in ((0, 6, 1), (3, 4, 4))]
    return [ops for model in models for ops, why in base_groups(model, chips.load(chip)) if why is None]


@pytest.mark.parametrize("chip", ONE_OF_EACH)
def test_what_sums_refuse_has_no_plan(chip: str) -> None:
    refused = allowed = 0
    for room in (4096, 1024, 512, 256):
        spec = msgspec.structs.replace(chips.load(chip), lmem_bytes=room)
        for ops in runs(chip):
            crowded = Crowded(ops, spec, Memo())
            for start, end in combinations(range(len(ops) + 1), 2):
                found = plan(ops[start:end], spec)
                allowed += isinstance(found, GroupSchedule)
                if crowded.refuses(start, end):
                    refused += 1
                    assert isinstance(found, str), (room, start, end)
    assert refused and allowed


@pytest.mark.parametrize("chip", ONE_OF_EACH)
def test_tails_are_cut_as_whole_groups_are(chip: str) -> None:
    """With what other groups left in the memo and without, errors too; and rows cost what they cost alone."""
    spec, errors, cut = chips.load(chip), 0, 0
    for ops in runs(chip):
        memo, model = Memo(), CostModel(spec)
        for (start, end), sections in (
            (pair, at) for pair in combinations(range(len(ops) + 1), 2) for at in (Sections(h=2), Sections(n=2, h=3))
        ):
            shared, own = (sliced(ops[start:end], sections, spec, one) for one in (memo, Memo()))
            assert shared == own
            errors, cut = errors + isinstance(own, str), cut + isinstance(own, dict)
            found = plan(ops[start:end], spec, memo=memo)
            if isinstance(found, GroupSchedule):
                assert model.group_ns(found) == pytest.approx(CostModel(spec).group_ns(found), rel=1e-12)
    assert errors and cut


def sliced(ops: list[TpuOp], sections: Sections, spec: chips.ChipSpec, memo: Memo) -> dict[SSAValue, ValueSlices] | str:
    """The windows of all tensors, or the reason why none exist."""
    try:
        return slice_group(subgraph(ops, spec, memo=memo), sections, spec)
    except SliceError as error:
        return str(error)


def branches(chip: chips.ChipSpec, qtable: str | None = None) -> Model:
    """Two convolutions, a pool and two sums, of which the first result has three users, in INT8 on a chip.

    qtable: the ops that are not.
    """
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal((32, 32, 3, 3)).astype(np.float32), f"w{i}") for i in "ab"]
    nodes = [
        helper.make_node("Conv", ["x", "wa"], ["a"], pads=[1] * 4),
        helper.make_node("Conv", ["a", "wb"], ["b"], pads=[1] * 4),
        helper.make_node("MaxPool", ["a"], ["c"], kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("Add", ["b", "c"], ["s"]),
        helper.make_node("Add", ["s", "a"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 32, 24, 24]) for name in "xy")
    proto = helper.make_model(helper.make_graph(nodes, "branches", [x], [y], weights), ir_version=8)
    top = to_canonical(import_onnx(onnx.load_from_string(proto.SerializeToString()), name="branches"))
    tpu = to_tpu(top, chip, "int8", qtable=qtable, ranges=assumed_four(top))
    return to_reordered(tpu)


@pytest.mark.slow
@pytest.mark.parametrize("share", [1, 8])
@pytest.mark.parametrize("chip", ONE_OF_EACH)
def test_best_equals_exhaustive_search(chip: str, share: int) -> None:
    """On the clock, over all divisions of a small graph with branches, in all of local memory and in a part of it.

    In every order that the ops can have.
    """
    whole = chips.load(chip)
    spec = whole if share == 1 else whole.replace(f"{chip} small", lmem_bytes=whole.lmem_bytes // share)
    model = branches(spec)
    found = [taken for other in (model, *orders(model)) for taken in divisions(other, spec)]
    assert len(found) > 4
    assert cycles(to_groups(model, "best")) <= min(found)


def divisions(model: Model, spec: chips.ChipSpec) -> Iterator[int]:
    """Cycles of every division that is possible."""
    (ops,) = (found for found, why in base_groups(model, spec) if why is None)
    assert 5 <= len(ops) <= 8
    names = [op_name(op) for op in ops]
    for count in range(len(ops)):
        for inner in combinations(range(1, len(ops)), count):
            pins = [ForcedGroup(names[i], names[j - 1]) for i, j in pairwise((0, *inner, len(ops)))]
            yield from tried(model, tuple(pins))


def test_orders_are_all_orders() -> None:
    """Of a small graph, as permutations that put every operand before its use."""
    model = branches(chips.load("bm1684x"))
    ops = [op for op in model.ops if op.operands and op is not model.terminator]
    place = {op: i for i, op in enumerate(ops)}
    before = [(place[v.owner], i) for i, op in enumerate(ops) for v in op.operands if v.owner in place]
    legal = {p for p in permutations(range(len(ops))) if all(p.index(a) < p.index(b) for a, b in before)}
    names = [op_name(op) for op in ops]
    found = [[name for op in other.ops if (name := op_name(op)) in names] for other in orders(model)]
    assert len(legal) > 1
    assert {tuple(map(names.index, order)) for order in found} == legal - {tuple(range(len(ops)))}


@pytest.mark.parametrize("chip", ["bm1684x", "cv182x"])
def test_every_order_computes_the_same(chip: str) -> None:
    """Of a network with too many orders to try all: valid modules, four at most, the same values to the bit."""
    model = to_reordered(Replay("shuffle").lowered(f"{chip}/int8"))
    rng = np.random.default_rng(0)
    feeds = {name: rng.integers(-99, 99, shape).astype(dtype) for name, (shape, dtype) in input_specs(model).items()}
    expected, found = run(model, feeds), list(orders(model))
    assert 1 <= len(found) <= 4
    texts = {print_module(other.module) for other in (model, *found)}
    assert len(texts) == len(found) + 1
    for other in found:
        verify(other.module, "reordered")
        values = run(other, feeds)
        assert values.keys() == expected.keys()
        assert all(np.array_equal(values[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    ("chip", "config"),
    [
        ("bm1684x", LayerGroupConfig()),
        ("bm1688", LayerGroupConfig(cores=2)),
        ("bm1690", LayerGroupConfig(shape_secs_search_strategy="1", everywhere=True)),
    ],
)
def test_costs_of_other_modules_change_no_group(
    chip: str, config: LayerGroupConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of modules that differ in the ops in float; local memory is small, so that groups are cut. Fewer are planned."""
    whole, costs, planned = chips.load(chip), dict[object, float](), list[int]()
    spec, plans = whole.replace(f"{chip} small", lmem_bytes=whole.lmem_bytes // 8), dynamic.Run._planned

    def counted(self: dynamic.Run, start: int, end: int, *, unplaced: bool = False) -> object:
        planned[-1] += 1
        return plans(self, start, end, unplaced=unplaced)

    monkeypatch.setattr(dynamic.Run, "_planned", counted)
    for qtable in (None, "b:F16", "c:F16,s:F16", "a:F32,y:F16", "b:F16"):
        model, known = branches(spec, qtable), len(costs)
        planned += [0]
        with_costs = print_module(divide(model, config, costs).module)
        planned += [0]
        assert with_costs == print_module(to_groups(model, config).module)
    assert sum(planned[::2]) < 0.8 * sum(planned[1::2]) and planned[-2] < planned[-1] / 2
    assert known == len(costs) > 0  # the last module was measured before


def chained(depth: int) -> list[TpuOp]:
    """The base group of so many convolutions, one after the other."""
    top = to_canonical(import_onnx(chain(depth), name="chain"))
    lowered = to_tpu(top, "bm1684x", ranges=assumed_four(top))
    model = to_reordered(lowered)
    return next(ops for ops, why in base_groups(model, chips.load("bm1684x")) if why is None and len(ops) >= depth)


def test_alike_intervals_are_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of equal convolutions asks for many intervals for each op and plans few, however long it is."""
    asked, planned = list[int](), list[int]()
    asks, plans = dynamic.Run._asked, dynamic.Run._planned

    def asks_counted(self: dynamic.Run, start: int, end: int, *, unplaced: bool = False) -> object:
        asked[-1] += 1
        return asks(self, start, end, unplaced=unplaced)

    def plans_counted(self: dynamic.Run, start: int, end: int, *, unplaced: bool = False) -> object:
        planned[-1] += 1
        return plans(self, start, end, unplaced=unplaced)

    monkeypatch.setattr(dynamic.Run, "_asked", asks_counted)
    monkeypatch.setattr(dynamic.Run, "_planned", plans_counted)
    for depth in (60, 120):
        asked, planned = [*asked, 0], [*planned, 0]
        dynamic.dynamic(chained(depth), chips.load("bm1684x"))
    assert asked[0] > 10 * 60 and asked[1] > 10 * 120
    assert max(planned) < asked[0] / 5 and planned[1] <= planned[0]


def test_names_of_intervals_are_those_of_what_is_alike() -> None:
    """Of a chain all of one length but the ones that end it; of branches whatever differs in what is read or leaves."""
    ops = chained(12)
    names, count = Names(ops), len(ops)
    convs = [i for i, op in enumerate(ops) if op.name == "tpu.Conv2D"]
    inner = {names.of(i, i + 4) for i in convs[1:-5]}
    assert len(convs) == 12 and len(inner) == 1
    assert names.of(0, 4) not in inner and names.of(count - 4, count) not in inner
    assert len({names.of(0, end) for end in range(1, count + 1)}) == count
    model = branches(chips.load("bm1684x"), None)
    ops = [op for op in model.ops if isinstance(op, TpuOp)]
    again = [op for op in branches(chips.load("bm1684x"), None).ops if isinstance(op, TpuOp)]
    pairs = list(combinations(range(len(ops) + 1), 2))
    mine, other = ([Names(run).of(*pair) for pair in pairs] for run in (ops, again))
    assert mine == other
    for one, two in combinations(range(len(pairs)), 2):
        if mine[one] == mine[two]:
            assert stands(ops, *pairs[one]) == stands(ops, *pairs[two])


def stands(ops: list[TpuOp], start: int, end: int) -> list[object]:
    """An interval as text: its ops, which of them read what, and what leaves."""
    inside, numbers = ops[start:end], dict[SSAValue, int]()
    found: list[object] = []
    for op in inside:
        reads = [numbers.setdefault(value, len(numbers)) for value in op.operands]
        makes = [numbers.setdefault(value, len(numbers)) for value in op.results]
        leaves = [any(use.operation not in inside for use in value.uses) for value in op.results]
        attributes = {key: value for key, value in {**op.attributes, **op.properties}.items() if key != "op_name"}
        found.append(
            (op.name, str(sorted(attributes.items())), [str(v.type) for v in op.operands], reads, makes, leaves)
        )
    return found


def tried(model: Model, pins: tuple[ForcedGroup, ...]) -> list[int]:
    """Cycles of a division; [] where a group of it is impossible."""
    try:
        return [cycles(to_groups(model, force=pins))]
    except TpusimError:
        return []


def test_the_cheapest_way_is_searched_on_from_the_first_change() -> None:
    """It is what a search from the beginning finds, ties and steps that nobody may take included."""
    rng = np.random.default_rng(0)
    for count in (2, 3, 9, 30):
        costs = np.triu(rng.integers(1, 5, (count, count)).astype(float), 1)
        costs[rng.random(costs.shape) < 0.2] = np.inf
        costs[np.arange(count - 1), np.arange(1, count)] = 4.0
        ways = Ways(costs)
        assert ways.shortest(1) == Ways(costs.copy()).shortest(1)
        for _ in range(40):
            pairs = [tuple(sorted(rng.choice(count, 2, replace=False))) for _ in range(2)]
            for start, end in pairs:
                costs[start, end] = rng.integers(1, 9)
            assert ways.shortest(min(end for _, end in pairs)) == Ways(costs).shortest(1)


def test_a_chain_takes_rounds_for_names_not_for_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """All intervals of one name are costed in one round, wherever in the chain they are; the names stay short."""
    rounds, shortest = list[int](), Ways.shortest

    def counted(self: Ways, changed: int) -> list[int]:
        rounds[-1] += 1
        return shortest(self, changed)

    monkeypatch.setattr(Ways, "shortest", counted)
    for depth in (24, 48):
        rounds.append(0)
        ops = chained(depth)
        dynamic.dynamic(ops, chips.load("bm1684x"))
        names = Names(ops)
        assert isinstance(name := names.of(0, len(ops)), tuple) and len(name) < 24
    assert rounds[0] < 3 * 24 and rounds[1] < 3 * 48  # of intervals there are four times as many
