"""The fidelity card of a lowered model: how many ops are exact to the specification, and why others are not."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

from xdsl.dialects.builtin import ArrayAttr, IntegerType, StringAttr
from xdsl.ir import Attribute, Operation

from tpusim.fidelity.spec import DECISIONS
from tpusim.ir import upstream
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ir.types import element_of, uniform_of
from tpusim.ops.cast import TpuCast
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.interfaces import TwoArithmetics

Status = Literal["exact", "decision", "float", "refused"]
WORST_FIRST: tuple[Status, ...] = ("refused", "float", "decision", "exact")
TITLES: Mapping[Status, str] = {
    "exact": "exact to spec",
    "decision": "decision",
    "float": "float fallback",
    "refused": "refused",
}


@dataclass(frozen=True)
class OpFidelity:
    """One op: `number` is the stored type of its result (int8, f16, bf16, f32), `reason` the reason of a fallback."""

    op: str
    kind: str
    status: Status
    number: str
    decisions: tuple[str, ...] = ()
    reason: str = ""


def fidelity_of(op: Operation) -> OpFidelity:
    """The fidelity of a tpu op, from the notes that lowering wrote on it, and from the element type of its result."""
    listed, why = op.attributes.get(upstream.DECISIONS), op.attributes.get(upstream.FALLBACK)
    decisions: tuple[str, ...] = ()
    if isinstance(listed, ArrayAttr):
        decisions = tuple(a.data for a in cast("ArrayAttr[Attribute]", listed) if isinstance(a, StringAttr))
    reason = why.data if isinstance(why, StringAttr) else ""
    status: Status = "float" if reason else "decision" if decisions else "exact"
    return OpFidelity(op_name(op), op.name, status, number_type(op), decisions, reason)


def number_type(op: Operation) -> str:
    """int8 for quantised bytes of either sign, int4 for 4 bits, otherwise the element type.

    For results that are indices or accumulators it is the type of the operand.
    """
    value = op.results[0]
    if isinstance(element_of(value), IntegerType) and op.operands:
        value = op.operands[0]
    uniform = uniform_of(value)
    return f"int{min(uniform.params.bits, 8)}" if uniform is not None else str(element_of(value))


@dataclass(frozen=True)
class Card:
    """Every op of a model except casts, in program order, and the number of casts between number types.

    arithmetics: (arithmetic, name) of the ops in 16 bits that have two, the chip's and the interpreter's (DN-24).
    """

    ops: tuple[OpFidelity, ...]
    casts: int = 0
    arithmetics: tuple[tuple[str, str], ...] = ()

    def count(self, status: Status) -> int:
        """The number of ops of one class."""
        return sum(op.status == status for op in self.ops)

    def by_decision(self) -> dict[str, list[str]]:
        """Decision -> names of the ops that follow it."""
        return _grouped((d, op.op) for op in self.ops for d in op.decisions)

    def by_reason(self) -> dict[tuple[str, str], list[str]]:
        """(float type, reason) -> names of the ops with this fallback."""
        return _grouped(((op.number, op.reason), op.op) for op in self.ops if op.status == "float")

    def by_arithmetic(self) -> dict[str, list[str]]:
        """Arithmetic -> names of the ops in 16 bits that have it and could have the other."""
        return _grouped(self.arithmetics)

    def to_json(self) -> dict[str, Any]:
        """The key `fidelity` of report.json."""
        return {
            "ops": len(self.ops),
            **{status: self.count(status) for status in ("exact", "decision", "float")},
            "casts": self.casts,
            "numbers": {n: sum(op.number == n for op in self.ops) for n in sorted({op.number for op in self.ops})},
            "decisions": [
                {"decision": d, "says": DECISIONS.get(d, ""), "ops": names}
                for d, names in sorted(self.by_decision().items())
            ],
            "arithmetics": self.by_arithmetic(),
            "fallbacks": [asdict(op) for op in self.ops if op.status == "float"],
        }


def _grouped(pairs: Iterable[tuple[Any, str]]) -> dict[Any, list[str]]:
    found: dict[Any, list[str]] = {}
    for key, name in pairs:
        found.setdefault(key, []).append(name)
    return found


def card_of(model: Model) -> Card:
    """The card of a tpu module, of lowering or of any later stage."""
    ops = [op for op in model.body.walk() if isinstance(op, TpuOp)]
    casts = sum(isinstance(op, TpuCast) for op in ops)
    arithmetics = tuple(
        ("interpreter" if op.as_interpreter else "chip", op_name(op))
        for op in ops
        if isinstance(op, TwoArithmetics) and not isinstance(op, TpuCast) and number_type(op) in ("f16", "bf16")
    )
    return Card(tuple(fidelity_of(op) for op in ops if not isinstance(op, TpuCast)), casts, arithmetics)
