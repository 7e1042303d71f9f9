"""Depthwise convolution (PorD)."""

from tpusim.isa.commands.base import Command
from tpusim.isa.commands.requant import Requant
from tpusim.isa.region import View


class Depthwise(Command, frozen=True, tag="depthwise"):
    """Depthwise convolution (PorD): as Conv with groups = ic = oc; filter (1, c, 1, kh*kw), or (1, c, kh, kw)."""

    inputs_ = ("input", "filter", "bias", "requant_table")

    input: View
    filter: View
    output: View
    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)
    inserts: tuple[int, int] = (0, 0)
    rotate: bool = False
    bias: View | None = None
    requant_table: View | None = None
    requant: Requant | None = None
    pad_value: int = 0
    relu: bool = False
    relu_limit: float = -1.0
