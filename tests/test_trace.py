"""trace.json: the trace event format, and what Perfetto's importer makes of it.

Perfetto's trace processor is a binary that its Python package downloads, so it is not at hand here. In its place stands
a reader with the rules of its JSON importer that can lose something: whole nanoseconds from microseconds (cut off in
older versions, rounded in newer ones), keys after an unknown one, threads by their number alone, a slice that ends
inside its neighbour.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from end_to_end import digits_run, report_of
from streams import Builder, lmem, neuron

from tpusim import chips, zoo
from tpusim.isa.commands import Arith, Fill, GlobalKernel, Move
from tpusim.isa.layout import extent
from tpusim.isa.stream import Program, load
from tpusim.running.pipeline import RunConfig, run
from tpusim.simulator import Timeline, timeline, trace
from tpusim.simulator.timing import Span
from tpusim.simulator.trace import _microseconds  # pyright: ignore[reportPrivateUsage]

Event = dict[str, Any]


def nanoseconds_cut(value: float) -> int:
    return int(value * 1000.0)


def nanoseconds_rounded(value: float) -> int:
    return round(value * 1000.0)


READERS = [nanoseconds_cut, nanoseconds_rounded]


def check_format(content: Any) -> list[Event]:
    """The events of a trace, each with the fields its kind must have, and nothing else than known kinds."""
    assert list(content)[:2] == ["displayTimeUnit", "traceEvents"]  # an unknown key hides what comes after it
    assert content["displayTimeUnit"] in ("ms", "ns")
    for event in content["traceEvents"]:
        assert isinstance(event["name"], str) and event["name"]
        assert all(type(event[key]) is int and event[key] > 0 for key in ("pid", "tid"))  # 0 is the idle thread
        assert isinstance(event["args"], dict)
        match event["ph"]:
            case "M":
                assert set(event) == {"name", "ph", "pid", "tid", "args"}
                assert set(event["args"]) in ({"name"}, {"sort_index"})
            case "X":
                assert set(event) == {"name", "cat", "ph", "pid", "tid", "ts", "dur", "args"}
                assert event["ts"] >= 0 and event["dur"] >= 0 and isinstance(event["cat"], str)
                assert all(isinstance(value, int | str) for value in event["args"].values())
            case "C":
                assert set(event) == {"name", "ph", "pid", "tid", "ts", "args"}
                assert event["ts"] >= 0 and event["args"]
                assert all(type(value) in (int, float) for value in event["args"].values())
            case "s" | "f":
                expected = {"name", "cat", "ph", "id", "pid", "tid", "ts", "args"} | (
                    {"bp"} if event["ph"] == "f" else set()
                )
                assert set(event) == expected and event.get("bp", "e") == "e"
            case other:
                raise AssertionError(other)
    return content["traceEvents"]


def threads(events: list[Event]) -> dict[int, str]:
    """Thread number -> name; one number is one thread of one process, and every slice has a named thread."""
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    owner: dict[int, set[int]] = defaultdict(set)
    for event in events:
        owner[event["tid"]].add(event["pid"])
    assert all(len(processes) == 1 for processes in owner.values())
    assert {e["tid"] for e in events if e["ph"] == "X"} <= set(names)
    assert {e["pid"] for e in events} == {e["pid"] for e in events if e["name"] == "process_name"}
    return names


def slices(events: list[Event], reader: Callable[[float], int]) -> dict[int, list[tuple[int, int, Event]]]:
    """(start, stop, event) of each thread in nanoseconds; none reaches into another one."""
    found: dict[int, list[tuple[int, int, Event]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start = reader(event["ts"])
            found[event["tid"]].append((start, start + reader(event["dur"]), event))
    for one in found.values():
        one.sort(key=lambda entry: entry[:2])
        for (_, stop, before), (start, _, after) in pairwise(one):
            assert stop <= start, (before, after)
    return found


def counters(events: list[Event]) -> dict[str, list[tuple[int, float]]]:
    """Process and track -> (nanoseconds, value), the times ascending."""
    found: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            for key, value in event["args"].items():
                found[f"{event['pid']} {event['name']} {key}"].append((nanoseconds_rounded(event["ts"]), value))
    for track in found.values():
        times = [at for at, _ in track]
        assert times == sorted(set(times))
    return dict(found)


def check_trace(content: Any, program: Program) -> None:
    """The trace shows the program: every command, its order, its bytes; the counters agree with both."""
    events, chip = check_format(content), chips.load(program.header.chip)
    names, found = threads(events), timeline(program, chip)
    for reader in READERS:
        tracks = slices(events, reader)
        for thread, entries in tracks.items():
            *core, engine = names[thread].lower().removeprefix("core ").split()
            number = int(core[0]) if core else 0
            if engine == "layers":
                check_layers(entries, [s for s in found.spans if s.core == number and "tiu" in s.engines], program)
                continue
            spans = [span for span in found.spans if engine in span.engines and span.core == number]
            labels = [program.commands[span.index].label for span in spans]
            assert sorted(e["args"]["command"] for _, _, e in entries) == sorted(labels)
            moments = {program.commands[span.index].label: round(span.start_ns) for span in spans}
            assert all(start == moments[e["args"]["command"]] for start, _, e in entries)
            busy = sum(stop - start for start, stop, _ in entries)
            share = found.core_busy[number][engine]
            assert busy == pytest.approx(share * found.milliseconds * 1e6, abs=len(entries))
        last = max(stop for entries in tracks.values() for _, stop, _ in entries)
        assert abs(ceil(last * chip.tiu_mhz / 1000) - found.cycles) <= 1
        check_arrows(events, tracks, program, reader)
    assert max(e["args"]["stop_cycle"] for e in events if "stop_cycle" in e["args"]) == found.cycles
    assert content["otherData"]["cycles"] == found.cycles
    check_counters(counters(events), program, found)


def check_layers(entries: list[tuple[int, int, Event]], spans: list[Span], program: Program) -> None:
    """Every TIU command that takes time lies in a slice of its op, and a slice begins and ends with one."""
    covered: dict[int, list[Span]] = defaultdict(list)
    for span in spans:
        start, stop = round(span.start_ns), round(span.stop_ns)
        if stop > start and program.commands[span.index].op:
            (index,) = [i for i, (first, last, _) in enumerate(entries) if first <= start and stop <= last]
            assert entries[index][2]["name"] == program.commands[span.index].op
            covered[index].append(span)
    for index, (first, last, _) in enumerate(entries):
        assert min(round(s.start_ns) for s in covered[index]) == first
        assert max(round(s.stop_ns) for s in covered[index]) == last


def check_arrows(
    events: list[Event],
    tracks: dict[int, list[tuple[int, int, Event]]],
    program: Program,
    reader: Callable[[float], int],
) -> None:
    """Every arrow leads from a command to a command that depends on it; no command waits longer without an arrow."""
    commands = {command.label: command for command in program.commands}

    def bound(event: Event) -> Any:
        at = reader(event["ts"])
        (label,) = [e["args"]["command"] for start, stop, e in tracks[event["tid"]] if start <= at < stop]
        return commands[label]

    ends = {kind: {e["id"]: bound(e) for e in events if e["ph"] == kind} for kind in "sf"}
    assert set(ends["s"]) == set(ends["f"])
    for number, waits in ends["f"].items():
        cause = ends["s"][number]
        assert (cause.id, cause.core) == (waits.dep, waits.core)
        assert cause.engine != waits.engine or isinstance(cause, GlobalKernel)


def check_counters(tracks: dict[str, list[tuple[int, float]]], program: Program, found: Timeline) -> None:
    chip, end = chips.load(program.header.chip), round(found.milliseconds * 1e6)
    kinds = ("local memory in use bytes per lane", "global memory GB/s load", "global memory GB/s store")
    assert set(tracks) <= {f"{core + 1} {kind}" for core in found.core_busy for kind in kinds}
    for name, total in (("load", found.load_bytes), ("store", found.store_bytes)):
        moved = 0.0
        for core in found.core_busy:
            track = tracks.get(f"{core + 1} global memory GB/s {name}", [(0, 0.0)])
            moved += sum(rate * (until - at) for (at, rate), (until, _) in pairwise(track))
            assert track[-1] == (track[-1][0], 0.0) and track[-1][0] <= end
            assert all(0 <= rate <= 1000 for _, rate in track)
        assert moved == pytest.approx(total, rel=0.01, abs=64)
    for core in found.core_busy:
        used = tracks.get(f"{core + 1} local memory in use bytes per lane", [])
        commands = [command for command in program.commands if command.core == core]
        local = [view for c in commands for _, view in c.operands() if view.memory == "lmem"]
        assert bool(used) == bool(local)
        if used:
            highest = max(extent(view, chip).stop for view in local)
            peak = max(group.lmem_peak_bytes for group in program.groups)  # the highest end of a buffer, gaps included
            assert used[-1] == (used[-1][0], 0) and used[-1][0] <= end
            assert all(0 <= level <= (peak or highest) for _, level in used)
            assert max(level for _, level in used) > 0


def test_digits(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The trace of a run, compared with its program and report."""
    folder = digits_run(tmp_path_factory, "bm1684x", "int8")
    content = json.loads((folder / "trace.json").read_text())
    check_trace(content, load(folder / "7_model.tpusim"))
    assert content["otherData"]["cycles"] == report_of(folder)["totals"]["cycles"]
    assert content["otherData"]["model"] == "digits"
    events = content["traceEvents"]
    assert sum(event["ph"] == "s" for event in events) > 5
    assert "stem_Relu" in [event["name"] for event in events if event.get("cat") == "layer"]


@pytest.mark.slow
def test_resnet50(tmp_path: Path) -> None:
    zoo.save("resnet50", tmp_path / "resnet50.onnx")
    run(RunConfig(model=tmp_path / "resnet50.onnx", out=tmp_path / "out", data="random:1"))
    content = json.loads((tmp_path / "out" / "trace.json").read_text())
    check_trace(content, load(tmp_path / "out" / "7_model.tpusim"))
    assert content["otherData"]["cycles"] == report_of(tmp_path / "out")["totals"]["cycles"]


@pytest.mark.parametrize("chip", ["bm1684", "cv183x"])
def test_a_program_by_hand(chip: str) -> None:
    """Two loads, a sum, a global kernel and a store; times that are no whole nanoseconds; engines that take turns."""
    build = Builder(chip)
    shape = (1, 3, 5, 7)
    one, two, out = (lmem(address, shape) for address in (0, 512, 1024))
    build.add(Move, 0, op="x", step="n0h0", input=neuron(0, shape), output=one)
    build.add(Fill, 0, op="x", output=two, value=1)
    build.add(Arith, op="add", step="n0h0", kind="add", a=one, b=two, output=out)
    body = Arith(id=1, dep=0, op="copy", kind="copy", a=neuron(0, shape), output=neuron(256, shape))
    build.add(GlobalKernel, 0, op="copy", body=body, load_bytes=105, store_bytes=105)
    build.add(Move, op="add", step="n0h0", input=out, output=neuron(512, shape))
    program = build.program()
    content = json.loads(json.dumps(trace(program, timeline(program, build.chip))))
    check_trace(content, program)
    used = counters(content["traceEvents"])["1 local memory in use bytes per lane"]
    assert max(level for _, level in used) == 3 * (extent(one, build.chip).stop - extent(one, build.chip).start)
    both = [e for e in content["traceEvents"] if e["name"] == "copy" and e["cat"] != "layer"]
    assert len(both) == 2 and both[0]["ts"] == both[1]["ts"] and both[0]["tid"] != both[1]["tid"]


def test_two_cores() -> None:
    """A process for each, threads with separate numbers, zero-length messages."""
    build = Builder("bm1688")
    shape = (1, 2, 2, 2)
    for core in (0, 1):
        build.add(Move, 0, core=core, input=neuron(0, shape), output=lmem(0, shape))
        build.add(Arith, core=core, kind="add", a=lmem(0, shape), b=1.0, output=lmem(64 * (core + 1), shape))
    build.barrier(0)
    build.add(Move, core=1, input=lmem(128, shape), output=neuron(256, shape))
    program = build.program()
    content = json.loads(json.dumps(trace(program, timeline(program, build.chip))))
    check_trace(content, program)
    assert len(threads(content["traceEvents"])) == 6 and len({e["pid"] for e in content["traceEvents"]}) == 2


def test_local_memory_in_use_ends_with_the_last_read() -> None:
    """A buffer written twice counts once, and not between its last read and the second write."""
    build = Builder()
    shape = (1, 1, 1, 64)
    one, two = lmem(0, shape), lmem(64, shape)
    build.add(Fill, 0, output=one, value=1)  # 0
    build.add(Arith, 1, kind="copy", a=one, output=two)
    build.add(Fill, 1, output=one, value=2)
    build.add(Arith, 2, kind="add", a=two, b=one, output=two)
    program = build.program()
    spans = {span.index: span for span in timeline(program, build.chip).spans}
    tracks = counters(check_format(trace(program, timeline(program, build.chip))))
    starts, stops = [round(spans[i].start_ns) for i in range(4)], [round(spans[i].stop_ns) for i in range(4)]
    assert stops[1] <= starts[2]
    between = [(stops[1], 64), (starts[2], 128)] if stops[1] < starts[2] else []
    expected = [(starts[0], 64), (starts[1], 128), *between, (stops[3], 0)]
    assert tracks["1 local memory in use bytes per lane"] == expected


def test_microseconds_stand_for_whole_nanoseconds() -> None:
    rng = np.random.default_rng(0)
    for value in (*range(3000), *rng.integers(0, 10**12, 3000).tolist()):
        number = json.loads(json.dumps(_microseconds(value)))
        assert nanoseconds_cut(number) == nanoseconds_rounded(number) == value


@pytest.mark.parametrize("damage", ["overlap", "thread", "field", "order"])
def test_the_reader_refuses_what_perfetto_would_lose(damage: str) -> None:
    build = Builder()
    for i in range(3):
        build.add(Fill, 0, output=lmem(64 * i, (1, 1, 1, 64)), value=1)
    program = build.program()
    content = trace(program, timeline(program, build.chip))
    check_trace(content, program)
    event = next(e for e in content["traceEvents"] if e["ph"] == "X")
    match damage:
        case "overlap":
            event["dur"] += 0.001
        case "thread":
            event["tid"] = 9
        case "field":
            del event["dur"]
        case _:
            content = {"otherData": {}, **{k: content[k] for k in ("displayTimeUnit", "traceEvents")}}
    with pytest.raises((AssertionError, KeyError)):
        check_trace(content, program)
