"""What stored integers stand for: scales and zero points as values (docs/spec/numerics.md 2.2, 7.1)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from tpusim_kernels.prim.scale import round_half_away, storage_range


@dataclass(frozen=True)
class QuantParams:
    """What the stored integers of a tensor stand for: scale * (q - zero point), q of `bits` bits (numerics.md 2.2).

    One scale and zero point for the tensor, or several: one for each index of `axis`; with group_size > 0 one for every
    run of so many elements along it, all other axes row by row before it.
    """

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    signed: bool = True
    bits: int = 8
    axis: int | None = None
    group_size: int = 0

    @classmethod
    def of(cls, scale: float, zero_point: int = 0, *, signed: bool = True, bits: int = 8) -> "QuantParams":
        """One scale for the whole tensor."""
        return cls((scale,), (zero_point,), signed, bits)

    @property
    def scale(self) -> float:
        """The scale of the whole tensor. Raises ValueError if there are several."""
        return self._one(self.scales)

    @property
    def zero_point(self) -> int:
        """The zero point of the whole tensor. Raises ValueError if there are several."""
        return self._one(self.zero_points)

    def _one(self, values: tuple[Any, ...]) -> Any:
        if self.axis is not None:
            raise ValueError(f"one scale is required, got {len(self.scales)} along axis {self.axis}")
        return values[0]

    @property
    def limits(self) -> tuple[int, int]:
        """The smallest and the largest integer that the type stores."""
        return storage_range(self.bits, self.signed)

    @property
    def dtype(self) -> str:
        """The NumPy name of the type that holds the integers: int8 or uint8, int16 or uint16 ...; int8 of 4 bits."""
        return f"{'' if self.signed else 'u'}int{max(self.bits, 8)}"


SMALLEST_SCALE = 1e-5
"""Of a weight, or a part of one, that is zero (numerics.md 7.1)."""


def quantised_weight(
    weight: np.ndarray, bits: int, *, axis: int | None = None, group_size: int = 0
) -> tuple[np.ndarray, QuantParams]:
    """(stored integers, parameters) of a constant: s = max|w| / qmax of the tensor, each index of an axis, or group.

    Symmetric, halves away from zero (numerics.md 7.1). The integers are int8 (int16 above 8 bits) in the weight's
    shape. Raises ValueError for a group size that does not divide the axis.
    """
    wide = np.asarray(weight, np.float64)
    parts = wide.reshape(1, -1)
    if axis is not None:
        parts = np.moveaxis(wide, axis, -1 if group_size else 0)
        if group_size and parts.shape[-1] % group_size:
            raise ValueError(f"groups of {group_size} do not divide an axis of {parts.shape[-1]}")
        parts = parts.reshape(-1, group_size) if group_size else parts.reshape(parts.shape[0], -1)
    largest = np.abs(parts).max(axis=1, initial=0.0).astype(np.float32).astype(np.float64)
    low, high = storage_range(bits, signed=True)
    scales = np.where(largest > 0, largest / high, SMALLEST_SCALE)
    stored = np.clip(round_half_away(parts / scales[:, None]), low, high).astype(np.int8 if bits <= 8 else np.int16)
    params = QuantParams(tuple(scales.tolist()), (0,) * len(scales), True, bits, axis, group_size)
    if axis is None:
        return stored.reshape(wide.shape), params
    moved = np.moveaxis(wide, axis, -1 if group_size else 0).shape
    return np.ascontiguousarray(np.moveaxis(stored.reshape(moved), -1 if group_size else 0, axis)), params
