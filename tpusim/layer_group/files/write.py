"""Write a schedule into the module: `tpu.Group` with Load, Store, Yield and its attributes (layer_group.md 14)."""

from collections.abc import Iterator, Mapping
from typing import TypeVar

from xdsl.ir import Block

from tpusim.ir.attrs import LayerGroupAttr, LayerGroupInfo, set_op_name, value_name
from tpusim.ops.structure import TpuLoad, TpuStore, TpuYield, make_group
from tpusim.schedule import GroupSchedule, Scheduled, to_attrs

T = TypeVar("T", TpuLoad, TpuStore)


def write_group(schedule: GroupSchedule) -> None:
    """Replace the schedule's ops by one tpu.Group. Groups of one module are written from the last to the first."""
    graph, attrs = schedule.graph, to_attrs(schedule)
    parent = graph.ops[0].parent_block()
    assert parent is not None
    block = Block()
    local = {load.input: load.output for load in _transfers(schedule, TpuLoad, block, attrs.items)}
    group = make_group([*graph.inputs, *graph.weights], Block(), [v.type for v in graph.outputs])
    parent.insert_op_after(group, graph.ops[-1])
    outside = {v: [u for u in v.uses if u.operation not in graph.inside] for v in graph.outputs}
    for op in graph.ops:
        op.detach()
        block.add_op(op)
        for index, value in enumerate(op.operands):
            if value in local:
                op.operands[index] = local[value]
        op.attributes["group_info"] = LayerGroupAttr(attrs.items[op])
    stores = {store.input: store.output for store in _transfers(schedule, TpuStore, block, attrs.items)}
    block.add_op(TpuYield.create(operands=[stores[v] for v in graph.outputs]))
    for result, value in zip(group.results, graph.outputs, strict=True):
        for use in outside[value]:
            use.operation.operands[use.index] = result
    group.regions[0].detach_block(0)
    group.regions[0].add_block(block)
    group.attributes.update(attrs.group)


def _transfers(
    schedule: GroupSchedule, cls: type[T], block: Block, infos: Mapping[Scheduled, LayerGroupInfo]
) -> Iterator[T]:
    """The loads or the stores of a schedule as ops of the block, row by row."""
    kind = "load" if cls is TpuLoad else "store"
    for transfer in (t for row in schedule.rows for t in row.transfers if t.kind == kind):
        op = cls.create(operands=[transfer.value], result_types=[transfer.value.type])
        set_op_name(op, f"{kind}_{value_name(transfer.value)}")
        op.attributes["group_info"] = LayerGroupAttr(infos[transfer])
        block.add_op(op)
        yield op
