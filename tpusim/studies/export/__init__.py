"""Modules for other programs: ONNX (`onnx`), QDQ ONNX (`qdq`), and a graph for Model Explorer (`explorer`).

QDQ ONNX is for ONNX Runtime. It has the nodes of the original model, or of the top module, with the integers of a
lowered INT8 module. Input: the model or the top module, and the tpu module lowered from it. Output: the model with
QuantizeLinear and DequantizeLinear on every tensor that the module stores in bytes, weights and biases as the module's
integers, and a list of the properties that QDQ cannot express (`Exported.differences`), which is also in the file's
metadata.
"""

from tpusim.studies.export.explorer import MEASURES, graph, node_data
from tpusim.studies.export.onnx import OnnxModel, export_onnx
from tpusim.studies.export.qdq import Exported, export_qdq

__all__ = ["MEASURES", "Exported", "OnnxModel", "export_onnx", "export_qdq", "graph", "node_data"]
