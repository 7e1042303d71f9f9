"""Layer groups: slices, pipeline, lifetimes, placement, and whole groups on the machine (docs/spec/layer_group.md)."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise, product
from math import ceil

import msgspec
import numpy as np
import pytest
from builders.groups import I8, OLD, Rule, X, add, conv, network_input, odd, outside, pool, value
from builders.replays import (
    Dag,
    accesses,
    check_placement,
    clashes,
    events,
    overlap,
    plan_buffers,
    random_dag,
    replay,
)
from builders.sliced_networks import NETWORKS, equal
from builders.timings import in_every_order
from compiling import to_groups, to_program
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import (
    CHIPS,
    Network,
    cached_lowered,
    cached_network,
    cached_top,
    random_network,
    randomly_grouped,
    reordered,
)
from rotation import one_in
from xdsl.ir import Operation, SSAValue

from tpusim import chips
from tpusim.errors import ImportModelError
from tpusim.inference import run
from tpusim.ir.attrs import int_attr, ints, op_name
from tpusim.ir.module import Model
from tpusim.ir.text import parse_module, print_module, verify
from tpusim.ir.types import f32, shape_of, tensor
from tpusim.isa.commands import Move
from tpusim.isa.layout import align
from tpusim.layer_group.candidates import base_groups
from tpusim.layer_group.files import write_group
from tpusim.layer_group.local_memory import allocate, buffers
from tpusim.layer_group.planning import fold, nearest_rows, plan, schedule
from tpusim.layer_group.slicing import SliceError, even_windows, extents, max_sections, slice_group, whole_slices
from tpusim.ops import context
from tpusim.ops.cast import TpuCast
from tpusim.ops.framework.base import GroupType, TpuOp, Window
from tpusim.ops.framework.logical import AXES
from tpusim.ops.relu import TpuRelu
from tpusim.ops.structure import TpuGroup, TpuLoad, TpuStore, group_info
from tpusim.schedule import Buffer, GroupSchedule, Row, Sections, Subgraph, Transferred, subgraph
from tpusim.simulator import Simulator

ON_CHIPS = pytest.mark.parametrize("chip", CHIPS)


# ------------------------------------------------------------------------------------------------- ops without a module


def h_windows(ops: list[TpuOp], wanted: SSAValue, sections: int, chip: chips.ChipSpec = X) -> tuple[Window, ...]:
    user = outside(ops[-1].results[0])
    found = slice_group(subgraph(ops, chip), Sections(h=sections), chip)[wanted].h
    assert user.arguments
    return found


# ----------------------------------------------------------------------------------------------- 6: cuts of the outputs


def test_even_windows_by_hand() -> None:
    assert even_windows(10, 3) == ((0, 4), (4, 3), (7, 3))
    assert even_windows(8, 3) == ((0, 3), (3, 3), (6, 2))
    assert even_windows(2, 3) == ((0, 1), (1, 1))  # empty slices are dropped
    assert even_windows(10, 2, 4) == ((0, 8), (8, 2))  # BM1684: AL(ceil(n, secs), 4 / B)
    assert even_windows(8, 2, 4) == ((0, 4), (4, 4))
    assert even_windows(4, 3, 4) == ((0, 4),)


@given(st.integers(1, 300), st.integers(1, 40), st.sampled_from((1, 2, 4)))
def test_even_windows_cover_once(length: int, sections: int, step: int) -> None:
    windows = even_windows(length, sections, step)
    assert windows[0][0] == 0 and sum(windows[-1]) == length and len(windows) <= sections
    assert all(sum(a) == b[0] for a, b in pairwise(windows)) and all(size > 0 for _, size in windows)
    sizes = [size for _, size in windows]
    if step == 1:
        assert max(sizes) - min(sizes) <= 1 and sizes == sorted(sizes, reverse=True)
        assert len(windows) == min(sections, length)
    else:
        assert all(start % step == 0 for start, _ in windows)
        assert sizes[0] == min(align(ceil(length / sections), step), length)


def test_a_packed_batch_is_cut_at_whole_words_only() -> None:
    x = value((8, 4, 10, 8), I8)
    op = odd(x)
    user = outside(op.output)
    for chip, secs in ((X, 8), (OLD, 2)):
        assert max_sections(subgraph([op], chip), chip) == Sections(secs, h=10)
    assert slice_group(subgraph([op], OLD), Sections(2), OLD)[x].n == ((0, 4), (4, 4))
    assert user.arguments


def test_the_batch_of_a_packed_input_counts_too() -> None:
    """A cast to f32 makes unpacked batches, but it reads packed ones (layer_group.md 4: n starts from the input)."""
    op = UnaryCast(value((8, 4, 10, 8), I8))
    assert max_sections(subgraph([op], OLD), OLD).n == 2


def UnaryCast(x: SSAValue) -> TpuOp:  # noqa: N802  reads like a constructor
    from tpusim.ops.cast import TpuCast

    return TpuCast.create(operands=[x], result_types=[tensor(shape_of(x), f32)])


# --------------------------------------------------------------------------------------- 7.2: backward, worked examples


@pytest.mark.parametrize("chip", [X, OLD], ids=CHIPS)
@pytest.mark.parametrize(
    ("rows", "make", "expected"),
    [
        (10, lambda x: conv(x, 3, 1, 1), ((0, 5), (3, 5), (6, 4))),
        (16, lambda x: conv(x, 3, 2, 1), ((0, 6), (5, 7), (11, 5))),
        (16, lambda x: pool(x, 2, 2), ((0, 6), (6, 6), (12, 4))),
        (10, lambda x: conv(x, 1), ((0, 4), (4, 3), (7, 3))),
        (12, lambda x: conv(x, 1, 2, 0), ((0, 4), (4, 4), (8, 4))),  # max(K, stride): the row that no tap reads
        (10, lambda x: conv(x, 3, 1, dilation=2), ((0, 6), (2, 7), (5, 5))),
    ],
    ids=["conv k3 s1 p1", "conv k3 s2 p1", "pool k2 s2", "conv k1", "conv k1 s2", "dilated"],
)
def test_input_windows(
    rows: int, make: Callable[[SSAValue], TpuOp], expected: tuple[Window, ...], chip: chips.ChipSpec
) -> None:
    x = value((1, 4, rows, 16))
    assert h_windows([make(x)], x, 3, chip) == expected


def test_windows_add_up_through_a_chain() -> None:
    x = value((1, 4, 10, 8))
    first = conv(x, 3)
    assert h_windows([first, conv(first.output, 3)], x, 3) == ((0, 6), (2, 7), (5, 5))


def test_one_section_is_the_whole() -> None:
    x = value((1, 4, 10, 8))
    assert h_windows([conv(x, 3)], x, 1) == ((0, 10),)


def test_an_operand_of_length_one_is_read_whole() -> None:
    x, y = value((1, 4, 10, 8)), value((1, 4, 1, 8))
    assert h_windows([add(x, y)], y, 3) == ((0, 1),) * 3


def brute_rows(op: TpuOp, window: Window) -> set[int]:
    """Rows of the input that the rows of an output window read, tap by tap."""
    k, s, p = ints(op.attributes["kernel_shape"])[0], ints(op.attributes["strides"])[0], ints(op.attributes["pads"])[0]
    d = ints(op.attributes["dilations"])[0] if "dilations" in op.attributes else 1
    return {o * s - p + t * d for o in range(window[0], sum(window)) for t in range(k)}


@given(st.sampled_from((1, 2, 3, 5, 7)), st.sampled_from((1, 2, 3)), st.integers(0, 3), st.integers(8, 30), st.data())
@settings(max_examples=150, deadline=None)
def test_a_window_holds_every_row_the_op_reads(k: int, stride: int, pad: int, rows: int, data: st.DataObject) -> None:
    pad = min(pad, k - 1)
    x = value((1, 2, rows, 16))
    op = data.draw(st.sampled_from([lambda: conv(x, k, stride, pad), lambda: pool(x, k, stride, pad)]))()
    out = shape_of(op.results[0])[2]
    sections = data.draw(st.integers(1, out))
    try:
        found = h_windows([op], x, sections)
    except SliceError:
        assert pad  # a slice may lie in the padding alone
        return
    for window, have in zip(even_windows(out, sections), found, strict=True):
        need = {r for r in brute_rows(op, window) if 0 <= r < rows}
        assert need <= set(range(have[0], sum(have)))
    assert sum(found[-1]) == rows or sections == 1


# ------------------------------------------------------------------------------- 7.1, 7.3: refusals and shared operands


def test_users_that_differ_share_the_union() -> None:
    x = value()
    first = conv(x, 3)
    ops: list[TpuOp] = [first, add(x, first.output)]
    assert h_windows(ops, x, 3) == ((0, 5), (3, 5), (6, 4))
    wide, narrow = conv(x, 5), conv(x, 3)
    assert h_windows([wide, narrow, add(wide.output, narrow.output)], x, 2) == ((0, 7), (3, 7))


def test_casts_and_tables_pass_margins_to_users_that_read_a_part() -> None:
    """Of shufflenet in F16 a cast stands in front of a pool: TPU-MLIR 1.30.2 refuses its group of five ops and more."""
    x = value()
    cast = TpuCast.create(operands=[x], result_types=[x.type])
    reader = conv(cast.output, 1)
    assert h_windows([conv(x, 3), cast, add(reader.output, reader.output)], x, 2) == ((0, 6), (4, 6))
    refused([conv(x, 3), cast, pool(cast.output, 1, 1, 0)], Sections(h=2), X, "tpu.Cast cannot read a part")


def test_which_kernels_read_a_part_of_a_slice() -> None:
    """layer_group.md 7.3."""
    x = value()
    relu = TpuRelu.create(operands=[x], result_types=[x.type])
    refused([conv(x, 3), relu], Sections(h=2), X, "tpu.Relu cannot read a part of a slice")
    assert h_windows([conv(x, 3), add(x, x)], x, 2) == ((0, 6), (4, 6))


def test_an_input_of_the_network_has_the_same_windows_for_all() -> None:
    """TPU-MLIR puts a 3x3 and a 1x1 convolution of one operand into one group only if an op made the operand."""
    x = network_input()
    refused([conv(x, 3), conv(x, 1)], Sections(h=2), X, "different windows of an input along h")
    assert h_windows([conv(x, 3), conv(x, 3)], x, 2) == ((0, 6), (4, 6))


def test_an_output_with_users_inside_is_stored_with_their_halo() -> None:
    x = value()
    first = conv(x, 1)
    second = conv(first.output, 3)
    user = outside(first.output, second.output)
    slices = slice_group(subgraph([first, second], X), Sections(h=2), X)
    assert slices[first.output].h == ((0, 6), (4, 6)) and slices[second.output].h == ((0, 5), (5, 5))
    assert user.arguments


def shift(rows: int) -> Rule:
    return lambda window: (window[0] + rows, window[1])


def refused(ops: list[TpuOp], sections: Sections, chip: chips.ChipSpec, words: str) -> None:
    user = outside(*(op.results[0] for op in ops))
    with pytest.raises(SliceError, match=words):
        slice_group(subgraph(ops, chip), sections, chip)
    assert user.arguments


def test_only_convolutions_share_windows_on_bm1684() -> None:
    """layer_group.md 7.3; of several groups on the 1684X family only."""
    x = value()
    refused([conv(x, 3), odd(x, margins=True)], Sections(h=2), OLD, "test.odd cannot read a part of a slice")
    assert h_windows([conv(x, 3), conv(x, 5)], x, 2, OLD) == h_windows([conv(x, 3), conv(x, 5)], x, 2)
    inner = odd(x, margins=True)
    seen_outside = outside(inner.results[0])
    refused([inner, conv(inner.results[0], 3)], Sections(h=2), OLD, "the store cannot read a part of a slice")
    assert seen_outside.arguments and h_windows([inner, conv(inner.results[0], 3)], x, 2)
    grouped = [conv(x, 3, groups=2), odd(x, margins=True)]
    refused(grouped, Sections(h=2), chips.load("bm1690"), "tpu.Conv2D cannot read a part of a slice")
    assert h_windows(grouped, x, 2)


def test_what_cannot_be_cut() -> None:
    x = value()
    refused([odd(x, lambda _: None)], Sections(h=2), X, "test.odd cannot be cut along h")
    refused([odd(x, shift(20))], Sections(h=2), X, "empty window")
    refused([conv(x, 3), pool(x, 3, 1, 1), odd(x)], Sections(h=2), X, "cannot read a part of a slice")
    same = odd(x, margins=True)
    refused([same, odd(x, lambda w: (8 - w[0], 2), margins=True)], Sections(h=5), X, "disjoint")
    refused([odd(value((20, 4, 4, 4), I8))], Sections(n=4), OLD, "fewer slices")
    far: list[TpuOp] = [odd(value((4, 4, 4, 4)), margins=True)]
    far.append(odd(far[0].operands[0], lambda w: (w[0] + 1, w[1]), margins=True))
    refused(far, Sections(n=2), X, "different batches")


def test_only_the_x_family_tolerates_repeated_windows() -> None:
    x = value()

    def whole(_: Window) -> Window:
        return 0, 10

    assert h_windows([odd(x, whole)], x, 2) == ((0, 10), (0, 10))
    refused([odd(x, whole)], Sections(h=2), OLD, "makes no progress")


def test_max_sections() -> None:
    x = value((5, 4, 12, 8))
    half = pool(x, 2, 2)
    assert max_sections(subgraph([half], X), X) == Sections(5, h=6)
    assert max_sections(subgraph([conv(x, 3), half], X), X) == Sections(5, h=6)


# -------------------------------------------------------------------------------------------------------- 8: time steps


def items(row: Row) -> tuple[list[TpuOp], set[tuple[SSAValue, str, int]]]:
    return list(row.layers), {(t.value, t.kind, t.stage) for t in row.transfers}


def test_worked_example_of_two_convolutions() -> None:
    x = value()
    first = conv(x)
    second = conv(first.output)
    w1, w2, y = first.filter, second.filter, second.output
    user = outside(y)
    graph = subgraph([first, second], X)
    assert [items(r) for r in nearest_rows(graph)] == [
        ([], {(x, "load", 0), (w1, "load", 0)}),
        ([first], {(w2, "load", 1)}),
        ([second], set()),
        ([], {(y, "store", 2)}),
    ]
    assert [items(r) for r in schedule(graph)] == [
        ([first], {(w2, "load", 1), (y, "store", 2)}),
        ([second], {(x, "load", 0), (w1, "load", 0)}),
    ]
    assert user.arguments


def test_a_single_op_keeps_three_rows() -> None:
    op = odd(value())
    user = outside(op.output)
    assert [items(r) for r in schedule(subgraph([op], X))] == [
        ([], {(op.output, "store", 2)}), ([op], set()), ([], {(op.input, "load", 0)}),
    ]  # fmt: skip
    assert user.arguments


def test_an_operand_of_the_last_op_gets_a_row_of_its_own() -> None:
    x = value()
    first = odd(x)
    last = add(first.output, x)
    user = outside(last.output)
    assert items(schedule(subgraph([first, last], X))[-1]) == ([], {(x, "load", 0)})
    assert user.arguments


@pytest.mark.every
@pytest.mark.parametrize("count", [500, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("weights", [False, True], ids=["activations", "weights"])
def test_random_schedules_read_nothing_stale_and_store_once(weights: bool, count: int) -> None:
    rng = np.random.default_rng(83)
    for number in range(count):
        dag = random_dag(rng, weights=weights)
        rows = schedule(dag.graph)
        steps = (1, 2, 3, 5)[number % 4]
        stored = replay(dag.graph, rows, steps)
        assert dag.graph.outputs and stored == dict.fromkeys(product(dag.graph.outputs, range(steps)), 1)
        assert Counter(op for row in rows for op in row.layers) == dict.fromkeys(dag.graph.ops, 1)
        assert dag.users


def test_the_replay_notices_a_wrong_fold() -> None:
    """The property test above can fail: a load that joins a row whose op reads it is stale or a clash."""
    x = value()
    op = odd(x)
    user = outside(op.output)
    graph = subgraph([op], X)
    first, middle, last = nearest_rows(graph)
    middle = middle.plus(*first.transfers)
    with pytest.raises(AssertionError):
        replay(graph, [middle, last], 3)
    rows = schedule(graph)
    with pytest.raises(AssertionError, match="stale"):
        replay(graph, [Row(layers=rows[1].layers), Row(), Row(transfers=rows[0].transfers)], 3)
    assert user.arguments and len(fold(nearest_rows(graph))) == 3


# --------------------------------------------------------------------------------------------------------- 9: lifetimes


def live_rows(graph: Subgraph, rows: Sequence[Row]) -> dict[SSAValue, set[int]]:
    """Rows in which a tensor's bytes are needed, from when each step wrote them to when it used them last."""
    count, steps = len(rows), 4
    born: dict[tuple[SSAValue, int], int] = {}
    died: dict[tuple[SSAValue, int], int] = {}
    for iteration, index, step, item in events(rows, steps):
        now = iteration * count + index
        if isinstance(item, Transferred):
            (born if item.kind == "load" else died)[item.value, step] = now
        else:
            died.update({(v, step): now for v in item.operands})
            born[item.results[0], step] = now
    rows_of: dict[SSAValue, set[int]] = {}
    for (v, step), start in born.items():
        life = range(start, max(died.get((v, step), start), start) + 1)
        assert len(life) <= count
        rows_of.setdefault(v, set()).update(t % count for t in life)
    return rows_of


def dag_buffers(dag: Dag, steps: int = 1) -> tuple[list[Buffer], list[Row]]:
    rows = schedule(dag.graph)
    return buffers(dag.graph, rows, whole_slices(dag.graph, X), X, steps=steps), rows


def test_lifetimes_are_those_of_the_replay() -> None:
    rng = np.random.default_rng(91)
    wrapped = 0
    for _ in range(400):
        dag = random_dag(rng)
        found, rows = dag_buffers(dag)
        assert {b.owner: set(b.rows(len(rows))) for b in found} == live_rows(dag.graph, rows)
        wrapped += any(b.start > b.end for b in found)
    assert wrapped > 100


def test_constants_are_held_while_several_steps_run() -> None:
    first = conv(value())
    user = outside(first.output)
    graph = subgraph([first], X)
    for sections in (Sections(), Sections(h=2)):
        slices = slice_group(graph, sections, X)
        found = {b.owner: b for b in buffers(graph, schedule(graph), slices, X, steps=sections.steps)}
        assert found[first.filter].held == (sections.steps > 1) and not found[first.input].held
    assert found[first.filter].rows(3) == {0, 1, 2}
    assert user.arguments


def test_buffer_sizes_are_those_of_the_largest_slice() -> None:
    x = value((2, 70, 10, 8))
    op = conv(x)
    user = outside(op.output)
    graph = subgraph([op], X)
    slices = slice_group(graph, Sections(2, h=3), X)
    found = {b.owner: b.size for b in buffers(graph, schedule(graph), slices, X, steps=6)}
    assert found[x] == 1 * 2 * align(5 * 8, 16) * 4  # batch, channel rows, AL(h * w, EU), f32
    assert found[op.output] == 1 * 2 * align(4 * 8, 16) * 4
    assert found[op.filter] == 2 * 70 * 9 * 4  # compact rows
    assert user.arguments


# -------------------------------------------------------------------------------------------------------- 10: placement


@given(st.integers(0, 10**6), st.sampled_from((X, OLD)), st.sampled_from((1, 6, 40, 120)), st.booleans(), st.booleans())
@settings(max_examples=200, deadline=None)
def test_placement(seed: int, chip: chips.ChipSpec, largest: int, weights: bool, works: bool) -> None:
    """Random groups with random buffer sizes up to `largest` 64ths of a quarter of local memory."""
    rng = np.random.default_rng(seed)
    dag = random_dag(rng, weights=weights)
    found, rows = dag_buffers(dag, steps=2)
    found = [replace(b, size=int(rng.integers(1, largest * chip.lmem_bytes // 256 + 1))) for b in found]
    if works:
        found += [Buffer(op, int(rng.integers(1, 5000)), i, i) for i, row in enumerate(rows) for op in row.layers]
    placed = allocate(found, rows, chip)
    need = max(sum(b.size for b in found if row in b.rows(len(rows))) for row in range(len(rows)))
    bank = chip.lmem_bank_bytes
    if placed is None:  # only if even a placement that starts every buffer in a separate bank might not fit
        assert sum(align(b.size, bank) + bank for b in found) > chip.lmem_bytes
        return
    assert need <= chip.lmem_bytes
    check_placement(placed, found, len(rows), chip)


def test_placement_reuses_bytes() -> None:
    x = value()
    ops = [odd(x)]
    for _ in range(5):
        ops.append(odd(ops[-1].output))
    user = outside(ops[-1].output)
    graph = subgraph(ops, X)
    rows = schedule(graph)
    quarter = X.lmem_bytes // 4
    found = [replace(b, size=quarter) for b in buffers(graph, rows, whole_slices(graph, X), X, steps=1)]
    placed = allocate(found, rows, X)
    assert placed is not None and len(found) * quarter > X.lmem_bytes  # seven buffers in the room of four
    assert user.arguments


def test_operand_and_result_of_an_op_lie_in_different_banks() -> None:
    op = odd(value())
    user = outside(op.output)
    graph = subgraph([op], X)
    rows = schedule(graph)
    placed = allocate(buffers(graph, rows, whole_slices(graph, X), X, steps=1), rows, X)
    assert placed is not None
    assert sorted(placed.address.values()) == [0, X.lmem_bank_bytes]
    assert user.arguments


@pytest.mark.parametrize("spreads", [False, True])
def test_what_is_spread_shares_no_byte_with_results(monkeypatch: pytest.MonkeyPatch, spreads: bool) -> None:  # noqa: FBT001
    """The work area of an op that spreads its operand over lanes, and results of more than one row, whatever rows."""
    x = value()
    ops = [odd(x)]
    for _ in range(5):
        ops.append(odd(ops[-1].output))
    user = outside(ops[-1].output)
    monkeypatch.setattr(type(ops[0]), "copies_over_lanes", lambda op: spreads and op is ops[0])
    graph = subgraph(ops, X)
    rows = schedule(graph)
    large, results = 3 * X.lmem_bytes // 8, {op.output for op in ops[3:]}
    found = [
        replace(b, size=large if b.owner in results else 64)
        for b in buffers(graph, rows, whole_slices(graph, X), X, steps=1)
    ]
    found.append(Buffer(ops[0], X.lmem_bytes // 2, 0, 0))
    assert (allocate(found, rows, X) is None) == spreads  # two of the last results, and the area: more than the memory
    assert user.arguments


def test_placement_fails_for_what_cannot_fit() -> None:
    op = odd(value())
    user = outside(op.output)
    graph = subgraph([op], X)
    rows = schedule(graph)
    found = buffers(graph, rows, whole_slices(graph, X), X, steps=1)
    for size, fits in ((X.lmem_bytes // 2, True), (X.lmem_bytes // 2 + 1, False), (X.lmem_bytes + 1, False)):
        assert (allocate([replace(b, size=size) for b in found], rows, X) is not None) == fits
    assert user.arguments


# ------------------------------------------------------------------------------------------- 10.2, 12: sections, groups


@pytest.mark.parametrize(("chip", "lmem"), one_in(2, product(CHIPS, (2**16, 2**14, 2**13))))
def test_sections_are_found_for_a_small_local_memory(lmem: int, chip: str) -> None:
    """Quick search: what is planned fits, and runs on a machine of that size with the flat result."""
    model, flat = wide_network(chip)
    small = msgspec.structs.replace(chips.load(chip), lmem_bytes=lmem)
    work = model.clone()
    ops = [op for run_, why in base_groups(work, small) if why is None for op in run_]
    plans: list[GroupSchedule] = []
    while ops:
        tries = (plan(ops[:size], small) for size in range(len(ops), 0, -1))
        plans.append(next(p for p in tries if isinstance(p, GroupSchedule)))
        assert plans[-1].allocation.peak_bytes <= lmem
        ops = ops[len(plans[-1].graph.ops) :]
    for found in reversed(plans):
        write_group(found)
    work.set(state="TPU_DIVIDED")
    result = Simulator(to_program(work), small).run(wide().feeds(), watch=True)
    equal(result.tensors, flat)
    assert lmem > 2**13 or any(p.sections.steps > 2 for p in plans)


@cache
def wide() -> Network:
    """A network whose tensors take some thousand bytes per lane."""
    net = Network(np.random.default_rng(1))
    x = net.input((1, 10, 48, 40))
    y = net.relu(net.conv(x, 64, 3))
    z = net.conv(y, 70, 3)
    z = net.add(z, net.conv(y, 70, 1))
    net.pool(z, "MaxPool", 2, 2)
    return net


@cache
def wide_network(chip: str) -> tuple[Model, dict[str, np.ndarray]]:
    model = reordered(wide().top(), chip)
    return model, run(model, wide().feeds())


def test_a_group_that_cannot_work_says_why() -> None:
    tiny = msgspec.structs.replace(X, lmem_bytes=512)
    op = conv(value((1, 70, 10, 8)))
    user = outside(op.output)
    why = plan([op], tiny)
    assert why == "resident coefficients need 5,040 bytes per lane, bm1684x has 512"
    alone = odd(value())
    user = outside(op.output, alone.output)
    why = plan([alone], msgspec.structs.replace(X, lmem_bytes=100))
    assert why == "local memory needs 128 bytes per lane at nsecs=1, hsecs=10, bm1684x has 100"
    assert plan([op], X, Sections(1, h=99)) == "at most nsecs=1, hsecs=10, wsecs=8 are possible, got nsecs=1, hsecs=99"
    first = conv(value((1, 70, 10, 8)))
    pair = plan([first, conv(first.output)], tiny)
    assert isinstance(pair, str) and "cannot be cut" in pair
    assert user.arguments


def test_a_group_may_not_repeat_more_than_half_of_its_rows() -> None:
    """Three 5x5 pools in 9,000 bytes need slices so small that halos dominate; asked for, they are made (7.4)."""
    ops: list[TpuOp] = [pool(value((1, 64, 16, 64)), 5, 1, 2)]
    for _ in range(2):
        ops.append(pool(ops[-1].results[0], 5, 1, 2))
    user = outside(ops[-1].results[0])
    small = msgspec.structs.replace(X, lmem_bytes=9000)
    why = plan(ops, small)
    assert isinstance(why, str) and "repeat more than half of a tensor's rows" in why
    forced = plan(ops, small, Sections(1, h=8))
    assert isinstance(forced, GroupSchedule) and forced.slices[forced.graph.inputs[0]].h[1] == (0, 10)
    assert user.arguments


@ON_CHIPS
def test_groups_hold_every_op_once_and_in_order(chip: str) -> None:
    for key in NETWORKS:
        model, _ = cached_lowered(key[0], chip, *key[1:])
        names = [op_name(op) for op in model.ops if isinstance(op, TpuOp)]
        for opt in ("1", "2", "off"):
            divided = to_groups(model, opt)
            assert [op_name(op) for op in tpu_ops(divided)] == names
            assert divided.state == "TPU_DIVIDED" and model.state == "TPU_REORDERED"
            assert any(isinstance(op, TpuGroup) for op in divided.ops)
            for op in divided.ops:
                assert not isinstance(op, TpuOp) or "tpusim.global_reason" in op.attributes
            if opt == "off":
                assert all(len(tpu_ops_of(g)) == 1 for g in divided.ops if isinstance(g, TpuGroup))


def tpu_ops_of(group: TpuGroup) -> list[TpuOp]:
    return [op for op in group.body.block.ops if isinstance(op, TpuOp)]


def tpu_ops(model: Model) -> list[TpuOp]:
    found: list[TpuOp] = []
    for op in model.ops:
        found += tpu_ops_of(op) if isinstance(op, TpuGroup) else [op] if isinstance(op, TpuOp) else []
    return found


def test_the_stage_wants_its_own_state() -> None:
    with pytest.raises(ImportModelError, match="TPU_REORDERED"):
        to_groups(cached_top(0))


# ------------------------------------------------------------------------------------------------- 14: the written form


@ON_CHIPS
def test_attributes_of_a_group(chip: str) -> None:
    model, _ = cached_lowered(2, chip)
    divided, plans = randomly_grouped(model, np.random.default_rng(3))
    groups = [op for op in divided.ops if isinstance(op, TpuGroup)]
    assert len(groups) == len(plans)
    for group, found in zip(groups, plans, strict=True):
        assert group.sections() == {axis: found.sections.count(axis) for axis in AXES}
        assert group.attributes["swpipl_stage_num"] == int_attr(3) and group.attributes["group_type"] == int_attr(
            found.graph.kind
        )
        check_flow(group, found)


def check_flow(group: TpuGroup, found: GroupSchedule) -> None:
    """Layer_group.md 14: -1, ids of row 0, -2 ...; layers first; ids by stage, then row, transfers before layers."""
    assert group.flow is not None
    inside = [op for op in group.body.block.ops if isinstance(op, TpuOp | TpuLoad | TpuStore)]
    infos = {}
    for op in inside:
        info = group_info(op)
        assert info is not None
        infos[info.id] = (op, info.stage)
    assert sorted(infos) == list(range(len(inside)))
    rows: list[list[int]] = []
    for code in ints(group.flow):
        if code < 0:
            assert code == -len(rows) - 1
            rows.append([])
        else:
            rows[-1].append(code)
    assert len(rows) == len(found.rows)
    order: list[tuple[int, int, bool]] = []
    for identity in sorted(infos):
        op, stage = infos[identity]
        order.append((stage, next(i for i, row in enumerate(rows) if identity in row), isinstance(op, TpuOp)))
    assert order == sorted(order)
    for row in rows:
        kinds = [isinstance(infos[i][0], TpuOp) for i in row]
        assert kinds == sorted(kinds, reverse=True)


@ON_CHIPS
@pytest.mark.parametrize("key", NETWORKS[:3], ids=str)
def test_grouped_modules_are_text_and_compute_the_same(key: tuple[int, int, int], chip: str) -> None:
    model, flat = cached_lowered(key[0], chip, *key[1:])
    divided, _ = randomly_grouped(model, np.random.default_rng(5))
    verify(divided.module, "grouped")
    once = print_module(divided.module)
    again = Model(parse_module(once, context()), divided.weights)
    assert print_module(again.module) == once
    feeds = cached_network(*key).feeds()
    equal(run(again, feeds), flat)
    assert {n: a.tobytes() for n, a in run(divided, feeds).items()} == {n: a.tobytes() for n, a in flat.items()}


# ------------------------------------------------------------------------------ 16: whole groups on the machine, a to f


@pytest.mark.parametrize(("key", "chip"), one_in(3, product(NETWORKS, CHIPS)))
def test_random_sections_give_the_bits_of_the_whole(key: tuple[int, int, int], chip: str) -> None:
    """Validity tests e and f, under both DMA timings."""
    model, flat = cached_lowered(key[0], chip, *key[1:])
    feeds = cached_network(*key).feeds()
    cut = 0
    for trial in range(4):
        divided, plans = randomly_grouped(model, np.random.default_rng(trial))
        cut += sum(p.sections.steps > 1 and len(p.graph.ops) > 1 for p in plans)
        equal(in_every_order(to_program(divided), feeds), flat)
    assert cut or chip == "bm1684"  # it refuses windows that make no progress (7.1)


@ON_CHIPS
def test_a_packed_batch_in_sections(chip: str) -> None:
    """Batch 8: two words of four items on BM1684, up to eight sections elsewhere."""
    net = Network(np.random.default_rng(8))
    x = net.input((8, 3, 12, 10))
    y = net.relu(net.conv(x, 10, 3))
    net.add(net.conv(y, 10, 3), y)
    model = reordered(net.top(), chip)
    flat = run(model, net.feeds())
    work = model.clone()
    ops = next(ops for ops, why in base_groups(work, chips.load(chip)) if why is None)
    for sections in (Sections(2, h=1), Sections(2, h=3)):
        work = model.clone()
        ops = next(ops for ops, why in base_groups(work, chips.load(chip)) if why is None)
        found = plan(ops, chips.load(chip), sections)
        if isinstance(found, str):
            assert chip == "bm1684" and sections.h > 1 and "tpu.Add cannot read a part of a slice" in found
            continue
        write_group(found)
        work.set(state="TPU_DIVIDED")
        equal(Simulator(to_program(work)).run(net.feeds(), watch=True).tensors, flat)


@ON_CHIPS
def test_two_inputs_and_outputs_that_are_used_inside(chip: str) -> None:
    net = Network(np.random.default_rng(12))
    x, z = net.input((1, 3, 12, 10)), net.input((1, 10, 12, 10))
    first = net.conv(x, 10, 3)
    total = net.add(first, z)
    last = net.pool(net.conv(total, 10, 5), "MaxPool", 2, 2)
    model = reordered(net.top(first, total, last), chip)
    flat = run(model, net.feeds())
    for trial in range(4):
        divided, _ = randomly_grouped(model, np.random.default_rng(trial))
        program = to_program(divided)
        assert len(program.inputs) == 2 and len(program.outputs) == 3
        found = in_every_order(program, net.feeds())
        assert set(flat) - set(found) <= {x.name, z.name}
        assert all(np.array_equal(found[n], flat[n]) for n in flat if n in found)


@ON_CHIPS
@pytest.mark.parametrize("key", NETWORKS[:4], ids=str)
def test_every_strategy_gives_the_same_bits(key: tuple[int, int, int], chip: str) -> None:
    model, flat = cached_lowered(key[0], chip, *key[1:])
    feeds = cached_network(*key).feeds()
    results = []
    for opt in ("1", "2", "off"):
        program = to_program(model, opt)
        results.append(Simulator(program).run(feeds, watch=True).tensors)
        equal(results[-1], flat)
    names = set(results[0]) & set(results[1])
    assert len(names) >= len(flat) - 1
    assert all(results[0][n].tobytes() == results[1][n].tobytes() for n in names)


@ON_CHIPS
def test_real_groups_place_live_buffers_apart(chip: str) -> None:
    """Validity tests a and d; plans are remade because writing a group moves its values."""
    for found in fresh_plans(chip):
        placed = plan_buffers(found, chip)
        assert {b.owner for b in placed} == set(found.allocation.address)
        check_placement(found.allocation, placed, len(found.rows), chips.load(chip))


def fresh_plans(chip: str) -> Iterator[GroupSchedule]:
    """Plans of every network for a few sections, not written."""
    spec = chips.load(chip)
    for key in NETWORKS:
        model, _ = cached_lowered(key[0], chip, *key[1:])
        for ops, why in base_groups(model, spec):
            for start in range(0, len(ops) if why is None else 0, 2):
                for size, sections in product((1, 3, len(ops)), (Sections(1, h=1), Sections(1, h=2), Sections(1, h=3))):
                    found = plan(ops[start : start + size], spec, sections)
                    if isinstance(found, GroupSchedule):
                        yield found


@ON_CHIPS
def test_in_a_row_no_engine_touches_the_bytes_of_the_other(chip: str) -> None:
    """Validity test b: both may read one tensor, nothing else is shared."""
    for found in fresh_plans(chip):
        spans = {o: (a, a + found.allocation.size[o]) for o, a in found.allocation.address.items()}
        for row in found.rows:
            assert not clashes({a for item in (*row.layers, *row.transfers) for a in accesses(item)})
            moved = {t.value for t in row.transfers}
            computed = {o for op in row.layers for o in (op, *op.operands, *op.results) if o in spans}
            assert not any(overlap(spans[a], spans[b]) for a, b in product(moved, computed) if a is not b)


def covered(windows: tuple[Window, ...], length: int) -> bool:
    return windows[0][0] == 0 and sum(windows[-1]) == length and all(b[0] <= sum(a) for a, b in pairwise(windows))


@ON_CHIPS
def test_outputs_are_covered(chip: str) -> None:
    """Validity test c: windows of every output have no gap; overlaps hold identical values (checked on the machine)."""
    count = 0
    for found in fresh_plans(chip):
        for output in found.graph.outputs:
            for axis, length in zip(AXES, extents(output, found.graph, chips.load(chip)), strict=True):
                assert covered(found.slices[output].along(axis), length)
            count += 1
    assert count > 50


@ON_CHIPS
def test_stores_write_every_element_of_every_output(chip: str) -> None:
    """Validity test c on the commands: bytes stored per tensor, counted by address."""
    model, _ = cached_lowered(3, chip, 4, 4)
    divided, plans = randomly_grouped(model, np.random.default_rng(0))
    program = to_program(divided)
    written: dict[str, set[tuple[int, ...]]] = {}
    for command in program.commands:
        if isinstance(command, Move) and command.tensor:
            view = command.output
            shape = program.tensor(command.tensor).view.shape
            unit = view.interleave * (1 if view.dtype in ("i8", "u8") else 4)
            first = (view.address - program.tensor(command.tensor).view.address) // unit
            sizes = (-(-shape[0] // view.interleave), *shape[1:])
            start = np.unravel_index(first, sizes)
            extent = (-(-view.shape[0] // view.interleave), *view.shape[1:])
            box = [range(s, s + e) for s, e in zip(start, extent, strict=True)]
            written.setdefault(command.tensor, set()).update(product(*(map(int, r) for r in box)))
    outputs = [op_name(o.owner) for p in plans for o in p.graph.outputs if isinstance(o.owner, Operation)]
    names = {t.name for t in program.tensors if t.role != "input"}
    assert set(written) == names and len(outputs) >= len(written)
    for name, seen in written.items():
        view = program.tensor(name).view
        assert len(seen) == np.prod((-(-view.shape[0] // view.interleave), *view.shape[1:]))


def test_random_networks_are_what_they_say() -> None:
    """Across seeds: every op kind, both strides, grouped and depthwise convolutions."""
    kinds: Counter[str] = Counter()
    for seed in range(30):
        net = random_network(seed)
        kinds.update(node.op_type for node in net.nodes)
        kinds.update(
            f"group{a.i > 1}" for node in net.nodes for a in node.attribute if a.name == "group" and node.op_type
        )
    assert {"Conv", "Add", "Concat", "MaxPool", "AveragePool", "Relu", "groupTrue", "groupFalse"} <= set(kinds)


def test_slices_of_the_whole() -> None:
    op = odd(value((2, 3, 4, 5, 6)))
    for kind, largest in ((GroupType.NORMAL, (2, 3, 4, 30)), (GroupType.GROUP_3D, (8, 3, 5, 6))):
        assert whole_slices(subgraph([op], X, kind), X)[op.input].largest == largest
    assert Sections(3, h=4).steps == 12
