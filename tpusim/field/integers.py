"""What the chip does to integers, as uninterpreted functions of field elements (numerics.md 4.1 to 4.4, 5.2).

A multiplier is a factor of the field and a zero point a summand, so that equal formulas are equal elements. A shift
that rounds, a doubling multiplication and a saturation to bytes are functions that their parameters name.
"""

from dataclasses import dataclass
from typing import Literal

from tpusim.field.arithmetic import PRIME, Elements, Field, plus, times

_BYTES = {"i8": (-128, 127), "u8": (0, 255), "i4": (-8, 7), "u4": (0, 15)}
_UNSIGNED = ("u16", "u8", "u4")


@dataclass(frozen=True)
class Scaling:
    """Integer requant: shift: RSR(x * m, r, rounding) + z; qdm: numerics.md 5.2; f32: 4.4."""

    multiplier: int = 1
    rshift: int = 0
    zero_point: int = 0
    rounding: str = "half_up"
    mode: Literal["shift", "qdm", "f32"] = "shift"


def shifted(field: Field, x: Elements, rshift: int, rounding: str) -> Elements:
    """RSR(x, r) of numerics.md 4.3; shifts to the left are products."""
    if rshift <= 0:
        return times(x, pow(2, -rshift, PRIME))
    return field.apply(("shift", rshift, rounding), x)


def clamped(field: Field, x: Elements, low: float | None, high: float | None) -> Elements:
    """Values not below `low` and not above `high`; None: no limit."""
    return x if low is None and high is None else field.apply(("limit", low, high), x)


def saturated(field: Field, x: Elements, dtype: str, *, floor: int | None = None, known: str = "") -> Elements:
    """Integers in the range of a type and not below `floor`; known: a type whose range they have already."""
    if dtype not in _BYTES:
        return x if floor is None or (known in _UNSIGNED and floor <= 0) else clamped(field, x, floor, None)
    low, high = _BYTES[dtype]
    low = low if floor is None else min(max(low, floor), high)
    if known in _BYTES and low <= _BYTES[known][0] and _BYTES[known][1] <= high:
        return x
    return clamped(field, x, low, high)


def scaled(field: Field, x: Elements, by: Scaling) -> Elements:
    """The requant without zero point and saturation."""
    if by.mode == "f32":
        return field.apply(("f32 product", by.multiplier, by.rshift), x)
    wide = times(x, by.multiplier)
    if by.mode == "qdm":
        return field.apply(("doubling product", by.rshift), wide)
    return shifted(field, wide, by.rshift, by.rounding)


def requanted(field: Field, x: Elements, by: Scaling, dtype: str, *, relu: bool = False, known: str = "") -> Elements:
    """Scale, add the zero point, relu at the zero point, saturate (4.1). known: the type of x if it is not wider."""
    plain = by == Scaling()
    total = plus(scaled(field, x, by), by.zero_point)
    return saturated(field, total, dtype, floor=by.zero_point if relu else None, known=known if plain else "")


def by_channel(field: Field, x: Elements, words: Elements, dtype: str, *, relu: bool, rounding: str) -> Elements:
    """Requant with a row (channels, words) of parameters as the chip stores them; channels are axis 1."""
    rows = field.row(words, (1,)).reshape(-1, *(1,) * (x.ndim - 2))
    return field.apply(("channel requant", rounding, dtype, relu), x, rows)
