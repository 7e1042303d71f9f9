"""Which op of ours is which op of theirs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from benchmarks.conformance.text import Op

IGNORED = ("top.Weight", "top.None", "tpu.Group", "tpu.Load", "tpu.Store", "tpu.Yield", "tpu.Buffer")
SAME = {"tpu.PReluOp": "tpu.PRelu", "top.Flatten": "top.Reshape", "tpu.Squeeze": "tpu.Reshape",
        "tpu.Unsqueeze": "tpu.Reshape", "top.Squeeze": "top.Reshape", "top.Unsqueeze": "top.Reshape"}  # fmt: skip
"""Kinds that mean the same on both sides."""


def kind(op: Op) -> str:
    """The kind by one name for both sides."""
    on_host = op.attributes.get("cpu_op_name") == '"quant"'
    return "tpu.Cast" if on_host else SAME.get(op.kind, op.kind)


def computing(ops: Sequence[Op]) -> list[Op]:
    """The ops that are compared: those that compute a tensor."""
    return [op for op in ops if op.kind not in IGNORED and op.names]


def pair(ours: Sequence[Op], theirs: Sequence[Op]) -> list[tuple[Op, Op]]:
    """Pairs in our order: first by name, then by structure (same kind on paired operands, storage alike).

    Of several ops with a name that of the same kind is taken. A name of theirs is ours, or ours with `_` and the type
    of the ONNX op behind it.
    """
    by_name = {name: op for op in reversed(theirs) for name in _candidates(op)}
    by_kind = {(name, kind(op)): op for op in reversed(theirs) for name in _candidates(op)}
    named = [(op, by_kind.get((op.name, kind(op))) or by_name.get(op.name)) for op in ours]
    found = {id(op): their for op, their in named if their is not None}
    same = {op.name: found[id(op)].name for op in ours if id(op) in found}
    taken = {id(op) for op in found.values()}
    free = defaultdict[tuple[object, ...], list[Op]](list)
    for op in theirs:
        if id(op) not in taken:
            free[_signature(op, op.operands)].append(op)
    for op in ours:
        if id(op) not in found and (waiting := free[_signature(op, [same.get(n, "?") for n in op.operands])]):
            found[id(op)] = waiting.pop(0)
            same[op.name] = found[id(op)].name
    return [(op, found[id(op)]) for op in ours if id(op) in found]


def _candidates(op: Op) -> tuple[str, ...]:
    """What an op of theirs may be called by us."""
    return op.name, op.name.rpartition("_")[0] or op.name


def _signature(op: Op, operands: Sequence[str]) -> tuple[object, ...]:
    """What ops without a common name must have in common."""
    return kind(op), next(iter(operands), ""), op.types[0].storage, op.types[0].shape
