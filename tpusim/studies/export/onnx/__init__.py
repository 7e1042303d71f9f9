"""A top module as ONNX nodes: the walk (`export`), the growing graph (`graph`), and a form for each op.

Input: a module of state TOP_F32 or TOP_CALIBRATED. Output: a model that computes the same f32 results. Forms are in
`elements`, `moves` and `products`; a package adds the form of its op to `tpusim.registry.ONNX_FORMS`.
"""

from tpusim.studies.export.onnx import elements, moves, products
from tpusim.studies.export.onnx.export import OPSET, OnnxModel, export_onnx
from tpusim.studies.export.onnx.forms import FORMS, Form, form_of, writes
from tpusim.studies.export.onnx.graph import Nodes, Tensor

__all__ = [
    "FORMS", "OPSET", "Form", "Nodes", "OnnxModel", "Tensor", "elements", "export_onnx", "form_of", "moves", "products",
    "writes",
]  # fmt: skip
