"""The verdicts of `npz_tool.py compare` on how similar a target tensor is to its reference.

Source: interface.md 6.2 (upstream `python/numpy_helper/npz_compare.py` and `tensor_compare.py`). The measures are in
`similarity.py`; here are the order of the tests, the choice of names and the account of what was not compared.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tpusim.errors import ConfigError
from tpusim.host.threads import each
from tpusim.verify.channels import Channels, euclidean_by_channel
from tpusim.verify.similarity import (
    Tensor,
    align,
    beyond_type,
    close_order,
    cosine_similarity,
    euclidean_similarity,
    is_bit_exact,
    is_integer,
    sqnr_db,
    within,
    without_non_finite,
)

if TYPE_CHECKING:
    from tpusim.verify.over_samples import OverSamples

EQUAL = "EQUAL"
CLOSE = "CLOSE"
SIMILAR = "SIMILAR"
NOT_EQUAL = "NOT_EQUAL"
NOT_SIMILAR = "NOT_SIMLIAR"  # U-92: its spelling; scripts search for it
NOT_MATCH = "NOT_MATCH"
PASSING = frozenset({EQUAL, CLOSE, SIMILAR})
PASSED, FAILED, NOTHING_COMPARED = "PASSED", "FAILED", "NOTHING COMPARED"
"""Verdicts of a whole comparison."""

SAMPLED_NAMES = 200
"""With the sampling of U-94, at least so many names are compared."""


@dataclass(frozen=True)
class Tolerance:
    """The least cosine and euclidean similarity (both exclusive) a tensor may have and still be SIMILAR.

    absolute: a tensor whose every element is within this distance of its reference is CLOSE, whatever its similarities.
    by_channel: the mean euclidean similarity of its channels must pass, too (`euclidean_by_channel`). Upstream has
    neither.
    """

    cosine: float
    euclidean: float
    absolute: float = 0.0
    by_channel: bool = False

    @staticmethod
    def parse(text: str) -> "Tolerance":
        """Read `0.99,0.90`; numbers after the second are not used (U-95)."""
        fields = text.split(",")
        try:
            cosine, euclidean = (float(field) for field in fields[:2])
        except ValueError:
            raise _bad_tolerance(text) from None
        if not (math.isfinite(cosine) and math.isfinite(euclidean)):
            raise _bad_tolerance(text)
        return Tolerance(cosine, euclidean)

    def __str__(self) -> str:
        return f"{self.cosine:.2f},{self.euclidean:.2f}" if self._is_short() else f"{self.cosine},{self.euclidean}"

    def _is_short(self) -> bool:
        return all(round(value, 2) == value for value in (self.cosine, self.euclidean))


@dataclass(frozen=True)
class Int8Counts:
    """How an int8 tensor fills its range: many values at the ends mean saturation, many low ones a wide scale."""

    highest: int
    lowest: int
    zeros: int
    low: int
    size: int


@dataclass(frozen=True)
class TensorResult:
    """The comparison of one tensor; `shape` and `dtype` are the target's as stored, before alignment.

    EQUAL and CLOSE tensors have similarities 1, 1 and infinity (U-92, its CSV). For NOT_EQUAL TPU-MLIR measures
    nothing; they are measured here, to tell an error of one step from garbage. NOT_MATCH has 0, 0 and -infinity.
    """

    name: str
    verdict: str
    passed: bool
    close_order: int | None
    cosine: float
    euclidean: float
    sqnr_db: float
    bit_exact: bool
    shape: tuple[int, ...]
    dtype: str
    is_integer: bool
    int8_counts: Int8Counts | None = None
    note: str = ""
    channels: Channels | None = None

    def to_json(self) -> dict[str, Any]:
        """One element of `tensors` in `report.json`; a number that is not finite is null."""
        content: dict[str, Any] = {
            "name": self.name,
            "verdict": self.verdict,
            "cosine": _finite(self.cosine),
            "euclidean": _finite(self.euclidean),
            "sqnr_db": _finite(self.sqnr_db),
            "bit_exact": self.bit_exact,
            "passed": self.passed,
            "close_order": self.close_order,
            "shape": list(self.shape),
            "dtype": self.dtype,
            "note": self.note,
        }
        return content if self.channels is None else {**content, "channels": self.channels.to_json()}


@dataclass(frozen=True)
class Comparison:
    """The results of comparing two sets of tensors, and the tensors that were not compared, with reasons.

    upstream: a comparison of no tensor passes, as in `npz_tool.py compare`. tensors: of the first sample; over_samples:
    of all `samples`. lost: parts and channels of results that are lost entirely, one line each. decides: whether the
    verdict of a run depends on it.
    """

    label: str
    tensors: tuple[TensorResult, ...]
    only_in_target: tuple[str, ...]
    only_in_reference: tuple[str, ...]
    excepted: tuple[str, ...]
    not_sampled: tuple[str, ...]
    tolerance: Tolerance
    upstream: bool = False
    samples: int = 1
    over_samples: tuple["OverSamples", ...] = ()
    lost: tuple[str, ...] = ()
    decides: bool = True

    def __repr__(self) -> str:
        """The verdict, and the worst tensor; of several samples the worst tensor on its worst sample."""
        label = f" {self.label}" if self.label else ""
        return f"<Comparison{label}: {self.verdict}, {self.compared} tensors{self._worst_text()}>"

    def _worst_text(self) -> str:
        over = worst_of(self.over_samples) if self.samples > 1 else None
        if over is not None:
            where = f"sample {over.worst} of {self.samples}: cosine {over.least_cosine:.4f}"
            return f", worst {over.name} ({where}, median {over.median_cosine:.4f})"
        similar = f"(cosine {self.min_cosine:.4f}, euclidean {self.min_euclidean:.4f})"
        return f", worst {self.worst} {similar}" if self.worst else ""

    @property
    def compared(self) -> int:
        """How many tensors both files had, so that they were compared."""
        return len(self.tensors)

    @property
    def missing(self) -> int:
        """How many reference tensors the target does not have."""
        return len(self.only_in_reference)

    @property
    def empty(self) -> bool:
        """Whether nothing was compared at all."""
        return not self.tensors

    @property
    def passed(self) -> bool:
        """Whether tensors were compared and none of them failed."""
        return self.verdict == PASSED

    @property
    def verdict(self) -> str:
        """PASSED, FAILED, or NOTHING COMPARED, which is no success."""
        if self.empty and not self.upstream:
            return NOTHING_COMPARED
        on_samples = all(found.passed for found in self.over_samples) and not self.lost
        return PASSED if on_samples and all(self._passes(tensor) for tensor in self.tensors) else FAILED

    def _passes(self, tensor: TensorResult) -> bool:
        """Whether the tensor passes; with several samples, a first sample that is too small to judge does not count."""
        return tensor.passed or tensor.name in self._small

    @cached_property
    def _small(self) -> frozenset[str]:
        return frozenset(found.name for found in self.over_samples if 0 not in found.judged)

    @cached_property
    def failures(self) -> tuple[TensorResult, ...]:
        """The tensors that failed, in order."""
        return tuple(tensor for tensor in self.tensors if not self._passes(tensor))

    @property
    def bit_exact(self) -> bool:
        """Whether all tensors that the target stores as integers are bit-identical; if it stores none, whether all are.

        Nothing compared is not exact.
        """
        integers = [tensor for tensor in self.tensors if tensor.is_integer]
        return not self.empty and all(tensor.bit_exact for tensor in integers or self.tensors)

    @cached_property
    def worst_tensor(self) -> TensorResult | None:
        """The tensor with the smallest cosine, then euclidean similarity; None if all are EQUAL or CLOSE."""
        measured = [tensor for tensor in self.tensors if tensor.verdict not in (EQUAL, CLOSE)]
        return min(measured, key=by_similarity, default=None)

    @property
    def worst(self) -> str | None:
        """The name of the worst tensor."""
        return self.worst_tensor.name if self.worst_tensor else None

    @property
    def min_cosine(self) -> float:
        """The smallest cosine similarity; 1 if all tensors are EQUAL or CLOSE."""
        return min((tensor.cosine for tensor in self.tensors), key=_nan_first, default=1.0)

    @property
    def min_euclidean(self) -> float:
        """The smallest euclidean similarity; 1 if all tensors are EQUAL or CLOSE."""
        return min((tensor.euclidean for tensor in self.tensors), key=_nan_first, default=1.0)

    def count(self, verdict: str) -> int:
        """How many tensors have this verdict."""
        return sum(tensor.verdict == verdict for tensor in self.tensors)

    def coverage(self) -> str:
        """One line that says how many tensors were compared and how many were not."""
        parts = [
            f"{self.compared} compared",
            f"{len(self.only_in_target)} only in target",
            f"{len(self.only_in_reference)} only in reference",
            f"{len(self.excepted)} excepted",
        ]
        if self.not_sampled:
            parts.append(f"{len(self.not_sampled)} not sampled")
        return "coverage: " + ", ".join(parts)

    def warning(self) -> str | None:
        """A warning if nothing was compared, with the names that both sides have; otherwise None."""
        if not self.empty:
            return None
        sides = {"target": self.only_in_target, "reference": self.only_in_reference}
        has = ", ".join(f"the {side} has {_listed(names)}" for side, names in sides.items())
        return f"WARNING: nothing was compared; no tensor of both sides with one name is left to compare: {has}"

    def to_json(self) -> dict[str, Any]:
        """The object of one comparison in `report.json`."""
        return {
            "passed": self.passed,
            "bit_exact": self.bit_exact,
            "compared": self.compared,
            "missing": self.missing,
            "min_cosine": _finite(self.min_cosine),
            "min_euclidean": _finite(self.min_euclidean),
            "worst": self.worst,
            "tolerance": [self.tolerance.cosine, self.tolerance.euclidean],
            "only_in_target": list(self.only_in_target),
            "only_in_reference": list(self.only_in_reference),
            "excepted": list(self.excepted),
            "not_sampled": list(self.not_sampled),
            "tensors": [tensor.to_json() for tensor in self.tensors],
            "decides": self.decides,
            "lost": list(self.lost),
            "samples": self.samples,
            "over_samples": [found.to_json() for found in self.over_samples],
        }

    def to_csv(self) -> str:
        """The table of `npz_tool.py compare --save`; op and quant are not known to the tool and stay `-`."""
        lines = ["name, op, quant, pass, sim_cos, sim_euc, sqnr"]
        for tensor in self.tensors:
            measured = tensor.verdict in (SIMILAR, NOT_SIMILAR)
            values = (tensor.cosine, tensor.euclidean, tensor.sqnr_db) if measured else (1.0, 1.0, math.inf)
            lines.append(f"{tensor.name}, -, -, {tensor.passed}, {values[0]}, {values[1]}, {values[2]}")
        return "\n".join(lines) + "\n"


def compare(
    targets: Mapping[str, Tensor],
    references: Mapping[str, Tensor],
    tolerance: Tolerance,
    *,
    label: str = "",
    excepts: Iterable[str] = (),
    upstream: bool = False,
    key: str | None = None,
    int8_tensor_close: bool = True,
) -> Comparison:
    """Compare every tensor that both sides have, in the order of the references.

    `excepts` are names to leave out (exact match); with `key` only that tensor is compared. upstream: as `npz_tool.py`,
    compare about 200 names if there are more, and let a comparison of nothing pass.
    """
    excluded = set(excepts)
    common = [name for name in references if name in targets]
    names = [name for name in common if name not in excluded]
    if key is not None:
        names = [_require_key(key, targets, references)]
    chosen = sampled(names) if upstream else names
    kept = set(chosen)

    def compared(name: str) -> TensorResult:
        target, reference = targets[name], references[name]
        return compare_tensors(
            target, reference, tolerance, name=name, int8_tensor_close=int8_tensor_close, upstream=upstream
        )

    return Comparison(
        label=label,
        tensors=tuple(each(compared, chosen)),
        only_in_target=tuple(name for name in targets if name not in references),
        only_in_reference=tuple(name for name in references if name not in targets),
        excepted=tuple(name for name in common if name in excluded),
        not_sampled=tuple(name for name in names if name not in kept),
        tolerance=tolerance,
        upstream=upstream,
    )


def sampled(names: Sequence[str]) -> list[str]:
    """The names that TPU-MLIR compares unless `--forall` is given (U-94).

    Above 200 names every (n // 200)-th is kept (below 400 that is all of them); if one of the last nine was dropped,
    the last name is compared too.
    """
    if len(names) <= SAMPLED_NAMES:
        return list(names)
    kept = set(names[:: len(names) // SAMPLED_NAMES])
    if not kept.issuperset(names[-9:]):
        kept.add(names[-1])
    return [name for name in names if name in kept]


def compare_tensors(
    target: Tensor,
    reference: Tensor,
    tolerance: Tolerance,
    *,
    name: str = "",
    int8_tensor_close: bool = True,
    upstream: bool = False,
) -> TensorResult:
    """Align two tensors and give the first verdict that applies.

    With `int8_tensor_close` an int8 tensor that differs fails whatever the tolerance (U-92). An
    infinity in place of a number beyond the range of the target's type is no difference, except with `upstream`.
    """
    with np.errstate(all="ignore"):
        verdict = _verdict(target, reference, tolerance, name, int8_tensor_close, upstream=upstream)
    return TensorResult(
        name=name,
        verdict=verdict.name,
        passed=verdict.name in PASSING,
        close_order=verdict.close_order,
        cosine=verdict.similarities[0],
        euclidean=verdict.similarities[1],
        sqnr_db=verdict.similarities[2],
        bit_exact=is_bit_exact(target, reference),
        shape=target.shape,
        dtype=target.dtype.name,
        is_integer=is_integer(target.dtype),
        int8_counts=_count_int8(target) if target.dtype == np.int8 else None,
        note=verdict.note,
    )


def worst_of(found: Iterable["OverSamples"]) -> "OverSamples | None":
    """The tensor that is least similar on one of its samples; None if all are equal on all of them."""
    unlike = (over for over in found if over.least_cosine != 1 or over.least_euclidean != 1)
    return min(unlike, key=lambda over: (_nan_first(over.least_cosine), _nan_first(over.least_euclidean)), default=None)


def by_similarity(tensor: TensorResult) -> tuple[float, float]:
    """Sort key, worst first; a similarity that is not a number is the worst."""
    return _nan_first(tensor.cosine), _nan_first(tensor.euclidean)


@dataclass(frozen=True)
class _Verdict:
    name: str
    similarities: tuple[float, float, float] = (1.0, 1.0, math.inf)
    close_order: int | None = None
    note: str = ""


def _verdict(
    target: Tensor, reference: Tensor, tolerance: Tolerance, name: str, int8_tensor_close: bool, *, upstream: bool
) -> _Verdict:
    aligned = align(target, reference, name)
    if aligned is None:
        note = f"not the same shape: {target.shape} v.s. {reference.shape}"
        return _Verdict(NOT_MATCH, (0.0, 0.0, -math.inf), note=note)
    t, r, note = aligned
    past = None if upstream else beyond_type(t, r, target.dtype)
    if past is not None:  # an infinite mask would hide the similarity of the other elements
        t, r = np.where(past, 0, t), np.where(past, 0, r)
        note = _both(note, f"{np.count_nonzero(past):,} numbers beyond {_type_name(target)} are at its end")
    if np.array_equal(t, r):
        return _Verdict(EQUAL, note=note)
    shape, (t, r) = t.shape, (t.ravel(), r.ravel())
    if t.dtype == np.int8 and int8_tensor_close:
        return _Verdict(NOT_EQUAL, _similarities(t.astype(np.float32), r.astype(np.float32)), note=note)
    order = close_order(t, r)
    if order is not None:
        return _Verdict(CLOSE, close_order=order, note=note)
    if tolerance.absolute and within(t, r, tolerance.absolute):
        return _Verdict(CLOSE, note=_both(note, f"nowhere further from the reference than {tolerance.absolute:.1e}"))
    t, r = without_non_finite(t), without_non_finite(r)
    cosine, euclidean, sqnr = _similarities(t, r)
    similar = cosine > tolerance.cosine and euclidean > tolerance.euclidean and sqnr > -math.inf
    if tolerance.by_channel:
        by_channel = euclidean_by_channel(t.reshape(shape), r.reshape(shape))
        if not by_channel > tolerance.euclidean:
            similar, note = False, _both(note, f"euclidean {by_channel:.4f} by channel on average")
    return _Verdict(SIMILAR if similar else NOT_SIMILAR, (cosine, euclidean, sqnr), note=note)


def _both(note: str, more: str) -> str:
    return f"{note}; {more}" if note else more


def _similarities(target: Tensor, reference: Tensor) -> tuple[float, float, float]:
    return (
        cosine_similarity(target, reference),
        euclidean_similarity(target, reference),
        sqnr_db(target, reference),
    )


def _count_int8(values: Tensor) -> Int8Counts:
    magnitude = np.abs(values.astype(np.int16))
    return Int8Counts(
        highest=int(np.count_nonzero(values == 127)),
        lowest=int(np.count_nonzero(values == -128)),
        zeros=int(np.count_nonzero(values == 0)),
        low=int(np.count_nonzero(magnitude <= 8)),
        size=values.size,
    )


def _require_key(key: str, targets: Mapping[str, Tensor], references: Mapping[str, Tensor]) -> str:
    for side, tensors in (("target", targets), ("reference", references)):
        if key not in tensors:
            known = ", ".join(list(tensors)[:5])
            raise ConfigError(f"compare: the {side} has no tensor '{key}'; it has {len(tensors)}: {known} ...")
    return key


def _bad_tolerance(text: str) -> ConfigError:
    return ConfigError(f"tolerance: two numbers are required (cosine,euclidean, as in 0.99,0.90), got '{text}'")


def _type_name(stored: Tensor) -> str:
    return "bfloat16" if stored.dtype == np.uint16 else stored.dtype.name


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "") if names else "none else"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _nan_first(value: float) -> float:
    return -math.inf if math.isnan(value) else value
