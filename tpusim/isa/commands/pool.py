"""Max and average pooling (PorD): its command, legality and cycles."""

from math import prod
from typing import Literal

from msgspec.structs import replace

from tpusim.chips import ChipSpec
from tpusim.isa.commands.base import Command, Need
from tpusim.isa.commands.requant import Requant
from tpusim.isa.commands.window import Window, window_ranges, windows
from tpusim.isa.layout import ceil_div
from tpusim.isa.region import View, itemsize
from tpusim.isa.steps import limits, steps, window_steps

_OFFSET_STEPS = 7
"""Steps of a mean of integers with a zero point after its window (F-23)."""


class Pool(Command, frozen=True, tag="pool"):
    """Max or average pooling (PorD).

    max: padding never wins (DN-17).
    avg: f32: sum/count; integers: v = round-half-away(sum*kh*kw/count), then requant (numerics.md 9.6); count excludes
    padding unless count_include_pad. With scale > 0 (zero points):
    sat(round-half-away(sum*kh*kw/count * scale + offset)) in double, padded with `pad_value`, relu at `zero_point`.
    3-D as the body of a global kernel, as Conv; kh*kw is kd*kh*kw then.
    first_rounding: of sum*kh*kw/count; half up on chips of small multipliers (numerics.md 9.6).
    summed: (elements, counted) of windows that the input already sums; kh*kw and count are multiplied by them.
    """

    inputs_ = ("input",)
    local_rules = (window_ranges,)
    rules = (windows,)
    one_lane = True
    one_kind = ("input", "output")

    mode: Literal["max", "avg"]
    input: View
    output: View
    kernel: tuple[int, ...]
    strides: tuple[int, ...] = (1, 1)
    pads: tuple[int, ...] = (0, 0, 0, 0)
    count_include_pad: bool = False
    requant: Requant | None = None
    scale: float = 0.0
    offset: float = 0.0
    pad_value: int = 0
    zero_point: int = 0
    relu: bool = False
    first_rounding: Literal["half_away", "half_up"] = "half_away"
    summed: tuple[int, int] = (1, 1)

    def fused_requants(self) -> tuple[Requant, ...]:
        """The requant of a mean, if it has one."""
        return () if self.requant is None else (self.requant,)

    def needs(self) -> tuple[Need, ...]:
        """A mean rounded otherwise than half away needs a chip of small multipliers."""
        usual = self.first_rounding == "half_away"
        return () if usual else (Need("small_multiplier", "no first_rounding", self.first_rounding),)

    @property
    def window(self) -> Window:
        """The kernel, without dilation, channel by channel."""
        none = len(self.kernel)
        return Window(self.kernel, self.strides, self.pads, (1,) * none, (0,) * none, channelwise=True)

    @property
    def _windows(self) -> View:
        """The result with as many axes as the operand: one window for each plane leaves out the last ones."""
        shape = self.output.shape
        return replace(self.output, shape=(*shape, *(1,) * (len(self.input.shape) - len(shape))))

    def cycles(self, chip: ChipSpec) -> int:
        """One PorD; a volume has one for each output depth and kernel depth, and AR to combine the depths."""
        views = (view for _, view in self.operands())
        return self._pooled(chip) + limits(views, self.output, chip, relu=self.relu)

    def _pooled(self, chip: ChipSpec) -> int:
        size = itemsize(self.input.dtype)
        if (folded := self._folded_plane(size, chip)) is not None:
            return folded
        if size == 1 and self.mode == "avg" and self.offset:
            wide = window_steps(self._windows, self.strides, 4, chip) * prod(self.kernel)
            return wide + _OFFSET_STEPS * steps(self.output, 4, chip)
        *depths, _, _ = self.kernel
        combined = steps(self.output, size, chip) * (prod(depths) - 1)
        windows = window_steps(self._windows, self.strides, size, chip) * prod(self.kernel)
        return windows + combined + self._borders(max(size, 2), chip)

    def _borders(self, size: int, chip: ChipSpec) -> int:
        """Two AR along every edge where windows reach pads that do not count: these means have fewer elements."""
        if self.mode != "avg" or self.count_include_pad or len(self.kernel) != 2:  # noqa: PLR2004  an image
            return 0
        (n, c, oh, ow), (h, w) = self._windows.shape, self.input.shape[2:]
        top, left, bottom, right = self.pads
        (kh, kw), (sh, sw) = self.kernel, self.strides
        rows = (top > 0) + ((oh - 1) * sh - top + kh > h and bottom > 0)
        columns = (left > 0) + ((ow - 1) * sw - left + kw > w and right > 0)
        return 2 * n * ceil_div(c, chip.lanes) * (rows * ceil_div(ow, chip.eu_elements(size)) + columns * oh)

    def _folded_plane(self, size: int, chip: ChipSpec) -> int | None:
        """Two PorD if one window of floats covers the plane: one over its vectors, one over a vector; else None.

        An AR fills up the last vector if the plane does not.
        """
        n, c, *plane = self.input.shape
        vector = chip.eu_elements(size)
        if size == 1 or tuple(plane) != self.kernel or any(self.pads):
            return None
        filled = prod(plane) % vector != 0
        return n * ceil_div(c, chip.lanes) * (filled + ceil_div(prod(plane), vector) + vector)
