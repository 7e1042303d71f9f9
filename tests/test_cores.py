"""Groups on several cores (layer_group.md 15): bits of the whole in every order, no race, every step on one core."""

import json
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders.sliced_networks import NETWORKS, SHAPES, deep, equal, tokens
from builders.timings import in_every_order
from compiling import to_addressed, to_canonical, to_groups, to_program, to_reordered
from end_to_end import DIGITS
from msgspec import structs
from networks import cached_lowered, cached_network, randomly_grouped
from rotation import one_in
from upstream.networks import Builder

from tpusim import chips
from tpusim.chips import ChipSpec
from tpusim.cli import main
from tpusim.errors import ConfigError, SimulationError
from tpusim.frontend import import_onnx
from tpusim.ir.module import Model, load_model, save_model
from tpusim.isa.commands import Move, SendMessage, WaitMessage
from tpusim.isa.region import View
from tpusim.isa.stream import Program, load
from tpusim.layer_group import ForcedGroup, GroupView, LayerGroupConfig, views
from tpusim.layer_group.candidates import base_groups
from tpusim.layer_group.cost import CostModel
from tpusim.layer_group.files import Counts, write_group
from tpusim.layer_group.planning import plan
from tpusim.layer_group.search.multicore import candidates, for_cores
from tpusim.ops import context
from tpusim.ops.framework.base import GroupType, TpuOp
from tpusim.schedule import GroupSchedule, Sections, ValueSlices
from tpusim.simulator import Simulator, SimulatorOptions, timeline
from tpusim.simulator.overlap import common_byte

Key = tuple[int, int, int]
ORDERS = [SimulatorOptions("early"), SimulatorOptions("late"), *(SimulatorOptions("random", s) for s in range(2))]
CORES = (("bm1688", 2), ("bm1690", 2), ("bm1690", 8))
ON_CORES = pytest.mark.parametrize(("chip", "cores"), CORES)
MESSAGES = (SendMessage, WaitMessage)


def grouped(key: Key, chip: str, trial: int) -> Model:
    model, _ = cached_lowered(key[0], chip, *key[1:])
    return randomly_grouped(model, np.random.default_rng(trial))[0]


# ---------------------------------------------------------------------------------------------------- values and races


@pytest.mark.parametrize(("key", "chip", "cores"), one_in(8, [(key, *on) for key in NETWORKS for on in CORES]))
def test_random_sections_give_the_bits_of_the_whole(key: Key, chip: str, cores: int) -> None:
    """Random networks, random sections, every order; the machine finds no race, no poison, no deadlock."""
    _, flat = cached_lowered(key[0], chip, *key[1:])
    feeds = cached_network(*key).feeds()
    used: set[int] = set()
    for trial in range(2):
        program = to_program(grouped(key, chip, trial), share=cores)
        used |= {c.core for c in program.commands if not isinstance(c, MESSAGES)}
        equal(in_every_order(program, feeds, ORDERS), flat)
    assert used > {0}


@pytest.mark.parametrize(("chip", "cores"), [("bm1688", 2), ("bm1690", 8)])
@pytest.mark.parametrize("shape", [SHAPES[1], SHAPES[2]], ids=str)
def test_matrix_networks_give_the_bits_of_the_whole(shape: tuple[int, ...], chip: str, cores: int) -> None:
    """SMALL_C and MM groups, with cuts along c and operands that stay."""
    model, feeds, flat = tokens(0, shape, chip)
    for trial in range(2):
        program = to_program(randomly_grouped(model, np.random.default_rng(trial))[0], share=cores)
        equal(in_every_order(program, feeds, ORDERS), flat)


@pytest.mark.parametrize(("chip", "cores"), [("bm1688", 2), ("bm1690", 8)])
@pytest.mark.parametrize("sections", [Sections(d=5), Sections(2, d=3, w=4)], ids=str)
def test_depth_on_several_cores(sections: Sections, chip: str, cores: int) -> None:
    model, feeds, flat = deep(chip)
    work = model.clone()
    ops = next(ops for ops, why in base_groups(work, chips.load(chip)) if why is None)
    found = plan(ops, chips.load(chip), sections, GroupType.GROUP_3D)
    assert isinstance(found, GroupSchedule)
    write_group(found)
    work.set(state="TPU_DIVIDED")
    program = to_program(work, share=cores)
    equal(in_every_order(program, feeds, ORDERS), flat)


@pytest.mark.slow
@ON_CORES
@pytest.mark.parametrize("seed", one_in(2, [(seed,) for seed in range(5, 9)]))
def test_many_random_sections(seed: int, chip: str, cores: int) -> None:
    key = (seed, 8, 1 + seed % 4)
    _, flat = cached_lowered(key[0], chip, *key[1:])
    for trial in range(3):
        program = to_program(grouped(key, chip, trial), share=cores)
        orders = (*ORDERS, *(SimulatorOptions("random", s) for s in range(2, 8)))
        equal(in_every_order(program, cached_network(*key).feeds(), orders), flat)


# ------------------------------------------------------------------------------------------------------- who does what


def without(program: Program, dropped: Callable[[Any], bool]) -> Program:
    """The program without some commands, the others numbered anew."""
    kept: list[Any] = []
    before: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0])
    for command in program.commands:  # per queue: how many of the first i commands are kept
        count = before[command.core, command.engine]
        count.append(count[-1] + (not dropped(command)))
    places: dict[int, int] = {}
    for index, command in enumerate(program.commands):
        if not dropped(command):
            other = before[command.core, "gdma" if command.engine == "tiu" else "tiu"]
            number = before[command.core, command.engine][command.id]
            kept.append(structs.replace(command, id=number, dep=other[command.dep]))
        places[index] = len(kept) - 1
    locations = tuple(structs.replace(where, command=places[where.command]) for where in program.locations)
    return structs.replace(program, commands=tuple(kept), locations=locations)


@ON_CORES
@pytest.mark.parametrize("key", NETWORKS[:3], ids=str)
def test_every_step_runs_on_one_core(key: Key, chip: str, cores: int) -> None:
    """Consecutive steps, ceil(steps, cores) each; the later cores may be idle; held tensors once on each."""
    model = grouped(key, chip, 1)
    program = to_program(model, share=cores)
    single = to_program(model, share=1)
    for entry in program.groups:
        own = [c for c in program.commands if c.group == entry.id and not isinstance(c, MESSAGES)]
        at: dict[str, set[int]] = defaultdict(set)
        for command in own:
            if command.engine == "tiu":
                at[command.step].add(command.core)
        if entry.reason:
            assert {c.core for c in own} == {0}
            continue
        total = prod(entry.secs.values())
        share = -(-total // cores)
        names = [step.text() for step in Sections(**entry.secs).loop]
        assert {name: {i // share} for i, name in enumerate(names)} == at
        computed = sorted((c.op, c.step) for c in own if c.engine == "tiu")
        assert computed == sorted((c.op, c.step) for c in single.commands if c.group == entry.id and c.engine == "tiu")
        held = [c for c in single.commands if c.group == entry.id and c.op.startswith("load_") and c.step == names[0]]
        once = {c.op for c in held} - {
            c.op for c in single.commands if c.group == entry.id and c.step != names[0] and isinstance(c, Move)
        }
        busy = -(-total // share)
        for name in once if total > 1 else ():
            assert sorted({c.core for c in own if c.op == name}) == list(range(busy)), name


@ON_CORES
def test_every_core_is_at_every_barrier(chip: str, cores: int) -> None:
    program = to_program(grouped(NETWORKS[0], chip, 0), share=cores)
    local = [entry for entry in program.groups if not entry.reason]
    for entry in local:
        for core in range(cores):
            own = [c for c in program.commands if c.group == entry.id and c.core == core]
            assert [isinstance(c, MESSAGES) for c in (*own[:2], *own[-2:])] == [True] * 4
            assert sum(isinstance(c, MESSAGES) for c in own) == 4
    sent = [c.message for c in program.commands if isinstance(c, SendMessage) and c.core == 0]
    assert sent == list(range(2 * len(local)))
    assert {c.count for c in program.commands if isinstance(c, MESSAGES)} == {cores}


def test_one_core_has_no_messages() -> None:
    for chip in ("bm1688", "bm1684x"):
        program = to_program(grouped(NETWORKS[0], chip, 0), share=1)
        assert not any(c.core or isinstance(c, MESSAGES) for c in program.commands)


def test_message_numbers_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpusim.codegen.emitter.MESSAGES", 2)
    program = to_program(grouped(NETWORKS[0], "bm1688", 0), share=2)
    assert {c.message for c in program.commands if isinstance(c, MESSAGES)} == {0, 1}
    for options in ORDERS:
        Simulator(program, options=options)


@pytest.mark.parametrize(("chip", "cores"), one_in(3, CORES))
def test_a_dropped_barrier_is_a_race_if_cores_hand_over_data(chip: str, cores: int) -> None:
    """Between two groups are two barriers, and either is enough; without both, cores race in every order."""
    spec, verdicts = chips.load(chip), []
    for trial in range(3):
        program = to_program(grouped(NETWORKS[0], chip, trial), share=cores)
        for one, other in pairwise(e.id for e in program.groups if not e.reason):
            if other != one + 1:
                continue  # a global layer between them
            end = [c.message for c in program.commands if isinstance(c, SendMessage) and c.group == one][-1]
            begin = next(c.message for c in program.commands if isinstance(c, SendMessage) and c.group == other)
            for message in (end, begin):
                Simulator(without(program, lambda c, m=message: isinstance(c, MESSAGES) and c.message == m))
            broken = without(program, lambda c, m=(end, begin): isinstance(c, MESSAGES) and c.message in m)
            verdicts.append(hands_over(program, one, other, spec))
            for options in ORDERS:
                if verdicts[-1]:
                    with pytest.raises(SimulationError, match=r"race: .* of core .* no dependency orders the two"):
                        Simulator(broken, options=options)
                else:
                    Simulator(broken, options=options)
        if len(set(verdicts)) == 2:
            break
    assert any(verdicts)


def hands_over(program: Program, one: int, other: int, chip: ChipSpec) -> bool:
    """Whether a core touches bytes in the second group that another core touched in the first, one of them writing."""

    def touched(group: int) -> list[tuple[int, View, bool]]:
        own = [c for c in program.commands if c.group == group]
        found = [(c.core, v, False) for c in own for v in c.reads() if v.memory == "gmem"]
        return found + [(c.core, v, True) for c in own for v in c.writes() if v.memory == "gmem"]

    return any(
        a != b and (x or y) and common_byte(v, w, chip) is not None
        for a, v, x in touched(one)
        for b, w, y in touched(other)
    )


# ----------------------------------------------------------------------------------------------------- what is stored


def windows(starts: tuple[int, ...], sizes: tuple[int, ...]) -> ValueSlices:
    """A tensor that is cut along h."""
    one, whole = ((0, 1),), ((0, 4),)
    return ValueSlices(n=one, c=whole, d=one, h=tuple(zip(starts, sizes, strict=True)), w=whole)


@pytest.mark.parametrize(
    ("starts", "sizes", "expected"),
    [
        ((0, 4, 7), (4, 3, 3), [(0, 4), (4, 3), (7, 3)]),
        ((0, 3, 6), (5, 5, 4), [(0, 5), (5, 3), (8, 2)]),
        ((0, 1, 2), (8, 7, 8), [(0, 8), (8, 0), (8, 2)]),
    ],
)
def test_no_element_is_stored_twice(
    starts: tuple[int, ...], sizes: tuple[int, ...], expected: list[tuple[int, int]]
) -> None:
    found = windows(starts, sizes).unshared
    assert list(found.h) == expected
    assert [found.at(step).h for step in Sections(h=3).loop] == expected


def test_cores_that_store_the_same_rows_race(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stored tensor with users in its group has halos: without `unshared` two cores write them."""
    to_program(grouped(NETWORKS[0], "bm1688", 0), share=2)
    monkeypatch.setattr(ValueSlices, "unshared", property(lambda windows: windows))
    races = 0
    for trial in range(4):
        try:
            Simulator(to_program(grouped(NETWORKS[0], "bm1688", trial), share=2))
        except SimulationError as error:
            assert "of core 1) of op 'store_" in str(error)
            races += 1
    assert races


# ---------------------------------------------------------------------------------------------------------- sections


def test_sections_are_raised_until_the_cores_divide_the_steps() -> None:
    limit = Sections(4, 1, 1, 10, 5)
    assert list(candidates(Sections(h=3), limit, 8)) == [
        Sections(h=8), Sections(n=4, h=3), Sections(h=3, w=5),
    ]  # fmt: skip
    assert list(candidates(Sections(n=2, h=3), limit, 2)) == []
    assert list(candidates(Sections(), limit, 2)) == [Sections(h=2), Sections(n=2), Sections(w=2)]
    assert list(candidates(Sections(h=7), Sections(h=7), 8)) == []


def test_sections_are_raised_only_where_it_is_cheaper() -> None:
    key, chip = NETWORKS[0], chips.load("bm1688")
    model, _ = cached_lowered(key[0], "bm1688", *key[1:])
    raised = 0
    for ops, why in base_groups(model.clone(), chip):
        found = plan(ops[:2], chip) if why is None else None
        if not isinstance(found, GroupSchedule):
            continue
        two = CostModel(chip, 2)
        other = for_cores(found, two)
        assert two.group_ns(other) <= two.group_ns(found)
        assert for_cores(found, CostModel(chip)) is found
        raised += other is not found
    slow = structs.replace(chip, dma_latency_ns=0.0, tiu_mhz=1.0)  # nothing counts but what the TIU computes
    ops = next(ops for ops, why in base_groups(model.clone(), chip) if why is None)
    found = plan(ops[:1], slow)
    assert isinstance(found, GroupSchedule)
    assert for_cores(found, CostModel(slow, 2)).sections.steps % 2 == 0


def test_a_pinned_group_keeps_the_sections_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """The networks here are too small to gain from a second core, so a model is used that likes many steps."""
    monkeypatch.setattr(CostModel, "group_ns", lambda self, plan: 1.0 / plan.sections.steps)
    model, _ = cached_lowered(NETWORKS[0][0], "bm1688", *NETWORKS[0][1:])

    def steps(pins: tuple[ForcedGroup, ...]) -> dict[tuple[str, str], int]:
        found = views(to_groups(model, LayerGroupConfig("off", pins, cores=2)))
        return {(v.ops[0][0], v.ops[-1][0]): v.steps for v in found if isinstance(v, GroupView)}

    free = steps(())
    (first, last), count = max(free.items(), key=lambda item: item[1])
    assert count % 2 == 0
    assert steps((ForcedGroup(first, last),))[first, last] == count
    assert steps((ForcedGroup(first, last, sections=Counts()),))[first, last] == 1


def test_the_first_cores_share_is_what_counts() -> None:
    key, chip = NETWORKS[0], chips.load("bm1690")
    model, _ = cached_lowered(key[0], "bm1690", *key[1:])
    ops = next(ops for ops, why in base_groups(model.clone(), chip) if why is None)
    found = plan(ops[:1], chip, Sections(h=4))
    assert isinstance(found, GroupSchedule)
    costs = [CostModel(chip, cores).group_ns(found) for cores in (1, 2, 3, 4, 8)]
    assert costs[0] > costs[1] == costs[2] > costs[3] == costs[4]  # 4, 2, 2, 1, 1 steps


@ON_CORES
def test_the_estimate_is_the_clock(chip: str, cores: int) -> None:
    """At the rate of one core while others run all the time, and with the first core's steps; without barriers.

    Another core's smaller slices may take a little longer: a transfer of few pages has few memory channels (DH-08).
    """
    spec, key = chips.load(chip), NETWORKS[0]
    model, _ = cached_lowered(key[0], chip, *key[1:])
    cost = CostModel(spec, cores)
    for trial in range(3):
        estimates: list[float] = []
        divided, _ = randomly_grouped(
            model, np.random.default_rng(trial), seen=lambda p, e=estimates: e.append(cost.group_ns(p))
        )
        estimate = sum(estimates) + sum(cost.global_ns(op) for op in divided.ops if isinstance(op, TpuOp))
        measured = timeline(to_program(divided, share=cores), spec).milliseconds * 1e6
        assert estimate * spec.shared_rate <= measured <= estimate * 1.03 + 10 * len(estimates)


# ------------------------------------------------------------------------------------------------------- module and CLI


def test_a_module_keeps_its_number_of_cores(tmp_path: Path) -> None:
    model, _ = cached_lowered(NETWORKS[1][0], "bm1688", *NETWORKS[1][1:])
    grouped_for_two = to_groups(model, "1", cores=2)
    final = to_addressed(grouped_for_two)
    save_model(final, tmp_path / "6_final.mlir")
    again = to_program(load_model(tmp_path / "6_final.mlir", context()))
    assert again.commands == to_program(final).commands
    assert {c.core for c in again.commands} == {0, 1}
    assert to_program(final, share=1).commands != again.commands
    assert not any(c.core for c in to_program(final, share=1).commands)
    assert all(getattr(view, "cores", 2) == 2 for view in views(final))
    single = to_groups(model, "1")
    assert single.number("module.cores") == 1 and not any(c.core for c in to_program(single).commands)


@pytest.mark.parametrize(
    ("chip", "cores", "message"),
    [
        ("bm1688", 3, "cores=3: bm1688 has 2 cores; give 1 to 2"),
        ("bm1690", 0, "cores: 1 or more is required, got 0"),
        ("bm1684x", 2, "cores=2: bm1684x has 1 core; give 1"),
    ],
)
def test_more_cores_than_the_chip_has_are_refused(chip: str, cores: int, message: str) -> None:
    model, _ = cached_lowered(NETWORKS[0][0], chip, *NETWORKS[0][1:])
    with pytest.raises(ConfigError, match=message):
        to_groups(model, "1", cores=cores)
    if cores:
        with pytest.raises(ConfigError, match=message):
            to_program(model, "1", share=cores)


@pytest.mark.parametrize(("chip", "cores"), [("bm1688", 2), ("bm1690", 8)])
def test_digits_end_to_end(chip: str, cores: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A group is pinned to four sections, since digits is too small to gain from several cores."""
    out, force = tmp_path / "out", tmp_path / "groups.toml"
    force.write_text('[[groups]]\nfirst = "stem_Relu"\nlast = "stem_Relu"\nsections = { h = 4 }\n')
    single = ["run", str(DIGITS / "digits.onnx"), "--chip", chip, "--data", str(DIGITS / "calibration.npz")]
    spread_out = ["--force", str(force), "--cores", str(cores), "--dma", "random", "--seed", "5"]
    capsys.readouterr()
    assert main([*single, "--out", str(out), "--samples", "8", *spread_out]) == 0
    assert f"core {cores - 1}: " in capsys.readouterr().out
    report = json.loads((out / "report.json").read_text())
    assert report["compare"]["local_vs_tpu"]["bit_exact"] and report["passed"]
    assert [core["core"] for core in report["cores"]] == list(range(cores))
    assert sum(core["commands"] for core in report["cores"]) == report["totals"]["commands"]
    assert sum(core["load_bytes"] for core in report["cores"]) == report["totals"]["load_bytes"]
    assert report["cores"][1]["tiu_busy"] > 0.001
    events = json.loads((out / "trace.json").read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {f"core {core} {engine}" for core in range(cores) for engine in ("TIU", "GDMA")} <= names
    main(["group", str(out / "6_final.mlir"), "--show"])
    share = -(-4 // cores)
    assert f"(4 steps, {share} on each of {4 // share} cores)" in capsys.readouterr().out
    # from the text alone, and the machine's command
    assert main(["codegen", str(out / "6_final.mlir"), "--out", str(out / "again.tpusim")]) == 0
    assert load(out / "again.tpusim").commands == load(out / "7_model.tpusim").commands
    checked = ["--input", str(out / "inputs.npz"), "--check", str(out / "tpu_outputs.npz"), "--dma", "late"]
    assert main(["simulate", str(out / "again.tpusim"), *checked]) == 0
    assert main(["dis", str(out / "again.tpusim"), "--core", "1", "--engine", "tiu"]) == 0
    shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("tiu", "gdma"))]
    assert shown and all(line.startswith("tiu") and " core=1 " in line for line in shown)


def test_wrong_options_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = [str(DIGITS / "digits.onnx"), "--data", str(DIGITS / "calibration.npz"), "--samples", "4"]
    assert main(["run", *model, "--cores", "2", "--out", str(tmp_path / "out")]) == 1
    assert "cores=2: bm1684x has 1 core; give 1" in capsys.readouterr().err
    assert main(["run", *model, "--seed", "2", "--out", str(tmp_path / "out")]) == 1
    assert "--seed 2: needs --dma random, got --dma early" in capsys.readouterr().err
    for chip, cores, message in (("bm1684x", "0", "give 1"), ("bm1688", "3", "bm1688 has 2 cores; give 1 to 2")):
        words = ["run", *model, "--chip", chip, "--cores", cores, "--out", str(tmp_path / "out")]
        assert main(words) == 1
        assert f"cores={cores}: " in (err := capsys.readouterr().err) and message in err
    assert not (tmp_path / "out").exists()


def test_several_cores_are_never_dearer_than_one() -> None:
    """A chain that is one group of one step: eight cores have nothing to share, and the module is for one."""
    builder = Builder("chain")
    x = builder.input("x", 1, 8, 8, 8)
    for _ in range(24):
        x = builder.conv(x, 8, 8, 3)
    builder.output(x)
    canonical = to_canonical(import_onnx(builder.model(), name="chain"))
    model = to_reordered(canonical, "bm1690", "f16")
    one, eight = (to_groups(model, cores=cores) for cores in (1, 8))
    assert eight.number("module.cores") == 1
    taken = [timeline(to_program(m), chips.load("bm1690")).cycles for m in (one, eight)]
    assert taken[0] == taken[1]
