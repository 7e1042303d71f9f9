"""An automaton as data: the functions of a `pdl_interp` module as rows, and what the rows of one run share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from xdsl.ir import Attribute, Operation
from xdsl.pattern_rewriter import PatternRewriter

from tpusim.ir.weights import WeightStore

END = -1
"""The number of the block after the last."""
MATCHED = "matched"
"""The native rewrite that `compiling` puts before all others: it notes the ops that a pattern has matched."""
Slots = list[Any]
Constant = Callable[[str, bool], Attribute]
"""(MLIR text, whether it is a type) -> attribute."""
Step = Callable[[Slots], int | None]
"""Executes a row; the last one of a block gives the number of the next block."""


class Row(NamedTuple):
    """One op. blocks: numbers of its successors."""

    name: str
    results: list[int]
    operands: list[int]
    stated: list[Any]
    blocks: list[int]


class Function(NamedTuple):
    """A function of the automaton. slots: number of its values; its arguments are the first of them."""

    slots: int
    blocks: list[list[Row]]


class Rewriter(NamedTuple):
    """What a pattern does when it has matched. pattern: its number; replaces: whether PDL makes or replaces ops."""

    pattern: int
    benefit: int
    replaces: bool
    function: Function


class Rows(NamedTuple):
    """An automaton as data. patterns: names, one for each pattern; several rewriters may be of one."""

    patterns: list[str]
    matcher: Function
    rewriters: dict[str, Rewriter]


@dataclass
class State:
    """What the rows of one run share: the last slot. makes: the class of an op's name."""

    weights: WeightStore
    makes: Callable[[str], type[Operation] | None] = lambda name: None
    rewriter: PatternRewriter | None = None
    matches: "list[tuple[str, Slots]]" = field(default_factory=list["tuple[str, Slots]"])
    matched: tuple[Operation, ...] = ()
