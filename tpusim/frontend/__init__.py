"""From ONNX to a top module and its weights.

Input: an ONNX file or ModelProto, and static input shapes where the model leaves them open. Output: a `Model` in state
TOP_F32: one `top.*` op per ONNX node, named as TPU-MLIR names it (`naming.py`), so that its tables and npz files fit;
the location also keeps the ONNX name, so that every tensor can be compared with ONNX Runtime's (`as_called`).

Constant subgraphs are evaluated, Identity and Dropout vanish, everything else an ONNX node means is said by the
`from_onnx` of its op class. Whatever tpusim cannot import (ops, attributes, computed shapes) is reported in one error
for the whole model; nothing is guessed. No fusion happens here (that is `canonicalize`), nothing knows a chip.
`zoo` builds the nine classic networks of the `onnx` package, `OnnxReference` runs a model in ONNX Runtime.
"""

from tpusim.frontend.importer import import_onnx
from tpusim.frontend.reference import OnnxReference, as_called, onnx_outputs

__all__ = ["OnnxReference", "as_called", "import_onnx", "onnx_outputs"]
