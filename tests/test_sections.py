"""Five axes of slicing and the types of group: sections 3 to 7 by hand, section 16 as properties (layer_group.md)."""

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from math import prod

import numpy as np
import pytest
from builders.groups import BIG, I8, OLD, X, add, conv, matmul, odd, outside, pool, softmax, value, weight
from builders.replays import accesses, clashes, overlap, plan_buffers
from builders.replays import check_placement as check_placed
from builders.sliced_networks import NETWORKS, SHAPES, deep, equal, tokens
from builders.timings import in_every_order
from compiling import to_program
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import (
    Network,
    cached_lowered,
    cached_network,
    randomly_grouped,
    reordered,
)
from rotation import first_of, one_in
from xdsl.dialects.func import ReturnOp

from tpusim import chips
from tpusim.inference import run
from tpusim.interfaces import rules
from tpusim.ir.attrs import ints_attr
from tpusim.ir.module import Model, update_function_type
from tpusim.ir.types import f16, f32, shape_of
from tpusim.layer_group.candidates import base_groups, group_types
from tpusim.layer_group.files import write_group
from tpusim.layer_group.planning import first_guess, plan
from tpusim.layer_group.slicing import (
    Geometry,
    SliceError,
    extents,
    lane_windows,
    max_sections,
    possible_sections,
    shared,
    slice_group,
)
from tpusim.layer_group.slicing.sharing import _over_d_and_h, _over_h_and_w
from tpusim.ops.framework.base import GroupType, TpuOp
from tpusim.ops.framework.families import conv_extent, padded_window
from tpusim.ops.framework.logical import AXES, fills_lanes, logical_axes
from tpusim.ops.interfaces import GroupRules
from tpusim.schedule import GroupSchedule, Sections, ValueSlices, subgraph

MID = chips.load("bm1688")
THREE = pytest.mark.parametrize("chip", first_of(["bm1684x", "bm1688", "bm1684"]))
NORMAL, GROUP_3D, SMALL_C, MM = GroupType


# --------------------------------------------------------------------------------------------------- 3: logical shapes


@pytest.mark.parametrize(
    ("shape", "kind", "expected"),
    [
        ((7,), NORMAL, (7, 1, 1, 1, 1)),
        ((2, 3, 4, 5, 6), NORMAL, (2, 3, 1, 4, 30)),
        ((2, 3, 4), MM, (2, 3, 1, 4, 1)),
        ((2, 3, 4, 5, 6), GROUP_3D, (2, 3, 4, 5, 6)),
        ((2, 3, 4, 5), GROUP_3D, (2, 3, 1, 4, 5)),
        ((7,), SMALL_C, (1, 1, 1, 7, 1)),
        ((6, 7), SMALL_C, (1, 6, 1, 7, 1)),
        ((2, 6, 7), SMALL_C, (1, 12, 1, 7, 1)),
        ((2, 3, 70, 12), SMALL_C, (6, 70, 1, 12, 1)),
        ((2, 4, 32, 12), SMALL_C, (4, 64, 1, 12, 1)),  # 256 rows in 64 lanes
        ((2, 2, 3, 5, 7), SMALL_C, (12, 5, 1, 7, 1)),
        ((2, 2, 4, 8, 7), SMALL_C, (2, 64, 1, 7, 1)),
    ],
)
def test_logical_shapes(shape: tuple[int, ...], kind: GroupType, expected: tuple[int, ...]) -> None:
    assert logical_axes(shape, kind, X) == expected
    assert prod(expected) == prod(shape)


def test_which_tensors_fill_the_lanes() -> None:
    yes = [(64, 7), (2, 32, 5), (5, 197, 3), (2, 4, 32, 12), (1, 31, 32, 9), (1, 2, 2, 3, 7)]
    no = [(63, 7), (4, 197, 3), (2, 70, 7, 12), (1, 32, 33, 9), (7,), (1, 3, 2, 3, 7)]
    assert [fills_lanes(s, 64) for s in yes] == [True] * len(yes)
    assert [fills_lanes(s, 64) for s in no] == [False] * len(no)
    assert fills_lanes((1, 32, 33, 9), 32)  # 1056 rows in 32 lanes


def test_types_of_groups() -> None:
    x = value((2, 4, 32, 12), f16)
    pair: list[TpuOp] = [add(x, x)]
    pair.append(add(pair[0].results[0], x))
    assert group_types(pair, X) == (SMALL_C, MM, NORMAL)
    assert group_types(pair, OLD) == group_types(pair[:1], X) == (NORMAL,)
    wide = value((2, 70, 7, 12), f16)
    assert group_types([add(wide, wide), softmax(wide, 3)], X) == (MM, NORMAL)
    assert group_types([add(wide, wide), softmax(wide, 2)], X) == (NORMAL,)
    assert group_types([conv(value()), odd(value())], X) == (NORMAL,)
    few = value((2, 3, 70, 12), f16)
    rows = matmul(few, value((12, 20), f16))
    assert group_types([add(few, few), rows], X) == (SMALL_C,)
    assert group_types([rows], X) == ()
    assert plan([rows], X) == "a product of rank 4 runs in SMALL_C groups only"


# ------------------------------------------------------------------------------------------------ 4: the largest counts


def test_counts_by_type_and_chip() -> None:
    x = value((2, 130, 7, 600), I8)
    one = [odd(x)]
    assert possible_sections(subgraph(one, X), X) == Sections(2, h=7, w=600)
    assert max_sections(subgraph(one, X), X) == Sections(2, h=7, w=600)  # 600 bytes, more than 512
    assert max_sections(subgraph(one, OLD), OLD) == Sections(h=7)
    assert max_sections(subgraph([odd(value((2, 130, 7, 512), I8))], X), X) == Sections(2, h=7)
    assert max_sections(subgraph([odd(value((2, 130, 7, 512), I8))], BIG), BIG) == Sections(2, h=7, w=512)
    five = value((2, 130, 3, 5, 600), I8)
    assert possible_sections(subgraph([odd(five)], X, GROUP_3D), X) == Sections(2, d=3, h=5, w=600)
    both = [odd(x), odd(x)]
    for chip, rows in ((X, 3), (MID, 5)):
        assert possible_sections(subgraph(both, chip, MM), chip).c == rows
    half = value((2, 130, 7, 12), f16)
    assert possible_sections(subgraph([softmax(half, 3)], X, MM), X) == Sections(2, 3, h=7)
    assert possible_sections(subgraph([softmax(half, 2)], X), X) == Sections(2)
    product_ = matmul(value((3, 130, 12), f16), value((3, 12, 20), f16))
    assert possible_sections(subgraph([product_], X, MM), X) == Sections(3, 3)
    assert possible_sections(subgraph([product_], X), X) == Sections(3)


# ----------------------------------------------------------------------------------------------- 5, 10.2: shared counts


def test_channels_are_cut_at_lane_0() -> None:
    assert lane_windows(130, 3, 64) == ((0, 64), (64, 64), (128, 2))
    assert lane_windows(130, 2, 64) == ((0, 128), (128, 2))
    assert lane_windows(130, 2, 32) == ((0, 96), (96, 34))


@given(st.integers(1, 2000), st.integers(1, 40), st.sampled_from((16, 32, 64)))
def test_channel_windows_cover_once(channels: int, sections: int, lanes: int) -> None:
    windows = lane_windows(channels, sections, lanes)
    assert windows[0][0] == 0 and sum(windows[-1]) == channels and len(windows) <= sections
    assert all(sum(a) == b[0] and b[0] % lanes == 0 for a, b in pairwise(windows))


def test_a_total_is_shared_by_halo_cost() -> None:
    square = Geometry(1, 100, 100, ((1000, 1),))
    limit = Sections(h=100, w=1000)
    assert _over_h_and_w(4, limit, Sections(3), square) == Sections(3, h=2, w=2)
    assert _over_h_and_w(6, limit, Sections(), square) == Sections(h=3, w=2)
    assert _over_h_and_w(4, Sections(h=100), Sections(), square) == Sections(h=4)
    flat = Geometry(1, 10, 100, ((1100, 1),))  # a cut along w repeats a tenth of what one along h does
    assert _over_h_and_w(4, limit, Sections(), flat) == Sections(h=1, w=4)
    short = Geometry(1, 10, 100, ((700, 1),))  # four slices of 700 bytes are below 256
    assert _over_h_and_w(4, limit, Sections(), short) == Sections(h=2, w=2)
    assert _over_h_and_w(4, Sections(h=4, w=700), Sections(), short) == Sections(h=1, w=4)  # h has no room to spare
    assert _over_h_and_w(5, Sections(h=2, w=2), Sections(), square) is None
    deep = Geometry(100, 100, 100, ((1000, 1),))
    assert _over_d_and_h(4, Sections(d=8, h=8), Sections(2), deep) == Sections(2, d=2, h=2)
    assert _over_d_and_h(65, Sections(d=8, h=8, w=9), Sections(), deep) == Sections(d=8, h=8, w=2)


def test_depth_is_cut_before_rows_where_it_is_not_balanced() -> None:
    graph = subgraph([odd(value((1, 4, 4, 8, 600), I8))], X, GROUP_3D)
    limit = Sections(d=4, h=8, w=600)
    assert shared(4, limit, Sections(), graph, X) == Sections(d=4)
    assert shared(6, limit, Sections(), graph, X) == Sections(d=4, h=2)
    assert shared(4, limit, Sections(), graph, MID) != Sections(d=4)


def test_first_guess() -> None:
    x = value((4, 64, 64, 2048), I8)  # 128 KiB per lane and image
    ops = [odd(x), odd(x)]
    user = outside(*(op.output for op in ops))
    limit = max_sections(subgraph(ops, X), X)
    assert limit == Sections(4, h=64, w=2048)
    assert first_guess(subgraph(ops, X), limit, X) == Sections(4)
    assert first_guess(subgraph(ops, X), Sections(2, h=64), X) == Sections(2, h=2)
    assert first_guess(subgraph(ops, X), Sections(1, h=3, w=2048), X) == Sections(h=3, w=2)
    assert first_guess(subgraph(ops, X), Sections(1, h=3), X) is None
    deep = value((1, 64, 4, 64, 2048), I8)
    layers = [odd(deep), odd(deep)]
    assert first_guess(subgraph(layers, X, GROUP_3D), Sections(d=4, h=64), X) == Sections(d=4)
    channels = value((1, 1024, 64, 128), I8)  # 16 rows of lanes of 8 KiB: 256 KiB for operand and result
    wide = subgraph([odd(channels), odd(channels)], X, MM)
    assert first_guess(wide, Sections(1, 16, h=64), X) == Sections()  # it fits whole, as large as the input is
    tall = subgraph([odd(value((1, 1024, 64, 512), I8))], X, MM)
    assert first_guess(tall, Sections(1, 16, h=64), X) == Sections(1, 4)
    assert user.arguments


# ------------------------------------------------------------------------------------------------------- 7: propagation


def test_windows_along_the_columns() -> None:
    x = value((1, 4, 16, 16))
    for make, expected in (
        (lambda: conv(x, 3, 2, 1), ((0, 6), (5, 7), (11, 5))),
        (lambda: pool(x, 2, 2), ((0, 6), (6, 6), (12, 4))),
    ):
        op = make()
        user = outside(op.results[0])
        slices = slice_group(subgraph([op], X), Sections(w=3), X)
        assert slices[x].w == expected and slices[x].h == ((0, 16),)
        assert user.arguments


def test_users_share_the_union_of_their_columns() -> None:
    x = value()
    wide, narrow = conv(x, 5), conv(x, 3)
    last = add(wide.output, narrow.output)
    user = outside(last.results[0])
    assert slice_group(subgraph([wide, narrow, last], X), Sections(w=2), X)[x].w == ((0, 6), (2, 6))
    assert user.arguments


def test_a_right_matrix_is_held_or_loaded_again() -> None:
    left = value((3, 130, 12), f16)
    one, many = value((1, 12, 20), f16), value((3, 12, 20), f16)
    for right, sections, held in (
        (one, Sections(1, 3), True),
        (one, Sections(3, 3), True),
        (many, Sections(3, 3), False),
        (many, Sections(1, 3), True),
    ):
        op = matmul(left, right)
        user = outside(op.output)
        slices = slice_group(subgraph([op], X, MM), sections, X)
        assert slices[left].c == ((0, 64), (64, 64), (128, 2)) and not slices[left].resident
        assert slices[right].resident == held
        if not held:
            assert slices[right].c == ((0, 12),) * 3 and slices[right].n == ((0, 1), (1, 1), (2, 1))
        assert user.arguments


def test_constants_are_cut_with_the_result_or_held() -> None:
    x, rows, single = value((2, 4, 10, 8)), weight((1, 1, 10, 8)), weight((1, 4, 1, 1))
    first = add(x, rows)
    second = add(first.results[0], single)
    third = conv(second.results[0])
    user = outside(third.output)
    slices = slice_group(subgraph([first, second, third], X), Sections(2, h=2), X)
    assert slices[rows].h == ((0, 6), (4, 6)) and slices[rows].n == ((0, 1), (0, 1))
    assert slices[single].resident and slices[third.filter].resident
    assert user.arguments


def test_a_constant_held_whole_is_not_read_by_batches_of_several_depths() -> None:
    """Two users that cut it differently hold it; in a lane its batches then lie apart by depth."""
    x, constant = value((2, 4, 4, 8, 8)), weight((2, 4, 4, 8, 8))
    first = add(x, constant)
    second = add(odd(first.results[0], lambda w: (w[0], w[1] + 1)).results[0], constant)
    middle = second.operands[0].owner
    user = outside(second.results[0])
    graph = subgraph([first, middle, second], X, GROUP_3D)  # type: ignore[list-item]
    assert slice_group(graph, Sections(d=2), X)[constant].resident
    with pytest.raises(SliceError, match="2 batches and 4 depths is held whole"):
        slice_group(graph, Sections(2, d=2), X)
    assert user.arguments


# ------------------------------------------------------------------------------------------- refusals say what is wrong


def why_not(ops: Sequence[TpuOp], sections: Sections, kind: GroupType = NORMAL, chip: chips.ChipSpec = X) -> str:
    user = outside(*(op.results[0] for op in ops))
    found = plan(ops, chip, sections, kind)
    assert user.arguments
    assert isinstance(found, str)
    return found


def test_refusals_name_the_rule_and_the_numbers() -> None:
    half = value((2, 130, 7, 12), f16)
    assert why_not([softmax(half, 3)], Sections(w=2), MM) == (
        "at most nsecs=2, csecs=3, hsecs=7 are possible, got nsecs=1, hsecs=1, wsecs=2"
    )
    x = value()
    assert why_not([odd(x)], Sections(h=11)) == (
        "at most nsecs=1, hsecs=10, wsecs=8 are possible, got nsecs=1, hsecs=11"
    )
    assert why_not([odd(x)], Sections(c=2)) == (
        "at most nsecs=1, hsecs=10, wsecs=8 are possible, got nsecs=1, csecs=2, hsecs=1"
    )
    assert "users need different windows along w and test.odd cannot read a part of a slice: " in why_not(
        [odd(x), conv(x, 3)], Sections(w=2)
    )
    still = odd(value((1, 4, 3, 5, 6)), lambda _: (0, 3))
    assert why_not([still], Sections(d=3), GROUP_3D) == (
        "test.odd: a window along d makes no progress: [0, 3) after [0, 3) of 3; "
        "bm1684x refuses it (layer_group.md 7.1)"
    )
    assert "makes no progress" in why_not([odd(x, lambda _: (0, 8))], Sections(w=2), chip=BIG)


def test_a_halo_larger_than_allowed_is_refused_with_its_size() -> None:
    ops: list[TpuOp] = [pool(value((1, 64, 16, 64)), 5, 1, 2)]
    for _ in range(2):
        ops.append(pool(ops[-1].results[0], 5, 1, 2))
    user = outside(ops[-1].results[0])
    from msgspec.structs import replace

    why = plan(ops, replace(X, lmem_bytes=9000))
    assert isinstance(why, str) and "along h for 16, at most 1.5 times" in why
    assert user.arguments


# ------------------------------------------------------------------------------------ 16: whole groups on the machine


def assert_equal_to_flat(divided: Model, feeds: dict[str, np.ndarray], flat: dict[str, np.ndarray]) -> None:
    equal(in_every_order(to_program(divided), feeds), flat)


def test_a_result_that_nothing_uses_is_an_output() -> None:
    """It is computed and stored like any other, in slices too."""
    net = Network(np.random.default_rng(0))
    x = net.conv(net.input((2, 10, 12, 10)), 10)
    model = reordered(net.top(net.relu(x), net.function(x, "Tanh")), "bm1684x")
    (last,) = (op for op in model.ops if isinstance(op, ReturnOp))
    last.operands = last.operands[:1]
    update_function_type(model)
    feeds = net.feeds()
    flat = run(model, feeds)
    for sections in (Sections(), Sections(2, h=3), Sections(w=2)):
        work = model.clone()
        ((ops, _),) = base_groups(work, X)
        unused = [op.results[0] for op in ops if op.results[0].first_use is None]
        found = plan(ops, X, sections)
        assert isinstance(found, GroupSchedule) and len(unused) == 1 and unused[0] in found.graph.outputs
        write_group(found)
        work.set(state="TPU_DIVIDED")
        assert_equal_to_flat(work, feeds, flat)


@pytest.mark.parametrize(("shape", "chip"), one_in(3, product(SHAPES, ("bm1684x", "bm1688"))))
def test_matrix_networks_give_the_bits_of_the_whole(shape: tuple[int, ...], chip: str) -> None:
    """Tests e and f for SMALL_C and MM groups."""
    spec, kind = chips.load(chip), SMALL_C if len(shape) > 3 else MM
    for seed in range(3):
        model, feeds, flat = tokens(seed, shape, chip)
        for trial in range(2):
            divided, _ = randomly_grouped(model, np.random.default_rng(trial))
            assert_equal_to_flat(divided, feeds, flat)
        work = model.clone()
        ((ops, _),) = base_groups(work, spec)
        assert group_types(ops, spec)[0] == kind
        limit = possible_sections(subgraph(ops, spec, kind), spec)
        assert limit.c == -(-logical_axes(shape, kind, spec)[1] // spec.lanes)
        found = plan(ops, spec, Sections(limit.n, limit.c), kind)
        assert isinstance(found, GroupSchedule)
        write_group(found)
        work.set(state="TPU_DIVIDED")
        assert_equal_to_flat(work, feeds, flat)


@pytest.mark.parametrize(("key", "chip"), one_in(4, product(NETWORKS[:3], ("bm1684x", "bm1688", "bm1684"))))
def test_image_networks_give_the_bits_of_the_whole(key: tuple[int, int, int], chip: str) -> None:
    """Tests e and f over all axes and types that chains, branches, residual sums and concatenations have."""
    model, flat = cached_lowered(key[0], chip, *key[1:])
    for trial in range(10, 13):
        divided, _ = randomly_grouped(model, np.random.default_rng(trial))
        assert_equal_to_flat(divided, cached_network(*key).feeds(), flat)


@THREE
def test_depth_is_cut_in_3d_groups(chip: str) -> None:
    """GROUP_3D: d outside n in a lane, one transfer per depth or per image."""
    model, feeds, flat = deep(chip)
    spec = chips.load(chip)
    kind = GROUP_3D if rules(spec, GroupRules).GROUP_TYPES else NORMAL
    tried = 0
    for sections in (Sections(), Sections(d=5), Sections(2, d=2, h=3), Sections(2, d=3, w=4), Sections(h=2, w=2)):
        work = model.clone()
        ops = next(ops for ops, why in base_groups(work, spec) if why is None)
        found = plan(ops, spec, sections, kind)
        if isinstance(found, str):
            assert not rules(spec, GroupRules).GROUP_TYPES and "at most" in found
            continue
        tried += 1
        write_group(found)
        work.set(state="TPU_DIVIDED")
        assert_equal_to_flat(work, feeds, flat)
    assert tried == (5 if rules(spec, GroupRules).GROUP_TYPES else 1)


def plans_of(chip: str) -> Iterator[GroupSchedule]:
    """Random plans of every network, not written: the values are those of the modules."""
    rng, spec = np.random.default_rng(4), chips.load(chip)
    models = [cached_lowered(key[0], chip, *key[1:])[0] for key in NETWORKS[:3]]
    if rules(spec, GroupRules).GROUP_TYPES:
        models += [tokens(0, shape, chip)[0] for shape in SHAPES] + [deep(chip)[0]]
    for model, _ in product(models, range(4)):
        for ops, why in base_groups(model, spec):
            for start in range(0, len(ops) if why is None else 0, 2):
                part = ops[start : start + int(rng.integers(1, 6))]
                for kind in {*group_types(part, spec), *([GROUP_3D] if rules(spec, GroupRules).GROUP_TYPES else [])}:
                    if all(op.why_not_in(kind, spec) is None for op in part):
                        limit = possible_sections(subgraph(part, spec, kind), spec)
                        counts = {axis: int(rng.integers(1, min(limit.count(axis), 3) + 1)) for axis in AXES}
                        found = plan(part, spec, Sections(**counts), kind)
                        if isinstance(found, GroupSchedule):
                            yield found


@THREE
def test_buffers_and_engines_keep_apart(chip: str) -> None:
    """Tests a, b, d: live buffers share no byte in any row, nor do those that TIU and GDMA use; held ones are alone."""
    count, axes, held = 0, set[str](), 0
    for found in plans_of(chip):
        placed = plan_buffers(found, chip)
        check_placed(found.allocation, placed, len(found.rows), chips.load(chip))
        held += sum(b.held for b in placed)
        spans = {o: (a, a + found.allocation.size[o]) for o, a in found.allocation.address.items()}
        for row in found.rows:
            assert not clashes({a for item in (*row.layers, *row.transfers) for a in accesses(item)})
            moved = {t.value for t in row.transfers}
            computed = {o for op in row.layers for o in (op, *op.operands, *op.results) if o in spans}
            assert not any(overlap(spans[a], spans[b]) for a, b in product(moved, computed) if a is not b)
        count += 1
        axes |= {axis for axis in AXES if found.sections.count(axis) > 1}
    assert count > 40 and held
    assert axes == ({"n", "c", "d", "h", "w"} if chip != "bm1684" else {"n", "h"} & axes)


@THREE
def test_slices_are_consistent(chip: str) -> None:
    """Test c: outputs are covered without gaps; a tensor has a window per section, or is resident and held."""
    for found in plans_of(chip):
        for v, slices in found.slices.items():
            lengths = extents(v, found.graph, chips.load(chip))
            counts = tuple(len(slices.along(axis)) for axis in AXES)
            assert slices.resident or counts == tuple(found.sections.count(axis) for axis in AXES)
            assert slices.resident <= (v in found.graph.weights or found.sections.steps == 1 or v in found.graph.inputs)
            for axis, length in zip(AXES, lengths, strict=True):
                windows = slices.along(axis)
                assert all(start >= 0 and size > 0 and start + size <= length for start, size in windows)
                assert axis != "c" or all(start % chips.load(chip).lanes == 0 for start, _ in windows)
                if v in found.graph.outputs:
                    assert windows[0][0] == 0 and sum(windows[-1]) == length
                    assert all(b[0] <= sum(a) for a, b in pairwise(windows))


@given(st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_every_cut_is_made_or_refused_by_name(seed: int) -> None:
    """Chains of convolutions, pools and sums: slices come out right-sized, or an error that names axis and numbers."""
    rng = np.random.default_rng(seed)
    x = value((int(rng.integers(1, 4)), 4, int(rng.integers(6, 20)), int(rng.integers(6, 20))))
    ops: list[TpuOp] = []
    for _ in range(int(rng.integers(1, 5))):
        last = ops[-1].results[0] if ops else x
        kind = rng.integers(3)
        small = min(shape_of(last)[2:]) < 5
        ops.append(add(last, last) if kind == 0 or small else conv(last, 3, int(rng.integers(1, 3))) if kind == 1
                   else pool(last, 3, 2, 1))  # fmt: skip
    user = outside(ops[-1].results[0])
    limit = possible_sections(subgraph(ops, X), X)
    sections = Sections(**{axis: int(rng.integers(1, min(limit.count(axis), 4) + 1)) for axis in AXES})
    try:
        slices = slice_group(subgraph(ops, X), sections, X)
    except SliceError as error:
        assert any(f"along {axis}" in str(error) for axis in AXES) and any(c.isdigit() for c in str(error))
        return
    for op, axis in product(ops, ("h", "w")):
        length = extents(op.operands[0], subgraph(ops, X), X)[AXES.index(axis)]
        for out, have in zip(slices[op.results[0]].along(axis), slices[op.operands[0]].along(axis), strict=True):
            need = op.backward_slice(axis, out, 0)
            assert need is not None
            assert have[0] <= max(need[0], 0) and min(sum(need), length) <= sum(have)
    assert user.arguments


def test_whole_slices_are_resident() -> None:
    assert ValueSlices.of((2, 3, 4, 5, 6)).resident
    assert ValueSlices.of((2, 3, 4, 5, 6)).largest == (8, 3, 5, 6)
    assert shape_of(value(element=f32)) == (1, 4, 10, 8) and ints_attr((1,)) == ints_attr([1])


def test_windows_over_padding_alone_read_an_element_and_make_no_output_more() -> None:
    """Of every small convolution: the whole axis by one command, which sees the padding where the op has it."""
    alone = 0
    for size, reach, stride, before, after in product(range(1, 5), range(1, 5), range(1, 4), range(5), range(3)):
        if size + before + after < reach:
            continue
        count = conv_extent(size, reach, stride, before, after)
        (start, length), (top, bottom) = padded_window((0, count), size, reach, stride, before)
        assert length > 0 and start >= 0 and start + length <= size and min(top, bottom) >= 0
        assert start - top == -before
        assert conv_extent(length, reach, stride, top, bottom) == count
        seen = {o * stride - before + k for o in range(count) for k in range(reach)} & {*range(size)}
        assert seen <= {*range(start, start + length)}
        alone += not seen
    assert alone > 20
