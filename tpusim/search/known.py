"""Ops that people keep in float whatever is measured: what is known of transformers and of YOLO heads.

The rules are those by which a table is filled before the search (U-71): in a network with attention the sums
that a LayerNorm reads, SiLU and GELU; of a detector's head the last convolutions and all that comes after them. Here
Softmax and LayerNorm themselves are named too, where the chip has them in integers. Masks need no rule: an op that
reads one is in float by lowering (DN-31).
"""

from collections.abc import Iterator

from xdsl.ir import Operation

from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ops.base import TopOp

PRODUCT = "top.MatMul"
STEEP = {"top.SiLU", "top.GELU", "top.Softmax", "top.LayerNorm"}
HEAD_BEFORE = {"top.SiLU", "top.LeakyRelu"}
HEAD_BEHIND = {"top.Concat", "top.Reshape"}


def known_floats(model: Model) -> dict[str, str]:
    """Op name -> why it is to be float, in program order; {} for a network without attention and head."""
    found: dict[Operation, str] = {}
    if _has_attention(model):
        found |= dict(_of_transformers(model))
    for op in model.ops:
        if _ends_a_head(op):
            found |= {one: "head of a detector" for one in (op, *_behind(op)) if one not in found}
    return {op_name(op): found[op] for op in model.ops if op in found}


def _of_transformers(model: Model) -> Iterator[tuple[Operation, str]]:
    for op in model.ops:
        if op.name in STEEP:
            yield op, f"{op.name.removeprefix('top.')} in a transformer"
        if op.name == "top.Add" and any(user.name == "top.LayerNorm" for user in _users(op)):
            yield op, "sum that a LayerNorm reads"


def _has_attention(model: Model) -> bool:
    """Whether a Softmax goes into a product of two activations, and there is a LayerNorm."""
    kinds = {op.name for op in model.ops}
    weighs = (user for op in model.ops if op.name == "top.Softmax" for user in _users(op))
    return "top.LayerNorm" in kinds and any(user.name == PRODUCT for user in weighs)


def _ends_a_head(op: Operation) -> bool:
    """Whether it is a last convolution: an activation before it, a Concat or Reshape behind, no convolution then."""
    if op.name != "top.Conv":
        return False
    users = _users(op)
    if len(users) != 1 or users[0].name not in HEAD_BEHIND:
        return False
    before = op.operands[0].owner
    return (
        isinstance(before, TopOp)
        and before.name in HEAD_BEFORE
        and all(user.name != "top.Conv" for user in _users(users[0]))
    )


def _behind(op: Operation) -> list[Operation]:
    """Every op that depends on it."""
    found, left = dict[Operation, None](), _users(op)
    while left:
        one = left.pop()
        if one not in found:
            found[one] = None
            left += _users(one)
    return list(found)


def _users(op: Operation) -> list[TopOp]:
    return [use.operation for value in op.results for use in value.uses if isinstance(use.operation, TopOp)]
