"""Front ends: from a framework's network to a top module and its weights, and the framework's results as reference.

A front end appends top ops to a `ModuleBuilder` (`tpusim.ops.framework.builder`) by their `make`; the ops know no
framework. It reports everything that it cannot import in one error for the whole network. It guesses nothing, fuses
nothing (`canonicalize` does), and knows no chip. `front_ends` chooses the front end of a file, including those of
packages; `onnx` is the shipped one, loaded with the first model, because the library for its files takes long to load.
`Reference` is the interface to a framework's results, `FunctionReference` to a Python function.
"""

from typing import TYPE_CHECKING, Any

from tpusim.frontend.cut import WHOLE, Cut
from tpusim.frontend.front_ends import FrontEnd, front_end, read_model
from tpusim.frontend.reference import FunctionReference, Reference, as_called

if TYPE_CHECKING:
    from tpusim.frontend.onnx import (
        Inspection,
        OnnxReference,
        Outcome,
        import_onnx,
        inspect_onnx,
        keep_batch,
        keeping_batch,
        onnx_outputs,
    )

__all__ = [
    "WHOLE", "Cut", "FrontEnd", "FunctionReference", "Inspection", "OnnxReference", "Outcome", "Reference", "as_called",
    "front_end", "import_onnx", "inspect_onnx", "keep_batch", "keeping_batch", "onnx_outputs", "read_model",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """What the front end of ONNX adds, which comes with its first use."""
    if name not in __all__:
        raise AttributeError(f"module 'tpusim.frontend' has no attribute '{name}'")
    from tpusim.frontend import onnx

    return getattr(onnx, name)
