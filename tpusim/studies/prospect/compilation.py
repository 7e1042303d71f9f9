"""`prospect`: import, canonicalise and lower a network without running it, and report the result for every node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdsl.ir import Operation

from tpusim import chips
from tpusim.calibration.quantised import imported_table
from tpusim.calibration.table import CalibrationTable
from tpusim.errors import TpusimError
from tpusim.fidelity.card import fidelity_of
from tpusim.frontend import WHOLE, Cut, front_end, read_model
from tpusim.ir.attrs import op_name
from tpusim.ir.imported_scales import not_kept
from tpusim.ir.module import Model
from tpusim.layer_group import base_groups
from tpusim.lowering import LoweringConfig
from tpusim.ops.framework.base import TopOp
from tpusim.ops.structure import TopInput
from tpusim.passes import PassManager
from tpusim.passes.canonicalize import Canonicalize
from tpusim.passes.lowering import WeightReorder
from tpusim.studies.prospect.assumed import assumed_table
from tpusim.studies.prospect.lowered import lowered_without_samples

if TYPE_CHECKING:
    from tpusim.frontend.onnx import Inspection, Outcome, Source


@dataclass(frozen=True)
class NodeOutcome:
    """An ONNX node: how it is imported, as which top ops, which tpu op computes its result, why it is refused."""

    node: str
    op_type: str
    how: str
    top: tuple[str, ...]
    inside: str
    why: str


@dataclass(frozen=True)
class LoweredOp:
    """A tpu op: its numbers, its class on the fidelity card and the reason, why it cannot be local ("": it can)."""

    op: str
    kind: str
    number: str
    status: str
    decisions: tuple[str, ...]
    reason: str
    not_local: str


@dataclass(frozen=True)
class Prospect:
    """The compilation of a network; `refused` is the error that a run would end with, or "".

    not_kept: scales of a quantised network that the import could not keep. cut: outputs that end the network before the
    refused nodes. assumed: whether ranges were assumed because no table gave them.
    """

    nodes: tuple[NodeOutcome, ...]
    ops: tuple[LoweredOp, ...]
    refused: str
    cut: tuple[str, ...]
    assumed: bool
    not_kept: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The object that `tpusim check --json` prints."""
        return {
            "taken": not self.refused, "refused": self.refused, "cut": list(self.cut), "assumed": self.assumed,
            "not_kept": list(self.not_kept),
            "nodes": [vars(node) for node in self.nodes], "ops": [vars(op) for op in self.ops],
        }  # fmt: skip


def prospect(
    model: Source | Model,
    config: LoweringConfig,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    cut: Cut = WHOLE,
    table: CalibrationTable | None = None,
) -> Prospect:
    """The compilation of a model or module for a chip and mode; table: thresholds, None: they are assumed.

    Raises ImportModelError for a file that cannot be read and ConfigError for an unknown chip; refused nodes are part
    of the result.
    """
    from tpusim.frontend.onnx import Inspection, inspect_onnx

    chip = chips.load(config.chip)
    if isinstance(model, Path | str) and not front_end(Path(model)).through_onnx:
        model = read_model(Path(model), input_shapes=input_shapes, cut=cut)
    seen = Inspection((), model, None) if isinstance(model, Model) else inspect_onnx(
        model, input_shapes=input_shapes, cut=cut
    )  # fmt: skip
    ranged = seen.model is not None and seen.model.state != "TOP_F32"
    if table is None and seen.model is not None and not ranged:
        table = imported_or_assumed(PassManager(Canonicalize()).run(seen.model))
    assumed = table is None and not ranged and (config.format.calibrated or config.qtable is not None)
    if seen.model is None:
        nodes = tuple(_node(o, {}) for o in seen.nodes)
        return Prospect(nodes, (), str(seen.refusal), _before(seen), assumed)
    holders, ops, refused = dict[Operation, str](), tuple[LoweredOp, ...](), ""
    try:
        tpu = lowered_without_samples(seen.model, config, table)
        ops = tuple(_lowered_ops(tpu, chip))
        holders = _holders(seen.model, {op.op for op in ops})
    except TpusimError as error:
        refused = str(error)
    nodes = tuple(_node(o, holders) for o in seen.nodes)
    return Prospect(nodes, ops, refused, (), assumed, not_kept(seen.model))


def imported_or_assumed(canonical: Model) -> CalibrationTable | None:
    """The table of a quantised network, completed by assumed ranges; None for any other network."""
    table = imported_table(canonical)
    return replace(table, entries={**assumed_table(canonical).entries, **table.entries}) if table.imported else None


def _before(seen: Inspection) -> tuple[str, ...]:
    """The tensors before the refused nodes, in order; network inputs are left out."""
    made = {name for node in seen.nodes for name in node.outputs}
    names = [n for node in seen.nodes if node.how == "refused" for n in node.inputs if n in made]
    return tuple(dict.fromkeys(names))


def _lowered_ops(tpu: Model, chip: chips.ChipSpec) -> list[LoweredOp]:
    found: list[LoweredOp] = []
    for run, why in base_groups(PassManager(WeightReorder()).run(tpu) if tpu.state == "TPU_LOWERED" else tpu, chip):
        for op in run:
            card = fidelity_of(op)
            found.append(
                LoweredOp(card.op, card.kind, card.number, card.status, card.decisions, card.reason, why or "")
            )
    return found


def _holders(top: Model, kept: set[str]) -> dict[Operation, str]:
    """For each imported op the tpu op that computes its result, or the next tpu op if it was fused into that."""
    found: dict[Operation, str] = {}
    for op in reversed([op for op in top.ops if isinstance(op, TopOp)]):
        users = [use.operation for result in op.results for use in result.uses]
        inner = next((found[user] for user in users if user in found), "")
        name = op_name(op) if op_name(op) in kept else inner
        if name:
            found[op] = name
    return found


def _node(outcome: Outcome, holders: Mapping[Operation, str]) -> NodeOutcome:
    computed = [op for op in outcome.ops if not isinstance(op, TopInput)]
    inside = next((holders[op] for op in reversed(computed) if op in holders), "")
    return NodeOutcome(
        outcome.node, outcome.op_type, outcome.how, tuple(op.name for op in computed), inside, outcome.why
    )
