"""Loads and stores of written groups that also do the work of adjacent Permutes, views and Pads."""

from collections.abc import Iterator
from math import prod

from xdsl.dialects.builtin import AffineMapAttr, FloatAttr, f64
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineMap

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import ints_attr, op_name, texts_attr
from tpusim.ir.module import Model
from tpusim.ir.types import element_of, set_type, shape_of, storage_dtype, tensor_of
from tpusim.isa.region import is_packed
from tpusim.ops.framework.base import TpuOp, Way
from tpusim.ops.framework.families import command_dtype
from tpusim.ops.framework.logical import AXES, GroupType, TensorSlice, logical_axes
from tpusim.ops.framework.moves import scattered_of, strides_of
from tpusim.ops.interfaces import is_in_place, moves_of, padding_of
from tpusim.ops.structure import TpuGroup, TpuLoad, TpuStore, Transfer, group_info


def merge_moves(model: Model, chip: ChipSpec) -> None:
    """Merge global layers that only move data into transfers of adjacent groups, in place; loads first, then stores.

    A transfer qualifies if its first slice has `chip.local.moving_transfer_bytes` and one command is enough. Groups of
    one op are left alone: they are the tiles of a global layer, and the library does their transfers.
    """
    able = (op for op in model.ops if isinstance(op, TpuGroup) and chip.local.moving_transfer_bytes)
    groups = [group for group in able if sum(isinstance(op, TpuOp) for op in group.body.block.ops) > 1]
    for group in groups:
        for load in [op for op in group.body.block.ops if isinstance(op, TpuLoad)]:
            _merge_load(group, load, chip)
    for group in groups:
        for store in [op for op in group.body.block.ops if isinstance(op, TpuStore)]:
            _merge_store(group, store, chip)


def _merge_load(group: TpuGroup, load: TpuLoad, chip: ChipSpec) -> None:
    """Load the operand of the moving ops before a load, if only groups read the last of these ops."""
    value = load.input
    if not all(isinstance(use.operation, TpuLoad | TpuGroup) for use in value.uses):
        return
    chain = list(_before(value))
    source = chain[-1].operands[0] if chain else value
    mapping = _composed(chain, "s2l")
    if mapping is None or not _able(mapping, load, group, load.output, shape_of(source), chip):
        return
    load.indexing_map_s2l, load.moved = AffineMapAttr(mapping), texts_attr(op_name(op) for op in reversed(chain))
    load.operands[0] = source
    others = any(op.input is value for op in group.body.block.ops if isinstance(op, TpuLoad))
    kept = [v for v in group.inputs if v is not value or others]
    group.operands = [*kept, *([] if source in kept else [source])]  # type: ignore[assignment]
    _drop(chain)


def _merge_store(group: TpuGroup, store: TpuStore, chip: ChipSpec) -> None:
    """Store the result of the moving ops after a store, if nothing else reads the operands of these ops."""
    result = group.result_of(store)
    chain = list(_after(result))
    last = chain[-1].results[0] if chain else result
    mapping = _composed(chain, "l2s")
    padding = padding_of(chain[-1]) if chain else None
    pads, held = padding or ((), 0.0)
    if mapping is None or not _able(mapping, store, group, store.input, shape_of(last), chip, pads):
        return
    if padding:
        store.paddings, store.pad_const_val = ints_attr(pads), FloatAttr(held, f64)
    store.indexing_map_l2s, store.moved = AffineMapAttr(mapping), texts_attr(map(op_name, chain))
    new = tensor_of(last)
    set_type(store.output, new)
    result = set_type(result, new)
    last.replace_all_uses_with(result)
    group.name_results()
    _drop([*reversed(chain)])


def _before(value: SSAValue) -> Iterator[TpuOp]:
    """The moving ops that a value comes from, the nearest first."""
    while isinstance(value.owner, TpuOp) and moves_of(value.owner, "s2l") is not None:
        yield value.owner
        value = value.owner.operands[0]


def _after(value: SSAValue) -> Iterator[TpuOp]:
    """The moving ops after a value, while each result has one reader, up to the first Pad."""
    while value.has_one_use():
        user = next(iter(value.uses)).operation
        if not isinstance(user, TpuOp) or moves_of(user, "l2s") is None:
            return
        yield user
        if padding_of(user) is not None:
            return
        value = user.results[0]


def _composed(chain: list[TpuOp], way: Way) -> AffineMap | None:
    """The index map of the ops, from local memory outwards; None for no op and for a single view, which is free."""
    if not chain or (len(chain) == 1 and is_in_place(chain[0])):
        return None
    found: AffineMap | None = None
    for op in chain:
        step = moves_of(op, way)
        assert step is not None
        found = step if found is None else step.compose(found)
    return found


def _able(
    mapping: AffineMap,
    transfer: Transfer,
    group: TpuGroup,
    local: SSAValue,
    outside: tuple[int, ...],
    chip: ChipSpec,
    pads: tuple[int, ...] = (),
) -> bool:
    """Whether few commands (for a store one) move each slice, and those of the first are long enough on average."""
    info = group_info(transfer)
    if info is None or info.group_type == GroupType.GROUP_3D:
        return False
    slices = {axis: getattr(info, f"{axis}_slice")[0] for axis in AXES}
    size = prod(slices.values()) * storage_dtype(element_of(local)).itemsize
    lengths = logical_axes(shape_of(local), GroupType(info.group_type), chip)
    if size < chip.local.moving_transfer_bytes or lengths[2] > 1:
        return False
    if strides_of(mapping, shape_of(local), outside, lengths, pads) is not None:
        return True
    if (
        not isinstance(transfer, TpuLoad)
        or chip.local.moving_transfers == 1
        or is_packed(command_dtype(element_of(local)))
    ):
        return False
    scattered = scattered_of(mapping, shape_of(local), outside, lengths)
    if scattered is None:
        return False
    count = sum(1 for _ in scattered.pieces(TensorSlice(**{a: (0, n) for a, n in slices.items()}), chip.lanes))
    return count <= chip.local.moving_transfers and size >= count * chip.local.moving_transfer_bytes


def _drop(chain: list[TpuOp]) -> None:
    """Remove ops without readers from the module, the last first."""
    for op in chain:
        if not any(True for _ in op.results[0].uses):
            op.detach()
            op.erase()
