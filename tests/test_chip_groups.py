"""What the real compiler has in a chip's layer groups: recorded groups, and the rules that BM1684's differ by."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import numpy as np
import onnx
import pytest
from builders.timings import in_every_order
from compiling import optimized, to_addressed, to_canonical, to_groups, to_lowered, to_program, to_reordered, to_tpu
from upstream.networks import Builder

from benchmarks.conformance import recorded
from benchmarks.conformance.addresses import our_addresses, same_addresses
from benchmarks.conformance.clock import recorded_profiles
from benchmarks.conformance.ours import Compiled
from benchmarks.conformance.pairing import computing, pair
from benchmarks.conformance.replay import Replay
from benchmarks.conformance.timing import matching_groups, our_groups, recorded_clock
from tpusim import chips
from tpusim.calibration.table import CalibrationTable, Entry
from tpusim.frontend import import_onnx
from tpusim.inference import run
from tpusim.ir.attrs import ints, op_name
from tpusim.ir.module import Model
from tpusim.ops.add import TpuAdd
from tpusim.ops.concat import TpuConcat
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.interfaces import LaneCopies
from tpusim.ops.structure import group_info

THIRDS = 3
"""Recorded networks by the hash of their names: the default tests meet each third, and each chip."""
DIFFERENT = {
    "bm1684x/int8": ((2, 68), (4, 101), (0, 35)),
    "bm1688/int8": ((0, 52), (5, 70), (0, 12)),
    "bm1684/int8": ((5, 95), (1, 146), (0, 40)),
    "cv181x/int8": ((21, 125), (31, 207), (12, 75)),
    "cv183x/int8": ((17, 142), (41, 273), (10, 67)),
}
"""In each third: groups and global layers of TPU-MLIR 1.30.2 that are not ours, at most, of how many, at least."""
ELSEWHERE = {
    "bm1684x/int8": ((34, 266), (83, 347), (43, 99)),
    "bm1688/int8": ((84, 259), (56, 336), (42, 106)),
}
"""The same of results and work areas in local memory that lie at another address."""


def thirds() -> list[object]:
    """Each chip with one third of the networks in the default tests, and with the others where slow tests run."""
    return [
        pytest.param(cell, third, marks=() if third == number % THIRDS else (pytest.mark.slow,))
        for number, cell in enumerate(DIFFERENT)
        for third in range(THIRDS)
    ]


@pytest.mark.every
@pytest.mark.parametrize(("cell", "third"), thirds())
def test_recorded_groups(cell: str, third: int) -> None:
    """The same ops and sections, and addresses in local memory."""
    found, same, count = list[bool](), 0, 0
    profiles = recorded_profiles()
    for replay in (Replay(name) for name in recorded.networks() if crc32(name.encode()) % THIRDS == third):
        there = replay.data.content.cells.get(cell)
        if there is not None and there.groups:
            compiled = Compiled(replay.lowered(cell), {}, cell.split("/")[0])
            pairs = pair(computing(compiled.ops()), computing(there.ops))
            found += matching_groups(our_groups(compiled), recorded_clock(there)[0], pairs)
            if profile := profiles.get(f"{replay.name}/{cell}"):
                lie, of = same_addresses(our_addresses(compiled), profile.addresses, pairs)
                same, count = same + lie, count + of
    most, groups = DIFFERENT[cell][third]
    assert (found.count(False) <= most, len(found) >= groups) == (True, True)
    if cell in ELSEWHERE:
        most, placed = ELSEWHERE[cell][third]
        assert (count - same <= most, count >= placed) == (True, True)


def image(c: int = 3, k: int = 3, **attributes: Any) -> onnx.ModelProto:
    b = Builder("image")
    x = b.input("image", 1, c, 9, 8)
    x = b.node("Conv", x, b.weight(6, c // attributes.get("group", 1), k, k), out="first", **attributes)
    b.output(b.node("Relu", b.conv(b.node("Relu", x), 6, 4), out="last"))
    return b.model()


def lowered(proto: onnx.ModelProto, mode: Any, chip: str = "bm1684") -> Model:
    return to_lowered(to_canonical(import_onnx(proto, name="network")), chip, mode)


def calibrated(proto: onnx.ModelProto, feeds: dict[str, np.ndarray], chip: str = "bm1684") -> Model:
    top = to_canonical(import_onnx(proto, name="network"))
    return to_lowered(top, chip, ranges=[feeds])


def kinds(model: Model) -> list[str]:
    return [op.name.removeprefix("tpu.") for op in model.ops if isinstance(op, TpuOp)]


FEEDS = {"image": np.random.default_rng(3).normal(size=(1, 3, 9, 8)).astype(np.float32)}


def test_rows_of_an_image_are_padded_in_front() -> None:
    """BM1684 in INT8: Pad and convolution stand alone; no tensor changes, in the machine neither."""
    before = calibrated(image(pads=[1, 2, 0, 1], strides=[2, 1]), FEEDS)
    after = optimized(before)
    assert kinds(after)[:3] == ["Cast", "Pad", "Conv2D"]
    one, other = run(before, FEEDS), run(after, FEEDS)
    assert all(np.array_equal(one[name], other[name]) for name in one)
    whole = to_groups(after)
    apart = [op for op in whole.ops if isinstance(op, TpuOp) and "tpusim.global_reason" in op.attributes]
    assert [op.name for op in apart][-2:] == ["tpu.Pad", "tpu.Conv2D"]
    assert "rows of its kernel as channels" in str(apart[-1].attributes["tpusim.global_reason"])
    program = to_program(whole)
    machine = in_every_order(program, FEEDS)
    assert all(np.array_equal(machine[name], other[name]) for name in machine)


@pytest.mark.parametrize(
    ("c", "k", "attributes"),
    [(3, 3, {}), (3, 1, {"pads": [1, 1, 1, 1]}), (3, 3, {"pads": [2, 2, 2, 2], "dilations": [2, 2]}),
     (4, 3, {"pads": [1, 1, 1, 1]}), (3, 3, {"pads": [1, 1, 1, 1], "group": 3})],
)  # fmt: skip
def test_other_convolutions_pad_themselves(c: int, k: int, attributes: dict[str, Any]) -> None:
    """Without padding or rows, dilated, of other channels, of several groups."""
    feeds = {"image": np.resize(FEEDS["image"], (1, c, 9, 8))}
    assert "Pad" not in kinds(optimized(calibrated(image(c, k, **attributes), feeds)))


@pytest.mark.parametrize("chip", ["bm1684x", "bm1688", "cv183x"])
def test_other_chips_pad_no_image(chip: str) -> None:
    assert "Pad" not in kinds(optimized(calibrated(image(pads=[1, 1, 1, 1]), FEEDS, chip)))


@pytest.mark.parametrize("mode", ["int8", "f16"])
def test_loads_copy_images_of_bytes(mode: str) -> None:
    """The kernel's axes lie in few channels; a load copies these to other lanes in INT8 alone."""
    proto = image(c=1)
    tpu = calibrated(proto, {"image": FEEDS["image"][:, :1]}, "bm1684x") if mode == "int8" else lowered(
        proto, mode, "bm1684x"
    )  # fmt: skip
    first = next(op for op in to_reordered(tpu).ops if op.name == "tpu.Conv2D")
    assert isinstance(first, LaneCopies)
    assert (first.copies_over_lanes(), first.copied_by_load()) == (True, mode == "int8")


@pytest.mark.parametrize("relu", [False, True])
def test_sums_with_zero_points_work_in_16_bits(relu: bool) -> None:  # noqa: FBT001
    """Asymmetric INT8: operands up to 127 times the result's step; the machine equals the flat run everywhere.

    The work area is four times the result, as in all 205 sums of two that TPU-MLIR 1.30.2 compiled.
    """
    b = Builder("sums")
    y = b.node("Add", *(b.input(name, 1, 1, 256, 256) for name in ("one", "other")), out="sum")
    b.output(b.node("Relu", y, out="cut") if relu else y)
    ladder = np.linspace(-12.7, 12.8, 256, dtype=np.float32)
    feeds = {"one": np.tile(ladder, (256, 1)), "other": np.tile(-ladder[:, None], (1, 256))}
    feeds = {name: array.reshape(1, 1, 256, 256) for name, array in feeds.items()}
    top = to_canonical(import_onnx(b.model(), name="network"))
    last, ends = ("cut_Relu", (0.0, 0.27)) if relu else ("sum_Add", (-0.1, 0.17))
    steps = {"one": (-12.7, 12.8), "other": (-12.8, 12.7), last: ends}
    table = CalibrationTable({name: Entry(max(-low, high), low, high) for name, (low, high) in steps.items()})
    tpu = to_tpu(top, "bm1684x", "int8", asymmetric=True, ranges=table)
    add = next(op for op in tpu.ops if isinstance(op, TpuAdd))
    assert add.multipliers is not None and add.rshifts is not None
    assert min(ints(add.multipliers)) > 60 and max(ints(add.rshifts)) == 0  # noqa: PLR2004
    whole = to_addressed(tpu)
    placed = next(group_info(op) for op in whole.module.walk() if isinstance(op, TpuAdd))
    assert placed is not None and placed.buffer_size == 4 * placed.out_size
    flat, machine = run(tpu, feeds), in_every_order(to_program(whole), feeds)
    assert all(np.array_equal(machine[name], flat[name]) for name in machine)


@pytest.mark.parametrize(("axis", "constant", "alone"), [(1, False, False), (2, False, True), (1, True, True)])
def test_a_concatenation_alone(axis: int, constant: bool, alone: bool) -> None:  # noqa: FBT001
    """Copied in global memory, unless its operands are adjacent and made for it (docs/clock.md)."""
    b = Builder("joined")
    x = b.node("Relu", b.input("x", 1, 4, 6, 8), out="first")
    other = b.weight(1, 4, 6, 8) if constant else b.node("Exp", b.input("y", 1, 4, 6, 8), out="second")
    b.output(b.node("Concat", x, other, out="both", axis=axis))
    joined = next(op for op in lowered(b.model(), "f16", "bm1688").ops if isinstance(op, TpuConcat))
    assert (joined.why_rather_global(chips.load("bm1688")) is not None) == alone


def test_floats_pad_no_image() -> None:
    assert "Pad" not in kinds(optimized(lowered(image(pads=[1, 1, 1, 1]), "f32")))


def turned(*nodes: tuple[str, dict[str, Any]]) -> onnx.ModelProto:
    b = Builder("turned")
    x = b.input("image", 1, 3, 9, 8)
    for kind, attributes in nodes:
        x = b.node(kind, x, **attributes)
    b.output(x)
    return b.model()


HEADS, OTHERS = ("Transpose", {"perm": [0, 2, 1, 3]}), ("Transpose", {"perm": [0, 2, 3, 1]})
ABS, EXP, SOFT = ("Abs", {}), ("Exp", {}), ("Softmax", {"axis": -1})


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [((HEADS, ABS, EXP), ["Active", "Active", "Permute"]), ((HEADS, SOFT), ["Softmax", "Permute"]),
     ((HEADS, ABS, HEADS), ["Active"]), ((OTHERS, ABS), ["Permute", "Active"])],
)  # fmt: skip
def test_permutes_go_after(nodes: tuple[tuple[str, dict[str, Any]], ...], wanted: list[str]) -> None:
    """BM1684: moved after ops on elements or rows; two inverse ones cancel; others stay. The result is the same."""
    before = lowered(turned(*nodes), "f32")
    after = optimized(before)
    assert kinds(after) == wanted
    name = op_name(before.results[0].owner)  # type: ignore[arg-type]
    last = op_name(after.results[0].owner)  # type: ignore[arg-type]
    np.testing.assert_array_equal(run(before, FEEDS)[name], run(after, FEEDS)[last])


def cut(shape: tuple[int, ...], axis: int, first: int, end: int) -> onnx.ModelProto:
    b = Builder("cut")
    x = b.node("Abs", b.input("image", *shape))
    starts, ends, axes = (b.constant(np.array([value])) for value in (first, end, axis))
    b.output(b.node("Slice", x, starts, ends, axes))
    return b.model()


@pytest.mark.parametrize(
    ("shape", "axis", "first", "local"),
    [((2, 70, 4, 4), 1, 64, True), ((2, 70, 4, 4), 1, 3, False), ((2, 70, 4, 4), 2, 1, True), ((2, 70, 4), 2, 1, False),
     ((1, 3, 730, 720), 2, 1, False)],
)  # fmt: skip
def test_slices_from_lane_0(shape: tuple[int, ...], axis: int, first: int, local: bool) -> None:  # noqa: FBT001
    """BM1684 copies lane by lane: of four axes, from a channel in lane 0 on, images below 2**19 elements."""
    model = lowered(cut(shape, axis, first, shape[axis]), "f32")
    (op,) = [op for op in model.ops if op.name == "tpu.Slice"]
    assert isinstance(op, TpuOp)
    assert (op.why_not_local(chips.load("bm1684")) is None) == local


WORK = {
    "shuffle": {
        "imagerelu1_Relu_si8": 2048,
        "concat14_Concat_f32": 128,
        "averagepool12_AveragePool_to_concat14_Concat": 128,
    },
    "rectifiers": {"leaky_LeakyRelu": 1024},
}
"""`buffer_size` of TPU-MLIR 1.30.2 for BM1684 in INT8."""


@pytest.mark.parametrize("network", WORK)
def test_work_areas_are_the_real_ones(network: str) -> None:
    """Casts, requants and slopes."""
    grouped = Compiled(Replay(network).lowered("bm1684/int8"), {}, "bm1684").grouped()
    found = {op_name(op): str(op.attributes.get("ginfo")) for op in grouped.module.walk() if isinstance(op, TpuOp)}
    for name, size in WORK[network].items():
        assert f"buffer_size = {size}," in found[name]
