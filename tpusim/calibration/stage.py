"""The stage: run samples through the float network, compute thresholds, and write them into the module's types."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import prod
from pathlib import Path
from warnings import warn

import numpy as np
from xdsl.dialects.builtin import FloatAttr

from tpusim.calibration import estimates, units
from tpusim.calibration.measured import Measured
from tpusim.calibration.sample_warnings import sample_warnings
from tpusim.calibration.samples import origin_of, require_finite
from tpusim.calibration.state import State, Taken
from tpusim.calibration.table import CalibrationTable, Entry, as_printed, require_writable, write_table
from tpusim.calibration.thresholds import HISTOGRAM_METHODS
from tpusim.calibration.tuning import tuned_thresholds
from tpusim.errors import CalibrationError, ConfigError, TableWarning, option
from tpusim.host.threads import prefetched
from tpusim.host.workers import Workers
from tpusim.inference import Gradual
from tpusim.ir.attrs import op_name
from tpusim.ir.imported_scales import ImportedRange, set_imported_ranges, set_imported_weight_scales
from tpusim.ir.module import Model, update_function_type
from tpusim.ir.names import names_in
from tpusim.ir.text import verify
from tpusim.ir.types import CalibratedType, retyped, set_type, shape_of
from tpusim.ops.framework.base import TopOp
from tpusim.ops.interfaces import Weighs
from tpusim.ops.structure import TopWeight

IMPORTED_METHOD = "own scales of a quantised network"
METHODS = (*HISTOGRAM_METHODS, *estimates.METHODS)
TUNED = ("kl", "aciq_gauss", "aciq_laplace")
Tensors = Mapping[str, np.ndarray]
Progress = Callable[[int], None]
"""Called with the number of samples done."""
Tune = Callable[[Sequence[Tensors], Mapping[str, float], Mapping[str, float]], dict[str, float]]
"""The tuned thresholds of samples, from the measured ones and the largest absolute values (`tuned_thresholds`)."""


@dataclass(frozen=True)
class CalibrationConfig:
    """Options of the calibration stage.

    method: one of `METHODS` (numerics.md 15.2). bins: of the histograms. max_samples: the number of samples to use, 0:
    all. tune_samples: the first so many samples tune the thresholds (15.3), 0: no tuning. tune_estimates: also tune the
    thresholds of mse, as searches do (U-65).
    """

    method: str = "kl"
    bins: int = 2048
    max_samples: int = 0
    tune_samples: int = 5
    tune_estimates: bool = False

    @property
    def tunes(self) -> bool:
        """Whether thresholds are tuned; only those of some methods are (U-65)."""
        tuned = (*TUNED, "mse") if self.tune_estimates else TUNED
        return self.method in tuned and self.tune_samples > 0


def calibrate(
    model: Model,
    samples: Iterable[Tensors],
    config: CalibrationConfig,
    progress: Progress | None = None,
    *,
    state: Path | None = None,
    workers: Workers | None = None,
) -> tuple[CalibrationTable, int]:
    """(table of every tensor, number of samples); values are rounded as `write_table` and `read_table` would.

    state: a file that is written from time to time, so that a killed calibration can continue; it is not removed.
    workers: they measure the samples, which are then read three times; None: this process on all its devices. Memory
    does not grow with the number of samples if `samples` can be iterated again (`Samples`) and does not keep them in
    memory.

    Raises CalibrationError without samples, for a sample that is not finite, and for a state of another calibration. An
    inner tensor that is not finite for finite inputs (a mask of -inf, a division by zero) gives a warning that names
    tensor and sample.
    """
    model.require_state("TOP_F32", stage="calibrate")
    require_method(config.method)
    if state is not None and workers is not None:
        raise ConfigError(
            f"calibration state {state}: works in one process only; leave out {option('state')}, or "
            f"{option('jobs')} and {option('executor')}"
        )
    if not isinstance(samples, Sized) and (workers is not None or config.method in estimates.METHODS):
        samples = list(samples)  # they are read more than once
    number = len(samples) if isinstance(samples, Sized) and config.method in estimates.METHODS else 0
    run = _Run(model, config, number, progress or _silent)
    if workers is None:
        run.here(samples, state)
        return run.table(partial(tuned_thresholds, run.graph, known=run.computed)), run.taken.count
    with workers.begun() as crew:
        shared = units.Shared(crew, model, config.method, config.bins, number)
        run.by_workers(samples, shared)
        return run.table(shared.tuned), run.taken.count


def with_fixed(model: Model, table: CalibrationTable) -> CalibrationTable:
    """The table with the thresholds that ops prescribe (softmax correction): 0 to the threshold."""
    stated = ((op_name(op), getattr(op, "fixed_threshold", None)) for op in model.ops)
    fixed = {
        name: Entry(found.value.data, 0.0, found.value.data) for name, found in stated if isinstance(found, FloatAttr)
    }
    return replace(table, entries={**table.entries, **fixed}) if fixed else table


def _silent(done: int) -> None:
    del done


class _Run:
    """One calibration. samples: the number of all samples, for methods that need it."""

    def __init__(self, model: Model, config: CalibrationConfig, samples: int, progress: Progress) -> None:
        self._model, self._config, self._samples, self._progress = model, config, samples, progress
        self.graph = Gradual(model, "all")
        self._measured = Measured(model, config.method, config.bins, samples)
        self._first: list[Tensors] = []
        self.computed: list[Tensors] = []
        """All tensors of the last samples that tune, as far as this process measured them."""
        self.taken = Taken()

    def here(self, samples: Iterable[Tensors], path: Path | None) -> None:
        """Measure in this process, continuing from the state of an earlier process."""
        left, state = iter(samples), None
        if path is not None:
            method = f"{self._config.method}, {self._config.bins} bins, {self._samples or 'any number of'} samples"
            state = State(path, self._model, method)
            about = state.restore(self._measured)
            for sample in islice(left, about.samples):
                self._take(sample)
            if about.samples:
                state.require_samples(about, self.taken)
                self._progress(self.taken.count)
        for sample, tensors in prefetched(self.graph.each(_finite(left, self.taken.count))):
            self._measured.update(tensors, origin_of(sample, self.taken.count + 1))
            self._take(sample)
            if self._config.tunes and self.taken.count <= self._config.tune_samples:
                self.computed.append(tensors)
            self._progress(self.taken.count)
            if state is not None:
                state.keep(self._measured, self.taken)
        if state is not None:
            state.write(self._measured, self.taken)

    def by_workers(self, samples: Iterable[Tensors], shared: units.Shared) -> None:
        """Let workers measure; this process checks that samples are finite and keeps those that tune."""
        for sample in _finite(samples, 0):
            self._take(sample)
        shared.measure(self._measured, samples, self._progress)

    def _take(self, sample: Tensors) -> None:
        self.taken.add(sample)
        if len(self._first) < self._config.tune_samples:
            self._first.append(dict(sample))

    def table(self, tune: Tune) -> CalibrationTable:
        """The table, with warnings about the samples as notes."""
        entries = self.entries(tune)
        notes = sample_warnings(self._model, self._measured.statistics, self.taken)
        return with_fixed(self._model, CalibrationTable(entries, notes=notes))

    def entries(self, tune: Tune) -> dict[str, Entry]:
        """The entry of every tensor, tuned if the method is tuned, rounded as printed."""
        if self.taken.count == 0:
            raise CalibrationError("calibration: at least one sample is required, got none")
        _warn_of(self._measured.statistics.notes())
        entries = self._measured.entries()
        if not self._config.tunes:
            return entries
        absmax = {name: self._measured.statistics.tensors[name].absmax for name in entries}
        measured = {name: entry.threshold for name, entry in entries.items()}
        tuned = tune(self._first, measured, absmax)
        return {name: as_printed(replace(entry, threshold=tuned[name])) for name, entry in entries.items()}


def _finite(samples: Iterable[Tensors], before: int) -> Iterator[Tensors]:
    """The samples, each checked to be finite; before: the number of earlier samples."""
    for number, sample in enumerate(samples, before + 1):
        require_finite(sample, origin_of(sample, number))
        yield sample


def require_method(method: str) -> None:
    """Raise ConfigError for an unknown method."""
    if method not in METHODS:
        raise ConfigError(f"calibration: method '{method}' is unknown; the methods are {', '.join(METHODS)}")


def _warn_of(notes: list[str]) -> None:
    """One warning for all tensors that were not finite; it names the first."""
    if notes:
        more = f"; and {len(notes) - 1} more tensors" if len(notes) > 1 else ""
        warn(TableWarning(f"calibration: {notes[0]}{more}"), stacklevel=4)


def require_names(model: Model) -> None:
    """Raise ConfigError for a tensor name that no table can contain; called before samples are read."""
    require_writable(op_name(op) for op in model.ops if isinstance(op, TopOp))


def save_table(path: Path, table: CalibrationTable, config: CalibrationConfig, samples: int, *, module: str) -> None:
    """Write a measured table under the header of U-66; `module` is the file that was measured."""
    method = f"['{config.method}']" if config.tunes and not config.tune_estimates else config.method
    if not samples:
        method = IMPORTED_METHOD
    write_table(path, table, method=method, samples=samples, bins=config.bins, tune=config.tune_samples, module=module)


def apply_table(model: Model, table: CalibrationTable, *, asymmetric: bool = False) -> Model:
    """A copy of the module with calibrated types, state TOP_CALIBRATED (numerics.md 3.1).

    asymmetric: types carry the measured (min, max) instead of the threshold. Raises CalibrationError that names every
    tensor missing from the table, and for a table with blocks that would change the constants of INT8 in a way that
    tpusim does not support. Thresholds of other modes (INT4, FP8) are not required.
    """
    model.require_state("TOP_F32", stage="import-calibration-table")
    _refuse_blocks(table)
    for note in table.notes:
        warn(TableWarning(f"calibration table: {note}"), stacklevel=2)
    work = model.clone()
    ops = [op for op in work.ops if isinstance(op, TopOp)]
    entries = entries_of(ops, table)
    missing = [op_name(op) for op in ops if op not in entries]
    if missing:
        shown = ", ".join(missing[:8]) + (" ..." if len(missing) > 8 else "")
        raise CalibrationError(
            f"calibration table: entries for all {len(ops)} tensors are required, {len(missing)} are missing: {shown}; "
            "calibrate this module again or add the lines"
        )
    for op in ops:
        imported = table.imported.get(op_name(op))
        low, high = (
            calibrated_limits(op, entries[op], asymmetric=asymmetric)
            if imported is None
            else imported_limits(imported, asymmetric=asymmetric)
        )
        if (low, high) != (0.0, 0.0):
            set_type(op.results[0], retyped(op.results[0], CalibratedType.of(low, high)))
    _set_weight_scales(work, ops, table)
    set_imported_ranges(work, table.imported)
    update_function_type(work)
    work.set(state="TOP_CALIBRATED")
    verify(work.module, "after import-calibration-table")
    return work


def imported_limits(imported: ImportedRange, *, asymmetric: bool) -> tuple[float, float]:
    """(min, max) that give the scale of the network's file and, with zero points, its zero point (numerics.md 3.4).

    Without zero points a signed byte has 127 steps on either side, also after a relu.
    """
    if asymmetric:
        return imported.limits
    return (-imported.threshold if imported.low < 0 else 0.0), imported.threshold


def _set_weight_scales(model: Model, ops: Sequence[TopOp], table: CalibrationTable) -> None:
    """The block `#weight_scale`, one per output channel. Raises CalibrationError for other counts."""
    left = dict(table.weight_scales)
    for op in ops:
        weight = op.operands[1].owner if len(op.operands) > 1 else None
        scales = left.pop(f"{op_name(op)}_weight", None) if isinstance(weight, TopWeight) else None
        if scales is None or not isinstance(weight, TopWeight):
            continue
        rows = op.by_channel(model.weights[op_name(weight)]) if isinstance(op, Weighs) else None
        if rows is None or len(scales) not in (1, len(rows)):
            wanted = "none, for it has no filter" if rows is None else f"1 or {len(rows)}"
            raise CalibrationError(
                f"calibration table: '{op_name(op)}_weight': {wanted} scales are required, got {len(scales)}"
            )
        set_imported_weight_scales(weight, scales)
    if left:
        raise CalibrationError(
            f"calibration table: #weight_scale (scales of filters) names ops with weights, got {_some(list(left))}; "
            "the network has no such op"
        )


def entries_of(ops: Sequence[TopOp], table: CalibrationTable) -> dict[TopOp, Entry]:
    """The entry of each op. An op that TPU-MLIR lacks inherits it from or across an adjacent reshape or permute.

    Places of elements that only look-ups read, which TPU-MLIR does not list, have the range of all places.
    """
    names = names_in(ops, table.entries)
    found = {op: table.entries[name] for op in ops if (name := names.get(op)) is not None}
    for op in ops:
        source = op.operands[0].owner
        if op not in found and op.MOVES and isinstance(source, TopOp) and source in found:
            found[op] = found[source]
    for op in reversed(ops):
        user = op.results[0].get_user_of_unique_use()
        if op not in found and isinstance(user, TopOp) and user.MOVES and user in found:
            found[op] = found[user]
    for op in ops:
        if op not in found and _makes_only_places(op):
            last = float(prod(shape_of(op.operands[0])))
            found[op] = Entry(last, 0.0, last)
    return found


def _makes_only_places(op: TopOp) -> bool:
    """Whether the result of an op is only read as places of elements."""
    uses = list(op.results[0].uses)
    return bool(uses) and all(isinstance(u.operation, TopOp) and u.index in u.operation.INDICES for u in uses)


def _refuse_blocks(table: CalibrationTable) -> None:
    """Refuse blocks that upstream honours in INT8 and tpusim does not support (numerics.md 3.1)."""
    blocks = {
        "asym_op (single ops with zero points)": table.asym_ops,
        "int4_op (ops of 4 bits)": table.int4_ops,
    }
    found = [f"{what}: {_some(list(names))}" for what, names in blocks.items() if names]
    if found:
        raise CalibrationError(
            f"calibration table: {'; '.join(found)}: tpusim does not support them; remove these lines, or calibrate "
            "without the option that wrote them"
        )


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + " ..." * (len(names) > 4)


def calibrated_limits(op: TopOp, entry: Entry, *, asymmetric: bool) -> tuple[float, float]:
    """(min, max) of a result from its table entry; the first matching row of numerics.md 3.1."""
    if op.RANGE.fixed is not None:
        return op.RANGE.fixed
    if op.RANGE.mirrored:
        return -entry.threshold, entry.threshold
    relu = getattr(op, "do_relu", None)
    positive = relu is not None and bool(relu.value.data)
    if op.RANGE.product:
        positive = positive or len(set(op.operands)) == 1
        return (-entry.threshold if entry.minimum < 0 and not positive else 0.0), entry.threshold
    if op.RANGE.difference:
        return (-entry.threshold if entry.minimum < 0 else -1e-5), entry.threshold
    if asymmetric:
        return (0.0 if positive else entry.minimum), entry.maximum
    return (-entry.threshold if entry.minimum < 0 and not positive else 0.0), entry.threshold
