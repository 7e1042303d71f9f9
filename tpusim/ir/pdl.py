"""Rewrite patterns as data: MLIR's dialect `pdl`, read from a file and applied by xDSL's interpreter of it.

A constraint (`pdl.apply_native_constraint "NAME"(...)`) is one of CONSTRAINTS, or a Python predicate
`"module:function"` of matched ops, values, types and attributes. A native rewrite `"module:function"` gets the rewriter
and such things, and gives as many results as the pattern asks for. The op in place of the root keeps its name, so that
tensors can be compared by name, and its location is the fused one of all matched ops.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects import pdl
from xdsl.dialects.builtin import ArrayAttr, FusedLoc, IntegerAttr, ModuleOp, NoneAttr, StringAttr, UnknownLoc
from xdsl.interpreter import Interpreter, InterpreterFunctions, impl, register_impls
from xdsl.interpreters.pdl import PDLMatcher, PDLRewriteFunctions, PDLRewritePattern
from xdsl.ir import Attribute, Operation, OpResult, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.utils.exceptions import InterpretationError

from tpusim.errors import ConfigError, first_line
from tpusim.ir.attrs import op_name, set_op_name
from tpusim.ir.text import parse_module, read_text
from tpusim.ir.types import element_of, is_tensor, shape_of

Constraint = Callable[..., bool]


def one_use(matched: Operation | SSAValue) -> bool:
    """Whether a value, or each result of an op, is used once."""
    values = matched.results if isinstance(matched, Operation) else (matched,)
    return all(value.has_one_use() for value in values)


def element_type(value: SSAValue, wanted: Attribute) -> bool:
    """Whether a value is a tensor of an element type."""
    return is_tensor(value) and element_of(value) == wanted


def shape(value: SSAValue, wanted: ArrayAttr[Attribute]) -> bool:
    """Whether a value is a tensor of a shape; -1 stands for any extent."""
    extents = [cast("IntegerAttr[Any]", one).value.data for one in wanted.data]
    found = shape_of(value) if is_tensor(value) else ()
    return len(found) == len(extents) and all(b in (a, -1) for a, b in zip(found, extents, strict=True))


def chip(matched: Operation | SSAValue, *names: StringAttr) -> bool:
    """Whether the module of an op or value is lowered for one of these chips."""
    op = matched if isinstance(matched, Operation) else matched.owner
    while isinstance(op, Operation) and op.parent_op() is not None:
        op = op.parent_op()
    stated = op.attributes.get("module.chip") if isinstance(op, ModuleOp) else None
    return stated in names


CONSTRAINTS: Mapping[str, Constraint] = {"one_use": one_use, "element_type": element_type, "shape": shape, "chip": chip}


def read_patterns(path: Path, ctx: Context) -> list[RewritePattern]:
    """The patterns of a file, the highest benefit first. Raises ConfigError, or ImportModelError for what is no PDL."""
    module = parse_module(read_text(path), ctx, str(path))
    found = [op for op in module.walk() if isinstance(op, pdl.PatternOp)]
    if not found:
        raise ConfigError(f"patterns '{path}': a pdl.pattern is required, there is none")
    found.sort(key=lambda op: -op.benefit.value.data)
    return [_pattern(op, ctx, path) for op in found]


def _pattern(op: pdl.PatternOp, ctx: Context, path: Path) -> RewritePattern:
    name = op.sym_name.data if op.sym_name is not None else "pattern"
    rewrites = [one for one in op.walk() if isinstance(one, pdl.RewriteOp)]
    constraints = {
        one.constraint_name.data: _constraint(one.constraint_name.data, f"patterns '{path}': {name}")
        for one in op.walk()
        if isinstance(one, pdl.ApplyNativeConstraintOp)
    }
    if len(rewrites) != 1 or rewrites[0].root is None or not rewrites[0].body.blocks:
        raise ConfigError(f"patterns '{path}': {name}: one pdl.rewrite with a root and a body is required")
    kind = type(name, (DataPattern,), {"__doc__": f"The pattern of {path}."})  # known by its name in statistics
    made = kind(rewrites[0], ctx, None, constraints)
    made.interpreter.register_implementations(NativeRewrites(made.functions))
    return made


def _constraint(name: str, where: str) -> Constraint:
    if name in CONSTRAINTS:
        return CONSTRAINTS[name]
    if ":" not in name:
        known = ", ".join(CONSTRAINTS)
        raise ConfigError(f"{where}: the constraint '{name}': one of {known} or MODULE:FUNCTION is required")
    return _imported(name, where)


def _imported(name: str, where: str) -> Callable[..., Any]:
    """The function of a name MODULE:FUNCTION. Raises ConfigError."""
    module, _, function = name.partition(":")
    try:
        return getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{where}: '{name}', MODULE:FUNCTION, cannot be imported: {error}") from error


@register_impls
class NativeRewrites(InterpreterFunctions):
    """`pdl.apply_native_rewrite "module:function"(...)`. functions: those of xDSL, which have the rewriter."""

    def __init__(self, functions: PDLRewriteFunctions) -> None:
        self._functions = functions

    @impl(pdl.ApplyNativeRewriteOp)
    def run(self, interpreter: Interpreter, op: pdl.ApplyNativeRewriteOp, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Call the function. Raises ConfigError if it gives another number of results."""
        del interpreter
        name = op.constraint_name.data
        found = _imported(name, "native rewrite")(self._functions.rewriter, *args)
        results = cast("tuple[Any, ...]", () if found is None else found if isinstance(found, tuple) else (found,))
        if len(results) != len(op.results):
            raise ConfigError(f"native rewrite '{name}': {len(op.results)} results are required, got {len(results)}")
        return results


class DataPattern(PDLRewritePattern):
    """A pattern of a PDL file."""

    @override
    def match_and_rewrite(self, xdsl_op: Operation, rewriter: PatternRewriter) -> None:
        """Rewrite the op that the pattern's root matches. Raises ConfigError for what the pattern cannot do."""
        op = xdsl_op
        matcher = PDLMatcher(native_constraints=self.native_constraints)
        root = cast("OpResult", self.pdl_rewrite_op.root)
        try:
            if matcher.match_operation(root, cast("pdl.OperationOp", root.op), op) and self._is_allowed(matcher):
                self._rewrite(op, matcher, rewriter)
        except (InterpretationError, AssertionError, ValueError, IndexError, KeyError) as error:
            place = f"{type(self).__name__} at {op.name} '{op_name(op)}'"
            raise ConfigError(f"pattern {place}: {first_line(error)}; mend the pattern") from error

    def _is_allowed(self, matcher: PDLMatcher) -> bool:
        pattern = self.pdl_rewrite_op.parent_op()
        asked = () if pattern is None else pattern.walk()
        return all(matcher.check_native_constraints(o) for o in asked if isinstance(o, pdl.ApplyNativeConstraintOp))

    def _rewrite(self, op: Operation, matcher: PDLMatcher, rewriter: PatternRewriter) -> None:
        matched = [one for one in matcher.matching_context.values() if isinstance(one, Operation)]
        name, locations = op_name(op), list(_places(op, matched))
        operands = {value.owner for value in op.operands}
        sole = [one for one in matched if one in operands and one_use(one)]  # may take the root's name if the root goes
        made: list[Operation] = []
        note = made.append
        rewriter.operation_insertion_handler.append(note)
        self.interpreter.push_scope("rewrite")
        self.interpreter.set_values(matcher.matching_context.items())
        self.functions.rewriter = rewriter
        try:
            self.interpreter.run_ssacfg_region(self.pdl_rewrite_op.body, ())
        finally:
            self.interpreter.pop_scope()
            rewriter.operation_insertion_handler.remove(note)
        if not made and op.parent is None:
            made = [one for one in sole if one.parent is not None and one is not op][-1:]
        for i, new in enumerate(reversed(made)):
            if i and name:
                set_op_name(new, f"{name}_{i}")
            else:
                new.location = FusedLoc(tuple(locations), NoneAttr()) if len(locations) > 1 else locations[0]


def _places(root: Operation, matched: list[Operation]) -> Iterator[Any]:
    """The locations of the matched ops, the root's first, whose name is the fused op's."""
    yield root.location
    for op in matched:
        if op is not root and not isinstance(op.location, UnknownLoc):
            yield op.location
