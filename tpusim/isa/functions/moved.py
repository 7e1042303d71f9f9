"""Functions that move elements: joined, padded, cut and repeated tensors."""

from collections.abc import Sequence
from math import prod
from typing import Literal

from tpusim.isa.functions.base import Function, Misfit, Shape, Steps
from tpusim.isa.functions.rules import counted, joined, per_axis


class Concat(Function, frozen=True, tag="concat"):
    """Operands one after the other along `axis`; bytes are moved unchanged."""

    axis: int

    def made_of(self, operands: int) -> Steps:
        """One step, which copies an element."""
        return Steps(arithmetic=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Parts of the result."""
        return joined(operands, self.axis, result)


class Reshape(Function, frozen=True, tag="reshape"):
    """The operand's elements in order, in the result's shape."""

    def made_of(self, operands: int) -> Steps:
        """One step, which copies an element."""
        return Steps(arithmetic=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The operand has as many elements as the result."""
        return counted(operands, 1) or (
            None if prod(operands[0]) == prod(result) else Misfit(f"{prod(result)} elements", f"{operands[0]}")
        )


PadMode = Literal["constant", "reflect", "edge"]


class Pad(Function, frozen=True, tag="pad"):
    """Padding before and after every axis: with `value`, reflected, or with the edge."""

    mode: PadMode
    before: tuple[int, ...]
    after: tuple[int, ...]
    value: float = 0.0

    def made_of(self, operands: int) -> Steps:
        """One step, which copies an element."""
        return Steps(arithmetic=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The operand's extents and the pads are the result's."""
        if (why := counted(operands, 1) or per_axis(operands[0], before=self.before, after=self.after)) is not None:
            return why
        padded = tuple(b + s + a for b, s, a in zip(self.before, operands[0], self.after, strict=True))
        return None if padded == result else Misfit(f"a result of {padded}", f"{result}")


class Slice(Function, frozen=True, tag="slice"):
    """Every step-th element from an offset along each axis, as many as the result has."""

    offsets: tuple[int, ...]
    steps: tuple[int, ...]

    def made_of(self, operands: int) -> Steps:
        """One step, which copies an element."""
        return Steps(arithmetic=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """All of these elements lie inside the operand."""
        if (why := counted(operands, 1) or per_axis(result, offsets=self.offsets, steps=self.steps)) is not None:
            return why
        last = tuple(o + (n - 1) * s for o, s, n in zip(self.offsets, self.steps, result, strict=True))
        inside = len(operands[0]) == len(result) and all(
            0 <= o < size and 0 <= at < size for o, at, size in zip(self.offsets, last, operands[0], strict=True)
        )
        return None if inside else Misfit(f"elements {self.offsets} to {last} inside the operand", f"{operands[0]}")


class Tile(Function, frozen=True, tag="tile"):
    """The operand repeated along each axis."""

    times: tuple[int, ...]

    def made_of(self, operands: int) -> Steps:
        """One step, which copies an element."""
        return Steps(arithmetic=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The operand's extents times the counts are the result's."""
        if (why := counted(operands, 1) or per_axis(operands[0], times=self.times)) is not None:
            return why
        tiled = tuple(s * t for s, t in zip(operands[0], self.times, strict=True))
        return None if tiled == result else Misfit(f"a result of {tiled}", f"{result}")
