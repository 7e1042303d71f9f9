"""One result of a node that has several (DN-35).

TPU-MLIR's op has a result for each output of the node. An op here has one result; a node of which several outputs are
read is as many ops with the same operands. The commands of the first do the work, the others' only store their results.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Self

from typing_extensions import override
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute
from xdsl.irdl import attr_def

from tpusim.ir.upstream import ir_name
from tpusim.ops.framework.base import Array, ShapedOp


class OneResult(ShapedOp):
    """result: which output of the node the op gives, by its name in TPU-MLIR's op."""

    OUTPUTS: ClassVar[tuple[str, ...]]
    """The outputs of the node, in order."""

    result = attr_def(StringAttr)

    def check_result(self) -> None:
        """Raises ValueError for a result that the node does not have."""
        if self.result.data not in self.OUTPUTS:
            raise ValueError(f"a result among {', '.join(self.OUTPUTS)} is required, got '{self.result.data}'")

    @override
    def result_names(self) -> tuple[str, ...]:
        return (self.result.data,) if ir_name(self, "result") in self.attributes else ()

    def chosen(self, results: Sequence[Array]) -> tuple[Array, ...]:
        """The result of this op among those of the node."""
        return (results[self.OUTPUTS.index(self.result.data)],)

    def same_node(self) -> Iterator[Self]:
        """The ops of the same node, with this one, in the order of the block."""
        found = {use.operation for use in self.operands[0].uses}
        ops = [op for op in found if isinstance(op, type(self)) and op.node() == self.node()]
        block = self.parent_block()
        order = {op: i for i, op in enumerate(block.ops)} if block is not None else {}
        yield from sorted(ops, key=lambda op: order.get(op, 0))

    def node(self) -> tuple[object, ...]:
        """Operands and attributes, which all ops of the node have in common."""
        names = set(type(self).get_irdl_definition().attributes) - {ir_name(self, "result")}
        stated: dict[str, Attribute | None] = {name: self.attributes.get(name) for name in names}
        return tuple(self.operands), stated

    @property
    def is_first(self) -> bool:
        """Whether the work of the node counts for this op."""
        return next(self.same_node(), self) is self
