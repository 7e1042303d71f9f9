"""Front ends by the ending of a file's name: how a file becomes a top module, and what its framework computes.

`tpusim.registry.FRONTENDS` names them, those of installed packages too; a file of another name is taken for ONNX.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tpusim.errors import ConfigError
from tpusim.frontend.onnx.cut import WHOLE, Cut
from tpusim.frontend.reference import Reference
from tpusim.ir.module import Model
from tpusim.registry import FRONTENDS

ONNX = "onnx"
"""The front end of files whose name says nothing."""
Shapes = Mapping[str, Sequence[int]]


class FrontEnd(ABC):
    """Reads the files of one framework."""

    through_onnx: bool = False
    """Whether a file becomes an ONNX model on its way, into which some tools look."""

    @abstractmethod
    def read(self, path: Path, *, input_shapes: Shapes | None = None, cut: Cut = WHOLE) -> Model:
        """The network as a verified module in state TOP_F32, made by `tpusim.ops.framework.builder.ModuleBuilder`.

        input_shapes: shapes by input in place of those of the file. cut: the tensors between which the network lies.
        Raises ImportModelError for a file that cannot be read, UnsupportedError for what it cannot be asked.
        """

    def reference(self, path: Path, *, input_shapes: Shapes | None = None, cut: Cut = WHOLE) -> Reference | None:
        """What the framework computes of the same network, the first level of comparisons; None: it is not at hand."""
        del path, input_shapes, cut


def front_end(path: Path) -> FrontEnd:
    """The front end of a file. Raises ConfigError for an installed package's that is none."""
    name = path.suffix.removeprefix(".")
    found: Any = FRONTENDS.get(name if name in FRONTENDS else ONNX)
    if not isinstance(found, FrontEnd):
        raise ConfigError(
            f"front end '{name}': a tpusim.frontend.FrontEnd is required, got {found!r}; an instance, not a class"
        )
    return found


def read_model(path: Path, *, input_shapes: Shapes | None = None, cut: Cut = WHOLE) -> Model:
    """A network's file of any framework as a top module, by its front end; raises as `FrontEnd.read`."""
    return front_end(path).read(path, input_shapes=input_shapes, cut=cut)
