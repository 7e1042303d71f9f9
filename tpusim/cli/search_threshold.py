"""`tpusim search-threshold`: the method of calibration whose integers are most like the floats."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from tpusim.cli.command import Command
from tpusim.cli.options import In, Lowering, LoweringOptions, OptionalPath, beside, load, require_count, save
from tpusim.cli.output import Output
from tpusim.errors import ConfigError


@dataclass
class SearchThreshold(Command):
    """Calibrate by kl, max, percentile9999 and mse, and keep the table whose INT8 results are most like the floats.

    As `run_calibration.py --search search_threshold`: tables of a search are tuned, and a score is (1 + cosine) / 2.
    """

    says = "the `scores` of all methods and the `best`"

    module: Annotated[In, tyro.conf.arg(metavar="2_canonical.mlir")]
    lowering: Lowering = LoweringOptions()
    data: str = "random:8"
    """Samples: npz keyed by input name, a folder of npz, npy or images, a .txt list of them, or random:N[:SEED]."""
    samples: int = 0
    """How many samples to use; 0: all."""
    tune_num: int = 5
    """How many samples tune the thresholds of kl and mse; 0: they stay as measured."""
    inference_num: int = 30
    """How many samples the tables are judged by."""
    out_table: OptionalPath = None
    """Table to write; default cali_table beside the input."""
    out: OptionalPath = None
    """Module to write; default 3_calibrated.mlir beside the input."""

    def execute(self, console: Output) -> bool:
        """Measure, print the scores, write the best table and the module with it."""
        from tpusim.calibration.samples import Samples
        from tpusim.calibration.stage import CalibrationConfig, apply_table, save_table
        from tpusim.images import images_of
        from tpusim.inference import input_specs
        from tpusim.search import search_threshold

        require_count("--samples", self.samples, "uses all")
        require_count("--tune-num", self.tune_num, "tunes nothing")
        if self.inference_num < 1:
            raise ConfigError(f"--inference-num {self.inference_num}: 1 or more is required")
        model, config = load(self.module), self.lowering.of_floats()
        data = Samples(self.data, input_specs(model), self.samples, shuffled=True, images=images_of(model))
        with console.doing("search") as status:
            found = search_threshold(
                model, data, config,
                tune_samples=self.tune_num, inferred=self.inference_num, progress=status.update,
            )  # fmt: skip
        console.result(scores=found.scores, best=found.best)
        for method, score in found.scores.items():
            best = "  best" if method == found.best else ""
            console.print(f"{method:<15} {score:.7f}{best}", highlight=False)
        path, table = beside(self.module, "cali_table", self.out_table), found.tables[found.best]
        asked = CalibrationConfig(found.best, tune_samples=self.tune_num, tune_estimates=True)
        save_table(path, table, asked, found.samples, module=self.module.name)
        console.wrote(path)
        calibrated = apply_table(model, table, asymmetric=self.lowering.asymmetric)
        return save(console, calibrated, beside(self.module, "3_calibrated.mlir", self.out))
