"""The rule of ops of several tensors in local memory (layer_group.md 2)."""

from collections.abc import Sequence

from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.ir.types import shape_of


def binary_why_global(values: Sequence[SSAValue], chip: ChipSpec) -> str | None:
    """Why an op of several tensors is not local: of a chip that combines two of one shape (layer_group.md 2)."""
    if not chip.local.equal_shapes:
        return None
    if len(values) != 2 or shape_of(values[0]) != shape_of(values[1]):
        return f"{chip.name} combines two tensors of one shape in local memory"
    return None
