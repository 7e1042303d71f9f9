"""The smallest network with one op of a larger network: ONNX cut around the op, with its real inputs and its ranges.

A cut is possible at tensors of the ONNX file. If a node became several ops, the inner tensors are not in the file, and
the neighbouring ops are included.
"""

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from xdsl.ir import SSAValue

from tpusim.calibration.table import CalibrationTable, Entry, write_table
from tpusim.errors import ConfigError
from tpusim.frontend import Cut, import_onnx
from tpusim.frontend.onnx import Source, extract, tensors_of, write_onnx
from tpusim.host.files import replacing
from tpusim.inference import dequantised, input_specs, run
from tpusim.ir.attrs import framework_name, op_name
from tpusim.ir.imported_scales import imported_weight_scales
from tpusim.ir.module import Model
from tpusim.ir.types import calibrated_range, shape_of
from tpusim.lowering import LoweringConfig
from tpusim.ops.framework.base import TopOp
from tpusim.ops.structure import TopInput, TopNone, TopWeight
from tpusim.passes import PassContext, PassManager
from tpusim.passes.calibration import ImportCalibrationTable
from tpusim.passes.canonicalize import Canonicalize
from tpusim.passes.pipelines import converted
from tpusim.studies.diagnosis.losses import Tensors
from tpusim.verify.compare import Comparison, Tolerance, compare
from tpusim.verify.npz import save_tensors


@dataclass(frozen=True)
class Reproducer:
    """A complete network: ONNX, one sample of its inputs, and, if it was calibrated, the table of its ranges.

    modes: the lines of a quantisation table for its ops. top: its module, calibrated if the network was.
    """

    proto: Source
    inputs: dict[str, np.ndarray]
    table: CalibrationTable | None
    modes: Mapping[str, str]
    top: Model

    @staticmethod
    def of(
        source: Path,
        model: Model,
        name: str,
        inputs: Tensors,
        *,
        modes: Mapping[str, str] | None = None,
        asymmetric: bool = False,
        before: int = 0,
    ) -> "Reproducer":
        """Cut the op of that name out of the ONNX file that the top module was made of.

        inputs: one sample of the whole network; modes: its quantisation table; before: how many ops before it are
        included on every path. Raises ConfigError if the file does not have the module's tensors, ImportModelError if
        it cannot be cut at them.
        """
        proto = _cut(source, model, name, before)
        top = PassManager(Canonicalize()).run(import_onnx(proto))
        known = {framework_name(op): op for op in _computed(model)}
        own = {op: known[framework_name(op)] for op in _computed(top) if framework_name(op) in known}
        unknown = [op_name(op) for op in _computed(top) if op not in own]
        if unknown:
            raise ConfigError(
                f"{source}: the part around '{name}' has tensors that the module lacks: {unknown}; "
                "give the model that the module was made of"
            )
        table = None
        if model.state == "TOP_CALIBRATED":
            table = _table(own, top)
            top = PassManager(ImportCalibrationTable(asymmetric=asymmetric)).run(top, PassContext(table=table))
        asked = modes or {}
        found = {op_name(op): asked[op_name(was)] for op, was in own.items() if op_name(was) in asked}
        return Reproducer(proto, _sample(top, own, run(model, inputs)), table, found, top)

    def compare(self, config: LoweringConfig, tolerance: Tolerance) -> Comparison:
        """Lower it with its quantisation table and compare its tensors with the float tensors."""
        with tempfile.TemporaryDirectory() as folder:
            asked = self.config(config, self.write_qtable(Path(folder)))
            lowered = PassManager(converted(asked)).run(self.top)
        found = dequantised(lowered, run(lowered, self.inputs))
        return compare(found, run(self.top, self.inputs), tolerance)

    def config(self, config: LoweringConfig, qtable: Path | None) -> LoweringConfig:
        """The lowering of the whole network, with the quantisation table reduced to these ops."""
        return replace(config, qtable=None if qtable is None else str(qtable))

    def write(self, folder: Path, commands: Iterable[str], *, origin: str) -> None:
        """Write op.onnx, inputs.npz, show.sh with the commands, and cali_table and qtable if they are needed."""
        folder.mkdir(parents=True, exist_ok=True)
        write_onnx(self.proto, folder / "op.onnx")
        save_tensors(folder / "inputs.npz", self.inputs)
        if self.table is not None:
            write_table(folder / "cali_table", self.table, method="as given", samples=0, bins=0, tune=0, module=origin)
        self.write_qtable(folder)
        script = "\n".join(("#!/bin/sh", 'cd "$(dirname "$0")" || exit 1', *commands))
        with replacing(folder / "show.sh") as target:
            target.write_text(script + "\n", encoding="utf-8")

    def write_qtable(self, folder: Path) -> Path | None:
        """Write the quantisation table and return its path; None if it is empty."""
        if not self.modes:
            return None
        lines = "".join(f"{name} {mode.upper()}\n" for name, mode in self.modes.items())
        with replacing(folder / "qtable") as target:
            target.write_text(f"# op_name quantize_mode\n{lines}", encoding="utf-8")
        return folder / "qtable"


def _computed(model: Model) -> list[TopOp]:
    """The ops that compute: all except constants and absent operands."""
    return [op for op in model.ops if isinstance(op, TopOp) and not isinstance(op, TopWeight | TopNone)]


def _cut(source: Path, model: Model, name: str, before: int) -> Source:
    """The part of the ONNX file between its nearest tensors before and after the op."""
    has = tensors_of(source)
    op = next((op for op in _computed(model) if op_name(op) == name), None)
    if op is None:
        raise ConfigError(f"'{name}': an op of the module is required")
    ends = _nearest_after(op, has)
    inside = [op, *ends]
    begins = _nearest_before(inside, has)
    for _ in range(before):
        inside += [begin for begin in begins if not isinstance(begin, TopInput)]
        begins = _nearest_before(inside, has)
    if not ends or not begins:
        raise ConfigError(f"{source}: has no tensors around '{name}'; give the model that the module was made of")
    cut = Cut(tuple(map(framework_name, begins)), tuple(map(framework_name, ends)))
    inputs = [op for op in model.ops if isinstance(op, TopInput)]
    return extract(source, cut, {framework_name(op): shape_of(op.results[0]) for op in (*inputs, *begins)})


def _nearest_after(op: TopOp, has: set[str]) -> list[TopOp]:
    """The op itself if the file has its tensor, otherwise the nearest ops after it whose tensors are in the file."""
    found, queue = dict[TopOp, None](), [op]
    while queue:
        now = queue.pop(0)
        if framework_name(now) in has:
            found[now] = None
        else:
            queue += [use.operation for r in now.results for use in r.uses if isinstance(use.operation, TopOp)]
    return list(found)


def _nearest_before(ops: Iterable[TopOp], has: set[str]) -> list[TopOp]:
    """The nearest tensors of the file before these ops; constants are left to the file."""
    found, queue, ends = dict[TopOp, None](), list[SSAValue](), set(ops)
    for op in ends:
        queue += op.operands
    seen = set[SSAValue]()
    while queue:
        value = queue.pop(0)
        source = value.owner
        if value in seen or not isinstance(source, TopOp) or isinstance(source, TopWeight | TopNone):
            continue
        seen.add(value)
        if framework_name(source) in has and source not in ends:
            found[source] = None
        else:
            queue += source.operands
    return [op for op in found if not isinstance(op, TopInput)] + [op for op in found if isinstance(op, TopInput)]


def _table(own: Mapping[TopOp, TopOp], top: Model) -> CalibrationTable:
    """The ranges in force under the names of the cut network, with scales of filters that its file does not contain."""
    entries, scales = dict[str, Entry](), dict[str, tuple[float, ...]]()
    for op, was in own.items():
        low, high = calibrated_range(was.results[0]) or (0.0, 0.0)
        entries[op_name(op)] = Entry(max(abs(low), abs(high)), low, high)
        filters = imported_weight_scales(was.operands[1]) if min(len(was.operands), len(op.operands)) > 1 else ()
        if filters and not imported_weight_scales(op.operands[1]):
            scales[f"{op_name(op)}_weight"] = filters
    return CalibrationTable(entries, weight_scales=scales)


def _sample(top: Model, own: Mapping[TopOp, TopOp], floats: Tensors) -> dict[str, np.ndarray]:
    """The float network's values at the inputs of the cut network."""
    was = {op_name(op): op_name(source) for op, source in own.items()}
    return {name: floats[was[name]].reshape(shape).astype(dtype) for name, (shape, dtype) in input_specs(top).items()}
