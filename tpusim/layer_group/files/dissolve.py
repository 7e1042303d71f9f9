"""Read the groups of a module back as schedules on its tensors, as they were planned: the reverse of `write_group`."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.errors import ConfigError
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ir.upstream import GLOBAL_REASON
from tpusim.layer_group.local_memory import partners
from tpusim.layer_group.planning import Decided
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.structure import TpuGroup, TpuLoad, Transfer
from tpusim.schedule import Allocation, GroupSchedule, Memo, Overlap, Row, Transferred, areas, from_attrs, subgraph


def dissolved(model: Model, chip: ChipSpec, memo: Memo) -> list[Decided]:
    """The groups and global layers of a module, whose groups become ops of its function again.

    Overlaps of adjacent groups are left out. Raises ConfigError for transfers that do the work of other ops, which
    cannot be planned anew.
    """
    groups = {op: from_attrs(op) for op in model.ops if isinstance(op, TpuGroup)}
    _require_plain(groups)
    for group in groups:
        for result in group.results:
            result.replace_all_uses_with(group.store_of(result).input)
    loads = (op for group in groups for op in group.body.block.ops if isinstance(op, TpuLoad))
    local: dict[SSAValue, SSAValue] = {load.output: load.input for load in loads}
    items = [op for op in model.ops if isinstance(op, TpuGroup | TpuOp)]
    for group in groups:
        _inline(group)
    return [
        _on_tensors(groups[item], local, chip, memo) if isinstance(item, TpuGroup) else (item, _reason(item))
        for item in items
    ]


def _require_plain(groups: Mapping[TpuGroup, GroupSchedule]) -> None:
    transfers = (op for group in groups for op in group.body.block.ops if isinstance(op, Transfer))
    merged = next((op for op in transfers if op.moved is not None), None)
    if merged is not None:
        raise ConfigError(
            f"{merged.name} '{op_name(merged)}': a transfer of one tensor is required, it also does the work of other "
            "ops; refine groups before merge-moves"
        )


def _reason(op: TpuOp) -> str:
    reason = op.attributes.get(GLOBAL_REASON)
    return reason.data if isinstance(reason, StringAttr) else ""


def _inline(group: TpuGroup) -> None:
    """Put the ops of a group in its place, on the tensors that they had outside."""
    block = group.parent_block()
    assert block is not None
    for op in list(group.body.block.ops):
        if isinstance(op, TpuOp):
            op.detach()
            op.attributes.pop("ginfo", None)
            for index, value in enumerate(op.operands):
                if isinstance(value.owner, TpuLoad):
                    op.operands[index] = value.owner.input
            block.insert_op_before(op, group)
    group.detach()
    group.erase()


def _on_tensors(found: GroupSchedule, local: Mapping[SSAValue, SSAValue], chip: ChipSpec, memo: Memo) -> GroupSchedule:
    """The schedule on the tensors of the module in place of those that its loads made."""
    graph = subgraph(found.graph.ops, chip, found.graph.kind, memo)
    slices = {local.get(value, value): windows for value, windows in found.slices.items()}
    rows = tuple(Row(row.layers, tuple(_moved(row.transfers, local))) for row in found.rows)
    placed = found.allocation
    address, size = ({_outside(owner, local): n for owner, n in of.items()} for of in (placed.address, placed.size))
    outside = replace(
        found, graph=graph, slices=slices, rows=rows, overlap=Overlap(),
        allocation=Allocation(address, size, placed.peak_bytes),
    )  # fmt: skip
    able = partners(graph, rows, slices, areas(outside), chip)
    reused = {result: v for result, operands in able.items() for v in operands if address[v] == address[result]}
    return replace(outside, allocation=replace(outside.allocation, reused=reused))


def _moved(transfers: tuple[Transferred, ...], local: Mapping[SSAValue, SSAValue]) -> Iterator[Transferred]:
    for transfer in transfers:
        yield replace(transfer, value=local.get(transfer.value, transfer.value))


def _outside(owner: SSAValue | TpuOp, local: Mapping[SSAValue, SSAValue]) -> SSAValue | TpuOp:
    return local.get(owner, owner) if isinstance(owner, SSAValue) else owner
