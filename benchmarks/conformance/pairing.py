"""Pairs of our ops and theirs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from math import prod

from benchmarks.conformance.text import Op

IGNORED = ("top.Weight", "top.None", "tpu.Group", "tpu.Load", "tpu.Store", "tpu.Yield", "tpu.Buffer")
SAME = {"tpu.Squeeze": "tpu.Reshape", "tpu.Unsqueeze": "tpu.Reshape", "top.Squeeze": "top.Reshape",
        "top.Unsqueeze": "top.Reshape", "tpu.Pool1D": "tpu.Pool2D"}  # fmt: skip
"""Kinds that mean the same on both sides."""
ON_HOST = {'"quant"': "tpu.Cast", '"interp"': "tpu.Interp", '"instance_norm"': "tpu.InstanceNorm",
           '"cumsum"': "tpu.CumSum", '"topk"': "tpu.TopK", '"gatherelements_pt"': "tpu.GatherElements"}  # fmt: skip
"""What the functions are that a tpu.GenericCpu of CV18xx names; a chip's file says here which ops its host computes."""
VIEWS = ("tpu.Reshape", "top.Reshape")
"""Kinds whose results are their operand's bytes: one side may have more of them than the other."""
MOVES = (*VIEWS, "tpu.Permute")
"""Kinds that compute nothing; a Permute may be part of a MatMul on one side."""


def kind(op: Op) -> str:
    """The kind by one name for both sides."""
    return ON_HOST.get(op.attributes.get("cpu_op_name", "")) or SAME.get(op.kind, op.kind)


def computing(ops: Sequence[Op]) -> list[Op]:
    """The ops that are compared: those that compute a tensor."""
    return [op for op in ops if op.kind not in IGNORED and op.names]


def pair(ours: Sequence[Op], theirs: Sequence[Op]) -> list[tuple[Op, Op]]:
    """Pairs in our order: first by name, then by structure (same kind on paired operands, equal storage).

    Of several ops with the same name the one of the same kind is paired, and views only with views: our 1-D
    convolutions are 2-D convolutions between views. Their name is ours, or ours followed by `_` and the type of the
    ONNX op.
    """
    called = {op.name for op in ours}
    by_name = {name: op for op in reversed(theirs) for name in _candidates(op, called)}
    by_kind = {(name, kind(op)): op for op in reversed(theirs) for name in _candidates(op, called)}
    named = [(op, by_kind.get((op.name, kind(op))) or by_name.get(op.name)) for op in ours]
    found = {id(op): their for op, their in named if their is not None and _is_view(op) == _is_view(their)}
    our_views, their_views = _sources(ours), _sources(theirs)
    same = {op.name: found[id(op)].name for op in ours if id(op) in found}
    taken = {id(op) for op in found.values()}
    free = defaultdict[tuple[object, ...], list[Op]](list)
    for op in theirs:
        if id(op) not in taken:
            free[_signature(op, [their_views.get(n, n) for n in op.operands])].append(op)
    for op in ours:
        operands = [same.get(our_views.get(n, n), "?") for n in op.operands]
        if id(op) not in found and (waiting := free[_signature(op, [their_views.get(n, n) for n in operands])]):
            found[id(op)] = waiting.pop(0)
            same[op.name] = found[id(op)].name
    return [(op, found[id(op)]) for op in ours if id(op) in found]


def _candidates(op: Op, called: Collection[str]) -> tuple[str, ...]:
    """Our possible names of an op of theirs; only its name if one of our ops has the same name."""
    return (op.name,) if op.name in called else (op.name, op.name.rpartition("_")[0] or op.name)


def _is_view(op: Op) -> bool:
    return kind(op) in VIEWS


def _sources(ops: Sequence[Op]) -> dict[str, str]:
    """What the results of views are views of, by name."""
    found = dict[str, str]()
    for op in ops:
        if _is_view(op) and op.operands:
            found[op.name] = found.get(op.operands[0], op.operands[0])
    return found


def _signature(op: Op, operands: Sequence[str]) -> tuple[object, ...]:
    """The properties that must be equal for ops without a common name."""
    shape = op.types[0].shape
    extent = tuple(n for n in shape if n > 1) if op.kind == "tpu.Permute" else prod(shape)
    return kind(op), next(iter(operands), ""), op.types[0].storage, extent
