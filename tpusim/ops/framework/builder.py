"""`ModuleBuilder`: builds a top module op by op, for any source format.

b = ModuleBuilder()
x = b.input("x", (1, 3, 32, 32))
y = TopConv.make(b, x, b.weight("w", w), strides=(2, 2), pads=(1, 1, 1, 1), name="conv")
model = b.finish([TopRelu.make(b, y, name="relu")], name="small")
"""

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import IRDLOperation

from tpusim.errors import ImportModelError
from tpusim.ir.attrs import name_location, op_name, results_location, set_framework_name
from tpusim.ir.dialects import dialect, load_dialect_of
from tpusim.ir.module import ANY_CHIP, Model
from tpusim.ir.names import unique_name
from tpusim.ir.text import verify
from tpusim.ir.types import tensor
from tpusim.ir.weights import WeightStore
from tpusim.ops.framework.base import ShapedOp, TopOp
from tpusim.ops.framework.building import BuildError, require_size
from tpusim.ops.structure import TopNone, TopWeight, make_input, make_none, make_weight

PLATFORM = "ONNX"
"""The framework that a module names; models of other frameworks are converted to ONNX first."""


class ModuleBuilder:
    """The `Builder` that `make` of a top op gets.

    named: gives the names of the op and of the framework's tensor for a tensor (default: its name, and none). reserved:
    names that weights made from other weights must not take.
    """

    def __init__(
        self, *, named: Callable[[str], tuple[str, str]] = lambda tensor: (tensor, ""), reserved: Collection[str] = ()
    ) -> None:
        dialect("top")
        self._named = named
        self._reserved = reserved
        self._block = Block()
        self._weights = WeightStore()
        self._none: SSAValue | None = None

    def input(self, name: str, shape: Sequence[int], dtype: np.dtype | type = np.float32) -> SSAValue:
        """Append a network input. dtype: of the values that users give; the module computes with f32 (`borders`)."""
        argument = self._block.insert_arg(tensor(shape), len(self._block.args))
        argument.name_hint = f"arg{argument.index}"
        argument.location = name_location(name)
        op = make_input(argument, name, np.dtype(dtype))
        self._block.add_op(op)
        return op.output

    def weight(self, name: str, array: np.ndarray, *, of: SSAValue | None = None) -> SSAValue:
        """Append a top.Weight. of: the weight that it is made from, whose place it takes if nothing reads it."""
        return self._insert(make_weight(self._weights, unique_name(name, self._reserved), array), of)

    def constant(self, name: str, array: np.ndarray) -> SSAValue:
        """Append a top.Weight for the tensor of this name in the source."""
        return self._insert(make_weight(self._weights, name, array), None)

    def _insert(self, op: TopWeight, of: SSAValue | None) -> SSAValue:
        owner = None if of is None or of.first_use is not None else of.owner
        if isinstance(owner, TopWeight) and owner.parent is self._block:
            self._block.insert_op_after(op, owner)
        else:
            self._block.add_op(op)
        return op.output

    def array(self, value: SSAValue) -> np.ndarray | None:
        """The data of a weight; None for a computed value."""
        return self._weights[op_name(value.owner)] if isinstance(value.owner, TopWeight) else None

    def none(self) -> SSAValue:
        """The value of the module's top.None."""
        if self._none is None:
            op = make_none()
            self._block.add_op(op)
            self._none = op.output
        return self._none

    def build(
        self,
        cls: type[IRDLOperation],
        operands: Sequence[SSAValue],
        attributes: Mapping[str, Attribute],
        name: str | Sequence[str],
    ) -> SSAValue:
        """Append an op with inferred f32 results; return the first result, whose `.owner.results` has the others.

        name: one name per result. Raises BuildError for operands that do not fit.
        """
        load_dialect_of(cls)
        names = [name] if isinstance(name, str) else list(name)
        shapes = _inferred(cls, operands, attributes, len(names), names[0])
        op = cls.create(
            operands=operands, result_types=[tensor(shape) for shape in shapes], attributes=dict(attributes)
        )
        named = [self._named(n) for n in names]
        op.location = results_location(text for text, _ in named)
        set_framework_name(op, named[0][1])
        self._block.add_op(op)
        return op.results[0]

    def mark(self) -> Operation | None:
        """The op that was appended last, for `undo` and `since`."""
        return self._block.last_op

    def undo(self, mark: Operation | None) -> set[SSAValue]:
        """Erase the ops that were built since a mark; return their results.

        Weights stay; `finish` leaves out those that nothing reads.
        """
        erased = set[SSAValue]()
        for op in reversed(self.since(mark)):
            erased.update(op.results)
            op.detach()
            op.erase()
        return erased

    def since(self, mark: Operation | None) -> list[Operation]:
        """The ops except weights that were built since a mark, in order."""
        built, op = list[Operation](), self._block.last_op
        while op is not mark and op is not None:
            if not isinstance(op, TopWeight | TopNone):
                built.append(op)
            op = op.prev_op
        return built[::-1]

    def append(self, op: Operation) -> None:
        """Add a finished op at the end of the block."""
        self._block.add_op(op)

    def finish(self, results: Sequence[SSAValue], *, name: str, platform: str = PLATFORM) -> Model:
        """The verified module in state TOP_F32 that returns these values, without weights that nothing reads.

        platform: the framework that the network comes from, as `module.platform` says it.
        Raises ImportModelError for a result that the module does not compute.
        """
        for value in results:
            if not isinstance(value.owner, TopOp) or value.owner.parent is not self._block:
                raise ImportModelError(
                    f"module '{name}': results must be values that its ops compute, got {value.type}"
                )
        self._block.add_op(ReturnOp(*results))
        kept = self._drop_unread()
        types = ([a.type for a in self._block.args], [r.type for r in results])
        model = Model(ModuleOp([FuncOp("main", types, Region(self._block))]), self._weights.restricted(kept))
        model.call(name)
        model.set(state="TOP_F32", chip=ANY_CHIP, platform=platform, top_run_mode="STATIC")
        verify(model.module, name)
        return model

    def _drop_unread(self) -> set[str]:
        """Erase weights that nothing reads; return the names of the others."""
        kept: set[str] = set()
        for op in list(self._block.ops):
            if isinstance(op, TopWeight | TopNone) and op.output.first_use is None:
                op.detach()
                op.erase()
            elif isinstance(op, TopWeight):
                kept.add(op_name(op))
        return kept


def _inferred(
    cls: type[IRDLOperation], operands: Sequence[SSAValue], attributes: Mapping[str, Attribute], count: int, name: str
) -> tuple[tuple[int, ...], ...]:
    """The shapes of the results. Raises BuildError for operands that do not fit."""
    probe = cls.create(operands=operands, result_types=[tensor(())] * count, attributes=dict(attributes))
    assert isinstance(probe, ShapedOp)
    try:
        shapes = probe.infer()
        for shape in shapes:
            require_size(shape)
    except ValueError as error:
        raise BuildError(cls.name, name, str(error)) from error
    finally:
        probe.erase()
    if len(shapes) != count:
        raise BuildError(cls.name, name, f"{len(shapes)} names are required, one per result, got {count}")
    return shapes
