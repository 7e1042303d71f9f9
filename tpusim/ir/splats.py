"""Tensors of equal elements in text: a few characters that stand for any number of bytes.

xDSL repeats the element. A `Budget` bounds what all of a file may become; beyond it a tensor keeps its one element, and
prints and is stored as before.
"""

from dataclasses import dataclass
from math import prod
from typing import Any, cast

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, TensorType
from xdsl.ir import Attribute

SPARE = 1 << 20
"""Bytes that splats may become beyond the size of a file of bytecode, all together."""
SPARE_OF_TEXT = 1 << 27
"""The same for a module in text."""
PARSED = 32
"""Bytes that the parser needs for each element that it repeats."""


@dataclass
class Budget:
    """Bytes that may be made of what a file does not hold. left: of them."""

    left: int

    def spend(self, size: int) -> bool:
        """Whether `size` more bytes may be made; they are, then."""
        if size > self.left:
            return False
        self.left -= size
        return True


def shortened(kind: Attribute, budget: Budget, most: int) -> Attribute:
    """The type to parse a dense literal of at most `most` listed elements with: of one element if it must be a splat
    whose elements exceed the budget, else `kind` itself.
    """
    shape = cast("tuple[int, ...]", cast("Any", kind).get_shape())
    count = prod(shape)
    if count <= most or budget.spend(PARSED * count):
        return kind
    return TensorType(cast("Any", kind).get_element_type(), (1,) * len(shape))


def with_type(value: DenseIntOrFPElementsAttr[Any], kind: Attribute) -> DenseIntOrFPElementsAttr[Any]:
    """The literal with its type, after it was parsed with a shortened one."""
    return value if value.type == kind else DenseIntOrFPElementsAttr(cast("Any", kind), value.data)
