"""Provenance (`Command.sources`): what views are meant to contain, from the module, not from earlier commands."""

from collections.abc import Callable, Iterable

from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import value_name
from tpusim.isa.commands import Source
from tpusim.isa.layout import extent
from tpusim.isa.region import View
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.interfaces import is_in_place
from tpusim.ops.structure import TpuGroup
from tpusim.schedule import tensor_name


def namer(areas: Iterable[tuple[Source, View]], own: Source, chip: ChipSpec) -> Callable[[View], Source]:
    """A function from a view to the operand that contains it; outside all operands to the op (result, work buffer)."""
    known = [(name, extent(view, chip)) for name, view in areas]

    def name_of(view: View) -> Source:
        reach = extent(view, chip)
        inside = (
            name
            for name, area in known
            if reach.memory == area.memory and area.start <= reach.start and reach.stop <= area.stop
        )
        return next(inside, own)

    return name_of


def source_name(value: SSAValue) -> str:
    """The name under which the bytes of a value were stored, through in-place ops and groups."""
    owner = value.owner
    if isinstance(owner, TpuGroup):
        return tensor_name(value)
    if isinstance(owner, TpuOp) and is_in_place(owner):
        return source_name(owner.operands[0])
    return value_name(value)
