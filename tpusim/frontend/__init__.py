"""Front ends: from a framework's network to a top module and its weights, and the framework's results as reference.

A front end appends top ops to a `tpusim.ops.builder.ModuleBuilder` by their `make`; the ops know no framework. What it
reads and cannot take it reports in one error for the whole network; nothing is guessed, nothing is fused (that is
`canonicalize`), nothing knows a chip. `front_ends` finds the front end of a file, of a package too; `onnx` is the one
that ships. `Reference` is what every framework's own results are
compared through, `FunctionReference` a network's in Python.
"""

from tpusim.frontend.front_ends import FrontEnd, front_end, read_model
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
    "WHOLE", "Cut", "FrontEnd", "FunctionReference", "Inspection", "OnnxReference", "Outcome", "Reference", "as_called",
    "front_end", "import_onnx", "inspect_onnx", "keep_batch", "keeping_batch", "onnx_outputs", "read_model",
]  # fmt: skip
