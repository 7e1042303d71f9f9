"""Forms of matrix products, pools, reductions, softmax and norms."""

from collections.abc import Sequence
from functools import partial
from functools import reduce as reduce_pairs
from math import prod

import numpy as np
from xdsl.dialects.builtin import f32, i8, i32
from xdsl.ir import SSAValue

from tpusim.ir.attrs import ints
from tpusim.ir.types import shape_of, uniform_of
from tpusim.ops.framework.base import is_none
from tpusim.ops.framework.families import is_set, relu_limit_of, relu_of, value_dtype, zero_point
from tpusim.ops.groupnorm import Grouped
from tpusim.ops.layernorm import LayerNorm
from tpusim.ops.lrn import LRN
from tpusim.ops.matmul.product import HEADS, Product
from tpusim.ops.matmul.top import TopMatMul
from tpusim.ops.matmul.tpu import TpuMatMul
from tpusim.ops.norm.batchnorm import TopBatchNorm
from tpusim.ops.norm.top import TopScale
from tpusim.ops.norm.tpu import TpuScale
from tpusim.ops.pixelnorm import TopPixelNorm
from tpusim.ops.pool.top import PoolTop, TopAvgPool
from tpusim.ops.pool.tpu import PoolTpu
from tpusim.ops.reduce import Reduce, TpuReduce
from tpusim.ops.rmsnorm import RMSNorm
from tpusim.ops.softmax import TopLogSoftmax, TopSoftmax, TpuSoftmax
from tpusim.studies.export.tosa.convolutions import Window, convolved, whole_windows
from tpusim.studies.export.tosa.elements import fused_relu, quotient, root
from tpusim.studies.export.tosa.forms import writes
from tpusim.studies.export.tosa.graph import Tensor, longs
from tpusim.studies.export.tosa.walk import Writer, along, from_last, to_last

LONGEST_SUM = 4096
"""Elements that are added up in order, each by an op."""
LARGEST_QUOTIENT = 511
"""Quotients that are larger saturate in any byte."""
SPLIT = float((1 << 12) + 1)
"""Times a number of 24 bits: what separates its upper 12 bits (Veltkamp)."""


def product(op: Product, g: Writer, x: Tensor, w: Tensor, zeros: tuple[int, int] = (0, 0)) -> Tensor:
    """(..., M, N) in f32 or i32, heads before rows."""
    exchanged, (left, right) = op.exchanged, op.transposes
    x = g.transpose(x, HEADS) if exchanged.left else x
    w = g.transpose(w, HEADS) if exchanged.right else w
    x, w = (_turned(g, t) if turn else t for t, turn in ((x, left), (w, right)))
    batch = np.broadcast_shapes(x.shape[:-2], w.shape[:-2])
    rows, columns = x.shape[-2], w.shape[-1]
    if prod(w.shape[:-2]) == 1 and batch == x.shape[:-2]:
        flat = g.reshape(x, (1, prod(batch) * rows, x.shape[-1]))
        pair = flat, g.reshape(w, (1, *w.shape[-2:]))
    else:
        pair = tuple(g.reshape(_batched(g, t, batch), (prod(batch), *t.shape[-2:])) for t in (x, w))
    kind = f32 if x.is_float else i32
    zero_points = (g.zero(f32), g.zero(f32)) if x.is_float else tuple(g.zero(i8, z) for z in zeros)
    shape = (pair[0].shape[0], pair[0].shape[1], columns)
    return g.reshape(g.add("matmul", [*pair, *zero_points], shape, kind), (*batch, rows, columns))


def _turned(g: Writer, x: Tensor) -> Tensor:
    return g.transpose(x, [*range(x.rank - 2), x.rank - 1, x.rank - 2])


def _batched(g: Writer, x: Tensor, batch: Sequence[int]) -> Tensor:
    """A tensor with all matrices of a batch."""
    x = g.reshape(x, (1,) * (len(batch) + 2 - x.rank) + x.shape)
    return g.tile(x, [*(b // size for b, size in zip(batch, x.shape, strict=False)), 1, 1])


@writes(TopMatMul)
def matmul(op: TopMatMul, g: Writer) -> Tensor:
    """MATMUL in f32, and what stands around it."""
    y = product(op, g, g.float(op.input), g.float(op.right))
    if not is_none(op.bias):
        y = g.point("add", y, g.reshape(g.float(op.bias), (1,) * (y.rank - 1) + (prod(shape_of(op.bias)),)))
    return fused_relu(op, g, g.transpose(y, HEADS) if op.exchanged.output else y)


@writes(TpuMatMul)
def matmul_stored(op: TpuMatMul, g: Writer) -> Tensor:
    """MATMUL of bytes with the bias, relu, and RESCALE."""
    if op.scaling is None:
        return matmul(op, g)  # type: ignore[arg-type]
    x, w = g.stored(op.input), g.stored(op.right)
    y = product(op, g, x, w, (-x.offset, -w.offset))
    matrices = op.matrices
    if matrices:
        raise g.refuse("a requant for each matrix of a batch has no counterpart in one RESCALE")
    if not is_none(op.bias):
        bias = g.needed(op.bias, "the bias").astype(np.int32).reshape((1,) * (y.rank - 1) + (-1,))
        y = g.point("add", y, g.const(bias))
    m, r = op.scaling
    factors: int | np.ndarray = m
    if is_set(op.fuse_rq):
        each = g.needed(op.multi[0], "the multipliers") if op.multi else ints(op.attributes["multipliers"])
        factors = np.asarray(each, np.int64).reshape(-1)
    relu, mode = relu_of(op), "QDM" if op.qdm else ""
    if relu and zero_point(op.output):
        y, relu = g.point("maximum", y, g.scalar(0, y.rank, "int32")), False
    y = g.by_mode(y, factors, r, op.output, mode, relu=relu)
    return g.transpose(y, HEADS) if op.exchanged.output else y


# ---------------------------------------------------------------------------------------------------------------- pools


def _max_pool(g: Writer, x: Tensor, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int]) -> Tensor:
    """The largest of each window of x (n, axes ..., c), of a volume in two steps."""
    if len(kernel) == 3:  # noqa: PLR2004
        n, d, h, w, c = x.shape
        y = _max_pool(g, g.reshape(x, (n * d, h, w, c)), kernel[1:], strides[1:], (*pads[1:3], *pads[4:]))
        _, h, w, _ = y.shape
        y = g.reshape(y, (n, d, h * w, c))
        y = _max_pool(g, y, (kernel[0], 1), (strides[0], 1), (pads[0], 0, pads[3], 0))
        return g.reshape(y, (n, y.shape[1], h, w, c))
    x, window = whole_windows(g, x, kernel, Window(tuple(strides), tuple(pads), (1, 1)))
    shape = (x.shape[0], *window.places(x.shape[1:-1], kernel), x.shape[3])
    return g.add(
        "max_pool2d", [x], shape, x.element, x.offset, kernel=longs(kernel), stride=longs(strides), pad=window.padding
    )


def _sums(
    g: Writer, x: Tensor, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int], zero: int
) -> Tensor:
    """The sum of each window of x (n, axes ..., c): a convolution of each channel with ones."""
    channels = x.shape[-1]
    dtype = np.float32 if x.is_float else np.int8
    if len(kernel) == 3:  # noqa: PLR2004
        n, d, h, w, c = x.shape
        y = g.reshape(g.transpose(x, (0, 4, 1, 2, 3)), (n * c, d, h, w, 1))
        window = Window(tuple(strides), tuple(pads), (1, 1, 1))
        y = convolved(g, y, np.ones((1, 1, *kernel), dtype), None, window, zero)
        return g.transpose(g.reshape(y, (n, c, *y.shape[1:4])), (0, 2, 3, 4, 1))
    window = Window(tuple(strides), tuple(pads), (1, 1), channels)
    return convolved(g, x, np.ones((channels, 1, *kernel), dtype), None, window, zero)


def _counts(shape: Sequence[int], kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int]) -> np.ndarray:
    """How many elements of each window are no padding, (1, places ..., 1)."""
    count = np.ones((1,) * (len(kernel) + 2), np.int64)
    for axis, size in enumerate(shape):
        starts = np.arange((size + pads[axis] + pads[len(kernel) + axis] - kernel[axis]) // strides[axis] + 1)
        starts = starts * strides[axis] - pads[axis]
        inside = np.minimum(starts + kernel[axis], size) - np.maximum(starts, 0)
        count = count * along(np.maximum(inside, 0), len(kernel) + 2, 1 + axis)
    return np.maximum(count, 1)


def _divisors(op: "PoolTop | PoolTpu", shape: Sequence[int]) -> np.ndarray:
    """The number of averaged elements of each window, one number where they are equal."""
    kernel, strides, pads = _window(op)
    counted = op.attributes.get("count_include_pad")
    if is_set(counted) or not any(pads):  # type: ignore[arg-type]
        return np.full((1,) * (len(kernel) + 2), prod(kernel), np.int64)
    return _counts(shape, kernel, strides, pads)


def _window(op: "PoolTop | PoolTpu") -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Kernel, strides and pads."""
    return ints(op.attributes["kernel_shape"]), ints(op.attributes["strides"]), ints(op.attributes["pads"])


def _last(g: Writer, x: Tensor) -> Tensor:
    return g.transpose(x, to_last(x))


def _first(g: Writer, y: Tensor, value: SSAValue) -> Tensor:
    return g.reshape(g.transpose(y, from_last(y.rank)), shape_of(value))


@writes(PoolTop)
def pool(op: PoolTop, g: Writer) -> Tensor:
    """MAX_POOL2D, or sums divided by counts."""
    x = _last(g, g.float(op.input))
    window = _window(op)
    if isinstance(op, TopAvgPool):
        counts = _divisors(op, x.shape[1:-1])
        y = g.mul(_sums(g, x, *window, 0), g.const((1 / counts).astype(np.float32)))
    else:
        y = _max_pool(g, x, *window)
    return fused_relu(op, g, _first(g, y, op.output))


@writes(PoolTpu)
def pool_stored(op: PoolTpu, g: Writer) -> Tensor:
    """Of bytes: MAX_POOL2D, or exact sums, the rounded quotient where counts differ, and RESCALE."""
    window = _window(op)
    if op.pool_mode.data == "Max":
        x = g.stored(op.input)
        y = _max_pool(g, _last(g, x), *window)
        if relu_of(op):
            y = g.relu(y, relu_limit_of(op)) if y.is_float else g.clamp(y, max(-y.offset, -128), 127)
        return _first(g, y, op.output)
    if uniform_of(op.input) is None:
        x = _last(g, g.float(op.input))
        y = g.mul(_sums(g, x, *window, 0), g.const((1 / _divisors(op, x.shape[1:-1])).astype(np.float32)))
        return _first(g, fused_relu(op, g, y), op.output)
    if op.scaling is None or op.scale is not None:
        raise g.refuse("an average with a factor in f64 is required on this chip, which TOSA does not have")
    x = _last(g, g.stored(op.input))
    y, count, size = _sums(g, x, *window, -x.offset), _divisors(op, x.shape[1:-1]), prod(window[0])
    if op.half_up:
        limit = 1 << 24
        if 255 * size * op.scaling[0] >= limit:
            raise g.refuse("an average of so many elements is rounded in f32 on this chip, which integers cannot say")
    if not (count == size).all():
        y = _ratio(g, y, size, count, half_up=op.half_up)
    return _first(g, g.requantised(y, *op.scaling, op.output, relu=relu_of(op)), op.output)


def _ratio(g: Writer, x: Tensor, size: int, count: np.ndarray, *, half_up: bool) -> Tensor:
    """The quotient x * size / count of i32, halves away from zero or up."""
    bound = 255 * size
    if 2 * bound * size + count.max() >= 1 << 31:
        raise g.refuse(f"an average over {size} elements with pads leaves 32 bits")
    twice, half = g.const((2 * count).astype(np.int32)), g.const(count.astype(np.int32))
    doubled = g.mul(x, g.scalar(2 * size, x.rank, "int32"))
    if half_up:  # floor((2a + b) / 2b), all moved above 0 by a whole number
        lift = 2 * count * (bound + 1)
        if 2 * int(lift.max()) >= 1 << 31:
            raise g.refuse(f"an average over {size} elements with pads leaves 32 bits")
        lifted = g.point("add", g.point("add", doubled, half), g.const(lift.astype(np.int32)))
        return g.point("sub", g.point("intdiv", lifted, twice), g.scalar(bound + 1, x.rank, "int32"))
    magnitude = g.point("intdiv", g.point("add", g.point("abs", doubled), half), twice)
    zero = g.scalar(0, x.rank, "int32")
    negative = g.point("greater", zero, x, element=g.BOOL)
    return g.point("select", negative, g.point("sub", zero, magnitude), magnitude)


# ----------------------------------------------------------------------------------------------------------- reductions


def _total(g: Writer, kind: str, x: Tensor, axes: Sequence[int]) -> Tensor:
    for axis in axes:
        x = g.reduce(kind, x, axis)
    return x


def mean(g: Writer, x: Tensor, axes: Sequence[int]) -> Tensor:
    """The mean along axes, which stay with one element."""
    return g.scale(_total(g, "sum", x, axes), 1 / prod(x.shape[a] for a in axes))


REDUCTIONS = {"ReduceSum": "sum", "ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "product", "ReduceL1": "sum"}


@writes(Reduce)
def reduce(op: Reduce, g: Writer) -> Tensor:
    """Reductions along axes, one after another."""
    mode, axes = op.mode.data, ints(op.axes)
    if isinstance(op, TpuReduce) and op.scaling is not None:
        return _reduce_stored(op, g)
    x = g.float(op.input)
    if mode == "ReduceMean":
        y = mean(g, x, axes)
    elif mode == "ReduceL2":
        y = root(g, _total(g, "sum", g.mul(x, x), axes))
    else:
        y = _total(g, REDUCTIONS[mode], g.point("abs", x) if mode == "ReduceL1" else x, axes)
    return g.reshape(y, shape_of(op.results[0]))


def _reduce_stored(op: TpuReduce, g: Writer) -> Tensor:
    """Exact sums or extremes of bytes, and RESCALE while products are exact in f32."""
    mode, axes, x = op.mode.data, ints(op.axes), g.integers(op.input, 0)
    assert op.scaling is not None
    m, r = op.scaling
    bound = 128 * (1 if mode in ("ReduceMax", "ReduceMin") else prod(x.shape[a] for a in axes))
    if bound * abs(m) >= 1 << 24:
        raise g.refuse("a reduction of so many elements is rounded in f32 on this chip, which integers cannot say")
    kind = {"ReduceMean": "sum", **REDUCTIONS}[mode]
    y = _total(g, kind, g.point("abs", x) if mode == "ReduceL1" else x, axes)
    return g.reshape(g.narrowed(g.scaled(y, m, r), op.output, 0), shape_of(op.output))


@writes(TopSoftmax, TopLogSoftmax)
def softmax(op: "TopSoftmax | TopLogSoftmax", g: Writer) -> Tensor:
    """exp(x - maximum) over its sum, or the logarithm of that."""
    return softmax_of(g, g.float(op.input), op.axis.value.data, op.LOG)


def softmax_of(g: Writer, x: Tensor, axis: int, log: bool) -> Tensor:
    """Softmax of f32 along an axis, or its logarithm."""
    x = g.point("sub", x, g.reduce("max", x, axis))
    powers = g.point("exp", x)
    total = g.reduce("sum", powers, axis)
    return g.point("sub", x, g.point("log", total)) if log else quotient(g, powers, total)


@writes(TpuSoftmax)
def softmax_stored(op: TpuSoftmax, g: Writer) -> Tensor:
    """In floats, or of bytes. Raises UnsupportedError for tables of 16-bit floats."""
    if uniform_of(op.output) is not None:
        return _softmax_of_bytes(op, g)
    if not is_none(op.operands[1]):
        raise g.refuse("tables of 16-bit floats with slopes between entries have no counterpart")
    if op.beta is not None and op.beta.value.data != 1:
        raise g.refuse("a factor of 1 is required")
    return softmax_of(g, g.float(op.input), op.axis.value.data, is_set(op.log))


def _softmax_of_bytes(op: TpuSoftmax, g: Writer) -> Tensor:
    """round(t / (S * scale)) (numerics.md 11.1): t from a table, S their sum in order, the quotient rounded once."""
    x, axis, uniform = g.integers(op.input, 0), op.axis.value.data, uniform_of(op.output)
    assert uniform is not None
    if x.shape[axis] > LONGEST_SUM:
        raise g.refuse(f"a sum of at most {LONGEST_SUM} elements in order is required, got {x.shape[axis]}")
    index = g.point("sub", g.reduce("max", x, axis), x)
    table = g.const(g.needed(op.operands[1], "the table").astype(np.float32).reshape(1, -1, 1))
    flat = g.reshape(index, (1, prod(x.shape)))
    powers = g.reshape(g.add("gather", [table, flat], (1, prod(x.shape), 1), f32), x.shape)
    total = _sum_in_order(g, powers, axis)
    rounded = rounded_quotient(g, powers, g.scale(total, float(np.float32(uniform.scale.data))))
    return g.narrowed(g.cast(rounded, i32), op.output)


def _sum_in_order(g: Writer, x: Tensor, axis: int) -> Tensor:
    """The sum along an axis, element after element."""
    sizes = [1 if a == axis else size for a, size in enumerate(x.shape)]
    parts = (g.slice(x, [i if a == axis else 0 for a in range(x.rank)], sizes) for i in range(x.shape[axis]))
    return reduce_pairs(partial(g.point, "add"), parts)


def rounded_quotient(g: Writer, t: Tensor, d: Tensor) -> Tensor:
    """X / d as f32 rounds it, rounded to an integer, halves up, for quotients of at most 2^8; in f32.

    TOSA has no division. An estimate k is one off at most. The quotient reaches c = k - 1/2 or k + 1/2 if t - d*c,
    whose sign is exact with d in two halves, is not below -d times half the distance of c to the float before it.
    """
    guess = g.point("floor", g.shift(g.mul(t, g.point("reciprocal", d)), 0.5))
    guess = g.clamp(guess, 0.0, float(LARGEST_QUOTIENT))
    wide = g.scale(d, SPLIT)
    high = g.point("sub", wide, g.point("sub", wide, d))
    low = g.point("sub", d, high)
    place = g.reshape(g.cast(guess, i32), (1, prod(guess.shape)))
    found = g.shift(guess, -1.0)
    for step in (-0.5, 0.5):
        border = g.shift(guess, step)
        rest = g.point("sub", g.point("sub", t, g.mul(high, border)), g.mul(low, border))
        gaps = g.const(_gaps(step).reshape(1, -1, 1))
        gap = g.reshape(g.add("gather", [gaps, place], (1, prod(guess.shape), 1), f32), guess.shape)
        reached = g.point("greater_equal", rest, g.scale(g.mul(d, gap), -1.0), element=g.BOOL)
        found = g.point("add", found, g.real(reached))
    return found


def _gaps(step: float) -> np.ndarray:
    """Half the distance of k + step to the float before it, for each k; for a negative one more than any rest."""
    borders = np.arange(LARGEST_QUOTIENT + 1, dtype=np.float32) + np.float32(step)
    before = np.nextafter(borders, np.float32(-np.inf))
    return np.where(borders > 0, (borders - before) / 2, np.float32(1)).astype(np.float32)


# ---------------------------------------------------------------------------------------------------------------- norms


@writes(TopScale)
def scale(op: TopScale, g: Writer) -> Tensor:
    """A factor and a term for each channel."""
    x = g.float(op.input)
    y = g.mul(x, _channels(g, op.scale, x.rank))
    return fused_relu(op, g, y if is_none(op.bias) else g.point("add", y, _channels(g, op.bias, x.rank)))


@writes(TpuScale)
def scale_stored(op: TpuScale, g: Writer) -> Tensor:
    """The sum q * m + b, shifted right without rounding."""
    if uniform_of(op.output) is None:
        return scale(op, g)  # type: ignore[arg-type]
    _, scales, biases, shifts = op.operands
    m, b = (g.needed(v, "a factor or term").reshape(-1).astype(np.int32) for v in (scales, biases))
    r = g.needed(shifts, "the shift").reshape(-1)
    r = -r.astype(np.int32) if r.dtype.itemsize == 1 else r.astype(np.int32)
    if (r < 0).any():
        raise g.refuse("shifts to the right are required")
    x = g.integers(op.operands[0], 0)
    y = g.point("add", g.mul(x, g.const(along(m, x.rank, 1))), g.const(along(b, x.rank, 1)))
    if is_set(op.clamp16):
        ends = np.iinfo("int16" if value_dtype(op.output) == "int8" else "uint16")
        y = g.point(
            "minimum", g.point("maximum", y, g.scalar(ends.min, y.rank, "int32")), g.scalar(ends.max, y.rank, "int32")
        )
    y = g.point("arithmetic_right_shift", y, g.const(along(r, x.rank, 1)), round=g.FALSE)
    return g.narrowed(y, op.output, relu=relu_of(op)) if not zero_point(op.output) else _with_zero(op, g, y)


def _with_zero(op: TpuScale, g: Writer, y: Tensor) -> Tensor:
    y = g.point("add", y, g.scalar(zero_point(op.output), y.rank, "int32"))
    y = g.point("maximum", y, g.scalar(0, y.rank, "int32")) if relu_of(op) else y
    return g.narrowed(y, op.output, 0)


def _channels(g: Writer, value: SSAValue, rank: int) -> Tensor:
    """A parameter (C,) along axis 1."""
    return g.reshape(g.float(value), (1, prod(shape_of(value)), *(1,) * (rank - 2)))


@writes(TopBatchNorm)
def batch_norm(op: TopBatchNorm, g: Writer) -> Tensor:
    """A factor and a term for each channel, of constants."""
    x = g.float(op.input)
    gamma, beta, middle, variance = (
        g.needed(v, "a parameter").astype(np.float64).reshape(-1) for v in (op.gamma, op.beta, op.mean, op.variance)
    )
    factor = gamma / np.sqrt(variance + op.epsilon.value.data)
    term = beta - middle * factor
    y = g.mul(x, g.const(along(factor.astype(np.float32), x.rank, 1)))
    return g.point("add", y, g.const(along(term.astype(np.float32), x.rank, 1)))


def normalised(g: Writer, x: Tensor, axes: Sequence[int], eps: float) -> Tensor:
    """The distance from the mean along axes over the root of the mean square."""
    centred = g.point("sub", x, mean(g, x, axes))
    return over_root(g, centred, axes, eps)


def over_root(g: Writer, x: Tensor, axes: Sequence[int], eps: float) -> Tensor:
    """Divide x by the root of its mean square."""
    return g.mul(x, g.point("rsqrt", g.shift(mean(g, g.mul(x, x), axes), eps)))


def _with(g: Writer, y: Tensor, weight: SSAValue | None, bias: SSAValue | None, shape: Sequence[int]) -> Tensor:
    """A tensor times a parameter and plus another, each in a shape; a missing one changes nothing."""
    for kind, value in (("mul", weight), ("add", bias)):
        if value is not None and not is_none(value):
            parameter = g.reshape(g.float(value), shape)
            y = g.mul(y, parameter) if kind == "mul" else g.point("add", y, parameter)
    return y


@writes(LayerNorm)
def layer_norm(op: LayerNorm, g: Writer) -> Tensor:
    """The norm of the axes from one on."""
    x, first = g.float(op.input), op.axis.value.data
    y = normalised(g, x, range(first, x.rank), op.eps.value.data)
    return _with(g, y, op.weight, op.bias, x.shape[first:])


@writes(RMSNorm)
def rms_norm(op: RMSNorm, g: Writer) -> Tensor:
    """The quotient by the root of the mean of squares, times gamma."""
    x = g.float(op.input)
    y = over_root(g, x, range(op.first_axis, x.rank), op.eps.value.data)
    return y if is_none(op.gamma) else g.mul(y, g.float(op.gamma))


@writes(Grouped)
def group_norm(op: Grouped, g: Writer) -> Tensor:
    """The norm of each group of channels."""
    x = g.float(op.input)
    batch, channels, *image = x.shape
    y = g.reshape(x, (batch, op.groups, prod(x.shape[1:]) // op.groups))
    y = g.reshape(normalised(g, y, (2,), op.eps.value.data), x.shape)
    return _with(g, y, op.weight, op.bias, (1, channels, *(1,) * len(image)))


@writes(TopPixelNorm)
def pixel_norm(op: TopPixelNorm, g: Writer) -> Tensor:
    """The norm over axis 1."""
    x = g.float(op.input)
    y = normalised(g, x, (1,), op.eps.value.data)
    return _with(g, y, op.weight, op.bias, (1, x.shape[1], *(1,) * (x.rank - 2)))


@writes(LRN)
def lrn(op: LRN, g: Writer) -> Tensor:
    """Divide x by a power of the mean square of neighbouring channels."""
    x, constants = g.float(op.input), op.constants
    size = int(constants["size"])
    last = _last(g, g.mul(x, x))
    before = (size - 1) // 2
    channels = x.shape[1]
    band = np.zeros((channels, channels), np.float32)
    for c in range(channels):
        band[max(c - before, 0) : min(c + size - before, channels), c] = 1
    flat = g.reshape(last, (1, prod(last.shape[:-1]), channels))
    total = g.add("matmul", [flat, g.const(band[None]), g.zero(f32), g.zero(f32)], flat.shape, f32)
    total = g.transpose(g.reshape(total, last.shape), from_last(x.rank))
    base = g.shift(g.scale(total, constants["alpha"] / size), constants["bias"])
    return g.mul(x, g.point("pow", base, g.scalar(-constants["beta"], x.rank)))
