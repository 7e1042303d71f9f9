"""`tpusim correct-bias`: biases that compensate the mean error of a network's integers."""

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
    network_of,
    output_file,
    require_count,
    save,
)
from tpusim.cli.output import Output
from tpusim.errors import ConfigError

if TYPE_CHECKING:
    from tpusim.studies.search import Corrected, CorrectionConfig


@dataclass
class CorrectBias(Command):
    """Calibrate, correct the biases of Convs by the mean error of their integers, and calibrate again.

    As `run_calibration.py --bc`. 2_canonical.mlir does not change, so `tpusim run --from lower` in its folder compares
    the corrected integers with the original float network. The first samples compute the corrections, the others are
    held out; corrections that raise the squared error of the results on either part are dropped.
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
    """Method for thresholds, as upstream's --cali_method."""
    expected_cos: float = 0.99
    """Stop correcting when the network's results have this similarity, (1 + cosine) / 2."""
    min_layer_cos: float = 0.99
    """Do not correct a Conv whose result has this similarity."""
    bc_inference_num: int = 0
    """Compute corrections on the first so many samples and hold out the others. 0: half of them, at most 30."""
    in_turn: bool = False
    """Try every Conv together with the earlier corrections, and keep a correction that makes the Conv more similar than
    before. TPU-MLIR requires that it be more similar than every earlier Conv, and seldom keeps a correction."""
    out_table: OptionalPath = None
    """Table to write; default cali_table in the input's folder."""
    out: OptionalPath = None
    """Module to write; default 3_calibrated.mlir in the input's folder."""

    def execute(self, console: Output) -> bool:
        """Correct, print what was tried, and write the table and the module."""
        from tpusim.calibration.stage import CalibrationConfig, calibrate, save_table
        from tpusim.passes import PassContext, PassManager
        from tpusim.passes.calibration import ImportCalibrationTable
        from tpusim.passes.pipelines import integers
        from tpusim.studies.commands.judging import measured_lines, rests_on, scoring
        from tpusim.studies.diagnosis import Judge
        from tpusim.studies.search import CorrectionConfig, correct_biases

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
            lowering, pairs = PassManager(integers(config)), ((model, plain), (found.model, table))
            before, after = judge.judged([lowering.run(one, PassContext(table=its)) for one, its in pairs])
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
        path = output_file(self.module, "cali_table", self.out_table)
        save_table(path, table, method, count, module=self.module.name)
        console.wrote(path)
        put = ImportCalibrationTable(asymmetric=config.asymmetric)
        calibrated = PassManager(put).run(corrected, PassContext(table=table))
        return save(console, calibrated, output_file(self.module, "3_calibrated.mlir", self.out))

    def _check(self) -> None:
        """Raise ConfigError for an option that is out of range."""
        require_count("--bc-inference-num", self.bc_inference_num, "takes half of them, at most 30")
        for flag, value in (("--expected-cos", self.expected_cos), ("--min-layer-cos", self.min_layer_cos)):
            if not 0 <= value <= 1:
                raise ConfigError(f"{flag} {value}: a similarity from 0 to 1 is required")


def _lines(found: "Corrected", asked: "CorrectionConfig") -> Iterator[str]:
    """One line per tried Conv: similarities of its result before and after, and of the network's results."""
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
