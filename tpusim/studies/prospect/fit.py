"""`fit`: whether a network fits the global and the local memory of a chip, and which tensors or ops do not."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from xdsl.ir import SSAValue

from tpusim import chips
from tpusim.chips import ChipSpec
from tpusim.errors import TpusimError
from tpusim.frontend import WHOLE, Cut, read_model
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.module import Model, State
from tpusim.ir.types import stored_bytes
from tpusim.layer_group import GroupView, views
from tpusim.lowering import LoweringConfig
from tpusim.memory.assign import Neuron, live_ranges
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.interfaces import is_in_place, why_rather_global
from tpusim.ops.structure import TopWeight
from tpusim.passes import PassManager
from tpusim.passes.lowering import WeightReorder
from tpusim.passes.memory import AddressAssign
from tpusim.passes.pipelines import grouped
from tpusim.schedule import tensor_name
from tpusim.studies.prospect.lowered import lowered_without_samples

Cause = Literal["never local", "too large for it", "has its own kernel"]
LARGEST = 5
"""So many of the largest tensors are named."""
Sizes = tuple[tuple[str, int], ...]
"""(name, bytes), the largest first."""


@dataclass(frozen=True)
class Outside:
    """An op that works from global memory: never local on the chip, too large, or alone with a library kernel."""

    op: str
    kind: str
    cause: Cause
    reason: str


@dataclass(frozen=True)
class Fit:
    """The memory of a network on a chip, in bytes; refused: why it cannot be compiled, "" if it can.

    room: global memory, 0 if unknown. weights, neurons: sizes of the two regions; constants: the largest weights;
    crowd: the tensors alive at the op with the most live bytes, `crowded`. peaks: local memory of each group, per lane.
    """

    chip: str
    mode: str
    refused: str
    room: int = 0
    weights: int = 0
    neurons: int = 0
    constants: Sizes = ()
    crowded: str = ""
    crowd: Sizes = ()
    lmem: int = 0
    peaks: tuple[int, ...] = ()
    outside: tuple[Outside, ...] = ()

    @property
    def needed(self) -> int:
        """Bytes of global memory for weights and neurons."""
        return self.weights + self.neurons

    @property
    def fits(self) -> bool | None:
        """Whether it fits global memory; None if the size of that is unknown."""
        if self.refused:
            return False
        return self.needed <= self.room if self.room else None

    def to_json(self) -> dict[str, Any]:
        """The object that `tpusim fit --json` prints."""
        return {**asdict(self), "needed": self.needed, "fits": self.fits}


def fit(
    model: Path | Model,
    config: LoweringConfig,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    cut: Cut = WHOLE,
    room: int = 0,
) -> Fit:
    """The memory of a model, or a module of any state, on a chip in a mode. No sample is needed: ranges change no size.

    room: bytes of global memory; 0: the size in the chip's file. Raises ImportModelError for a file that cannot be
    read; `refused` of the result says why a network cannot be compiled.
    """
    chip = chips.load(config.chip)
    mode = str(config.mode)
    known = model if isinstance(model, Model) else read_model(model, input_shapes=input_shapes, cut=cut)
    try:
        final = _addressed(known, config)
    except TpusimError as error:
        return Fit(chip.name, mode, str(error), room or chip.gmem_bytes)
    crowded, crowd = _crowd(final, chip)
    peaks = tuple(view.peak for view in views(final) if isinstance(view, GroupView))
    weights = [op.output for op in final.ops if isinstance(op, TopWeight)]
    return Fit(
        chip.name, mode, "", room or chip.gmem_bytes, final.number("module.coeff_size"),
        final.number("module.neuron_size"), _largest([(value_name(v), stored_bytes(v)) for v in weights]), crowded,
        crowd, chip.lmem_bytes, peaks, _outside(final, chip),
    )  # fmt: skip


def assumed(model: Path, config: LoweringConfig) -> Model:
    """A model lowered without a sample, with weights in the chip's layout; its integers mean nothing."""
    return PassManager(WeightReorder()).run(lowered_without_samples(read_model(model), config))


def _addressed(model: Model, config: LoweringConfig) -> Model:
    """The module after all remaining stages up to address assignment."""
    tpu = lowered_without_samples(model, config)
    if tpu.state == State.ADDRESSED:
        return tpu
    remaining = () if tpu.state == State.GROUPED else grouped()
    return PassManager((*remaining, AddressAssign())).run(tpu)


def _largest(sizes: Sequence[tuple[str, int]]) -> Sizes:
    return tuple(sorted(sizes, key=lambda one: -one[1])[:LARGEST])


def _crowd(model: Model, chip: ChipSpec) -> tuple[str, Sizes]:
    """(the tensor made where the most bytes of activations are alive, the tensors alive there)."""
    neurons, _ = live_ranges(model, chip)

    def alive_with(made: Neuron) -> list[Neuron]:
        return [n for n in neurons if n.start <= made.start <= n.end]

    if not neurons:
        return "", ()
    worst = max(neurons, key=lambda made: sum(n.size for n in alive_with(made)))
    return _name(worst), _largest([(_name(n), n.size) for n in alive_with(worst)])


def _name(neuron: Neuron) -> str:
    """The tensor's name; of the room that an op needs, the op's."""
    value = neuron.value
    return tensor_name(value) if isinstance(value, SSAValue) else f"buffer of {op_name(value)}"


def _outside(model: Model, chip: ChipSpec) -> tuple[Outside, ...]:
    """Ops outside all groups, without views, which cost nothing."""
    reasons = {view.name: view.reason for view in views(model) if not isinstance(view, GroupView)}
    ops = [op for op in model.ops if isinstance(op, TpuOp) and op_name(op) in reasons and not is_in_place(op)]
    return tuple(
        Outside(op_name(op), op.name, _cause(op, reasons[op_name(op)], chip), reasons[op_name(op)]) for op in ops
    )


def _cause(op: TpuOp, reason: str, chip: ChipSpec) -> Cause:
    if op.why_not_local(chip) is not None:
        return "never local"
    return "has its own kernel" if reason == why_rather_global(op, chip) else "too large for it"
