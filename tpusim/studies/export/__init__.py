"""Modules for other programs: QDQ ONNX for ONNX Runtime (`qdq`), and a graph for Model Explorer (`explorer`).

QDQ ONNX has the nodes of the original model with the integers of a lowered INT8 module. Input: the ONNX model and the
tpu module lowered from it. Output: the model with QuantizeLinear and DequantizeLinear on every tensor that the module
stores in bytes, weights and biases as the module's integers, and a list of the properties that QDQ cannot express
(`Exported.differences`), which is also in the file's metadata.
"""

from tpusim.studies.export.explorer import MEASURES, graph, node_data
from tpusim.studies.export.qdq import Exported, export_qdq

__all__ = ["MEASURES", "Exported", "export_qdq", "graph", "node_data"]
