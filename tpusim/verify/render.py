"""Comparisons for the terminal: the lines of `npz_tool.py compare` and a summary table of several comparisons."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from rich.console import Console
from rich.text import Text

from tpusim.host.tables import Table
from tpusim.verify.compare import (
    CLOSE,
    EQUAL,
    FAILED,
    NOT_EQUAL,
    NOT_SIMILAR,
    NOTHING_COMPARED,
    PASSED,
    SIMILAR,
    Comparison,
    Int8Counts,
    TensorResult,
    worst_of,
)
from tpusim.verify.over_samples import OverSamples
from tpusim.verify.similarity import Tensor, align

TOP_ELEMENTS = 10
"""How many of the largest elements `-vv` shows of a failing tensor."""


def print_comparison(
    console: Console,
    comparison: Comparison,
    *,
    verbose: int = 0,
    target_name: str = "",
    reference_name: str = "",
    targets: Mapping[str, Tensor] | None = None,
    references: Mapping[str, Tensor] | None = None,
) -> None:
    """Print the lines of `npz_tool.py compare`, a coverage line and, if nothing was compared, a warning.

    `verbose` counts the `-v`: 1 adds the measures, 2 the largest elements of failing tensors, 3 their elements that
    differ, 4 all their elements; from 2 on the tensors themselves are needed.
    """
    for tensor in comparison.tensors:
        _print_lines(console, tensor_lines(tensor, verbose))
        if verbose > 1 and not tensor.passed and targets is not None and references is not None:
            target, reference = targets[tensor.name], references[tensor.name]
            _print_lines(console, difference_lines(tensor.name, target, reference, verbose))
    _print_lines(console, summary_lines(comparison, target_name, reference_name))


def tensor_lines(tensor: TensorResult, verbose: int = 0) -> Iterator[str]:
    """The lines of one tensor; more of them with `verbose`."""
    yield f"[{tensor.name:<32}] {tensor.verdict:>12} [{'PASSED' if tensor.passed else 'FAILED':>6}]"
    if tensor.note:
        yield f"    {tensor.note}"
    if verbose > 0:
        yield f"    {tensor.shape} {tensor.dtype} "
        yield from _measure_lines(tensor)
    if tensor.int8_counts is not None:
        yield from _int8_lines(tensor.int8_counts)


def summary_lines(comparison: Comparison, target_name: str = "", reference_name: str = "") -> Iterator[str]:
    """The lines after the last tensor, upstream's and then tpusim's."""
    count = comparison.count
    failed = len(comparison.failures)
    yield f"{comparison.compared} compared"
    yield f"{comparison.compared - failed} passed"
    yield f"  {count(EQUAL)} equal, {count(CLOSE)} close, {count(SIMILAR)} similar"
    yield f"{failed} failed"
    yield f"  {count(NOT_EQUAL)} not equal, {count(NOT_SIMILAR)} not similar"
    yield f"min_similiarity = {upstream_minimum(comparison)}"
    yield f"Target    {target_name}"
    yield f"Reference {reference_name}"
    yield comparison.coverage()
    if (warning := comparison.warning()) is not None:
        yield warning
    yield f"npz compare {comparison.verdict}."


def upstream_minimum(comparison: Comparison) -> tuple[float, float, float]:
    """The smallest similarities (U-92), over SIMILAR and NOT_SIMLIAR tensors only."""
    measured = [tensor for tensor in comparison.tensors if tensor.verdict in (SIMILAR, NOT_SIMILAR)]
    return (
        min((1.0, *(tensor.cosine for tensor in measured))),
        min((1.0, *(tensor.euclidean for tensor in measured))),
        min((float("inf"), *(tensor.sqnr_db for tensor in measured))),
    )


def difference_lines(name: str, target: Tensor, reference: Tensor, verbose: int) -> Iterator[str]:
    """The elements of a failing tensor: the largest of both sides, then all that differ, then all."""
    aligned = align(target, reference, name)
    if aligned is None:
        return
    t, r = aligned[0].ravel(), aligned[1].ravel()
    yield "top-k:"
    yield " idx-t  target  idx-r  ref"
    for index_t, index_r in zip(_largest(t), _largest(r), strict=True):
        yield f"  {index_t} {t[index_t]} {index_r} {r[index_r]}"
    if verbose > 2:
        yield "all-diffs:"
        yield " idx  target  ref"
        yield from (f"  {index} {t[index]} {r[index]}" for index in np.flatnonzero(_differ(t, r)))
    if verbose > 3:
        yield "all-elements:"
        yield " idx  target  ref"
        yield from (f"  {index} {a} {b}" for index, (a, b) in enumerate(zip(t, r, strict=True)))


def summary_table(comparisons: Iterable[Comparison]) -> Table:
    """One row per comparison with its worst tensor, and with several samples another row for the results."""
    table = Table("Verification (worst / median over the samples)")
    table.words("comparison").numbers("samples", "tensors", "cosine", "euclid").names("worst tensor")
    table.numbers("sample").words("exact", "tolerance", "verdict")
    for comparison in comparisons:
        results = [found for found in comparison.over_samples if found.is_result] if comparison.samples > 1 else []
        table.row(
            comparison.label,
            str(comparison.samples),
            str(comparison.compared),
            *_similarities(comparison),
            "yes" if comparison.bit_exact else "no",
            f"{comparison.tolerance.cosine:g},{comparison.tolerance.euclidean:g}",
            _verdict_text(comparison),
        )
        if results and _over_samples(results) != _over_samples(comparison.over_samples):
            table.row("  its results", str(comparison.samples), str(len(results)), *_over_samples(results), "", "", "")
    return table


def _similarities(comparison: Comparison) -> tuple[str, str, Text, str]:
    """Cosine, euclidean similarity, the worst tensor and its sample, over all samples if there are several."""
    if comparison.empty:
        return "-", "-", Text("-"), ""
    if comparison.samples > 1:
        return _over_samples(comparison.over_samples, comparison)
    return f"{comparison.min_cosine:.4f}", f"{comparison.min_euclidean:.4f}", Text(_worst_text(comparison)), ""


def _over_samples(found: Sequence[OverSamples], comparison: Comparison | None = None) -> tuple[str, str, Text, str]:
    """As `_similarities`, for the tensor with the worst sample, and that sample."""
    worst = worst_of(found)
    if worst is None:
        return "1.0000", "1.0000", Text("-"), ""
    first = comparison.worst_tensor if comparison is not None else None
    channels = first.channels if first is not None and first.name == worst.name else None
    dead = f" ({channels})" if channels is not None and channels.lost else ""
    return (
        f"{worst.least_cosine:.4f} / {worst.median_cosine:.4f}",
        f"{worst.least_euclidean:.4f} / {worst.median_euclidean:.4f}",
        Text(f"{worst.name}{dead}"),
        str(worst.worst),
    )


def _worst_text(comparison: Comparison) -> str:
    """The worst tensor, and its channels if some are lost."""
    worst = comparison.worst_tensor
    if worst is None:
        return "-"
    return f"{worst.name} ({worst.channels})" if worst.channels is not None and worst.channels.lost else worst.name


def _verdict_text(comparison: Comparison) -> Text:
    if not comparison.decides:
        return Text("not judged", style="dim")
    styles = {PASSED: "green", FAILED: "red", NOTHING_COMPARED: "yellow"}
    return Text(comparison.verdict, style=styles[comparison.verdict])


def _measure_lines(tensor: TensorResult) -> Iterator[str]:
    if tensor.close_order is not None:
        yield f"    close order            = {tensor.close_order}"
    if tensor.verdict in (SIMILAR, NOT_SIMILAR):
        yield f"    cosine_similarity      = {tensor.cosine:.6f}"
        yield f"    euclidean_similarity   = {tensor.euclidean:.6f}"
        yield f"    sqnr_similarity        = {tensor.sqnr_db:.6f}"


def _int8_lines(counts: Int8Counts) -> Iterator[str]:
    rows = {
        "pos(x=127)   ": counts.highest,
        "neg(x=-128)  ": counts.lowest,
        "zeros(x=0)   ": counts.zeros,
        "low(abs(x)<8)": counts.low,
    }
    for title, count in rows.items():
        yield f"    {title} = {count / max(counts.size, 1):.4f}  [{count}/{counts.size}]"


def _largest(values: Tensor) -> list[int]:
    return [int(index) for index in np.argsort(values, kind="stable")[::-1][:TOP_ELEMENTS]]


def _differ(target: Tensor, reference: Tensor) -> Tensor:
    if target.dtype == np.int8:
        return target != reference
    with np.errstate(all="ignore"):
        return ~np.isclose(target, reference, rtol=1e-3, atol=1e-3, equal_nan=True)


def _print_lines(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.out(line, highlight=False)
