"""`tpusim search-qtable`: the ops to run in float, at the fewest cycles."""

import csv
import io
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from tpusim.cli.command import Command
from tpusim.cli.options import (
    Judged,
    JudgedOptions,
    Lowering,
    LoweringOptions,
    Network,
    NetworkOptions,
    NetworkPath,
    OptionalPath,
    Preprocessing,
    PreprocessOptions,
    folder_of,
    network_of,
    require_count,
)
from tpusim.cli.output import Output
from tpusim.errors import ConfigError
from tpusim.host.tables import Table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np

    from tpusim.studies.search import Found, Goal, Trials


@dataclass
class SearchQtable(Command):
    """Find the ops to run in float so that the results are good enough, at the fewest cycles of the whole program.

    Sets that are good enough on the first samples, and fast enough by an estimate, are put on the clock in their layer
    groups, so that casts and split groups count; the chosen set is run on all samples. `tpusim run --qtable` and
    TPU-MLIR's model_deploy.py --quantize_table read the table. It is not written if it raises the squared error of the
    results, on the samples of the search or on the held-out half.
    """

    says = (
        "the `goal`, whether it is `reached`, its value and the cycles without and with the `floats`, on how many "
        "samples it was `judged` and how many were `held_out`"
    )

    module: NetworkPath
    network: Network = NetworkOptions()
    preprocessing: Preprocessing = PreprocessOptions()
    judged: Judged = JudgedOptions()
    lowering: Lowering = LoweringOptions()
    samples: int = 60
    """Number of samples to use; 0: all. Every second sample is held out from the search."""
    expected_cos: float = 0.99
    """Required cosine of the network's results, averaged over the samples of the search."""
    labels: OptionalPath = None
    """Class indices (npz or npy) of the samples: the goal is then top-1, --expected."""
    metric: str | None = None
    """file.py:function, called with the results of all samples and those of the float network, both a sequence of
    {name: array}: the goal is then that its number is at least --expected.
    """
    expected: float | None = None
    """Required top-1 (0 to 1) or metric."""
    float_mode: str = ""
    """Mode of float ops: f16, bf16 or f32; default: the first of them that the chip has."""
    patterns: bool = False
    """Always keep ops in float that are known to be sensitive in transformers and in heads of detectors."""
    clocked: int = 8
    """Put at most about so many programs on the clock, plus the network without changes and the result."""
    front: OptionalPath = None
    """Write the Pareto front of the sets that were run on all samples and put on the clock to this CSV file: the goal's
    measure, cycles, milliseconds, ops."""
    out: OptionalPath = None
    """Table to write; default qtable in the module's folder."""

    def execute(self, console: Output) -> bool:
        """Search, print, write; True if the goal is reached."""
        from tpusim.studies.commands.judging import evidence, rests_on
        from tpusim.studies.search import Trials, known_floats, search

        self._check()
        given = network_of(self.module, (self.network, self.preprocessing, self.judged, self.lowering), floats=True)
        model, evident = given.calibrated, evidence(given, self.judged.data, self.samples)
        samples = [dict(sample) for sample in evident.samples]
        config, goals = given.lowering, self._goals(samples)
        trials = Trials(model, config, samples[::2], goals[0], mode=self.float_mode)
        self._say(console, rests_on((len(samples[::2]), len(samples[1::2])), evident.origin))
        known = known_floats(model) if self.patterns else {}
        with console.doing("search") as status:
            found = search(trials, frozenset(known), clocked=self.clocked, progress=status.update)
        console.result(
            goal=trials.goal.name, target=trials.goal.target, judged=len(samples[::2]), held_out=len(samples[1::2]),
            reached=found.reached, floats=sorted(found.floats),
            before=found.base.value, after=found.score.value,
            cycles_before=found.base_cycles, cycles_after=found.cycles,
        )  # fmt: skip
        console.print(_table(found, trials, known))
        console.print(_front(trials))
        if self.front is not None:
            _write_front(self.front, trials)
            console.wrote(self.front)
        kept_back = Trials(model, config, samples[1::2], goals[1], mode=self.float_mode) if samples[1:] else None
        return self._conclude(console, found, trials, kept_back)

    def _say(self, console: Output, text: str) -> None:
        console.tell(text)

    def _check(self) -> None:
        """Raise ConfigError for an option that is out of range or has no effect."""
        require_count("--samples", self.samples, "uses all")
        if self.clocked < 1:
            raise ConfigError(f"--clocked {self.clocked}: 1 or more is required")
        if not 0 < self.expected_cos <= 1:
            raise ConfigError(f"--expected-cos {self.expected_cos}: above 0 and at most 1 is required")
        if self.labels is not None and self.metric is not None:
            raise ConfigError("--labels and --metric: one of them is the goal, leave the other out")
        given = self.labels is not None or self.metric is not None
        if given != (self.expected is not None):
            raise ConfigError("--expected VALUE: needs --labels or --metric, and each of these needs --expected")

    def _goals(self, samples: "list[dict[str, np.ndarray]]") -> "tuple[Goal, Goal]":
        """The goals for the samples of the search and for the held-out samples; labels are split like their samples."""
        from tpusim.studies.search import TopOne

        goal = self._goal(sum(len(next(iter(sample.values()))) for sample in samples))
        if not isinstance(goal, TopOne):
            return goal, goal
        labels = goal.labels.reshape(len(samples), -1)
        return replace(goal, labels=labels[::2].reshape(-1)), replace(goal, labels=labels[1::2].reshape(-1))

    def _goal(self, images: int) -> "Goal":
        from tpusim.studies.search import Cosine, TopOne, UserMetric
        from tpusim.verify.npz import load_tensors

        if self.metric is not None:
            return UserMetric.read(self.metric, self.expected or 0.0)
        if self.labels is None:
            return Cosine(self.expected_cos)
        arrays = list(load_tensors(self.labels).values())
        if len(arrays) != 1 or arrays[0].ndim != 1 or len(arrays[0]) < images:
            got = ", ".join(str(array.shape) for array in arrays)
            raise ConfigError(f"labels '{self.labels}': one array of {images} class indices is required, got {got}")
        return TopOne(arrays[0][:images], self.expected or 0.0)

    def _why_not(self, console: Output, trials: "Trials") -> None:
        """Say where floats overflow, if they do, and the results with the chip's other floats."""
        found = trials.overflow(frozenset(trials.candidates))
        if found is None:
            return
        name, share, reach = found
        ends = "; float16 ends at 65,504" if trials.mode == "f16" else ""
        seen = f"{share:.1%} of its values are infinite in {trials.mode}, they reach {reach:.4g}{ends}"
        self._say(console, f"overflow at {name}: {seen}")
        for options, value in _reach_of(trials):
            self._say(console, f"{trials.goal.name} {value:.6f} with all ops in float by {options}")

    def _conclude(self, console: Output, found: "Found", trials: "Trials", kept_back: "Trials | None") -> bool:
        from tpusim.studies.commands.judging import measured_lines
        from tpusim.studies.search import write_qtable

        goal = trials.goal
        if not found.reached:
            self._say(
                console,
                f"{goal.name} {goal.target} is not reached with all ops in {trials.mode}: {found.score.value:.6f}; "
                "nothing is written. Try another --float-mode, or calibrate by another --method",
            )
            self._why_not(console, trials)
            return False
        before, after = trials.judged(found.floats, kept_back.samples if kept_back else [])
        for line in (*measured_lines("as it is", before), *measured_lines("with the table", after)):
            self._say(console, line)
        if kept_back is not None:
            value = kept_back.score(found.floats).value
            missed = f", below the {goal.target} asked" if value < goal.target else ""
            self._say(console, f"{goal.name} {value:.6f} on the samples held out{missed}")
        if after.raises(before):
            more = f"ask for more than {goal.name} {goal.target}"
            self._say(console, f"the table raises the error of the results: nothing is written; {more}")
            return False
        path, runs, clocked = self.out or folder_of(self.module) / "qtable", *trials.tried
        held_out = 0 if kept_back is None else len(kept_back.samples)
        notes = [
            f"tpusim search-qtable: {goal.name} {found.score.value:.6f}, {goal.target} asked",
            f"cycles on the clock: {found.cycles}, {found.base_cycles} without this table",
            f"sample number: {len(trials.samples)}, {held_out} held out",
        ]
        write_qtable(path, trials.modes(found.floats), notes)
        console.wrote(path, f"{runs} sets run, {clocked} on the clock")
        return True


def _reach_of(trials: "Trials") -> "Iterator[tuple[str, float]]":
    """Options that use other floats of the chip, and the goal's measure with all ops in these floats."""
    for mode in trials.modes_of_chip:
        if mode != trials.mode:
            other, table = trials.wider(mode)
            options = f"--float-mode {mode}" + (f" --qtable {table}" if table else "")
            yield options, other.score(frozenset(other.candidates)).value


def _front(trials: "Trials") -> Table:
    """The Pareto front of the sets on the clock: the goal's measure and cycles."""
    table = Table("Sets on the front").numbers(trials.goal.name, "cycles", "ms", "ops in float")
    for one in trials.front():
        value, count = trials.score(one).value, str(len(one))
        table.row(f"{value:.6f}", f"{trials.cycles(one):,}", f"{trials.milliseconds(one):.4f}", count)
    return table


def _write_front(path: "Path", trials: "Trials") -> None:
    """One line for each set, by cycles."""
    from tpusim.host.files import replacing

    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([trials.goal.name, "cycles", "milliseconds", "floats"])
    for one in trials.front():
        names = " ".join(name for name in trials.candidates if name in one)
        rows.writerow([trials.score(one).value, trials.cycles(one), trials.milliseconds(one), names])
    with replacing(path) as target:
        target.write_text(text.getvalue(), encoding="utf-8")


def _table(found: "Found", trials: "Trials", known: dict[str, str]) -> Table:
    """The ops in float, then accuracy and cycles of the network without and with them."""
    name, cost = trials.goal.name, found.cycles - found.base_cycles
    title = f"{name} {found.base.value:.6f} in {found.base_cycles:,} cycles as it is; "
    title += f"{found.score.value:.6f} in {found.cycles:,} ({cost:+,}) with {len(found.floats)} ops in float"
    table = Table(title).names("op").words("mode").prose("why")
    for op in islice((op for op in trials.candidates if op in found.floats), 40):
        loss = found.losses.get(op)
        why = known.get(op) or ("" if loss is None else f"takes {loss:.2e} of the cosine by itself")
        table.row(op, trials.mode.upper(), why)
    return table
