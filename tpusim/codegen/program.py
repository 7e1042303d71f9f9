"""Walk the addressed module and build the program."""

from collections.abc import Iterator

import msgspec
import numpy as np
from msgspec.structs import replace
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation, SSAValue

from tpusim import chips
from tpusim.chips import ChipSpec, require_cores
from tpusim.codegen.emitter import Emitter
from tpusim.codegen.group import emit_group, with_work_areas
from tpusim.codegen.layer import emit_layer
from tpusim.codegen.provenance import source_name
from tpusim.errors import ImportModelError
from tpusim.ir.attrs import op_name
from tpusim.ir.functions import function_of
from tpusim.ir.module import Model
from tpusim.ir.packing import pack
from tpusim.ir.types import address_of, element_of, is_packed, shape_of, uniform_of
from tpusim.ir.upstream import GLOBAL_REASON
from tpusim.isa.commands import Command
from tpusim.isa.layout import align, extent, gmem_bytes
from tpusim.isa.stream import FORMAT_VERSION, CoefficientEntry, GroupEntry, Header, Program, TensorEntry
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.framework.families import command_dtype
from tpusim.ops.framework.host_functions import host_function_of, layer_of
from tpusim.ops.framework.views import gmem_view
from tpusim.ops.interfaces import is_in_place, macs_of
from tpusim.ops.structure import TopInput, TopWeight, TpuGroup
from tpusim.schedule import from_attrs, numbered
from tpusim.version import __version__

NO_GROUP = "the module has it in no group"
"""Why an op is a global layer whose module does not say it."""
PRIVATE = "module.private_size"
"""In final modules of chips with two regions: bytes of the neurons; `module.neuron_size` is then of those at 0."""


def generate(model: Model, cores: int = 0) -> Program:
    """The program of an addressed module. Raises ImportModelError, ConfigError or CommandError.

    cores: number of cores that share the steps of every group; 0: as stated in the module. Global layers run on core 0.
    """
    model.require_state("TPU_ADDRESSED", stage="codegen")
    chip = chips.of(model)
    emitter = Emitter(chip, require_cores(chip, cores or model.number("module.cores") or 1))
    groups: list[GroupEntry] = []
    for op, number in numbered(model):
        if number is not None:
            emitter.group = number
            name, mode = function_of(op)
            groups.append(replace(_emit(op, emitter), function=name if mode else ""))
    return Program(
        header=_header(model),
        tensors=tuple(tensor_table(model, chip)),
        groups=tuple(groups),
        commands=tuple(emitter.commands),
        coefficients=coefficients_of(model),
        locations=tuple(emitter.locations),
        constants=tuple(_constants(model)),
    )


def _emit(op: TpuGroup | TpuOp, emitter: Emitter) -> GroupEntry:
    if isinstance(op, TpuGroup):
        group = with_work_areas(from_attrs(op), emitter.chip)
        emit_group(group, emitter)
        names = tuple(map(op_name, group.graph.ops))
        return GroupEntry(emitter.group, names, op.sections(), group.allocation.peak_bytes)
    attribute = op.attributes.get(GLOBAL_REASON)
    reason = attribute.data if isinstance(attribute, StringAttr) else NO_GROUP
    before = len(emitter.commands)
    emit_layer(op, emitter, reason)
    peak = _peak(emitter.commands[before:], emitter.chip)
    function = host_function_of(op)
    names = tuple(map(op_name, (op,) if function is None else function.members))
    return GroupEntry(emitter.group, names, dict.fromkeys("ncdhw", 1), peak, reason)


def _peak(commands: list[Command], chip: ChipSpec) -> int:
    """The highest byte of a lane that the tiles of a global layer use."""
    views = {view for command in commands for _, view in command.operands() if view.memory == "lmem"}
    return max((extent(view, chip).stop for view in views), default=0)


def _header(model: Model) -> Header:
    ops = (o for op in model.ops for o in (op.body.block.ops if isinstance(op, TpuGroup) else (op,)))
    return Header(
        format_version=FORMAT_VERSION,
        tpusim=__version__,
        chip=model.chip,
        chip_definition=model.attribute("module.chip_definition") or msgspec.UNSET,
        model=model.name,
        mode=model.mode,
        coeff_address=model.number("module.coeff_addr"),
        coeff_bytes=model.number("module.coeff_size"),
        neuron_address=(neurons := _neurons(model))[0],
        neuron_bytes=neurons[1],
        macs=sum(macs_of(op) for op in ops),
        checksums={},
        io_regions=_io_regions(model),
    )


def _neurons(model: Model) -> tuple[int, int]:
    """(address, bytes) of the neuron region; TPU-MLIR states its size only where a chip has another one, at 0."""
    if PRIVATE in model.module.attributes:
        return chips.of(model).neuron_start, model.number(PRIVATE)
    return model.number("module.neuron_addr"), model.number("module.neuron_size")


def _io_regions(model: Model) -> tuple[tuple[int, int], ...]:
    """(address, bytes) of every network input and output outside the neuron region, and of another one of neurons."""
    chip, (start, size) = chips.of(model), _neurons(model)
    stop = start + size
    found = {0: model.number("module.neuron_size")} if PRIVATE in model.module.attributes else dict[int, int]()
    for value in (*(op.output for op in model.ops if isinstance(op, TopInput)), *model.results):
        address = address_of(value)
        if address is not None and not start <= address < stop:
            size = gmem_bytes(shape_of(value), command_dtype(element_of(value)), chip)
            found[address] = align(size, chip.gmem_align_bytes)
    return tuple(sorted(found.items()))


def _constants(model: Model) -> Iterator[CoefficientEntry]:
    """Name and place of every constant, by address; of several in the same bytes, the first."""
    ops = [op for op in model.ops if isinstance(op, TopWeight)]
    first = {address_of(op.output) or 0: op for op in reversed(ops)}
    for address, op in sorted(first.items()):
        yield CoefficientEntry(op_name(op), address, _stored(op, model).size)


def coefficients_of(model: Model) -> np.ndarray:
    """The bytes of the coefficient region."""
    start = model.number("module.coeff_addr")
    image = np.zeros(model.number("module.coeff_size"), np.uint8)
    for op in model.ops:
        if isinstance(op, TopWeight):
            data = _stored(op, model)
            offset = (address_of(op.output) or 0) - start
            if offset < 0 or offset + data.size > image.size:
                raise ImportModelError(
                    f"weight '{op_name(op)}' lies outside the coefficient region; run `tpusim assign`"
                )
            image[offset : offset + data.size] = data
    return image


def _stored(op: TopWeight, model: Model) -> np.ndarray:
    """The bytes of a constant as the coefficient file stores them; integers of 4 bits are packed in pairs."""
    array = model.weights[op_name(op)]
    packed = pack(array) if is_packed(element_of(op.output)) else np.ascontiguousarray(array)
    return packed.reshape(-1).view(np.uint8)


def tensor_table(model: Model, chip: ChipSpec) -> Iterator[TensorEntry]:
    """One entry per tensor in global memory; in-place results appear only if the network returns them."""
    returned = {v: i for i, v in enumerate(model.results)}
    outputs: dict[int, TensorEntry] = {}
    for op in model.ops:
        if isinstance(op, TopInput):
            yield _entry(op.output, op_name(op), "input", chip)
            continue
        for name, value, source in _results(op):
            if value in returned:
                outputs[returned[value]] = _entry(value, name, "output", chip, source)
            elif source == name:
                yield _entry(value, name, "interior", chip)
    yield from (outputs[i] for i in sorted(outputs))


def _results(op: Operation) -> Iterator[tuple[str, SSAValue, str]]:
    """(tensor name, value, name of the tensor whose bytes it is) of an op's results in global memory."""
    if isinstance(op, TpuGroup):
        for result in op.results:
            yield source_name(result), result, source_name(result)
    elif isinstance(op, TpuOp) and layer_of(op) is op:
        name = op_name(op)
        yield name, op.results[0], source_name(op.operands[0]) if is_in_place(op) else name


def _entry(value: SSAValue, name: str, role: str, chip: ChipSpec, source: str = "") -> TensorEntry:
    uniform = uniform_of(value)
    return TensorEntry(
        name=name,
        view=gmem_view(value, address_of(value) or 0, chip, constant=False),
        role=role,  # type: ignore[arg-type]
        scale=uniform.scale.data if uniform else 0.0,
        zero_point=uniform.zero_point.value.data if uniform else 0,
        shape=shape_of(value),
        parts=() if source in ("", name) else (source,),
    )
