"""Integer arithmetic of the chip in 64 bits: rounding right shift, requant, saturation (numerics.md 4.1 to 4.4)."""

import numpy as np

from tpusim.errors import SimulationError
from tpusim.isa.commands import Command, Requant, Rounding
from tpusim.isa.region import DType, numpy_dtype

INT32_MAX = 2**31 - 1
_LEFT_GUARD = 62


def limits(dtype: DType) -> tuple[int, int]:
    """Smallest and largest value of an integer dtype."""
    info = np.iinfo(numpy_dtype(dtype))
    return int(info.min), int(info.max)


def narrowed(values: np.ndarray, dtype: DType) -> np.ndarray:
    """f32 to a 16-bit float, half to even (numerics.md 8.2).

    f16: overflow to infinity, subnormals kept. bf16: f32 subnormals flush to signed zero, but those that round to the
    smallest normal become it.
    """
    with np.errstate(over="ignore"):
        found = values.astype(np.float32).astype(numpy_dtype(dtype))
    if dtype == "bf16":
        tiny = np.abs(found.astype(np.float32)) < np.finfo(np.float32).tiny
        found = np.where(tiny, np.copysign(np.float32(0), values).astype(found.dtype), found)
    return found


def is_float(dtype: DType) -> bool:
    """Whether a command dtype is a float type."""
    return dtype in ("f32", "f16", "bf16")


def _shift_left(values: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Compute values * 2**shift, kept inside 64 bits: what would leave them saturates in any output type anyway."""
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
    half_up = ((values >> (right - some)) + some) >> some
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


def requantize(values: np.ndarray, requant: Requant, dtype: DType, *, relu: bool = False) -> np.ndarray:
    """sat(RSR(values * m, r) + z); relu acts at the zero point, after the requant."""
    scaled = rounding_shift(values * np.int64(requant.multiplier), requant.rshift, requant.rounding)
    zero = requant.zero_point
    return saturate(scaled + zero if zero else scaled, dtype, floor=zero if relu else None)


def check_accumulator(values: np.ndarray, command: Command) -> np.ndarray:
    """The int32 accumulator never wraps (DN-03). Raises SimulationError on overflow."""
    if values.size and (int(values.max()) > INT32_MAX or int(values.min()) < -INT32_MAX - 1):
        raise SimulationError(
            f"{command.label}: the accumulator reaches {int(np.abs(values).max()):,}, the chip's int32 ends at "
            f"{INT32_MAX:,}; use a narrower bias or split the reduction"
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
