"""ONNX files, and TFLite files, which become ONNX models first, as a front end."""

from pathlib import Path

from tpusim.frontend.cut import WHOLE, Cut
from tpusim.frontend.front_ends import FrontEnd, Shapes
from tpusim.frontend.onnx.importer import import_onnx
from tpusim.frontend.onnx.reference import OnnxReference
from tpusim.frontend.reference import Reference
from tpusim.ir.module import Model


class OnnxFrontEnd(FrontEnd):
    """`import_onnx`, with ONNX Runtime as the reference."""

    through_onnx = True

    def read(self, path: Path, *, input_shapes: Shapes | None = None, cut: Cut = WHOLE) -> Model:
        """Import the model of a file."""
        return import_onnx(path, input_shapes=input_shapes, cut=cut)

    def reference(self, path: Path, *, input_shapes: Shapes | None = None, cut: Cut = WHOLE) -> Reference:
        """All tensors by ONNX Runtime; nodes that only quantise are left out, as in the module."""
        return OnnxReference(path, input_shapes=input_shapes, cut=cut, pairs=False)


ONNX = OnnxFrontEnd()
