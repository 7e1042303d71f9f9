"""Front ends by the ending of a file's name. A front end turns a file into a top module, and runs its framework.

`tpusim.registry.FRONTENDS` names all front ends, including those of installed packages. A file with another ending
counts as ONNX.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tpusim.errors import ConfigError
from tpusim.frontend.cut import WHOLE, Cut
from tpusim.frontend.reference import Reference
from tpusim.ir.module import Model
from tpusim.registry import FRONTENDS

ONNX = "onnx"
"""The front end of files with any other ending."""
Shapes = Mapping[str, Sequence[int]]


class FrontEnd(ABC):
    """Reads the files of one framework."""

    through_onnx: bool = False
    """Whether a file is converted to an ONNX model first, which some tools read."""

    @abstractmethod
    def read(self, path: Path, *, input_shapes: Shapes | None = None, cut: Cut = WHOLE) -> Model:
        """The network as a verified module in state TOP_F32, made by `tpusim.ops.framework.builder.ModuleBuilder`.

        input_shapes: shapes by input in place of those of the file. cut: the tensors between which the network lies.
        Raises ImportModelError for a file that cannot be read, UnsupportedError for options that it does not support.
        """

    def reference(self, path: Path, *, input_shapes: Shapes | None = None, cut: Cut = WHOLE) -> Reference | None:
        """The framework's results of the same network, the first level of comparisons; None: it cannot run here."""
        del path, input_shapes, cut


def front_end(path: Path) -> FrontEnd:
    """The front end of a file. Raises ConfigError if an installed package registers something else as front end."""
    name = path.suffix.removeprefix(".")
    found: Any = FRONTENDS.get(name if name in FRONTENDS else ONNX)
    if not isinstance(found, FrontEnd):
        raise ConfigError(
            f"front end '{name}': a tpusim.frontend.FrontEnd is required, got {found!r}; an instance, not a class"
        )
    return found


def read_model(path: Path, *, input_shapes: Shapes | None = None, cut: Cut = WHOLE) -> Model:
    """Read a network's file of any framework as a top module. Raises the errors of `FrontEnd.read`."""
    return front_end(path).read(path, input_shapes=input_shapes, cut=cut)
