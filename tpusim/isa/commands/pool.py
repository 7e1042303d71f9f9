"""Pooling (PorD)."""

from typing import Literal

from tpusim.isa.commands.base import Command
from tpusim.isa.commands.requant import Requant
from tpusim.isa.region import View


class Pool(Command, frozen=True, tag="pool"):
    """Max or average pooling (PorD).

    max: padding never wins (DN-17).
    avg: f32: sum/count; integers: v = round-half-away(sum*kh*kw/count), then requant (numerics.md 9.6); count excludes
    padding unless count_include_pad. With scale > 0 (zero points):
    sat(round-half-away(sum*kh*kw/count * scale + offset)) in double, padded with `pad_value`, relu at `zero_point`.
    3-D as the body of a global kernel, as Conv; kh*kw is kd*kh*kw then.
    first_rounding: of sum*kh*kw/count; half up on CV18xx.
    summed: (elements, counted) of windows whose sums the input holds already: kh*kw and count are multiplied by them.
    """

    inputs_ = ("input",)

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
