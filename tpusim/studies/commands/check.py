"""`tpusim check`: how a network would be compiled for a chip, before anything runs."""

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tpusim.cli.command import Command
from tpusim.cli.options import (
    Calibration,
    CalibrationOptions,
    Lowering,
    LoweringOptions,
    Network,
    NetworkOptions,
    NetworkPath,
    Preprocessing,
    PreprocessOptions,
    network_of,
)
from tpusim.cli.output import Output
from tpusim.errors import ConfigError
from tpusim.host.tables import Table

if TYPE_CHECKING:
    from tpusim.calibration.table import CalibrationTable
    from tpusim.running.network import Network as GivenNetwork
    from tpusim.studies.prospect import LoweredOp, NodeOutcome, Prospect

T = TypeVar("T")
_SHAPE = re.compile(r"\([\d, ]*\)")


@dataclass
class Check(Command):
    """Tell how every node of a network is imported, which op of the chip it becomes, in which type, local or global.

    Nothing runs, unless --data is given to measure ranges. Without --data, a --table, a run or a calibrated module,
    ranges are assumed. Then ops that fall back to float because of measured ranges (operands of an Add that differ 64
    times, scales above 126.5) are not reported.
    """

    says = "every node (`nodes`) and op (`ops`), and what is `refused`"

    model: NetworkPath
    lowering: Lowering = LoweringOptions()
    network: Network = NetworkOptions()
    preprocessing: Preprocessing = PreprocessOptions()
    calibration: Calibration = CalibrationOptions()

    def execute(self, console: Output) -> bool:
        """Print how the network would be compiled; True if nothing is refused."""
        from tpusim.cli.waiting import told
        from tpusim.studies.prospect import prospect

        asked, table = (self.network, self.preprocessing, self.calibration, self.lowering), self.calibration.table
        given = network_of(self.model, asked, assume=True)
        config, path = given.lowering, given.model_path or self.model
        if table is not None and not (config.format.calibrated or config.qtable is not None):
            raise ConfigError(f"--table {table}: needs --mode int8, or a --qtable; got --mode {config.mode}")
        with told(f"reading {path} and lowering it for {given.chip.name}", lambda: _files(path)):
            found = prospect(
                given.latest if given.framework is None else given.framework, config,
                input_shapes=given.config.input_shapes, cut=given.config.cut, table=_ranges(given),
            )  # fmt: skip
        console.result(chip=given.chip.name, mode=str(config.mode), **found.to_json())
        self._show(console, found, f"{given.chip.name} in {config.mode}")
        return not found.refused

    def _show(self, console: Output, found: "Prospect", where: str) -> None:
        if found.nodes:
            console.detail(_nodes(found.nodes))
        if found.ops:
            ranges = ", ranges assumed" if found.assumed else ""
            console.detail(_ops(found.ops, f"On {where}{ranges}"))
        for note in found.not_kept:
            console.print(f"quantised network: {note}", markup=False, highlight=False, soft_wrap=True)
        if found.refused:
            console.lines(f"{found.refused}\n")
        if found.cut:
            where = " ".join(found.cut)
            console.print(f"to stop before what is refused, give --outputs {where}", markup=False, soft_wrap=True)
        if not found.refused:
            console.print(_summary(found.ops), markup=False, highlight=False, soft_wrap=True)


def _files(model: Path) -> list[Path]:
    """The files of a model."""
    from tpusim.frontend.onnx import external_files
    from tpusim.ir.content import is_module

    return [model, *(external_files(model) if model.is_file() and not is_module(model) else ())]


def _ranges(given: "GivenNetwork") -> "CalibrationTable | None":
    """The ranges in force; None if they are assumed, or if the network is refused before it has any."""
    from tpusim.calibration.table import read_table
    from tpusim.errors import TpusimError

    if given.config.table is not None:
        return read_table(given.config.table)
    if given.assume or given.framework is None:
        return None
    try:
        return given.table
    except TpusimError:  # it becomes part of the result
        return None


def _nodes(nodes: "Sequence[NodeOutcome]") -> Table:
    """A line per op type, way of import and resulting ops."""
    table = Table(f"Import ({len(nodes)} nodes)").words("ONNX op").numbers("nodes").words("how")
    table.prose("becomes").names("which")
    for group in _grouped(nodes, lambda n: (n.op_type, n.how, _kinds(n), n.why)):
        first = group[0]
        becomes = first.why or _kinds(first)
        table.row(first.op_type, str(len(group)), first.how, becomes, _some(n.node for n in group))
    return table


def _kinds(node: "NodeOutcome") -> str:
    """`Conv`, or of parts `MatMul, Add x2`."""
    kinds = [kind.removeprefix("top.") for kind in node.top]
    counts = {kind: kinds.count(kind) for kind in kinds}
    return ", ".join(kind + (f" x{count}" if count > 1 else "") for kind, count in counts.items())


def _ops(ops: "Sequence[LoweredOp]", title: str) -> Table:
    """A line per kind of op, numbers, class and place."""
    table = Table(f"{title} ({len(ops)} ops)").words("tpu op").numbers("ops").words("numbers", "class", "memory")
    table.prose("why").names("which")
    for group in _grouped(
        ops, lambda o: (o.kind, o.number, o.status, o.decisions, o.reason, _SHAPE.sub("", o.not_local))
    ):
        first = group[0]
        status = " ".join((first.status, *first.decisions))
        memory = "global" if first.not_local else "local"
        why = "; ".join(part for part in (first.reason, first.not_local) if part)
        row = (first.kind.removeprefix("tpu."), str(len(group)), first.number, status, memory, why)
        table.row(*row, _some(o.op for o in group))
    return table


def _grouped(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Groups of items with equal keys, in the order of their first items."""
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
    return f"{len(ops)} ops, {float_ops} in another float type, {away} from global memory; nothing is refused"
