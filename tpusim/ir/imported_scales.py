"""The scales of an imported quantised network, in the module's attributes and on its weights.

`module.own_ranges` has `[name, scale, low, high]` for each tensor that the network quantises: its integers i, without
the zero point, are scale * i with low <= i <= high. `module.not_kept` lists the network's numbers that the import could
not keep. `scale` of a top.Weight has the scales of its integers: one, or one per output channel.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IntegerAttr, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue

from tpusim.ir.attrs import float_attr, floats, floats_attr, int_attr
from tpusim.ir.module import Model

RANGES, NOT_KEPT = "module.own_ranges", "module.not_kept"


@dataclass(frozen=True)
class ImportedRange:
    """Integers low ... high in steps of `scale`; the stored integer is larger by the zero point."""

    scale: float
    low: int
    high: int

    @classmethod
    def of(cls, scale: float, zero_point: int, limits: tuple[int, int]) -> "ImportedRange":
        """The range of integers of a type with a zero point."""
        return cls(scale, limits[0] - zero_point, limits[1] - zero_point)

    @property
    def limits(self) -> tuple[float, float]:
        """The real numbers of `low` and `high`."""
        return self.low * self.scale, self.high * self.scale

    @property
    def steps(self) -> int:
        """Steps of the symmetric threshold: 127 for signed bytes, 255 for unsigned bytes, else to the farther end."""
        return 127 if (self.low, self.high) == (-128, 127) else max(-self.low, self.high)

    @property
    def threshold(self) -> float:
        """The threshold of symmetric quantisation: `steps` times the scale."""
        return self.steps * self.scale

    @property
    def symmetric(self) -> bool:
        """Whether bytes without a zero point have this scale."""
        return (self.low, self.high) in ((-128, 127), (-127, 127), (0, 255))


def imported_ranges(model: Model) -> dict[str, ImportedRange]:
    """The ranges by tensor name; empty for a network that is not quantised."""
    found = model.module.attributes.get(RANGES)
    rows = cast("ArrayAttr[ArrayAttr[Attribute]]", found).data if isinstance(found, ArrayAttr) else ()
    return dict(_row(row.data) for row in rows)


def _row(row: tuple[Attribute, ...]) -> tuple[str, ImportedRange]:
    name, scale, low, high = row
    numbers = (cast("IntegerAttr", n).value.data for n in (low, high))
    return cast("StringAttr", name).data, ImportedRange(cast("FloatAttr", scale).value.data, *numbers)


def set_imported_ranges(model: Model, ranges: Mapping[str, ImportedRange]) -> None:
    """Replace the ranges in the module's attributes."""
    model.module.attributes.pop(RANGES, None)
    rows = [
        ArrayAttr([StringAttr(name), float_attr(r.scale), int_attr(r.low), int_attr(r.high)])
        for name, r in ranges.items()
    ]
    if rows:
        model.module.attributes[RANGES] = ArrayAttr(rows)


def not_kept(model: Model) -> tuple[str, ...]:
    """Sentences about what the import could not keep."""
    found = model.module.attributes.get(NOT_KEPT)
    notes = cast("ArrayAttr[StringAttr]", found).data if isinstance(found, ArrayAttr) else ()
    return tuple(note.data for note in notes)


def set_not_kept(model: Model, notes: Iterable[str]) -> None:
    """List in the module which imported scales were not kept, and why."""
    if listed := [StringAttr(note) for note in notes]:
        model.module.attributes[NOT_KEPT] = ArrayAttr(listed)


def imported_weight_scales(value: SSAValue) -> tuple[float, ...]:
    """The imported scales of a constant; () without any."""
    found = value.owner.attributes.get("scale") if isinstance(value.owner, Operation) else None
    return floats(cast("ArrayAttr[Attribute]", found)) if isinstance(found, ArrayAttr) else ()


def set_imported_weight_scales(weight: Operation, scales: Iterable[float]) -> None:
    """Set the imported scales of a top.Weight."""
    weight.attributes["scale"] = floats_attr(scales)
