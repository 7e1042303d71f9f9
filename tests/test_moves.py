"""Transfers of groups that do the work of Permutes and views: the machine computes what the flat program does."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import pytest
from compiling import to_canonical, to_groups, to_program, to_reordered
from msgspec.structs import replace
from networks import randomly_grouped
from upstream.networks import Builder, samples
from xdsl.dialects.builtin import AffineMapAttr

from benchmarks.conformance.replay import Replay
from tpusim import chips
from tpusim.errors import ImportModelError, SimulationError
from tpusim.frontend import import_onnx
from tpusim.inference import run
from tpusim.ir.attrs import op_name, texts
from tpusim.ir.module import Model
from tpusim.ir.text import parse_module, print_module
from tpusim.isa.commands import Fill, Move
from tpusim.isa.cycles import dma_ns
from tpusim.isa.region import View
from tpusim.layer_group.files import merge_moves
from tpusim.ops.framework.moves import permutation_map, strides_of, view_map
from tpusim.ops.interfaces import is_in_place
from tpusim.ops.structure import TpuLoad, TpuStore, Transfer
from tpusim.running.persistence import context
from tpusim.simulator import Simulator, timeline

CHIPS = ("bm1684x", "bm1688")
Tensors = dict[str, np.ndarray]


def moving(model: Model) -> list[Transfer]:
    return [op for op in model.module.walk() if isinstance(op, Transfer) and op.mapping is not None]


def kinds(model: Model) -> list[str]:
    return [op.name for op in model.module.walk()]


@cache
def proto() -> onnx.ModelProto:
    """Permutes after groups and before them: more channels than lanes, heads, adjacent views, small ones."""
    b = Builder("moved")
    x = b.input("x", 1, 8, 6, 10)
    for channels in (96, 8):  # 8 channels have too few bytes in 8 bits
        y = b.node("Relu", b.conv(x, 8, channels, 3))
        b.output(b.conv(b.node("Transpose", y, perm=[0, 2, 1, 3]), 6, 16, 1))
    z = b.node("Transpose", b.node("Relu", b.conv(x, 8, 32, 3)), perm=[0, 2, 1, 3])
    b.output(b.reshape(z, 1, 6, 16, 20))
    w = b.node("Relu", b.conv(x, 8, 40, 3))
    halves = b.node("Transpose", b.reshape(w, 1, 2, 20, 6, 10), perm=[0, 2, 1, 3, 4])
    b.output(b.conv(b.reshape(halves, 1, 40, 6, 10), 40, 16, 3))
    return b.model()


@cache
def padded() -> onnx.ModelProto:
    """Pads after groups: channels of a block that widens, rows and columns, all axes of a Permute with a value."""
    b = Builder("padded")
    x = b.input("x", 2, 8, 16, 16)
    y = b.node("Relu", b.conv(x, 8, 24, 3))
    wider = b.node("Pad", y, b.constant(np.array([0, 0, 0, 0, 0, 8, 0, 0])))
    y = b.node("Relu", b.conv(b.node("Relu", b.conv(y, 24, 32, 3)), 32, 32, 3))
    b.output(b.conv(b.node("Relu", b.node("Add", wider, y)), 32, 16, 3))
    framed = b.node("Relu", b.conv(x, 8, 40, 3))
    framed = b.node("Pad", framed, b.constant(np.array([0, 0, 1, 2, 0, 0, 3, 1])), b.constant(0.25))
    b.output(b.node("MaxPool", framed, kernel_shape=[2, 2], strides=[2, 2]))
    turned = b.node("Transpose", b.node("Relu", b.conv(x, 8, 48, 3)), perm=[0, 2, 1, 3])
    b.output(b.node("Pad", turned, b.constant(np.array([1, 2, 3, 4, 0, 1, 2, 3])), b.constant(-0.5)))
    return b.model()


@cache
def shuffled() -> onnx.ModelProto:
    """Channel shuffles in front of groups: more channels than lanes, as many and fewer, of a batch."""
    b = Builder("shuffled")
    x = b.input("x", 2, 8, 6, 10)
    for parts, channels in ((3, 96), (2, 64), (4, 20), (8, 32)):
        y = b.node("Relu", b.conv(x, 8, channels, 3))
        y = b.node("Transpose", b.reshape(y, 2, parts, channels // parts, 6, 10), perm=[0, 2, 1, 3, 4])
        b.output(b.node("Relu", b.conv(b.reshape(y, 2, channels, 6, 10), channels, 16, 3)))
    return b.model()


NETWORKS = {"moved": proto, "padded": padded, "shuffled": shuffled}


@cache
def network(chip: str, name: str = "moved") -> tuple[Model, Tensors, Tensors]:
    """(module in chip layout, one sample, every tensor of the flat inference), in INT8."""
    source = NETWORKS[name]()
    top = to_canonical(import_onnx(source, name=name))
    given = samples(source)
    model = to_reordered(top, chip, ranges=given)
    return model, given[0], run(model, given[0])


def assert_bits(grouped: Model, sample: Tensors, flat: Tensors, cores: int = 1) -> None:
    """Every tensor is the flat inference's; inputs, views and what lies between moving ops are all that may lack."""
    found = Simulator(to_program(grouped, share=cores)).run(sample, watch=True).tensors
    assert [n for n in flat if n in found and not np.array_equal(found[n], flat[n])] == []
    views = {op_name(op) for op in grouped.module.walk() if is_in_place(op)}
    between = {name for op in moving(grouped) if op.moved for name in texts(op.moved)}
    assert flat.keys() - found.keys() <= {*sample, *views, *between}


@cache
def recorded(name: str, chip: str) -> tuple[Model, Model, Tensors]:
    """(module in chip layout, in groups, one sample) of a recorded network in INT8."""
    replay = Replay(name)
    model = to_reordered(replay.lowered(f"{chip}/int8"))
    return model, to_groups(model), replay.data.arrays(replay.data.content.inputs)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", ["matmul", "shapes"])
def test_the_bits_of_the_whole(name: str, chip: str) -> None:
    """Heads of a product; channels exchanged in two halves, which a store of other rows does."""
    model, grouped, sample = recorded(name, chip)
    (store,) = moving(grouped)
    assert isinstance(store, TpuStore)
    assert kinds(grouped).count("tpu.Permute") == kinds(model).count("tpu.Permute") - 1
    assert_bits(grouped, sample, run(model, sample))


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("cores", [1, 2])
def test_more_channels_than_lanes(chip: str, cores: int) -> None:
    if cores > chips.load(chip).cores:
        pytest.skip(f"{chip} has one core")
    model, sample, flat = network(chip)
    grouped = to_groups(model, cores=cores)
    found = moving(grouped)
    assert any(isinstance(op, TpuLoad) for op in found)
    assert all(op.moved is not None and set(texts(op.moved)) <= set(flat) for op in found)
    assert_bits(grouped, sample, flat, cores)


@pytest.mark.parametrize("chip", CHIPS)
def test_stores_pad(chip: str) -> None:
    """The border is filled once, whatever the sections; a Pad of an input stays."""
    model, sample, flat = network(chip, "padded")
    grouped = to_groups(model)
    stores = [op for op in moving(grouped) if op.pads]
    assert len(stores) == 3 and not any(name == "tpu.Pad" for name in kinds(grouped))
    filled = [c for c in to_program(grouped).commands if isinstance(c, Fill)]
    assert len(filled) == sum(sum(pad > 0 for pad in op.pads) for op in stores)
    assert_bits(grouped, sample, flat)
    again = Model(parse_module(print_module(grouped.module), context()), grouped.weights)
    assert to_program(again).commands == to_program(grouped).commands


@pytest.mark.parametrize(("chip", "cycles", "loaded"), [("bm1684x", 129_376, 228_907), ("bm1688", 613_441, 190_379)])
def test_stores_pad_as_the_real_ones_do(chip: str, cycles: int, loaded: int) -> None:
    """Bytes of the real profile, and cycles within 2 %; on BM1684X within 13 %, where more of the border is filled."""
    program = to_program(network(chip, "padded")[0])
    moved = np.sum([c.traffic() for c in program.commands if not isinstance(c, Fill)], axis=0)
    assert tuple(moved) == (loaded, 413_228)
    far = 0.13 if chip == "bm1684x" else 0.02
    assert abs(timeline(program, chips.load(chip)).cycles / cycles - 1) < far


@pytest.mark.parametrize(
    ("shape", "strides", "cycles"),
    [
        ((2, 8, 16, 16), (8192, 256, 16, 1), 536), ((1, 19, 53, 23), (23161, 1219, 23, 1), 1679),
        ((2, 16, 48, 4), (23161, 1219, 23, 1), 7663), ((2, 40, 1, 19), (15200, 380, 19, 1), 674),
        ((2, 40, 3, 19), (15200, 380, 19, 1), 674), ((2, 40, 16, 2), (15200, 380, 19, 1), 6434),
    ],
)  # fmt: skip
def test_a_fill_takes_the_cycles_of_the_real_profile(
    shape: tuple[int, ...], strides: tuple[int, ...], cycles: int
) -> None:
    """BM1688: runs below 80 bytes take as long as these."""
    spec = chips.load("bm1688")
    fill = Fill(id=1, dep=0, op="fill", output=View("gmem", 0, shape, "u8", "strided", strides=strides), value=0.0)
    assert abs(dma_ns(fill, spec) * spec.tiu_mhz / 1000 - cycles) <= 1


def test_an_origin_is_held_against_addresses() -> None:
    """A store that begins in the border, or states that it has none, is refused."""
    model, sample, _ = network("bm1684x", "padded")
    program = to_program(model)
    at = next(i for i, c in enumerate(program.commands) if isinstance(c, Move) and c.origin)
    for origin in (0, None):
        wrong = list(program.commands)
        wrong[at] = replace(wrong[at], origin=origin)  # type: ignore[arg-type]
        with pytest.raises(SimulationError, match="start"):
            Simulator(replace(program, commands=tuple(wrong))).run(sample)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("seed", range(4))
def test_random_sections(seed: int, chip: str, name: str) -> None:
    """Every transfer that some commands can do, however few its bytes, in groups that are cut along any axes."""
    model, sample, flat = network(chip, name)
    spec = chips.load(chip)
    spec = replace(spec, local=replace(spec.local, moving_transfer_bytes=1, moving_transfers=100))
    divided, _ = randomly_grouped(model, np.random.default_rng(seed), longest=3)
    merge_moves(divided, spec)
    assert len(moving(divided)) > 1
    assert_bits(divided, sample, flat)


@pytest.mark.parametrize("chip", ["bm1690", "bm1684"])
def test_other_chips_keep_their_permutes(chip: str) -> None:
    top = to_canonical(import_onnx(proto(), name="moved"))
    model = to_reordered(top, chip, "f32")
    grouped = to_groups(model)
    assert not moving(grouped)
    assert kinds(grouped).count("tpu.Permute") == kinds(model).count("tpu.Permute")


def test_text_of_a_module() -> None:
    """A module that was printed and read gives the same commands; a map without distances is refused."""
    _, grouped, _ = recorded("shapes", "bm1684x")
    again = Model(parse_module(print_module(grouped.module), context()), grouped.weights)
    assert to_program(again).commands == to_program(grouped).commands
    (store,) = moving(again)
    assert isinstance(store, TpuStore)
    turned = permutation_map((0, 2, 1, 3, 4), "l2s")
    store.indexing_map_l2s = AffineMapAttr(view_map((1, 8, 12, 3, 4), (1, 8, 12, 12)).compose(turned))
    with pytest.raises(ImportModelError, match="a map from .* that moves every element"):
        to_program(again)


@pytest.mark.parametrize("chip", CHIPS)
def test_a_load_shuffles(chip: str) -> None:
    """In F32 by eight commands of 512 bytes, as in the real profile; of fewer bytes the Permute stays."""
    whole, half = (to_groups(Replay("shuffle").lowered(f"{chip}/{mode}")) for mode in ("f32", "f16"))
    moves = [c for c in to_program(whole).commands if isinstance(c, Move) and c.strides]
    assert [c.traffic() for c in moves] == [(512, 0)] * 8
    assert not moving(half) and "tpu.Permute" in kinds(half)


def shuffling(chip: str, runs: int) -> Model:
    """Groups with a shuffle of so many times 4 channels between two of them."""
    b = Builder("between")
    y = b.node("Relu", b.conv(b.input("x", 1, 4, 28, 28), 4, 4 * runs, 3))
    y = b.node("Transpose", b.reshape(y, 1, 4, runs, 28, 28), perm=[0, 2, 1, 3, 4])
    b.output(b.conv(b.node("Relu", b.conv(b.reshape(y, 1, 4 * runs, 28, 28), 4 * runs, 8, 3)), 8, 8, 3))
    top = to_canonical(import_onnx(b.model(), name="between"))
    return to_reordered(top, chip, "f32")


@pytest.mark.parametrize(("chip", "most"), [("bm1684x", 16), ("bm1688", 32), ("cv186x", 32)])
def test_a_load_takes_few_commands(chip: str, most: int) -> None:
    """At most as many as TPU-MLIR 1.30.2 was seen to take."""
    found = [len(moving(to_groups(shuffling(chip, runs)))) for runs in (most, most + 1)]
    assert found == [1, 0]


def test_shuffled_channels_are_held_against_addresses() -> None:
    """A command that moves other channels than it says is found."""
    model, sample, _ = network("bm1684x", "shuffled")
    spec = chips.load("bm1684x")
    divided, _ = randomly_grouped(model, np.random.default_rng(0), longest=3)
    merge_moves(divided, replace(spec, local=replace(spec.local, moving_transfer_bytes=1, moving_transfers=100)))
    program = to_program(divided)
    wrong = list(program.commands)
    at = [i for i, c in enumerate(wrong) if isinstance(c, Move) and c.origin is not None]
    assert len(at) > 8
    wrong[at[1]] = replace(wrong[at[1]], origin=wrong[at[1]].origin + 60)  # type: ignore[arg-type,union-attr,operator]
    with pytest.raises(SimulationError, match="correct the address, or start"):
        Simulator(replace(program, commands=tuple(wrong))).run(sample)


def test_distances_are_held_against_addresses() -> None:
    """A store to other places than its distances say is found."""
    _, grouped, sample = recorded("matmul", "bm1684x")
    program = to_program(grouped)
    wrong = list(program.commands)
    (at,) = (i for i, c in enumerate(wrong) if isinstance(c, Move) and c.strides)
    n, c, d, h, w = wrong[at].strides  # type: ignore[misc,union-attr]
    wrong[at] = replace(wrong[at], strides=(n, h, d, c, w))  # type: ignore[arg-type]
    with pytest.raises(SimulationError, match="correct the address, or start"):
        Simulator(replace(program, commands=tuple(wrong))).run(sample)


@pytest.mark.parametrize("seed", range(20))
def test_strides_are_those_of_numpy(seed: int) -> None:
    """Random orders of axes, a view before and a view after them."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(size) for size in rng.integers(1, 5, size=4))
    order = tuple(int(axis) for axis in rng.permutation(4))
    outside = tuple(shape[axis] for axis in order)
    flat = int(np.prod(shape))
    joined = (flat // shape[-1], shape[-1])
    there = view_map(outside, (flat,)).compose(permutation_map(order, "l2s").compose(view_map(joined, shape)))
    places = np.empty(shape, np.int64)
    places.transpose(order)[...] = np.arange(flat).reshape(outside)
    found = strides_of(permutation_map(order, "l2s"), shape, outside, shape)
    assert found is not None
    index = np.indices(shape)
    assert np.array_equal(sum(i * step for i, step in zip(index, found, strict=True)), places)
    for at, place in np.ndenumerate(places.reshape(joined)):
        assert there.eval(at, ()) == (place,)
    back = permutation_map(order, "s2l").compose(permutation_map(order, "l2s"))
    assert back.eval((3, 2, 1, 0), ()) == (3, 2, 1, 0)


def test_a_map_without_distances_has_none() -> None:
    """Rows in another order inside an axis, elements that meet, and elements that nobody gives."""
    split = view_map((6,), (2, 3))
    turned = permutation_map((1, 0), "l2s").compose(split)
    assert strides_of(turned, (6,), (3, 2), (6,)) is None
    assert strides_of(view_map((3, 2), (6,)), (3, 2), (6,), (6,)) == (1,)
    assert strides_of(permutation_map((0,), "l2s"), (3,), (6,), (3,)) == (1,)
