"""`tpusim export`: a lowered module as QDQ ONNX."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from tpusim.cli.command import Command
from tpusim.cli.options import (
    Calibration,
    CalibrationOptions,
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
)
from tpusim.cli.output import Output
from tpusim.errors import ConfigError


@dataclass
class Export(Command):
    """Write a quantised network as QDQ ONNX for ONNX Runtime: the model's nodes with the integers of 4_tpu.mlir.

    Takes MODEL.onnx and the 4_tpu.mlir made from it, the folder of a run, or a model alone, which is compiled.

    Properties of the chip that QDQ cannot express are printed, and are in the file's metadata (`tpusim.differences`).
    """

    says = "`differences` of the exported model to the chip"

    model: NetworkPath
    module: Annotated[tyro.conf.Positional[OptionalPath], tyro.conf.arg(metavar="[4_tpu.mlir]")] = None
    """The lowered module of a MODEL; default: that of the folder, or MODEL is compiled."""
    out: OptionalPath = None
    """Model to write; default MODEL_CHIP_qdq.onnx in the module's folder."""
    network: Network = NetworkOptions()
    preprocessing: Preprocessing = PreprocessOptions()
    calibration: Calibration = CalibrationOptions()
    lowering: Lowering = LoweringOptions()

    def execute(self, console: Output) -> bool:
        """Write the model and print its differences."""
        from tpusim.studies.export import export_qdq
        from tpusim.verify.npz import write_atomically

        given = network_of(self.model, (self.network, self.preprocessing, self.calibration, self.lowering))
        model = given.model_path
        if model is None:
            raise ConfigError(
                f"{self.model}: its ONNX model is required, whose nodes are written: `tpusim export MODEL.onnx "
                "4_tpu.mlir`, or the folder of a run whose model is where it was"
            )
        tpu = given.tpu if self.module is None else network_of(self.module, ()).tpu
        found = export_qdq(str(model), tpu, input_shapes=given.config.input_shapes, cut=given.config.cut)
        chip = tpu.chip
        path = self.out or folder_of(self.module or self.model) / f"{model.stem}_{chip}_qdq.onnx"
        write_atomically(path, lambda file: file.write(found.model.SerializeToString()))
        console.result(differences=list(found.differences))
        for number, told in enumerate(found.differences, 1):
            console.print(f"{number}. {told}", markup=False, highlight=False, soft_wrap=True)
        console.wrote(path, f"{len(found.differences)} differences to {chip}")
        return True
