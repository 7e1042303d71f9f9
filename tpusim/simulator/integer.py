"""Integer arithmetic of the chip in 64 bits: rounding right shift, requant, saturation (numerics.md 4.1 to 4.4)."""

import numpy as np

from tpusim.errors import SimulationError, option
from tpusim.isa.commands import Command, Requant, Rounding
from tpusim.isa.region import FLOATS, DType, is_packed, numpy_dtype

INT32_MAX = 2**31 - 1
_LEFT_GUARD = 62


def limits(dtype: DType) -> tuple[int, int]:
    """Smallest and largest value of an integer dtype."""
    if is_packed(dtype):
        return (-8, 7) if dtype == "i4" else (0, 15)
    info = np.iinfo(numpy_dtype(dtype))
    return int(info.min), int(info.max)


def finite_bf16(values: np.ndarray) -> np.ndarray:
    """f32 to finite bf16: half to even on the upper 16 bits, then infinities and NaN become 0x7f7f (8.2)."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    upper = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) & 0xFFFF
    upper = np.where((upper & 0x7F80) == 0x7F80, 0x7F7F, upper)
    return upper.astype(np.uint16).view(numpy_dtype("bf16"))


def narrowed(values: np.ndarray, dtype: DType, *, finite: bool = False) -> np.ndarray:
    """f32 to a narrower float, half to even (numerics.md 8.2, 8.3).

    f16, f8e5m2: overflow to infinity, subnormals kept. bf16: f32 subnormals flush to signed zero, except those that
    round to the smallest normal number; finite: as `finite_bf16`.
    """
    if finite and dtype == "bf16":
        return finite_bf16(values)
    with np.errstate(over="ignore"):
        found = values.astype(np.float32).astype(numpy_dtype(dtype))
    if dtype == "bf16":
        tiny = np.abs(found.astype(np.float32)) < np.finfo(np.float32).tiny
        found = np.where(tiny, np.copysign(np.float32(0), values).astype(found.dtype), found)
    return found


def is_float(dtype: DType) -> bool:
    """Whether a command dtype is a float type."""
    return dtype in FLOATS


def _shift_left(values: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Values * 2**shift, limited to 64 bits; larger values saturate in every output type anyway."""
    bound = np.int64(1) << np.maximum(_LEFT_GUARD - shift, 0)
    return np.clip(values, -bound, bound) << np.minimum(shift, _LEFT_GUARD)


def rounding_shift(values: np.ndarray, shift: int | np.ndarray, rounding: Rounding) -> np.ndarray:
    """RSR of numerics.md 4.3 on int64; a negative shift is a left shift, above 63 counts as 63."""
    amount = np.asarray(shift, np.int64)
    if (amount < 0).any():
        values = _shift_left(values, np.maximum(-amount, 0))
    right = np.clip(amount, 0, 63)
    if rounding == "down":
        return values >> right
    some = (right > 0).astype(np.int64)
    # One bit more than the result, plus one, halved: floor(v / 2**r + 1/2) without overflow.
    half_up = values >> (right - some)
    half_up += some
    half_up >>= some
    if rounding == "half_up":
        return half_up
    tie = (some > 0) & ((values - (half_up << right)) == -(some << np.maximum(right - 1, 0)))
    if rounding == "half_away":
        return half_up - (tie & (values < 0))
    return half_up - (tie & ((half_up & 1) == 1))


def saturate(values: np.ndarray, dtype: DType, *, floor: int | None = None) -> np.ndarray:
    """Clamp to the range of `dtype` (and to at least `floor`), then convert."""
    low, high = limits(dtype)
    if floor is not None:
        low = min(max(low, floor), high)
    return np.clip(values, low, high).astype(numpy_dtype(dtype))


def doubling_multiply(values: np.ndarray, multiplier: int | np.ndarray, shift: int | np.ndarray) -> np.ndarray:
    """QDM (numerics.md 5.2, 5.5): values * m / 2**31, half up and inside int32, then / 2**shift, half away."""
    upper = rounding_shift(values * np.asarray(multiplier, np.int64), 31, "half_up")
    return rounding_shift(np.clip(upper, -INT32_MAX - 1, INT32_MAX), shift, "half_away")


def float_multiply(values: np.ndarray, multiplier: int, shift: int) -> np.ndarray:
    """MultiplierShift in f32 (numerics.md 4.4): f32(values) * m rounded to f32, / 2**shift exact, half up.

    An f32 of 2**24 or more is an integer, so everything after the one rounding is integer arithmetic.
    """
    product = values.astype(np.float32) * np.float32(multiplier)
    return rounding_shift(product.astype(np.int64), shift, "half_up")


def requantize(values: np.ndarray, requant: Requant, dtype: DType, *, relu: bool = False) -> np.ndarray:
    """sat(RSR(values * m, r) + z), or by the requant's mode; relu acts at the zero point, after the requant."""
    if requant.mode == "qdm":
        scaled = doubling_multiply(values, requant.multiplier, requant.rshift)
    elif requant.mode == "f32":
        scaled = float_multiply(values, requant.multiplier, requant.rshift)
    else:
        scaled = rounding_shift(values * np.int64(requant.multiplier), requant.rshift, requant.rounding)
    zero = requant.zero_point
    return saturate(scaled + zero if zero else scaled, dtype, floor=zero if relu else None)


def channel_parameters(table: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(multiplier, right shift, zero point) per channel, for a tensor of `rank` axes with the channels on axis 1.

    A row of the table (1, c, 1, words) is (multiplier, -rshift, zero point), or two words: multiplier and, packed,
    -rshift in the low byte and the zero point in the high half (hardware.md 2.3, numerics.md 6).
    """
    words = table.reshape(table.shape[1], -1).astype(np.int64)
    multiplier, left, zero = words[:, 0], words[:, 1], words[:, -1]
    if words.shape[1] == 2:
        left, zero = (left & 0xFF).astype(np.uint8).view(np.int8).astype(np.int64), zero >> 16
    shape = (-1, *(1,) * (rank - 2))
    return multiplier.reshape(shape), -left.reshape(shape), zero.reshape(shape)


def check_accumulator(values: np.ndarray, command: Command) -> np.ndarray:
    """The int32 accumulator never wraps (DN-03). Raises SimulationError on overflow."""
    if values.size and (int(values.max()) > INT32_MAX or int(values.min()) < -INT32_MAX - 1):
        raise SimulationError(
            f"{command.label}: the accumulator reaches {int(np.abs(values).max()):,}, the chip's int32 ends at "
            f"{INT32_MAX:,}; run the op in float ({option('qtable', 'NAME:F16')}), use a narrower bias or "
            "split the reduction"
        )
    return values


def round_half_away(values: np.ndarray) -> np.ndarray:
    """Round floats half away from zero, as float64; exact for every f32 (numerics.md 4.1)."""
    wide = values.astype(np.float64)
    return np.copysign(np.floor(np.abs(wide) + 0.5), wide)


def float_to_integer(values: np.ndarray, zero_point: int, dtype: DType) -> np.ndarray:
    """Saturate already rounded floats plus a zero point; NaN counts as 0 (DN-19)."""
    low, high = limits(dtype)
    return np.clip(np.nan_to_num(values, nan=0.0) + zero_point, low, high).astype(numpy_dtype(dtype))
