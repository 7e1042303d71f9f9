"""Address assignment: constants in walk order, neurons by liveness with the smaller of two placements."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal, get_args

from xdsl.dialects.func import ReturnOp
from xdsl.ir import Operation, SSAValue

from tpusim import chips
from tpusim.chips import ChipSpec
from tpusim.errors import ConfigError, option
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.module import Model, update_function_type
from tpusim.ir.text import verify
from tpusim.ir.types import element_of, is_tensor, set_type, shape_of, storage_dtype, stored_bytes, tensor
from tpusim.ir.upstream import BUFFER
from tpusim.isa.layout import align, gmem_bytes
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.framework.families import command_dtype
from tpusim.ops.framework.host_functions import layer_of
from tpusim.ops.interfaces import is_in_place, room_of
from tpusim.ops.structure import TopInput, TopWeight, TpuGroup

AddressMode = Literal["basic", "io_alone"]
"""Where inputs and results lie: among the other neurons, or each in bytes that nothing else uses."""
IO_REGIONS = 5
"""The number of regions that a chip has for inputs and outputs (hardware.md 3.1)."""
IO_REGION_BITS = 40
"""The lowest tag bit of a region's address (hardware.md 3.1)."""


@dataclass
class Neuron:
    """One tensor in the neuron region: its bytes, and the positions between which it is alive.

    value: a tensor, or an op for the memory that the vendor's library needs to compute it.
    """

    value: SSAValue | Operation
    size: int
    start: int
    end: int

    def overlaps(self, other: "Neuron") -> bool:
        """Whether both are alive at some position."""
        return self.start <= other.end and other.start <= self.end


def require_mode(mode: str) -> None:
    """Raise ConfigError for an unknown address mode."""
    if mode not in get_args(AddressMode):
        raise ConfigError(f"{option('addr_mode', mode)}: one of {', '.join(get_args(AddressMode))} is required")


def assign_addresses(model: Model, mode: AddressMode = "basic") -> Model:
    """A copy of the module with every global-memory address. Raises ConfigError for an unknown mode."""
    require_mode(mode)
    model.require_state("TPU_DIVIDED", stage="address-assign")
    work = model.clone()
    chip = chips.of(work)
    coeff_end = _constants(work, chip)
    neuron_start = chip.neuron_start or align(coeff_end, chip.gmem_align_bytes)
    neurons, aliases = live_ranges(work, chip)
    outputs = output_addresses(work, aliases, chip)
    apart = [n for n in neurons if n.value not in outputs and mode == "io_alone" and _is_border(n.value, work, aliases)]
    addresses, neuron_bytes = place([n for n in neurons if n.value not in outputs and n not in apart])
    outputs |= _in_sequence(apart, neuron_start + neuron_bytes)
    roots = {value: neuron_start + offset for value, offset in addresses.items()} | outputs
    everywhere = {**roots, **{value: roots[root] for value, root in aliases.items()}}
    for value, address in everywhere.items():
        _place(value, address, chip)
    update_function_type(work)
    work.set(
        step=0,
        device_id=0,
        coeff_addr=chip.coeff_start,
        coeff_size=coeff_end - chip.coeff_start,
        dynamic_coeff_offset=coeff_end - chip.coeff_start,
        neuron_addr=neuron_start,
        neuron_size=neuron_bytes,
        inputs=[op_name(op) for op in work.ops if isinstance(op, TopInput)],
        outputs=[_tensor_name(value) for value in work.results],
        state="TPU_ADDRESSED",
    )
    verify(work.module, "after address-assign")
    return work


def _place(value: SSAValue | Operation, address: int, chip: ChipSpec) -> None:
    """Write an address into the type of a value, and of the store that makes it if it is the result of a group."""
    if isinstance(value, Operation):
        room = room_of(value, chip)
        assert room is not None
        value.attributes.update({BUFFER: tensor(room.shape, room.element, address), **room.stated})
        return
    owner = value.owner
    for place in (value, owner.store_of(value).output) if isinstance(owner, TpuGroup) else (value,):
        set_type(place, tensor(shape_of(place), element_of(place), address))


def _is_border(value: SSAValue | Operation, model: Model, aliases: Mapping[SSAValue, SSAValue]) -> bool:
    """Whether a neuron is an input of the network, or has the bytes of a result."""
    if isinstance(value, Operation):
        return False
    return isinstance(value.owner, TopInput) or any(aliases.get(result, result) is value for result in model.results)


def _in_sequence(neurons: Sequence[Neuron], start: int) -> dict[SSAValue | Operation, int]:
    """Addresses from `start` on; no two neurons share a byte."""
    found: dict[SSAValue | Operation, int] = {}
    for neuron in neurons:
        found[neuron.value] = start
        start += neuron.size
    return found


def _tensor_name(value: SSAValue) -> str:
    owner = value.owner
    return owner.store_of(value).tensor if isinstance(owner, TpuGroup) else value_name(value)


def output_addresses(
    model: Model, aliases: Mapping[SSAValue, SSAValue], chip: ChipSpec
) -> dict[SSAValue | Operation, int]:
    """Addresses of network outputs on a chip that gives each of the first a region; an input stays a neuron."""
    if not chip.io_start:
        return {}
    found: dict[SSAValue | Operation, int] = {}
    for value in model.results:
        root = aliases.get(value, value)
        if root not in found and not isinstance(root.owner, TopInput) and len(found) < IO_REGIONS:
            found[root] = chip.io_start + (len(found) << IO_REGION_BITS)
    return found


def _constants(model: Model, chip: ChipSpec) -> int:
    """Give every top.Weight the next aligned address; returns the end of the last one (hardware.md 3.2)."""
    address = chip.coeff_start
    for op in list(model.ops):
        if isinstance(op, TopWeight):
            shape, element = shape_of(op.output), element_of(op.output)
            address = align(address, chip.gmem_align_bytes)
            set_type(op.output, tensor(shape, element, address))
            address += stored_bytes(op.output)
    return align(address, chip.gmem_align_bytes)


def _makes_neurons(op: Operation) -> bool:
    return isinstance(op, TopInput | TpuGroup | TpuOp)


def live_ranges(model: Model, chip: ChipSpec) -> tuple[list[Neuron], dict[SSAValue, SSAValue]]:
    """Neurons with their live ranges, and for every in-place result the value whose bytes it shares.

    The room that an op needs in addition is alive with the op (U-111). What members of a host function read is alive
    until its last one, which reads all of it; what the others make has no bytes.
    """
    ops = [op for op in model.ops if _makes_neurons(op) or isinstance(op, ReturnOp)]
    places = {op: position for position, op in enumerate(ops)}
    neurons: dict[SSAValue | Operation, Neuron] = {}
    aliases: dict[SSAValue, SSAValue] = {}
    for op in ops:
        layer = layer_of(op)
        position = places[layer]
        end = len(ops) if isinstance(op, ReturnOp) else position
        for value in op.operands:
            root = aliases.get(value, value)
            if root in neurons:
                neurons[root].end = max(neurons[root].end, end)
        if (room := room_of(op, chip)) is not None:
            size = prod(room.shape) * storage_dtype(room.element).itemsize
            neurons[op] = Neuron(op, align(size, chip.gmem_align_bytes), position, position)
        for result in op.results if op is layer else ():
            if not is_tensor(result):
                continue
            if is_in_place(op):
                aliases[result] = aliases.get(op.operands[0], op.operands[0])
                continue
            size = gmem_bytes(shape_of(result), command_dtype(element_of(result)), chip)
            neurons[result] = Neuron(result, align(size, chip.gmem_align_bytes), position, position)
    return list(neurons.values()), aliases


def place(neurons: Sequence[Neuron]) -> tuple[dict[SSAValue | Operation, int], int]:
    """(offset of every neuron, total bytes) by the better of two orders (hardware.md 3.3)."""
    orders: tuple[Callable[[Neuron], tuple[int, int]], ...] = (
        lambda n: (n.start, -n.size),  # FitFirstAssign: by live start
        lambda n: (-n.size, n.start),  # OpSizeOrderAssign: the largest first
    )
    return min((_pack(sorted(neurons, key=order)) for order in orders), key=lambda r: r[1])


def _pack(ordered: Sequence[Neuron]) -> tuple[dict[SSAValue | Operation, int], int]:
    """Place each neuron in the smallest gap between placed neurons alive with it, else after them."""
    placed: list[tuple[int, Neuron]] = []
    for neuron in ordered:
        alive = sorted((o, n.size) for o, n in placed if n.overlaps(neuron))
        placed.append((_gap(alive, neuron.size), neuron))
    total = max((offset + n.size for offset, n in placed), default=0)
    return {n.value: offset for offset, n in placed}, total


def _gap(alive: Sequence[tuple[int, int]], size: int) -> int:
    """Offset of the smallest free gap of at least `size` bytes between the given (offset, size) blocks."""
    best: tuple[int, int] | None = None
    cursor = 0
    for offset, length in alive:
        if offset - cursor >= size and (best is None or offset - cursor < best[0]):
            best = offset - cursor, cursor
        cursor = max(cursor, offset + length)
    return cursor if best is None else best[1]
