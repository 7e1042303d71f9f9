"""What is done to groups once they are chosen changes no bit and costs no time (layer_group.md 8.4, 10.1, 13)."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from builders.groups import X, add, conv, odd, outside, value, weight
from builders.replays import random_dag, replay
from builders.sliced_networks import NETWORKS
from builders.timings import in_every_order
from compiling import to_groups, to_program, to_reordered, to_tpu
from networks import Network, cached_lowered, cached_network, randomly_grouped, reordered
from rotation import first_of, marks, one_in
from xdsl.ir import SSAValue

from tpusim import chips
from tpusim.cli import main
from tpusim.cli.grouping import group_lines
from tpusim.cli.options import GroupSteps
from tpusim.errors import ImportModelError
from tpusim.interfaces import rules
from tpusim.ir.attrs import ints_attr, text, value_name
from tpusim.ir.module import Model, save_model
from tpusim.ir.text import parse_module, print_module
from tpusim.layer_group import GroupView, LayerGroupConfig, Refinements, views
from tpusim.layer_group.candidates import base_groups
from tpusim.layer_group.cost import CostModel
from tpusim.layer_group.files import write_group
from tpusim.layer_group.local_memory import allocate, buffers, partners
from tpusim.layer_group.planning import Decided, plan, schedule
from tpusim.layer_group.refinement import Refiner, problem
from tpusim.layer_group.refinement.balance import Ways
from tpusim.layer_group.refinement.combine import combined, exchanged, merged
from tpusim.layer_group.refinement.merge import recombined
from tpusim.layer_group.refinement.moves import moved_rows, reach
from tpusim.layer_group.refinement.overlap import overlapped
from tpusim.layer_group.refinement.widen import merged as wide
from tpusim.layer_group.refinement.widen import spans, widened
from tpusim.layer_group.slicing import whole_slices
from tpusim.ops import context
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.interfaces import GroupRules
from tpusim.ops.structure import TpuGroup
from tpusim.page.pictures import pipeline
from tpusim.passes.layer_group import LayerGroup
from tpusim.schedule import Allocation, GroupSchedule, Memo, Overlap, Row, Scheduled, Sections, Transferred, subgraph
from tpusim.simulator import Simulator, timeline

FAMILIES = ("bm1684x", "bm1688", "bm1684", "cv183x")
EVERY = pytest.mark.parametrize("chip", one_in(2, [(chip,) for chip in FAMILIES]))
TRIALS = pytest.mark.parametrize("trial", [0, pytest.param(1, marks=marks(usual=False))])
"""Seeds of random groups: the first in every run, the second in `make slow`."""


def same_bits(model: object, feeds: dict[str, np.ndarray], flat: dict[str, np.ndarray]) -> None:
    """The machine shows the flat tensors under both DMA timings."""
    found = in_every_order(to_program(model), feeds)  # type: ignore[arg-type]
    assert all(np.array_equal(found[n], flat[n]) for n in flat if n in found)
    assert sum(n not in found for n in flat) <= 1


def any_cost(seed: int) -> Callable[[object], float]:
    """Times that have nothing to do with the chip, so that everything that may move has a reason to."""
    rng, known = np.random.default_rng(seed), dict[object, float]()
    return lambda item: known.setdefault(item, float(rng.integers(1, 40)))


# -------------------------------------------------------------------------------------------------------- 8.4: moves


def chain(count: int) -> tuple[GroupSchedule, object]:
    """A plan of `count` convolutions in a row, one step."""
    ops: list[TpuOp] = [conv(value())]
    while len(ops) < count:
        ops.append(conv(ops[-1].results[0]))
    user = outside(ops[-1].results[0])
    found = plan(ops, X, Sections())
    assert isinstance(found, GroupSchedule)
    return found, user


def loads(rows: Sequence[Row]) -> list[list[int]]:
    """Per row: the convolutions, by number, whose filters are loaded in it by stage 1."""
    ops = [op for row in rows for op in row.layers]
    number = {op.operands[1]: i for i, op in enumerate(ops)}
    return [sorted(number[t.value] for t in row.transfers if t.stage == 1 and t.value in number) for row in rows]


def costs(found: GroupSchedule, tiu: Sequence[float], dma: Sequence[float]) -> Callable[[object], float]:
    ops = found.graph.ops
    table: dict[object, float] = dict(zip(ops, tiu, strict=True))
    filters = {op.operands[1]: ns for op, ns in zip(ops, dma, strict=True)}
    return lambda item: filters.get(item.value, 1.0) if isinstance(item, Transferred) else table[item]


def test_a_load_moves_to_the_row_where_it_costs_nothing() -> None:
    """Worked by hand: row 1 lacks 20, rows 0 and 2 have 30 and 5; the filter of conv 2 goes to row 0, whole."""
    found, user = chain(4)
    assert loads(found.rows) == [[1], [2], [3], []]
    rows, made = moved_rows(found, costs(found, [40, 10, 15, 10], [9, 10, 30, 10]), X)
    assert made == 1 and loads(rows) == [[1, 2], [], [3], []]
    assert user


def test_rows_hand_over_the_lighter_transfer() -> None:
    """Row 2 lacks 10 and row 0 has 31 to give; row 1 is even. The load of row 2 stops in row 1, whose load goes on."""
    found, user = chain(4)
    size = {v: s for v, s in found.allocation.size.items() if not isinstance(v, TpuOp)}
    assert len({size[op.operands[1]] for op in found.graph.ops}) == 1
    rows, made = moved_rows(found, costs(found, [40, 20, 10, 10], [9, 10, 20, 20]), X)
    assert made == 1 and loads(rows) == [[1, 3], [2], [], []]  # equal weight one row on: it keeps going
    heavy, other = add_of_two_sizes()
    rows, made = moved_rows(heavy, costs(heavy, [40, 20, 10, 10], [9, 10, 20, 20]), X)
    assert made == 1 and loads(rows) == [[1, 2], [3], [], []]
    assert user and other


def add_of_two_sizes() -> tuple[GroupSchedule, object]:
    """Four convolutions, the last with a wider kernel, so that its filter is the heaviest."""
    ops: list[TpuOp] = [conv(value())]
    for k in (3, 3, 5):
        ops.append(conv(ops[-1].results[0], k))
    user = outside(ops[-1].results[0])
    found = plan(ops, X, Sections())
    assert isinstance(found, GroupSchedule)
    return found, user


def test_how_far_a_transfer_reaches() -> None:
    x = value()
    first = conv(x)
    second = conv(first.output)
    third = add(second.output, first.output)
    last = conv(third.results[0])
    user = outside(first.output, last.output)
    rows = schedule(subgraph([first, second, third, last], X))
    where = {(t.value, t.kind): (i, t) for i, row in enumerate(rows) for t in row.transfers}
    at, load = where[x, "load"]
    assert at == 3 and [*reach(rows, load, at)] == [2, 1]  # row 0 reads it
    at, load = where[last.filter, "load"]
    assert at == 2 and [*reach(rows, load, at)] == [1, 0]
    at, store = where[first.output, "store"]
    assert at == 1 and [*reach(rows, store, at)] == [3]  # row 2 reads it
    at, store = where[last.output, "store"]
    assert at == 0 and [*reach(rows, store, at)] == [1, 2]  # row 3 makes it
    assert user.arguments


def test_tables_tell_how_far_transfers_reach() -> None:
    rng, compared = np.random.default_rng(85), 0
    for _ in range(60):
        dag = random_dag(rng, weights=True)
        rows = schedule(dag.graph)
        ways = Ways(rows, lambda _: 0, lambda _: 0)
        for at, moving in ((i, m) for i, row in enumerate(ways.moving) for m in row):
            found = [*reach(rows, moving.transfer, at)]
            behind = range(at) if moving.load else range(at + 1, len(rows))
            assert [*ways.reach(moving, at)] == found
            assert [to for to in behind if ways.may_end(moving, at, to)] == sorted(found)
            compared += len(found)
    assert compared > 500


def test_random_moves_read_nothing_stale_and_store_once() -> None:
    """The property test of section 8.3 on moved schedules, with times at random and one or several steps."""
    rng, moved = np.random.default_rng(84), 0
    for number in range(300):
        dag = random_dag(rng, weights=True)
        steps = (1, 2, 3, 5)[number % 4]
        slices = whole_slices(dag.graph, X)
        rows = schedule(dag.graph)
        placed = allocate(buffers(dag.graph, rows, slices, X, steps=1), rows, X)
        assert placed is not None
        found = GroupSchedule(dag.graph, Sections(h=steps), slices if steps == 1 else cut(slices, steps), rows, placed)
        new, made = moved_rows(found, any_cost(number), X)
        moved += made
        assert replay(dag.graph, new, steps) == dict.fromkeys(product(dag.graph.outputs, range(steps)), 1)
        assert Counter(op for row in new for op in row.layers) == dict.fromkeys(dag.graph.ops, 1)
        assert dag.users
    assert moved > 300


def cut(slices: dict, steps: int) -> dict:  # type: ignore[type-arg]
    """The same, as if every tensor had another slice at each step."""
    return {v: replace(s, h=s.h * steps) for v, s in slices.items()}


@pytest.mark.parametrize(("key", "chip"), one_in(3, product(NETWORKS[:3], FAMILIES)))
def test_moved_groups_give_the_same_bits(key: tuple[int, int, int], chip: str) -> None:
    """Random groups, random sections, random times: whatever moves is placed, valid, and right in the machine."""
    model, flat = cached_lowered(key[0], chip, *key[1:])
    refiner, made = Refiner(chips.load(chip), Refinements()), 0

    def move(decided: list[Decided]) -> list[Decided]:
        nonlocal made
        found: list[Decided] = []
        for seed, item in enumerate(decided):
            if isinstance(item, GroupSchedule):
                rows, count = moved_rows(item, any_cost(seed), refiner.chip)
                new = refiner.replaced(item, rows)
                assert new is not None
                made += count
                item = new
            found.append(item)
        return found

    for trial in range(2):
        divided, _ = randomly_grouped(model, np.random.default_rng(trial), change=move)
        same_bits(divided, cached_network(*key).feeds(), flat)
    assert made


# --------------------------------------------------------------------------------------- all steps, by the cost model


@EVERY
def test_refined_groups_are_never_slower_on_the_clock(chip: str) -> None:
    """The estimate of what is written is its time at the rates of the search (U-78), and no longer than before."""
    refiner = Refiner(chips.load(chip), Refinements(wide_rows=True))
    quicker = 0
    for key, trial in product(NETWORKS[:3], range(2)):
        model, _ = cached_lowered(key[0], chip, *key[1:])
        before, after = list[float](), list[float]()

        def refined(decided: list[Decided], before: list[float] = before, after: list[float] = after) -> list[Decided]:
            found = refiner.refined(decided)
            before.append(refiner.model.total_ns(decided))
            after.append(refiner.model.total_ns(found))
            return found

        divided, _ = randomly_grouped(model, np.random.default_rng(trial), change=refined)
        clock = timeline(to_program(divided), refiner.chip.searched()).milliseconds * 1e6
        if rules(refiner.chip, GroupRules).COST == "replay":
            assert after == [pytest.approx(clock, rel=0.001)]
        assert after <= before
        quicker += after < before
    assert quicker or not refiner.chip.engines_overlap


# ------------------------------------------------------------------------------------------------- 16: validity tests


def test_the_replay_on_bytes_notices_what_is_wrong() -> None:
    """Each kind of defect, made by hand in a group that works."""
    found, user = chain(3)
    first, second, _ = found.graph.ops
    assert problem(found) is None

    def rows(*changes: tuple[int, int, Transferred]) -> GroupSchedule:
        """Transfers moved from a row to another, whatever that breaks."""
        new = list(found.rows)
        for at, to, transfer in changes:
            new[at], new[to] = new[at].without(transfer), new[to].plus(transfer)
        return replace(found, rows=tuple(new))

    weights = {t.value: (i, t) for i, row in enumerate(found.rows) for t in row.transfers}
    at, load = weights[second.operands[1]]
    clashing = problem(rows((at, 1, load)))
    assert clashing is not None and "touch the same bytes" in clashing and clashing.startswith("iteration 1, row 1")
    late = problem(rows((at, 2, load)))
    assert late is not None and "of step 0, which is gone" in late

    def address(**moved: int) -> GroupSchedule:
        """Owners moved to other addresses."""
        where = dict(found.allocation.address)
        for name, at in moved.items():
            where[{"x": found.graph.inputs[0], "first": first.results[0], "filter": second.operands[1]}[name]] = at
        return replace(found, allocation=Allocation(where, found.allocation.size, found.allocation.peak_bytes))

    same = problem(address(x=1024, first=1024))
    assert same is not None and "writes bytes that it still reads" in same
    over = problem(address(filter=4096, first=4096))
    assert over is not None and ("touch the same bytes" in over or "gone" in over)
    stored = tuple(row.without(*(t for t in row.transfers if t.kind == "store")) for row in found.rows)
    missing = problem(replace(found, rows=stored))
    assert missing is not None and "is stored 0 times at step 0" in missing
    assert user


@pytest.mark.slow
def test_the_switches_are_those_of_the_commands(tmp_path: Path) -> None:
    """Same names, same defaults: LayerGroupConfig, `tpusim run` and `group`, the pass `layer-group`."""
    wanted = {f.name: f.default for f in fields(Refinements)}
    assert asdict(GroupSteps()) == wanted
    assert {f.name: f.default for f in fields(LayerGroup) if f.name in wanted} == wanted
    assert {k: v for k, v in vars(LayerGroupConfig()).items() if k in wanted} == wanted
    model, _ = cached_lowered(0, "bm1684x")
    save_model(model, tmp_path / "4_tpu.mlir")
    differ = set[str]()
    for name in wanted:
        texts: list[str] = []
        for state in ("", "no-"):
            out = tmp_path / f"{state}{name}" / "5_grouped.mlir"
            out.parent.mkdir()
            flag = f"--{state}{name.replace('_', '-')}"
            assert main(["group", str(tmp_path / "4_tpu.mlir"), flag, "--out", str(out)]) == 0
            value = "false" if state else "true"
            piped = tmp_path / f"opt_{state}{name}" / out.name
            piped.parent.mkdir()
            passes = f"layer-group{{{name.replace('_', '-')}={value}}}"
            assert main(["opt", str(tmp_path / "4_tpu.mlir"), "-p", passes, "-o", str(piped)]) == 0
            texts.append(out.read_text())
            assert piped.read_text() == texts[-1]
        differ |= {name} if texts[0] != texts[1] else set()
    assert (
        {"timestep_combine"} <= differ <= {"timestep_combine", "timestep_moves", "wide_rows"}
    )  # one group, which fits apart


# --------------------------------------------------------------------------------------------------- 10.1: in place


def in_place(item: Decided, chip: str) -> tuple[Decided, int]:
    """A group in which every result takes an operand's bytes where the replay allows it; how many do."""
    if not isinstance(item, GroupSchedule):
        return item, 0
    spec, steps = chips.load(chip), item.sections.steps
    found = buffers(item.graph, item.rows, item.slices, spec, steps=steps)
    placed = allocate(found, item.rows, spec)
    assert placed is not None
    best, top = replace(item, allocation=placed), spec.lmem_bytes
    for result, operands in partners(item.graph, item.rows, item.slices, found, spec).items():
        for operand in operands:
            now = best.allocation
            at = now.address[operand] if operand in now.reused else (top - now.size[operand]) // 128 * 128
            address = {**now.address, result: at, operand: at}  # where nothing else is
            taken = replace(now, address=address, reused={**now.reused, result: operand})
            if problem(replace(best, allocation=taken)) is None:
                best, top = replace(best, allocation=taken), min(top, at)
                bare = replace(taken, reused=now.reused)
                assert "writes bytes that it still reads" in str(problem(replace(best, allocation=bare)))
                break
    return best, len(best.allocation.reused)


def everything_in_place(model: Model, chip: str, seed: int) -> tuple[Model, int]:
    """Random groups of a module, in place; what a person sees of them from the text is right."""
    count = 0

    def change(decided: list[Decided]) -> list[Decided]:
        nonlocal count
        both = [in_place(item, chip) for item in decided]
        count += sum(n for _, n in both)
        return [item for item, _ in both]

    divided, _ = randomly_grouped(model, np.random.default_rng(seed), change=change)
    again = Model(parse_module(print_module(divided.module), context()), divided.weights)
    found = [v for v in views(again) if isinstance(v, GroupView)]
    assert all(v.overlaps == () for v in found)
    assert sum(bool(a.in_place_of) for v in found for a in v.areas) == count
    return divided, count


@TRIALS
@EVERY
def test_results_in_place_give_the_same_bits(chip: str, trial: int) -> None:
    made = 0
    for key in NETWORKS[:4]:
        model, flat = cached_lowered(key[0], chip, *key[1:])
        drawn = (everything_in_place(model, chip, seed) for seed in range(8 * trial, 8 * trial + 8))
        divided, count = next((found for found in drawn if found[1]), (model, 0))  # few groups have such a result
        made += count
        if count:
            same_bits(divided, cached_network(*key).feeds(), flat)
    assert (made > 0) == rules(chips.load(chip), GroupRules).RESULTS_IN_PLACE


@pytest.mark.parametrize(
    ("chip", "mode"),
    [("bm1684x", "int8"), ("bm1684x", "f16"), ("bm1684x", "f32"), ("bm1684", "int8"), ("bm1684", "f32")],
)
def test_every_op_that_may_works_in_place(chip: str, mode: str) -> None:
    """Sub, Max, Min, Mul and Add of two tensors that die: the same bits as the module not in place."""
    net = Network(np.random.default_rng(3))
    x = net.input((1, 10, 12, 10))
    for kind in ("Sub", "Max", "Min", "Mul", "Add"):
        one, two = net.conv(x, 10, 1), net.conv(x, 10, 1)
        x = net.conv(net._node(kind, [one, two], [], net._new(x.shape, 2.0, True)), 10, 1)  # noqa: SLF001
    lowered = to_tpu(net.top(), chip, mode)
    model = to_reordered(lowered)
    spec = chips.load(chip)
    results: list[dict[str, np.ndarray]] = []
    for together in (False, True):
        work, taken = model.clone(), set[str]()
        decided: list[Decided] = []
        for ops, why in list(base_groups(work, spec)):
            found = plan(ops, spec, Sections(h=2)) if why is None else why
            decided.append(found if isinstance(found, GroupSchedule) else (ops[0], found))
        for item in reversed(decided):
            new = in_place(item, chip)[0] if together else item
            if isinstance(new, GroupSchedule):
                taken |= {op.name for op in new.graph.ops if op.results[0] in new.allocation.reused}
                write_group(new)
            else:
                new[0].attributes["tpusim.global_reason"] = text(new[1])
        work.set(state="TPU_DIVIDED")
        results.append(Simulator(to_program(work)).run(net.feeds(), watch=True).tensors)
        kinds = {f"tpu.{kind}" for kind in ("Sub", "Max", "Min", "Mul", "Add")}
        assert taken - {"tpu.MulShift"} == (kinds if together else set())
    assert all(np.array_equal(results[0][n], results[1][n]) for n in results[0])


def test_a_group_that_fits_only_in_place() -> None:
    """With a = f(x), b = f(a), c = a + b, d = c + x of 64 KiB each: four live at c, or three in place."""
    x = value((1, 64, 128, 128))
    first = odd(x)
    second = odd(first.output)
    total = add(second.output, first.output)
    ops: list[TpuOp] = [first, second, total, add(total.results[0], x)]
    user = outside(ops[-1].results[0])
    tensor = 128 * 128 * 4
    small, both = msgspec.structs.replace(X, lmem_bytes=3 * tensor), Memo(in_place=True)
    apart = plan(ops, msgspec.structs.replace(small, lmem_bytes=2 * tensor), Sections(), memo=both)
    assert isinstance(apart, str) and f"needs {3 * tensor:,} bytes per lane" in apart
    assert isinstance(plan(ops, small, Sections(), memo=Memo()), str)
    found = plan(ops, small, Sections(), memo=both)
    assert isinstance(found, GroupSchedule) and found.allocation.peak_bytes <= small.lmem_bytes
    assert problem(found) is None and found.allocation.reused
    assert user.arguments


def test_an_operand_that_is_needed_again_is_not_overwritten() -> None:
    """Two users, a store in the row, another layout, a constant: each keeps the operand."""

    def able(*ops: TpuOp, outputs: Sequence[SSAValue] = ()) -> dict[SSAValue, tuple[SSAValue, ...]]:
        user = outside(ops[-1].results[0], *outputs)
        graph = subgraph(ops, X)
        rows, slices = schedule(graph), whole_slices(graph, X)
        assert user.arguments
        return dict(partners(graph, rows, slices, buffers(graph, rows, slices, X, steps=1), X))

    x, y = value(), value()

    def case(*operands: SSAValue) -> tuple[TpuOp, list[TpuOp]]:
        """A sum of `first` and more, and two convolutions after it, so that no loop wraps around its row."""
        total = add(*operands)
        after = conv(total.results[0])
        return total, [total, after, conv(after.output)]

    first = conv(x)
    total, rest = case(first.output, y)
    assert able(first, *rest) == {total.results[0]: (first.output, y)}
    assert able(first, *rest, outputs=[first.output]) == {total.results[0]: (y,)}  # it is stored in that row
    total, rest = case(conv(x).output, value((1, 4, 10, 1)))
    assert able(total.operands[0].owner, *rest) == {total.results[0]: (total.operands[0],)}  # type: ignore[arg-type]
    total, rest = case(conv(x).output, weight((1, 4, 10, 8)))
    assert able(total.operands[0].owner, *rest) == {total.results[0]: (total.operands[0],)}  # type: ignore[arg-type]
    one = conv(x)
    total, rest = case(one.output, one.output)
    assert able(one, *rest) == {}
    one = conv(x)
    total, rest = case(one.output, y)
    again = add(rest[-1].results[0], one.output)
    assert able(one, *rest, again, conv(again.results[0])) == {
        total.results[0]: (y,), again.results[0]: (rest[-1].results[0],)
    }  # fmt: skip


def test_bytes_that_are_shared_without_leave_are_shown() -> None:
    """By hand: a result put over an operand that has another user."""
    net = Network(np.random.default_rng(4))
    x = net.conv(net.input((1, 10, 12, 10)), 10, 1)
    y = net.add(x, net.conv(x, 10, 1))
    z = net.add(y, x)
    net.conv(net.conv(z, 10, 1), 10, 1)
    model = reordered(net.top(), "bm1684x")
    (ops, _), = base_groups(model, X)  # fmt: skip
    found = plan(ops, X, Sections())
    assert isinstance(found, GroupSchedule)
    first, second = (op for op in ops if op.name == "tpu.Add")
    where = dict(found.allocation.address)
    assert [value_name(v) for op in (first, second) for v in op.operands][::2] == [x.name, y.name]
    for result, operand in ((first.results[0], first.operands[0]), (second.results[0], second.operands[0])):
        new = {**where, result: X.lmem_bytes // 2, operand: X.lmem_bytes // 2}
        moved = replace(found, allocation=replace(found.allocation, address=new))
        shown = views_of(moved, model)
        (area,) = (a for a in shown.areas if a.name == value_name(result))
        if result is first.results[0]:  # x is needed again
            assert [{a.name for a in pair} for pair in shown.overlaps] == [{area.name, x.name}] and not area.in_place_of
        else:
            assert shown.overlaps == () and area.in_place_of == value_name(operand)
            assert f"  in place: {area.name} takes the bytes of {y.name}" in list(group_lines(shown, 1, whole=False))


def views_of(found: GroupSchedule, model: Model) -> GroupView:
    """What a plan of the whole module looks like once it is written; the module stays as it is."""
    by_op = {op: i for i, op in enumerate(found.graph.ops)}
    work = model.clone()
    ((ops, _),) = base_groups(work, X)
    same = plan(ops, X, found.sections, found.graph.kind)
    assert isinstance(same, GroupSchedule)

    def there(owner: SSAValue | TpuOp) -> SSAValue | TpuOp:
        if not isinstance(owner, SSAValue):
            return ops[by_op[owner]]
        names = {value_name(v): v for v in same.graph.values}
        return names[value_name(owner)]

    placed = {there(o): a for o, a in found.allocation.address.items()}
    write_group(replace(same, allocation=replace(same.allocation, address=placed)))
    work.set(state="TPU_DIVIDED")
    (shown,) = (v for v in views(work) if isinstance(v, GroupView))
    return shown


# ------------------------------------------------------------------------------------------- 13: neighbouring groups


class Generous(CostModel):
    """Every row has time for everything, and overlap is all that counts: what is legal is done."""

    def row_ns(self, plan: GroupSchedule, iteration: int) -> list[tuple[float, float]]:
        del iteration
        return [(1e9, 0.0)] * len(plan.rows)

    def group_ns(self, plan: GroupSchedule) -> float:
        return -float(len(plan.overlap.other_down) + len(plan.overlap.other_up))


def lists_of(decided: Sequence[Decided]) -> list[int]:
    """How many transfers are in each of the four lists."""
    plans = [item.overlap for item in decided if isinstance(item, GroupSchedule)]
    return [sum(len(getattr(o, name)) for o in plans) for name in ("self_up", "other_up", "self_down", "other_down")]


@TRIALS
@pytest.mark.parametrize("chip", first_of(["bm1684x", "bm1688", "bm1684"]))
def test_overlapped_groups_give_the_same_bits_from_the_text(chip: str, trial: int) -> None:
    """Everything that may overlap does; the commands come from the printed module alone."""
    total = np.zeros(4, int)

    def change(decided: list[Decided]) -> list[Decided]:
        nonlocal total
        found = overlapped(decided, Generous(chips.load(chip)))
        total += lists_of(found)
        return found

    for number, (seed, key) in enumerate(product((trial, trial + 100), NETWORKS)):
        if number >= 3 and (total > 0).all():
            break  # few groups lend a store
        model, flat = cached_lowered(key[0], chip, *key[1:])
        divided, plans = randomly_grouped(model, np.random.default_rng(seed), longest=3, change=change)
        lent = lists_of(plans)
        assert lent[0] == lent[1] and lent[2] == lent[3]
        if sum(lent):
            again = Model(parse_module(print_module(divided.module), context()), divided.weights)
            same_bits(again, cached_network(*key).feeds(), flat)
            shown = [v for v in views(again) if isinstance(v, GroupView)]
            assert sum(len(v.visits) for v in shown) == sum(len(v.given) for v in shown) == lent[0] + lent[2]
            lines = [line for v in shown for line in group_lines(v, len(shown), whole=True)]
            assert sum(line.startswith("  for group ") for line in lines) == lent[0] + lent[2]
            assert sum(line.startswith("  by group ") for line in lines) == lent[0] + lent[2]
    assert (total > 0).all()


def test_pictures_show_what_neighbours_do() -> None:
    """A transfer for a neighbour is a separate box, named after the group, and the legend says so."""
    model, _ = cached_lowered(0, "bm1684x")
    spare = Generous(X)
    divided, _ = randomly_grouped(
        model, np.random.default_rng(1), longest=3, change=lambda decided: overlapped(decided, spare)
    )
    view = next(v for v in views(divided) if isinstance(v, GroupView) and v.visits)
    picture = pipeline(view)
    visitors = [box for box in picture.boxes if box.kind == "visitor"]
    assert len(visitors) == len(view.visits)
    for visit in view.visits:
        assert any(visit.item.tensor in box.title and f"for group {visit.group}" in box.title for box in visitors)
    assert picture.legend["visitor"] == "for a neighbouring group, once"


def two_groups() -> tuple[list[Decided], object]:
    """conv, conv | conv, conv in two slices; the second group has weights that may be loaded in advance."""
    ops: list[TpuOp] = [conv(value())]
    while len(ops) < 4:
        ops.append(conv(ops[-1].results[0]))
    kept = outside(ops[1].results[0], ops[3].results[0])
    plans = [plan(ops[:2], X, Sections(h=2)), plan(ops[2:], X, Sections(h=2))]
    assert all(isinstance(p, GroupSchedule) for p in plans)
    return plans, kept  # type: ignore[return-value]


def test_worked_example_of_two_groups() -> None:
    """Group 1 reads what group 0 stores, so only its first filter comes early; that store cannot come late."""
    decided, kept = two_groups()
    first, second = overlapped(decided, Generous(X))
    assert isinstance(first, GroupSchedule) and isinstance(second, GroupSchedule)
    filter_ = second.graph.ops[0].operands[1]
    assert [t.value for t in second.overlap.self_up] == [filter_] and second.overlap.other_down == ()
    assert [(g.transfer.value, g.home) for g in first.overlap.other_up] == [(filter_, decided[1])]
    assert first.overlap.self_down == () == second.overlap.self_down
    assert kept


def test_the_replay_notices_wrong_overlap() -> None:
    """A row too early, a tensor that is not stored yet, a list without its counterpart."""
    decided, kept = two_groups()
    first, second = overlapped(decided, Generous(X))
    assert isinstance(first, GroupSchedule) and isinstance(second, GroupSchedule)
    assert problem(first, second) is None
    alone = problem(replace(first, overlap=Overlap()), second)
    assert alone is not None and "which is gone" in alone
    (guest,) = first.overlap.other_up
    size = second.allocation.size[guest.transfer.value]
    home = replace(guest.home, allocation=replace(guest.home.allocation, address={
        **guest.home.allocation.address, guest.transfer.value: first.allocation.address[first.graph.inputs[0]]
    }))  # fmt: skip
    wrong = replace(first, overlap=replace(first.overlap, other_up=(replace(guest, row=0, home=home),)))
    found = problem(wrong, replace(home, overlap=second.overlap))
    assert size and found is not None and found.startswith("group 0, iteration ") and kept


def test_lists_that_name_nothing_are_refused() -> None:
    model, _ = cached_lowered(0, "bm1684x")
    divided, _ = randomly_grouped(model, np.random.default_rng(1), longest=3)
    groups = [op for op in divided.ops if isinstance(op, TpuGroup)]
    groups[0].attributes["other_up_overlap_op"] = ints_attr([-1, 999])
    with pytest.raises(ImportModelError, match=r"other_up_overlap_op names \[999\], which are no transfers of the"):
        to_program(divided)
    groups[0].attributes["other_up_overlap_op"] = ints_attr([3])
    with pytest.raises(ImportModelError, match="names item 3 before any row"):
        to_program(divided)


# ---------------------------------------------------------------------------------------------------- 13: combination


def test_two_rows_become_one() -> None:
    """Worked by hand: the filter of conv 1 does not fit with it; the filter of conv 3 goes to row 1 or earlier."""
    found, user = chain(4)
    ns = costs(found, [40, 10, 30, 10], [5, 5, 30, 30])
    assert loads(found.rows) == [[1], [2], [3], []]
    assert merged(found.rows, 0, ns) is None  # no row is before row 0
    new = merged(found.rows, 1, ns)
    assert new is not None and [len(row.layers) for row in new] == [1, 2, 1]
    assert loads(new) == [[1, 2], [3], []]  # conv 1 and 2 run in row 1, where 3 is loaded
    late = merged(found.rows, 2, ns)
    assert late is not None and [len(row.layers) for row in late] == [1, 1, 2] and loads(late) == [[1], [2, 3], []]
    assert merged(found.rows, 1, costs(found, [40, 10, 40, 10], [1, 1, 1, 1])) is None  # both compute long
    assert user


def test_a_load_and_a_store_change_places() -> None:
    x = value()
    first = conv(x)
    second = conv(first.output)
    third = conv(second.output)
    last = conv(third.output)
    user = outside(first.output, last.output)
    rows = schedule(subgraph([first, second, third, last], X))
    where = {(t.value, t.kind): i for i, row in enumerate(rows) for t in row.transfers}
    at, store = where[last.filter, "load"], where[first.output, "store"]
    assert (at, store) == (2, 1)
    found = [
        {(t.value, t.kind): i for i, row in enumerate(new) for t in row.transfers}
        for new in exchanged(rows, lambda item: 2.0 if isinstance(item, Transferred) else 1.0)
    ]
    assert {**where, (last.filter, "load"): 1, (first.output, "store"): 2} in found
    assert all(sum(at != new[key] for key, at in where.items()) == 2 for new in found)
    assert user.arguments


class Fewest(CostModel):
    """Fewer rows are cheaper, whatever they hold: what can be merged is."""

    def group_ns(self, plan: GroupSchedule) -> float:
        return float(len(plan.rows))


@pytest.mark.parametrize("trials", first_of([1, 2]))
@pytest.mark.parametrize("chip", first_of(["bm1684x", "bm1688", "bm1684"]))
def test_combined_groups_give_the_same_bits(chip: str, trials: int) -> None:
    """Random groups with as few rows as possible, then moved at random, in place and overlapped."""
    spec = chips.load(chip)
    refiner, gone = Refiner(spec, Refinements()), 0

    def change(decided: list[Decided]) -> list[Decided]:
        nonlocal gone
        found: list[Decided] = []
        for seed, item in enumerate(decided):
            if isinstance(item, GroupSchedule):
                new = combined(item, Fewest(spec), refiner.replaced, any_cost(seed))
                gone += len(item.rows) - len(new.rows)
                rows, _ = moved_rows(new, any_cost(seed), spec)
                item = in_place(refiner.replaced(new, rows) or new, chip)[0]
            found.append(item)
        return overlapped(found, Generous(spec))

    for key, trial in product(NETWORKS[:3], range(trials)):
        model, flat = cached_lowered(key[0], chip, *key[1:])
        divided, _ = randomly_grouped(model, np.random.default_rng(trial), longest=5, change=change)
        again = Model(parse_module(print_module(divided.module), context()), divided.weights)
        same_bits(again, cached_network(*key).feeds(), flat)
        assert all(v.overlaps == () for v in views(again) if isinstance(v, GroupView))
    assert gone > 5 * trials


def test_long_groups_are_not_combined() -> None:
    found, user = chain(3)
    graph = replace(found.graph, ops=found.graph.ops * 34)
    long = replace(found, graph=graph)
    assert combined(long, Fewest(X), lambda *_: pytest.fail("tried"), any_cost(1)) is long
    assert user


def test_rows_merge_beside_a_long_store() -> None:
    """Worked by hand: conv 1's store during conv 2 takes 30 to 10, so its row takes the next op in without a check.

    The filter of row 0 keeps row 0 apart, the load of x row 3; where all rows compute long nothing happens.
    """
    x = value()
    first = conv(x)
    second = conv(first.output)
    third = add(second.output, second.output)
    last = add(third.results[0], third.results[0])
    user = outside(first.output, last.results[0])
    found = plan([first, second, third, last], X, Sections())
    assert isinstance(found, GroupSchedule)
    moved = {second.filter: 20, first.output: 30}

    def cycles(item: Scheduled) -> int:
        return moved.get(item.value, 1) if isinstance(item, Transferred) else 10

    rows = recombined(found, X, lambda plan, rows: replace(plan, rows=rows), cycles).rows
    assert [row.layers for row in rows] == [(first,), (second, third), (last,)]
    assert [sorted((t.kind, t.value is x) for t in row.transfers) for row in rows] == [
        [("load", False)], [("store", False), ("store", False)], [("load", False), ("load", True)]
    ]  # fmt: skip
    idle = recombined(found, X, lambda plan, rows: replace(plan, rows=rows), lambda item: 10 * isinstance(item, TpuOp))
    assert idle.rows == found.rows
    assert recombined(found, X, lambda *_: None, cycles) is found
    assert user


def mostly_moving(cost: Callable[[object], float]) -> Callable[[Scheduled], int]:
    """These times in whole cycles, ten times as long for transfers."""
    return lambda item: int(cost(item)) * (10 if isinstance(item, Transferred) else 1)


@pytest.mark.parametrize("chip", first_of(["bm1688", "bm1684x"]))
def test_recombined_groups_give_the_same_bits(chip: str) -> None:
    """Random groups recombined by times at random, most of them those of transfers."""
    spec = chips.load(chip)
    refiner, gone = Refiner(spec, Refinements()), 0

    def change(decided: list[Decided]) -> list[Decided]:
        nonlocal gone
        found: list[Decided] = []
        for seed, item in enumerate(decided):
            if isinstance(item, GroupSchedule):
                new = recombined(item, spec, refiner.replaced, mostly_moving(any_cost(seed)))
                gone += len(item.rows) - len(new.rows)
                item = new
            found.append(item)
        return found

    for key, trial in product(NETWORKS[:3], range(2)):
        model, flat = cached_lowered(key[0], chip, *key[1:])
        divided, _ = randomly_grouped(model, np.random.default_rng(trial), change=change)
        same_bits(divided, cached_network(*key).feeds(), flat)
    assert gone > 3


# ---------------------------------------------------------------------------------------------------------- wide rows


def test_a_wide_row_computes_as_long_as_its_load_takes() -> None:
    """Worked by hand: conv 4's filter takes 60 and conv 3 takes 10; with conv 2 and 1 in its row the ops take 50."""
    found, user = chain(5)
    ns = costs(found, [40, 20, 20, 10, 40], [1, 1, 1, 1, 60])
    assert loads(found.rows) == [[1], [2], [3], [4], []]
    new = wide(found.rows, 1, 3, ns)
    assert new is not None and [len(row.layers) for row in new] == [1, 3, 1] and loads(new) == [[1, 2, 3], [4], []]
    tried = [rows for rows in spans(found.rows, 3, ns)]
    assert [len(rows) for rows in tried] == [4, 3, 4] and wide(found.rows, 0, 3, ns) is None
    model: Any = SimpleNamespace(
        group_ns=lambda plan: sum(max(sum(map(ns, r.layers)), sum(map(ns, r.transfers))) for r in plan.rows)
    )
    wider = widened(replace(found, sections=Sections(h=2)), model, lambda plan, rows: replace(plan, rows=rows), ns)
    assert loads(wider.rows) == [[1, 2, 3], [4], []]
    refused = widened(found, model, lambda *_: None, ns)
    assert refused is found and user


@pytest.mark.parametrize("chip", first_of(["bm1688", "bm1684x"]))
def test_wide_rows_give_the_same_bits(chip: str) -> None:
    """Random groups whose rows are as wide as they can be for costs that have nothing to do with the chip."""
    spec = chips.load(chip)
    refiner, gone = Refiner(spec, Refinements()), 0

    def change(decided: list[Decided]) -> list[Decided]:
        nonlocal gone
        found: list[Decided] = []
        for seed, item in enumerate(decided):
            if isinstance(item, GroupSchedule):
                new = widened(item, Fewest(spec), refiner.replaced, any_cost(seed))
                gone += len(item.rows) - len(new.rows)
                item = new
            found.append(item)
        return overlapped(found, Generous(spec))

    for key in NETWORKS[:3]:
        model, flat = cached_lowered(key[0], chip, *key[1:])
        divided, _ = randomly_grouped(model, np.random.default_rng(0), longest=5, change=change)
        same_bits(divided, cached_network(*key).feeds(), flat)
    assert gone > 3


# ------------------------------------------------------------------------------------------------------ several cores


@pytest.mark.parametrize("cores", [1, 2])
def test_moved_and_combined_groups_run_on_cores(cores: int) -> None:
    """The steps of a group shared by two cores of BM1688; overlap of neighbours is for one core and refused else."""
    spec, key = chips.load("bm1688"), NETWORKS[0]
    refiner = Refiner(spec, Refinements(), cores)
    model, flat = cached_lowered(key[0], "bm1688", *key[1:])

    def change(decided: list[Decided]) -> list[Decided]:
        found: list[Decided] = []
        for seed, item in enumerate(decided):
            if isinstance(item, GroupSchedule):
                new = combined(item, Fewest(spec), refiner.replaced, any_cost(seed))
                item = refiner.replaced(new, moved_rows(new, any_cost(seed), spec)[0]) or new
            found.append(item)
        return found

    for trial in range(2):
        divided, _ = randomly_grouped(model, np.random.default_rng(trial), change=change)
        found = in_every_order(to_program(divided, share=cores), cached_network(*key).feeds())
        assert all(np.array_equal(found[n], flat[n]) for n in flat if n in found)
    lent, _ = randomly_grouped(
        model, np.random.default_rng(1), longest=3, change=lambda decided: overlapped(decided, Generous(spec))
    )
    if cores > 1:
        with pytest.raises(ImportModelError, match="overlaps adjacent groups, which needs one core, got 2 cores"):
            to_program(lent, share=cores)
    divided = to_groups(model, "1", cores=cores)
    assert (
        all(not op.taken(way) for op in divided.ops if isinstance(op, TpuGroup) for way in ("up", "down")) or cores == 1
    )
