"""Conv3D, Pool3D and normalisations in 3D groups: networks, types, work areas, commands (layer_group.md 2, 3)."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest
from bench import Bench
from builders.sliced_networks import equal
from builders.timings import in_every_order
from compiling import to_canonical, to_program, to_reordered, to_tpu, to_tpu_with_fallbacks
from networks import Network, randomly_grouped, reordered
from op_row import network, node, values
from plain_names import import_onnx
from rotation import one_in
from rows import calibrated, lowered, tpu_ops
from streams import lmem

from tpusim import chips
from tpusim.errors import CommandError
from tpusim.inference import run
from tpusim.interfaces import rules
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ir.types import shape_of, uniform_of
from tpusim.isa import commands as isa
from tpusim.isa.check import check
from tpusim.layer_group.candidates import base_groups, group_types
from tpusim.layer_group.files import write_group
from tpusim.layer_group.planning import plan
from tpusim.layer_group.slicing import possible_sections
from tpusim.ops.framework.base import GroupType, TensorSlice, TpuOp
from tpusim.ops.interfaces import GroupRules
from tpusim.running.agreement import compare_local
from tpusim.schedule import GroupSchedule, Sections, subgraph
from tpusim.simulator import Simulator

Array = np.ndarray
X = chips.load("bm1684x")
VOLUME = (2, 5, 4, 6, 5)
WIDE = (1, 70, 4, 6, 5)
"""Shapes of the op rows, and one with more channels than lanes."""


# ------------------------------------------------------------------------------------------------------ whole networks


def random_volumes(seed: int, shape: tuple[int, ...], ops: int = 6) -> Network:
    """Chains and sums of convolutions, pools, functions and constants over volumes of one shape."""
    rng = np.random.default_rng(seed)
    net = Network(rng)
    x = net.input(shape)
    for _ in range(ops):
        alike = [t for t in net.tensors[-4:] if t.shape == x.shape and t is not x]
        kind = rng.choice(["conv", "conv", "pool", "add", "mul", "constant", "function"])
        if kind == "conv":
            x = net.conv3d(x, int(rng.choice([5, 70])), int(rng.choice([1, 3])))
        elif kind == "pool":
            x = net.pool3d(x, str(rng.choice(["MaxPool", "AveragePool"])))
        elif kind in ("add", "mul") and alike:
            x = (net.add if kind == "add" else net.mul)(x, alike[int(rng.integers(len(alike)))])
        elif kind == "constant":
            x = net.add_constant(x, ((1, x.shape[1], 1, 1, 1), x.shape, (1, 1, 1, *x.shape[3:]))[int(rng.integers(3))])
        else:
            x = net.function(x, str(rng.choice(["Sigmoid", "Tanh"])))
    return net


@cache
def volumes(seed: int, shape: tuple[int, ...], chip: str) -> tuple[Model, dict[str, Array], dict[str, Array]]:
    net = random_volumes(seed, shape)
    model = reordered(net.top(), chip)
    return model, net.feeds(), run(model, net.feeds())


def assert_flat(divided: Model, feeds: dict[str, Array], flat: dict[str, Array]) -> None:
    equal(in_every_order(to_program(divided), feeds), flat)


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "chip"), one_in(4, product((VOLUME, WIDE), ("bm1684x", "bm1688"))))
def test_volumes_in_random_groups_give_the_bits_of_the_whole(shape: tuple[int, ...], chip: str) -> None:
    """Validity tests e and f of layer_group.md 16 in 3D groups, cut along every axis that may be."""
    axes, kinds = set[str](), set[GroupType]()
    for seed in range(3):
        model, feeds, flat = volumes(seed, shape, chip)
        for trial in range(3):
            divided, plans = randomly_grouped(model, np.random.default_rng(trial))
            assert_flat(divided, feeds, flat)
            axes |= {a for p in plans for a in "ndhw" if p.sections.count(a) > 1}  # type: ignore[arg-type]
            kinds |= {p.graph.kind for p in plans if len(p.graph.ops) > 2}
    assert axes == ({"n", "d", "h", "w"} if shape[0] > 1 else {"d", "h", "w"})
    assert GroupType.GROUP_3D in kinds


def float_network() -> Model:
    """Volumes with every normalisation: Conv3D -> InstanceNorm -> LayerNorm -> Pool3D, in float."""
    nodes = [
        node("Conv", "x w", "a", pads=[1] * 6),
        node("InstanceNormalization", "a s b", "i"),
        node("LayerNormalization", "i g", "l"),
        node("Relu", "l", "r"),
        node("AveragePool", "r", "p", kernel_shape=[3] * 3, pads=[1] * 6),
        node("Conv", "p w2", "y", group=2, pads=[0, 1, 1, 1, 1, 1]),
    ]
    constants = {
        "w": values((6, 5, 3, 3, 3)), "s": values((6,), low=0.5), "b": values((6,), 2), "g": values((5,), 3),
        "w2": values((4, 3, 2, 3, 3)),
    }  # fmt: skip
    return to_canonical(import_onnx(network(nodes, constants)({"x": VOLUME}), name="volumes"))


@pytest.mark.parametrize(
    ("chip", "mode"), one_in(2, [("bm1684x", "f16"), ("bm1688", "bf16"), ("bm1690", "f32"), ("bm1684", "f32")])
)
def test_floats_are_within_the_bound_of_the_flat_kernels(chip: str, mode: str) -> None:
    """16-bit sums over the depth are rounded once, out of the work area; each op on the machine's own inputs."""
    feeds = {"x": values(VOLUME)}
    model = to_tpu(float_network(), chip, mode)
    flat, spec = run(model, feeds), chips.load(chip)
    ready = to_reordered(model)
    for sections in (
        Sections(),
        Sections(2, d=2) if rules(spec, GroupRules).CUTS_DEPTH_AND_WIDTH else Sections(2, h=2),
    ):
        work = ready.clone()
        for ops, why in reversed(list(base_groups(work, spec))):
            if why is None:
                for kept in reversed(_split(ops, spec, sections)):
                    write_group(kept)
        work.set(state="TPU_DIVIDED")
        local = [op for op in work.body.walk() if isinstance(op, TpuOp) and op.parent_op() is not work.module]
        names = {op.name for op in local}
        norm = "tpu.GroupNorm" if chip == "bm1684" else "tpu.InstanceNorm"
        assert {"tpu.Conv3D", "tpu.Pool3D", norm, "tpu.LayerNorm"} <= names
        found = Simulator(to_program(work)).run(feeds, watch=True).tensors
        report = compare_local(model, feeds, found, flat)
        assert report.passed, [t for t in report.tensors if not t.passed]
        assert report.compared >= 6


def _split(ops: list[TpuOp], spec: chips.ChipSpec, sections: Sections) -> list[GroupSchedule]:
    """The ops as one group at these sections if that can be, else each alone with as many as it allows."""
    whole = plan(ops, spec, sections)
    if isinstance(whole, GroupSchedule):
        return [whole]
    found: list[GroupSchedule] = []
    for op in ops:
        limit = possible_sections(subgraph([op], spec, group_types([op], spec)[0]), spec)
        counts = {a: min(sections.count(a), limit.count(a)) for a in "ncdhw"}  # type: ignore[arg-type]
        one = plan([op], spec, Sections(**counts))
        found += [one] if isinstance(one, GroupSchedule) else []
    return found


# --------------------------------------------------------------------------------------------------- zero points, edges


def with_zero_points() -> Network:
    """MaxPool, Conv3D, AveragePool over ranges of which a quarter is below zero."""
    net = Network(np.random.default_rng(2), below=1 / 3)
    net.pool3d(net.conv3d(net.pool3d(net.input(VOLUME)), 70), "AveragePool", count_include_pad=1)
    return net


def test_padding_along_the_depth_is_the_zero_point() -> None:
    """Asymmetric, d cut and whole: what lies outside the volume counts as its zero point, on the machine too."""
    net = with_zero_points()
    model, fallbacks = to_tpu_with_fallbacks(net.top(), "bm1684x", "int8", asymmetric=True)
    zeros = [u.zero_point.value.data for op in tpu_ops(model) if (u := uniform_of(op.operands[0])) is not None]
    assert not fallbacks and zeros == [-64] * 4
    below = {name: -np.abs(x) / 3 for name, x in net.feeds().items()}  # a maximum of these is that of the padding
    cases, depths = [(feeds, run(model, feeds)) for feeds in (net.feeds(), below)], list[int]()
    for sections in (Sections(), Sections(2, d=2, h=2), Sections(w=2)):
        work = to_reordered(model)
        ((ops, _),) = base_groups(work, X)
        plans = _split(ops, X, sections)
        depths += [p.sections.d for p in plans]
        for found in reversed(plans):
            write_group(found)
        work.set(state="TPU_DIVIDED")
        for feeds, flat in cases:
            assert_flat(work, feeds, flat)
    assert depths.count(2) >= 3


def test_outputs_that_see_only_padding_are_the_bias() -> None:
    """Pads as deep as the kernel: the first and last depth multiply padding alone."""
    build = network(
        [node("Conv", "x w b", "y", pads=[2, 0, 0, 2, 0, 0])], {"w": values((7, 5, 2, 2, 2)), "b": values((7,))}
    )
    top = to_canonical(import_onnx(build({"x": VOLUME}), name="deep"))
    model = to_tpu(top, "bm1684x", "f32")
    feeds = {"x": values(VOLUME)}
    flat = run(model, feeds)
    np.testing.assert_array_equal(flat["y"][:, :, 0], np.broadcast_to(values((7,))[:, None, None], (2, 7, 5, 4)))
    work = to_reordered(model)
    ((ops, _),) = base_groups(work, X)
    assert "empty window along d" in str(plan(ops, X, Sections(d=7)))
    found = plan(ops, X, Sections(h=3))
    assert isinstance(found, GroupSchedule)
    write_group(found)
    work.set(state="TPU_DIVIDED")
    machine = Simulator(to_program(work)).run(feeds).tensors["y"]
    np.testing.assert_allclose(machine, flat["y"], rtol=0, atol=1e-5)


# -------------------------------------------------------------------------------------------- legality, base groups


def one(case_id: str, mode: str = "int8", chip: str = "bm1684x") -> TpuOp:
    model = to_reordered(lowered(case_id, chip, mode)[0])
    names = ("tpu.Conv3D", "tpu.Pool3D", "tpu.GroupNorm", "tpu.InstanceNorm")
    return next(op for op in tpu_ops(model) if op.name in names)


def test_chips_that_have_local_volumes() -> None:
    """layer_group.md 2: 1684X and 1690 families; BM1684 float only; not CV18xx. GroupNorm not in the 1690 family."""
    for case_id in ("conv3d", "maxpool3d"):
        for chip in ("bm1684x", "bm1688", "cv186x", "bm1690"):
            assert one(case_id, chip=chip).why_not_local(chips.load(chip)) is None
        assert one(case_id, "f32", "bm1684").why_not_local(chips.load("bm1684")) is None
        assert "cv183x" in (one(case_id, chip="cv183x").why_not_local(chips.load("cv183x")) or "")
    assert "integer window" in (one("maxpool3d", chip="bm1684").why_not_local(chips.load("bm1684")) or "")
    for case_id, able in (
        ("groupnorm", ("bm1684x", "bm1688", "bm1684")),
        ("instancenorm", ("bm1684x", "bm1690", "bm1684")),
    ):
        assert all(one(case_id, "f32", chip).why_not_local(chips.load(chip)) is None for chip in able)
    assert "bm1690" in (one("groupnorm", "f32", "bm1690").why_not_local(chips.load("bm1690")) or "")


def test_only_3d_groups_hold_windows_over_volumes() -> None:
    for case_id in ("conv3d", "maxpool3d"):
        op = one(case_id)
        assert [k for k in GroupType if op.why_not_in(k, X) is None] == [GroupType.GROUP_3D]
    strided = network([node("Conv", "x w", strides=[16, 1, 1])], {"w": values((7, 5, 1, 1, 1))})
    model = to_tpu(to_canonical(import_onnx(strided({"x": (1, 5, 17, 6, 5)}))), "bm1684x", "f32")
    (op,) = tpu_ops(to_reordered(model))
    assert op.why_global(X) == "stride 16 above 15"


def test_packed_batches_stay_out_of_3d_groups() -> None:
    """On BM1684 bytes share words along the batch, which in a 3D group is not a separate axis."""
    deep = [op for op in tpu_ops(lowered("maxpool3d", "bm1684", "int8")[0]) if op.name == "tpu.Cast"]
    assert deep and "packed in words" in (deep[0].why_not_in(GroupType.GROUP_3D, chips.load("bm1684")) or "")
    assert deep[0].why_not_in(GroupType.GROUP_3D, X) is None


@pytest.mark.parametrize(("shape", "able"), [((1, 5, 1, 6, 5), True), (VOLUME, True), ((1, 5, 4, 6, 5), False),
                                             ((2, 5, 1, 1, 1), False)])  # fmt: skip
def test_batch_and_depth_broadcast_together_in_3d_groups(shape: tuple[int, ...], able: bool) -> None:
    """They are one axis of a lane there: (d*n, c, h, w). A computed branch of a Where is repeated before it (U-112)."""
    nodes = [node("Add", "x o", "a"), node("Less", "a o", "q"), node("Where", "q x o", "y")]
    top = to_canonical(import_onnx(network(nodes)({"x": VOLUME, "o": shape}), name="select"))
    ops = tpu_ops(to_tpu(top, "bm1684x", "f32"))
    tiles = [op for op in ops if op.name == "tpu.Tile"]
    assert len(tiles) == (shape != VOLUME)
    sums, compares, choice = (op for op in ops if op not in tiles)
    assert [op.name for op in (sums, compares, choice)] == ["tpu.Add", "tpu.Compare", "tpu.Where"]
    assert [op.why_not_in(GroupType.GROUP_3D, X) is None for op in (sums, compares)] == [able] * 2
    assert choice.why_not_in(GroupType.GROUP_3D, X) is None
    assert all(op.why_not_in(GroupType.NORMAL, X) is None for op in (sums, compares, choice))


def split_network(depth: int) -> list[list[str]]:
    """Names of the ops of every base group of Sigmoid, Add of another depth, Tanh, Conv3D, Sigmoid."""
    nodes = [
        node("Sigmoid", "x", "s"), node("Add", "s o", "a"), node("Tanh", "a", "t"), node("Conv", "t w", "v"),
        node("Sigmoid", "v", "y"),
    ]  # fmt: skip
    build = network(nodes, {"w": values((7, 5, 1, 1, 1))})
    top = to_canonical(import_onnx(build({"x": VOLUME, "o": (2, 5, depth, 6, 5)})))
    model = to_tpu(top, "bm1684x", "f32")
    return [[op_name(op) for op in ops] for ops, why in base_groups(to_reordered(model), X) if why is None]


def test_a_binary_of_two_depths_in_front_of_a_volume_stands_alone() -> None:
    assert split_network(4) == [["s", "a", "t", "v", "y"]]
    assert split_network(1) == [["s"], ["a"], ["t", "v", "y"]]


def test_work_areas_by_the_formulas() -> None:
    """layer_group.md 9.3 and DL-05, for the whole tensors of the rows."""

    def work(op: TpuOp, chip: chips.ChipSpec = X) -> int:
        slices = [_slice(shape_of(v)) for v in (op.results[0], op.operands[0])]
        return op.buffer_bytes(chip, slices[0], [slices[1]])

    assert work(one("conv3d")) == 0  # int32 accumulates in place
    assert work(one("conv3d-grouped")) == 1 * 64  # a row of 6 channels of 5*4 bytes
    plane = 32  # 2*3*2 and 3*3*3 pixels in 16-bit words, 32 of them in a vector
    assert work(one("avgpool3d")) == (1 + 2) * plane * 2
    assert work(one("avgpool3d-inside")) == (1 + 2) * 16 * 4  # padding not counted: 32 bits
    assert work(one("maxpool3d")) == 64
    half = [op for op in tpu_ops(to_reordered(_half("conv3d"))) if op.name == "tpu.Conv3D"]
    assert work(half[0]) == 32 * 4  # one f32 plane of 6*5 pixels
    assert work(one("groupnorm", "f32")) == 2 * 3 * 16 * 4 + 2 * 16 * 4


def _half(case_id: str) -> Model:
    return to_tpu(calibrated(case_id), "bm1684x", "f16")


def _slice(shape: tuple[int, ...]) -> TensorSlice:
    n, c, *spatial = shape
    d, h, w = spatial if len(spatial) == 3 else (1, *spatial)
    return TensorSlice((0, n), (0, c), (0, h), (0, w), (0, d))


# ------------------------------------------------------------------------------------------------------------ commands


def test_a_volume_becomes_planes_that_accumulate() -> None:
    """4 depths under a kernel of 3 with one pad each side: 2 + 3 + 3 + 2 commands, the first of each with the bias."""
    program = to_program(lowered("conv3d", "bm1684x", "int8")[0])
    convs = [c for c in program.commands if isinstance(c, isa.Conv)]
    assert [c.accumulate for c in convs] == [False, True, False, True, True, False, True, True, False, True]
    assert [c.bias is None for c in convs] == [c.accumulate for c in convs]
    assert {c.output.dtype for c in convs} == {"i32"} and {c.kernel for c in convs} == {(3, 3)}
    assert all((c.output in c.reads()) == c.accumulate for c in convs)
    steps = {c.filter.address for c in convs}
    assert len(steps) == 3 and max(steps) - min(steps) == 2 * 9 * 64


def test_sums_that_go_on_by_hand() -> None:
    bench = Bench()
    x = bench.put(np.array([[[[2, -3]]]], np.int8))
    row = np.zeros((1, 1, 1, 64), np.int8)
    row[0, 0, 0, 0] = 5
    filter = bench.put(row, layout="compact")
    out = bench.put(np.array([[[[100, -100]]]], np.int32))
    fields = {"input": x, "filter": filter, "output": out, "kernel": (1, 1)}
    assert bench.run(isa.Conv, **fields, accumulate=True).reshape(-1).tolist() == [110, -115]
    assert bench.run(isa.Conv, **fields, accumulate=True, relu=True).reshape(-1).tolist() == [120, 0]


def test_scaled_sums_by_hand() -> None:
    """Sums of windows of 8 elements, 4 of them counted: 10*8/4 = 20, times 0.25, plus 1; halves away from zero."""
    bench = Bench()
    x = bench.put(np.array([[[[10, -3, 1000]]]], np.int16))
    out = bench.space((1, 1, 1, 3), "i8")
    fields = {"mode": "avg", "input": x, "output": out, "kernel": (1, 1), "scale": 0.25, "offset": 1.0}
    assert bench.run(isa.Pool, **fields, summed=(8, 4)).reshape(-1).tolist() == [6, -1, 127]
    assert bench.run(isa.Pool, **fields, summed=(8, 8)).reshape(-1).tolist() == [4, 0, 127]


def test_rules_of_accumulating_commands() -> None:
    """Only an accumulator goes on; the filter of one depth is a window of packed blocks."""
    conv = {"id": 1, "dep": 0, "op": "v", "input": lmem(0, (1, 70, 3, 3)), "kernel": (2, 2), "accumulate": True}
    out, packed = lmem(4096, (1, 1, 2, 2), "i32"), lmem(8192, (1, 1, 2, 4 * 64), layout="compact")
    check(isa.Conv(**conv, output=out, filter=packed), X)
    with pytest.raises(CommandError, match="an i32 or f32 output without requant, got i8 without requant"):
        check(isa.Conv(**conv, output=lmem(4096, (1, 1, 2, 2)), filter=packed), X)
    with pytest.raises(CommandError, match="an i32 or f32 output without requant, got i32 with requant"):
        check(isa.Conv(**conv, output=out, filter=packed, requant=isa.Requant()), X)
    with pytest.raises(CommandError, match="pack the filter"):
        check(isa.Conv(**conv, output=out, filter=lmem(8192, (1, 1, 4, 128), layout="compact")), X)
