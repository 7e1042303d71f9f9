"""Group a network by every strategy and count the bytes and cycles of its program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path

import msgspec
import onnx

from tpusim import chips, zoo
from tpusim.calibration.stage import CalibrationConfig
from tpusim.frontend import import_onnx, keep_batch
from tpusim.ir.module import Model
from tpusim.layer_group import lower_bounds
from tpusim.layer_group.candidates import base_groups
from tpusim.layer_group.search.dynamic import Run, clusters
from tpusim.lowering import LoweringConfig
from tpusim.ops.framework.base import TpuOp
from tpusim.passes import PassManager
from tpusim.passes.layer_group import LayerGroup
from tpusim.passes.lowering import WeightReorder
from tpusim.passes.pipelines import calibrated, canonical, commands, lowered
from tpusim.registry import STRATEGIES
from tpusim.simulator import timeline

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
NETWORKS = ("digits", "squeezenet", "shufflenet", "inception_v2", "resnet50", "densenet121", "vgg19")
CHIPS = ("bm1684x", "bm1688", "bm1684", "cv183x", "cv182x")
BATCHED = ("resnet50",)
"""Networks that are also grouped with a batch of four, on the chips with published figures."""
BATCH_CHIPS = CHIPS[:3]
SMALL, WHOLE = 6, 14
"""Ops of a small graph, and of digits, whose divisions are all tried."""
SHARES = (1, 16)
"""Divisors of local memory for the small graphs: with all of it most of them are one group."""


class Row(msgspec.Struct, frozen=True):
    """One network, batch, chip and strategy."""

    network: str
    batch: int
    chip: str
    opt: str
    groups: int
    global_layers: int
    moved_bytes: int
    compulsory_bytes: int
    cycles: int
    mac_cycles: int
    milliseconds: float
    lmem_peak_bytes: int


class Gap(msgspec.Struct, frozen=True):
    """Nanoseconds of a small graph by strategy, in 1/share of local memory."""

    network: str
    chip: str
    share: int
    ops: int
    greedy_ns: float
    dynamic_ns: float
    optimum_ns: float


@dataclass
class Network:
    """A calibrated module and its modules on the chips."""

    name: str
    batch: int
    calibrated: Model

    @classmethod
    def prepare(cls, name: str, batch: int = 1, models: Path | None = None) -> Network:
        """Build or read the network and calibrate it with one random sample: only shapes matter here."""
        proto = onnx.load(DIGITS) if name == "digits" else _zoo(name, models)
        shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim][1:]
        shapes = {proto.graph.input[0].name: (batch, *shape)} if batch > 1 else {}
        if batch > 1:
            keep_batch(proto.graph, 1)
        steps = (*canonical(), *calibrated(config=CalibrationConfig("max"), data="random:1"))
        return cls(name, batch, PassManager(steps).run(import_onnx(proto, name=name, input_shapes=shapes)))

    def on(self, chip: str) -> Model:
        """Lowered in INT8, weights in chip layout."""
        return PassManager((*lowered(LoweringConfig(chip, "int8")), WeightReorder())).run(self.calibrated)

    def rows(self, chip: str) -> Iterator[Row]:
        """All strategies on a chip."""
        model = self.on(chip)
        bounds = lower_bounds(model)
        for opt in ("1", "2", "off"):
            program = PassManager((LayerGroup(opt=opt), *commands())).program(model)  # type: ignore[arg-type]
            found = timeline(program, chips.load(chip))
            local = [g for g in program.groups if not g.reason]
            yield Row(
                self.name, self.batch, chip, opt, len(local), len(program.groups) - len(local),
                found.load_bytes + found.store_bytes, bounds.compulsory_bytes, found.cycles, bounds.mac_cycles,
                round(found.milliseconds, 4), max((g.lmem_peak_bytes for g in local), default=0),
            )  # fmt: skip

    def gaps(self, chip: str) -> Iterator[Gap]:
        """The first ops of the network, all of digits: greedy, dynamic program, the best of all divisions."""
        spec = chips.load(chip)
        runs = (ops for ops, why in base_groups(self.on(chip), spec) if why is None)
        ops = max(runs, key=len)[: WHOLE if self.name == "digits" else SMALL]
        for share in SHARES:
            yield self._gap(ops, msgspec.structs.replace(spec, lmem_bytes=spec.lmem_bytes // share), share)

    def _gap(self, ops: list[TpuOp], spec: chips.ChipSpec, share: int) -> Gap:
        run = Run(ops, spec)
        found = run.cheapest(combinations(clusters(run), 2))
        best = min(run.total(pairwise(cuts)) for cuts in _divisions(len(ops)))
        greedy = run.model.total_ns(STRATEGIES.get("1")(ops, spec))
        figures = (round(ns, 1) for ns in (greedy, run.total(pairwise(found)), best))
        return Gap(self.name, spec.name, share, len(ops), *figures)


def _zoo(name: str, models: Path | None) -> onnx.ModelProto:
    path = models and models / f"{name}.onnx"
    return onnx.load(path) if path and path.exists() else zoo.build(name)


def _divisions(count: int) -> Iterator[tuple[int, ...]]:
    """All ways to cut `count` ops, ends included."""
    for size in range(count):
        for cuts in combinations(range(1, count), size):
            yield 0, *cuts, count


def networks() -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """(name, batch, chips) of all that the page shows."""
    for name in NETWORKS:
        yield name, 1, CHIPS
    for name in BATCHED:
        yield name, 4, BATCH_CHIPS
