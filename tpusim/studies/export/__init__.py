"""Modules for other programs: ONNX (`onnx`), QDQ ONNX (`qdq`), and a graph for Model Explorer (`explorer`).

QDQ ONNX is for ONNX Runtime. It has the nodes of the original model, or of the top module, with the integers of a
lowered INT8 module. Input: the model or the top module, and the tpu module lowered from it. Output: the model with
QuantizeLinear and DequantizeLinear on every tensor that the module stores in bytes, weights and biases as the module's
integers, and a list of the properties that QDQ cannot express (`Exported.differences`), which is also in the file's
metadata.

The writers of ONNX are imported when they are first used, because a run writes only the graph.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tpusim.studies.export.explorer import MEASURES, graph, node_data

if TYPE_CHECKING:
    from tpusim.studies.export.onnx import OnnxModel, export_onnx
    from tpusim.studies.export.qdq import Exported, export_qdq

__all__ = ["MEASURES", "Exported", "OnnxModel", "export_onnx", "export_qdq", "graph", "node_data"]

_PLACES = {"Exported": "qdq", "OnnxModel": "onnx", "export_onnx": "onnx", "export_qdq": "qdq"}


def __getattr__(name: str) -> Any:
    """What writes ONNX, at its first use."""
    if name not in _PLACES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
