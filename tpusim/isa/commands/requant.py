"""Constant requant of a command's result."""

from typing import Literal

import msgspec

Rounding = Literal["half_up", "half_away", "half_even", "down"]


class Requant(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Constant requant: sat(RSR(v * multiplier, rshift, rounding) + zero_point) (numerics.md 4.3, 4.4).

    mode "qdm" (5.2, 5.5): v * multiplier / 2**31 half up, inside int32, then / 2**rshift half away; "f32"
    (4.4): f32(v) * multiplier rounded to f32, / 2**rshift, half up. Both ignore `rounding`.
    """

    multiplier: int = 1
    rshift: int = 0
    zero_point: int = 0
    rounding: Rounding = "half_up"
    mode: Literal["shift", "qdm", "f32"] = "shift"
