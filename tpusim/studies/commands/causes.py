"""The output of `tpusim why` about causes: remedies measured on results and on the clock, and labelled samples."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tpusim.host.tables import Table
from tpusim.studies.commands.judging import errors_of

if TYPE_CHECKING:
    import numpy as np

    from tpusim.ir.module import Model
    from tpusim.schedule import Costs
    from tpusim.studies.diagnosis import Cause, Judged, Measured, Remedies

    Tensors = Mapping[str, np.ndarray]

MOST = 12
"""At most so many causes are shown."""
LEFT_OUT = 3
"""At most so many causes whose remedy does not help on held-out samples are shown."""


def causes_table(found: "Sequence[Cause]", remedies: "Remedies", clocked: int) -> Table:
    """One line per cause, the best remedy first. clocked: how many of them are put on the clock."""
    before = remedies.before
    costs: Costs = {}
    base = cycles(remedies.lowered(), costs) if clocked else None
    table = Table(f"Causes, by what their remedies give back ({errors_of(before)} as lowered)")
    table.words("cause").names("tensor").prose("evidence", "remedy")
    table.numbers("error, judged", *(("held out",) if before.held_out is not None else ()), "cosine", "cycles")
    for number, cause in enumerate(found[:MOST]):
        remedy = cause.remedy
        taken = cycles(remedies.lowered(remedy.changes), costs) if number < clocked else None
        clock = f"{taken:,} ({taken - base:+,})" if taken is not None and base is not None else ""
        errors = [_with_spread(one) for one in (remedy.judged.judged, remedy.judged.held_out) if one is not None]
        table.row(cause.kind, cause.tensor, cause.evidence, said(cause), *errors, f"{remedy.cosine:.6f}", clock)
    return table


def not_held_lines(found: "Sequence[Cause]", before: "Judged") -> Iterator[str]:
    """Short lines about causes whose remedy does not help on the held-out samples, so that it is not recommended."""
    for cause in found[:LEFT_OUT]:
        held_out = cause.remedy.judged.held_out
        if held_out is not None:
            what = f"{cause.kind} at {cause.tensor}, {said(cause)}"
            as_lowered = before.last.error
            gain = "no sure gain" if held_out.error < as_lowered else "no gain"
            errors = f"error {held_out.error:.4g}, {as_lowered:.4g} as lowered"
            yield f"{gain} on held-out samples ({errors}), so no remedy: {what}"
    if len(found) > LEFT_OUT:
        yield f"nor are {len(found) - LEFT_OUT} others"


def _with_spread(found: "Measured") -> str:
    return f"{found.error:.4g} ± {found.deviation:.2g}" if found.samples > 1 else f"{found.error:.4g}"


def said(cause: "Cause") -> str:
    """The changes of a cause's remedy as a text; of many changes the first."""
    shown = [str(change) for change in cause.remedy.changes[:4]]
    more = len(cause.remedy.changes) - len(shown)
    return "; ".join([*shown, f"{more} more"] if more else shown)


def cycles(tpu: "Model", costs: "Costs") -> int | None:
    """Cycles of a lowered module in layer groups on the clock; None if it does not compile. costs: known costs."""
    from tpusim.errors import TpusimError
    from tpusim.passes import PassContext, PassManager
    from tpusim.passes.grouping import cycles as clock
    from tpusim.passes.lowering import ProcessorTpuOptimize
    from tpusim.passes.pipelines import grouped

    try:
        return clock(PassManager((ProcessorTpuOptimize(), *grouped())).run(tpu, PassContext(costs=costs)))
    except TpusimError:
        return None


def preprocessing_lines(model: "Model", samples: "Sequence[Tensors]", labels: "np.ndarray") -> Iterator[str]:
    """Preprocessings with a better top-1 of the float network; no lines without any."""
    from tpusim.studies.diagnosis import other_preprocessing

    before, better = other_preprocessing(model, samples, labels)
    for number, found in enumerate(better[:3]):
        head = "first cause: preprocessing" if number == 0 else "or"
        yield f"{head}: {found.what}: float top-1 {found.top1:.1%}, as it is {before:.1%}" + (
            f"; import and calibrate again with {found.options}" if found.options else "; prepare the samples so"
        )


def scale_lines(remedies: "Remedies", samples: "Iterable[Tensors]") -> Iterator[str]:
    """Inputs whose scale is inverted, and the error of the integers with the right scale."""
    from tpusim.studies.diagnosis import mistaken_scales

    for found in mistaken_scales(remedies, samples):
        yield (
            f"first cause: preprocessing of {found.tensor}: {found.evidence}; integers with samples prepared so, and "
            + (f"their ranges: {errors_of(found.judged)}, {errors_of(remedies.before)} as it is; ")
            + (f"import and calibrate again with {found.options}" if found.options else "prepare the samples so")
        )


def overflow_lines(remedies: "Remedies") -> Iterator[str]:
    """Accumulators that samples overflow, and the errors of the results with these ops in float."""
    from tpusim.studies.diagnosis import accumulator_overflows

    for cause in accumulator_overflows(remedies):
        yield (
            f"{cause}; the machine refuses such a sample, and chips give other numbers; with {said(cause)}: "
            f"{errors_of(cause.remedy.judged)}, {errors_of(remedies.before)} in integers that do not overflow"
        )


def top1_line(models: "Mapping[str, Model]", samples: "Sequence[Tensors]", labels: "np.ndarray") -> str:
    """The share of samples that every network classifies as labelled."""
    import numpy as np

    from tpusim.inference import Gradual, dequantised
    from tpusim.ir.attrs import value_name

    found = list[str]()
    for what, model in models.items():
        result = value_name(model.results[0])
        scores = [dequantised(model, tensors)[result] for _, tensors in Gradual(model).each(samples)]
        classes = np.concatenate([array.reshape(-1, array.size // len(array)) for array in scores]).argmax(axis=1)
        found.append(f"{what} {np.mean(classes == labels):.1%}")
    return f"top-1 of {len(labels)} samples: " + ", ".join(found)
