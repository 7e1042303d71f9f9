"""tpusim's side of a cell: the modules as text, the constants, every tensor, groups and the clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import onnx
from xdsl.ir import SSAValue

from benchmarks.accuracy.measure import DIGITS, SAMPLES, TRAINED, config
from benchmarks.conformance.pairing import computing, pair
from benchmarks.conformance.text import Op, read
from benchmarks.conformance.upstream import Files
from benchmarks.explore import networks as sized
from tests.upstream import networks as small
from tpusim import chips, zoo
from tpusim.calibration.samples import load_samples
from tpusim.calibration.stage import CalibrationConfig, calibrate
from tpusim.calibration.table import CalibrationTable, Entry, parse_table, table_name
from tpusim.errors import ConfigError
from tpusim.frontend import import_onnx
from tpusim.inference import input_specs, run
from tpusim.inference.executor import Steps, check_inputs
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ir.text import print_module
from tpusim.isa.stream import Program
from tpusim.ops.structure import TopNone, TopWeight
from tpusim.passes import PassContext, PassManager
from tpusim.passes.calibration import ImportCalibrationTable
from tpusim.passes.codegen import Codegen
from tpusim.passes.memory import AddressAssign
from tpusim.passes.pipelines import canonical, converted, grouped
from tpusim.simulator import Timeline, timeline

NETWORKS: tuple[str, ...] = (*small.NETWORKS, TRAINED, *zoo.ZOO)
HELD_OUT = {
    "mobilenet_v2": sized.mobilenet_v2,
    "yolov5n": sized.yolo,
    "vit_tiny": sized.vit,
    "vit_6": partial(sized.vit, 6, class_token=True),
}
"""Networks that no model was fitted to."""
Array = np.ndarray
Samples = list[dict[str, Array]]
THEIRS, OWN = "table", "own_table"
"""Files of the shared table in the folder of upstream's canonical module."""


@dataclass
class Network:
    """The common data of the cells of one network on our side."""

    name: str
    proto: onnx.ModelProto
    canonical: Model
    samples: Samples
    shared: Shared | None = None
    _calibrated: dict[bool, Model] = field(default_factory=dict[bool, Model])

    @classmethod
    def prepare(cls, name: str) -> Network:
        """Build or read the network and canonicalize it."""
        return cls.of(name, *source(name))

    @classmethod
    def of(cls, name: str, proto: onnx.ModelProto, samples: Samples | str) -> Network:
        """Canonicalize a network; samples: as they are, or where `load_samples` gets them."""
        top = PassManager(canonical()).run(import_onnx(proto, name=name))
        specs = input_specs(top)
        if isinstance(samples, str):
            samples = [dict(s) for s in load_samples(samples, specs)]
        return cls(name, proto, top, samples)

    @property
    def sample(self) -> dict[str, Array]:
        """The sample that the networks run on."""
        return self.samples[0]

    def top(self) -> list[Op]:
        """The canonical module's ops."""
        return read(print_module(self.canonical.module))

    def share_table(self, top: Files) -> str:
        """The text of the common table by upstream's names: kept in the folder of `top`, or measured.

        tpusim calibrates with KL; a tensor that only upstream has gets the range of its float values. The module of
        ours takes the numbers as they are printed.
        """
        if not top.text(THEIRS):
            own = self._measured()
            (top.folder / OWN).write_text(table_text(own))
            (top.folder / THEIRS).write_text(table_text(self._renamed(own, top)))
        self.shared = Shared(top.text(THEIRS), top.text(OWN), tuple(computing(read(top.text("m.mlir")))))
        return self.shared.theirs

    def take_table(self, theirs: str, top: Files, *, complete: bool) -> None:
        """Use a table that upstream measured; if it lacks tensors of ours, lines that we measured are added."""
        own = "" if complete else table_text(self._measured())
        self.shared = Shared(theirs, own, tuple(computing(read(top.text("m.mlir")))))

    def _measured(self) -> dict[str, Entry]:
        found, _ = calibrate(self.canonical, (dict(s) for s in self.samples), CalibrationConfig("kl"))
        return {table_name(name): entry for name, entry in found.entries.items()}

    def _renamed(self, own: Mapping[str, Entry], top: Files) -> dict[str, Entry]:
        """Our entries by upstream's names, and those of tensors that only upstream has."""
        theirs, values = computing(read(top.text("m.mlir"))), top.arrays("float.npz")
        named = {their.name: our.name for our, their in pair(computing(self.top()), theirs)}
        lines = dict[str, Entry]()
        for op in theirs:
            known = own.get(table_name(named.get(op.name, "")))
            if known is not None:
                lines[op.name] = known
            elif op.name in values:
                low, high = float(values[op.name].min()), float(values[op.name].max())
                lines[op.name] = Entry(max(-low, high), low, high)
        return lines

    def for_mode(self, *, asymmetric: bool, integers: bool) -> Model:
        """The module that lowering takes. Raises ConfigError in INT8 before `share_table`."""
        if not integers:
            return self.canonical
        if self.shared is None:
            raise ConfigError(f"network '{self.name}': the shared table is required in INT8; share_table comes first")
        if asymmetric not in self._calibrated:
            table = self.shared.by_our_names(computing(self.top()))
            put = PassManager(ImportCalibrationTable(asymmetric=asymmetric))
            self._calibrated[asymmetric] = put.run(self.canonical, PassContext(table=table))
        return self._calibrated[asymmetric]


@dataclass(frozen=True)
class Shared:
    """A table of both sides. theirs, own: its lines by upstream's and by our names; top: upstream's canonical ops.

    Without lines of ours, theirs is complete by our names too.
    """

    theirs: str
    own: str
    top: Sequence[Op]

    def by_our_names(self, ours: Sequence[Op]) -> CalibrationTable:
        """Upstream's line where an op of ours is paired, else our own."""
        theirs = parse_table(self.theirs).entries
        if not self.own:
            return CalibrationTable(theirs)
        table = {**parse_table(self.own).entries}
        for a, b in pair(ours, self.top):
            if b.name in theirs:
                table[table_name(a.name)] = theirs[b.name]
        return CalibrationTable(table)


def alone(tpu: Model, sample: Mapping[str, Array], theirs: Mapping[str, Array]) -> dict[str, Array]:
    """The result of each op of a lowered module on known tensors (by our names), or on ours where none is known.

    So a difference shows only at the op that makes it, not at later ops.
    """
    given = dict(zip(tpu.body.args, check_inputs(tpu, sample), strict=True))
    values, found, steps = dict[SSAValue, Any](given), dict[str, Array](), Steps.of(tpu)
    for op in tpu.ops:
        if op is tpu.terminator:
            break
        steps.step(op, values)
        if op.results and (name := op_name(op)) and not isinstance(op, TopWeight | TopNone):
            found[name] = np.asarray(values[op.results[0]])
            known = theirs.get(name)
            if known is not None and known.size == found[name].size and _fits(known.dtype, found[name].dtype):
                values[op.results[0]] = known.reshape(found[name].shape)
    return found


def _fits(given: np.dtype[Any], to: np.dtype[Any]) -> bool:
    """Whether a tensor may stand for one of ours: of its type, or f32 that upstream's interpreter did not round."""
    return given == to or (given == np.float32 and to.name in ("float16", "bfloat16"))


def table_text(entries: Mapping[str, Entry]) -> str:
    """The lines of a table, 7 decimals."""
    return "".join(f"{n} {e.threshold:.7f} {e.minimum:.7f} {e.maximum:.7f}\n" for n, e in entries.items())


def source(name: str) -> tuple[onnx.ModelProto, Samples | str]:
    """A network by name, with samples or the place of samples."""
    if name in small.NETWORKS:
        proto = small.build(name)
        return proto, small.samples(proto)
    if name == TRAINED:
        return onnx.load(DIGITS / "digits.onnx"), str(DIGITS / "calibration.npz")
    return HELD_OUT[name]() if name in HELD_OUT else zoo.build(name), SAMPLES


@dataclass
class Compiled:
    """One cell on our side."""

    tpu: Model
    sample: dict[str, Array]
    chip: str
    _grouped: Model | None = None
    _program: Program | None = None
    _tensors: dict[str, Array] | None = None

    @classmethod
    def of(cls, network: Network, chip: str, mode: str) -> Compiled:
        """Lower. Raises TpusimError where the compiler refuses."""
        settings = config(chip, mode)
        module = network.for_mode(asymmetric=settings.asymmetric, integers=settings.format.calibrated)
        return cls(PassManager(converted(settings)).run(module), network.sample, chip)

    def ops(self) -> list[Op]:
        """The lowered module's ops."""
        return read(print_module(self.tpu.module))

    def tensors(self) -> dict[str, Array]:
        """Every tensor, integers as they are stored."""
        if self._tensors is None:
            self._tensors = run(self.tpu, self.sample)
        return self._tensors

    def alone(self, theirs: Mapping[str, Array]) -> dict[str, Array]:
        """Every tensor, each op on upstream's operands where these are known."""
        return alone(self.tpu, self.sample, theirs)

    def grouped(self) -> Model:
        """The module in groups, with addresses."""
        if self._grouped is None:
            self._grouped = PassManager((*grouped(), AddressAssign())).run(self.tpu)
        return self._grouped

    def program(self) -> Program:
        """The commands."""
        if self._program is None:
            self._program = PassManager(Codegen()).program(self.grouped())
        return self._program

    def timeline(self) -> Timeline:
        """The commands on the clock."""
        return timeline(self.program(), chips.load(self.chip))
