"""`tpusim correct-bias`: biases that make up for what the integers of a network lose on average."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tpusim.cli.command import Command
from tpusim.cli.options import (
    Lowering,
    LoweringOptions,
    Measuring,
    MeasuringOptions,
    Method,
    Network,
    NetworkOptions,
    NetworkPath,
    OptionalPath,
    Preprocessing,
    PreprocessOptions,
    beside,
    network_of,
    require_count,
    save,
)
from tpusim.cli.output import Output
from tpusim.errors import ConfigError

if TYPE_CHECKING:
    from tpusim.search import Corrected, CorrectionConfig


@dataclass
class CorrectBias(Command):
    """Calibrate, correct the biases of Convs by what their integers lose on average, and calibrate again.

    As `run_calibration.py --bc`. 2_canonical.mlir stays as it is, so `tpusim run --from lower` in its folder compares
    the corrected integers with the float network as it was. Samples after those that correct are held out: corrections
    that raise the squared error of the results on either are left out.
    """

    says = (
        "`before`: similarity of the results; `tried`: every Conv with its similarity before and after; `corrected`: "
        "whether corrections were made; `judged`, `held_out`: how many samples"
    )

    module: NetworkPath
    network: Network = NetworkOptions()
    preprocessing: Preprocessing = PreprocessOptions()
    measuring: Measuring = MeasuringOptions()
    lowering: Lowering = LoweringOptions()
    method: Method = "kl"
    """How thresholds are found; each as upstream's --cali_method."""
    expected_cos: float = 0.99
    """Similarity (1 + cosine) / 2 of the network's results from which on nothing more is corrected."""
    min_layer_cos: float = 0.99
    """Similarity of a Conv's result from which on the Conv is left alone."""
    bc_inference_num: int = 0
    """How many samples the biases are corrected by, the first; the others are held out. 0: half of them, at most 30."""
    in_turn: bool = False
    """Try every Conv with the corrections before it, and keep one that makes the Conv more similar than it was.
    TPU-MLIR asks that it be more similar than every Conv before it, and seldom keeps one."""
    out_table: OptionalPath = None
    """Table to write; default cali_table beside the input."""
    out: OptionalPath = None
    """Module to write; default 3_calibrated.mlir beside the input."""

    def execute(self, console: Output) -> bool:
        """Correct, print what was tried, and write the table and the module."""
        from tpusim.calibration.stage import CalibrationConfig, apply_table, calibrate, save_table
        from tpusim.cli.judging import measured_lines, rests_on, scoring
        from tpusim.diagnosis import Judge
        from tpusim.lowering import lower
        from tpusim.search import CorrectionConfig, correct_biases

        self._check()
        options = (self.network, self.preprocessing, self.measuring, self.lowering)
        given = network_of(self.module, options, floats=True)
        model, config, data = given.canonical, given.lowering, given.calibrating()
        method = CalibrationConfig(self.method, tune_samples=given.config.calibration.tune_samples)
        correcting = self.bc_inference_num or scoring(len(data))
        asked = CorrectionConfig(self.expected_cos, self.min_layer_cos, correcting, self.in_turn)
        with console.doing("calibration") as status:
            plain, count = calibrate(model, data, method)
            measured = given.calibrating(correcting)
            found = correct_biases(model, plain, measured, config, asked, progress=status.update)
            status.update("calibration of the corrected network")
            table, _ = calibrate(found.model, data, method)
            judge = Judge(model, data, choosing=correcting, look=False)
            before, after = judge.judged(
                [
                    lower(apply_table(one, its, asymmetric=config.asymmetric), config)[0]
                    for one, its in ((model, plain), (found.model, table))
                ]
            )
        console.tell(rests_on(judge.halves, f"of {given.config.data}"))
        for line in _lines(found, asked):
            console.tell(line)
        corrected, kept = found.model, any(one.kept for one in found.tried)
        if kept:
            for line in (*measured_lines("without corrections", before), *measured_lines("with them", after)):
                console.tell(line)
        if kept and after.raises(before):
            console.tell("the corrections raise the error: none is made")
            corrected, table, kept = model, plain, False
        console.result(
            before=found.before, tried=[asdict(one) for one in found.tried], corrected=kept, judged=judge.halves[0],
            held_out=judge.halves[1],
        )  # fmt: skip
        path = beside(self.module, "cali_table", self.out_table)
        save_table(path, table, method, count, module=self.module.name)
        console.wrote(path)
        calibrated = apply_table(corrected, table, asymmetric=config.asymmetric)
        return save(console, calibrated, beside(self.module, "3_calibrated.mlir", self.out))

    def _check(self) -> None:
        """Raise ConfigError for an option that is out of range."""
        require_count("--bc-inference-num", self.bc_inference_num, "takes half of them, at most 30")
        for flag, value in (("--expected-cos", self.expected_cos), ("--min-layer-cos", self.min_layer_cos)):
            if not 0 <= value <= 1:
                raise ConfigError(f"{flag} {value}: a similarity from 0 to 1 is required")


def _lines(found: "Corrected", asked: "CorrectionConfig") -> Iterator[str]:
    """What was tried, a Conv a line, as similarities of its result before and after, and of the network's results."""
    yield f"results before: {found.before:.6f}"
    for one in found.tried:
        kept = "kept" if one.kept else "revoked"
        yield f"{one.name}: {one.before:.6f} to {one.after:.6f}, results {one.results:.6f}, {kept}"
    if not found.tried:
        why = (
            f"results are above --expected-cos {asked.expected}" if found.before > asked.expected
            else f"no Conv is below --min-layer-cos {asked.layer}"
        )  # fmt: skip
        yield f"nothing to correct: {why}"
