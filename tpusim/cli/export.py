"""`tpusim export`: a lowered module as QDQ ONNX."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from tpusim.cli.command import Command
from tpusim.cli.options import In, Network, NetworkOptions, OptionalPath, load
from tpusim.cli.output import Output


@dataclass
class Export(Command):
    """MODEL.onnx and 4_tpu.mlir -> QDQ ONNX that ONNX Runtime runs: the model's nodes in the module's integers.

    What the file cannot say of the chip is printed, and stands in its metadata (`tpusim.differences`).
    """

    says = "`differences` of the exported model to the chip"

    model: Annotated[In, tyro.conf.arg(metavar="MODEL.onnx")]
    module: Annotated[In, tyro.conf.arg(metavar="4_tpu.mlir")]
    out: OptionalPath = None
    """Model to write; default MODEL_CHIP_qdq.onnx beside the module."""
    network: Network = NetworkOptions()

    def execute(self, console: Output) -> bool:
        """Write the model and say what is different in it."""
        from tpusim.export import export_qdq
        from tpusim.verify.npz import write_atomically

        tpu = load(self.module)
        found = export_qdq(str(self.model), tpu, input_shapes=self.network.shapes(), cut=self.network.cut())
        chip = tpu.attribute("module.chip")
        path = self.out or self.module.with_name(f"{self.model.stem}_{chip}_qdq.onnx")
        write_atomically(path, lambda file: file.write(found.model.SerializeToString()))
        console.result(differences=list(found.differences))
        for number, told in enumerate(found.differences, 1):
            console.print(f"{number}. {told}", markup=False, highlight=False, soft_wrap=True)
        console.wrote(path, f"{len(found.differences)} differences to {chip}")
        return True
