"""`tpusim search-threshold`: the calibration method whose integer results are most similar to float."""

from dataclasses import dataclass

from tpusim.cli.command import Command
from tpusim.cli.options import (
    Lowering,
    LoweringOptions,
    Measuring,
    MeasuringOptions,
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


@dataclass
class SearchThreshold(Command):
    """Calibrate by kl, max, percentile9999 and mse, and keep the table whose INT8 results are most similar to float.

    As `run_calibration.py --search search_threshold`: tables of a search are tuned, and a score is (1 + cosine) / 2.
    A method is rejected if its squared error exceeds that of the table so far (or of kl, without a table), on the
    samples for the score or on the held-out samples.
    """

    says = "the `scores` of all methods and the `best`, null if none is taken; samples `judged` and `held_out`"

    module: NetworkPath
    network: Network = NetworkOptions()
    preprocessing: Preprocessing = PreprocessOptions()
    measuring: Measuring = MeasuringOptions()
    lowering: Lowering = LoweringOptions()
    inference_num: int = 0
    """Number of samples for the score, the first ones; the others are held out. 0: half of them, at most 30."""
    out_table: OptionalPath = None
    """Table to write; default cali_table in the input's folder."""
    out: OptionalPath = None
    """Module to write; default 3_calibrated.mlir in the input's folder."""

    def execute(self, console: Output) -> bool:
        """Measure, print the scores, write the best table and the module with it."""
        from tpusim.calibration.stage import CalibrationConfig, apply_table, require_names, save_table
        from tpusim.calibration.table import read_table
        from tpusim.studies.commands.judging import errors_of, rests_on, scoring
        from tpusim.studies.search import search_threshold

        require_count("--inference-num", self.inference_num, "takes half of them, at most 30")
        options = (self.network, self.preprocessing, self.measuring, self.lowering)
        given = network_of(self.module, options, floats=True)
        model, config, data = given.canonical, given.lowering, given.calibrating()
        require_names(model)
        tuned = given.config.calibration.tune_samples
        path = output_file(self.module, "cali_table", self.out_table)
        now = read_table(path) if path.is_file() and given.folder is not None else None  # next to a model it may be any
        with console.doing("search") as status:
            found = search_threshold(
                model, data, config,
                tune_samples=tuned, inferred=self.inference_num or scoring(len(data)), now=now,
                progress=status.update,
            )  # fmt: skip
        console.tell(rests_on(found.halves, f"of {given.config.data}"))
        console.result(scores=found.scores, best=found.best, judged=found.halves[0], held_out=found.halves[1])
        rows = {path.name: found.now} if found.now is not None else {}
        for method, errors in {**rows, **found.errors}.items():
            best = "  best" if method == found.best else ""
            score = f"{found.scores[method]:.7f}" if method in found.scores else "as it is "
            console.tell(f"{method:<15} {score}  {errors_of(errors)}{best}")
        if found.best is None:
            console.tell(f"every method raises the error of {path}, which stays as it is")
            return False
        table = found.tables[found.best]
        asked = CalibrationConfig(found.best, tune_samples=tuned, tune_estimates=True)
        save_table(path, table, asked, found.samples, module=self.module.name)
        console.wrote(path)
        calibrated = apply_table(model, table, asymmetric=config.asymmetric)
        return save(console, calibrated, output_file(self.module, "3_calibrated.mlir", self.out))
