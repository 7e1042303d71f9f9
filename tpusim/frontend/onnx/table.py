"""ONNX node type -> its mapper. A module per family has the mappers; a new family is a line here."""

from types import ModuleType

from tpusim.frontend.onnx import activations, arithmetic, norms, products, reductions, resizing, shapes, windows
from tpusim.frontend.onnx.node import Mapper

FAMILIES: tuple[ModuleType, ...] = (
    windows, activations, arithmetic, shapes, resizing, reductions, norms, products
)  # fmt: skip

MAPPERS: dict[str, Mapper] = {op_type: mapper for family in FAMILIES for op_type, mapper in family.MAPPERS.items()}
"""All mappers; a test checks that each node type is in one family only."""
