"""Forms of ops that compute bytes element by element (numerics.md 8 and 9), and of casts."""

import numpy as np
from xdsl.dialects.builtin import bf16, f32, i8, i32

from tpusim.ir.attrs import ints
from tpusim.ir.types import uniform_of
from tpusim.ops.activation.slope import TpuLeakyRelu, TpuPRelu
from tpusim.ops.activation.tpu import TpuActive, TpuLut
from tpusim.ops.add import TpuAdd
from tpusim.ops.cast import TpuCast
from tpusim.ops.const_binary.base import reversed_
from tpusim.ops.const_binary.tpu import ConstTpu
from tpusim.ops.framework.families import relu_limit_of, relu_of, value_dtype
from tpusim.ops.minmax import ExtremeTpu
from tpusim.ops.mul import TpuMul
from tpusim.ops.relu import TpuRelu
from tpusim.ops.requant_axis import TpuRequantIntAxis
from tpusim.ops.rescale import TpuMulShift, TpuRequantInt
from tpusim.ops.sub import TpuSub
from tpusim.studies.export.tosa.elements import BINARY, fused_relu, leaky_relu, prelu, two
from tpusim.studies.export.tosa.forms import writes
from tpusim.studies.export.tosa.graph import Tensor
from tpusim.studies.export.tosa.walk import Writer, from_last, to_last


def combined(g: Writer, kind: str, terms: list[Tensor]) -> Tensor:
    """Terms from left to right."""
    y, *rest = terms
    for term in rest:
        y = two(g, kind, y, term)
    return y


def of_floats(op: "TpuAdd | TpuSub | TpuMul | ExtremeTpu", g: Writer, kind: str) -> Tensor:
    """Floats from left to right, and relu."""
    return fused_relu(op, g, combined(g, kind, [g.float(v) for v in op.inputs]))


def weighed(op: "TpuAdd | TpuSub", g: Writer, weights: tuple[int, ...], shift: int) -> Tensor:
    """The sum of integers times weights, requantised once."""
    g.require_exact(sum(255 * abs(w) for w in weights))
    terms = [g.times(g.integers(v, 0), w) for v, w in zip(op.inputs, weights, strict=True)]
    return g.requantised(combined(g, "add", terms), 1, shift, op.output, relu=relu_of(op))


def finished(op: "TpuAdd | TpuSub", g: Writer, y: Tensor) -> Tensor:
    """Relu before the zero point, and saturation."""
    return g.narrowed(y, op.output, relu=relu_of(op))


@writes(TpuAdd)
def add(op: TpuAdd, g: Writer) -> Tensor:
    """Each operand is scaled and rounded before the sum."""
    if value_dtype(op.output) == "int32":
        return g.narrowed(combined(g, "add", [g.integers(v, 0) for v in op.inputs]), op.output, 0, relu=relu_of(op))
    if op.multipliers is None or op.rshifts is None:
        difference = op.is_difference
        return of_floats(op, g, "sub" if difference else "add")
    ms, rs = ints(op.multipliers), ints(op.rshifts)
    if len(rs) < len(ms):
        return weighed(op, g, ms, rs[0])
    terms = [g.scaled(g.integers(v), m, r) for v, m, r in zip(op.inputs, ms, rs, strict=True)]
    return finished(op, g, combined(g, "add", terms))


@writes(TpuSub)
def sub(op: TpuSub, g: Writer) -> Tensor:
    """Each operand is scaled and rounded before the difference."""
    if op.scaling is None:
        return of_floats(op, g, "sub")
    weights = op.weights
    if weights is not None:
        return weighed(op, g, tuple(weights), op.scaling[0][1])
    terms = [g.scaled(g.integers(v, 0), m, r) for v, (m, r) in zip(op.inputs, op.scaling, strict=True)]
    return g.narrowed(combined(g, "sub", terms), op.output, 0, relu=relu_of(op))


@writes(TpuMul)
def mul(op: TpuMul, g: Writer) -> Tensor:
    """The product of all operands, relu, and one requant."""
    if op.scaling is None:
        return of_floats(op, g, "mul")
    if 255 ** len(op.inputs) >= 1 << 31:
        raise g.refuse(f"a product of {len(op.inputs)} bytes leaves the 32 bits of TOSA's MUL")
    y = combined(g, "mul", [g.integers(v) for v in op.inputs])
    m, r = op.scaling
    if relu_of(op):
        y = g.point("maximum", y, g.scalar(0, y.rank, "int32"))
    return g.by_mode(y, m, r, op.output, "QDM" if op.qdm else "")


@writes(ExtremeTpu)
def extreme(op: ExtremeTpu, g: Writer) -> Tensor:
    """MAXIMUM or MINIMUM of integers, scaled first on some chips."""
    kind = BINARY[op.KIND]
    if uniform_of(op.output) is None:
        return of_floats(op, g, kind)
    terms = [g.integers(v, 0) for v in op.inputs]
    if op.scaling is not None:
        ms, shift = op.scaling
        g.require_exact(255 * max(map(abs, ms)))
        terms = [g.scaled(g.times(t, m), 1, shift) for t, m in zip(terms, ms, strict=True)]
    return g.narrowed(combined(g, kind, terms), op.output, 0, relu=relu_of(op))


@writes(ConstTpu)
def with_constant(op: ConstTpu, g: Writer) -> Tensor:
    """The product q * m combined with an integer, shifted right, relu, saturated."""
    relu = relu_of(op)
    if op.scaling is None:
        x = g.float(op.input)
        pair = [x, g.scalar(op.const_val.value.data, x.rank)]
        return fused_relu(op, g, two(g, BINARY[op.KIND], *(pair[::-1] if reversed_(op) else pair)))
    m, r = op.scaling
    if op.KIND == "mul":
        return g.requantised(g.integers(op.input), m, r, op.output, relu=relu)
    x = g.times(g.integers(op.input, 0), m)
    pair = [x, g.scalar(op.constant, x.rank, "int32")]
    y = two(g, BINARY[op.KIND], *(pair[::-1] if reversed_(op) else pair))
    if op.KIND == "sub":
        y = g.point("maximum", y, g.scalar(0, y.rank, "int32")) if relu else y
        return g.narrowed(g.scaled(y, 1, r), op.output, relu=relu)
    return g.narrowed(g.scaled(y, 1, r), op.output, 0, relu=relu)


@writes(TpuMulShift)
def mul_shift(op: TpuMulShift, g: Writer) -> Tensor:
    """One RESCALE, halves up."""
    return g.requantised(g.integers(op.input), *op.scaling, op.output)


@writes(TpuRequantInt)
def requant(op: TpuRequantInt, g: Writer) -> Tensor:
    """RESCALE of magnitudes, because halves go away from zero."""
    return g.requantised(g.integers(op.input), *op.scaling, op.output, away=True)


@writes(TpuRequantIntAxis)
def requant_axis(op: TpuRequantIntAxis, g: Writer) -> Tensor:
    """The same along the channels."""
    x, table = g.integers(op.operands[0], 0), g.array(op.operands[1])
    m, r = op.constants() if table is None else op.unpacked(table)
    y = g.requantised(g.transpose(x, to_last(x)), m, r, op.output, away=True)
    return g.transpose(y, from_last(x.rank))


@writes(TpuLut)
def lut(op: TpuLut, g: Writer) -> Tensor:
    """TABLE, whose first entry is that of the smallest stored byte."""
    x, table = g.stored(op.input), g.needed(op.operands[1], "the table")
    if table.dtype.itemsize == 4:  # noqa: PLR2004  TPU-MLIR may state a byte in each word
        table = table.astype("uint8").view(value_dtype(op.output))
    if table.dtype.itemsize != 1:
        raise g.refuse(f"a table of bytes is required, got {table.dtype}")
    entries = table.reshape(-1)
    ordered = entries if x.offset else np.roll(entries, 128)
    constant = g.const(ordered)
    return g.point("table", x, element=i8, offset=constant.offset, more=[constant.value])


@writes(TpuActive)
def active(op: TpuActive, g: Writer) -> Tensor:
    """The magnitude of bytes; of floats the op of TOSA."""
    mode, coeffs = op.function
    if uniform_of(op.output) is None:
        raise g.refuse(f"a float function {mode} is computed in f64 here, which TOSA does not have")
    y = g.point("abs", g.integers(op.input, 0))
    if coeffs:
        y = g.point("minimum", y, g.scalar(int(coeffs[0]), y.rank, "int32"))
    elif value_dtype(op.output) == "int8":  # |-128| is -128
        y = g.point("select", g.point("greater", y, g.scalar(127, y.rank, "int32"), element=g.BOOL), g.times(y, -1), y)
    return g.narrowed(y, op.output, 0)


@writes(TpuLeakyRelu)
def leaky(op: TpuLeakyRelu, g: Writer) -> Tensor:
    """Negative integers are scaled, the others too on some chips."""
    if op.multiplier is None or op.rshift is None:
        return leaky_relu(op, g)  # type: ignore[arg-type]
    negative = op.negative
    pair = op.multiplier.value.data, op.rshift.value.data
    return _sloped(op, g, *((pair, negative) if negative is not None else ((1, 0), pair)))


@writes(TpuPRelu)
def parametric(op: TpuPRelu, g: Writer) -> Tensor:
    """The same with a slope for each channel."""
    if uniform_of(op.output) is None or op.rshift is None:
        return prelu(op, g)  # type: ignore[arg-type]
    slopes = g.needed(op.operands[1], "the slope").reshape(-1).astype(np.int64)
    positive = op.positive
    return _sloped(op, g, positive or (1, 0), (slopes, op.rshift.value.data))


def _sloped(
    op: "TpuLeakyRelu | TpuPRelu", g: Writer, positive: tuple[int, int], negative: "tuple[int | np.ndarray, int]"
) -> Tensor:
    """The sum of both scaled parts, of which one is 0: a selection by sign, without bits, which MLIR cannot store."""
    x = g.integers(op.input, 0)
    by_channel = isinstance(negative[0], np.ndarray)
    x = g.transpose(x, to_last(x)) if by_channel else x
    zero = g.scalar(0, x.rank, "int32")
    above, below = g.point("maximum", x, zero), g.point("minimum", x, zero)
    y = g.point("add", g.scaled(above, *positive), g.scaled(below, *negative))
    return g.narrowed(g.transpose(y, from_last(x.rank)) if by_channel else y, op.output, 0)


@writes(TpuRelu)
def relu(op: TpuRelu, g: Writer) -> Tensor:
    """At least 0, in the result's type."""
    if uniform_of(op.output) is None:
        limit = relu_limit_of(op)
        return g.relu(g.float(op.input), limit if limit > 0 else -1.0)
    x = g.integers(op.input, 0)
    if op.multiplier is not None and op.rshift is not None:
        x = g.scaled(x, op.multiplier.value.data, op.rshift.value.data)
    return g.narrowed(x, op.output, 0, relu=True)


@writes(TpuCast)
def cast(op: TpuCast, g: Writer) -> Tensor:
    """Numbers to integers, halves away from zero, and integers to numbers."""
    source, target = uniform_of(op.input), uniform_of(op.output)
    chip = g.chip
    assert chip is not None
    if target is not None and source is None:
        if op.in_bf16(chip):
            raise g.refuse("a quantisation in bf16 rounds halves to even twice; export a network whose host quantises")
        factor = float(op.reciprocal(target, chip))
        x = g.through(g.scale(g.float(op.input), factor), op.input)
        return g.narrowed(g.cast(g.rounded_away(x), i32), op.output)
    if value_dtype(op.output) == "int32":
        return g.integers(op.input, 0)
    if source is not None:
        step = float(op.step(source, chip))
        y = g.scale(g.real(g.integers(op.input)), step)
        return g.cast(g.cast(y, bf16), f32) if chip.hardware.bf16_unit else y
    if not op.as_interpreter or op.truncates(chip):
        raise g.refuse("a narrowing of floats that does not round halves to even has no counterpart")
    return g.float(op.input)
