"""Views of the machine's memories against the literal formulas of docs/spec/hardware.md 2.1, 2.2 and 2.5."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from streams import NEURON, Builder, gmem, lmem

from tpusim import chips
from tpusim.chips import ChipSpec
from tpusim.errors import SimulationError
from tpusim.isa.blocks import blocks, contiguous_runs
from tpusim.isa.commands import Arith
from tpusim.isa.layout import align, ceil_div, extent, gmem_bytes, lmem_bytes
from tpusim.isa.region import View, itemsize, numpy_dtype
from tpusim.simulator.memory import LANE_UNIT, Machine, Region, lane_reach

REGIONS = (Region("coefficients", 0, 0, writable=False), Region("neurons", NEURON, 1 << 18, writable=True))
CHIPS = [structs.replace(chips.load(name), lmem_bytes=1 << 15) for name in chips.available()]
DTYPES = ["i8", "u8", "i16", "i32", "f32", "bf16"]


def small(chip: ChipSpec) -> Machine:
    """A machine of that chip, filled with noise so that a stray read or write shows."""
    machine = Machine(chip, REGIONS, np.zeros(0, np.uint8))
    machine.lmem[:] = 0xA5
    machine.gmem["neurons"][:] = 0x5A
    return machine


def byte_offset(view: View, chip: ChipSpec, index: tuple[int, ...]) -> int:
    """Flat byte of one element, from the formulas of hardware.md and nothing of tpusim.isa.layout."""
    size, factor = itemsize(view.dtype), view.interleave
    unit = size * factor
    if not view.laned:
        words = list(view.shape)
        if factor > 1:
            words[view.batch_axis] = -(-words[view.batch_axis] // factor)
        strides = view.strides or [int(np.prod(words[i + 1 :])) for i in range(len(words))]
        place = list(index)
        within = 0
        if factor > 1:
            place[view.batch_axis], within = divmod(index[view.batch_axis], factor)
        return view.address + unit * sum(p * s for p, s in zip(place, strides, strict=True)) + within * size
    n, c, h, w = index
    _, channels, height, width = view.shape
    rows = -(-(view.lane + channels) // chip.lanes)
    lane, row = (view.lane + c) % chip.lanes, (view.lane + c) // chip.lanes
    eu = chip.eu_bytes // (4 if chip.hardware.batch_packing else size)
    cs = -(-height * width // eu) * eu if view.layout == "aligned" else height * width
    n_stride, row_stride, h_stride, w_stride = view.strides or (rows * cs, cs, width, 1)
    word, within = divmod(n, factor)
    offset = unit * (word * n_stride + row * row_stride + h * h_stride + w * w_stride) + within * size
    return view.address + lane * (view.lane_pitch or chip.lmem_bytes) + offset


def check_round_trip(view: View, chip: ChipSpec) -> None:
    machine = small(chip)
    buffer = machine.lmem if view.memory == "lmem" else machine.gmem["neurons"]
    base = 0 if view.memory == "lmem" else NEURON
    dtype = numpy_dtype(view.dtype)
    array = np.random.default_rng(0).integers(0, 100, view.shape).astype(dtype)
    expected = buffer.copy()
    for index in product(*(range(size) for size in view.shape)):
        at = byte_offset(view, chip, index) - base
        expected[at : at + dtype.itemsize] = np.frombuffer(array[index].tobytes(), np.uint8)
    machine.write(view, array)
    np.testing.assert_array_equal(buffer, expected)
    got = machine.read(view)
    assert got.dtype == dtype and got.flags.c_contiguous
    np.testing.assert_array_equal(got, array)


@st.composite
def laned_views(draw: st.DrawFn) -> tuple[View, ChipSpec]:
    chip = draw(st.sampled_from(CHIPS))
    dtype = draw(st.sampled_from(DTYPES))
    shape = (draw(st.integers(1, 6)), draw(st.integers(1, 140)), draw(st.integers(1, 4)), draw(st.integers(1, 5)))
    lane = draw(st.integers(0, chip.lanes - 1))
    factor = draw(st.sampled_from([1, chip.batch_factor(itemsize(dtype))]))
    layout = draw(st.sampled_from(["aligned", "compact", "strided"]))
    strides = None
    if layout == "strided":
        _, _, h, w = shape
        w_stride = draw(st.integers(1, 2))
        h_stride = w * w_stride + draw(st.integers(0, 2))
        row = h * h_stride + draw(st.integers(0, 3))
        strides = (ceil_div(lane + shape[1], chip.lanes) * row + draw(st.integers(0, 3)), row, h_stride, w_stride)
    address = chip.eu_bytes * draw(st.integers(0, 3))
    return lmem(address, shape, dtype, layout, strides=strides, lane=lane, interleave=factor), chip


@settings(max_examples=40, deadline=None)
@given(laned_views())
def test_lmem_round_trip(case: tuple[View, ChipSpec]) -> None:
    check_round_trip(*case)


@settings(max_examples=25, deadline=None)
@given(laned_views(), st.integers(0, 64))
def test_lane_image_in_gmem_round_trip(case: tuple[View, ChipSpec], slack: int) -> None:
    view, chip = case
    reach = extent(view, chip)
    pitch = align(reach.stop + slack, 4)
    n, c, h, w = view.shape
    rows = max(1, (REGIONS[1].nbytes // pitch) - 1)
    if view.lane + c > rows:  # keep the image inside the region
        c, view = 1, lmem(0, (n, 1, h, w), view.dtype, "compact", interleave=view.interleave)
    image = gmem(
        NEURON, (n, c, h, w), view.dtype, view.layout,
        strides=view.strides, lane=view.lane, interleave=view.interleave, lane_pitch=pitch,
    )  # fmt: skip
    check_round_trip(image, chip)


@st.composite
def dense_views(draw: st.DrawFn) -> tuple[View, ChipSpec]:
    chip = draw(st.sampled_from(CHIPS))
    dtype = draw(st.sampled_from(DTYPES))
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=5)))
    axis = draw(st.integers(0, len(shape) - 1))
    factor = draw(st.sampled_from([1, chip.batch_factor(itemsize(dtype))]))
    strides = None
    if draw(st.booleans()):
        strides, step = [], 1
        for size in reversed(shape):
            strides.insert(0, step)
            step = step * size + draw(st.integers(0, 1))
        strides = tuple(strides)
    layout = "strided" if strides else "dense"
    address = NEURON + 4 * draw(st.integers(0, 5))
    return gmem(address, shape, dtype, layout, strides=strides, interleave=factor, batch_axis=axis), chip


@settings(max_examples=60, deadline=None)
@given(dense_views())
def test_gmem_round_trip(case: tuple[View, ChipSpec]) -> None:
    check_round_trip(*case)


def test_a_scalar_has_rank_zero() -> None:
    check_round_trip(gmem(NEURON, (), "f32"), CHIPS[0])


def test_worked_int8_example() -> None:
    """hardware.md 2.1: int8 (1,100,7,7) on BM1684X, element (0,70,3,2)."""
    chip = chips.load("bm1684x")
    view = lmem(4096, (1, 100, 7, 7))
    assert lmem_bytes((1, 100, 7, 7), "i8", chip) == 128
    machine = small(chip)
    array = np.zeros(view.shape, np.int8)
    array[0, 70, 3, 2] = 77
    machine.write(view, array)
    assert machine.lmem[6 * chip.lmem_bytes + 4096 + 87] == 77


def test_batch_packing_sizes() -> None:
    """hardware.md 2.5: LMEM ceil(N,4)*ceil(C,64)*AL(HW,32)*4 bytes; GMEM ceil(N,4)*C*H*W*4."""
    chip = chips.load("bm1684")
    assert lmem_bytes((5, 70, 7, 7), "i8", chip) == 2 * 2 * 64 * 4
    assert gmem_bytes((5, 70, 7, 7), "i8", chip) == 2 * 70 * 49 * 4
    assert gmem_bytes((5, 70, 7, 7), "f32", chip) == 5 * 70 * 49 * 4


def test_an_empty_view_has_no_bytes() -> None:
    assert blocks(lmem(0, (1, 0, 2, 2)), CHIPS[0]) == ()


def test_contiguous_runs_are_ddr_bursts() -> None:
    chip = chips.load("bm1684x")
    [whole] = blocks(gmem(NEURON, (1, 8, 4, 4)), chip)
    assert contiguous_runs(whole, 1, 64) == (1, 128)
    [rows] = blocks(gmem(NEURON, (1, 8, 2, 100), layout="strided", strides=(80000, 10000, 200, 1)), chip)
    assert contiguous_runs(rows, 1, 64) == (16, 100)
    [near] = blocks(gmem(NEURON, (1, 1, 2, 10), layout="strided", strides=(0, 0, 40, 1)), chip)
    assert contiguous_runs(near, 1, 64) == (1, 50)


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (
            lmem(262080, (1, 1, 1, 65)),
            r"bytes \[262,080, 262,145\), but a lane of bm1684x has 262,144 bytes",
        ),
        (lmem(0, (1, 1, 1, 1), lane=64), "start lane 64 at address 0x0, but bm1684x has 64 lanes"),
        (gmem(NEURON + (1 << 18) - 3, (4,)), r"region neurons \[0x200000000, 0x200040000\) ends before"),
        (gmem(NEURON - 1, (4,)), "no region of global memory holds address 0x1ffffffff"),
    ],
)
def test_out_of_bounds(view: View, message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        small(chips.load("bm1684x")).read(view)


def test_a_write_must_fit_its_view() -> None:
    machine = small(CHIPS[0])
    with pytest.raises(SimulationError, match=r"takes i8 of shape \(1, 1, 1, 2\), got int16"):
        machine.write(lmem(0, (1, 1, 1, 2)), np.zeros((1, 1, 1, 2), np.int16))


def test_a_region_that_does_not_fit_this_computer_is_named() -> None:
    regions = (Region("neurons", NEURON, 1 << 60, writable=True),)
    with pytest.raises(
        SimulationError, match=r"1,152,921,504,606,846,976 bytes .* region neurons \[.* cannot be alloc"
    ):
        Machine(CHIPS[0], regions, np.zeros(0, np.uint8))


@pytest.mark.parametrize("chip", CHIPS, ids=lambda c: c.name)
def test_a_memory_that_keeps_part_of_every_lane_is_the_whole_one(chip: ChipSpec) -> None:
    """Views inside the part hold the same values; a look beyond it finds zeros and loses nothing."""
    part, whole = (Machine(chip, REGIONS, np.zeros(0, np.uint8), n) for n in (4096, None))
    assert (part.lmem.size, whole.lmem.size) == (chip.lanes * 4096, chip.lanes * chip.lmem_bytes)
    views = [lmem(0, (2, chip.lanes + 3, 5, 7), "i8"), lmem(4096 - 128, (1, chip.lanes, 4, 8), "f32")]
    for view in views:
        array = np.random.default_rng(view.address).integers(1, 99, view.shape).astype(numpy_dtype(view.dtype))
        part.write(view, array)
        whole.write(view, array)
    far = lmem(4096 - 64, (1, chip.lanes, 4, 8), "f32")
    for view in (*views, far, *views):
        np.testing.assert_array_equal(part.read(view), whole.read(view))
    part.write(far, np.ones(far.shape, np.float32))
    assert (part.read(far) == 1).all()
    with pytest.raises(SimulationError, match="a lane of"):
        part.read(lmem(chip.lmem_bytes - 64, (1, 1, 4, 8), "f32"))


def test_the_reach_of_a_program_is_that_of_the_views_of_each_core() -> None:
    builder = Builder("bm1690")
    assert lane_reach(builder.program(), builder.chip) == {0: 0}
    outputs = {0: lmem(1024, (1, 2, 3, 5), "i8"), 3: lmem(4096, (1, 2, 3, 5), "i8")}
    for core, output in outputs.items():
        builder.add(Arith, kind="copy", a=lmem(128, output.shape, "i8"), output=output, core=core)
    found = lane_reach(builder.program(), builder.chip)
    assert found.keys() == outputs.keys()
    for core, output in outputs.items():
        last = extent(output, builder.chip).stop
        assert last <= found[core] < last + LANE_UNIT


def test_every_core_has_as_much_local_memory_as_it_uses() -> None:
    chip = chips.load("bm1690")
    cores = Machine(chip, REGIONS, np.zeros(0, np.uint8), 128).of_cores({0: 128, 5: 64})
    assert {core: memory.lmem.size // chip.lanes for core, memory in cores.items()} == {0: 128, 5: 64}
    cores[5].write(lmem(0, (1, 1, 1, 8), "i8"), np.ones((1, 1, 1, 8), np.int8))
    assert cores[5].lmem.any() and not cores[0].lmem.any()
    assert cores[5].gmem["neurons"] is cores[0].gmem["neurons"]
