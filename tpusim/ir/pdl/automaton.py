"""Executes what xDSL makes of patterns: the functions of a `pdl_interp` module, given as rows.

A row is an op: its name without the dialect, the slots of its results and operands, what it states, and the blocks that
may come next. Rows are made of plain data, so an automaton can be stored as JSON. When it is loaded, each row becomes a
closure over the slots; a function is run block by block.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint

from tpusim.ir.pdl.meanings import step_of
from tpusim.ir.pdl.rows import MATCHED, Constant, Function, Rewriter, Row, Rows, Slots, State
from tpusim.ir.weights import WeightStore


class Code:
    """A function, ready to be run."""

    def __init__(self, function: Function, constant: Constant) -> None:
        self._slots = function.slots
        self._blocks = [[step_of(Row(*row), constant) for row in block] for block in function.blocks]

    def run(self, arguments: Sequence[Any], state: State) -> None:
        """Execute the function from its first block."""
        slots: Slots = [*arguments, *[None] * (self._slots - len(arguments)), state]
        at: int | None = 0
        while at is not None and at >= 0:
            for step in self._blocks[at]:
                at = step(slots)


@dataclass
class Match:
    """A pattern that fits an op, with the values that its rewriter takes."""

    pattern: int
    rewriter: Rewriter
    code: Code
    values: Slots


class Automaton:
    """The automaton of some patterns. constant: what parses the text of an attribute or type (true)."""

    def __init__(self, rows: Rows, constant: Constant, makes: Callable[[str], type[Operation] | None]) -> None:
        self.patterns, self._makes, self._constant = tuple(rows.patterns), makes, constant
        self._matcher = Code(rows.matcher, constant)
        self._rewriters = {name: Rewriter(*found) for name, found in rows.rewriters.items()}
        self._order = {name: number for number, name in enumerate(self._rewriters)}
        self._codes: dict[str, Code] = {}

    def matches(self, op: Operation, weights: WeightStore) -> list[Match]:
        """The patterns that fit an op: the highest benefit first, then in the order in which they were drawn."""
        state = State(weights)
        self._matcher.run((op,), state)
        if not state.matches:
            return []
        found = sorted(state.matches, key=lambda match: (-self._rewriters[match[0]].benefit, self._order[match[0]]))
        return [Match(self._rewriters[name].pattern, self._rewriters[name], self._code(name), values)
                for name, values in found]  # fmt: skip

    def _code(self, name: str) -> Code:
        if name not in self._codes:
            self._codes[name] = Code(Function(*self._rewriters[name].function), self._constant)
        return self._codes[name]

    def run(self, match: Match, op: Operation, rewriter: PatternRewriter, weights: WeightStore) -> State:
        """Execute the rewriter of a match."""
        rewriter.insertion_point = InsertPoint.before(op)
        state = State(weights, self._makes, rewriter)
        match.code.run(match.values, state)
        return state


def functions_of(rows: Rows) -> Mapping[str, str]:
    """The Python functions that an automaton names: name -> what it is called for."""
    named: dict[str, str] = {}
    for function in (rows.matcher, *(Rewriter(*one).function for one in rows.rewriters.values())):
        for block in Function(*function).blocks:
            for row in (Row(*one) for one in block):
                if row.name in ("apply_constraint", "apply_rewrite") and row.stated[0] != MATCHED:
                    named[row.stated[0]] = row.name
    return named
