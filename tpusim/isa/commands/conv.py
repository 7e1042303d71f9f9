"""Convolution (CONV)."""

from tpusim.isa.commands.base import Command
from tpusim.isa.commands.requant import Requant
from tpusim.isa.region import View


class Conv(Command, frozen=True, tag="conv"):
    """2-D convolution (CONV), optional bias, requant and relu in one command; 3-D as the body of a global kernel.

    input: (n, ic, h, w) int8/uint8/f32; padded by pads (top, left, bottom, right) with `pad_value`, after `inserts`
        values `pad_value` were inserted between its rows and columns (a transposed convolution, hardware.md 4).
    filter: (1, oc, 1, K) with K = AL(ic/groups, P)*kh*kw; element (ic, k) at (ic div P)*(kh*kw*P) + k*P + ic mod P,
        k = kh_i*kw + kw_i, P the chip's filter packing for the element size (hardware.md 2.3).
    merged: axes of the kernel (0: h, 1: w) that lie in the filter's input channels, the innermost: channel ic*m + i has
        position i of the m along these axes, and k counts the others (hardware.md 2.4). spread: the load of the input
        gave it to as many lanes as that needs on its way, so that no lane copies do.
    rotate: the kernel is turned by 180 degrees, position k of the window meets entry (last k) - k.
    3-D: (n, ic, d, h, w), three entries in kernel, strides, dilations and inserts, six pads (befores, then afters),
        k = (kd_i*kh + kh_i)*kw + kw_i. The library runs one 2-D CONV per output depth and kd_i and accumulates them in
        32 bits: in the result itself if that is int32 or f32, else in the work buffer of layer_group.md 9.3. In local
        memory these are commands of their own; the filter of one depth may then be a window of the whole, read as
        (1, oc, AL(ic/groups, P)/P, kh*kw*P).
    Of a window that is taken in parts (codegen.md DC-09) the filter of some rows and columns is a window, too, read as
        (AL(ic/groups, P)/P, oc, kh, kw*P).
    accumulate: what the output holds, int32 or f32, is added to the accumulator; then there is no requant.
    bias: (1, oc, 1, 1) int32 (int16 on a chip without multipliers, f32), added to the accumulator.
    requant_table: (1, oc, 1, 3) int32: multiplier, -rshift, zero point per channel; (1, oc, 1, 2) on chips that pack
        the last two as (-rshift & 0xff) | zero point << 16; or `requant`, one for all. On CV18xx (1, oc, 1, 9) bytes:
        int32 bias, int32 multiplier, int8 shift, a QDM requant; (1, oc, 1, 5) without bias.
    On CV18xx the filter is (1, oc, kh*kw, P) and an f32 bias two planes of 16 bits, (2, oc, 1, 1): the upper halves,
        then the lower ones (hardware.md 2.3).
    Integers: sat(relu(RSR(acc + bias))) with relu at the zero point, after the requant (numerics.md 9.1).
    Without any requant the accumulator itself is written (int32, or f32 with relu).
    """

    inputs_ = ("input", "filter", "bias", "requant_table")

    input: View
    filter: View
    output: View
    kernel: tuple[int, ...]
    strides: tuple[int, ...] = (1, 1)
    pads: tuple[int, ...] = (0, 0, 0, 0)
    dilations: tuple[int, ...] = (1, 1)
    inserts: tuple[int, ...] = (0, 0)
    rotate: bool = False
    groups: int = 1
    bias: View | None = None
    requant_table: View | None = None
    requant: Requant | None = None
    pad_value: int = 0
    relu: bool = False
    relu_limit: float = -1.0
    packing: int = 0
    """P of this filter where it is not the chip's (a computed filter); 0: the chip's."""
    merged: tuple[int, ...] = ()
    spread: bool = False
    accumulate: bool = False

    def reads(self) -> tuple[View, ...]:
        """The operands, and the output where the command adds to what it holds."""
        return (*super().reads(), self.output) if self.accumulate else super().reads()
