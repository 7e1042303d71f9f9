"""The importer with ONNX names as op names: a test asks for `y`, whatever kind of node makes it.

Tests of the names themselves take `tpusim.frontend.import_onnx`; so do the pipeline and the command line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tpusim import frontend
from tpusim.frontend.onnx import Source
from tpusim.ir.module import Model


def import_onnx(
    source: Source, *, input_shapes: Mapping[str, Sequence[int]] | None = None, name: str | None = None
) -> Model:
    """As `tpusim.frontend.import_onnx`, every op named like its ONNX tensor."""
    return frontend.import_onnx(source, input_shapes=input_shapes, name=name, onnx_names=True)
