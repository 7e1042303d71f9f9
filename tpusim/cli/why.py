"""`tpusim why`: which ops of a quantised network lose how much, why, and what remedies give back."""

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from math import prod
from typing import TYPE_CHECKING, Annotated

import tyro

from tpusim.cli.command import Command
from tpusim.cli.options import In, Lowering, LoweringOptions, OptionalPath, load, require_count
from tpusim.cli.output import Output
from tpusim.errors import ConfigError
from tpusim.tables import Table

if TYPE_CHECKING:
    import numpy as np

    from tpusim.calibration.samples import Sample
    from tpusim.diagnosis import Cause, Loss, Remedies, Remedy
    from tpusim.ir.module import Model
    from tpusim.page import Diagnosis


@dataclass
class Why(Command):
    """Find out why INT8 is bad: what every op loses, and the causes, by what their remedies give back.

    Lowers 3_calibrated.mlir as `tpusim lower` does, and runs one sample. Every suspected cause (ranges that do not fit,
    masks, outliers, unlike channels or operands under one scale, sensitive ops) is put to the test: the network is
    lowered with its remedy and run again. Then as many together as the asked similarity takes.
    """

    says = "`losses` of all ops, `causes` with their remedies, cosine as lowered (`before`) and `after` the `remedy`"

    module: Annotated[In, tyro.conf.arg(metavar="3_calibrated.mlir")]
    lowering: Lowering = LoweringOptions()
    inputs: OptionalPath = None
    """The sample, an npz by input name; default inputs.npz beside the module."""
    top: int = 8
    """How many ops to suspect of each cause, and to make float, those that lose most alone; 0: none."""
    float_mode: str = ""
    """What they become: f16, bf16 or f32; default: the first of them that the chip has."""
    expected_cos: float = 0.99
    """The cosine that the network's results are to have, by channels too."""
    labels: OptionalPath = None
    """Class indices (npz or npy) of --data: top-1 before and after, and whether another preprocessing fits better."""
    data: str | None = None
    """Samples, as of `tpusim run`: those of --labels; without --labels the first is the one that is run."""
    worst: int = 1
    """How many elements of each of these ops to show, those furthest off, with the inputs that made them; 0: none."""
    cycles: int = 3
    """Of how many causes, the first, to put the remedy on the clock; 0: none."""
    apply: bool = False
    """Write the remedy as new_cali_table and new_qtable beside the module, unless --out-table and --out-qtable do."""
    out_qtable: OptionalPath = None
    """Quantisation table to write: that of --qtable and the ops that become float."""
    out_table: OptionalPath = None
    """Calibration table to write: cali_table beside the module with the new thresholds."""
    csv: OptionalPath = None
    """Also write the losses of all ops."""
    report: OptionalPath = None
    """Also write the page of the run that the module belongs to, with the causes: HTML, as its report.html."""

    def execute(self, console: Output) -> bool:
        """Measure and print; True if the network's results have the expected cosine, as it is or with the remedy."""
        from tpusim.cli.causes import causes_table
        from tpusim.diagnosis import Remedies, causes, losses
        from tpusim.lowering import lower

        require_count("--top", self.top, "makes no op float")
        require_count("--worst", self.worst, "shows no elements")
        if not 0 < self.expected_cos <= 1:
            raise ConfigError(f"--expected-cos {self.expected_cos}: above 0 and at most 1 is required")
        if self.labels is not None and self.data is None:
            raise ConfigError("--labels: needs --data, the samples that they belong to")
        if self.inputs is not None and self.data is not None and self.labels is None:
            raise ConfigError(
                "--data: without --labels its first sample is the one to run, and so is --inputs; give one"
            )
        calibrated, config = load(self.module), self.lowering.of_floats()
        sample = self._sample(calibrated)
        remedies = Remedies(calibrated, config, sample, self.float_mode)
        lowered = lower(calibrated, config)[0]
        found = losses(calibrated, lowered, sample)
        worst = sorted((loss for loss in found if loss.scale), key=lambda loss: loss.sqnr_alone)[: self.top]
        single = remedies.single(loss.name for loss in worst)
        where = f"{config.chip} in {config.format.name}"
        console.print(_table(worst if self.top else found, single, remedies, where))
        if self.worst and self.top:
            self._elements(console, calibrated, lowered, sample, [loss.name for loss in worst])
        if self.csv is not None:
            self._save(found)
            console.wrote(self.csv)
        likely = causes(remedies, found, self.top) if self.top else []
        console.result(losses=[asdict(loss) for loss in found], causes=[_as_json(cause) for cause in likely])
        if likely:
            console.print(causes_table(likely, remedies, self.cycles))
        chosen = remedies.fewest([cause.remedy for cause in likely] or single, self.expected_cos)
        if self.report is not None:
            self._page(calibrated, _diagnosis(found, likely, single, remedies.cosine(), chosen))
            console.wrote(self.report)
        if self.labels is not None:
            self._classified(console, calibrated, remedies, chosen)
        return self._conclude(console, remedies, chosen)

    def _elements(
        self, console: Output, calibrated: "Model", lowered: "Model", sample: "dict[str, np.ndarray]", names: list[str]
    ) -> None:
        from tpusim.diagnosis import worst_elements

        console.print("Elements furthest off, alone", style="italic")
        for element in worst_elements(calibrated, lowered, sample, names, self.worst):
            console.print(f" {element}", highlight=False, soft_wrap=True, markup=False)

    def _sample(self, calibrated: "Model") -> "dict[str, np.ndarray]":
        """What is run: --inputs, the first sample of --data, or the one that the run left."""
        from tpusim.verify.npz import load_tensors

        if self.data is not None and self.labels is None:
            return dict(self._samples(calibrated, 1)[0])
        return load_tensors(self.inputs or self.module.parent / "inputs.npz")

    def _samples(self, calibrated: "Model", limit: int = 0) -> "list[Sample]":
        from tpusim.calibration.samples import load_samples
        from tpusim.images import images_of
        from tpusim.inference import input_specs

        assert self.data is not None
        found = list(load_samples(self.data, input_specs(calibrated), limit, images=images_of(calibrated)))
        if not found:
            raise ConfigError(f"--data {self.data}: a sample is required, got none")
        return found

    def _page(self, calibrated: "Model", diagnosis: "Diagnosis") -> None:
        from tpusim.ir.files import replacing
        from tpusim.persistence import page_of

        assert self.report is not None
        text = page_of(self.module.parent, calibrated, diagnosis)
        with replacing(self.report) as target:
            target.write_text(text, encoding="utf-8")

    def _conclude(self, console: Output, remedies: "Remedies", chosen: "Remedy") -> bool:
        from tpusim.calibration.table import rewrite_thresholds

        console.result(before=remedies.cosine(), after=chosen.cosine, remedy=[str(change) for change in chosen.changes])
        console.tell(f"results as lowered: cosine {remedies.cosine():.6f}")
        for change in chosen.changes:
            console.print(f"remedy: {change}", highlight=False)
        if chosen.changes:
            console.print(f"results with it: cosine {chosen.cosine:.6f}", highlight=False)
        reached = chosen.cosine >= self.expected_cos
        if reached and not chosen.changes:
            console.print(f"no remedy is needed for --expected-cos {self.expected_cos}", highlight=False)
        if not reached:
            console.print(
                f"{self.expected_cos} is not reached; try a larger --top, or calibrate by another --method",
                highlight=False,
            )
        qtable = self.out_qtable or (self.module.parent / "new_qtable" if self.apply else None)
        table = self.out_table or (self.module.parent / "new_cali_table" if self.apply else None)
        if qtable is not None:
            remedies.write_qtable(qtable, chosen)
            console.wrote(qtable)
        if table is not None:
            rewrite_thresholds(self.module.parent / "cali_table", table, chosen.thresholds)
            console.wrote(table)
        return reached

    def _classified(self, console: Output, calibrated: "Model", remedies: "Remedies", chosen: "Remedy") -> None:
        """Top-1 in float, as lowered and with the remedy; how the samples should be prepared, if otherwise."""
        from tpusim.accuracy import labels_of
        from tpusim.cli.causes import preprocessing_lines, top1_line
        from tpusim.ir.types import shape_of

        assert self.labels is not None
        labels = labels_of(self.labels, classes=prod(shape_of(calibrated.results[0])[1:]))
        samples = self._samples(calibrated)
        for line in preprocessing_lines(calibrated, samples, labels):
            console.print(line, highlight=False, soft_wrap=True)
        lowered = {"lowered": remedies.lowered(), "with the remedy": remedies.lowered(chosen.changes)}
        console.print(top1_line({"float": calibrated, **lowered}, samples, labels), highlight=False, soft_wrap=True)

    def _save(self, found: "Sequence[Loss]") -> None:
        from tpusim.diagnosis import Loss
        from tpusim.ir.files import replacing

        assert self.csv is not None
        with replacing(self.csv) as target, target.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [f.name for f in fields(Loss)])
            writer.writeheader()
            writer.writerows(asdict(loss) for loss in found)


def _diagnosis(
    found: "Sequence[Loss]", likely: "Sequence[Cause]", single: "Sequence[Remedy]", cosine: float, chosen: "Remedy"
) -> "Diagnosis":
    """The same for the page of the run."""
    from tpusim import page
    from tpusim.cli.causes import MOST, said

    ranked = [page.Cause(c.tensor, said(c), c.remedy.cosine, c.kind, c.evidence) for c in likely[:MOST]]
    tried = [page.Cause(r.changes[0].name, str(r.changes[0]), r.cosine) for r in single]
    alone = {loss.name: loss.sqnr_alone for loss in found}
    changes = tuple(str(change) for change in chosen.changes)
    return page.Diagnosis(cosine, (*ranked, *tried), alone, changes, chosen.cosine)


def _as_json(cause: "Cause") -> dict[str, object]:
    changes = [str(change) for change in cause.remedy.changes]
    return {"kind": cause.kind, "tensor": cause.tensor, "evidence": cause.evidence, "remedy": changes,
            "cosine": cause.remedy.cosine}  # fmt: skip


def _table(found: "Sequence[Loss]", single: "Sequence[Remedy]", remedies: "Remedies", where: str) -> Table:
    """One line per op; SQNR in dB. where: chip and mode, which a calibrated module does not have."""
    gained = {(r.changes[0].name, bool(r.changes[0].mode)): f"{r.cosine:.6f}" for r in single}
    table = Table(f"What ops lose on {where}: with all errors before them, and alone").names("tensor")
    table.words("op", "type").numbers("cosine", "SQNR", "alone", "SQNR alone", "dead", "at ends")
    table.numbers(f"results if {remedies.mode}", "if fitted")
    for loss in found:
        table.row(
            loss.name, loss.op.removeprefix("tpu."), loss.stored, f"{loss.cosine:.4f}", f"{loss.sqnr:.1f}",
            f"{loss.alone:.4f}", f"{loss.sqnr_alone:.1f}", f"{loss.dead}/{loss.channels}", f"{loss.ends:.2%}",
            gained.get((loss.name, True), ""), gained.get((loss.name, False), ""),
        )  # fmt: skip
    return table
