"""Write a schedule into the module: `tpu.Group` with Load, Store, Yield and its attributes (layer_group.md 14)."""

from collections.abc import Iterator, Mapping
from typing import TypeVar

from xdsl.ir import Block, SSAValue

from tpusim.ir.attrs import LayerGroupAttr, LayerGroupInfo, flag, int_attr, op_name, set_op_name, value_name
from tpusim.ir.types import element_of, tensor
from tpusim.ir.weights import WeightStore
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.interfaces import LaneCopies
from tpusim.ops.structure import TopWeight, TpuLoad, TpuStore, TpuYield, make_group
from tpusim.schedule import GroupSchedule, Scheduled, to_attrs

ACTIVATION = 1
"""The number of tensors that are computed, in the attribute `lmem_type` of loads; constants have 0."""
T = TypeVar("T", TpuLoad, TpuStore)


def write_group(schedule: GroupSchedule, weights: WeightStore | None = None) -> None:
    """Replace the schedule's ops by one tpu.Group. Groups of one module are written from the last to the first.

    weights: of the module; required if an op has a table that depends on the slices (`TpuOp.slice_table`).
    """
    graph, attrs = schedule.graph, to_attrs(schedule)
    parent = graph.ops[0].parent_block()
    assert parent is not None
    block = Block()
    made = dict(_tables(schedule, weights))
    local = {value: load.output for value, load in _transfers(schedule, TpuLoad, block, attrs.items, made)}
    loaded = set(local.values())
    group = make_group(graph.inputs, Block(), [v.type for v in graph.outputs])
    parent.insert_op_after(group, graph.ops[-1])
    outside = {v: [u for u in v.uses if u.operation not in graph.inside] for v in graph.outputs}
    for op in graph.ops:
        op.detach()
        block.add_op(op)
        for index, value in enumerate(op.operands):
            if value in local:
                op.operands[index] = local[value]
        op.attributes["ginfo"] = LayerGroupAttr(attrs.items[op])
        if isinstance(op, LaneCopies):
            op.state_copies(loaded=op.operands[0] in loaded)
    for value in loaded:
        _state_use(value)
    stores = {value: store.output for value, store in _transfers(schedule, TpuStore, block, attrs.items, {})}
    block.add_op(TpuYield.create(operands=[stores[v] for v in graph.outputs]))
    for result, value in zip(group.results, graph.outputs, strict=True):
        for use in outside[value]:
            use.operation.operands[use.index] = result
    group.regions[0].detach_block(0)
    group.regions[0].add_block(block)
    group.attributes.update(attrs.group)
    group.name_results()
    for value in made:
        assert isinstance(value.owner, TopWeight)
        value.owner.detach()
        value.owner.erase()


def _state_use(loaded: SSAValue) -> None:
    """State in a load what it loads and for whom; TPU-MLIR's code generator requires it."""
    load, uses = loaded.owner, list(loaded.uses)
    assert isinstance(load, TpuLoad)
    if not isinstance(load.input.owner, TopWeight):
        load.attributes["lmem_type"] = int_attr(ACTIVATION)
    for use in uses:
        user = use.operation
        if isinstance(user, TpuOp) and len(uses) == 1 and use.index in user.COPIED_OPERANDS:
            load.attributes["do_bcast"] = flag(True)
        if isinstance(user, LaneCopies) and use.index == 0 and (copies := user.stated_copies()) is not None:
            load.attributes["use_3ic_optimize"] = copies


def _tables(schedule: GroupSchedule, weights: WeightStore | None) -> Iterator[tuple[SSAValue, SSAValue]]:
    """(constant, its replacement) of every table of a group that is cut.

    Raises ValueError if the weights are missing.
    """
    if schedule.sections.steps == 1:
        return
    for op, value, table in schedule.graph.tables():
        if weights is None:
            raise ValueError(f"{op.name} '{op_name(op)}': the module's weights are required to rebuild its table")
        result = schedule.slices[op.results[0]]
        data = table.data(result.h, result.w)
        weights.replace(value_name(value), data)
        new = TopWeight.create(result_types=[tensor(data.shape, element_of(value))])
        set_op_name(new, value_name(value))
        old = value.owner
        assert isinstance(old, TopWeight)
        block = old.parent_block()
        assert block is not None
        block.insert_op_before(new, old)
        yield value, new.output


def _transfers(
    schedule: GroupSchedule,
    cls: type[T],
    block: Block,
    infos: Mapping[Scheduled, LayerGroupInfo],
    made: Mapping[SSAValue, SSAValue],
) -> Iterator[tuple[SSAValue, T]]:
    """(tensor, op) of the loads or the stores of a schedule in the block, row by row; made: replacements of tensors."""
    kind = "load" if cls is TpuLoad else "store"
    for transfer in (t for row in schedule.rows for t in row.transfers if t.kind == kind):
        moved = made.get(transfer.value, transfer.value)
        op = cls.create(operands=[moved], result_types=[moved.type])
        set_op_name(op, f"{kind}_{value_name(transfer.value)}")
        op.attributes["ginfo"] = LayerGroupAttr(infos[transfer])
        block.add_op(op)
        yield transfer.value, op
