"""From ONNX to a top module and its weights.

Input: an ONNX file or ModelProto, and static input shapes where the model leaves them open. Output: a `Model` in state
TOP_F32: one `top.*` op per ONNX node, named as TPU-MLIR does (U-16, `naming.py`), so that its tables and npz files fit;
the location also keeps the ONNX name, so that every tensor can be compared with ONNX Runtime's (`as_called`).

Constant subgraphs are evaluated (`folding.py`), Identity and Dropout vanish. All other nodes are read by mappers:
`table.py` lists a module per family of nodes (`windows.py`, `activations.py` ...), whose mappers pass attributes and
constants to the `make` of the ops. Network inputs may be numbers of any type or bools, and results keep the model's
types (`element_types.py`). Everything that cannot be imported (ops, attributes, computed shapes) is reported in one
error for the whole model. `OnnxReference` runs a model in ONNX Runtime.
"""

from onnx import ModelProto

from tpusim.frontend.cut import WHOLE, Cut
from tpusim.frontend.onnx.batch import keep_batch, keeping_batch
from tpusim.frontend.onnx.cutting import cut_out
from tpusim.frontend.onnx.extract import extract, tensors_of, write_onnx
from tpusim.frontend.onnx.importer import import_onnx, inspect_onnx
from tpusim.frontend.onnx.model_file import Source, external_files, read_onnx
from tpusim.frontend.onnx.outcome import Inspection, Outcome
from tpusim.frontend.onnx.prequantised import without_pairs
from tpusim.frontend.onnx.reference import OnnxReference, onnx_outputs

__all__ = [
    "WHOLE", "Cut", "Inspection", "ModelProto", "OnnxReference", "Outcome", "Source", "cut_out", "external_files",
    "extract", "import_onnx", "inspect_onnx", "keep_batch", "keeping_batch", "onnx_outputs", "read_onnx", "tensors_of",
    "without_pairs", "write_onnx",
]  # fmt: skip
