"""The Python form of patterns: what is drawn becomes a `pdl.pattern`.

    class ReluOfAbs(DataPattern):
        \"\"\"Relu of Abs -> Abs.\"\"\"

        @classmethod
        def draw(cls, p: Drawing) -> None:
            inner = p.op("top.Abs", p.operand())
            p.require(one_use, inner)
            p.rewrite(p.op("top.Relu", inner)).replace(inner)

A value that is drawn once and used twice must be the same value in both places. `choice` gives one of several things,
and the pattern is drawn once for each.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter

from tpusim.errors import ConfigError
from tpusim.ir.attrs import copy_name, int_attr
from tpusim.ir.pdl.constraints import CONSTRAINTS, Native, name_of

T = TypeVar("T")


@dataclass(frozen=True)
class Value:
    """A value, an attribute, or a type of the pattern."""

    of: SSAValue


@dataclass(frozen=True)
class Node:
    """An op of the pattern with one result. In place of an operand it stands for that result."""

    of: SSAValue
    result: Value
    type: Value


Part = Node | Value | Attribute | str | int | Sequence[int]
"""An op, a value, or a constant: an attribute, a text, an integer, a list of integers."""


@dataclass
class Drawing:
    """One form of a pattern that is being drawn. choices: which alternative each `choice` gives."""

    pattern: Any
    choices: tuple[int, ...] = ()
    offered: list[int] = field(default_factory=list[int])
    rewriting: "Rewriting | None" = None

    def choice(self, *alternatives: T) -> T:
        """One of the alternatives; an earlier one is tried before a later one."""
        at = len(self.offered)
        self.offered.append(len(alternatives))
        return alternatives[self.choices[at] if at < len(self.choices) else 0]

    def operand(self) -> Value:
        """Any value, whatever op produces it."""
        from xdsl.dialects import pdl

        return Value(self._add(pdl.OperandOp()).results[0])

    def operands(self) -> Value:
        """Any number of values: all operands of an op, or those after the others."""
        from xdsl.dialects import pdl

        return Value(self._add(pdl.OperandsOp(None)).results[0])

    def attribute(self, value: Attribute | None = None) -> Value:
        """An attribute: this one, or any."""
        from xdsl.dialects import pdl

        return Value(self._add(pdl.AttributeOp(value)).results[0])

    def op(self, name: str, *operands: Node | Value, **attributes: Part) -> Node:
        """An op of a name with one result and these operands. attributes: required attributes and their values."""
        from xdsl.dialects import pdl

        values = [_value(operand) for operand in operands]
        stated = [self.part(value) for value in attributes.values()]
        kind = self._add(pdl.TypeOp()).results[0]
        made = self._add(pdl.OperationOp(name, map(StringAttr, attributes), values, stated, [kind]))
        return Node(made.results[0], Value(self._add(pdl.ResultOp(0, made.results[0])).results[0]), Value(kind))

    def require(self, holds: Native | str, *parts: Part, negated: bool = False) -> None:
        """A constraint by name or function; it gets the matched ops, values and attributes."""
        from xdsl.dialects import pdl

        name = holds if isinstance(holds, str) else name_of(holds)
        of_value = name in CONSTRAINTS
        given = [_value(part) if of_value and isinstance(part, Node) else self.part(part) for part in parts]
        self._add(pdl.ApplyNativeConstraintOp(name, given, [], negated))

    def rewrite(self, root: Node, function: Native | None = None, *parts: Part) -> "Rewriting":
        """Begin the rewrite of the op whose result is replaced. function: a native rewrite of it and of parts."""
        from xdsl.dialects import pdl
        from xdsl.ir import Block, Region

        rewrite = pdl.RewriteOp(root.of, Region(Block()))
        self._add(rewrite)
        self.rewriting = Rewriting(root, rewrite.body.block, self)
        if function is not None:
            self.rewriting.native(function, root, *parts)
        return self.rewriting

    def part(self, part: Part, block: Any = None) -> SSAValue:
        """The value in PDL of an op, a value or a constant."""
        from xdsl.dialects import pdl

        if isinstance(part, Node | Value):
            return part.of
        return self._add(pdl.AttributeOp(_constant(part)), block).results[0]

    def _add(self, op: Operation, block: Any = None) -> Operation:
        (self.pattern.body.block if block is None else block).add_op(op)
        return op


@dataclass
class Rewriting:
    """The rewrite of the matched ops."""

    root: Node
    block: Any
    drawing: Drawing

    def make(self, name: str, *operands: Node | Value, **attributes: Part) -> Node:
        """A new op whose result has the type of the root's."""
        from xdsl.dialects import pdl

        kind = self.root.type
        stated = [self.drawing.part(value, self.block) for value in attributes.values()]
        values = [_value(operand) for operand in operands]
        made = pdl.OperationOp(name, map(StringAttr, attributes), values, stated, [kind.of])
        result = pdl.ResultOp(0, made.op)
        self.block.add_ops([made, result])
        return Node(made.op, Value(result.val), kind)

    def attribute(self, function: Native, *parts: Part) -> Value:
        """An attribute computed by a function of matched ops, values and attributes."""
        from xdsl.dialects import pdl

        return Value(self._call(function, parts, [pdl.AttributeType()])[0])

    def native(self, function: Native, *parts: Part) -> None:
        """Call a native rewrite with the rewriter and these ops, values and attributes."""
        self._call(function, parts, [])

    def replace(self, by: Node | Value) -> None:
        """Replace the root by an op's result or by a value."""
        from xdsl.dialects import pdl

        self.block.add_op(pdl.ReplaceOp(self.root.of, repl_values=[_value(by)]))

    def replace_with(self, name: str, *operands: Node | Value, **attributes: Part) -> None:
        """Replace the root by a new op that has its name and location alone, not those of all matched ops."""
        made = self.make(name, *operands, **attributes)
        self.native(called_like, made, self.root)
        self.replace(made)

    def erase(self, node: Node) -> None:
        """Erase an op that nothing uses any more."""
        from xdsl.dialects import pdl

        self.block.add_op(pdl.EraseOp(node.of))

    def _call(self, function: Native, parts: Sequence[Part], results: list[Attribute]) -> Sequence[SSAValue]:
        from xdsl.dialects import pdl

        given = [self.drawing.part(part, self.block) for part in parts]
        made = pdl.ApplyNativeRewriteOp(name_of(function), given, results)
        self.block.add_op(made)
        return made.results


def called_like(rewriter: PatternRewriter, op: Operation, source: Operation) -> None:
    """Give an op the name of another."""
    del rewriter
    copy_name(op, source)


def _value(part: Node | Value) -> SSAValue:
    return part.result.of if isinstance(part, Node) else part.of


def _constant(part: Attribute | str | int | Sequence[int]) -> Attribute:
    if isinstance(part, Attribute):
        return part
    if isinstance(part, str):
        return StringAttr(part)
    return int_attr(part) if isinstance(part, int) else ArrayAttr([int_attr(one) for one in part])


def drawn(name: str, benefit: int, draw: Callable[[Drawing], None]) -> Iterator[Any]:
    """The `pdl.pattern` ops of a pattern, one for each combination of choices."""
    from xdsl.dialects import pdl

    pending, numbers = list[tuple[int, ...]]([()]), count()
    while pending:
        choices = pending.pop(0)
        number = next(numbers)
        pattern = pdl.PatternOp(benefit, f"{name}_{number}" if number else name)
        drawing = Drawing(pattern, choices)
        draw(drawing)
        if drawing.rewriting is None:
            raise ConfigError(f"pattern {name}: a rewrite is required; end with `rewrite(ROOT)`")
        if len(drawing.offered) > len(choices):
            pending[:0] = [(*choices, *more) for more in _combinations(drawing.offered[len(choices) :])][1:]
        _without_unused(pattern)
        yield pattern


def _combinations(offered: Sequence[int]) -> Iterator[tuple[int, ...]]:
    if not offered:
        yield ()
        return
    for first in range(offered[0]):
        for rest in _combinations(offered[1:]):
            yield (first, *rest)


def _without_unused(pattern: Any) -> None:
    from xdsl.dialects import pdl

    for op in reversed(list(pattern.walk())):
        if isinstance(op, pdl.ResultOp) and op.val.first_use is None:
            op.detach()
            op.erase()
