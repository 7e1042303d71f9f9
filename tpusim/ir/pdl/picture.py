"""A pattern as a few lines of text: the ops that it matches, its conditions, and the rewrite."""

from collections.abc import Iterator
from typing import Any

from xdsl.dialects import pdl
from xdsl.ir import Operation, SSAValue

from tpusim.ir.pdl.patterns import DataPattern

LETTERS = "xyzuvwrst"


def picture(pattern: DataPattern) -> str:
    """All forms of a pattern; an empty line separates them."""
    return "\n\n".join("\n".join(_Names().lines(form)) for form in pattern.forms())


class _Names:
    """Names of the things in a form: letters for values, a, b ... for ops, an attribute's key for attributes."""

    def __init__(self) -> None:
        self._names: dict[SSAValue, str] = {}
        self._values, self._ops = iter(LETTERS), iter("abcdefghijklm")

    def lines(self, form: Any) -> Iterator[str]:
        """The ops that are matched, each with its conditions, and after the arrow the rewrite."""
        conditions = list[str]()
        for op in form.body.block.ops:
            if isinstance(op, pdl.OperationOp):
                yield self._made(op)
            elif isinstance(op, pdl.ApplyNativeConstraintOp):
                negated = "not " if op.is_negated.value.data else ""
                conditions.append(f"{negated}{self._call(op.constraint_name.data, op.args)}")
            elif isinstance(op, pdl.RewriteOp):
                if conditions:
                    yield f"  if {', '.join(conditions)}"
                yield "->"
                yield from self._rewritten(op)

    def _made(self, op: pdl.OperationOp) -> str:
        """One op with its operands and attributes."""
        named = zip(op.attributeValueNames, op.attribute_values, strict=True)
        stated = [f"{key.data}={self._attribute(key.data, value)}" for key, value in named]
        operands = [self._name(value) for value in op.operand_values]
        name = self._names[op.op] = next(self._ops)
        kind = op.opName.data if op.opName else "any op"
        return f"  {name} = {kind}({', '.join([*operands, *stated])})"

    def _attribute(self, key: str, value: SSAValue) -> str:
        owner = value.owner
        if isinstance(owner, pdl.AttributeOp) and owner.value is None:
            self._names[value] = key
        return self._name(value)

    def _name(self, value: SSAValue) -> str:
        owner = value.owner
        if value not in self._names:
            if isinstance(owner, pdl.AttributeOp) and owner.value is not None:
                return str(owner.value)
            if isinstance(owner, pdl.ResultOp | pdl.ResultsOp):
                return self._name(owner.parent_)
            self._names[value] = next(self._values)
        return self._names[value]

    def _call(self, function: str, arguments: Any) -> str:
        plain = function.rpartition(":")[2].rpartition(".")[2]
        return f"{plain}({', '.join(self._name(value) for value in arguments)})"

    def _rewritten(self, rewrite: pdl.RewriteOp) -> Iterator[str]:
        for op in rewrite.body.block.ops:
            yield from self._step(op)

    def _step(self, op: Operation) -> Iterator[str]:
        if isinstance(op, pdl.OperationOp):
            yield self._made(op)
        elif isinstance(op, pdl.ReplaceOp):
            by = op.repl_operation.owner if op.repl_operation is not None else None
            given = [by.results[0]] if isinstance(by, Operation) else op.repl_values
            yield f"  {', '.join(map(self._name, given))} in place of {self._name(op.op_value)}"
        elif isinstance(op, pdl.EraseOp):
            yield f"  without {self._name(op.op_value)}"
        elif isinstance(op, pdl.ApplyNativeRewriteOp):
            call = self._call(op.constraint_name.data, op.args)
            for result in op.res:
                self._names[result] = call
            if not op.res and not call.startswith("called_like"):
                yield f"  {call}"
