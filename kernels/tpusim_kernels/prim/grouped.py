"""Weights as integers of 8 or 4 bits with a scale and a zero point per group (numerics 14): host side, NumPy.

A row is an output of the product; its groups are runs of equal length along the inner axis.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tpusim_kernels.prim.scale import round_half_away

SMALLEST_WIDTH = np.float32(1e-5)
"""The least difference of the largest and the smallest weight of a group."""
LANE_GROUP = 128
"""Elements that share a scale in memory where a whole row has one scale."""


class GroupedWeights(NamedTuple):
    """codes (N, K) int8 or uint8, scales (N, groups) f32, zero points (N, groups) uint8."""

    codes: NDArray[np.integer]
    scales: NDArray[np.float32]
    zero_points: NDArray[np.uint8]


def grouped_weights(rows: NDArray[np.floating], bits: int, group: int, *, symmetric: bool) -> GroupedWeights:
    """Quantise (N, K) weights of f32 by the table of numerics 14, in f32, halves away from zero.

    group: elements of K that share a scale, a divisor of K; 0: the whole row. 8 bits without groups have no zero point
    and are signed, unless no weight is negative. Scales are not rounded; those of a whole row are repeated for every
    `LANE_GROUP` elements of K, which must be a multiple of it then. Raises ValueError for a K that is no multiple.
    """
    rows = np.ascontiguousarray(rows, np.float32)
    n, k = rows.shape
    if k % (group or LANE_GROUP):
        raise ValueError(f"K must be a multiple of {group or LANE_GROUP}, got {k}")
    found = _by_row(rows) if bits == 8 and not group else _by_group(rows, bits, group or k, symmetric=symmetric)
    repeats = 1 if group else k // LANE_GROUP
    return GroupedWeights(
        found.codes, np.repeat(found.scales, repeats, axis=1), np.repeat(found.zero_points, repeats, axis=1)
    )


def _by_row(rows: NDArray[np.float32]) -> GroupedWeights:
    """8 bits without zero points: signed, or unsigned if no weight of the matrix is negative."""
    signed = rows.min(initial=0.0) < 0 or not rows.min(initial=np.inf) > 0
    largest = np.abs(rows).max(axis=1, keepdims=True)
    scales = np.maximum(largest, np.finfo(np.float32).tiny) / np.float32(127 if signed else 255)
    codes = np.clip(round_half_away(rows / scales), *((-128, 127) if signed else (0, 255)))
    zeros = np.zeros(scales.shape, np.uint8)
    return GroupedWeights(codes.astype(np.int8 if signed else np.uint8), scales.astype(np.float32), zeros)


def _by_group(rows: NDArray[np.float32], bits: int, group: int, *, symmetric: bool) -> GroupedWeights:
    n, k = rows.shape
    groups, top = rows.reshape(n, k // group, group), np.float32(2**bits - 1)
    low, high = groups.min(axis=-1), groups.max(axis=-1)
    if symmetric:
        scales = 2 * np.maximum(np.maximum(-low, high), SMALLEST_WIDTH / 2) / top
        zeros = np.full(scales.shape, 2 ** (bits - 1), np.float32)
    else:
        scales = np.maximum(high - low, SMALLEST_WIDTH) / top
        zeros = np.clip(-round_half_away(low / scales), 0, top)
    codes = np.clip(round_half_away(groups / scales[..., None]) + zeros[..., None], 0, top)
    return GroupedWeights(codes.reshape(n, k).astype(np.uint8), scales.astype(np.float32), zeros.astype(np.uint8))


def packed_codes(codes: NDArray[np.integer], bits: int) -> NDArray[np.integer]:
    """The codes as stored: of 4 bits two in a byte along K, the low half first, (N, K/2) uint8."""
    if bits == 8:
        return codes
    halves = codes.astype(np.uint8).reshape(codes.shape[0], -1, 2)
    return halves[..., 0] | halves[..., 1] << 4
