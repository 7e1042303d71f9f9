"""Macro functions: what an `fn` command may compute, one frozen class each (codegen.md DC-04).

A class has the function's parameters with their types, says which shapes go with each other, and what the function is
made of, for the clock. What it computes is the machine's: `tpusim.simulator.function` registers a meaning per class,
and is an error at import if one has none. In text a function is JSON, `{"name":"softmax","axis":1}`.
"""

from collections.abc import Sequence
from math import prod
from typing import ClassVar, Literal, NamedTuple, TypeAlias, get_args

import msgspec

Shape: TypeAlias = tuple[int, ...]
Unit: TypeAlias = Literal["", "qdm", "small_multiplier", "tables"]
"""CV18xx's requant of products, its multipliers of 8 bits with one shift, or its BF16 tables."""


class Steps(NamedTuple):
    """What a function is made of, per element: AR steps, Taylor series, table accesses, requants (hardware.md 5.1).

    shifts: lane copies of all channels to their neighbours' lanes. serial: half cycles for each element of `axis`,
    which lies in one lane.
    """

    arithmetic: int
    series: int = 0
    lookups: int = 0
    requants: int = 0
    shifts: int = 0
    serial: int = 0


class Misfit(NamedTuple):
    """What a function requires of its operands and result, and what it has."""

    requirement: str
    got: str


class Function(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="name"):
    """A function of the `fn` command; subclasses are its opcodes."""

    OVER_INPUT: ClassVar[bool] = False
    """Whether `made_of` is per element of the first operand, not of the result."""

    def made_of(self, operands: int) -> Steps:
        """What the clock counts per element, for that many operands."""
        raise NotImplementedError

    def needs(self) -> Unit:
        """What only some chips have that the function is made of; empty: nothing."""
        return ""

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Why these shapes do not go with the parameters and each other; None if they do."""
        raise NotImplementedError


# -------------------------------------------------------------------------------------------------------- shape rules


def _count(operands: Sequence[Shape], wanted: int) -> Misfit | None:
    return None if len(operands) == wanted else Misfit(f"{wanted} operands", f"{len(operands)}")


def _alike(operands: Sequence[Shape], result: Shape, count: int = 1) -> Misfit | None:
    """`count` operands, the first of the result's shape."""
    if (why := _count(operands, count)) is not None:
        return why
    return None if operands[0] == result else Misfit(f"an operand of the result's shape {result}", f"{operands[0]}")


def _broadcast(operands: Sequence[Shape], result: Shape, parameters: int) -> Misfit | None:
    """One operand per parameter, each as long as the result or 1 along its axes, which are the result's last."""
    if (why := _count(operands, parameters)) is not None:
        return why
    for shape in operands:
        last = result[len(result) - len(shape) :]
        if len(shape) > len(result) or any(a not in (1, b) for a, b in zip(shape, last, strict=True)):
            return Misfit(f"operands that broadcast to {result}", f"{shape}")
    return None


def _axis(axis: int, shape: Shape) -> Misfit | None:
    return None if 0 <= axis < len(shape) else Misfit(f"an axis of 0 to {len(shape) - 1}", f"{axis}")


def _without(shape: Shape, axes: Sequence[int]) -> int:
    """Elements of a tensor with some axes reduced."""
    return prod(size for axis, size in enumerate(shape) if axis not in axes)


def _reduced(operands: Sequence[Shape], axes: Sequence[int], result: Shape) -> Misfit | None:
    if (why := _count(operands, 1)) is not None:
        return why
    wrong = next((why for axis in axes if (why := _axis(axis, operands[0])) is not None), None)
    if wrong is None and (left := _without(operands[0], axes)) != prod(result):
        return Misfit(f"{left} elements left of {operands[0]} without axes {list(axes)}", f"{result}")
    return wrong


def _joined(operands: Sequence[Shape], axis: int, result: Shape) -> Misfit | None:
    if (why := _axis(axis, result)) is not None:
        return why
    length = 0
    for shape in operands:
        if len(shape) != len(result) or shape[:axis] + shape[axis + 1 :] != result[:axis] + result[axis + 1 :]:
            return Misfit(f"parts of {result} along axis {axis}", f"{shape}")
        length += shape[axis]
    return None if length == result[axis] else Misfit(f"{result[axis]} along axis {axis} in all", f"{length}")


def _per_axis(shape: Shape, **lists: Sequence[int]) -> Misfit | None:
    return next(
        (Misfit(f"{len(shape)} {name}", f"{len(v)}") for name, v in lists.items() if len(v) != len(shape)), None
    )


# ---------------------------------------------------------------------------------------------- float functions


class Softmax(Function, frozen=True, tag="softmax"):
    """Softmax along `axis` in f32 (numerics.md 11.1): subtract max, times beta, exp, divide by the sum; or its log."""

    axis: int
    log: bool = False
    beta: float = 1.0

    def made_of(self, operands: int) -> Steps:
        """Max and sum by windows, subtract, scale, divide; exp, and log if asked: as many steps as upstream issues."""
        return Steps(arithmetic=25, series=2 if self.log else 1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """One operand of the result's shape."""
        return _alike(operands, result) or _axis(self.axis, result)


class SoftmaxInt(Function, frozen=True, tag="softmax_int"):
    """INT8 softmax along `axis` by a table of 256 exponentials, scale and zero point of the result (11.1)."""

    axis: int
    scale: float
    zero_point: int = 0

    def made_of(self, operands: int) -> Steps:
        """Subtract, multiply, requant; max and sum a cycle each along the axis, the table one and a half."""
        return Steps(arithmetic=4, requants=1, serial=7)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The integers, of the result's shape, and the table."""
        if (why := _alike(operands, result, 2) or _axis(self.axis, result)) is not None:
            return why
        return None if prod(operands[1]) == 256 else Misfit("a table of 256 entries", f"{operands[1]}")


class AttentionWeights(Function, frozen=True, tag="attention_weights"):
    """Softmax of masked scores along the last axis, as a block of attention has it (11.5).

    integer: of int8 by a table of 256 exponentials, where the mask is not 0 far below all others; scale: the result's.
    Else of x * scale + mask in f32. Operands: scores, the table, the mask as far as there are any.
    """

    scale: float
    integer: bool
    mask: bool

    def made_of(self, operands: int) -> Steps:
        """As many steps as upstream issues."""
        if self.integer:
            return Steps(arithmetic=6 + self.mask, lookups=1, serial=2)
        return Steps(arithmetic=25 + self.mask, series=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The scores, of the result's shape, the table, and a mask that broadcasts."""
        count = 1 + self.integer + self.mask
        if (why := _alike(operands, result, count)) is not None:
            return why
        if self.integer and prod(operands[1]) != 256:
            return Misfit("a table of 256 entries", f"{operands[1]}")
        return _broadcast([result, operands[-1]], result, 2) if self.mask else None


class Attention(Function, frozen=True, tag="attention"):
    """A head of attention in global memory (11.5).

    sizes: rows of the matrix of queries, of those of keys and values, their columns, columns of the last layer.
    sources: input, keys, values: the first so many are there. has_bias: a bit for each of the four layers. requants:
    multiplier and shift of queries, keys, values, scores and mixed values; none in float. Operands: sources, packed
    matrices, row of biases, last matrix, mask, table, as far as they are there.
    """

    sizes: tuple[int, int, int, int]
    sources: int
    has_bias: int
    mask: bool
    scale: float
    requants: tuple[tuple[int, int], ...]

    def made_of(self, operands: int) -> Steps:
        """Decision: a step for 32 products of a result's row; those of the scores are not known here."""
        return Steps(arithmetic=8 + sum(self.sizes[:3]) // 32, series=0 if self.requants else 1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The sources with the result's batch, and as many others as the parameters promise."""
        count = self.sources + 2 + bool(self.has_bias) + self.mask + bool(self.requants)
        if (why := _count(operands, count)) is not None:
            return why
        wanted = (*result[:-1], self.sizes[0])
        return None if operands[0] == wanted else Misfit(f"an input {wanted}", f"{operands[0]}")


class SoftmaxTables(Function, frozen=True, tag="softmax_tables"):
    """Softmax along `axis`, or its logarithm, by BF16 tables (CV18xx, 11.1).

    Operands: x, base and slope of the exponential over +-limit, exponent and mantissa entries of the reciprocal (or the
    logarithm).
    """

    axis: int
    limit: float
    log: bool = False

    def made_of(self, operands: int) -> Steps:
        """Subtract, five steps of the exponential, weight, sum, product; two pairs of tables."""
        return Steps(arithmetic=9, series=2)

    def needs(self) -> Unit:
        """Its tables."""
        return "tables"

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The tensor, of the result's shape, and four tables."""
        return _alike(operands, result, 5) or _axis(self.axis, result)


class Lrn(Function, frozen=True, tag="lrn"):
    """ONNX LRN over the channels of (n, c, h, w): x / (bias + alpha/size * sum of squares)**beta."""

    size: int
    alpha: float
    beta: float
    bias: float

    def made_of(self, operands: int) -> Steps:
        """Square, one shifted sum per neighbour, scale, bias, multiply; log and exp in as many steps as there."""
        return Steps(arithmetic=46 + self.size, series=2, shifts=self.size - 1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """One operand of the result's shape, of four axes."""
        return _alike(operands, result) or _image(result)


class LrnTables(Function, frozen=True, tag="lrn_tables"):
    """LRN with every step in BF16 and the power -beta by tables (CV18xx): x, exponent and mantissa entries."""

    size: int
    alpha: float
    bias: float

    def made_of(self, operands: int) -> Steps:
        """Square twice, one sum per neighbour, bias, power, product; one pair of tables."""
        return Steps(arithmetic=4 + self.size, series=1)

    def needs(self) -> Unit:
        """Its tables."""
        return "tables"

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The tensor, of the result's shape and four axes, and two tables."""
        return _alike(operands, result, 3) or _image(result)


def _image(shape: Shape) -> Misfit | None:
    return None if len(shape) == 4 else Misfit("four axes", f"{shape}")


_ACTIVATIONS: dict[str, Steps] = {
    **dict.fromkeys(("EXP", "LN", "LOG2", "SIN", "COS", "TAN", "SQRT", "RSQRT"), Steps(arithmetic=1, series=1)),
    **dict.fromkeys(
        ("SIGMOID", "TANH", "SINH", "COSH", "ELU", "ARCCOS", "ARCSIN", "ARCTAN"), Steps(arithmetic=4, series=1)
    ),
    **dict.fromkeys(("SILU", "SWISH", "QGELU", "LOG_SIGMOID", "ERF"), Steps(arithmetic=5, series=1)),
    **dict.fromkeys(("TGELU", "GELU"), Steps(arithmetic=8, series=1)),
    **dict.fromkeys(("SOFT_PLUS", "ARCTANH"), Steps(arithmetic=3, series=2)),
    "MISH": Steps(arithmetic=6, series=3),
    "HSIGMOID": Steps(arithmetic=3),
    "HSWISH": Steps(arithmetic=4),
    "SOFT_SIGN": Steps(arithmetic=7),
    "RECIPROCAL": Steps(arithmetic=5),
    "POW": Steps(arithmetic=1, series=2),
    **dict.fromkeys(("ABSVAL", "CEIL", "FLOOR", "ROUND", "ROUND_EVEN", "TRUNC", "SQUARE", "SIGN"), Steps(arithmetic=1)),
}
"""AR steps and Taylor series of an activation; a division counts 5 (hardware.md 5.1)."""

ACTIVATIONS = frozenset(_ACTIVATIONS)
"""Modes of `Active`."""


class Active(Function, frozen=True, tag="active"):
    """Element-wise function `mode` with its coefficients, in float; of integers ABSVAL alone (numerics.md 9.8)."""

    mode: str
    coefficients: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.mode not in ACTIVATIONS:
            raise ValueError(f"mode '{self.mode}' is not one of {', '.join(sorted(ACTIVATIONS))}")

    def made_of(self, operands: int) -> Steps:
        """By mode."""
        return _ACTIVATIONS[self.mode]

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """One operand of the result's shape."""
        return _alike(operands, result)


class LayerNorm(Function, frozen=True, tag="layernorm"):
    """Normalise over the axes from `axis` on, times the weight, plus the bias, as far as there are any (11.2).

    Operands: x, then weight and bias if they are there, then two BF16 tables of the power -0.5 if `tables`. bf16_steps:
    every step is rounded to BF16; tables: every step is a BF16 step of CV18xx.
    """

    axis: int
    epsilon: float
    weight: bool
    bias: bool
    bf16_steps: bool = False
    tables: bool = False

    def made_of(self, operands: int) -> Steps:
        """Two sums by windows, subtract, square, add, divide, three products; root: as many as upstream issues."""
        return Steps(arithmetic=9, series=1)

    def needs(self) -> Unit:
        """Its tables, if it has any."""
        return "tables" if self.tables else ""

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The tensor, of the result's shape, and what the parameters promise."""
        return _alike(operands, result, 1 + self.weight + self.bias + 2 * self.tables) or _axis(self.axis, result)


class GroupNorm(Function, frozen=True, tag="groupnorm"):
    """Normalise every sample's `groups` runs of channels (axis 1), times weight[c], plus bias[c]: x and those it has.

    depth: the batch axis is (depth, batch), and a sample has all of its depths (hardware.md 2.1). weight_as_factor:
    mean and variance are divided by the first weight, and nothing is multiplied (CV18xx's host). bf16_steps: every step
    but root and reciprocal is rounded to BF16.
    """

    groups: int
    epsilon: float
    depth: int = 1
    weight: bool = True
    bias: bool = True
    weight_as_factor: bool = False
    bf16_steps: bool = False

    def made_of(self, operands: int) -> Steps:
        """As a layer norm."""
        return Steps(arithmetic=9, series=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Whole groups of channels, whole depths."""
        if (why := _alike(operands, result, 1 + self.weight + self.bias)) is not None:
            return why
        if self.weight_as_factor and not self.weight:
            return Misfit("a weight for the factor", "none")
        if len(result) < 2 or self.groups < 1 or result[1] % self.groups:
            return Misfit(f"channels in {self.groups} equal groups", f"{result}")
        whole = self.depth >= 1 and result[0] % self.depth == 0
        return None if whole else Misfit(f"a batch axis of {self.depth} depths", f"{result}")


ReduceMode = Literal["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceProd"]


class Reduce(Function, frozen=True, tag="reduce"):
    """Reduction `mode` over `axes` in float; the mean is the sum times `scale` (numerics.md 11.3)."""

    OVER_INPUT: ClassVar[bool] = True

    mode: ReduceMode
    axes: tuple[int, ...]
    scale: float = 1.0

    def made_of(self, operands: int) -> Steps:
        """One pass over the operand."""
        return Steps(arithmetic=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The result has the elements that are left."""
        return _reduced(operands, self.axes, result)


class Interp(Function, frozen=True, tag="interp"):
    """Linear interpolation of rows, then columns, in f32 (numerics.md 11.4): a + d*(b - a).

    scale_h, scale_w: operand elements per result element. host: the four neighbours are weighed in f32 as CV18xx's
    host does, by steps of the extents.
    """

    scale_h: float
    scale_w: float
    align_corners: bool = False
    host: bool = False

    def made_of(self, operands: int) -> Steps:
        """Differences, products and sums in two directions; neighbours are gathered, of uneven scales row by row."""
        even = not self.align_corners and all((1 / s).is_integer() for s in (self.scale_h, self.scale_w))
        return Steps(arithmetic=9, lookups=1 if even else 6)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Images of the same batch and channels."""
        if (why := _count(operands, 1) or _image(result)) is not None:
            return why
        same = len(operands[0]) == 4 and operands[0][:2] == result[:2]
        return None if same else Misfit(f"an image of {result[:2]} batches and channels", f"{operands[0]}")


# --------------------------------------------------------------------------------------------- integer functions


class AddInt(Function, frozen=True, tag="add_int"):
    """Integer sum (numerics.md 9.0): sat(relu(sum RSR((q_i - z_i)*m_i, r_i)) + z)."""

    multipliers: tuple[int, ...]
    rshifts: tuple[int, ...]
    operand_zero_points: tuple[int, ...]
    zero_point: int = 0
    relu: bool = False

    def made_of(self, operands: int) -> Steps:
        """Multiply and shift per operand, additions; two more to cut off what is negative."""
        return Steps(arithmetic=operands - 1 + 2 * self.relu, requants=operands)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """A multiplier, a shift and a zero point per operand."""
        count = len(self.multipliers)
        if {count} != {len(self.rshifts), len(self.operand_zero_points)}:
            return Misfit(f"{count} multipliers, shifts and zero points", f"{len(self.rshifts)} shifts")
        return _broadcast(operands, result, count)


class SubInt(Function, frozen=True, tag="sub_int"):
    """Integer difference (numerics.md 9.0): sat(relu(RSR(q_0*m_0, r_0) - RSR(q_1*m_1, r_1)))."""

    multipliers: tuple[int, int]
    rshifts: tuple[int, int]
    relu: bool = False

    def made_of(self, operands: int) -> Steps:
        """Multiply and shift per operand, one subtraction."""
        return Steps(arithmetic=1, requants=2)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Two operands."""
        return _broadcast(operands, result, 2)


class MulInt(Function, frozen=True, tag="mul_int"):
    """Integer product (9.0): sat(RSR(relu(prod (q_i - z_i))*m, r) + z), or by the doubling multiplication (qdm)."""

    operand_zero_points: tuple[int, ...]
    multiplier: int
    rshift: int
    zero_point: int = 0
    relu: bool = False
    qdm: bool = False

    def made_of(self, operands: int) -> Steps:
        """Products, one requant."""
        return Steps(arithmetic=operands - 1, requants=1)

    def needs(self) -> Unit:
        """The doubling multiplication, if it is that."""
        return "qdm" if self.qdm else ""

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """A zero point per operand."""
        return _broadcast(operands, result, len(self.operand_zero_points))


class ConstInt(Function, frozen=True, tag="const_int"):
    """A tensor and a number (numerics.md 9.3): t = q*m; t + c, t - c (or c - t), max or min; RSR(t, r) + z; relu."""

    kind: Literal["add", "sub", "max", "min"]
    multiplier: int
    rshift: int
    constant: float
    zero_point: int = 0
    relu: bool = False
    reverse: bool = False

    def made_of(self, operands: int) -> Steps:
        """Product, constant; shift."""
        return Steps(arithmetic=2, requants=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """One operand of the result's shape."""
        return _alike(operands, result)


class SumShift(Function, frozen=True, tag="sum_shift"):
    """CV18xx: sat(RSR(relu(sum q_i*m_i), r)) (numerics.md 9.0 Add, Sub)."""

    multipliers: tuple[int, ...]
    rshift: int
    relu: bool = False

    def made_of(self, operands: int) -> Steps:
        """Products, sums; one shift."""
        return Steps(arithmetic=2 * operands - 1, requants=1)

    def needs(self) -> Unit:
        """One shift for 8-bit multipliers."""
        return "small_multiplier"

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """A multiplier per operand."""
        return _broadcast(operands, result, len(self.multipliers))


class ExtremeShift(Function, frozen=True, tag="extreme_shift"):
    """CV18xx: the largest or smallest RSR(q_i*m_i, r), relu, saturated (9.0)."""

    kind: Literal["max", "min"]
    multipliers: tuple[int, ...]
    rshift: int
    relu: bool = False

    def made_of(self, operands: int) -> Steps:
        """Products, comparisons; one shift."""
        return Steps(arithmetic=2 * operands - 1, requants=1)

    def needs(self) -> Unit:
        """One shift for 8-bit multipliers."""
        return "small_multiplier"

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """A multiplier per operand."""
        return _broadcast(operands, result, len(self.multipliers))


IntReduceMode = Literal["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1"]


class ReduceInt(Function, frozen=True, tag="reduce_int"):
    """CV18xx: reduction `mode` of integers over `axes`, times m / 2**r in f32, half up (numerics.md 11.3)."""

    OVER_INPUT: ClassVar[bool] = True

    mode: IntReduceMode
    axes: tuple[int, ...]
    multiplier: int
    rshift: int

    def made_of(self, operands: int) -> Steps:
        """One pass over the operand, one requant."""
        return Steps(arithmetic=1, requants=1)

    def needs(self) -> Unit:
        """One shift for 8-bit multipliers."""
        return "small_multiplier"

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The result has the elements that are left."""
        return _reduced(operands, self.axes, result)


class ConcatShift(Function, frozen=True, tag="concat_shift"):
    """CV18xx: operands joined along `axis`, each sat(RSR(q_i*m_i, r_i)) (9.0 Concat)."""

    axis: int
    multipliers: tuple[int, ...]
    rshifts: tuple[int, ...]

    def made_of(self, operands: int) -> Steps:
        """One shift."""
        return Steps(arithmetic=0, requants=1)

    def needs(self) -> Unit:
        """One shift for 8-bit multipliers."""
        return "small_multiplier"

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Parts of the result, with a multiplier and a shift each."""
        why = _count(operands, len(self.multipliers)) or _joined(operands, self.axis, result)
        if why is None and len(self.rshifts) != len(self.multipliers):
            return Misfit(f"{len(self.multipliers)} shifts", f"{len(self.rshifts)}")
        return why


# -------------------------------------------------------------------------------------------- moved and picked


class Concat(Function, frozen=True, tag="concat"):
    """Operands one after the other along `axis`; bytes are moved unchanged."""

    axis: int

    def made_of(self, operands: int) -> Steps:
        """One copy."""
        return Steps(arithmetic=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Parts of the result."""
        return _joined(operands, self.axis, result)


class Reshape(Function, frozen=True, tag="reshape"):
    """The operand's elements in order, in the result's shape."""

    def made_of(self, operands: int) -> Steps:
        """One copy."""
        return Steps(arithmetic=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """As many elements."""
        return _count(operands, 1) or (
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
        """One copy."""
        return Steps(arithmetic=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The operand's extents and the pads are the result's."""
        if (why := _count(operands, 1) or _per_axis(operands[0], before=self.before, after=self.after)) is not None:
            return why
        padded = tuple(b + s + a for b, s, a in zip(self.before, operands[0], self.after, strict=True))
        return None if padded == result else Misfit(f"a result of {padded}", f"{result}")


class Slice(Function, frozen=True, tag="slice"):
    """Every step-th element from an offset along each axis, as many as the result has."""

    offsets: tuple[int, ...]
    steps: tuple[int, ...]

    def made_of(self, operands: int) -> Steps:
        """One copy."""
        return Steps(arithmetic=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """All of them inside the operand."""
        if (why := _count(operands, 1) or _per_axis(result, offsets=self.offsets, steps=self.steps)) is not None:
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
        """One copy."""
        return Steps(arithmetic=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The operand's extents times the counts are the result's."""
        if (why := _count(operands, 1) or _per_axis(operands[0], times=self.times)) is not None:
            return why
        tiled = tuple(s * t for s, t in zip(operands[0], self.times, strict=True))
        return None if tiled == result else Misfit(f"a result of {tiled}", f"{result}")


class Gather(Function, frozen=True, tag="gather"):
    """Elements of the first operand along `axis` at the indices that the second holds."""

    axis: int

    def made_of(self, operands: int) -> Steps:
        """One table access per element."""
        return Steps(arithmetic=0, lookups=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """One element, or row, of the result per index."""
        if (why := _count(operands, 2) or _axis(self.axis, operands[0])) is not None:
            return why
        found = _without(operands[0], (self.axis,)) * prod(operands[1])
        return None if found == prod(result) else Misfit(f"a result of {found} elements", f"{result}")


class Arg(Function, frozen=True, tag="arg"):
    """Index of the extreme along `axis` as i32: the first of equals, or the last."""

    OVER_INPUT: ClassVar[bool] = True

    axis: int
    mode: Literal["ArgMax", "ArgMin"]
    select_last: bool = False

    def made_of(self, operands: int) -> Steps:
        """A comparison and a selection over the operand."""
        return Steps(arithmetic=2)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """One index per row."""
        return _reduced(operands, (self.axis,), result)


class GatherElements(Function, frozen=True, tag="gather_elements"):
    """An element of the first operand per index of the second, along `axis`; negative indices count from the end."""

    axis: int

    def made_of(self, operands: int) -> Steps:
        """One table access per element."""
        return Steps(arithmetic=0, lookups=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Data and indices of one rank; the result is as the indices."""
        if (why := _count(operands, 2) or _axis(self.axis, operands[0])) is not None:
            return why
        return _inside(operands[0], operands[1], self.axis) or _alike(operands[1:], result)


class ScatterElements(Function, frozen=True, tag="scatter_elements"):
    """The first operand with the third's elements at the second's indices along `axis`, in place or combined."""

    axis: int
    reduction: Literal["none", "add", "mul", "max", "min"] = "none"

    def made_of(self, operands: int) -> Steps:
        """One access per element, and a step to combine."""
        return Steps(arithmetic=int(self.reduction != "none"), lookups=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Data as the result; indices and updates of one shape."""
        if (why := _alike(operands, result, 3) or _axis(self.axis, operands[0])) is not None:
            return why
        return _inside(operands[0], operands[1], self.axis) or _alike(operands[1:], operands[2], 2)


def _inside(data: Shape, indices: Shape, axis: int) -> Misfit | None:
    """Indices of the data's rank, not longer than it along other axes."""
    if len(data) == len(indices) and all(
        n <= m or a == axis for a, (n, m) in enumerate(zip(indices, data, strict=True))
    ):
        return None
    return Misfit(f"indices of rank {len(data)} not longer than {data} beside axis {axis}", f"{indices}")


class TopK(Function, frozen=True, tag="topk"):
    """Places of the k largest or smallest elements along `axis` as i32, in order; of equals the first."""

    OVER_INPUT: ClassVar[bool] = True

    axis: int
    k: int
    largest: bool = True

    def made_of(self, operands: int) -> Steps:
        """A comparison and two moves over the operand."""
        return Steps(arithmetic=3)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """K places along the axis."""
        if (why := _count(operands, 1) or _axis(self.axis, operands[0])) is not None:
            return why
        wanted = (*operands[0][: self.axis], self.k, *operands[0][self.axis + 1 :])
        return None if wanted == result else Misfit(f"a result of {wanted}", f"{result}")


class Cumulate(Function, frozen=True, tag="cumulate"):
    """Sums or products of all elements up to each place along `axis`."""

    axis: int
    mode: Literal["sum", "prod"] = "sum"
    exclusive: bool = False
    reverse: bool = False

    def made_of(self, operands: int) -> Steps:
        """One step per element."""
        return Steps(arithmetic=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """One operand of the result's shape."""
        return _alike(operands, result) or _axis(self.axis, result)


class Power(Function, frozen=True, tag="power"):
    """The first operand to the power of the second."""

    def made_of(self, operands: int) -> Steps:
        """Logarithm, product, exponential."""
        return Steps(arithmetic=1, series=2)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Two operands that broadcast."""
        return _broadcast(operands, result, 2)


class Remainder(Function, frozen=True, tag="remainder"):
    """The remainder of a division, with the sign of the divisor, or with `fmod` of the dividend."""

    fmod: bool = False

    def made_of(self, operands: int) -> Steps:
        """Divide (5), round, multiply, subtract."""
        return Steps(arithmetic=8)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Two operands that broadcast."""
        return _broadcast(operands, result, 2)


class GridSample(Function, frozen=True, tag="grid_sample"):
    """The first operand (n, c, ...) at the places of the second (n, ..., coordinates), the last axis first."""

    mode: Literal["nearest", "linear", "cubic"]
    padding: Literal["zeros", "border", "reflection"]
    align_corners: bool = False

    def made_of(self, operands: int) -> Steps:
        """Per element 1, 4 or 16 table accesses, each with a product and a sum."""
        taps = {"nearest": 1, "linear": 4, "cubic": 16}[self.mode]
        return Steps(arithmetic=2 * taps, lookups=taps)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """A coordinate per axis behind the channels, a place per element of the result."""
        if (why := _count(operands, 2)) is not None:
            return why
        wanted = (*operands[0][:2], *operands[1][1:-1])
        if operands[1][-1] != len(operands[0]) - 2 or operands[0][0] != operands[1][0]:
            return Misfit(f"places (n, ..., {len(operands[0]) - 2})", f"{operands[1]}")
        return None if wanted == result else Misfit(f"a result of {wanted}", f"{result}")


AnyFunction: TypeAlias = (
    Softmax
    | SoftmaxInt
    | AttentionWeights
    | Attention
    | SoftmaxTables
    | Lrn
    | LrnTables
    | Active
    | LayerNorm
    | GroupNorm
    | Reduce
    | Interp
    | AddInt
    | SubInt
    | MulInt
    | ConstInt
    | SumShift
    | ExtremeShift
    | ReduceInt
    | ConcatShift
    | Concat
    | Reshape
    | Pad
    | Slice
    | Tile
    | Gather
    | Arg
    | GatherElements
    | ScatterElements
    | TopK
    | Cumulate
    | Power
    | Remainder
    | GridSample
)

FUNCTIONS: dict[str, type[Function]] = {str(kind.__struct_config__.tag): kind for kind in get_args(AnyFunction)}
"""Name -> class, as text and programs have it."""
