"""Modules for other programs: QDQ ONNX that ONNX Runtime runs (`qdq`), and a graph for Model Explorer (`explorer`).

QDQ ONNX has the model's own nodes with the integers of a lowered INT8 module. Input: the ONNX model and the tpu module
that was made of it. Output: the model with QuantizeLinear and DequantizeLinear on every tensor that the module stores
in bytes, weights and biases as the module's integers, and the list of what the file cannot say
(`Exported.differences`), which stands in its metadata too.
"""

from tpusim.export.explorer import MEASURES, graph, node_data
from tpusim.export.qdq import Exported, export_qdq

__all__ = ["MEASURES", "Exported", "export_qdq", "graph", "node_data"]
