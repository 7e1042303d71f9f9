"""`tpusim why`: the errors of a quantised network's ops, their causes, and the gains of remedies."""

import csv
from collections.abc import Sequence, Sized
from dataclasses import asdict, dataclass, fields
from math import prod
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
    require_engine,
)
from tpusim.cli.output import Output
from tpusim.errors import ConfigError
from tpusim.host.tables import Table

if TYPE_CHECKING:
    from tpusim.ir.module import Model
    from tpusim.page import Diagnosis
    from tpusim.running.network import Network as GivenNetwork
    from tpusim.studies.diagnosis import Cause, Change, Loss, Measured, Remedies, Remedy
    from tpusim.studies.diagnosis.losses import Tensors

    Singles = Sequence[tuple[Change, Measured]]


@dataclass
class Why(Command):
    """Find out why INT8 is bad: the error of every op, and the causes, ranked by the gain of their remedies.

    Takes a model, a module up to 3_calibrated.mlir, or the folder of a run, lowers it as `tpusim lower` does, and runs
    the samples. Every suspected cause (ranges that do not fit, masks, outliers, channels or operands of different
    magnitude under one scale, sensitive ops) is tested: the network is lowered with its remedy and run again. Every
    second sample is held out. Remedies are ranked on the other samples; a remedy that does not lower the error on the
    held-out samples too is not recommended. Then remedies are combined until the required similarity is reached. The
    error is the squared error of the worst result as a share of the mean of its squares over all samples.
    """

    says = (
        "`losses` of all ops, `causes` with their remedies, the results as lowered (`before`) and with the `remedy` "
        "(`after`), on the samples that were judged and on those held out; what --engine says, else null (`engine`)"
    )

    module: NetworkPath
    network: Network = NetworkOptions()
    preprocessing: Preprocessing = PreprocessOptions()
    judged: Judged = JudgedOptions()
    lowering: Lowering = LoweringOptions()
    top: int = 8
    """Suspect so many ops of each cause, and try so many in float: those with the largest errors alone; 0: none."""
    float_mode: str = ""
    """Mode of float ops: f16, bf16 or f32; default: the first of them that the chip has."""
    expected_cos: float = 0.99
    """Required cosine of the network's results, by channels too, averaged over the held-out samples."""
    labels: OptionalPath = None
    """Class indices (npz or npy) of --data: top-1 before and after, and whether another preprocessing fits better."""
    samples: int = 64
    """Judge by at most so many samples, half of which are held out; 0: all."""
    worst: int = 1
    """Show so many elements with the largest errors of each of these ops, with their inputs; 0: none."""
    cycles: int = 3
    """Put the remedies of the first so many causes on the clock; 0: none."""
    apply: bool = False
    """Write the remedy as new_cali_table and new_qtable to the module's folder, or to --out-table and --out-qtable."""
    out_qtable: OptionalPath = None
    """Quantisation table to write: that of --qtable plus the ops that become float."""
    out_table: OptionalPath = None
    """Calibration table to write: cali_table of the module's folder with the new thresholds."""
    engine: str = ""
    """Let an independent tool, one of `tpusim infer --engine`, compute all tensors too, and say if they are the same
    on the first samples: is it the compiler or the network?"""
    csv: OptionalPath = None
    """Also write the losses of all ops."""
    report: OptionalPath = None
    """Also write the page of the module's run, with the causes: HTML, as its report.html."""

    def execute(self, console: Output) -> bool:
        """Measure and print; True if the results have the expected cosine, with or without the remedy."""
        from tpusim.studies.commands.causes import causes_table, not_held_lines, overflow_lines, scale_lines
        from tpusim.studies.commands.judging import evidence, rests_on, second_opinion_of
        from tpusim.studies.diagnosis import Remedies, causes, losses

        require_count("--top", self.top, "makes no op float")
        require_count("--worst", self.worst, "shows no elements")
        require_engine("--engine", self.engine, "")
        if not 0 < self.expected_cos <= 1:
            raise ConfigError(f"--expected-cos {self.expected_cos}: above 0 and at most 1 is required")
        if files := [name for name in self.network.inputs if name.endswith(".npz")]:
            raise ConfigError(f"--inputs {files[0]}: it names tensors at which the network begins; samples are --data")
        if self.labels is not None and self.judged.data is None:
            raise ConfigError("--labels: needs --data, the samples that they belong to")
        require_count("--samples", self.samples, "judges by all")
        asked = (self.network, self.preprocessing, self.judged, self.lowering)
        given = network_of(self.module, asked, floats=True)
        calibrated, config, known = given.calibrated, given.lowering, evidence(given, self.judged.data, self.samples)
        with console.doing("why") as status:
            remedies = Remedies(calibrated, config, known.samples, self.float_mode, status.update)
            lowered = remedies.lowered()
            found = losses(calibrated, lowered, remedies.judge.shown)
            worst = remedies.suspects(found, self.top)
            single = remedies.single(loss.name for loss in worst)
        where = f"{given.chip.name} in {config.format.name}"
        self._say(console, rests_on(remedies.judge.halves, known.origin))
        second_opinion_of(self.engine, lowered, remedies.judge.shown, console)
        console.print(_table(worst if self.top else found, single, remedies, where))
        if self.worst and self.top:
            self._elements(console, calibrated, lowered, remedies.judge.shown[0], [loss.name for loss in worst])
        if self.csv is not None:
            self._save(found)
            console.wrote(self.csv)
        with console.doing("causes"):
            likely, not_held = causes(remedies, found, self.top) if self.top else ([], [])
        console.result(losses=[asdict(loss) for loss in found], causes=[_as_json(cause) for cause in likely])
        for line in (*scale_lines(remedies, known.samples), *overflow_lines(remedies)):
            self._say(console, line)
        if likely:
            console.print(causes_table(likely, remedies, self.cycles))
        for line in not_held_lines(not_held, remedies.before):
            self._say(console, line)
        alone = remedies.worth([(change,) for change, _ in single]) if not likely else []
        ranked = [cause.remedy for cause in likely] or [remedy for remedy in alone if remedy.holds]
        chosen = remedies.fewest(ranked, self.expected_cos)
        if self.report is not None:
            self._page(calibrated, _diagnosis(found, likely, single, remedies.before.last.cosine, chosen))
            console.wrote(self.report)
        if self.labels is not None:
            self._classified(console, given, remedies, chosen)
        return self._conclude(console, given, remedies, chosen)

    def _say(self, console: Output, text: str) -> None:
        console.tell(text)

    def _elements(
        self,
        console: Output,
        calibrated: "Model",
        lowered: "Model",
        sample: "Tensors",
        names: list[str],
    ) -> None:
        from tpusim.studies.diagnosis import worst_elements

        console.print("Elements furthest off, alone", style="italic")
        for element in worst_elements(calibrated, lowered, sample, names, self.worst):
            console.print(f" {element}", highlight=False, soft_wrap=True, markup=False)

    def _page(self, calibrated: "Model", diagnosis: "Diagnosis") -> None:
        from tpusim.host.files import replacing
        from tpusim.running.persistence import page_of

        assert self.report is not None
        text = page_of(folder_of(self.module), calibrated, diagnosis)
        with replacing(self.report) as target:
            target.write_text(text, encoding="utf-8")

    def _conclude(self, console: Output, given: "GivenNetwork", remedies: "Remedies", chosen: "Remedy") -> bool:
        from tpusim.studies.commands.judging import as_json, measured_lines

        console.result(
            before=as_json(remedies.before), after=as_json(chosen.judged),
            remedy=[str(change) for change in chosen.changes],
        )  # fmt: skip

        for line in measured_lines("results as lowered", remedies.before):
            self._say(console, line)
        for change in chosen.changes:
            console.print(f"remedy: {change}", highlight=False)
        for line in measured_lines("results with it", chosen.judged) if chosen.changes else ():
            self._say(console, line)
        reached = chosen.cosine >= self.expected_cos
        if reached and not chosen.changes:
            console.print(f"no remedy is needed for --expected-cos {self.expected_cos}", highlight=False)
        if not reached:
            console.print(
                f"{self.expected_cos} is not reached; try a larger --top, `tpusim search-qtable`, which considers all "
                "ops, or calibrate by another --method",
                highlight=False, soft_wrap=not console.is_terminal,
            )  # fmt: skip
        self._write(console, given, remedies, chosen)
        return reached

    def _write(self, console: Output, given: "GivenNetwork", remedies: "Remedies", chosen: "Remedy") -> None:
        """Write the requested tables; name the options for changes that none of them would contain."""
        qtable = self.out_qtable or (folder_of(self.module) / "new_qtable" if self.apply else None)
        table = self.out_table or (folder_of(self.module) / "new_cali_table" if self.apply else None)
        if qtable is not None:
            remedies.write_qtable(qtable, chosen.modes)
            console.wrote(qtable, _changed(chosen.modes, "op in float", "ops in float"))
        if table is not None:
            given.write_table(table, chosen.thresholds)
            console.wrote(table, _changed(chosen.thresholds, "threshold changed", "thresholds changed"))
        wanted = ["--out-qtable FILE"] if chosen.modes and qtable is None else []
        wanted += ["--out-table FILE"] if chosen.thresholds and table is None else []
        if wanted:
            console.note(f"{' and '.join(wanted)} would write the remedy, for --qtable and --table of `tpusim run`")

    def _classified(self, console: Output, given: "GivenNetwork", remedies: "Remedies", chosen: "Remedy") -> None:
        """Print top-1 in float, lowered and with the remedy, and better preprocessings of the samples."""
        from tpusim.ir.types import shape_of
        from tpusim.running.accuracy import labels_of
        from tpusim.studies.commands.causes import preprocessing_lines, top1_line

        assert self.labels is not None
        calibrated = given.calibrated
        labels = labels_of(self.labels, classes=prod(shape_of(calibrated.results[0])[1:]))
        samples = list(given.samples(self.judged.data))
        for line in preprocessing_lines(calibrated, samples, labels):
            console.print(line, highlight=False, soft_wrap=True)
        lowered = {"lowered": remedies.lowered(), "with the remedy": remedies.lowered(chosen.changes)}
        console.print(top1_line({"float": calibrated, **lowered}, samples, labels), highlight=False, soft_wrap=True)

    def _save(self, found: "Sequence[Loss]") -> None:
        from tpusim.host.files import replacing
        from tpusim.studies.diagnosis import Loss

        assert self.csv is not None
        with replacing(self.csv) as target, target.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [f.name for f in fields(Loss)])
            writer.writeheader()
            writer.writerows(asdict(loss) for loss in found)


def _diagnosis(
    found: "Sequence[Loss]", likely: "Sequence[Cause]", single: "Singles", cosine: float, chosen: "Remedy"
) -> "Diagnosis":
    """The same for the page of the run."""
    from tpusim import page
    from tpusim.studies.commands.causes import MOST, said

    ranked = [page.Cause(c.tensor, said(c), c.remedy.cosine, c.kind, c.evidence) for c in likely[:MOST]]
    tried = [page.Cause(change.name, str(change), measured.cosine) for change, measured in single]
    alone = {loss.name: loss.sqnr_alone for loss in found}
    changes = tuple(str(change) for change in chosen.changes)
    return page.Diagnosis(cosine, (*ranked, *tried), alone, changes, chosen.cosine)


def _as_json(cause: "Cause") -> dict[str, object]:
    from tpusim.studies.commands.judging import as_json

    changes = [str(change) for change in cause.remedy.changes]
    return {"kind": cause.kind, "tensor": cause.tensor, "evidence": cause.evidence, "remedy": changes,
            **as_json(cause.remedy.judged)}  # fmt: skip


def _table(found: "Sequence[Loss]", single: "Singles", remedies: "Remedies", where: str) -> Table:
    """One line per op; SQNR in dB. where: chip and mode, which a calibrated module does not have."""
    gained = {(change.name, bool(change.mode)): f"{measured.error:.4g}" for change, measured in single}
    title = f"What ops lose on {where}: with all errors before them, and alone ({_of(len(remedies.judge.shown))})"
    if single:
        [before] = remedies.tried([()])
        title += f"; error of the results {before.error:.4g} ({_of(before.samples)})"
    table = Table(title).names("tensor")
    table.words("op", "type").numbers("cosine", "SQNR", "alone", "SQNR alone", "dead", "at ends")
    table.numbers(f"error if {remedies.mode}", "if fitted")
    for loss in found:
        table.row(
            loss.name, loss.op.removeprefix("tpu."), loss.stored, f"{loss.cosine:.4f}", f"{loss.sqnr:.1f}",
            f"{loss.alone:.4f}", f"{loss.sqnr_alone:.1f}", f"{loss.dead}/{loss.channels}", f"{loss.ends:.2%}",
            gained.get((loss.name, True), ""), gained.get((loss.name, False), ""),
        )  # fmt: skip
    return table


def _changed(changes: "Sized", one: str, several: str) -> str:
    """A text about how many lines of a written table belong to the remedy."""
    return f"{len(changes) or 'no'} {one if len(changes) == 1 else several}"


def _of(count: int) -> str:
    return "1 sample" if count == 1 else f"{count} samples"
