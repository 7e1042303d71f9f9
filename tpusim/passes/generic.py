"""Passes over modules of any dialect (`tpusim.ir.generic`), and the simplification that `canonicalize` does of them.

Those of functions work on one isolated op at a time; with workers in the context, on several at once. A function
travels to a worker as bytecode with the names of its values and blocks, so the results are those of one process.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.traits import IsolatedFromAbove

from tpusim.ir.attrs import op_name
from tpusim.ir.dialects import open_context
from tpusim.ir.generic.constants import fold
from tpusim.ir.generic.cse import merge_equal
from tpusim.ir.generic.dce import erase_dead
from tpusim.ir.generic.inlining import inline_calls
from tpusim.ir.generic.sccp import propagate_constants
from tpusim.ir.generic.simplify import simplify
from tpusim.ir.generic.symbols import erase_dead_symbols
from tpusim.ir.module import Model, ModelContext, is_weight
from tpusim.passes.base import Pass
from tpusim.passes.context import PassContext

if TYPE_CHECKING:
    from tpusim.host.workers import Workers

Wire = tuple[bytes, list[str | None]]
"""A function as bytecode in a module, and the names of its blocks and values."""


def with_used_weights(model: Model) -> Model:
    """The model without the weights that no op names any more."""
    return Model(model.module, model.weights.restricted({op_name(op) for op in model.module.walk() if is_weight(op)}))


@dataclass(frozen=True)
class FunctionPass(Pass):
    """A rewriting of one isolated op, which depends on no other."""

    anchor = "func.func"

    @abstractmethod
    def on(self, function: Operation, ctx: ModelContext) -> None:
        """Rewrite what is inside an isolated op."""

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        functions = [op for op in model.module.ops if op.has_trait(IsolatedFromAbove) and op.regions]
        if len(functions) < len(model.module.body.block.ops):
            self.on(model.module, ctx)
        elif ctx.workers is None or len(functions) < 2:
            for function in functions:
                self._on_all(function, ctx)
        else:
            self._by_workers(functions, ctx.workers)
        return with_used_weights(model)

    def _on_all(self, function: Operation, ctx: ModelContext) -> None:
        """The op and the isolated ops in it, those inside first."""
        for op in reversed([op for op in function.walk() if op.has_trait(IsolatedFromAbove) and op.regions]):
            self.on(op, ctx)

    def _by_workers(self, functions: Sequence[Operation], workers: "Workers") -> None:
        with workers.begun() as crew:
            units = [(self, *_sent(function)) for function in functions]
            for function, found in zip(functions, crew.results(_in_worker, units), strict=True):
                _replace(function, _received(found))

    def apply_alone(self, wire: Wire) -> Wire:
        """What the pass makes of a function that was sent to a worker."""
        function = _received(wire)
        self._on_all(function, PassContext())
        return _sent(function)


def _in_worker(step: FunctionPass, data: bytes, names: list[str | None]) -> Wire:
    return step.apply_alone((data, names))


def _sent(function: Operation) -> Wire:
    from tpusim.ir.bytecode import RELEASES, encode

    module = ModuleOp([function.clone()])  # without the names of blocks
    return encode(module, release=RELEASES["llvm24"]), [one.name_hint for one in _named(function)]


def _received(wire: Wire) -> Operation:
    from tpusim.ir.bytecode import Bytecode

    data, names = wire
    ctx = open_context()
    ctx.allow_unregistered = True  # it was read already
    module = Bytecode(data, ctx, "a function").module()
    (function,) = module.ops
    for one, name in zip(_named(function), names, strict=True):
        one.name_hint = name
    return function


def _named(root: Operation) -> Iterator[SSAValue | Block]:
    """All that has a name in text and none in bytecode, in order."""
    for op in root.walk():
        yield from op.results
        for region in op.regions:
            for block in region.blocks:
                yield block
                yield from block.args


def _replace(old: Operation, new: Operation) -> None:
    block = old.parent
    assert block is not None
    new.detach()
    block.insert_op_before(new, old)
    old.detach()
    old.erase()


@dataclass(frozen=True)
class Cse(FunctionPass):
    """Replace ops by equal ones above them; weights and what a function returns keep their names."""

    name = "cse"

    @override
    def on(self, function: Operation, ctx: ModelContext) -> None:
        merge_equal(function)


@dataclass(frozen=True)
class Dce(FunctionPass):
    """Erase ops without effects whose results nothing uses, arguments of blocks likewise, and unreachable blocks."""

    name = "dce"

    @override
    def on(self, function: Operation, ctx: ModelContext) -> None:
        erase_dead(function)


@dataclass(frozen=True)
class Fold(FunctionPass):
    """Replace ops by the constants or values that they fold to."""

    name = "fold"

    @override
    def on(self, function: Operation, ctx: ModelContext) -> None:
        fold(function, ctx)


@dataclass(frozen=True)
class Sccp(FunctionPass):
    """Replace values that are one constant on every path that can be taken through a function."""

    name = "sccp"

    @override
    def on(self, function: Operation, ctx: ModelContext) -> None:
        propagate_constants(function, ctx)


@dataclass(frozen=True)
class Simplify(FunctionPass):
    """What `canonicalize` does of ops of any dialect: their folders and patterns, to a fix point."""

    name = "simplify"

    @override
    def on(self, function: Operation, ctx: ModelContext) -> None:
        simplify(function, ctx)


@dataclass(frozen=True)
class SymbolDce(Pass):
    """Erase private functions and other symbols that nothing alive refers to."""

    name = "symbol-dce"

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        erase_dead_symbols(model.module)
        return with_used_weights(model)


@dataclass(frozen=True)
class Inline(Pass):
    """Inline the calls of functions, callees first, and simplify the results."""

    name = "inline"

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        inline_calls(model.module, lambda function: simplify(function, ctx))
        return with_used_weights(model)
