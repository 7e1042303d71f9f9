"""The cost of groups, and the search that minimises it (docs/spec/layer_group.md 11 and 12)."""

from collections.abc import Iterator
from itertools import combinations, pairwise, product
from math import inf
from pathlib import Path

import msgspec
import numpy as np
import pytest
from compiling import to_groups, to_program, to_reordered
from end_to_end import DIGITS
from networks import Network, cached_lowered, randomly_grouped, reordered
from rotation import one_in

from tpusim import chips, zoo
from tpusim.interfaces import rules
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ir.weights import WeightStore
from tpusim.isa.cycles import peak_macs
from tpusim.layer_group import lower_bounds
from tpusim.layer_group.candidates import base_groups
from tpusim.layer_group.cost import CostModel
from tpusim.layer_group.files import write_group
from tpusim.layer_group.planning import first_guess, resectioned
from tpusim.layer_group.search import dynamic as dynamic_search
from tpusim.layer_group.search.dynamic import Run, clusters, dynamic
from tpusim.layer_group.search.shapes import better
from tpusim.layer_group.slicing import max_sections
from tpusim.lowering import LoweringConfig
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.framework.logical import AXES
from tpusim.ops.interfaces import GroupRules
from tpusim.registry import STRATEGIES
from tpusim.running.pipeline import RunConfig, run
from tpusim.schedule import GroupSchedule, Sections
from tpusim.simulator import timeline

COSTS = ("bm1684x", "bm1688", "bm1684", "cv183x")
EVERY_COST = pytest.mark.parametrize("chip", one_in(2, [(chip,) for chip in COSTS]))


@pytest.mark.parametrize(("chip", "key"), one_in(3, product(COSTS, ((0, 6, 1), (1, 4, 4), (2, 6, 1)))))
def test_the_estimate_is_the_clock_of_the_same_program(key: tuple[int, int, int], chip: str) -> None:
    """Rows are barriers on both; replay takes every slice as it is, three stages take the first for all."""
    model, _ = cached_lowered(key[0], chip, *key[1:])
    rng = np.random.default_rng(sum(key))
    for _ in range(3):
        costed = Costed(chips.load(chip))
        divided, _ = randomly_grouped(model, rng, seen=costed.add)
        # uneven slices of a few rows are where the first slice says least about the others
        costed.check(divided, 0.001 if rules(costed.cost.chip, GroupRules).COST == "replay" else 0.3)


class Costed:
    """The estimates of the groups of a module."""

    def __init__(self, chip: chips.ChipSpec) -> None:
        # the search of BM1688 has other rates than the clock (U-78), which are left out here
        self.cost = CostModel(msgspec.structs.replace(chip, search_gbs=0.0))
        self.groups_ns: dict[str, float] = {}
        """Last op of a group -> its cost when it was last written; each pass of the stage writes the groups."""

    def add(self, found: GroupSchedule) -> None:
        self.groups_ns[op_name(found.graph.ops[-1])] = self.cost.group_ns(found)

    def check(self, divided: Model, tolerance: float) -> None:
        """All groups and global layers against the simulator's clock."""
        estimate = sum(self.groups_ns.values()) + sum(
            self.cost.global_ns(op) for op in divided.ops if isinstance(op, TpuOp)
        )
        measured = timeline(to_program(divided), self.cost.chip).milliseconds * 1e6
        assert estimate == pytest.approx(measured, rel=tolerance)


def zoo_module(path: Path, chip: str, out: Path) -> Model:
    """An INT8 module of a network, before layer groups."""
    found = run(RunConfig(model=path, lowering=LoweringConfig(chip), data="random:1", out=out, to="lower"))
    assert found.tpu is not None
    return to_reordered(found.tpu)


@EVERY_COST
def test_the_estimate_of_digits_is_the_clock(chip: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    estimate_agrees(zoo_module(DIGITS / "digits.onnx", chip, tmp_path), monkeypatch)


@pytest.mark.slow
@EVERY_COST
def test_the_estimate_of_squeezenet_is_the_clock(chip: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zoo.save("squeezenet", tmp_path / "squeezenet.onnx")
    estimate_agrees(zoo_module(tmp_path / "squeezenet.onnx", chip, tmp_path), monkeypatch)


def estimate_agrees(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within 3 %, for every strategy."""
    for opt in ("1", "2", "off"):
        costed = Costed(chips.load(model.attribute("module.chip")))

        def spy(found: GroupSchedule, weights: WeightStore, costed: Costed = costed) -> None:
            costed.add(found)
            write_group(found, weights)

        monkeypatch.setattr("tpusim.layer_group.search.stage.write_group", spy)
        costed.check(to_groups(model, opt), 0.03)
        assert costed.groups_ns


def test_the_replay_is_the_loop() -> None:
    """Sections of random groups: what runs in every iteration and what only once."""
    model, _ = cached_lowered(0, "bm1684x", 6, 1)
    spec, plans = chips.load("bm1684x"), list[GroupSchedule]()
    costs: list[tuple[float, float]] = []

    def compare(found: GroupSchedule) -> None:
        plans.append(found)
        costs.append((CostModel(spec).group_ns(found), by_hand(found, CostModel(spec))))

    for seed in range(4):
        randomly_grouped(model, np.random.default_rng(seed), seen=compare)
    assert any(p.sections.steps > 1 and len(p.rows) > 1 for p in plans)
    assert all(found == pytest.approx(expected) for found, expected in costs)


def by_hand(found: GroupSchedule, cost: CostModel) -> float:
    """The loop of section 15, literally: every iteration, every row, every item."""
    steps = found.sections.steps
    total = 0.0
    for iteration in range(steps + 2):
        for row in found.rows:
            tiu = sum(cost.item_ns(op, found, iteration - 1) for op in row.layers if 0 <= iteration - 1 < steps)
            dma = sum(
                cost.item_ns(t, found, iteration - t.stage)
                for t in row.transfers
                if 0 <= iteration - t.stage < steps and (iteration == t.stage or not found.slices[t.value].resident)
            )
            total += max(tiu, dma)
    return total


@pytest.mark.parametrize("chip", chips.available())
def test_no_grouping_undercuts_the_bounds(chip: str) -> None:
    """Neither bytes nor cycles, for no strategy; of batch 4 a constant still counts once."""
    for key in ((0, 6, 1), (1, 4, 4)):
        model, _ = cached_lowered(key[0], chip, *key[1:])
        bounds = lower_bounds(model)
        assert bounds.mac_cycles > 0
        for opt in ("1", "2", "off"):
            divided = to_groups(model, opt)
            assert lower_bounds(divided) == bounds
            found = timeline(to_program(divided), chips.load(chip))
            assert bounds.traffic_ratio(found.load_bytes + found.store_bytes) >= 1
            assert bounds.cycle_ratio(found.cycles) >= 1


def test_peak_rates_are_those_of_the_chips() -> None:
    """hardware.md 5.1, 5.3: lanes x products per lane and cycle, for 8, 16 and 32 bits."""
    rates = {name: [peak_macs(size, chips.load(name)) for size in (1, 2, 4)] for name in chips.available()}
    assert rates["bm1684x"] == [64 * 64 * 4, 64 * 32 * 4, 64 * 16]
    assert rates["bm1684"][0] == 64 * 4 * 64
    assert rates["cv183x"][:2] == [32 * 16 * 2, 32 * 8]


# ------------------------------------------------------------------------------------------------ 12: the group search


def runs_of(seed: int, chip: str, ops: int = 6, batch: int = 1) -> Iterator[list[TpuOp]]:
    """The base groups of a random network."""
    model, _ = cached_lowered(seed, chip, ops, batch)
    for found, why in base_groups(model, chips.load(chip)):
        if why is None:
            yield found


def every_division(count: int) -> Iterator[tuple[int, ...]]:
    """All ways to cut a run of `count` ops, ends included."""
    for size in range(count):
        for cuts in combinations(range(1, count), size):
            yield 0, *cuts, count


@pytest.mark.every
@pytest.mark.parametrize("lmem", [None, 2**13])
@pytest.mark.parametrize(("chip", "cores"), [("bm1684x", 1), ("bm1684", 1), ("bm1690", 8)])
def test_the_dynamic_program_is_optimal_over_contiguous_divisions(chip: str, cores: int, lmem: int | None) -> None:
    """Against all divisions of the first six ops; and no interval costs less than its lower bound."""
    spec = chips.load(chip)
    spec = spec if lmem is None else msgspec.structs.replace(spec, lmem_bytes=lmem)
    seen = 0
    for seed in range(5):
        for ops in runs_of(seed, chip):
            run, brute = Run(ops[:6], spec, cores), Run(ops[:6], spec, cores)
            found = run.cheapest(combinations(clusters(run), 2))
            best = min(brute.total(pairwise(cuts)) for cuts in every_division(len(brute.ops)))
            assert run.total(pairwise(found)) == pytest.approx(best)
            for i, j in combinations(range(len(brute.ops) + 1), 2):
                assert brute.bound(i, j) <= brute.interval(i, j).cost_ns * (1 + 1e-9)
                seen += brute.interval(i, j).cost_ns < inf
    assert seen > 20


def test_more_cores_are_never_dearer_on_a_long_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long groups lose the cores to halos; clusters are the cheapest short groups, so that these are found."""
    monkeypatch.setattr(dynamic_search, "CLUSTERS", 8)  # three ops each
    net = Network(np.random.default_rng(0))
    x = net.input((1, 10, 48, 40))
    for _ in range(24):
        x = net.conv(x, 10)
    (ops,) = (ops for ops, why in base_groups(reordered(net.top(), "bm1690"), chips.load("bm1690")) if why is None)
    one, eight = (CostModel(chips.load("bm1690"), cores) for cores in (1, 8))
    found = eight.total_ns(dynamic(ops, eight.chip, 8))
    assert found < 0.8 * one.total_ns(dynamic(ops, one.chip, 1))
    assert found <= min(eight.total_ns(STRATEGIES.get(opt)(ops, eight.chip, 8)) for opt in ("1", "off"))


@pytest.mark.parametrize("chip", ["bm1684x", "bm1688"])
def test_better_shapes_are_the_best_of_all_shapes(chip: str) -> None:
    """Strategy 1 never costs more than 0; from the worst sections of a group the search finds the cheapest."""
    spec = msgspec.structs.replace(chips.load(chip), lmem_bytes=2**13)
    gains: list[float] = []
    for seed, ops, batch in ((0, 6, 1), (1, 4, 4), (2, 6, 1), (4, 6, 1)):
        for found in runs_of(seed, chip, ops, batch):
            run = Run(found, spec)
            quick, slow = (dynamic(found, spec, better_shapes=wanted) for wanted in (False, True))
            assert run.model.total_ns(slow) <= run.model.total_ns(quick) * (1 + 1e-9)
            for item in slow:
                if isinstance(item, GroupSchedule) and len(item.graph.ops) > 1:
                    plans = sorted(every_shape(item, spec), key=run.model.group_ns)
                    best = better(plans[-1], run.model, spec)
                    assert run.model.group_ns(best) == pytest.approx(run.model.group_ns(plans[0]))
                    gains.append(1 - run.model.total_ns([best]) / run.model.total_ns([plans[-1]]))
    assert max(gains) > 0.1


def every_shape(found: GroupSchedule, spec: chips.ChipSpec) -> list[GroupSchedule]:
    """Plans of a group at all section counts that fit, with at least as many steps as the first guess."""
    limit = max_sections(found.graph, spec)
    guess = first_guess(found.graph, limit, spec)
    counts = product(*(range(1, limit.count(axis) + 1) for axis in AXES))
    plans = [resectioned(found, Sections(*at), spec) for at in counts]
    return [p for p in plans if isinstance(p, GroupSchedule) and guess and p.sections.steps >= guess.steps]


@EVERY_COST
@pytest.mark.parametrize("lmem", [None, 2**13])
def test_the_best_search_never_costs_more_than_greedy(chip: str, lmem: int | None) -> None:
    spec = chips.load(chip)
    spec = spec if lmem is None else msgspec.structs.replace(spec, lmem_bytes=lmem)
    for seed, ops, batch in ((0, 6, 1), (1, 4, 4), (2, 6, 1), (4, 6, 1)):
        for found in runs_of(seed, chip, ops, batch):
            costs = {opt: Run(found, spec).model.total_ns(STRATEGIES.get(opt)(found, spec)) for opt in ("1", "2")}
            assert costs["2"] <= costs["1"] * (1 + 1e-9)
            if rules(spec, GroupRules).SEARCH == "1":
                assert costs["2"] == costs["1"]


@pytest.mark.parametrize("chip", ["bm1684x", "bm1688"])
def test_long_runs_are_cut_into_clusters(chip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups begin and end where the cheapest ones of at most len/CLUSTERS ops do, and nowhere else."""
    monkeypatch.setattr(dynamic_search, "CLUSTERS", 3)
    spec, merged = msgspec.structs.replace(chips.load(chip), lmem_bytes=2**13), 0
    for seed in range(4):
        for ops in runs_of(seed, chip, 9):
            run, brute = Run(ops[:9], spec), Run(ops[:9], spec)
            cuts, count = clusters(run), len(run.ops)
            short = [c for c in every_division(count) if all(b - a <= run.cluster_size for a, b in pairwise(c))]
            assert run.cluster_size == max(1, count // 3) and tuple(cuts) in short
            if run.cluster_size > 1:
                assert run.total(pairwise(cuts)) == pytest.approx(min(brute.total(pairwise(c)) for c in short))
            found = run.cheapest(combinations(cuts, 2))
            able = [c for c in every_division(count) if set(c) <= set(cuts)]
            assert set(found) <= set(cuts)
            assert run.total(pairwise(found)) == pytest.approx(min(brute.total(pairwise(c)) for c in able))
            merged += len(cuts) < count + 1
    assert merged > 2
