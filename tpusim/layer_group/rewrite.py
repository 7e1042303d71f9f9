"""Write a group plan into the module: `tpu.Group` with Load, Store, Yield, `flow` and `#tpu.lg` (layer_group.md 14)."""

from dataclasses import dataclass, replace

from xdsl.ir import Block, Operation, SSAValue

from tpusim.ir.attrs import LayerGroupAttr, LayerGroupInfo, int_attr, ints_attr, set_op_name, value_name
from tpusim.layer_group.plan import GroupPlan
from tpusim.layer_group.slicing import ValueSlices
from tpusim.layer_group.timestep import Transferred
from tpusim.ops.base import TpuOp
from tpusim.ops.logical import AXES, PIPELINE_STAGES
from tpusim.ops.structure import TpuLoad, TpuStore, TpuYield, group_info, make_group

Item = Transferred | TpuOp


@dataclass(frozen=True)
class Flow:
    """Ids of all scheduled items and the flow list: -(row+1), then the row's ids, layers first."""

    ids: dict[int, int]
    """By id() of the Transferred or op."""
    encoded: tuple[int, ...]


def number(plan: GroupPlan) -> Flow:
    """Ids by stage, then row, transfers before layers."""
    ids: dict[int, int] = {}
    for stage in range(PIPELINE_STAGES):
        for row in plan.rows:
            items: list[Item] = [t for t in row.transfers if t.stage == stage]
            items += row.layers if stage == 1 else []
            for item in items:
                ids[id(item)] = len(ids)
    encoded: list[int] = []
    for index, row in enumerate(plan.rows):
        encoded.append(-(index + 1))
        encoded.extend(ids[id(item)] for item in (*row.layers, *row.transfers))
    return Flow(ids, tuple(encoded))


def slice_info(slices: ValueSlices) -> LayerGroupInfo:
    """The idx/slice arrays of `#tpu.lg`."""
    fields: dict[str, tuple[int, ...]] = {}
    for axis in AXES:
        windows = slices.along(axis)
        fields[f"{axis}_idx"] = tuple(w[0] for w in windows)
        fields[f"{axis}_slice"] = tuple(w[1] for w in windows)
    return LayerGroupInfo(**fields)  # type: ignore[arg-type]


def write_group(plan: GroupPlan) -> None:
    """Replace the plan's ops by one tpu.Group. Groups of one module are written from the last to the first."""
    flow = number(plan)
    graph = plan.graph
    parent = graph.ops[0].parent_block()
    assert parent is not None
    anchor = graph.ops[-1]
    block = Block()
    local = _loads(plan, flow, block)
    group = make_group([*graph.inputs, *graph.weights], Block(), [v.type for v in graph.outputs])
    parent.insert_op_after(group, anchor)
    inside = set(graph.ops)
    outside = {v: [u for u in v.uses if u.operation not in inside] for v in graph.outputs}
    for op in graph.ops:
        op.detach()
        block.add_op(op)
        for index, value in enumerate(op.operands):
            if value in local:
                op.operands[index] = local[value]
        _annotate(op, op.results[0], plan, flow.ids[id(op)], 1)
        work = plan.allocation.address.get(op)
        if work is not None:
            info = group_info(op)
            assert info is not None
            with_work = replace(info, buffer_addr=work, buffer_size=plan.allocation.size[op])
            op.attributes["group_info"] = LayerGroupAttr(with_work)
    stores = _stores(plan, flow, block)
    block.add_op(TpuYield.create(operands=[stores[v] for v in graph.outputs]))
    for result, value in zip(group.results, graph.outputs, strict=True):
        for use in outside[value]:
            use.operation.operands[use.index] = result
    group.regions[0].detach_block(0)
    group.regions[0].add_block(block)
    sections = {f"{axis}secs": plan.sections.count(axis) for axis in AXES}
    for key, value in {**sections, "swpipl_stage_num": PIPELINE_STAGES, "group_type": int(graph.kind)}.items():
        group.attributes[key] = int_attr(value)
    group.attributes["flow"] = ints_attr(flow.encoded)
    for key, codes in _overlap(plan, flow).items():
        if codes:
            group.attributes[f"{key}_overlap_op"] = ints_attr(codes)


def _overlap(plan: GroupPlan, flow: Flow) -> dict[str, list[int]]:
    """The four lists of section 14: own ids, and those of neighbours behind their rows."""
    overlap = plan.overlap
    found = {
        "self_up": [flow.ids[id(t)] for t in overlap.self_up],
        "self_down": [flow.ids[id(t)] for t in overlap.self_down],
    }
    for key, guests in (("other_up", overlap.other_up), ("other_down", overlap.other_down)):
        codes: list[int] = []
        for row in sorted({guest.row for guest in guests}):
            codes.append(-(row + 1))
            codes.extend(number(g.home).ids[id(g.transfer)] for g in guests if g.row == row)
        found[key] = codes
    return found


def _loads(plan: GroupPlan, flow: Flow, block: Block) -> dict[SSAValue, SSAValue]:
    local: dict[SSAValue, SSAValue] = {}
    for transfer in _transfers(plan, "load"):
        value = transfer.value
        load = TpuLoad.create(operands=[value], result_types=[value.type])
        set_op_name(load, f"load_{value_name(value)}")
        block.add_op(load)
        local[value] = load.output
        _annotate(load, value, plan, flow.ids[id(transfer)], transfer.stage)
    return local


def _stores(plan: GroupPlan, flow: Flow, block: Block) -> dict[SSAValue, SSAValue]:
    stores: dict[SSAValue, SSAValue] = {}
    for transfer in _transfers(plan, "store"):
        value = transfer.value
        store = TpuStore.create(operands=[value], result_types=[value.type])
        set_op_name(store, f"store_{value_name(value)}")
        block.add_op(store)
        stores[value] = store.output
        _annotate(store, value, plan, flow.ids[id(transfer)], transfer.stage)
    return stores


def _transfers(plan: GroupPlan, kind: str) -> list[Transferred]:
    return [t for row in plan.rows for t in row.transfers if t.kind == kind]


def _annotate(op: Operation, value: SSAValue, plan: GroupPlan, identity: int, stage: int) -> None:
    info = replace(
        slice_info(plan.slices[value]),
        out_addr=plan.allocation.address[value],
        out_size=plan.allocation.size[value],
        eu_align=value not in plan.graph.compact,
        id=identity,
        stage=stage,
        group_type=int(plan.graph.kind),
    )
    op.attributes["group_info"] = LayerGroupAttr(info)
