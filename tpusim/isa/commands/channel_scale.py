"""Multiply-add per channel (AR mac)."""

from tpusim.isa.commands.base import Command
from tpusim.isa.region import View


class ChannelScale(Command, frozen=True, tag="channel_scale"):
    """Per-channel multiply-add (AR mac): f32 x*scale + bias; integers RSR(q*scale + bias, r, down) saturated.

    scale, bias: (1, c, 1, 1); rshift: (1, c, 1, 1) int32, integers only. clamp16: the accumulator is clamped to 16 bits
    before the shift (numerics.md 9.4, BM1684).
    """

    inputs_ = ("input", "scale", "bias", "rshift")

    input: View
    output: View
    scale: View
    bias: View | None = None
    rshift: View | None = None
    zero_point: int = 0
    clamp16: bool = False
    relu: bool = False
