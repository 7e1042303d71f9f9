"""The step debugger: what it executes and undoes, where it stops, what it shows, what it compares."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders.debugged import changed, debugger, network
from networks import CHIPS
from rotation import first_of
from streams import Builder, lmem, neuron

from tpusim.errors import ConfigError, SimulationError, TpusimError
from tpusim.isa.blocks import offsets
from tpusim.isa.commands import Arith, Conv, Fill, Move
from tpusim.isa.layout import extent
from tpusim.isa.region import View, itemsize
from tpusim.simulator import Simulator, SimulatorOptions
from tpusim.simulator.debugger import ByteRange, Debugger, random_inputs

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "debugger.md"


def content(one: Debugger) -> tuple[int, ...]:
    """A checksum of each memory, of local memory up to the last byte that the program uses."""
    memory = one.machine.memories[0]
    views = [view for c in one.program.commands for _, view in c.operands() if view.memory == "lmem"]
    used = max(extent(view, one.chip).stop for view in views)
    lanes = memory.lmem.reshape(one.chip.lanes, -1)[:, :used]
    return zlib.crc32(lanes.tobytes()), *(zlib.crc32(array.tobytes()) for array in memory.gmem.values())


CASES = [(0, "bm1684"), (1, "bm1684"), (3, "bm1684x")]


# ------------------------------------------------------------------------------------------------------------ execution


@pytest.mark.parametrize(("seed", "chip"), CASES)
def test_it_computes_what_a_run_computes(seed: int, chip: str) -> None:
    program, _, feeds = network(seed, chip)
    for dma in ("early", "late"):
        options = SimulatorOptions(dma=dma)
        expected = Simulator(program, options=options).run(feeds).tensors
        one = Debugger(program, feeds, options=options)
        seen = {}
        while not one.at_end:
            one.step()
            for entry in program.tensors:
                stored = one.tensor(entry.name)
                if entry.role != "input" and stored.state == "complete":
                    seen[entry.name] = stored.values
        assert set(seen) == set(expected)
        assert all(seen[name].tobytes() == expected[name].tobytes() for name in expected)


@pytest.mark.parametrize("history_bytes", [1 << 28, 20_000, 0])
def test_going_back_restores_every_byte(history_bytes: int) -> None:
    """Whether from what was kept, or by running again from the start."""
    one = debugger(0, "bm1684", history_bytes=history_bytes)
    states = [content(one)]
    while not one.at_end:
        one.step()
        states.append(content(one))
        assert one._history.nbytes <= history_bytes  # pyright: ignore[reportPrivateUsage]
    assert len(set(states)) > len(states) // 2
    rng = np.random.default_rng(0)
    down = range(len(states) - 1, -1, -1 if history_bytes else -7)
    for target in [*down, *rng.integers(0, len(states), 12).tolist()]:
        stop = one.goto(target)
        assert stop.position == one.position == target
        assert content(one) == states[target], target
    assert one.back(10**6).position == 0 and one.restart().reason == "start"
    assert one.finish().reason == "end" and content(one) == states[-1]


def test_a_command_that_fails_has_not_run() -> None:
    build = Builder()
    shape = (1, 1, 1, 1)
    x, weights, bias = (
        build.coefficient(np.array(v, d).reshape(s))
        for v, d, s in (([127], np.int8, shape), ([127] * 64, np.int8, (1, 1, 1, 64)), ([2**31 - 1], np.int32, shape))
    )
    local = lmem(0, shape), lmem(64, (1, 1, 1, 64), layout="compact"), lmem(128, shape, "i32", layout="compact")
    for source, target in zip((x, weights, bias), local, strict=True):
        build.add(Move, 0, input=source, output=target)
    out = lmem(192, shape, "i32")
    build.add(Fill, 0, output=out, value=7)
    build.add(Conv, kernel=(1, 1), input=local[0], filter=local[1], bias=local[2], output=out)
    one = Debugger(build.program(), {})
    for _ in range(2):
        with pytest.raises(SimulationError, match="the accumulator reaches 2,147,499,776"):
            one.finish()
        assert one.position == 4 and one.results()[0].values == 7


def test_an_interrupt_leaves_no_half_of_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the last command of the network writes: its bytes are as before, and it can run again."""
    one = debugger()
    one.goto(len(one.order) - 1)
    before = content(one)
    execute = one.machine.execute

    def interrupted(index: int) -> None:
        execute(index)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(one.machine, "execute", interrupted)
        with pytest.raises(KeyboardInterrupt):
            one.step()
    assert not one.at_end and content(one) == before
    assert one.step().reason == "end" and content(one) != before


@pytest.mark.parametrize(("seed", "chip"), CASES)
def test_next_visits_every_op_and_slice(seed: int, chip: str) -> None:
    one = debugger(seed, chip)
    visited, expected = [], []
    for index in one.order:
        command = one.program.commands[index]
        work = (command.group, command.op, command.step)
        if command.engine == "tiu" and expected[-1:] != [work]:
            expected.append(work)
    while one.next().reason == "step":
        command = one.command
        assert command is not None and command.engine == "tiu"
        visited.append((command.group, command.op, command.step))
    assert visited in (expected, expected[1:]) and one.at_end


def test_step_counts_and_stops_at_the_end() -> None:
    one = debugger()
    assert one.last is None and one.step(3).position == 3
    last = one.last
    assert last is one.program.commands[one.order[2]]
    stop = one.step(10**9)
    assert (stop.reason, stop.next, one.command, one.where()) == ("end", "", None, None)
    assert one.step().reason == one.next().reason == one.resume().reason == "end"
    assert "at the end" in repr(one) and "at the end" in repr(stop)


# ---------------------------------------------------------------------------------------------------------- breakpoints


def bytes_of(view: View, one: Debugger) -> set[tuple[str, int]]:
    start = offsets(view, one.chip).reshape(-1)
    return {(view.memory, at) for at in (start[:, None] + np.arange(itemsize(view.dtype))).ravel().tolist()}


@pytest.mark.parametrize("chip", first_of(CHIPS))
def test_address_breakpoints_are_exact(chip: str) -> None:
    """Against the bytes of every element of every view, work areas among them."""
    one = debugger(3, chip)
    program = one.program
    touched = [
        [(bytes_of(v, one) if v.elements < 3000 else None, writes) for writes, views in
         ((False, c.reads()), (True, (*c.writes(), *c.work))) for v in views]
        for c in program.commands
    ]  # fmt: skip
    rng = np.random.default_rng(0)
    choices = [(i, n) for i, found in enumerate(touched) for n, (marks, _) in enumerate(found) if marks]
    for i, n in (choices[k] for k in rng.integers(0, len(choices), 12)):
        marks = sorted(touched[i][n][0] or set[tuple[str, int]]())
        memory, at = marks[int(rng.integers(len(marks)))]
        lane, byte = divmod(at, one.chip.lmem_bytes) if memory == "lmem" else (None, at)
        wanted = ByteRange("lmem" if memory == "lmem" else "gmem", byte, byte + 1, lane)
        for access in ("any", "read", "write"):
            kinds = {"any": (False, True), "read": (False,), "write": (True,)}[access]
            small = {k for k, found in enumerate(touched) for m, w in found if m and (memory, at) in m and w in kinds}
            large = {k for k, found in enumerate(touched) if any(m is None for m, _ in found)}
            if not small:
                continue
            made = one.break_on(address=wanted, access=access)
            assert small <= made.commands <= small | large
            one.delete(made.number)


@pytest.mark.parametrize(("seed", "chip"), [*CASES, (0, "bm1684x")])
def test_tensor_breakpoints_follow_the_bytes(seed: int, chip: str) -> None:
    """Readers of a tensor: commands that read a byte whose last writer made it. Marks on every byte say which that is.

    Only of views of whole bytes per element that are few enough to list; a reader missing or too many is an error.
    """
    one = debugger(seed, chip)
    program = one.program
    writer: dict[tuple[str, int], int] = {}
    readers: dict[int, set[int]] = {}
    for index in one.order:
        command = program.commands[index]
        for view in command.reads():
            for mark in bytes_of(view, one):
                if mark in writer:
                    readers.setdefault(writer[mark], set()).add(index)
        for view in command.writes():
            writer.update(dict.fromkeys(bytes_of(view, one), index))
    for name in dict.fromkeys(location.tensor for location in program.locations):
        makers = {
            i for i, c in enumerate(program.commands)
            if any((c.op, c.step, c.group) == (d.op, d.step, d.group) for location in program.locations
                   if location.tensor == name for d in [program.commands[location.command]])
            and any(bytes_of(w, one) & bytes_of(location.view, one) for w in c.writes()
                    for location in program.locations if location.tensor == name)
        }  # fmt: skip
        stores = {i for i, c in enumerate(program.commands) if c.tensor == name}
        complete = {location.command for location in program.locations if location.tensor == name}
        expected = {r for w in complete | stores for r in readers.get(w, ())}
        found = one.break_on(tensor=name, access="read").commands if expected else frozenset()
        assert expected <= found <= expected | {r for w in makers for r in readers.get(w, ())} - complete, name
        written = one.break_on(tensor=name, access="write").commands
        assert complete | stores <= written <= makers | stores


def test_breakpoints_stop_before_their_commands_both_ways() -> None:
    one = debugger(3)
    op = one.program.commands[one.order[len(one.order) // 2]].op
    made = one.break_on(op=op)
    places = [p for p, index in enumerate(one.order) if one.program.commands[index].op == op]
    seen = []
    while (stop := one.resume()).reason == "breakpoint":
        assert stop.breakpoints == (made,) and f"of op '{op}'" in stop.next
        seen.append(stop.position)
    assert seen == [p for p in places if p > 0]
    back = []
    while (stop := one.resume_back()).reason == "breakpoint":
        back.append(stop.position)
    assert back == [p for p in reversed(places) if p > 0] or back == list(reversed(places))
    one.enable(made.number, on=False)
    assert one.resume().reason == "end" and "off" in repr(one.breakpoints)
    one.enable(made.number)
    one.restart()
    assert one.step(10**6).position == next(p for p in places if p > 0)
    one.delete(made.number)
    assert one.resume().reason == "end"


def test_a_breakpoint_on_a_command() -> None:
    one = debugger()
    tiu = one.break_on(command=("tiu", 2))
    assert one.resume().breakpoints == (tiu,)
    command = one.command
    assert command is not None and (command.engine, command.id) == ("tiu", 2)
    place = one.where()
    assert place is not None and place.label == command.label and place.stage == "compute"
    spans = {span.index: span.start_ns for span in one.machine.timeline.spans}
    assert place.cycles == int(spans[place.index] * one.chip.tiu_mhz / 1000 + 1e-6)


# ----------------------------------------------------------------------------------------------------------------- look


def location_of(one: Debugger) -> str:
    """The tensor of a slice that the last command completed."""
    last = one.order[one.position - 1]
    return next((location.tensor for location in one.program.locations if location.command == last), "none")


@pytest.mark.parametrize(("seed", "chip"), CASES)
def test_slices_are_parts_of_the_flat_tensors(seed: int, chip: str) -> None:
    """As long as they are in local memory; every element where `place` says it is."""
    _, flat, _ = network(seed, chip)
    one, count = debugger(seed, chip), 0
    rng = np.random.default_rng(seed)
    while not one.at_end:
        one.step()
        for found in one.slices() if one.position % 4 == 0 else one.slices(location_of(one)):
            whole = flat[found.tensor].reshape(found.location.whole)
            part = whole[tuple(slice(s, s + n) for s, n in zip(found.start, found.values.shape, strict=True))]
            if found.values.dtype.kind in "iu":
                assert np.array_equal(found.values, part), found.title
            index = tuple(int(rng.integers(size)) for size in found.values.shape)
            lane, byte = found.place(index[0], index[1], index[3], index[4], index[2])
            size = found.values.dtype.itemsize
            assert one.bytes("lmem", byte, size, lane).values.tobytes() == found.values[index].tobytes()
            count += 1
    assert count > len(one.program.locations)
    held = {found.location for found in one.slices()}
    gone = [location for location in one.program.locations if location not in held]
    assert gone  # the end of a network does not hold its beginning
    newest = {location.tensor: location for location in one.program.locations}
    overwritten = next(name for name, location in newest.items() if location in gone)
    with pytest.raises(ConfigError, match="overwritten by"):
        one.slice(overwritten)


def test_queues_say_what_runs_and_what_waits() -> None:
    for dma in ("early", "late"):
        one = debugger(3, options=SimulatorOptions(dma=dma))
        waited = 0
        while not one.at_end:
            state = {queue.name.engine: queue for queue in one.queues()}
            command = one.command
            assert command is not None and state[command.engine].pending[0] == command.label
            assert sum(queue.finished for queue in state.values()) == one.position
            if dma == "early" and command.engine == "tiu":
                assert state["gdma"].pending == ()  # it ran ahead as far as it could
            waited += sum(bool(queue.waits) for queue in state.values())
            one.step()
        assert waited > 0 and all(q.finished == q.total and not q.pending and not q.waits for q in one.queues())


def test_reprs_are_short_and_say_where() -> None:
    one = debugger()
    one.next()
    one.step(3)
    looks = one, one.where(), one.slices()[0], one.results()[0], one.queues()[0], one.operands()[0]
    texts = [repr(look) for look in (*looks, one.tensor(one.program.tensors[0].name), one.bytes("lmem", 0, 40))]
    assert all(len(line) <= 180 for text in texts for line in text.split("\n"))
    assert all(len(text.split("\n")) < 80 for text in texts)
    assert "lane" in texts[2] and "local bytes" in texts[2] and texts[7].startswith("40 bytes of lane 0")


def test_random_inputs_are_seeded_and_in_the_stored_type() -> None:
    program, _, feeds = network(3, "bm1684x")
    one, other = random_inputs(program), random_inputs(program)
    assert all(one[n].tobytes() == other[n].tobytes() and one[n].dtype == feeds[n].dtype for n in feeds)
    assert any(random_inputs(program, 1)[n].tobytes() != one[n].tobytes() for n in one)
    assert Debugger(program).finish().reason == "end"
    build = Builder()
    build.tensor("x", neuron(0, (4, 1000), "i8"), role="input")
    values = random_inputs(build.program())["x"]
    assert values.min() == -128 and values.max() == 127


def test_what_is_asked_wrongly_is_an_error() -> None:
    one = debugger()
    wrong: list[tuple[Any, str]] = [
        (lambda: one.break_on(), "exactly one"),
        (lambda: one.break_on(op="a", tensor="b"), "exactly one"),
        (lambda: one.break_on(op="nothing"), "ops are"),
        (lambda: one.break_on(tensor="nothing"), "tensors are"),
        (lambda: one.break_on(command=("tiu", 10**6)), "has commands 1 to"),
        (lambda: one.break_on(address=ByteRange("gmem", 0, 8)), "no command touches gmem"),
        (lambda: one.delete(5), "no breakpoint 5"),
        (lambda: one.goto(-1), "0 to"),
        (lambda: one.tensor("nothing"), "no tensor 'nothing'"),
        (lambda: one.slice("nothing"), "never in local memory"),
        (lambda: one.slice(one.program.locations[-1].tensor), "no slice of .* is computed yet"),
        (lambda: one.bytes("gmem", 0, 8), "no region of global memory"),
        (lambda: one.bytes("lmem", one.chip.lmem_bytes - 4, 8), "bytes"),
        (lambda: one.bytes("lmem", 0, 8, lane=99), "lane 99"),
        (lambda: one.check(), "a reference is required"),
    ]
    for call, message in wrong:
        with pytest.raises(TpusimError, match=message):
            call()


def test_two_cores() -> None:
    """Local memory of each, ids of each queue, messages."""
    build = Builder("bm1688")
    shape = (1, 2, 2, 2)
    build.tensor("x", neuron(0, shape), "input")
    for core in (0, 1):
        build.add(Move, 0, core=core, op=f"load{core}", input=neuron(0, shape), output=lmem(0, shape))
        build.add(
            Arith, core=core, op=f"sum{core}", kind="add", a=lmem(0, shape), b=float(core), output=lmem(64, shape)
        )
    build.barrier(0)
    out = build.tensor("y", neuron(256, shape), "output")
    build.add(Move, core=1, op="store", input=lmem(64, shape), output=out, tensor="y")
    feeds = {"x": np.arange(8, dtype=np.int8).reshape(shape)}
    one = Debugger(build.program(), feeds)
    one.break_on(command=("tiu", 1), core=1)
    stop = one.resume()
    assert "of core 1" in stop.next and "of core 1" in repr(stop)
    wanted = ByteRange("lmem", 64, 68, core=1)
    found = [one.program.commands[i] for i in one.break_on(address=wanted).commands]
    assert {command.op for command in found} == {"sum1", "store"}
    waits = [queue.waits for queue in one.queues()]
    assert any("sends of message 0" in text for text in waits)
    assert one.finish().reason == "end"
    assert np.array_equal(one.tensor("y").values, feeds["x"] + 1)
    assert one.bytes("lmem", 64, 4, 0, core=0).values.tolist() == [0, 1, 2, 3]
    assert one.bytes("lmem", 64, 4, 0, core=1).values.tolist() == [1, 2, 3, 4]
    with pytest.raises(ConfigError, match="core 2 is not used by the program; name one of its cores: 0, 1"):
        one.bytes("lmem", 64, 4, core=2)
    before = one.bytes("lmem", 64, 4, 0, core=1)
    one.restart()
    assert not one.bytes("lmem", 64, 4, 0, core=1).values.any()
    assert one.finish() and np.array_equal(one.bytes("lmem", 64, 4, 0, core=1).values, before.values)


# ---------------------------------------------------------------------------------------------------------------- check


@pytest.mark.parametrize(("seed", "chip"), CASES)
def test_wrong_values_stop_the_machine_where_they_are_made(seed: int, chip: str) -> None:
    program, flat, _ = network(seed, chip)
    right = debugger(seed, chip, reference=flat)
    assert right.resume().reason == "end" and right.mismatches == () and right.check().compared > 0
    name = [n for n in dict.fromkeys(loc.tensor for loc in program.locations) if flat[n].dtype.itemsize == 1][-1]
    one = debugger(seed, chip, reference=changed(flat, name))
    stop = one.resume()
    assert stop.reason == "wrong" and {m.tensor for m in stop.mismatches} == {name}
    last = one.last
    assert last is not None and stop.mismatches[0].command == last.label
    assert one.check().mismatches == stop.mismatches == one.mismatches
    assert str(stop.mismatches[0]) in repr(stop)
    before = content(one)
    one.back(3)
    assert one.mismatches == ()
    again = one.resume()  # the same verdict the second time
    assert again == stop and content(one) == before
    assert one.finish().reason == "end" and len(one.mismatches) >= 1


def test_nothing_pays_for_the_debugger() -> None:
    """Nothing that a run imports knows of it."""
    for path in (ROOT / "tpusim").rglob("*.py"):
        if "debugger" not in path.parts and path.name != "commands.py":
            assert "simulator.debugger" not in path.read_text(), path
