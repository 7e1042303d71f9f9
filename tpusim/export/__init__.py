"""A lowered INT8 module as QDQ ONNX, which ONNX Runtime runs: the model's own nodes with the module's integers.

Input: the ONNX model and the tpu module that was made of it. Output: the model with QuantizeLinear and DequantizeLinear
on every tensor that the module stores in bytes, weights and biases as the module's integers, and the list of what the
file cannot say (`Exported.differences`), which stands in its metadata too.
"""

from tpusim.export.qdq import Exported, export_qdq

__all__ = ["Exported", "export_qdq"]
