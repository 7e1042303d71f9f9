"""ONNX node type -> its decomposition into other ONNX nodes. Each family has a module; a new family is a line here.

A node type that also has a mapper is decomposed if the mapper cannot read it. Ops that ONNX itself defines by other ops
(`functions.py`) need no entry.
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
