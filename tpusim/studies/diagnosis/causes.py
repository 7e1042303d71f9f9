"""Causes of lost accuracy, each with the changes that remove it and their measured gain, the best first.

A cause is suspected if the tensors of the float network or the table show its symptoms: a range that does not fit the
values, a few values that are many times larger than all others, channels or operands of very different range under one
scale, an op with a large error alone. Then its remedy is measured. Only the measurement decides the order.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from xdsl.ir import Operation

from tpusim.ir.attrs import op_name
from tpusim.ir.types import is_tensor
from tpusim.lowering.overflow import INT32
from tpusim.ops.framework.base import TopOp
from tpusim.ops.structure import TopInput
from tpusim.studies.diagnosis.accumulators import overflowed
from tpusim.studies.diagnosis.losses import Loss
from tpusim.studies.diagnosis.remedies import FITS, Change, Remedies, Remedy

Kind = Literal[
    "other data in calibration", "clipped range", "wasted range", "mask constant", "outliers", "unlike operands",
    "unlike channels", "sensitive op", "overflow", "wrong float", "accumulator overflow",
]  # fmt: skip

OVERSHOT = 4.0
"""A float op whose largest value is so many times that of f32 is wrong, not merely coarse."""
UNLIKE = 8.0
"""If ranges differ by this factor, the smaller one has at most 5 of 8 bits."""
MASK = 1e4
"""Values above this, separate from all others, are masks: their exact magnitude does not matter."""
MASKED = 0.9
"""At most this share of a tensor may be a mask."""
OUTLYING = 0.02
"""At most this share of a tensor may be outliers."""
WASTED = 2.0
"""A range so many times the largest value of the samples is too wide for other samples as well."""
MANY = 0.5
"""If this share of the ranges is too wide, the table was made with other data."""
FREE = 0.5
"""Thresholds are ranked before float ops if they alone give at least this share of the largest gain."""
EQUAL = 0.05
"""Remedies whose gains differ by at most this share are ranked by how little they change."""


@dataclass(frozen=True)
class Cause:
    """A suspected cause with its measured remedy. tensor: its place. evidence: the observation, with numbers."""

    kind: Kind
    tensor: str
    evidence: str
    remedy: Remedy

    def __str__(self) -> str:
        return f"{self.kind} at {self.tensor}: {self.evidence}"


Suspect = tuple[Kind, str, str, tuple[Change, ...]]
"""Kind, tensor, evidence and changes of a cause that is not measured yet."""


def causes(remedies: Remedies, found: Sequence[Loss], top: int) -> tuple[list[Cause], list[Cause]]:
    """(causes whose remedy improves both halves, causes whose remedy improves only one), each ranked.

    found: the losses of the lowered network. top: at most so many ops are suspected of each kind.
    """
    suspects = list(dict.fromkeys(_suspects(remedies, found, top)))
    known = {frozenset(remedy.changes): remedy for remedy in remedies.worth([suspect[3] for suspect in suspects])}
    measured = [
        Cause(*suspect[:3], known[frozenset(suspect[3])]) for suspect in suspects if frozenset(suspect[3]) in known
    ]
    before = remedies.before.judged.largest
    good = ranked((cause for cause in measured if cause.remedy.holds), before)
    named = {(cause.kind, cause.tensor) for cause in good}
    others = (c for c in measured if not c.remedy.holds and (c.kind, c.tensor) not in named)
    return good, ranked(others, before)


def accumulator_overflows(remedies: Remedies) -> list[Cause]:
    """Ops whose sums leave int32 on some sample, with the network measured when they are in float.

    The remedy's measured gain means nothing: the flat executor adds in wider integers, the machine refuses such a
    sample, and chips give other numbers.
    """
    found = overflowed(remedies.model, remedies.lowered(), remedies.judge.samples)
    changes = [_changes(remedies, [one.name]) for one in found]
    causes = list[Cause]()
    for one, change, judged in zip(found, changes, remedies.judged(changes), strict=True):
        seen = f"its sums reach {one.reach:,} on {one.samples} of {one.of} samples, int32 ends at {INT32.max:,}"
        remedy = Remedy(change, judged, judged.holds_against(remedies.before))
        causes.append(Cause("accumulator overflow", one.name, seen, remedy))
    return causes


def ranked(found: Iterable[Cause], before: float) -> list[Cause]:
    """Causes by falling gain; causes of equal gain by the number of ops that become float.

    before: the error without a remedy. Thresholds cost nothing at run time: if they give at least half of the largest
    gain, they come before all float ops. One cause is kept per kind and tensor, and one per set of changes.
    """
    causes = list(found)
    lost = min(before, 1.0)  # an error of 1 means that the results have nothing in common with the float results
    most = lost - min((cause.remedy.error for cause in causes), default=lost)

    def order(cause: Cause) -> tuple[bool, float, int, int, float]:
        share = (lost - cause.remedy.error) / most if most else 0.0
        steps = np.floor((1.0 - share) / EQUAL)
        free = share >= FREE and not cause.remedy.modes
        return not free, float(steps), len(cause.remedy.modes), len(cause.remedy.thresholds), -share

    kept = dict[tuple[str, str], Cause]()
    for cause in sorted(causes, key=order):
        kept.setdefault((cause.kind, cause.tensor), cause)
    alike = dict[frozenset[Change], Cause]()
    for cause in kept.values():
        alike.setdefault(frozenset(cause.remedy.changes), cause)
    return list(alike.values())


def _suspects(remedies: Remedies, found: Sequence[Loss], top: int) -> Iterator[Suspect]:
    yield from _other_data(remedies)
    yield from _overflows(remedies, found)
    yield from _wrong_floats(remedies, found, top)
    unlike = [*_first(_unlike_operands(remedies), top), *_first(_unlike_channels(remedies), top)]
    yield from unlike
    named = {tensor for _, tensor, _, _ in unlike}
    yield from _first(_masks(remedies, named), top)
    yield from _first(_ranges(remedies), top)
    yield from _sensitive(remedies, found, top)


def _first(found: Iterable[tuple[float, Sequence[Suspect]]], top: int) -> Iterator[Suspect]:
    """The suspects of the `top` largest weights, the largest first."""
    for _, suspects in sorted(found, key=lambda pair: -pair[0])[:top]:
        yield from suspects


# ------------------------------------------------------------------------------------------------------------- ranges


def _other_data(remedies: Remedies) -> Iterator[Suspect]:
    """Most ranges too wide or too narrow at once; if an input's range is among them, two are enough."""
    limits = remedies.limits
    reach = {name: remedies.reach(name) for name in limits}
    factors = {name: limit / reach[name] for name, limit in limits.items() if reach[name] > 0}
    for wide in (True, False):
        off = {name: f for name, f in factors.items() if (f > WASTED if wide else f < 1 / WASTED)}
        given = [factor for name, factor in off.items() if isinstance(remedies.ops[name], TopInput)]
        if len(off) >= (2 if given else max(2, MANY * len(factors))):
            changes = tuple(Change(name, threshold=reach[name]) for name in off)
            middle = float(np.median([factor if wide else 1 / factor for factor in off.values()]))
            more = f"{len(off)} of {len(factors)} ranges are about {middle:.3g} x "
            tail = "what the samples need" if wide else "too small for the samples"
            hint = "; 255 is a forgotten 1/255" if any(200 < factor < 320 for factor in (middle, *given)) else ""
            first = next(iter(off))
            yield "other data in calibration", first, f"{more}{tail}{hint}", changes


def _ranges(remedies: Remedies) -> Iterator[tuple[float, Sequence[Suspect]]]:
    """Ranges that values exceed, and ranges of which values use only a small part."""
    for name, limit in remedies.limits.items():
        reach = remedies.reach(name)
        if not reach or 1 / WASTED < reach / limit < FITS:
            continue
        change = (Change(name, threshold=reach),)
        if reach > limit:
            share = remedies.seen[name].above(limit)
            seen = f"threshold {limit:.4g}, values reach {reach:.4g}: {share:.1%} are cut off"
            yield reach / limit, [("clipped range", name, seen, change)]
        else:
            seen = f"threshold {limit:.4g}, values end at {reach:.4g}: {reach / limit:.1%} of the steps are used"
            yield limit / reach, [("wasted range", name, seen, change)]


def _masks(remedies: Remedies, named: set[str]) -> Iterator[tuple[float, Sequence[Suspect]]]:
    """Values far above all others: masks, which may saturate, and outliers, which may be clipped.

    named: tensors that already have another cause.
    """
    for name in (name for name in remedies.limits if name not in named):
        reach = remedies.reach(name)
        bulk, largest = remedies.seen[name].bulk(MASKED if reach >= MASK else OUTLYING)
        if not bulk or largest / bulk < UNLIKE:
            continue
        kind: Kind = "mask constant" if largest >= MASK else "outliers"
        seen = f"the largest value is {largest:.3g}, {largest / bulk:.3g} x what ends the others at {bulk:.3g}"
        changes = [(Change(name, threshold=bulk * times),) for times in (1.0, 2.0, 4.0)]
        changes += _in_float(remedies, name)
        yield largest / bulk, [(kind, name, seen, change) for change in changes]


# ------------------------------------------------------------------------------------------------------------- floats


def _overflows(remedies: Remedies, found: Sequence[Loss]) -> Iterator[Suspect]:
    """The first op with infinite floats where the float network's are finite."""
    lost = [loss for loss in found if loss.infinite and loss.name in remedies.ops]
    if not lost:
        return
    first, reach = lost[0], remedies.reach(lost[0].name)
    seen = f"{first.infinite:.1%} of its values are infinite in {first.stored}, they reach {reach:.4g}"
    seen += "; float16 ends at 65,504" if first.stored == "float16" else ""
    names = [loss.name for loss in lost]
    before = [name for name in _operands(remedies.ops[first.name]) if _computed(remedies, name)]
    for mode in remedies.other_modes(first.stored):
        for some in ([first.name], names, [*names, *_readers(remedies, names)], [*before, *names]):
            yield "overflow", first.name, seen, _changes(remedies, some, mode)


def _wrong_floats(remedies: Remedies, found: Sequence[Loss], top: int) -> Iterator[Suspect]:
    """Float ops with values far beyond the possible results: tables that are extrapolated past their last entry."""
    lost = [loss for loss in found if not loss.scale and loss.name in remedies.ops and not loss.infinite]
    for loss in [loss for loss in lost if loss.wanted and loss.largest > OVERSHOT * loss.wanted][:top]:
        operands = {name: remedies.reach(name) for name in _operands(remedies.ops[loss.name]) if name in remedies.seen}
        if not operands:
            continue
        large = max(operands, key=operands.__getitem__)
        seen = f"its values reach {loss.largest:.3g} in {loss.stored} where those of f32 end at {loss.wanted:.3g}: "
        seen += f"{large} reaches {operands[large]:.3g}, and a table is extrapolated beyond its end"
        bulk, _ = remedies.seen[large].bulk(MASKED)
        for mode in remedies.other_modes(loss.stored):
            yield "wrong float", loss.name, seen, (Change(loss.name, mode),)
            if mode == "int8" and large in remedies.limits and bulk:
                cut = (Change(large, threshold=bulk * times) for times in (1.0, 2.0))
                for one in cut:
                    both = _changes(remedies, [loss.name, large], mode)
                    yield "wrong float", loss.name, seen, (Change(loss.name, mode), one)
                    yield "wrong float", loss.name, seen, (*both, one)


# ----------------------------------------------------------------------------------------------------------- one scale


def _unlike_channels(remedies: Remedies) -> Iterator[tuple[float, Sequence[Suspect]]]:
    """One channel that is much larger than the others and leaves them few steps; see `_unlike_operands` for Concat."""
    joins = {name for name, op in remedies.ops.items() if len(_operands(op)) > 1}
    for name in (name for name in remedies.limits if name not in joins):
        channels = [sizes for sizes in remedies.seen[name].channels.values() if sizes.size >= 3 and np.any(sizes)]
        if not channels or not _computed(remedies, name) or not 0 < remedies.reach(name) < MASK:
            continue
        ratio, sizes = max(((_ratio(sizes), sizes) for sizes in channels), key=lambda pair: pair[0])
        if ratio >= UNLIKE:
            seen = f"channel {int(sizes.argmax())} reaches {sizes.max():.4g}, {ratio:.3g} x the channel in the middle"
            yield ratio, [("unlike channels", name, seen, change) for change in _in_float(remedies, name)]


def _ratio(sizes: np.ndarray) -> float:
    """The largest magnitude divided by the median of those that are not zero."""
    return float(sizes.max()) / float(np.median(sizes[sizes > 0]))


def _unlike_operands(remedies: Remedies) -> Iterator[tuple[float, Sequence[Suspect]]]:
    """Operands of different range that share one scale in one op."""
    for name, op in remedies.ops.items():
        sizes = {o: remedies.reach(o) for o in _operands(op) if o in remedies.limits}
        if name not in remedies.limits or len(sizes) < 2 or min(sizes.values()) <= 0:
            continue
        ratio = max(sizes.values()) / min(sizes.values())
        if ratio >= UNLIKE and max(sizes.values()) < MASK:
            small, large = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
            seen = f"{small} reaches {sizes[small]:.4g} and {large} {sizes[large]:.4g}, in one scale"
            makers = [o for o in sizes if not isinstance(remedies.ops[o], TopInput)]
            less = [o for o in makers if sizes[o] * UNLIKE <= sizes[large]]
            readers = _readers(remedies, [name])
            own = [_changes(remedies, [name, *more, *behind]) for more in (less, makers) for behind in ([], readers)]
            yield ratio, [("unlike operands", name, seen, change) for change in (*own, *_in_float(remedies, name))]


# ----------------------------------------------------------------------------------------------------------------- ops


def _sensitive(remedies: Remedies, found: Sequence[Loss], top: int) -> Iterator[Suspect]:
    for loss in remedies.suspects(found, top):
        if loss.name in remedies.ops and _computed(remedies, loss.name):
            seen = f"{loss.sqnr_alone:.1f} dB alone"
            for change in _in_float(remedies, loss.name):
                yield "sensitive op", loss.name, seen, change


def _in_float(remedies: Remedies, name: str) -> list[tuple[Change, ...]]:
    """Sets of ops to put into float: the op; the op with its readers; and both with the readers' readers."""
    near = [name, *_readers(remedies, [name])]
    return [_changes(remedies, names) for names in ([name], near, [*near, *_readers(remedies, near)])]


def _changes(remedies: Remedies, names: Iterable[str], mode: str = "") -> tuple[Change, ...]:
    return tuple(Change(name, mode or remedies.mode) for name in dict.fromkeys(names) if _computed(remedies, name))


def _readers(remedies: Remedies, names: Iterable[str]) -> list[str]:
    """Ops that read the results of these."""
    users = (use.operation for name in names for value in remedies.ops[name].results for use in value.uses)
    return [op_name(op) for op in users if isinstance(op, TopOp)]


def _operands(op: Operation) -> list[str]:
    """Names of the op's operands that are not constants, each once."""
    owners = (value.owner for value in op.operands if is_tensor(value))
    return list(dict.fromkeys(op_name(owner) for owner in owners if isinstance(owner, TopOp)))


def _computed(remedies: Remedies, name: str) -> bool:
    return name in remedies.ops and not isinstance(remedies.ops[name], TopInput)
