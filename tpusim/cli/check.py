"""`tpusim check`: what would become of a network on a chip, before anything runs."""

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar

import tyro

from tpusim.cli.command import Command
from tpusim.cli.options import In, Lowering, LoweringOptions, Network, NetworkOptions, OptionalPath
from tpusim.cli.output import Output
from tpusim.errors import ConfigError
from tpusim.tables import Table

if TYPE_CHECKING:
    from tpusim.prospect import LoweredOp, NodeAhead, Prospect

T = TypeVar("T")
_SHAPE = re.compile(r"\([\d, ]*\)")


@dataclass
class Check(Command):
    """Tell how every node of a network is imported, what it becomes on a chip, in which numbers, local or global.

    Nothing runs. Without --table ranges are assumed: floats that follow from measured ranges (operands of an Add that
    differ 64 times, scales above 126.5) are not foreseen then.
    """

    says = "every node (`nodes`) and op (`ops`), and what is `refused`"

    model: Annotated[In, tyro.conf.arg(metavar="MODEL.onnx")]
    lowering: Lowering = LoweringOptions()
    network: Network = NetworkOptions()
    table: OptionalPath = None
    """Calibration table to take the ranges from."""

    def execute(self, console: Output) -> bool:
        """Print what would become of it; True if the network can be taken."""
        from tpusim.calibration.table import read_table
        from tpusim.prospect import prospect

        config = self.lowering.config()
        if self.table is not None and not (config.format.calibrated or config.qtable is not None):
            raise ConfigError(f"--table {self.table}: needs --mode int8, or a --qtable; got --mode {config.mode}")
        found = prospect(
            self.model,
            config,
            input_shapes=self.network.shapes(),
            cut=self.network.cut(),
            table=None if self.table is None else read_table(self.table),
        )
        console.result(chip=config.chip, mode=config.mode, **found.to_json())
        self._show(console, found, f"On {config.chip} in {config.mode}")
        return not found.refused

    def _show(self, console: Output, found: "Prospect", where: str) -> None:
        console.detail(_nodes(found.nodes))
        if found.ops:
            ranges = ", ranges assumed" if found.assumed else ""
            console.detail(_ops(found.ops, f"{where}{ranges}"))
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
    table = Table(f"Import ({len(nodes)} nodes)").words("ONNX op").numbers("nodes").words("how")
    table.prose("becomes").names("which")
    for group in _alike(nodes, lambda n: (n.op_type, n.how, _kinds(n), n.why)):
        first = group[0]
        becomes = first.why or _kinds(first)
        table.row(first.op_type, str(len(group)), first.how, becomes, _some(n.node for n in group))
    return table


def _kinds(node: "NodeAhead") -> str:
    """`Conv`, or of parts `MatMul, Add x2`."""
    kinds = [kind.removeprefix("top.") for kind in node.top]
    counts = {kind: kinds.count(kind) for kind in kinds}
    return ", ".join(kind + (f" x{count}" if count > 1 else "") for kind, count in counts.items())


def _ops(ops: "Sequence[LoweredOp]", title: str) -> Table:
    """A line per kind of op, numbers, class and place."""
    table = Table(f"{title} ({len(ops)} ops)").words("tpu op").numbers("ops").words("numbers", "class", "memory")
    table.prose("why").names("which")
    for group in _alike(
        ops, lambda o: (o.kind, o.number, o.status, o.decisions, o.reason, _SHAPE.sub("", o.not_local))
    ):
        first = group[0]
        status = " ".join((first.status, *first.decisions))
        memory = "global" if first.not_local else "local"
        why = "; ".join(part for part in (first.reason, first.not_local) if part)
        row = (first.kind.removeprefix("tpu."), str(len(group)), first.number, status, memory, why)
        table.row(*row, _some(o.op for o in group))
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
