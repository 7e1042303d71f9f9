"""Front ends: from a framework's network to a top module and its weights, and the framework's results as reference.

A front end appends top ops to a `tpusim.ops.builder.ModuleBuilder` by their `make`; the ops know no framework. It
reports everything that it cannot import in one error for the whole network. It guesses nothing, fuses nothing
(`canonicalize` does), and knows no chip. `onnx` is the main front end; `tflite` and `torch` convert to ONNX.
`Reference` is the interface to a framework's results, `FunctionReference` to a Python function.
"""

from tpusim.frontend.onnx import (
    WHOLE,
    Cut,
    Inspection,
    OnnxReference,
    Outcome,
    import_onnx,
    inspect_onnx,
    keep_batch,
    keeping_batch,
    onnx_outputs,
)
from tpusim.frontend.reference import FunctionReference, Reference, as_called

__all__ = [
    "WHOLE", "Cut", "FunctionReference", "Inspection", "OnnxReference", "Outcome", "Reference", "as_called",
    "import_onnx", "inspect_onnx", "keep_batch", "keeping_batch", "onnx_outputs",
]  # fmt: skip
