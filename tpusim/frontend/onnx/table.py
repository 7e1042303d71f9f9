"""ONNX node type -> its mapper. A module per family has the mappers; a new family is a line here."""

from types import ModuleType

import onnx

from tpusim.frontend.onnx import (
    activations,
    arithmetic,
    norms,
    products,
    recurrent,
    reductions,
    resizing,
    shapes,
    windows,
)
from tpusim.frontend.onnx.model_file import DEFAULT_DOMAINS, IDIOMS
from tpusim.frontend.onnx.node import Mapper

FAMILIES: tuple[ModuleType, ...] = (
    windows, activations, arithmetic, shapes, resizing, reductions, norms, products, recurrent,
)  # fmt: skip

MAPPERS: dict[str, Mapper] = {op_type: mapper for family in FAMILIES for op_type, mapper in family.MAPPERS.items()}
"""All mappers; a test checks that each node type is in one family only."""

SEQUENCES: dict[str, Mapper] = {
    "GELU": activations.gelu, "HardSigmoid": activations.hard_sigmoid, "HardSwish": MAPPERS["HardSwish"],
    "LayerNormalization": norms.layer_normalization, "PixelNormalization": norms.pixel_normalization,
}  # fmt: skip
"""The mappers of the nodes that stand for sequences of nodes, by TPU-MLIR's names (U-97)."""


def mapper_of(node: onnx.NodeProto) -> Mapper | None:
    """The mapper of a node, None if its type has none."""
    if node.domain == IDIOMS:
        return SEQUENCES[node.op_type]
    return MAPPERS.get(node.op_type) if node.domain in DEFAULT_DOMAINS else None
