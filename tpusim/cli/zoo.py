"""`tpusim zoo`: the classic networks as ONNX files."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from tpusim.cli.command import Command
from tpusim.cli.options import In
from tpusim.cli.output import Output


@dataclass
class Zoo(Command):
    """Write one of the nine classic networks with seeded weights as ONNX."""

    says = "nothing more"

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """bvlc_alexnet, densenet121, inception_v1, inception_v2, resnet50, shufflenet, squeezenet, vgg19 or zfnet512."""
    out: Annotated[In, tyro.conf.arg(metavar="OUT.onnx")]
    seed: int = 0
    """Seed of the weights."""

    def execute(self, console: Output) -> bool:
        """Write the network as an ONNX file."""
        from tpusim import zoo

        zoo.save(self.name, self.out, self.seed)
        console.wrote(self.out, f"{self.name}, seed {self.seed}")
        return True
