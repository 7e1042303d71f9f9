"""Programs on the machine: order of the two queues, hazards, capture of tensors, refusals, the clock."""

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from streams import COEFF, Builder, lmem, neuron

from tpusim import chips
from tpusim.errors import CommandError, SimulationError
from tpusim.isa.commands import Arith, Conv, Fill, GlobalKernel, Move, Requant
from tpusim.isa.region import View
from tpusim.simulator import Simulator, SimulatorOptions, simulate, timeline, trace

SHAPE = (1, 3, 4, 4)
X = np.arange(48, dtype=np.int8).reshape(SHAPE)


def doubled(rows: tuple[tuple[int, int], ...] = ((0, 4),), chip: str = "bm1684x") -> Builder:
    """Per row slice: load x, y = x + x, store y; two buffers each, loads run two slices ahead."""
    build = Builder(chip)
    factor = build.chip.batch_factor(1)
    build.tensor("x", neuron(0, SHAPE, interleave=factor), "input")
    build.tensor("y", neuron(4096, SHAPE, interleave=factor), "output")
    n, c, h, w = SHAPE
    loads: dict[int, int] = {}
    stores: dict[int, int] = {}

    def outside(offset: int, i: int) -> View:
        first, last = rows[i]
        more: dict[str, Any] = {"layout": "strided", "strides": (c * h * w, h * w, w, 1), "interleave": factor}
        return neuron(offset + first * w * factor, (n, c, last - first, w), **more)

    def inside(offset: int, i: int) -> View:
        return lmem(i % 2 * 2048 + offset, outside(0, i).shape, interleave=factor)

    def load(i: int, dep: int) -> None:
        if i < len(rows):
            loads[i] = build.add(Move, dep, input=outside(0, i), output=inside(0, i), step=f"h{i}").id

    load(0, 0)
    load(1, 0)
    for i in range(len(rows)):
        ready = max(loads[i], stores.get(i - 2, 0))
        add = build.add(Arith, ready, kind="add", a=inside(0, i), b=inside(0, i), output=inside(1024, i), step=f"h{i}")
        load(i + 2, add.id)
        store = build.add(Move, add.id, input=inside(1024, i), output=outside(4096, i), step=f"h{i}", tensor="y")
        stores[i] = store.id
    return build


def refused(build: Builder, message: str, error: type[Exception] = SimulationError) -> None:
    with pytest.raises(error, match=message):
        Simulator(build.program())


# --------------------------------------------------------------------------------------------------------- running


@pytest.mark.parametrize("chip", chips.available())
@pytest.mark.parametrize("rows", [((0, 4),), ((0, 1), (1, 3), (3, 4)), ((0, 2), (2, 4))])
def test_early_and_late_dma_give_the_same_bits(chip: str, rows: tuple[tuple[int, int], ...]) -> None:
    program = doubled(rows, chip).program()
    results = [simulate(program, {"x": X}, SimulatorOptions(dma=dma)) for dma in ("early", "late")]  # type: ignore[arg-type]
    for result in results:
        assert set(result.tensors) == {"y"}
        np.testing.assert_array_equal(result.tensors["y"], X + X)


def test_early_and_late_are_different_orders() -> None:
    program = doubled(((0, 1), (1, 2), (2, 4))).program()
    orders = [Simulator(program, options=SimulatorOptions(dma=dma)).order for dma in ("early", "late")]  # type: ignore[arg-type]
    kinds = [[type(program.commands[index]).__name__ for index in order] for order in orders]
    assert kinds[0][:3] == ["Move", "Move", "Arith"]  # the second load does not wait
    assert kinds[1][:3] == ["Move", "Arith", "Move"]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(9))


def test_a_simulator_runs_many_samples() -> None:
    simulator = Simulator(doubled().program())
    for value in (1, 2):
        np.testing.assert_array_equal(
            simulator.run({"x": np.full(SHAPE, value, np.int8)}).tensors["y"], np.full(SHAPE, 2 * value)
        )


def test_a_tensor_is_captured_before_its_memory_is_reused() -> None:
    build = Builder()
    view = neuron(0, (4,))
    build.tensor("x", neuron(64, (4,)), "input")
    for i, name in enumerate(("first", "second")):
        build.tensor(name, view, "output", shape=(2, 2))
        build.add(Fill, 0, output=view, value=i + 1, tensor=name)
    with pytest.raises(SimulationError, match=r"output 'first' is read by the host at the end, but 4 of its 4 bytes"):
        simulate(build.program(), {"x": np.zeros(4, np.int8)})
    tensors = simulate(build.program(), {"x": np.zeros(4, np.int8)}, SimulatorOptions(sanitize=False)).tensors
    assert {name: array.tolist() for name, array in tensors.items()} == {
        "first": [[1, 1], [1, 1]],
        "second": [[2, 2], [2, 2]],
    }


def test_a_tensor_made_of_parts_is_complete_with_them() -> None:
    build = Builder()
    build.tensor("a", neuron(0, (2,)))
    build.tensor("b", neuron(2, (2,)))
    build.tensor("cat", neuron(0, (4,)), "output", parts=("a", "b"))
    build.add(Fill, 0, output=neuron(0, (2,)), value=1, tensor="a")
    build.add(Fill, 0, output=neuron(2, (2,)), value=2, tensor="b")
    build.add(Fill, 0, output=neuron(0, (4,)), value=9)
    found = simulate(build.program(), {}, SimulatorOptions(sanitize=False)).tensors
    assert found["cat"].tolist() == [1, 1, 2, 2]


def test_global_kernel_computes_in_global_memory() -> None:
    build = Builder()
    x = build.tensor("x", neuron(0, (1, 2, 2, 2)), "input")
    packed = np.zeros((1, 1, 1, 64), np.int8)
    packed[0, 0, 0, :2] = [3, -1]
    weight = build.coefficient(packed)
    y = build.tensor("y", neuron(64, (1, 1, 2, 2)), "output")
    body = Conv(id=1, dep=0, op="c", input=x, filter=weight, output=y, kernel=(1, 1), requant=Requant(rshift=1))
    build.add(GlobalKernel, body=body, tiles=2, load_bytes=8 + 2 * 64, store_bytes=4, reason="test", tensor="y")
    result = simulate(build.program(), {"x": np.arange(8, dtype=np.int8).reshape(1, 2, 2, 2)})
    assert result.tensors["y"].ravel().tolist() == [-2, -1, 0, 1]  # (3x - (x+4) + 1) >> 1
    assert (result.timeline.load_bytes, result.timeline.store_bytes) == (136, 4)
    assert {span.engines for span in result.timeline.spans} == {("tiu", "gdma")}


def test_without_sanitizer_every_run_starts_from_zeroed_memory() -> None:
    build = Builder()
    build.tensor("y", neuron(0, (2,)), "output")
    build.add(Move, input=neuron(64, (2,)), output=neuron(0, (2,)), tensor="y")
    build.add(Fill, output=neuron(64, (2,)), value=7)
    simulator = Simulator(build.program(), options=SimulatorOptions(sanitize=False))
    assert [simulator.run({}).tensors["y"].tolist() for _ in range(2)] == [[0, 0], [0, 0]]


# -------------------------------------------------------------------------------------------------------- refusals


def test_uninitialised_local_memory() -> None:
    build = Builder()
    build.add(Fill, output=lmem(0, (1, 3, 2, 2)), value=1)
    build.add(Arith, op="add1", step="h0", kind="add", a=lmem(0, (1, 3, 2, 3)), b=1.0, output=lmem(64, (1, 3, 2, 3)))
    refused(
        build,
        r"Arith 1 \(tiu\) of op 'add1' step 'h0': reads 6 of the 18 bytes of its i8\[1, 3, 2, 3\] operand "
        r"uninitialised \(lanes 0-2, local bytes \[4, 6\)\); load or compute",
    )


def test_uninitialised_global_memory() -> None:
    build = Builder()
    build.add(Fill, output=neuron(0, (4,)), value=1)
    build.add(Move, 0, input=neuron(2, (4,)), output=neuron(64, (4,)))
    refused(build, r"Move 2 \(gdma\).*reads 2 of the 4 bytes.*global memory \[0x200000004, 0x200000006\)")


def test_a_stored_tensor_with_a_gap() -> None:
    build = Builder()
    build.tensor("y", neuron(0, (4,)), "output")
    build.add(Fill, output=neuron(0, (3,)), value=1, tensor="y")
    refused(build, r"tensor 'y', complete after Fill 1 \(gdma\) of op 'op',: reads 1 of the 4 bytes")


@pytest.mark.parametrize("sanitize", [True, False])
def test_bounds_hold_with_and_without_sanitizer(sanitize: bool) -> None:
    for view, message in (
        (lmem(262144 - 64, (1, 1, 1, 65)), r"Fill 1 \(gdma\).*lanes 0-0, local bytes \[262,080, 262,145\)"),
        (neuron((1 << 16) - 1, (2,)), r"Fill 1 \(gdma\).*region neurons .* ends before"),
        (neuron(-1, (1,)), r"no region of global memory holds address 0x1ffffffff"),
    ):
        build = Builder()
        build.add(Fill, output=view, value=1)
        with pytest.raises(SimulationError, match=message):
            Simulator(build.program(), options=SimulatorOptions(sanitize=sanitize))


def test_coefficients_are_read_only() -> None:
    build = Builder()
    weight = build.coefficient(np.ones(4, np.int8))
    build.add(Fill, output=weight, value=1)
    refused(build, rf"Fill 1 \(gdma\).*region coefficients \[{COEFF:#x}, .*read-only; store results in the neuron")


def drop_load_dep(build: Builder) -> None:
    """The addition no longer waits for its load."""
    command = build.commands[1]
    build.commands[1] = Arith(id=1, dep=0, op="add1", kind="add", a=command.a, b=command.b, output=command.output)


def drop_store_dep(build: Builder) -> None:
    """The store no longer waits for the addition."""
    command = build.commands[2]
    build.commands[2] = Move(id=2, dep=0, op="store", input=command.input, output=command.output, tensor="y")


@pytest.mark.parametrize(
    "spoil, message",
    [
        (drop_load_dep, r"Arith 1 \(tiu\) of op 'add1' reads lanes 0-2, local bytes \[0, 16\) and Move 1 \(gdma\)"),
        (
            drop_store_dep,
            r"Arith 1 .* writes lanes 0-2, local bytes \[1,024, 1,040\) and Move 2 \(gdma\) of op 'store'",
        ),
    ],
)
def test_races_are_found_in_any_timing(spoil: Callable[[Builder], None], message: str) -> None:
    for dma in ("early", "late"):
        build = doubled()
        spoil(build)
        with pytest.raises(SimulationError, match="race: " + message):
            Simulator(build.program(), options=SimulatorOptions(dma=dma))  # type: ignore[arg-type]


def test_a_buffer_overwritten_too_early_is_a_race() -> None:
    build = doubled(((0, 1), (1, 2), (2, 4)))
    load = build.commands[3]
    assert (load.step, load.dep) == ("h2", 1)  # the third load reuses the first buffer
    build.commands[3] = Move(id=load.id, dep=0, op="load", step="h2", input=load.input, output=load.output)
    refused(build, r"race: Arith 1 \(tiu\) of op 'op' step 'h0' reads .* and Move 3 \(gdma\) of op 'load' step 'h2'")


@pytest.mark.parametrize(
    "other, shares",
    [
        (lmem(1, (1, 64, 2, 1), layout="strided", strides=(4, 4, 2, 1)), False),  # odd bytes against even bytes
        (lmem(2, (1, 64, 1, 1), layout="compact"), True),
        (lmem(2, (1, 8, 1, 1), layout="compact", lane=20), True),
        (lmem(3, (1, 8, 1, 1), layout="compact", lane=20), False),
    ],
)
def test_races_are_decided_by_bytes_not_by_extents(other: View, shares: bool) -> None:
    build = Builder()
    build.add(Fill, output=other, value=1)
    even = lmem(0, (1, 64, 2, 1), layout="strided", strides=(4, 4, 2, 1))
    build.add(Arith, 0, kind="copy", a=lmem(64, (1, 64, 2, 1)), output=even)
    build.commands.insert(0, Fill(id=1, dep=0, op="init", output=lmem(64, (1, 64, 2, 1)), value=0))
    build.commands[1] = Fill(id=2, dep=0, op="op", output=other, value=1)
    arith = build.commands[2]
    build.commands[2] = Arith(id=1, dep=1, op="copy", kind="copy", a=arith.a, output=arith.output)
    if shares:
        refused(build, "race: Arith 1 .* and Fill 2")
    else:
        Simulator(build.program())


def test_one_race_check_does_not_disturb_the_next() -> None:
    even = lmem(0, (1, 8, 2, 1), layout="strided", strides=(4, 4, 2, 1))
    odd = lmem(1, (1, 8, 2, 1), layout="strided", strides=(4, 4, 2, 1))
    source = lmem(64, (1, 8, 2, 1))
    build = Builder()
    build.add(Fill, 0, output=source, value=0)
    build.add(Fill, 0, output=odd, value=0)  # during the first Arith
    build.add(Arith, 1, kind="copy", a=source, output=even)
    build.add(Fill, 1, output=even, value=0)  # after the first Arith, during the second
    build.add(Arith, 2, kind="copy", a=source, output=odd)
    Simulator(build.program())


def test_deadlock_names_both_waiting_commands() -> None:
    build = Builder()
    build.add(Fill, 1, op="a", output=lmem(0, (1, 1, 1, 1)), value=1)
    build.add(Arith, 1, op="b", kind="copy", a=lmem(0, (1, 1, 1, 1)), output=lmem(64, (1, 1, 1, 1)))
    refused(
        build,
        r"deadlock: Arith 1 \(tiu\) of op 'b' waits for gdma command 1, gdma has finished 0; "
        r"Fill 1 \(gdma\) of op 'a' waits for tiu command 1, tiu has finished 0",
    )


def test_ids_and_dependencies_are_checked() -> None:
    build = Builder()
    build.add(Fill, 3, output=lmem(0, (1, 1, 1, 1)), value=1)
    refused(build, r"Fill 1 \(gdma\).*waits for tiu command 3, but there are 0")
    build = Builder()
    build.commands.append(Fill(id=2, dep=0, op="a", output=lmem(0, (1, 1, 1, 1)), value=1))
    refused(build, r"Fill 2 \(gdma\).*expects 1 here")


def test_illegal_commands_are_refused() -> None:
    build = Builder()
    build.add(Fill, output=lmem(8, (1, 1, 1, 1)), value=1)
    refused(build, r"Fill 1 \(gdma\) of op 'op' on bm1684x: addresses requires output \(aligned\)", CommandError)


@pytest.mark.parametrize(
    "inputs, message",
    [
        ({}, "inputs are x; got none"),
        ({"x": X, "z": X}, "inputs are x; got x, z"),
        ({"x": X.astype(np.float32) + 0.5}, r"input 'x': the program takes i8 of shape \(1, 3, 4, 4\), got float32"),
        ({"x": X[:, :2]}, r"got int8 of shape \(1, 2, 4, 4\)"),
    ],
)
def test_wrong_inputs(inputs: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        simulate(doubled().program(), inputs)


def test_wrong_tensor_tables() -> None:
    build = doubled()
    build.tensor("z", neuron(64, (1,)), "output")
    refused(build, "no command stores output z")
    build = Builder()
    build.add(Fill, output=neuron(0, (1,)), value=1, tensor="ghost")
    refused(build, r"Fill 1 \(gdma\) of op 'op': stores tensor 'ghost', which is not in")
    build = Builder()
    build.tensor("z", neuron(0, (1,)), "output", parts=("z",))
    refused(build, "tensor 'z': its parts z must be other tensors")


def test_a_truncated_coefficient_image() -> None:
    build = Builder()
    build.coefficient(np.ones(4, np.int8))
    with pytest.raises(SimulationError, match="image has 4 bytes, the header promises 8"):
        Simulator(build.program(coeff_bytes=8))


# ------------------------------------------------------------------------------------------------------- the clock


def conv_group() -> Builder:
    """Load input and filter, convolve 3x3, store."""
    build = Builder()
    x = build.tensor("x", neuron(0, (1, 64, 8, 8)), "input")
    weight = build.coefficient(np.ones((1, 128, 1, 64 * 9), np.int8))
    y = build.tensor("y", neuron(8192, (1, 128, 8, 8)), "output")
    inside, filters, out = lmem(0, x.shape), lmem(4096, weight.shape, layout="compact"), lmem(8192, y.shape)
    build.add(Move, input=x, output=inside)
    build.add(Move, 0, input=weight, output=filters)
    fields = {"kernel": (3, 3), "pads": (1, 1, 1, 1), "requant": Requant(rshift=8)}
    build.add(Conv, input=inside, filter=filters, output=out, **fields)
    build.add(Move, input=out, output=y, tensor="y", group=1)
    return build


def test_timeline_by_hand() -> None:
    """hardware.md 5.1 and 5.2 at 1 GHz: bytes / rate, and the requant's steps of 32 bits after the products of a CONV.

    Runs of 64 bytes in local memory cost as much as 256; one page of 4 KiB has one channel of four, two have two.
    """
    build = conv_group()
    found = timeline(build.program(), build.chip)
    load, weights = 4 * 4 * 4096 / 54.03, 128 * 576 / 54.03
    conv = 2 * (64 // 4) * 9 + 2 * (64 // 16)
    store = 4 * 2 * 8192 / 41.0
    stops = [span.stop_ns for span in found.spans]
    assert stops == pytest.approx([load, load + weights, load + weights + conv, load + weights + conv + store])
    total = stops[-1]
    assert found.cycles == pytest.approx(total, abs=1) and found.milliseconds == pytest.approx(total / 1e6)
    assert found.busy == pytest.approx({"tiu": conv / total, "gdma": (total - conv) / total})
    assert (found.load_bytes, found.store_bytes) == (4096 + 128 * 576, 8192)
    assert found.groups[1].cycles == pytest.approx(store, abs=1) and found.groups[1].store_bytes == 8192
    assert sum(group.cycles for group in found.groups.values()) == found.cycles


def test_engines_overlap_unless_a_dependency_orders_them() -> None:
    rows = ((0, 1), (1, 2), (2, 3), (3, 4))
    build = doubled(rows)
    spans = timeline(build.program(), build.chip).spans
    serial = sum(span.stop_ns - span.start_ns for span in spans)
    assert max(span.stop_ns for span in spans) < serial
    ends = {span.index: span.stop_ns for span in spans}
    for span in spans:
        command = build.commands[span.index]
        if command.dep:
            waits = next(i for i, c in enumerate(build.commands) if c.engine != command.engine and c.id == command.dep)
            assert span.start_ns >= ends[waits]


def test_a_global_kernel_takes_the_longer_of_its_two_sides() -> None:
    build = Builder()
    view = neuron(0, (1, 1, 1, 1), "f32")
    wide = neuron(0, (1, 64, 16, 16), "f32")
    body = Arith(id=1, dep=0, op="a", kind="copy", a=wide, output=wide)
    build.add(Move, input=view, output=neuron(64, view.shape, "f32"))
    build.add(GlobalKernel, 0, body=body, tiles=2, load_bytes=wide.nbytes, store_bytes=wide.nbytes)
    move, kernel = timeline(build.program(), build.chip).spans
    # a run as short as four bytes counts as 256, and one page has a quarter of the rate at both ends
    assert move.stop_ns == pytest.approx(4 * 4 * 256 / 26.08)
    assert kernel.start_ns == move.stop_ns  # it needs both engines
    # it moves at the rates of tensors; nothing is stored before its one piece is computed, 16 vectors in every lane
    assert kernel.stop_ns - kernel.start_ns == pytest.approx(wide.nbytes / 54.03 + wide.nbytes / 41.0 + 16)


def test_trace_has_a_track_per_engine() -> None:
    build = conv_group()
    program = build.program()
    events = json.loads(json.dumps(trace(program, timeline(program, build.chip))))["traceEvents"]
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    slices = [event for event in events if event["ph"] == "X"]
    assert [(tracks[s["tid"]], s["cat"]) for s in slices] == [
        ("GDMA", "Move"), ("GDMA", "Move"), ("TIU", "Conv"), ("GDMA", "Move"), ("layers", "layer"),
    ]  # fmt: skip
    assert slices[0]["dur"] == pytest.approx(16 * 4096 / 54.03 / 1000, abs=0.0005)  # whole nanoseconds


def test_thousands_of_commands_prepare_quickly() -> None:
    """The race check compares windows, not all pairs: 6000 commands in about a second of one core (generous for CI)."""
    build = Builder(neuron_bytes=1 << 20)
    views = [lmem(i * 64, (1, 1, 1, 8)) for i in range(4)]
    build.add(Fill, output=views[0], value=1)
    build.add(Fill, output=views[2], value=1)
    for i in range(3000):
        build.add(Arith, max(2, i + 1), kind="copy", a=views[i % 2 * 2], output=views[i % 2 * 2 + 1])
        build.add(Move, i + 1, input=views[i % 2 * 2 + 1], output=neuron(8 * i, (1, 1, 1, 8)))
    start = time.process_time()
    Simulator(build.program())
    assert time.process_time() - start < 10
