"""ONNX node type -> how it is written with other ONNX nodes. A module per family has them; a new family is a line here.

A node type with a mapper too is decomposed where the mapper cannot read it. What ONNX itself defines by other ops
(`functions.py`) needs no entry.
"""

from collections.abc import Callable
from types import ModuleType
from typing import TypeAlias

from tpusim.frontend.onnx import (
    part_arithmetic,
    part_control,
    part_linear,
    part_moves,
    part_quantised,
    part_recurrent,
    part_regions,
    part_windows,
)
from tpusim.frontend.onnx.parts import Parts

Decomposition: TypeAlias = Callable[[Parts], None]

FAMILIES: tuple[ModuleType, ...] = (
    part_arithmetic, part_control, part_linear, part_moves, part_quantised, part_recurrent, part_regions,
    part_windows,
)  # fmt: skip

PARTS: dict[str, Decomposition] = {
    op_type: decompose for family in FAMILIES for op_type, decompose in family.DECOMPOSITIONS.items()
}
