"""Rewrites of MLIR's dialect `scf` that xDSL does not have."""

from collections.abc import Callable, Sequence

from xdsl.dialects.arith import AndIOp, ConstantOp, SelectOp
from xdsl.dialects.builtin import BoolAttr
from xdsl.dialects.scf import ForOp, IfOp, YieldOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint

from tpusim.ir.generic.arith import constant_of, is_not_of, maker, number


def rewrite(op: Operation, rewriter: PatternRewriter) -> None:
    """The first rewrite that applies."""
    if isinstance(op, IfOp):
        _first(IF, op, rewriter)
    elif isinstance(op, ForOp):
        _first(FOR, op, rewriter)


def _first(rewrites: Sequence[Callable[..., None]], op: Operation, rewriter: PatternRewriter) -> None:
    for one in rewrites:
        one(op, rewriter)
        if rewriter.has_done_action:
            return


def _yielded(region: Region) -> tuple[SSAValue, ...]:
    """What a region yields; nothing if it is empty."""
    last = region.blocks[0].last_op if region.blocks else None
    return tuple(last.operands) if isinstance(last, YieldOp) else ()


def _outside(value: SSAValue, op: Operation) -> bool:
    """Whether a value is made outside an op's regions."""
    owner = value.owner
    inside = owner if isinstance(owner, Operation) else owner.parent_op()
    return inside is None or not (op.is_ancestor(inside) and (isinstance(owner, Block) or inside is not op))


def _keep_yields(region: Region, kept: Sequence[int]) -> None:
    last = region.blocks[0].last_op
    assert last is not None
    last.operands = [last.operands[i] for i in kept]


# ------------------------------------------------------------------------------------------------------------------ if


def _with_results(op: IfOp, kept: Sequence[int], values: dict[int, SSAValue], rewriter: PatternRewriter) -> None:
    """Replace the op by one with only the results `kept`; other results that have users are replaced by `values`."""
    yes, no = _taken_out(op)
    for region in (yes, no):
        if region.blocks:
            _keep_yields(region, kept)
    made = IfOp(op.cond, [op.results[i].type for i in kept], yes, no, attr_dict=op.attributes)
    places = dict(zip(kept, made.results, strict=True))
    results = [values.get(i, places.get(i)) for i in range(len(op.results))]
    rewriter.replace(op, made, results)


def _taken_out(op: IfOp) -> tuple[Region, Region]:
    """Detach both regions from the op and return them."""
    yes, no = list(op.regions)
    return op.detach_region(yes), op.detach_region(no)


def _drop_unused_results(op: IfOp, rewriter: PatternRewriter) -> None:
    kept = [i for i, result in enumerate(op.results) if result.first_use is not None]
    if len(kept) < len(op.results):
        _with_results(op, kept, {}, rewriter)


def _select_instead(op: IfOp, rewriter: PatternRewriter) -> None:
    """A result whose values are both made outside the branches becomes a select."""
    pairs = list(zip(_yielded(op.true_region), _yielded(op.false_region), strict=False))
    chosen = {i: pair for i, pair in enumerate(pairs) if all(_outside(value, op) for value in pair)}
    if not chosen:
        return
    values: dict[int, SSAValue] = {}
    for i, (yes, no) in chosen.items():
        if yes is no:
            values[i] = yes
            continue
        made = SelectOp(op.cond, yes, no)
        rewriter.insert(made, InsertPoint.before(op))
        values[i] = made.results[0]
    _with_results(op, [i for i in range(len(op.results)) if i not in values], values, rewriter)


def _drop_empty_else(op: IfOp, rewriter: PatternRewriter) -> None:
    if op.results or not op.false_region.blocks or len(op.false_region.blocks[0].ops) > 1:
        return
    rewriter.replace(op, IfOp(op.cond, (), op.detach_region(op.true_region), attr_dict=op.attributes))


def _know_the_condition(op: IfOp, rewriter: PatternRewriter) -> None:
    """Inside a branch the condition is a constant."""
    if constant_of(op.cond) is not None:
        return
    for region, value in ((op.true_region, True), (op.false_region, False)):
        inside = [use for use in op.cond.uses if any(region is one for one in _regions_around(use.operation))]
        if inside:
            made = ConstantOp(BoolAttr.from_bool(value))
            rewriter.insert(made, InsertPoint.before(op))
            rewriter.replace_uses_with_if(op.cond, made.result, lambda use, uses=inside: use in uses)


def _regions_around(op: Operation) -> list[Region]:
    found: list[Region] = []
    region = op.parent_region()
    while region is not None:
        found.append(region)
        parent = region.parent_op()
        region = None if parent is None else parent.parent_region()
    return found


def _swap_branches(op: IfOp, rewriter: PatternRewriter) -> None:
    """An if of `not c` becomes an if of c with its branches exchanged."""
    made = maker(op.cond, "arith.xori")
    if made is None or not op.false_region.blocks or not is_not_of(op.cond, made.operands[0]):
        return
    yes, no = _taken_out(op)
    rewriter.replace(op, IfOp(made.operands[0], [r.type for r in op.results], no, yes, attr_dict=op.attributes))


def _merge_nested(op: IfOp, rewriter: PatternRewriter) -> None:
    """If a { if b { ... } } is if (a and b) { ... }, where neither has an else nor results."""
    block = op.true_region.blocks[0]
    inner = block.first_op
    if op.results or op.false_region.blocks or not isinstance(inner, IfOp) or len(block.ops) != 2:
        return
    if inner.results or inner.false_region.blocks:
        return
    both = AndIOp(op.cond, inner.cond)
    rewriter.replace(op, [both, IfOp(both, (), inner.detach_region(inner.true_region))])


def _merge_with_the_one_before(op: IfOp, rewriter: PatternRewriter) -> None:
    """Two ifs in a row with one condition are one."""
    before = op.prev_op
    if not isinstance(before, IfOp) or before.cond is not op.cond:
        return
    (yes, no), (later_yes, later_no) = _taken_out(before), _taken_out(op)
    yes, no = _joined(before, yes, later_yes), _joined(before, no, later_no)
    made = IfOp(op.cond, [*before.result_types, *op.result_types], yes, no)
    rewriter.insert(made, InsertPoint.before(before))
    rewriter.replace(op, [], list(made.results[len(before.results) :]))
    rewriter.replace(before, [], list(made.results[: len(before.results)]))


def _joined(before: IfOp, first: Region, second: Region) -> Region:
    """One region with the ops of both, which yields the values of both; if one is empty, the other."""
    if not first.blocks or not second.blocks:
        return first if first.blocks else second
    values = _yielded(first)
    inside: dict[SSAValue, SSAValue] = dict(zip(before.results, values, strict=True))
    block, other = first.blocks[0], second.blocks[0]
    last = block.last_op
    assert last is not None
    last.detach()
    last.erase()
    for op in list(other.ops):
        op.detach()
        block.add_op(op)
    for op in block.walk():
        op.operands = [inside.get(value, value) for value in op.operands]
    end = block.last_op
    assert end is not None
    end.operands = [*values, *end.operands]
    return first


IF = (
    _drop_unused_results, _know_the_condition, _select_instead, _drop_empty_else, _swap_branches, _merge_nested,
    _merge_with_the_one_before,
)  # fmt: skip


# ----------------------------------------------------------------------------------------------------------------- for


def _carried(op: ForOp) -> list[tuple[SSAValue, SSAValue, SSAValue, SSAValue]]:
    """For each value that a loop carries: the initial value, the block's argument, the yielded value, the result."""
    return list(zip(op.iter_args, op.body.block.args[1:], _yielded(op.body), op.results, strict=True))


def _carry_less(op: ForOp, rewriter: PatternRewriter) -> None:
    """Values that do not change, or that nothing uses, are not carried."""
    carried = _carried(op)
    dropped = {
        i
        for i, (begin, inside, yielded, result) in enumerate(carried)
        if yielded is inside or yielded is begin or (inside.first_use is None and result.first_use is None)
    }
    if not dropped:
        return
    kept = [i for i in range(len(carried)) if i not in dropped]
    block = op.body.block
    for i in sorted(dropped, reverse=True):
        block.args[1 + i].replace_all_uses_with(carried[i][0])
        block.erase_arg(block.args[1 + i])
    _keep_yields(op.body, kept)
    made = ForOp(op.lb, op.ub, op.step, [carried[i][0] for i in kept], op.detach_region(op.body))
    made.attributes = op.attributes.copy()
    made.properties = op.properties.copy()
    places = dict(zip(kept, made.results, strict=True))
    rewriter.replace(op, made, [places.get(i, carried[i][0]) for i in range(len(carried))])


def _drop_without_turns(op: ForOp, rewriter: PatternRewriter) -> None:
    """A loop whose bounds are the same value has no iterations, so its results are the initial values."""
    if op.lb is op.ub:
        rewriter.replace(op, [], list(op.iter_args))


def _drop_empty(op: ForOp, rewriter: PatternRewriter) -> None:
    """The results of a loop that iterates, computes nothing and yields values made outside it are those values."""
    begin, end = number(constant_of(op.lb)), number(constant_of(op.ub))
    if begin is None or end is None or begin >= end or len(op.body.block.ops) > 1:
        return
    values = _yielded(op.body)
    if all(_outside(value, op) for value in values):
        rewriter.replace(op, [], list(values))


FOR = (_carry_less, _drop_without_turns, _drop_empty)
