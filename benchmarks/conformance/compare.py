"""The comparison of one cell, part by part: both sides are read and paired, and differences are counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import ml_dtypes
import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.conformance.pairing import MOVES, computing, kind, pair
from benchmarks.conformance.results import Difference, Part
from benchmarks.conformance.text import Op, Tensor

Array = NDArray[np.generic]
Arrays = Mapping[str, Array]
Pairs = Sequence[tuple[Op, Op]]
CONSTANTS = ("multiplier", "multipliers", "rshift", "rshifts", "multiplier_neg", "rshift_neg", "quant_param")
"""Attributes of lowering that are compared where both sides' ops have them."""
WITH_AXIS = ("tpu.CumSum",)
"""Kinds whose axis upstream keeps as a constant operand, too."""
FLOAT_MAX = float(np.finfo(np.float32).max)
FLOATS: dict[str, np.dtype[np.generic]] = {
    "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "f8E5M2": np.dtype(ml_dtypes.float8_e5m2)
}  # fmt: skip
FRACTION_BITS = {"f32": 23, "f16": 10, "bf16": 7}
TOLERATED = {"f16": 1.0, "bf16": 1.0, "f32": 16.0}
"""How far floats may differ, in the units of `gaps`, because of another order of a sum: it changes 16-bit results by
one unit, and f32 results by some units in the last place. The small networks have no such difference
(tests/test_upstream.py)."""


def compare_top(ours: Sequence[Op], theirs: Sequence[Op]) -> Part:
    """Op by op: kinds, and ops that only one side has; with calibrated types the ranges too."""
    pairs = pair(computing(ours), computing(theirs))
    found = [Difference(a.name, f"{a.kind} here, {b.kind} there") for a, b in pairs if kind(a) != kind(b)]
    found += [
        Difference(a.name, f"range {a.types[0].range} here, {b.types[0].range} there")
        for a, b in pairs
        if a.types[0].range is not None and a.types[0].range != b.types[0].range
    ]
    return _part(pairs, found, ours, theirs)


def compare_lowering(ours: Sequence[Op], theirs: Sequence[Op], our_weights: Arrays, their_weights: Arrays) -> Part:
    """Kinds, element types, scales, zero points, multipliers and shifts, and the values of constants."""
    pairs = pair(computing(ours), computing(theirs))
    found = [d for a, b in pairs for d in lowered(a, b, our_weights, their_weights)]
    return _part(pairs, found, ours, theirs)


def _part(pairs: Pairs, found: list[Difference], ours: Sequence[Op], theirs: Sequence[Op]) -> Part:
    known = {id(op) for both in pairs for op in both}
    differing = len({d.tensor for d in found})
    for side, ops in (("here", ours), ("there", theirs)):
        lonely = [op for op in computing(ops) if id(op) not in known]
        found += [Difference(op.name, f"{op.kind} only {side}", tolerated=kind(op) in MOVES) for op in lonely]
    return Part.of(len(pairs), len(pairs) - differing, found)


def lowered(a: Op, b: Op, our_weights: Arrays, their_weights: Arrays) -> Iterator[Difference]:
    """The differences in the lowering of one op."""
    if kind(a) != kind(b):
        yield Difference(a.name, f"{a.kind} here, {b.kind} there")
        return
    if (told := _type_difference(a.types[0], b.types[0])) is not None:
        yield Difference(a.name, told)
    for key in CONSTANTS:
        mine, other = a.numbers(key), b.numbers(key)
        if mine != other and mine and other:
            yield _of_numbers(a.name, key, mine, other)
    yield from _of_weights(a, b, our_weights, their_weights)


def _type_difference(a: Tensor, b: Tensor) -> str | None:
    if a.storage != b.storage:
        return f"{a.storage} here, {b.storage} there"
    if a.scale != b.scale:
        return f"scale {a.scale!r} here, {b.scale!r} there"
    return f"zero point {a.zero} here, {b.zero} there" if a.zero != b.zero else None


def _of_numbers(name: str, key: str, mine: tuple[float, ...], other: tuple[float, ...]) -> Difference:
    if len(mine) != len(other):
        return Difference(name, f"{key}: {len(mine)} here, {len(other)} there")
    gaps = [abs(x - y) for x, y in zip(mine, other, strict=True)]
    first = next(i for i, gap in enumerate(gaps) if gap)
    told = f"{key}[{first}] {mine[first]:.10g} here, {other[first]:.10g} there"
    return Difference(name, told, sum(gap > 0 for gap in gaps) / len(gaps), max(gaps))


def _of_weights(a: Op, b: Op, ours: Arrays, theirs: Arrays) -> Iterator[Difference]:
    mine, other = ([store[n] for n in op.operands if n in store] for op, store in ((a, ours), (b, theirs)))
    if a.kind in WITH_AXIS:
        other = other[: len(mine)]
    if a.kind == "tpu.RequantIntAxis" and not mine and len(other) == 1:
        yield from _of_requant(a, other[0].reshape(len(a.numbers("multiplier")), -1))
        return
    if len(mine) != len(other):
        yield Difference(a.name, f"{len(mine)} constants here, {len(other)} there")
    if a.kind == "tpu.Scale" and len(other) == 3:
        other = [*other[:2], -other[2]]  # upstream keeps right shifts as negative left ones
    for index, (x, y) in enumerate(zip(mine, other, strict=False)):
        if x.size != y.size:
            yield Difference(a.name, f"constant {index}: {x.size} x {x.dtype} here, {y.size} x {y.dtype} there")
            continue
        left, right = x.reshape(-1).astype(np.float64), y.reshape(-1).astype(np.float64)
        if (left != right).any():
            told = f"constant {index} ({x.dtype})"
            yield Difference(a.name, told, float(np.mean(left != right)), float(np.nanmax(np.abs(left - right))))


def _of_requant(a: Op, table: Array) -> Iterator[Difference]:
    """Upstream keeps them as constants per channel: (m, -r, zero), or m and zero's 16 bits above those of -r."""
    shifts = -table[:, 1].astype(np.int64).astype(np.int16).astype(np.int64)
    for key, column in (("multiplier", table[:, 0]), ("rshift", shifts)):
        mine, other = a.numbers(key), tuple(float(n) for n in column)
        if mine != other:
            yield _of_numbers(a.name, key, mine, other)


def constants(ops: Sequence[Op], raw: Arrays) -> dict[str, Array]:
    """Upstream's constants in the types of their module: the file stores narrow floats as unsigned integers."""
    types = {op.name: op.types[0].storage for op in ops if op.kind == "top.Weight"}
    return {
        n: a.view(FLOATS[types[n]]) if types.get(n) in FLOATS and a.dtype.kind == "u" else a for n, a in raw.items()
    }


def compare_tensors(
    pairs: Pairs, ours: Arrays, theirs: Arrays, chip: Arrays | None = None, skip: Sequence[str] = ()
) -> Part:
    """Every tensor that both sides have, in our order.

    theirs: as stored; chip: `told_by_chip`; skip: names of theirs.
    """
    compared, wrong, found = 0, set[str](), list[Difference]()
    for a, b in pairs:
        if a.name not in ours or b.name not in theirs or a.kind == "top.Input" or b.name in skip:
            continue
        compared += 1
        what = _difference(a, b, ours[a.name], theirs[b.name], chip or {})
        if what is not None:
            found.append(msgspec.structs.replace(what, inherited=not wrong.isdisjoint(a.operands)))
            wrong.add(a.name)
    return Part.of(compared, compared - len(found), found)


def compare_alone(pairs: Pairs, ours: Arrays, theirs: Arrays, chip: Arrays) -> Part:
    """Every tensor that both sides have; ours were computed on upstream's operands, so that no difference is inherited.

    chip: `told_by_chip`; a tensor that equals the chip's is right, even if the interpreter differs.
    """
    both = [(a, b) for a, b in pairs if a.name in ours and b.name in theirs and a.kind != "top.Input"]
    found = [d for a, b in both if (d := _difference(a, b, ours[a.name], theirs[b.name], chip)) is not None]
    return Part.of(len(both), len(both) - len(found), found)


def _difference(a: Op, b: Op, mine: Array, other: Array, chip: Arrays) -> Difference | None:
    """The difference to the interpreter, or to the closed simulator if that is smaller."""
    found = tensor_difference(a, b, mine, other)
    if found is None or found.tolerated or b.name not in chip:
        return found
    beside = tensor_difference(a, b, mine, chip[b.name])
    return beside if beside is None or beside.tolerated else found


def told_by_chip(ops: Sequence[Op], unlike: Arrays) -> dict[str, Array]:
    """Tensors whose values the closed simulator gives other than the interpreter, as stored: outputs, what they are
    casts of, and other casts of that. unlike: those outputs, as their types store them.
    """
    types, told = {op.name: op.types[0] for op in ops if op.names and op.types}, dict(unlike)
    casts = [op for op in ops if op.kind == "tpu.Cast" and op.names and op.operands[0] in types]
    for op in casts:
        if op.name in unlike and types[op.operands[0]].scale is not None:
            told[op.operands[0]] = stored(unlike[op.name], types[op.operands[0]])
    for op in casts:
        if op.name not in told and op.operands[0] in told and types[op.operands[0]].scale is not None:
            told[op.name] = _meant(told[op.operands[0]], types[op.operands[0]], types[op.name])
    return told


def _meant(values: Array, kept: Tensor, to: Tensor) -> Array:
    """What a cast makes of the integers of a quantised tensor: differences and scale in the type of the result."""
    dtype = FLOATS.get(to.storage, np.dtype(np.float32))
    meant = (values.astype(np.int32) - kept.zero).astype(dtype) * np.asarray(kept.scale, dtype)
    return stored(meant.astype(np.float32), to)


def tensor_difference(a: Op, b: Op, mine: Array, other: Array) -> Difference | None:
    """How two tensors differ: in integer steps where theirs is quantised, else in units of the last place."""
    x, y = a.types[0], b.types[0]
    if x.storage != y.storage:
        return Difference(a.name, f"{a.kind[4:]} in {x.storage} here, {y.storage} there")
    if mine.size != other.size:
        return Difference(a.name, f"shape {mine.shape} here, {other.shape} there")
    if other.dtype == np.float32:
        mine = mine.astype(np.float32)  # integers without a scale are dumped as f32
    gap = gaps(mine.reshape(-1), other.reshape(-1), y.storage)
    if not gap.any():
        return None
    told = f"{a.kind[4:]} in {y.storage}"
    largest = float(gap.max())
    tolerated = largest <= TOLERATED.get(y.storage, 0.0)
    return Difference(a.name, told, float(np.mean(gap != 0)), largest, tolerated=tolerated)


def all_stored(ops: Sequence[Op], dumped: Arrays) -> dict[str, Array]:
    """Dumped tensors by name, as their types store them; those of no op are left out.

    So is the mask of an integer Attention, which the interpreter overwrites by 255 before it is dumped.
    """
    types = {name: t for op in ops for name, t in zip(op.names, op.types, strict=False)}
    masks = {op.operands[11] for op in ops if op.kind == "tpu.Attention" and op.types[0].storage == "i32"}
    return {name: stored(values, types[name]) for name, values in dumped.items() if name in types.keys() - masks}


def stored(values: Array, to: Tensor) -> Array:
    """Upstream's dumped floats as the type stores them: the integers of a scale, or 16-bit floats.

    Its interpreter leaves the results of some F16 ops (Interp, LayerNorm) unrounded; the chip stores them rounded. The
    float of an integer that the scale of a mask makes infinite is the largest one.
    """
    if to.scale is not None:
        finite = np.clip(values.astype(np.float64), -FLOAT_MAX, FLOAT_MAX)
        return (np.rint(finite / to.scale).astype(np.int64) + to.zero).astype(_integer(to.storage))
    if to.storage in FLOATS:
        return values.astype(np.float32).astype(FLOATS[to.storage])
    return values


def unrounded(ops: Sequence[Op], dumped: Arrays) -> dict[str, Array]:
    """Results of 16-bit types that the interpreter left in f32, by name: the next op reads them so there."""
    types = {name: t.storage for op in ops for name, t in zip(op.names, op.types, strict=False)}
    floats = {n: a for n, a in dumped.items() if types.get(n) in FLOATS and a.dtype == np.float32}
    return {n: a for n, a in floats.items() if (a.astype(FLOATS[types[n]]).astype(np.float32) != a).any()}


def _integer(storage: str) -> np.dtype[np.generic]:
    return np.dtype(f"{storage[0]}{int(storage[1:]) // 8}")


def gaps(left: Array, right: Array, storage: str) -> NDArray[np.float64]:
    """Distances: integer steps; units of the last place of f16 and bf16; of f32, units at the largest magnitude.

    Equal NaN are equal.
    """
    x, y = left.astype(np.float64), right.astype(np.float64)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(invalid="ignore"):
        distance = np.where(same, 0.0, np.nan_to_num(np.abs(x - y), nan=np.inf))
    if storage not in FRACTION_BITS:
        return distance
    magnitude = np.nan_to_num(np.maximum(np.abs(x), np.abs(y)), posinf=0.0)
    if storage == "f32":
        magnitude = np.max(magnitude, initial=0.0)
    exponent = np.floor(np.log2(np.maximum(magnitude, 2.0**-14 if storage == "f16" else 2.0**-126)))
    return distance / 2.0 ** (exponent - FRACTION_BITS[storage])
