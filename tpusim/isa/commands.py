"""TIU, GDMA and global-kernel commands (spec/codegen.md 3 and 4, mapping DC-04).

A command is frozen data. `id` counts per engine from 1; `dep` is the id of the *other* engine's command that must have
finished before this one starts, 0 for none (DC-03, DC-08). `op`, `step` and `group` say where it came from.
Semantics are stated in each docstring with the rounding of spec/numerics.md; the machine implements them in NumPy.
"""

from typing import Any, ClassVar, Literal, cast

import msgspec

from tpusim.isa.region import View

Engine = Literal["tiu", "gdma"]
Rounding = Literal["half_up", "half_away", "half_even", "down"]


class Command(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="cmd", kw_only=True
):
    """What every command carries. Subclasses name their operand views; `reads` and `writes` find them."""

    engine: ClassVar[Engine] = "tiu"
    inputs_: ClassVar[tuple[str, ...]] = ()
    outputs_: ClassVar[tuple[str, ...]] = ("output",)

    id: int
    dep: int
    op: str
    """Name of the op this command computes for."""
    step: str = ""
    """Slice of the layer group, e.g. "n0h2"; empty for a global layer."""
    group: int = -1
    """Index of the group in the program, in processing order (global layers count as groups of one op)."""
    tensor: str = ""
    """Name of the GMEM tensor this command stores a part of; empty if it stores none."""

    @property
    def label(self) -> str:
        """How an error names this command."""
        step = f" step '{self.step}'" if self.step else ""
        return f"{type(self).__name__} {self.id} ({self.engine}) of op '{self.op}'{step}"

    def _named(self, names: tuple[str, ...]) -> tuple[tuple[str, View], ...]:
        found: list[tuple[str, View]] = []
        for name in names:
            value: Any = getattr(self, name)
            items = cast("tuple[Any, ...]", value) if isinstance(value, tuple) else (value,)
            found.extend((name, item) for item in items if isinstance(item, View))
        return tuple(found)

    def operands(self) -> tuple[tuple[str, View], ...]:
        """Every view of this command with its field name, inputs first."""
        return self._named((*self.inputs_, *self.outputs_))

    def reads(self) -> tuple[View, ...]:
        """Every view this command reads."""
        return tuple(view for _, view in self._named(self.inputs_))

    def writes(self) -> tuple[View, ...]:
        """Every view this command writes."""
        return tuple(view for _, view in self._named(self.outputs_))


class Requant(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Constant requant: sat(RSR(v * multiplier, rshift, rounding) + zero_point) (numerics.md 4.3, 4.4)."""

    multiplier: int = 1
    rshift: int = 0
    zero_point: int = 0
    rounding: Rounding = "half_up"


# --------------------------------------------------------------------------------------------------------------- TIU


class Conv(Command, frozen=True, tag="conv"):
    """2-D convolution (CONV), optional bias, requant and relu in one command.

    input: (n, ic, h, w) int8/uint8/f32; padded by pads (top, left, bottom, right) with `pad_value`.
    filter: (1, oc, 1, K) with K = AL(ic/groups, P)*kh*kw; element (ic, k) at (ic div P)*(kh*kw*P) + k*P + ic mod P,
        k = kh_i*kw + kw_i, P the chip's filter packing for the element size (hardware.md 2.3).
    bias: (1, oc, 1, 1) int32 (int16 on a chip without multipliers, f32), added to the accumulator.
    requant_table: (1, oc, 1, 3) int32: multiplier, -rshift, zero point per channel; (1, oc, 1, 2) on chips that pack
        the last two as (-rshift & 0xff) | zero point << 16; or `requant`, one for all.
    Integers: sat(relu(RSR(acc + bias))) with relu at the zero point, after the requant (numerics.md 9.1).
    Without any requant the accumulator itself is written (int32, or f32 with relu).
    """

    inputs_ = ("input", "filter", "bias", "requant_table")

    input: View
    filter: View
    output: View
    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)
    groups: int = 1
    bias: View | None = None
    requant_table: View | None = None
    requant: Requant | None = None
    pad_value: int = 0
    relu: bool = False
    relu_limit: float = -1.0


class Depthwise(Command, frozen=True, tag="depthwise"):
    """Depthwise convolution (PorD): as Conv with groups = ic = oc; filter (1, c, 1, kh*kw)."""

    inputs_ = ("input", "filter", "bias", "requant_table")

    input: View
    filter: View
    output: View
    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)
    bias: View | None = None
    requant_table: View | None = None
    requant: Requant | None = None
    pad_value: int = 0
    relu: bool = False
    relu_limit: float = -1.0


class Pool(Command, frozen=True, tag="pool"):
    """Max or average pooling (PorD).

    max: padding never wins (DN-17). avg: f32: sum/count; integers: v = round-half-away(sum*kh*kw/count), then requant
    (numerics.md 9.6); count excludes padding unless count_include_pad. With scale > 0 (zero points):
    sat(round-half-away(sum*kh*kw/count * scale + offset)) in double, padded with `pad_value`, relu at `zero_point`.
    """

    inputs_ = ("input",)

    mode: Literal["max", "avg"]
    input: View
    output: View
    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    count_include_pad: bool = False
    requant: Requant | None = None
    scale: float = 0.0
    offset: float = 0.0
    pad_value: int = 0
    zero_point: int = 0
    relu: bool = False


class MatMul(Command, frozen=True, tag="matmul"):
    """Batched matrix product (MM2): left (..., M, K) x right (..., K, N), each transposed on request.

    GMEM operands have their own rank; an LMEM operand is (n, c, h, w) with batch n, and (c, h) = (rows, columns).
    Integers: sat(RSR(relu(acc + bias), requant)): relu BEFORE the requant (numerics.md 9.2). bias: N elements.
    """

    inputs_ = ("left", "right", "bias")

    left: View
    right: View
    output: View
    bias: View | None = None
    left_transpose: bool = False
    right_transpose: bool = False
    requant: Requant | None = None
    relu: bool = False


class Arith(Command, frozen=True, tag="arith"):
    """Element-wise arithmetic of two operands (AR); numpy broadcasting of axes of length 1.

    b may be a constant. Integers: exact, saturated to the output type; f32: one IEEE operation. relu: max(0, .), then
    min(., relu_limit) if relu_limit >= 0. kind "div" is for floats only, "copy" ignores b.
    """

    inputs_ = ("a", "b")

    kind: Literal["add", "sub", "mul", "div", "max", "min", "copy"]
    a: View
    output: View
    b: View | float = 0.0
    relu: bool = False
    relu_limit: float = -1.0


class Rescale(Command, frozen=True, tag="rescale"):
    """Integer requant (RQ rq1): sat(RSR((q - input_zero)*m, r) + z), then relu at z if asked."""

    inputs_ = ("input",)

    input: View
    output: View
    requant: Requant
    input_zero: int = 0
    relu: bool = False


class Quantize(Command, frozen=True, tag="quantize"):
    """Float to integer (RQ rq0): sat(round-half-away(x * f32(scale)) + zero_point); scale is the reciprocal, f32."""

    inputs_ = ("input",)

    input: View
    output: View
    scale: float
    zero_point: int = 0


class Dequantize(Command, frozen=True, tag="dequantize"):
    """Integer to float (DQ dq0): f32(scale) * (q - zero_point)."""

    inputs_ = ("input",)

    input: View
    output: View
    scale: float
    zero_point: int = 0


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


class Select(Command, frozen=True, tag="select"):
    """Slope for negative values (AR select of two products): x if x > 0, else x times the slope of its channel.

    slope: (1, c, 1, 1), or one number for all. Integers: sat(RSR(q*slope, rshift, half_up)) (numerics.md 9.0 LeakyRelu,
    PRelu); f32: one product, no shift.
    """

    inputs_ = ("input", "slope")

    input: View
    output: View
    slope: View | float
    rshift: int = 0


class Lut(Command, frozen=True, tag="lut"):
    """Table gather (SG): output = table[byte of input], a negative value i at entry 256 + i (numerics.md 10).

    input: int8 or uint8. table: (1, 1, 1, 256) of the output's type. Decision: a table is one copy, at lane 0, that
    every lane reads. The broadcast load of the chip (hardware.md 2.3) is counted as this one load; the entries occupy
    their bytes in every lane, because space is allocated in all lanes alike.
    """

    inputs_ = ("input", "table")

    input: View
    table: View
    output: View


class LaneCopy(Command, frozen=True, tag="lane_copy"):
    """Copy between views of one memory whose start lanes may differ (TRANS/BC lane copy)."""

    inputs_ = ("input",)

    input: View
    output: View


class Fn(Command, frozen=True, tag="fn"):
    """Macro command: a function made of SFU and AR sequences, costed as the sum of its parts (DC-04).

    function: "softmax" | "softmax_int" | "lrn" | "active" ...; params are plain numbers and strings.
    """

    inputs_ = ("inputs",)

    function: str
    inputs: tuple[View, ...]
    output: View
    params: dict[str, float | int | str | bool] = {}


TiuCommand = (
    Conv
    | Depthwise
    | Pool
    | MatMul
    | Arith
    | Rescale
    | Quantize
    | Dequantize
    | ChannelScale
    | Select
    | Lut
    | LaneCopy
    | Fn
)

# -------------------------------------------------------------------------------------------------------------- GDMA


class Move(Command, frozen=True, tag="move"):
    """Tensor copy (GDMA tensor/general): output[i] = input[i], same shape and dtype, any layouts and memories."""

    engine = "gdma"
    inputs_ = ("input",)

    input: View
    output: View

    @property
    def direction(self) -> Literal["s2l", "l2s", "s2s", "l2l"]:
        """Where from and to; s is system (global) memory."""
        source = "s" if self.input.memory == "gmem" else "l"
        target = "s" if self.output.memory == "gmem" else "l"
        return f"{source}2{target}"  # type: ignore[return-value]


class Fill(Command, frozen=True, tag="fill"):
    """Constant fill (GDMA constant mode)."""

    engine = "gdma"

    output: View
    value: float


# ------------------------------------------------------------------------------------------------------------ global


class GlobalKernel(Command, frozen=True, tag="global"):
    """A whole layer computed from and to GMEM by a library kernel that tiles internally (layer_group.md DL-06).

    body: the TIU command with GMEM operands that says what is computed; it never runs on its own.
    tiles: internal tiles; coefficients are loaded once per tile, inputs and outputs move once.
    Both engines are busy for max(TIU, DMA); ids and dependencies count on the TIU engine.
    """

    outputs_ = ()

    body: TiuCommand
    tiles: int = 1
    load_bytes: int = 0
    store_bytes: int = 0
    reason: str = ""
    """Why this layer is not in local memory."""

    def reads(self) -> tuple[View, ...]:
        """The body's operands."""
        return self.body.reads()

    def writes(self) -> tuple[View, ...]:
        """The body's results."""
        return self.body.writes()


AnyCommand = TiuCommand | Move | Fill | GlobalKernel
