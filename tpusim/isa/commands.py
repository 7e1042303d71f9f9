"""TIU, GDMA and global-kernel commands (docs/spec/codegen.md 3 and 4, mapping DC-04).

A command is frozen data. `id` counts per engine of a core from 1; `dep` is the id of the command of the same core's
*other* engine that must have finished before this one starts, 0 for none (DC-03, DC-08). Cores wait for each other by
messages. `op`, `step` and `group` say where a command came from.
Semantics are stated in each docstring with the rounding of docs/spec/numerics.md; the machine implements them in NumPy.
"""

from functools import cached_property
from typing import Any, ClassVar, Literal, cast

import msgspec
from msgspec.structs import replace

from tpusim.isa.functions import AnyFunction
from tpusim.isa.region import Length, View

Engine = Literal["tiu", "gdma"]
Relation = Literal["Equal", "NotEqual", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor"]
Place = tuple[Length, Length, Length, Length, Length]
"""(n, c, d, h, w) of an element, or of a whole tensor."""
TransferKind = Literal["", "tensor", "lanes", "heads", "matrix", "broadcast", "turns"]
Rounding = Literal["half_up", "half_away", "half_even", "down"]


class Source(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """What bytes are: a tensor or constant of global memory, or a slice that an op or a load put into local memory.

    name: of the tensor or constant; of the op or load. group, step: of a slice; both, as two groups may load one tensor
    and call their steps alike. loaded: a load put it there, whose name may be that of an op.
    """

    name: str
    group: int = -1
    step: str = ""
    loaded: bool = False

    def __str__(self) -> str:
        """As messages show it: "conv1@g3n0h2" of a slice, else the name."""
        return f"{self.name}@g{self.group}{self.step}" if self.step else self.name


def slice_owner(op: str, step: str, group: int, *, loaded: bool = False) -> Source:
    """Whose bytes a slice in local memory is made of; outside the loop of a group that is the op."""
    return Source(op, group, step, loaded) if step else Source(op)


_ANYONE: dict[str, Any] = {
    "id": 1, "dep": 0, "core": 0, "op": "", "group": -1, "home": -1, "tensor": "", "sources": (),
}  # fmt: skip
"""What the form of a command has in place of where it comes from."""

TILE = "tile"
"""How the steps of a global layer begin: "tile0", "tile1"."""


def tile_step(number: int) -> str:
    """The step of a tile of a global layer."""
    return f"{TILE}{number}"


class Command(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="cmd",
    kw_only=True,
    dict=True,
):
    """What every command carries. Subclasses name their operand views; `reads` and `writes` find them.

    dict: for what is found out of the fields and asked for often.
    """

    engine: ClassVar[Engine] = "tiu"
    inputs_: ClassVar[tuple[str, ...]] = ()
    outputs_: ClassVar[tuple[str, ...]] = ("output",)

    id: int
    dep: int
    core: int = 0
    """The core that executes this command; its local operands are in the local memory of that core."""
    op: str
    """Name of the op this command computes for."""
    step: str = ""
    """Slice of the layer group, e.g. "n0h2", or tile of a global layer, "tile3"; empty where it has none."""
    group: int = -1
    """Index of the group in the program, in processing order (global layers count as groups of one op)."""
    home: int = -1
    """Group whose step this is, where a neighbour does a transfer for it in its own loop; -1: `group`."""
    tensor: str = ""
    """Name of the GMEM tensor this command stores a part of; empty if it stores none."""
    sources: tuple[Source, ...] = ()
    """What every view of `reads()` is meant to hold, in order. Empty: not said."""
    work: tuple[View, ...] = ()
    """Local memory that the command uses for itself: what is there afterwards is nobody's."""

    @property
    def owner(self) -> Source:
        """Whose bytes this command writes, as `sources` of later commands name them."""
        return Source(self.tensor) if self.tensor else self.slice_owner(self.op)

    def slice_owner(self, op: str, *, loaded: bool = False) -> Source:
        """Whose bytes a slice of `op` is made of at the step of this command."""
        return slice_owner(op, self.step, self.group if self.home < 0 else self.home, loaded=loaded)

    @property
    def label(self) -> str:
        """How an error names this command."""
        step = f" step '{self.step}'" if self.step else ""
        place = f"{self.engine} of core {self.core}" if self.core else self.engine
        return f"{type(self).__name__} {self.id} ({place}) of op '{self.op}'{step}"

    @property
    def in_group(self) -> bool:
        """Whether this command is one of a step of a layer group."""
        return bool(self.step) and not self.of_tile

    @property
    def of_tile(self) -> bool:
        """Whether this command is one of a tile of a global layer."""
        return self.step.startswith(TILE)

    @cached_property
    def form(self) -> "Command":
        """The command without what says where it comes from, but for being of a tile: equal ones are as legal and
        take as long.
        """
        return replace(self, **_ANYONE, step=self._form_step)

    @property
    def _form_step(self) -> str:
        return tile_step(0) if self.of_tile else ""

    @property
    def content(self) -> dict[str, Any]:
        """The fields that its class adds: what is done, and with which operands."""
        own = (name for name in self.__struct_fields__ if name not in Command.__struct_fields__)
        return {name: getattr(self, name) for name in own}

    def _views(self, names: tuple[str, ...]) -> list[View]:
        return [view for name, view in self._operands if name in names]

    def operands(self) -> tuple[tuple[str, View], ...]:
        """Every view of this command with its field name, inputs first."""
        return self._operands

    @cached_property
    def _operands(self) -> tuple[tuple[str, View], ...]:
        found: list[tuple[str, View]] = []
        for name in (*self.inputs_, *self.outputs_):
            value: Any = getattr(self, name)
            if type(value) is View:
                found.append((name, value))
            elif type(value) is tuple:
                found += [(name, item) for item in cast("tuple[Any, ...]", value) if type(item) is View]
        return tuple(found)

    def reads(self) -> tuple[View, ...]:
        """Every view this command reads."""
        return tuple(self._views(self.inputs_))

    def writes(self) -> tuple[View, ...]:
        """Every view this command writes."""
        return tuple(self._views(self.outputs_))

    def scratch(self) -> tuple[View, ...]:
        """Every view whose bytes this command leaves as nobody's: (1, lanes, 1, bytes) u8, compact."""
        return self.work


class Requant(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Constant requant: sat(RSR(v * multiplier, rshift, rounding) + zero_point) (numerics.md 4.3, 4.4).

    mode "qdm" (5.2, 5.5): v * multiplier / 2**31 half up, inside int32, then / 2**rshift half away; "f32" (4.4,
    CV18xx): f32(v) * multiplier rounded to f32, / 2**rshift, half up. Both have no use for `rounding`.
    """

    multiplier: int = 1
    rshift: int = 0
    zero_point: int = 0
    rounding: Rounding = "half_up"
    mode: Literal["shift", "qdm", "f32"] = "shift"


# --------------------------------------------------------------------------------------------------------------- TIU


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


class MatMul(Command, frozen=True, tag="matmul"):
    """Batched matrix product (MM2): left (..., M, K) x right (..., K, N), each transposed on request.

    GMEM operands have their own rank; an LMEM operand is (n, c, h, w) with batch n, and (c, h) = (rows, columns).
    Integers: sat(RSR(relu(acc + bias), requant)): relu BEFORE the requant (numerics.md 9.2). bias: N elements.
    requants: one requant per right matrix, in order, and N bias elements for each (CV18xx).
    multipliers: N int32, one per column, instead of the requant's (numerics.md 5.1).
    partial: f32 sums of the columns before these, as the output; the result may take their place.
    """

    inputs_ = ("left", "right", "bias", "multipliers", "partial")

    left: View
    right: View
    output: View
    bias: View | None = None
    left_transpose: bool = False
    right_transpose: bool = False
    requant: Requant | None = None
    requants: tuple[Requant, ...] = ()
    multipliers: View | None = None
    partial: View | None = None
    relu: bool = False


class Arith(Command, frozen=True, tag="arith"):
    """Element-wise arithmetic of two operands (AR); numpy broadcasting of axes of length 1.

    b may be a constant. Integers: exact, saturated to the output type; f32: one IEEE operation. relu: max(0, .), then
    min(., relu_limit) if relu_limit >= 0. kind "div" is for floats only, "copy" ignores b; so does "truncate", which
    keeps the upper 16 bits of an f32 (CV18xx casts to BF16 so).
    """

    inputs_ = ("a", "b")

    kind: Literal["add", "sub", "mul", "div", "max", "min", "copy", "truncate"]
    a: View
    output: View
    b: View | float = 0.0
    relu: bool = False
    relu_limit: float = -1.0


class Compare(Command, frozen=True, tag="compare"):
    """1 where a `kind` b holds, else 0 (AR select of two constants); numpy broadcasting of axes of length 1.

    a and b, which may be a constant, are both integers or both floats; And, Or and Xor take what is not 0 as true.
    """

    inputs_ = ("a", "b")

    kind: Relation
    a: View
    output: View
    b: View | float = 0.0


class Where(Command, frozen=True, tag="where"):
    """on_true where the condition is not 0, else on_false (AR select); numpy broadcasting of axes of length 1.

    A branch may be a constant; branches and output are of one type, the condition of any.
    """

    inputs_ = ("condition", "on_true", "on_false")

    condition: View
    output: View
    on_true: View | float = 0.0
    on_false: View | float = 0.0


class Rescale(Command, frozen=True, tag="rescale"):
    """Integer requant (RQ rq1): sat(RSR((q - input_zero)*m, r) + z), then relu at z if asked."""

    inputs_ = ("input",)

    input: View
    output: View
    requant: Requant
    input_zero: int = 0
    relu: bool = False


class ChannelRescale(Command, frozen=True, tag="channel_rescale"):
    """Integer requant per channel (RQ rq1 with a table): sat(RSR(q*m[c], r[c], rounding) + z[c]).

    table: (1, c, 1, 3) int32, or 2 words on chips that pack the last two, as the requant_table of Conv. The output may
    have any number of axes after the channels in a global kernel.
    """

    inputs_ = ("input", "table")

    input: View
    table: View
    output: View
    rounding: Rounding = "half_away"


class Quantize(Command, frozen=True, tag="quantize"):
    """Float to integer (RQ rq0): sat(round-half-away(x * f32(scale)) + zero_point); scale is the reciprocal, f32.

    The product is in f32; of an f16 or bf16 input it is rounded to that type once more (numerics.md 8.1).
    bf16: sat(RNE(BF16(x * scale)) + zero_point), the scale a BF16 number, an f32 x cut off to BF16 first (CV18xx,
    numerics.md 8.1).
    """

    inputs_ = ("input",)

    input: View
    output: View
    scale: float
    zero_point: int = 0
    bf16: bool = False


class Dequantize(Command, frozen=True, tag="dequantize"):
    """Integer to float (DQ dq0): f32(scale) * (q - zero_point), both rounded to an f16 or bf16 output's type first.

    bf16: the product is rounded to BF16, whatever the output's type (CV18xx, numerics.md 8.1).
    """

    inputs_ = ("input",)

    input: View
    output: View
    scale: float
    zero_point: int = 0
    bf16: bool = False


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
    PRelu); f32: one product, no shift. positive: the requant of values that are not negative (CV18xx, 9.7).
    """

    inputs_ = ("input", "slope")

    input: View
    output: View
    slope: View | float
    rshift: int = 0
    positive: Requant | None = None


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


class Pick(Command, frozen=True, tag="pick"):
    """Gather of places (SG): output[n, c, p] = input[n, c, indices[p]], a plane of h*w elements counted row by row.

    input, output: (n, c, h, w) of one type and any two planes. indices: (1, lanes, h, w) i16, their bits unsigned, at
    least one for each place of the result: place p is number p div lanes of those that lane p mod lanes has.
    """

    inputs_ = ("input", "indices")

    input: View
    indices: View
    output: View


class FloatLut(Command, frozen=True, tag="float_lut"):
    """A function by two BF16 tables (two SG and AR): CV18xx (numerics.md 10); every step rounded to BF16.

    slope: t = (x - (low + high)/2)*256/(high - low), j = its whole part as int8, table[j] + (t - j)*mantissa[j].
    mantissa: table[exponent of x] * mantissa[low byte of x]; log: their sum. low and high are read by slope only.
    input and output: bf16 of one shape; table and mantissa: bf16, 256 entries, one copy for all lanes as for Lut.
    """

    inputs_ = ("input", "table", "mantissa")

    mode: Literal["slope", "mantissa", "log"]
    input: View
    table: View
    mantissa: View
    output: View
    low: float = 0.0
    high: float = 0.0


class LaneCopy(Command, frozen=True, tag="lane_copy"):
    """Copy between views of one memory whose start lanes may differ (TRANS/BC lane copy)."""

    inputs_ = ("input",)

    input: View
    output: View


class Fn(Command, frozen=True, tag="fn"):
    """Macro command: a function made of SFU and AR sequences, costed as the sum of its parts (DC-04).

    function: one of `tpusim.isa.functions` with its parameters; it says which operands it takes.
    """

    inputs_ = ("inputs",)

    function: AnyFunction
    inputs: tuple[View, ...]
    output: View


class SendMessage(Command, frozen=True, tag="send_msg"):
    """Send a message to the other cores (SYS send_msg), when the commands before it have finished.

    A message number is met by some sends and some waits, on any queues of any cores. Every wait says how many sends it
    waits for, every send how many waits take it; when the last has taken it, the number is free for the next meeting.
    Decision: nothing may send it for the next meeting before (hardware mixes up the two), and all counts must be right,
    so that it does not depend on timing which sends a wait takes.

    message: its number.
    count: waits that take it.
    """

    outputs_ = ()

    message: int
    count: int


class WaitMessage(Command, frozen=True, tag="wait_msg"):
    """Wait until a message was sent `count` times (SYS wait_msg); the commands behind it in its queue wait with it.

    message: its number.
    count: sends it waits for.
    """

    outputs_ = ()

    message: int
    count: int


TiuCommand = (
    Conv
    | Depthwise
    | Pool
    | MatMul
    | Arith
    | Compare
    | Where
    | Rescale
    | ChannelRescale
    | Quantize
    | Dequantize
    | ChannelScale
    | Select
    | Lut
    | Pick
    | FloatLut
    | LaneCopy
    | Fn
    | SendMessage
    | WaitMessage
)

# -------------------------------------------------------------------------------------------------------------- GDMA


class Move(Command, frozen=True, tag="move"):
    """Tensor copy (GDMA tensor/general): output[i] = input[i], same shape and dtype, any layouts and memories.

    whole: of a slice that a layer group loads or stores, (n, c, d, h, w) of its tensor as the group sees it.
    start: (n, c, d, h, w) of the first element that is moved; axis 0 of the views counts n or d.
    strides: elements of global memory between neighbours along (n, c, d, h, w), where the tensor does not lie there in
        the order in which the group sees it.
    origin: elements of global memory in front of the first, where padding surrounds the tensor, or
        where equal distances along c hold for the channels of this transfer alone (it may be negative).
    Start and whole are there, or none: it moves a constant, or is no transfer of a group or a tile.
    kind: of a tile of a global layer, how the library moves it: a tensor, a tensor lane by lane, heads of attention, a
        matrix over all lanes, or a constant that every lane gets. Of a copy in global memory: "turns", by several
        transpositions of matrices, one after the other. They differ in what they cost (hardware.md 5.2).
    width: of a matrix, how many columns of a row the library gives to one lane; 0: as the views have it.
    """

    engine = "gdma"
    inputs_ = ("input",)

    input: View
    output: View
    start: Place | None = None
    whole: Place | None = None
    strides: Place | None = None
    origin: int | None = None
    kind: TransferKind = ""
    width: Length = 0

    @cached_property
    def form(self) -> "Command":
        """As of any command; where only one side is in global memory its address does not matter either."""
        views = {"input": self.input, "output": self.output}
        if self.input.memory != self.output.memory:
            views = {name: replace(v, address=0) if v.memory == "gmem" else v for name, v in views.items()}
        return replace(
            self, **_ANYONE, step=self._form_step, start=None, whole=None, strides=None, origin=None, **views
        )

    @property
    def owner(self) -> Source:
        """As of any command, but what comes from global memory is a load's."""
        return self.slice_owner(self.op, loaded=True) if self.direction == "s2l" else super().owner

    @property
    def direction(self) -> Literal["s2l", "l2s", "s2s", "l2l"]:
        """Where from and to; s is system (global) memory."""
        source = "s" if self.input.memory == "gmem" else "l"
        target = "s" if self.output.memory == "gmem" else "l"
        return f"{source}2{target}"  # type: ignore[return-value]


class MoveRows(Move, frozen=True, kw_only=True, tag="move_rows"):
    """Rows copied inside global memory by their places (GDMA gather): output[a, i, b] = input[a, indices[i], b].

    input: (outer, length, inner); output: (outer, count, inner) of its type; indices: (count,) i32, of which negative
    ones count from the end. Only chips with a rate for it have the command; it stands for the load of the indices, too.
    """

    inputs_ = ("input", "indices")

    indices: View


class Fill(Command, frozen=True, tag="fill"):
    """Constant fill (GDMA constant mode)."""

    engine = "gdma"

    output: View
    value: float


class DmaSendMessage(SendMessage, frozen=True, tag="dma_send_msg"):
    """Send a message from the DMA queue (SYS of GDMA), when the transfers before it have finished; see send_msg.

    message: its number.
    count: waits that take it.
    """

    engine = "gdma"


class DmaWaitMessage(WaitMessage, frozen=True, tag="dma_wait_msg"):
    """Wait for a message in the DMA queue (SYS of GDMA); see wait_msg.

    message: its number.
    count: sends it waits for.
    """

    engine = "gdma"


# ------------------------------------------------------------------------------------------------------------ global


class GlobalKernel(Command, frozen=True, tag="global"):
    """A whole layer computed from and to GMEM by a library kernel that tiles internally (layer_group.md DL-06).

    body: the TIU command with GMEM operands that says what is computed; it never runs on its own.
    tiles: internal tiles; coefficients are loaded once per tile, inputs and outputs move once.
    Both engines are busy for max(TIU, DMA); ids and dependencies count on the TIU engine. Its tiles lie in local
    memory, anywhere in `work`; one may be stored before the next is loaded, so the result is apart from the operands.
    """

    outputs_ = ()

    body: TiuCommand
    tiles: int = 1
    load_bytes: int = 0
    store_bytes: int = 0
    reason: str = ""
    """Why this layer is not in local memory."""

    def reads(self) -> tuple[View, ...]:
        """The operands that the body reads."""
        return self.body.reads()

    def writes(self) -> tuple[View, ...]:
        """The results that the body writes."""
        return self.body.writes()


class HostCall(GlobalKernel, frozen=True, tag="host"):
    """A whole layer that the processor of the host computes in system memory, between two parts of the program.

    TPU-MLIR's name is `tpu.GenericCpu`, a sub-function of its own: no command of the chip belongs to it. Both engines
    have finished what stands before it, and wait. The clock is the chip's and does not advance; nothing is moved by
    GDMA. body: what is computed, in the element types that system memory has.
    """


GdmaCommand = Move | MoveRows | Fill | DmaSendMessage | DmaWaitMessage

AnyCommand = TiuCommand | GdmaCommand | GlobalKernel | HostCall
