"""Ops that are usually kept in float, by rules for transformers and for YOLO heads.

TPU-MLIR fills its table by these rules before it searches (U-71): in a network with attention the sums that a LayerNorm
reads, SiLU and GELU; in a detector's head the last convolutions and all ops after them. tpusim adds Softmax and
LayerNorm, if the chip has them in integers. Masks need no rule: lowering puts an op that reads a mask into float
(DN-31).
"""

from collections.abc import Iterator

from xdsl.ir import Operation

from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ops.framework.base import TopOp

PRODUCT = "top.MatMul"
STEEP = {"top.SiLU", "top.GELU", "top.Softmax", "top.LayerNorm"}
HEAD_BEFORE = {"top.SiLU", "top.LeakyRelu"}
AFTER_HEAD = {"top.Concat", "top.Reshape"}


def known_floats(model: Model) -> dict[str, str]:
    """Op name -> the reason to keep it in float, in program order; {} for a network without attention and head."""
    found: dict[Operation, str] = {}
    if _has_attention(model):
        found |= dict(_of_transformers(model))
    for op in model.ops:
        if _ends_a_head(op):
            found |= {one: "head of a detector" for one in (op, *_dependents(op)) if one not in found}
    return {op_name(op): found[op] for op in model.ops if op in found}


def _of_transformers(model: Model) -> Iterator[tuple[Operation, str]]:
    for op in model.ops:
        if op.name in STEEP:
            yield op, f"{op.name.removeprefix('top.')} in a transformer"
        if op.name == "top.Add" and any(user.name == "top.LayerNorm" for user in _users(op)):
            yield op, "sum that a LayerNorm reads"


def _has_attention(model: Model) -> bool:
    """Whether the network has a Softmax that a product of two activations reads, and a LayerNorm."""
    kinds = {op.name for op in model.ops}
    weighs = (user for op in model.ops if op.name == "top.Softmax" for user in _users(op))
    return "top.LayerNorm" in kinds and any(user.name == PRODUCT for user in weighs)


def _ends_a_head(op: Operation) -> bool:
    """Whether it is a last convolution: after an activation, before a Concat or Reshape, and no convolution follows."""
    if op.name != "top.Conv":
        return False
    users = _users(op)
    if len(users) != 1 or users[0].name not in AFTER_HEAD:
        return False
    before = op.operands[0].owner
    return (
        isinstance(before, TopOp)
        and before.name in HEAD_BEFORE
        and all(user.name != "top.Conv" for user in _users(users[0]))
    )


def _dependents(op: Operation) -> list[Operation]:
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
