"""`tpusim check`: what would become of a network on a chip, before anything runs."""

import json
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tpusim.cli.options import In, Lowering, LoweringOptions, Network, NetworkOptions, OptionalPath
from tpusim.errors import ConfigError

if TYPE_CHECKING:
    from tpusim.prospect import LoweredOp, NodeAhead, Prospect

T = TypeVar("T")
_SHAPE = re.compile(r"\([\d, ]*\)")


@dataclass
class Check:
    """Tell how every node of a network is imported, what it becomes on a chip, in which numbers, local or global.

    Nothing runs. Without --table ranges are assumed: floats that follow from measured ranges (operands of an Add that
    differ 64 times, scales above 126.5) are not foreseen then.
    """

    model: Annotated[In, tyro.conf.arg(metavar="MODEL.onnx")]
    lowering: Lowering = LoweringOptions()
    network: Network = NetworkOptions()
    table: OptionalPath = None
    """Calibration table to take the ranges from."""
    json: bool = False
    """Print JSON: every node and every op."""

    def execute(self, console: Console) -> bool:
        """Print what would become of it; True if the network can be taken."""
        from tpusim.calibration.table import read_table
        from tpusim.cli.waiting import told
        from tpusim.frontend.onnx import external_files
        from tpusim.prospect import prospect

        config = self.lowering.config()
        if self.table is not None and not (config.format.calibrated or config.qtable is not None):
            raise ConfigError(f"--table {self.table}: needs --mode int8, or a --qtable; got --mode {config.mode}")
        table = None if self.table is None else read_table(self.table)
        doing = f"reading {self.model} and lowering it for {self.lowering.chip}"
        with told(doing, lambda: [self.model, *external_files(self.model)]):
            found = prospect(
                self.model, config, input_shapes=self.network.shapes(), cut=self.network.cut(), table=table
            )
        if self.json:
            console.print(
                json.dumps({"chip": self.lowering.chip, "mode": self.lowering.mode, **found.to_json()}, indent=1),
                markup=False, highlight=False, soft_wrap=True,
            )  # fmt: skip
        else:
            self._show(console, found)
        return not found.refused

    def _show(self, console: Console, found: "Prospect") -> None:
        console.print(_nodes(found.nodes))
        if found.ops:
            ranges = ", ranges assumed" if found.assumed else ""
            console.print(_ops(found.ops, f"On {self.lowering.chip} in {self.lowering.mode}{ranges}"))
        for note in found.not_kept:
            console.print(f"quantised network: {note}", markup=False, highlight=False, soft_wrap=True)
        if found.refused:
            console.print(found.refused, markup=False, highlight=False, soft_wrap=True)
        if found.cut:
            where = " ".join(found.cut)
            console.print(f"to stop before what is refused, give --outputs {where}", markup=False, soft_wrap=True)
        if not found.refused:
            console.print(_summary(found.ops), markup=False, highlight=False, soft_wrap=True)


def _nodes(nodes: "Sequence[NodeAhead]") -> Table:
    """A line per op type, way of import and what nodes of it become."""
    table = Table(title=f"Import ({len(nodes)} nodes)", title_justify="left", box=None)
    table.add_column("ONNX op", no_wrap=True)
    table.add_column("nodes", justify="right", no_wrap=True)
    for name in ("how", "becomes", "which"):
        table.add_column(name, overflow="fold")
    for group in _alike(nodes, lambda n: (n.op_type, n.how, _kinds(n), n.why)):
        first = group[0]
        becomes = first.why or _kinds(first)
        row = (first.op_type, str(len(group)), first.how, becomes, _some(n.node for n in group))
        table.add_row(*map(escape, row))
    return table


def _kinds(node: "NodeAhead") -> str:
    """`Conv`, or of parts `MatMul, Add x2`."""
    kinds = [kind.removeprefix("top.") for kind in node.top]
    counts = {kind: kinds.count(kind) for kind in kinds}
    return ", ".join(kind + (f" x{count}" if count > 1 else "") for kind, count in counts.items())


def _ops(ops: "Sequence[LoweredOp]", title: str) -> Table:
    """A line per kind of op, numbers, class and place."""
    table = Table(title=f"{title} ({len(ops)} ops)", title_justify="left", box=None)
    table.add_column("tpu op", no_wrap=True)
    table.add_column("ops", justify="right", no_wrap=True)
    for name in ("numbers", "class", "memory", "why", "which"):
        table.add_column(name, overflow="fold", no_wrap=name in ("numbers", "memory"))
    for group in _alike(
        ops, lambda o: (o.kind, o.number, o.status, o.decisions, o.reason, _SHAPE.sub("", o.not_local))
    ):
        first = group[0]
        status = " ".join((first.status, *first.decisions))
        memory = "global" if first.not_local else "local"
        why = "; ".join(part for part in (first.reason, first.not_local) if part)
        row = (first.kind.removeprefix("tpu."), str(len(group)), first.number, status, memory, why)
        table.add_row(*map(escape, (*row, _some(o.op for o in group))))
    return table


def _alike(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Items with equal keys together, in the order of their firsts."""
    found: dict[Hashable, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return list(found.values())


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:2]) + (f" ... {listed[-1]}" if len(listed) > 2 else "")


def _summary(ops: "Sequence[LoweredOp]") -> str:
    float_ops = sum(op.status == "float" for op in ops)
    away = sum(bool(op.not_local) for op in ops)
    return f"{len(ops)} ops, {float_ops} in float beside their mode, {away} from global memory; nothing is refused"
