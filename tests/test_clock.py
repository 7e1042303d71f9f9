"""The clock compared with the recorded profile of the real compiler for the small networks: cycles, bytes, groups."""

from __future__ import annotations

import numpy as np
import pytest
from upstream.networks import Builder

import tpusim
from benchmarks.conformance import recorded
from benchmarks.conformance.clock import CHIPS, OTHERS, known_rows, recorded_profiles, recorded_row, transfer_distances
from benchmarks.conformance.ours import Compiled, Network
from benchmarks.conformance.pairing import computing, pair
from benchmarks.conformance.replay import Replay
from benchmarks.conformance.timing import matching_groups, our_clock, our_groups, recorded_clock
from benchmarks.conformance.transfers import LOAD, STORE
from tpusim import chips
from tpusim.isa.commands import Conv, Move
from tpusim.isa.cycles import dma_ns
from tpusim.isa.region import View

PROFILED = [n for n in recorded.networks() if f"{n}/{CHIPS[0]}/int8" in recorded_profiles()]
"""Networks whose profiles are recorded; cases that the fuzzer kept have values and groups only."""
CYCLES, BYTES = 0.1, 0.02
"""How far a network may be from the profile."""


@pytest.mark.parametrize("cell", [f"{n}/{c}/{m}" for n in PROFILED for c in CHIPS for m in OTHERS])
def test_cycles_in_other_modes(cell: str) -> None:
    """Compared with the real totals in benchmarks/conformance/clock.json."""
    network, chip, mode = cell.split("/")
    there = next(row.there for row in known_rows() if (row.network, row.chip, row.mode) == (network, chip, mode))
    here = our_clock(Compiled(Replay(network).lowered(f"{chip}/{mode}"), {}, chip))
    assert abs(here.cycles / there.cycles - 1) <= CYCLES
    assert abs(here.moved / there.moved - 1) <= BYTES


@pytest.mark.parametrize(
    "cell", ["vit_6/bm1684x/f16", "vit_6/bm1684x/f32", "vit_6/bm1688/f32", "mobilenet_v2/bm1688/f32",
             "shufflenet/bm1688/f32", "squeezenet/bm1688/f16"],
)  # fmt: skip
def test_networks_of_real_size(cell: str) -> None:
    """The same; no table is needed in float modes."""
    name, chip, mode = cell.split("/")
    there = next(row.there for row in known_rows() if (row.network, row.chip, row.mode) == (name, chip, mode))
    here = our_clock(Compiled.of(Network.prepare(name), chip, mode))
    assert abs(here.cycles / there.cycles - 1) <= CYCLES
    assert abs(here.moved / there.moved - 1) <= BYTES


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("network", PROFILED)
def test_cycles_in_all(network: str, chip: str) -> None:
    row = recorded_row(Replay(network), chip, recorded_profiles()[f"{network}/{chip}/int8"])
    assert row is not None
    assert abs(row.ratio - 1) <= CYCLES
    assert abs(row.bytes_ratio - 1) <= BYTES


@pytest.mark.parametrize("network", ["add", "conv", "pool", "residual", "relu6"])
@pytest.mark.parametrize("chip", ["cv183x", "cv181x"])
def test_groups_of_chips_without_a_profile(network: str, chip: str) -> None:
    """All of the real compiler's, whose casts from and to f32 are global layers or the host's."""
    replay = Replay(network)
    cell = replay.data.content.cells[f"{chip}/int8"]
    compiled = Compiled(replay.lowered(f"{chip}/int8"), {}, chip)
    pairs = pair(computing(compiled.ops()), computing(cell.ops))
    assert all(matching_groups(our_groups(compiled), recorded_clock(cell)[0], pairs))


@pytest.mark.parametrize("mode", ["f16", "bf16"])
@pytest.mark.parametrize("network", ["tables", "rounding"])
def test_float_functions(network: str, mode: str) -> None:
    """BM1684X: exp, log, erf, sigmoid and others take the steps of the profile, alone and in groups."""
    replay = Replay(network)
    cell = replay.data.content.cells[f"bm1684x/{mode}"]
    compiled = Compiled(replay.lowered(f"bm1684x/{mode}"), {}, "bm1684x")
    assert cell.cycles is not None and abs(compiled.timeline().cycles / cell.cycles - 1) <= 0.01


@pytest.mark.parametrize("chip", CHIPS)
def test_a_chip_says_how_near_single_transfers_are(chip: str) -> None:
    """Nine in ten of the loads and of the stores that both sides have."""
    keys = [(name, f"{name}/{chip}/int8") for name in ("conv", "add", "bert", "shapes")]
    rows = [row for name, key in keys if (row := recorded_row(Replay(name), chip, recorded_profiles()[key]))]
    for way in (LOAD, STORE):
        distances, there = transfer_distances(rows, way)
        assert len(rows) == 4 and len(distances) > 0.8 * there > 20
        assert distances[int(0.9 * len(distances))] <= chips.load(chip).calibration.transfers


STRIDED = [
    ("bm1688", (1, 5024, 16, 16), 6, 0, 231795),
    ("bm1688", (1, 64, 16, 16), 6, 1, 3119),
    ("bm1688", (1, 2048, 28, 28), 10, 0, 137915),
    ("bm1684x", (1, 1536, 68, 68), 23, 0, 355786),
    ("bm1684x", (1, 64, 68, 68), 23, 1, 19541),
    ("bm1684x", (1, 384, 100, 100), 50, 0, 142178),
]
"""Chip, an f32 image, rows of a slice of it, load or store, cycles in the profile of TPU-MLIR 1.30.2."""


@pytest.mark.parametrize(("chip", "shape", "rows", "way", "cycles"), STRIDED, ids=str)
def test_rows_of_an_image(chip: str, shape: tuple[int, int, int, int], rows: int, way: int, cycles: int) -> None:
    """Slices whose rows meet two memory channels of four take twice as long."""
    n, c, h, w = shape
    outside = View("gmem", 0, (n, c, rows, w), "f32", "strided", strides=(c * h * w, h * w, w, 1))
    inside = View("lmem", 0, outside.shape, "f32", "aligned")
    source, target = (outside, inside) if way == LOAD else (inside, outside)
    spec = chips.load(chip)
    taken = dma_ns(Move(id=1, dep=0, op="", input=source, output=target), spec) * spec.tiu_mhz / 1000
    assert abs(taken / cycles - 1) <= 0.001


@pytest.mark.parametrize("network", ["detector", "enlarge", "resize"])
@pytest.mark.parametrize("chip", CHIPS)
def test_resizes_move_what_the_real_ones_do(network: str, chip: str) -> None:
    """Tables of indices, rows that are gathered, parts of planes: every byte, and cycles within 3 %."""
    row = recorded_row(Replay(network), chip, recorded_profiles()[f"{network}/{chip}/int8"])
    assert row is not None and abs(row.ratio - 1) <= 0.03
    assert (row.here.load_bytes, row.here.store_bytes) == (row.there.load_bytes, row.there.store_bytes)


@pytest.mark.parametrize("chip", CHIPS)
def test_layers_of_tables(chip: str) -> None:
    """Every layer of a network whose profile has no bank conflicts, within 15 %."""
    row = recorded_row(Replay("rounding"), chip, recorded_profiles()[f"rounding/{chip}/int8"])
    assert row is not None and len(row.layers) == 17 and row.near == 17 and row.same_groups == 1


MIRRORED = [((1, 4, 6, 10), 3, 11239), ((1, 70, 6, 10), 3, 47326), ((2, 4, 6, 10), 3, 22445),
            ((1, 4, 12, 40), 3, 47581), ((1, 4, 6, 10), 2, 1750)]  # fmt: skip
"""Shape and axis of a Slice by -1 after a Relu; cycles of TPU-MLIR's profile for bm1684x in F32."""


@pytest.mark.parametrize(("shape", "axis", "cycles"), MIRRORED, ids=str)
def test_a_mirrored_axis_is_moved_place_by_place(shape: tuple[int, ...], axis: int, cycles: int) -> None:
    b = Builder("mirrored")
    x, numbers = b.input("x", *shape), [b.constant(np.array([n])) for n in (-1, -(2**31), axis, -1)]
    b.output(b.node("Slice", b.node("Relu", x), *numbers))
    network = Network.of("mirrored", b.model(), [{"x": np.zeros(shape, np.float32)}])
    here = our_clock(Compiled.of(network, "bm1684x", "f32"))
    assert abs(here.cycles / cycles - 1) <= CYCLES / 2


COPIED = [
    ("bm1684x", (1, 3, 64, 64), 70),
    ("bm1684x", (1, 3, 4, 4), 4),
    ("bm1684x", (1, 4, 40, 50), 34),
    ("bm1684x", (2, 3, 64, 64), 141),
    ("bm1684x", (1, 3, 224, 224), 865),
    ("bm1684x", (30, 3, 10, 10), 132),
    ("bm1688", (1, 3, 64, 64), 535),
    ("bm1688", (1, 3, 4, 4), 294),
    ("bm1688", (1, 8, 40, 50), 410),
    ("bm1688", (1, 3, 112, 112), 1042),
    ("bm1688", (30, 3, 10, 10), 470),
]
"""Chip, an 8-bit image for a convolution with a merged kernel, cycles of one of its channels (TPU-MLIR 1.30.2)."""


@pytest.mark.parametrize(("chip", "shape", "cycles"), COPIED, ids=str)
def test_an_image_for_a_merged_kernel_moves_channel_by_channel(
    chip: str, shape: tuple[int, int, int, int], cycles: int
) -> None:
    source, target = View("gmem", 0, shape, "i8", "dense"), View("lmem", 0, shape, "i8", "aligned")
    spec = chips.load(chip)
    move = Move(id=1, dep=0, op="", kind="channels", input=source, output=target)
    assert dma_ns(move, spec) * spec.tiu_mhz / 1000 / shape[1] == pytest.approx(cycles, abs=1)


@pytest.mark.parametrize(("shared", "kind"), [(False, "channels"), (True, "")])
def test_the_load_copies_an_image_with_one_user(shared: bool, kind: str) -> None:
    """An image that another op of the network reads, outside the group, is copied over the lanes by the TIU."""
    b = Builder("image")
    x = b.input("x", 1, 3, 16, 16)
    a = b.node("Conv", x, b.constant(np.ones((8, 3, 3, 3), np.float32) / 27), pads=[1] * 4)
    b.output(b.node("MaxPool", a, kernel_shape=[2, 2], strides=[2, 2]))
    if shared:
        b.output(b.node("Transpose", x, perm=[0, 2, 3, 1]))
    sample = {"x": np.linspace(-1, 1, 768, dtype=np.float32).reshape(1, 3, 16, 16)}
    compiled = tpusim.compile(b.model(), [sample], quant_input=True)
    convs = [c for c in compiled.program.commands if isinstance(c, Conv)]
    loads = [c for c in compiled.program.commands if isinstance(c, Move) and c.group == convs[0].group and c.step]
    assert [c.kind for c in loads if c.input.shape == (1, 3, 16, 16)] == [kind]
    assert [c.spread for c in convs] == [not shared]
