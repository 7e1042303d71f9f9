"""Recurrent nodes as several ops; TPU-MLIR has one float op for each node (U-46, numerics.md 12.1, DN-34).

Front ends set the attribute `tpusim.part_of` on the ops of a node, such as "LSTM:Y" for the LSTM of the tensor Y. It is
part of the module's text.
"""

from collections.abc import Iterable
from typing import Final

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Operation

from tpusim.chips import ChipSpec
from tpusim.interfaces import rules
from tpusim.ir.attrs import op_name, text
from tpusim.ir.upstream import PART_OF
from tpusim.ops.framework.base import FloatMode, TopOp, holds
from tpusim.ops.interfaces import FloatRules
from tpusim.ops.structure import TopInput

TYPES: Final[dict[str, FloatMode]] = {"top.LSTM": "bf16", "top.GRU": "f32", "top.RNN": "f32"}
"""Kind of node -> float type of its ops in INT8, unless the chip's file differs. RNN, which TPU-MLIR lacks, as GRU."""


def mark_parts(ops: Iterable[Operation], kind: str, name: str) -> None:
    """Mark ops as parts of a node; ops that are marked already keep their mark."""
    for op in ops:
        op.attributes.setdefault(PART_OF, text(f"{kind}:{name}"))


def named_parts(ops: Iterable[Operation]) -> dict[str, Attribute]:
    """Name of an op -> the node of which it is a part."""
    marked = (op for op in ops if isinstance(op, TopOp) and PART_OF in op.attributes)
    return {op_name(op): op.attributes[PART_OF] for op in marked if op_name(op)}


def keep_parts(ops: Iterable[Operation], before: dict[str, Attribute]) -> None:
    """Mark the ops that rewrites made from parts: ops with the name of a part, and ops between two parts of a node.

    No other op lies between two parts, because nothing computed from a node's results is an operand of the node.
    """
    if not before:
        return
    top = [op for op in ops if isinstance(op, TopOp) and not isinstance(op, TopInput)]
    for op in top:
        if op_name(op) in before:
            op.attributes.setdefault(PART_OF, before[op_name(op)])
    above, below = dict[Operation, set[Attribute]](), dict[Operation, set[Attribute]]()
    for op in top:
        makers = [v.owner for v in op.operands if isinstance(v.owner, Operation)]
        above[op] = _marked(op).union(*(above.get(maker, set()) for maker in makers))
    for op in reversed(top):
        users = [use.operation for result in op.results for use in result.uses]
        below[op] = _marked(op).union(*(below.get(user, set()) for user in users))
    for op in top:
        between = above[op] & below[op]
        if between and PART_OF not in op.attributes:
            op.attributes[PART_OF] = min(between, key=str)


def _marked(op: Operation) -> set[Attribute]:
    return {op.attributes[PART_OF]} if PART_OF in op.attributes else set()


def float_type_of_part(op: Operation, chip: ChipSpec) -> FloatMode | None:
    """The float type of the node of which an op is a part; None for other ops, and for bools and indices."""
    found = op.attributes.get(PART_OF)
    if not isinstance(found, StringAttr) or holds(op.results[0]) != "real":
        return None
    kind = f"top.{found.data.partition(':')[0]}"
    other = chip.float_exception(kind)
    wanted = other.int8 if other is not None and other.int8 else TYPES.get(kind)
    return wanted if wanted in chip.modes else rules(chip, FloatRules).FALLBACK if wanted else None
