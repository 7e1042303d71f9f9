"""GF(p): elements, exact sums of products through BLAS, and uninterpreted functions."""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from typing import TypeAlias

import numpy as np

Elements: TypeAlias = np.ndarray
"""int64, 0 <= x < PRIME, in the shape of the tensor."""

PRIME = (1 << 31) - 1
"""A Mersenne prime: differences of elements fit int32, products of two int64."""
_HALF = 15
"""Bits of the lower half of an element."""
_TERMS = 256
"""How many products of an element and a half, both around 0, add up below 2**53, exact in float64."""
_HASH_BITS = 31
_BLOCK = 1 << 13
"""Elements that are hashed at once; they fit a cache."""
_LARGEST_DENOMINATOR, _LARGEST_NUMERATOR = 1023, 2047
"""Twice the product of both is below p."""
_SIGN = 31
"""Shifted by it, an int32 is -1 if it is negative, else 0. Elements and their sums and differences fit int32."""
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""The constants of splitmix64 (Steele, Lea and Flood 2014)."""
_WORD = 0xFFFFFFFFFFFFFFFF
_ODD = tuple(_GOLDEN * (2 * i + 1) & _WORD for i in range(1, 17))
"""Factors of the operands of a function, in order."""


def centred(x: Elements) -> np.ndarray:
    """The elements between -p/2 and p/2, in int32."""
    narrow = x.astype(np.int32)
    narrow -= (PRIME // 2 - narrow) >> _SIGN & PRIME
    return narrow


def reduced(x: np.ndarray) -> Elements:
    """Exact whole float64 below 2**53, modulo p."""
    flat, found = x.reshape(-1), np.empty(x.size, np.int64)
    for start in range(0, x.size, _BLOCK):
        part = flat[start : start + _BLOCK]
        part = (part - np.floor(part * (1.0 / PRIME)) * PRIME).astype(np.int64)  # the quotient was rounded: one p off
        part += part >> 63 & PRIME
        part -= PRIME
        part += part >> 63 & PRIME
        found[start : start + _BLOCK] = part
    return found.reshape(x.shape)


def folded(x: np.ndarray) -> Elements:
    """Products of two elements, or sums, from 0 to 2**62, modulo p; x may be overwritten."""
    x = np.ascontiguousarray(x)
    flat = x.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        part = flat[start : start + _BLOCK]
        above = part >> _HASH_BITS
        part &= PRIME
        part += above
        part -= PRIME
        part += part >> 63 & PRIME
    return x


def times(x: Elements, factor: int | Elements) -> Elements:
    """The product with an integer of any size and sign, or with elements; they broadcast."""
    if isinstance(factor, int):
        return x if factor == 1 else folded(x * (factor % PRIME))
    return folded(x * factor)


def summed(terms: Iterable[Elements]) -> Elements:
    """The sum of some elements each, which broadcast."""
    total, *others = terms
    for term in others:
        total = total + term
    return folded(total) if others else total


def inverse(numbers: np.ndarray) -> Elements:
    """1 divided by integers that are no multiples of p; few of them differ."""
    found = np.empty(numbers.shape, np.int64)
    for number in set(numbers.reshape(-1).tolist()):
        found[numbers == number] = pow(int(number), -1, PRIME)
    return found


def product(left: Elements, right: Elements) -> Elements:
    """(..., m, k) x (..., k, n) in the field: the right matrix in two halves, in blocks that are exact in float64."""
    first, second = centred(left).astype(np.float64), centred(right)
    halves = (second >> _HALF).astype(np.float64), (second & (1 << _HALF) - 1).astype(np.float64)
    total = np.zeros((), np.int64)
    for start in range(0, max(left.shape[-1], 1), _TERMS):
        block = first[..., start : start + _TERMS]
        upper, lower = (reduced(block @ half[..., start : start + _TERMS, :]) for half in halves)
        total = total + folded((upper << _HALF) + lower)
    return total % PRIME if left.shape[-1] > _TERMS else total


def _mix(z: np.ndarray, scratch: np.ndarray) -> None:
    """splitmix64 of z without its constant, reduced to an element, in place; scratch: as long as z. 0 stays 0."""
    _spread(z, scratch)
    z >>= np.uint64(64 - _HASH_BITS)
    signed = z.view(np.int64)
    signed -= PRIME
    signed += signed >> 63 & PRIME


def _spread(z: np.ndarray, scratch: np.ndarray) -> None:
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        np.right_shift(z, np.uint64(shift), out=scratch)
        z ^= scratch
        z *= np.uint64(factor)


def mixed(z: np.ndarray) -> Elements:
    """Elements that 64-bit numbers (uint64, contiguous) determine, in place; 0 is 0."""
    flat, scratch = z.reshape(-1), np.empty(_BLOCK, np.uint64)
    for start in range(0, flat.size, _BLOCK):
        part = flat[start : start + _BLOCK]
        _mix(part, scratch[: part.size])
    return z.view(np.int64)


class Field:
    """GF(p) with random functions. Equal seeds have equal random elements and functions."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._key = lru_cache(1 << 14)(self._new_key)
        self._stored: list[tuple[int, np.ndarray, np.ndarray]] = []

    def _new_key(self, parts: tuple[object, ...]) -> int:
        digest = blake2b(repr(parts).encode(), digest_size=8, salt=self.seed.to_bytes(8, "little"))
        return int.from_bytes(digest.digest(), "little")

    def constant(self, value: float) -> int:
        """The element of a number: whole numbers and simple fractions are the field's, others are random elements.

        A fraction is simple if its f32 is the number's, for so few fractions that no two are one element. The element
        of -x is minus that of x.
        """
        number = float(value)
        if number == np.floor(number) and abs(number) < 1 << 62:
            return int(value) % PRIME
        if np.isfinite(number):
            simple = Fraction(number).limit_denominator(_LARGEST_DENOMINATOR)
            if abs(simple.numerator) <= _LARGEST_NUMERATOR and np.float32(float(simple)) == np.float32(number):
                return simple.numerator * pow(simple.denominator, -1, PRIME) % PRIME
        found = self._key(("constant", abs(number))) % PRIME
        return found if number > 0 else -found % PRIME

    def constants(self, values: np.ndarray) -> Elements:
        """`constant` of every value."""
        found = [self.constant(value) for value in values.reshape(-1).tolist()]
        return np.array(found, np.int64).reshape(values.shape)

    def random(self, shape: Sequence[int], *name: object) -> Elements:
        """Random elements that depend on the name."""
        return self.apply(("random", *name), np.arange(int(np.prod(shape))).reshape(shape))

    def apply(self, function: tuple[object, ...], *operands: Elements) -> Elements:
        """An uninterpreted function of elements (any integers below 2**40), which broadcast; the tuple is its name."""
        assert 0 < len(operands) <= len(_ODD)
        shape = np.broadcast_shapes(*(operand.shape for operand in operands))
        whole, start = list[tuple[np.ndarray, np.uint64]](), np.full((1,) * len(shape), self._key(function), np.uint64)
        for operand, odd in zip(operands, _ODD, strict=False):
            factor = np.uint64(odd)
            if operand.shape == shape:
                whole.append((operand.reshape(-1), factor))
            else:  # few elements for many results
                start = (
                    start
                    + operand.reshape((1,) * (len(shape) - operand.ndim) + operand.shape).astype(np.uint64) * factor
                )
        found = np.empty(shape, np.uint64)
        found[...] = start
        flat, scratch = found.reshape(-1), np.empty(_BLOCK, np.uint64)
        for first in range(0, flat.size, _BLOCK):
            part = flat[first : first + _BLOCK]
            for operand, factor in whole:
                part += operand[first : first + _BLOCK].astype(np.uint64, copy=False) * factor
            _mix(part, scratch[: part.size])
        return found.view(np.int64)

    def factors(self, *counts: int) -> np.ndarray:
        """Random odd 64-bit numbers for the places of a row of up to two axes: sums of products name the row."""
        z = np.full(counts, self._key(("factors",)), np.uint64)
        for place, odd in zip(np.indices(counts), _ODD, strict=False):
            z += place.astype(np.uint64) * np.uint64(odd)
        _spread(z, np.empty_like(z))
        return z | np.uint64(1)

    def row(self, x: Elements, axes: Sequence[int] | None = None) -> Elements:
        """A hash of the elements along `axes` (all: None) in order; these axes have length 1. Zeros have the hash 0."""
        axes = tuple(axis % x.ndim for axis in (range(x.ndim) if axes is None else axes))
        last = np.moveaxis(x, axes, range(x.ndim - len(axes), x.ndim))
        kept = last.shape[: x.ndim - len(axes)]
        flat = last.reshape(-1, int(np.prod(last.shape[x.ndim - len(axes) :])))
        sums = np.einsum("rk,k->r", np.asarray(flat, np.int64).view(np.uint64), self.factors(flat.shape[-1]))
        return np.expand_dims(mixed(sums).reshape(kept), axes)

    def tag(self, dtype: str) -> int:
        """What is added to the bytes of an element of this type, so that bytes read as another type differ."""
        return self._key(("type", dtype)) % PRIME

    def of_bytes(self, cells: np.ndarray, dtype: str) -> Elements:
        """The elements of a type whose bytes have these numbers, along the last axis."""
        first = cells[..., 0]
        if cells.shape[-1] > 1:
            same = (cells[..., 1:] == cells[..., :1]).all(-1)
            if not same.all():
                others = self.apply(("bytes", cells.shape[-1]), *(cells[..., i] for i in range(cells.shape[-1])))
                first = np.where(same, first, others)
        found, tag, flat = np.empty(first.shape, np.int64), self.tag(dtype), first.reshape(-1)
        out = found.reshape(-1)
        for start in range(0, out.size, _BLOCK):
            part = out[start : start + _BLOCK]
            part[...] = flat[start : start + _BLOCK]
            part -= tag
            part += part >> 63 & PRIME
        return found

    def to_bytes(self, x: Elements, dtype: str) -> Elements:
        """The number that every byte of the elements of a type has."""
        found = (x + (self.tag(dtype) - PRIME)).astype(np.int32)
        found += found >> _SIGN & PRIME
        return found

    def words(self, x: Elements, dtype: str, wide: str) -> Elements:
        """Elements of a type of four bytes from those of one byte, (..., 4 * words) to (..., words)."""
        return self.of_bytes(self.to_bytes(x, dtype).reshape(*x.shape[:-1], -1, 4), wide)

    def stored(self, data: np.ndarray, address: int) -> np.ndarray:
        """The numbers of the bytes of constants (int32), which depend on the byte and its address.

        Both sides of a proof ask for the same bytes.
        """
        for begin, known, found in self._stored:
            if begin == address and np.array_equal(known, data):
                return found
        found, z, scratch = np.empty(data.size, np.int32), np.empty(_BLOCK, np.uint64), np.empty(_BLOCK, np.uint64)
        of_byte = np.arange(256, dtype=np.uint64) * np.uint64(_ODD[0]) + np.uint64(self._key(("constant byte",)))
        of_place = np.arange(_BLOCK, dtype=np.uint64) * np.uint64(_ODD[1])
        for start in range(0, data.size, _BLOCK):
            part = data[start : start + _BLOCK]
            np.take(of_byte, part, out=z[: part.size], mode="clip")
            z += of_place
            z += np.uint64((address + start) * _ODD[1] & _WORD)
            _mix(z, scratch)
            found[start : start + _BLOCK] = z[: part.size]
        self._stored.append((address, data, found))
        return found
