"""The driver of canonicalisation: all patterns to a fix point."""

import logging
from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import compress
from operator import not_

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation
from xdsl.pattern_rewriter import RewritePattern
from xdsl.rewriter import InsertPoint, Rewriter

from tpusim.canonicalize.automaton import stored
from tpusim.compat import Quirk
from tpusim.compat.quirks import checked
from tpusim.errors import ConfigError, meant
from tpusim.ir.attrs import copy_name, float_attr, framework_name, op_name, set_op_name
from tpusim.ir.module import Model, is_returned
from tpusim.ir.rewriting import rewrite, tell
from tpusim.ir.text import verify
from tpusim.ir.upstream import FRAMEWORK, entry
from tpusim.ir.weights import WeightStore
from tpusim.ops import op_classes
from tpusim.ops.framework.base import TopOp
from tpusim.ops.framework.rewriting import Requested
from tpusim.ops.interfaces import DefaultAlpha, QuirkRewrite
from tpusim.ops.patterns.recurrent import keep_parts, named_parts
from tpusim.ops.structure import TopInput, TopNone, TopWeight
from tpusim.ops.view import keeps_elements, make_view
from tpusim.registry import PATTERNS

LOG = logging.getLogger(__name__)
QUIRKS = frozenset({Quirk.IMPORTER_DEFAULTS, Quirk.RESIZE_MODES, Quirk.AFFINE_OF_ONE_ELEMENT})
"""The quirks that canonicalisation knows."""
MERGED = "CommonSubexpression"
"""The name under which merged identical ops are counted."""


def canonicalize(
    model: Model, also: Sequence[str] = (), quirks_off: Sequence[str] = ()
) -> tuple[Model, dict[str, int]]:
    """A simplified copy of a top module, and how often each pattern fired, by class name.

    also: patterns that change INT8 numbers, by their names in `registry.PATTERNS`. quirks_off: as in
    lowering. Raises ImportModelError for a module in another state than TOP_F32, or if a rewrite left an invalid one,
    ConfigError for an unknown name.
    """
    model.require_state("TOP_F32", stage="canonicalize")
    work = model.clone()
    take_defaults(work, quirks_off)
    take_quirks(work, quirks_off)
    parts = named_parts(work.ops)
    firings = apply_patterns(work, also)
    merge_identical(work.module, firings)
    keep_parts(work.ops, parts)
    if MERGED in firings:
        tell(MERGED, work)
    weights = remove_unused(work.module, work.weights)
    work.set(FLOPs=sum(op.flops() for op in work.ops if isinstance(op, TopOp)))
    verify(work.module, "after canonicalize")
    return Model(work.module, weights), firings


def take_defaults(model: Model, quirks_off: Sequence[str]) -> None:
    """Give ops whose nodes have no alpha the default of TPU-MLIR's front end, with a warning, unless that is off."""
    quirk, off = Quirk.IMPORTER_DEFAULTS, checked(quirks_off)
    for op in model.ops:
        if not isinstance(op, DefaultAlpha) or op.default_alpha is None:
            continue
        if quirk in off:
            op.default_alpha = None
            continue
        op.attributes["alpha"] = float_attr(op.UPSTREAM_ALPHA)
        told = f"has no alpha, which is {op.UPSTREAM_ALPHA:.6g} here ({quirk.rule.number}); write the attribute"
        LOG.warning("%s '%s' %s, or give ONNX's default by quirks_off=%s", op.name, op_name(op), told, quirk)


def take_quirks(model: Model, quirks_off: Sequence[str]) -> None:
    """Give nodes the meaning that they have in TPU-MLIR's front end, unless that is off, before any other rewrite."""
    off = checked(quirks_off)
    rewrite(model, [p for p in _patterns(model) if isinstance(p, QuirkRewrite) and p.QUIRK not in off])


def _patterns(model: Model) -> list[RewritePattern]:
    return [p for cls in op_classes(TopOp, model.module) for p in cls.canonicalization_patterns(model.weights)]


def asked_patterns(weights: WeightStore, also: Sequence[str]) -> tuple[list[RewritePattern], list[RewritePattern]]:
    """The patterns of these names: those applied with all others, and those applied once after them.

    Raises ConfigError for an unknown name, or an installed package's entry that makes no pattern.
    """
    require_patterns(also)
    asked = [_made(name, weights) for name in also]
    at_the_end = [isinstance(pattern, Requested) and pattern.ONCE for pattern in asked]
    return list(compress(asked, map(not_, at_the_end))), list(compress(asked, at_the_end))


def require_patterns(also: Sequence[str]) -> None:
    """Raise ConfigError for a name of no optional pattern."""
    unknown = [name for name in also if name not in PATTERNS]
    if unknown:
        raise ConfigError(
            f"canonicalize: no optional pattern is called {unknown[0]!r}; the optional ones are {', '.join(PATTERNS)}"
            f"{meant(unknown[0], PATTERNS)}"
        )


def _made(name: str, weights: WeightStore) -> RewritePattern:
    make = PATTERNS.get(name)
    pattern = make(weights) if callable(make) else make
    if not isinstance(pattern, RewritePattern):
        raise ConfigError(
            f"pattern '{name}': a function of the weights that gives an xdsl RewritePattern is required, got "
            f"{type(pattern).__name__}"
        )
    return pattern


def apply_patterns(model: Model, also: Sequence[str] = ()) -> dict[str, int]:
    """Apply every top op's patterns until none fires; the store gains weights. Returns the firings by class name."""
    usual = [p for p in _patterns(model) if not isinstance(p, QuirkRewrite)]
    asked, once = asked_patterns(model.weights, also)
    firings = Counter(rewrite(model, [*asked, *usual], stored=stored()))
    for pattern in once:
        firings.update(rewrite(model, [pattern], recursively=False))
    return dict(sorted(firings.items()))


def merge_identical(module: ModuleOp, firings: dict[str, int]) -> None:
    """Merge ops of equal kind, operands and attributes into the first; counted as `CommonSubexpression`.

    As in TPU-MLIR, only the two newest readers of a value are compared, again after each merge (U-18); the patterns do
    not run again. Ops with weights stay, because each has a separate copy of them there. If the network returns one
    of the two, the first takes the later one's name; if it returns both, a view of the first gives the second result.
    """
    for function in module.ops:
        ops = list(function.body.block.ops) if isinstance(function, FuncOp) else []
        for op in (op for op in ops if isinstance(op, TopOp) and not isinstance(op, TopWeight | TopNone)):
            while (pair := _newest_readers(op)) and _merge(*pair):
                firings[MERGED] = firings.get(MERGED, 0) + 1


def _newest_readers(op: Operation) -> tuple[Operation, Operation] | None:
    """The two ops that were made last among those that read a result of an op."""
    uses = (use.operation for result in op.results for use in result.uses)
    readers = [*dict.fromkeys(reader for reader in uses if reader.parent is op.parent)]
    return (readers[0], readers[1]) if len(readers) > 1 else None


def _merge(one: Operation, other: Operation) -> bool:
    """Let the readers of the later of two equal ops read the earlier one, and erase it; return whether it is done."""
    if not (_mergeable(one) and _mergeable(other)) or _identity(one) != _identity(other):
        return False
    kept, op = (one, other) if one.is_before_in_block(other) else (other, one)
    if _is_returned(kept) and _is_returned(op):
        if len(op.results) > 1 or keeps_elements(op):
            return False
        view = make_view(kept.results[0])
        set_op_name(view, op_name(kept), framework_name(op))
        Rewriter.insert_op(view, InsertPoint.before(op))
        op.results[0].replace_uses_with_if(view.output, lambda use: isinstance(use.operation, ReturnOp))
        set_op_name(kept, op_name(op), framework_name(kept))
    elif _is_returned(kept):
        set_op_name(kept, op_name(op), framework_name(kept))
    elif _is_returned(op):
        copy_name(kept, op)
    for old, new in zip(op.results, kept.results, strict=True):
        old.replace_all_uses_with(new)
    op.detach()
    op.erase()
    return True


def _mergeable(op: Operation) -> bool:
    computes = isinstance(op, TopOp) and not isinstance(op, TopInput | TopWeight)
    return computes and not any(isinstance(v.owner, TopWeight) for v in op.operands)


def _identity(op: Operation) -> Hashable:
    """A key that is equal for ops that compute the same, whether they state an attribute's default or not."""
    known = entry(op.name)
    stated = {k: v for k, v in op.attributes.items() if k != FRAMEWORK and not (known and known.is_default(k, v))}
    return op.name, tuple(op.operands), tuple(sorted(stated.items(), key=lambda item: item[0]))


def _is_returned(op: Operation) -> bool:
    return any(is_returned(result) for result in op.results)


def remove_unused(module: ModuleOp, weights: WeightStore) -> WeightStore:
    """Erase top ops, weights and `none` that nothing uses (inputs stay); returns the store of the weights that stay."""
    used: set[str] = set()
    for function in module.ops:
        if isinstance(function, FuncOp):
            for op in reversed(list(function.body.block.ops)):
                if _is_dead(op):
                    op.detach()
                    op.erase()
                elif isinstance(op, TopWeight):
                    used.add(op_name(op))
    return weights.restricted(used)


def _is_dead(op: Operation) -> bool:
    removable = isinstance(op, TopWeight | TopNone) or (isinstance(op, TopOp) and not isinstance(op, TopInput))
    return removable and all(result.first_use is None for result in op.results)
