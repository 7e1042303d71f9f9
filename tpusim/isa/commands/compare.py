"""Comparison of two tensors (AR select)."""

from typing import Literal

from tpusim.isa.commands.base import Command
from tpusim.isa.region import View

Relation = Literal["Equal", "NotEqual", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor"]


class Compare(Command, frozen=True, tag="compare"):
    """1 where a `kind` b holds, else 0 (AR select of two constants); numpy broadcasting of axes of length 1.

    a and b, which may be a constant, are both integers or both floats; And, Or and Xor take what is not 0 as true.
    """

    inputs_ = ("a", "b")

    kind: Relation
    a: View
    output: View
    b: View | float = 0.0
