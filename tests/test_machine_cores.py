"""Several cores on the machine: messages, what happens before what, races, every legal order, the shared clock."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from streams import Builder, gmem, lmem, neuron

from tpusim import chips
from tpusim.errors import CommandError, ConfigError, SimulationError
from tpusim.isa.blocks import offsets
from tpusim.isa.check import check
from tpusim.isa.commands import (
    Arith,
    DmaSendMessage,
    DmaWaitMessage,
    Fill,
    Move,
    SendMessage,
    WaitMessage,
)
from tpusim.isa.listing import assemble, listing
from tpusim.isa.region import View, itemsize
from tpusim.isa.stream import load, save
from tpusim.isa.text import command_line, parse_command
from tpusim.simulator import Simulator, SimulatorOptions, timeline, trace
from tpusim.simulator.overlap import common_byte
from tpusim.simulator.races import check_races
from tpusim.simulator.schedule import Queues, order

SHAPE = (1, 2, 2, 2)
ORDERS = [
    SimulatorOptions("early"), SimulatorOptions("late"), *(SimulatorOptions("random", seed) for seed in range(8)),
]  # fmt: skip


def handed_over(cores: int = 2, chip: str = "bm1688") -> Builder:
    """Core 0 doubles x and stores it; after a barrier every core adds its part to a separate sum and stores it."""
    build = Builder(chip)
    build.tensor("x", neuron(0, SHAPE), "input")
    build.tensor("twice", neuron(64, SHAPE))
    local, sums = lmem(0, SHAPE), lmem(256, SHAPE)
    build.add(Move, input=neuron(0, SHAPE), output=local)
    build.add(Arith, kind="add", a=local, b=local, output=sums)
    build.add(Move, input=sums, output=neuron(64, SHAPE), tensor="twice")
    build.barrier(0, cores)
    for core in range(cores):
        out = build.tensor(f"y{core}", neuron(1024 + 64 * core, SHAPE), "output")
        build.add(Move, core=core, input=neuron(64, SHAPE), output=local)
        build.add(Arith, core=core, kind="add", a=local, b=float(core), output=sums)
        build.add(Move, core=core, input=sums, output=out, tensor=f"y{core}")
    return build


def refused(build: Builder, message: str) -> None:
    """Whatever the order."""
    for options in ORDERS:
        with pytest.raises(SimulationError, match=message):
            Simulator(build.program(), options=options)


# -------------------------------------------------------------------------------------------------- values and orders


@pytest.mark.parametrize(("cores", "chip"), [(2, "bm1688"), (8, "bm1690")])
def test_cores_have_their_own_local_memory_and_share_the_global_one(cores: int, chip: str) -> None:
    program = handed_over(cores, chip).program()
    x = np.arange(8, dtype=np.int8).reshape(SHAPE)
    for options in ORDERS:
        machine = Simulator(program, options=options)
        for _ in range(2):
            tensors = machine.run({"x": x}).tensors
            for core in range(cores):
                np.testing.assert_array_equal(tensors[f"y{core}"], 2 * x + core)


def test_orders_differ_and_a_seed_is_one_order() -> None:
    queues = Queues(handed_over().program().commands)
    found = [tuple(order(queues, options.dma, options.seed)) for options in ORDERS]
    assert len(set(found)) > len(ORDERS) // 2
    assert found == [tuple(order(queues, options.dma, options.seed)) for options in ORDERS]


@pytest.mark.parametrize("seed", range(5))
def test_a_random_order_keeps_every_edge(seed: int) -> None:
    commands = handed_over(8, "bm1690").program().commands
    place = {index: at for at, index in enumerate(order(Queues(commands), "random", seed))}
    by_id = {(c.core, c.engine, c.id): i for i, c in enumerate(commands)}
    for i, c in enumerate(commands):
        other = "gdma" if c.engine == "tiu" else "tiu"
        earlier = [(c.core, c.engine, c.id - 1), (c.core, other, c.dep)]
        assert all(place[by_id[key]] < place[i] for key in earlier if key[2])
        if isinstance(c, WaitMessage):
            assert all(place[j] < place[i] for j, s in enumerate(commands) if isinstance(s, SendMessage))


def test_options_say_what_they_need() -> None:
    with pytest.raises(ConfigError, match="dma must be one of early, late, random, got 'soon'"):
        SimulatorOptions(dma="soon")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="seed 3: dma random is required, got late"):
        SimulatorOptions("late", 3)


def test_uninitialised_local_memory_of_another_core() -> None:
    build = handed_over()
    build.commands[-2] = structs.replace(build.commands[-2], a=lmem(512, SHAPE))
    refused(build, r"Arith 3 \(tiu of core 1\) of op 'op': reads 8 of the 8 bytes .*lanes 0-1, local bytes")


def test_a_core_that_the_chip_does_not_have() -> None:
    for chip, core in (("bm1684x", 1), ("bm1688", 2), ("bm1688", 10**8)):
        build = Builder(chip)
        build.add(Fill, core=core, output=lmem(0, SHAPE), value=0)
        with pytest.raises(SimulationError, match=rf"Fill 1 \(gdma of core {core}\).*: {chip} has [12] core"):
            Simulator(build.program(), options=SimulatorOptions(sanitize=False))


# ------------------------------------------------------------------------------------------------------------ messages


def changed(build: Builder, kind: type[Any], nth: int, **fields: Any) -> Builder:
    """The n-th command of a kind with other fields."""
    at = [i for i, c in enumerate(build.commands) if isinstance(c, kind)][nth]
    build.commands[at] = structs.replace(build.commands[at], **fields)
    return build


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda b: changed(b, WaitMessage, 1, count=3), "deadlock: .*WaitMessage 2 .tiu of core 1. of op 'op' waits "
         "for 3 sends of message 0, there were 2; .*send the message from every core"),
        (lambda b: changed(b, SendMessage, 1, message=7), "deadlock: WaitMessage 3 .tiu. .* there were 1; gdma has "
         r"finished all|deadlock: WaitMessage 3 \(tiu\) .* waits for 2 sends of message 0, there were 1; "),
        (lambda b: changed(b, WaitMessage, 0, count=1), r"message 0: WaitMessage 3 \(tiu\) of op 'op' counts 1 sends "
         "of it, there are 2; with another count timing decides"),
        (lambda b: changed(b, SendMessage, 0, count=3), "message 0: SendMessage|deadlock"),
    ],
)  # fmt: skip
def test_wrong_counts_are_found(spoil: Callable[[Builder], Builder], message: str) -> None:
    refused(spoil(handed_over()), message)


def test_a_dropped_barrier_is_a_race_even_if_the_values_are_right() -> None:
    build = handed_over()
    build.commands = [c for c in build.commands if not isinstance(c, SendMessage | WaitMessage)]
    counts: dict[tuple[int, str], int] = {}
    for i, c in enumerate(build.commands):  # numbered anew; dependencies on messages are gone with them
        counts[c.core, c.engine] = counts.get((c.core, c.engine), 0) + 1
        dep = min(c.dep, counts.get((c.core, "gdma" if c.engine == "tiu" else "tiu"), 0))
        build.commands[i] = structs.replace(c, id=counts[c.core, c.engine], dep=dep)
    x = np.arange(8, dtype=np.int8).reshape(SHAPE)
    found = [
        Simulator(build.program(), options=replace(options, sanitize=False)).run({"x": x}).tensors["y1"]
        for options in ORDERS
    ]
    assert {bool((y == 2 * x + 1).all()) for y in found} == {False, True}  # it is left to chance
    refused(
        build,
        r"race: Move 2 \(gdma\) of op 'op' writes global memory \[0x200000040, 0x200000048\) and Move 1 \(gdma of core "
        r"1\) .* overlap \(at global byte 0x200000040\), and no dependency orders the two: Move 2 .* is known to start "
        r"after no command of gdma of core 1, Move 1 .* after no command of gdma; let the core of the earlier one send",
    )


def test_a_transfer_that_does_not_wait_for_the_message_is_a_race() -> None:
    refused(changed(handed_over(), Move, 4, dep=1), r"race: Move 2 \(gdma\).* and Move 1 \(gdma of core 1\)")


def test_a_message_number_is_used_again_only_behind_its_last_wait() -> None:
    build = handed_over()
    build.barrier(1)
    build.barrier(0)  # whoever sends it again knows by message 1 that all have taken it
    Simulator(build.program())
    build = handed_over()
    build.barrier(0)
    refused(build, r"deadlock: .* of message 0, there were|message 0: .* (counts 2|may send it again before)")


def test_a_number_that_is_used_again_too_early_is_found_whatever_the_order() -> None:
    build = Builder("bm1688")
    for _ in range(2):
        build.add(SendMessage, core=0, message=0, count=1)
        build.add(WaitMessage, core=1, message=0, count=1)
    refused(
        build,
        r"message 0: SendMessage 2 \(tiu\) of op 'op' may send it again before WaitMessage 1 \(tiu of core 1\) .* took"
        r"|message 0: WaitMessage 1 \(tiu of core 1\) of op 'op' counts 1 sends of it, there are 2|deadlock",
    )


def test_local_memories_of_two_cores_do_not_race() -> None:
    build = Builder("bm1688")
    for core in (0, 1):
        build.add(Fill, core=core, output=lmem(0, SHAPE), value=core)
    Simulator(build.program())
    for core in (0, 1):
        build.add(Fill, core=core, output=neuron(0, SHAPE), value=core)
    refused(build, r"race: Fill 2 \(gdma\) .* and Fill 2 \(gdma of core 1\)")


def test_dma_queues_have_messages_too() -> None:
    build = Builder("bm1688")
    build.add(Fill, output=neuron(1024, SHAPE), value=2)
    build.add(DmaSendMessage, message=5, count=1)
    build.add(DmaWaitMessage, core=1, message=5, count=1)
    build.tensor("y", neuron(0, SHAPE), "output")
    build.add(Move, core=1, input=neuron(1024, SHAPE), output=neuron(0, SHAPE), tensor="y")
    for options in ORDERS:
        assert (Simulator(build.program(), options=options).run({}).tensors["y"] == 2).all()


def test_messages_are_legal_on_chips_with_several_cores() -> None:
    fields: dict[str, Any] = {"id": 1, "dep": 0, "op": "b"}
    check(SendMessage(message=511, count=127, core=1, **fields), chips.load("bm1688"))
    for message, count in ((512, 1), (-1, 1), (0, 0), (0, 128)):
        with pytest.raises(CommandError, match=f"messages requires .* got message {message}, count {count}"):
            check(WaitMessage(message=message, count=count, **fields), chips.load("bm1690"))
    with pytest.raises(CommandError, match="cores requires a core within 0-7, got 8"):
        check(WaitMessage(message=0, count=1, core=8, **fields), chips.load("bm1690"))


# ---------------------------------------------------------------------------------------------------- text and file


def test_cores_and_messages_in_text_and_file(tmp_path: Path) -> None:
    program = handed_over(8, "bm1690").program()
    assert assemble(listing(program), program.coefficients).commands == program.commands
    save(program, tmp_path / "p.tpusim")
    assert load(tmp_path / "p.tpusim").commands == program.commands
    line = command_line(WaitMessage(id=3, dep=2, core=1, op="b", message=4, count=2))
    assert line.split() == ["tiu", "3", "dep=2", "wait_msg", "core=1", "op=b", "message=4", "count=2"]
    line = command_line(DmaSendMessage(id=3, dep=2, op="b", message=0, count=2))
    assert line.split() == ["gdma", "3", "dep=2", "dma_send_msg", "op=b", "message=0", "count=2"]
    assert parse_command(line) == DmaSendMessage(id=3, dep=2, op="b", message=0, count=2)


# ------------------------------------------------------------------------------------- what races are, by brute force


def ordered(commands: tuple[Any, ...]) -> np.ndarray:
    """[i, j]: i has finished when j starts in every legal order; paths through the graph of all edges."""
    count = len(commands)
    graph = np.zeros((count, count), np.bool_)
    by_id = {(c.core, c.engine, c.id): i for i, c in enumerate(commands)}
    for i, c in enumerate(commands):
        other = "gdma" if c.engine == "tiu" else "tiu"
        for key in ((c.core, c.engine, c.id - 1), (c.core, other, c.dep)):
            if key[2]:
                graph[by_id[key], i] = True
        if isinstance(c, WaitMessage):
            for j, s in enumerate(commands):
                graph[j, i] |= isinstance(s, SendMessage) and s.message == c.message
    for k in range(count):
        graph |= graph[:, k : k + 1] & graph[k]
    return graph


def racy(commands: tuple[Any, ...], chip: Any) -> bool:
    graph = ordered(commands)

    def cells(views: tuple[View, ...], core: int) -> set[tuple[Any, ...]]:
        found: set[tuple[Any, ...]] = set()
        for view in views:
            owner = core if view.memory == "lmem" else -1
            for at in offsets(view, chip).ravel().tolist():
                found |= {(owner, at + i) for i in range(itemsize(view.dtype))}
        return found

    sets = [(cells(c.reads(), c.core), cells(c.writes(), c.core)) for c in commands]
    for i, (reads, writes) in enumerate(sets):
        for j in range(i):
            if not (graph[i, j] or graph[j, i]) and (writes & (sets[j][0] | sets[j][1]) or reads & sets[j][1]):
                return True
    return False


@pytest.mark.parametrize("seed", range(6))
def test_races_are_what_no_path_orders(seed: int) -> None:
    """Random programs of 2 cores, with and without races, against reachability over the graph of all edges."""
    rng = np.random.default_rng(seed)
    verdicts: list[bool] = []
    for _ in range(25):
        build = Builder("bm1688")
        message = 0
        for _ in range(int(rng.integers(4, 16))):
            core = int(rng.integers(2))
            at, size = int(rng.integers(6)) * 2, int(rng.integers(1, 4))
            where = neuron(64 * int(rng.integers(2)) + at, (1, 1, 1, size))
            kind = rng.integers(5)
            if kind == 0:
                build.barrier(message)
                message += 1
                continue
            tiu = kind == 1
            limit = build.counts[core, "gdma" if tiu else "tiu"]
            dep = limit if rng.random() < 0.7 else int(rng.integers(limit + 1))
            local = lmem(16 * int(rng.integers(3)), (1, 1, 1, size))
            if tiu:
                other = lmem(16 * int(rng.integers(3)), (1, 1, 1, size))
                build.add(Arith, dep, core=core, kind="copy", a=local, output=other)
            elif kind == 2:
                build.add(Fill, dep, core=core, output=local, value=1)
            else:
                pair = (local, where) if rng.random() < 0.5 else (where, local)
                build.add(Move, dep, core=core, input=pair[0], output=pair[1])
        commands = build.program().commands
        machine = Simulator(build.program(), options=SimulatorOptions(sanitize=False))
        wanted = racy(commands, build.chip)
        verdicts.append(wanted)
        for options in (SimulatorOptions("early"), SimulatorOptions("random", seed)):
            queues = Queues(commands)
            try:
                check_races(queues, order(queues, options.dma, options.seed), machine._memory)  # noqa: SLF001
            except SimulationError as error:
                assert wanted, error
            else:
                assert not wanted
    assert 0 < sum(verdicts) < len(verdicts)


@st.composite
def local_views(draw: st.DrawFn) -> View:
    dtype = draw(st.sampled_from(["i8", "i16", "i32"]))
    shape = tuple(draw(st.integers(1, most)) for most in (2, 40, 3, 4))
    size = itemsize(dtype)  # type: ignore[arg-type]
    address = draw(st.integers(0, 24)) * size
    if draw(st.booleans()):
        strides = tuple(draw(st.integers(0, 20)) for _ in range(4))
        return lmem(address, shape, dtype, "strided", strides=strides, lane=draw(st.integers(0, 31)))
    return lmem(address, shape, dtype, "compact", lane=draw(st.integers(0, 31)))


@st.composite
def global_views(draw: st.DrawFn) -> View:
    dtype = draw(st.sampled_from(["i8", "i32"]))
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=5)))
    address = draw(st.integers(0, 200))
    if draw(st.booleans()):
        strides = tuple(draw(st.lists(st.integers(0, 70), min_size=len(shape), max_size=len(shape))))
        return gmem(address, shape, dtype, "strided", strides=strides)
    return gmem(address, shape, dtype)


@settings(max_examples=300, deadline=None)
@given(st.tuples(local_views(), local_views()) | st.tuples(global_views(), global_views()))
def test_common_bytes_are_exact(pair: tuple[View, View]) -> None:
    chip = chips.load("bm1688")
    one, other = (set((offsets(v, chip).reshape(-1, 1) + np.arange(itemsize(v.dtype))).ravel().tolist()) for v in pair)
    found = common_byte(*pair, chip)
    assert (found in one & other) if one & other else found is None


def test_strange_strides_are_counted_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpusim.simulator.overlap._MOST_TRIALS", 3)
    strides = (97, 89, 83, 79, 73)
    one = gmem(0, (3, 3, 3, 3, 3), layout="strided", strides=strides)
    for address in range(0, 900, 7):
        wanted = address in set(offsets(one, chips.load("bm1688")).ravel().tolist())
        assert (common_byte(one, gmem(address, (1,)), chips.load("bm1688")) == address) == wanted


# ------------------------------------------------------------------------------------------------------------ the clock


def loads(chip: str, *sizes: int) -> Builder:
    """One load per core."""
    build = Builder(chip, neuron_bytes=1 << 20)
    for core, size in enumerate(sizes):
        view = neuron(0, (1, 1, 1, size))
        build.add(Move, core=core, input=view, output=lmem(0, view.shape))
    return build


def test_cores_that_load_together_load_slower() -> None:
    """15 GB/s alone, here half of it each when several cores load; a load waits 322 ns (hardware.md DH-08)."""
    build = loads("bm1688", 24000, 48000)
    slower = structs.replace(build.chip, several_cores_gbs=7.5)
    spans = timeline(build.program(), slower).spans
    together = 24000 / 7.5  # then the first is done, and the second goes on alone
    assert [s.stop_ns for s in spans] == pytest.approx([322 + together, 322 + together + 24000 / 15], rel=1e-3)
    assert [s.core for s in spans] == [0, 1]
    alone = timeline(loads("bm1688", 48000).program(), slower)
    assert alone.spans[0].stop_ns == pytest.approx(322 + 48000 / 15, rel=1e-3)


def test_cores_of_a_chip_with_rates_per_core_do_not_slow_each_other() -> None:
    build = loads("bm1690", *[60032] * 8)
    assert {s.stop_ns for s in timeline(build.program(), build.chip).spans} == {150 + 60032 / 68.264}


def test_everyone_waits_for_the_last_at_a_barrier() -> None:
    build = loads("bm1688", 64, 6400)
    build.barrier(0)
    build.add(Fill, output=lmem(0, SHAPE), value=1)
    program = build.program()
    found = timeline(program, build.chip)
    stops = {type(program.commands[s.index]).__name__ + str(s.core): (s.start_ns, s.stop_ns) for s in found.spans}
    cycle = 1000 / 900
    last = stops["Move1"][1]
    assert stops["SendMessage0"][1] < last and stops["SendMessage1"] == pytest.approx((last, last + cycle))
    assert stops["WaitMessage0"] == stops["WaitMessage1"] == pytest.approx((last + cycle, last + 2 * cycle))
    assert stops["Fill0"][0] == pytest.approx(last + 2 * cycle)
    assert found.core_busy[1]["gdma"] == pytest.approx((last) / (found.milliseconds * 1e6))
    assert found.busy["gdma"] == pytest.approx((found.core_busy[0]["gdma"] + found.core_busy[1]["gdma"]) / 2)


def test_trace_has_a_track_per_core_and_engine() -> None:
    program = handed_over().program()
    events = json.loads(json.dumps(trace(program, timeline(program, chips.load("bm1688")))))["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert list(names.values()) == [f"core {core} {track}" for core in (0, 1) for track in ("layers", "TIU", "GDMA")]
    for tid in names:
        spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and e["tid"] == tid)
        assert (spans or names[tid].endswith("layers")) and all(a[1] <= b[0] + 1e-9 for a, b in pairwise(spans))
