"""GF(p): elements, exact sums of products through BLAS, and uninterpreted functions."""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from types import EllipsisType
from typing import TypeAlias

import numpy as np

Elements: TypeAlias = np.ndarray
"""int64, 0 <= x < PRIME, in the shape of the tensor."""

PRIME = (1 << 51) - 129
"""The largest prime below 2**51: elements are exact in float64, and so are quotients of products, but for 1."""
_BITS = 50
RANDOM = 1 << _BITS
"""How many elements a random one is chosen from: those below."""
SETS = 1 << _BITS - 1
"""How many elements an extreme is one of; twice as many are left from `RANDOM` to 2**51, which p is 129 below."""
_LEFT, _RIGHT = 26, 17
"""Bits of the parts into which the elements of the left and of the right matrix of a product are divided."""
_TERMS = 1024
"""How many products of such parts add up below 2**53, exact in float64."""
_COLUMNS = 64
"""How many columns of a right matrix are divided into parts at once: these parts fit a cache."""
_BLOCK = 1 << 14
"""Elements that are computed at once: they and what is computed from them fit a cache, and calls cost little."""
_LARGEST_DENOMINATOR, _LARGEST_NUMERATOR = 1023, 2047
"""Twice the product of both is below p."""
_SIGN = 63
"""Shifted by it, an int64 is -1 if it is negative, else 0."""
_GOLDEN = 0x9E3779B97F4A7C15
_ROUNDS = tuple(
    (np.array(shift, np.uint64), np.array(factor, np.uint64))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
)
"""The constants of splitmix64 (Steele, Lea and Flood 2014); arrays, since those of NumPy take numbers more slowly."""
_UPPER = np.array(64 - _BITS, np.uint64)
_WORD = 0xFFFFFFFFFFFFFFFF
_ODD = tuple(_GOLDEN * (2 * i + 1) & _WORD for i in range(1, 17))
"""Factors of the operands of a function, in order."""


def parts(shape: Sequence[int], most: int = _BLOCK) -> Iterator[tuple[int | slice | EllipsisType, ...]]:
    """Indices of parts of an array along its first axes, of at most so many elements each."""
    axis, size = len(shape), 1
    while axis and size * shape[axis - 1] <= most:
        axis -= 1
        size *= shape[axis]
    if not axis:
        yield (...,)
        return
    step = most // size
    for outer in np.ndindex(*shape[: axis - 1]):
        for first in range(0, shape[axis - 1], step):
            yield (*outer, slice(first, first + step))


def _remainder(part: np.ndarray, quotients: np.ndarray) -> None:
    """Part minus p for every quotient, each at most 1 off, in place; both may have wrapped around 2**64."""
    part -= quotients.astype(np.int64) * PRIME
    _smaller(part, part + PRIME)
    _smaller(part, part - PRIME)


def _smaller(part: np.ndarray, other: np.ndarray) -> None:
    """The smaller of two numbers in place. Negative ones are the largest, as numbers without a sign."""
    np.minimum(part.view(np.uint64), other.view(np.uint64), out=part.view(np.uint64))


def reduced(x: np.ndarray) -> Elements:
    """Integers of 63 bits modulo p; x may be overwritten."""
    x = np.ascontiguousarray(x)
    flat = x.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        part = flat[start : start + _BLOCK]
        _remainder(part, np.floor(part * (1.0 / PRIME)))
    return x


def times(x: Elements, factor: int | Elements) -> Elements:
    """The product with an integer of any size and sign, or with elements; they broadcast.

    The product modulo 2**64 and the quotient by p in float64 determine the remainder.
    """
    if isinstance(factor, int):
        return x if factor == 1 else _times_number(x, factor % PRIME)
    shape = np.broadcast_shapes(x.shape, factor.shape)
    one, other = (np.broadcast_to(operand, shape or 1) for operand in (x, factor))
    found = np.empty(one.shape, np.int64)
    for index in parts(found.shape):
        left, right, part = one[index], other[index], found[index]
        np.multiply(left, right, out=part)
        _remainder(part, left * (1.0 / PRIME) * right)
    return found.reshape(shape)


def _times_number(x: Elements, factor: int) -> Elements:
    found = np.empty(x.shape, np.int64)
    source, flat, ratio = np.ascontiguousarray(x).reshape(-1), found.reshape(-1), factor / PRIME
    for start in range(0, flat.size, _BLOCK):
        left, part = source[start : start + _BLOCK], flat[start : start + _BLOCK]
        np.multiply(left, factor, out=part)
        _remainder(part, left * ratio)
    return found


def summed(terms: Iterable[Elements]) -> Elements:
    """The sum of some elements each, which broadcast."""
    total, *others = terms
    for term in others:
        total = _sum(total, term)
    return total


def plus(x: Elements, number: int) -> Elements:
    """The sum with an integer of any size and sign; x itself for 0."""
    return x if number == 0 else _sum(x, np.array(number % PRIME))


def _sum(one: Elements, other: Elements) -> Elements:
    shape = np.broadcast_shapes(one.shape, other.shape)
    one, other = (np.broadcast_to(operand, shape or 1) for operand in (one, other))
    found = np.empty(one.shape, np.int64)
    for index in parts(found.shape):
        part = found[index]
        np.add(one[index], other[index], out=part)
        _smaller(part, part - PRIME)
    return found.reshape(shape)


def inverse(numbers: np.ndarray) -> Elements:
    """1 divided by integers that are no multiples of p; few of them differ."""
    found = np.empty(numbers.shape, np.int64)
    for number in set(numbers.reshape(-1).tolist()):
        found[numbers == number] = pow(int(number), -1, PRIME)
    return found


def _parts(x: Elements, bits: int, count: int) -> list[np.ndarray]:
    """The elements around 0, between -p/2 and p/2, as digits of so many bits in float64, the lowest first."""
    rest = x - (PRIME // 2 - x >> _SIGN & PRIME)
    digits = list[np.ndarray]()
    for _ in range(count - 1):
        digits.append((rest & (1 << bits) - 1).astype(np.float64))
        rest >>= bits
    return [*digits, rest.astype(np.float64)]


def product(left: Elements, right: Elements) -> Elements:
    """(..., m, k) x (..., k, n) in the field: products of digits, in blocks that are exact in float64."""
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    total = np.zeros((*batch, left.shape[-2], right.shape[-1]), np.int64)
    for start in range(0, left.shape[-1], _TERMS):
        block = slice(start, start + _TERMS)
        rows = _parts(left[..., block], _LEFT, 2)
        for first in range(0, right.shape[-1], _COLUMNS):
            some = (..., slice(first, first + _COLUMNS))
            columns = _parts(right[..., block, :][some], _RIGHT, 3)
            for place, digits in enumerate(rows):
                low, middle, high = (reduced((digits @ part).astype(np.int64)) for part in columns)
                found = times(times(high, 1 << _RIGHT) + middle, 1 << _RIGHT) + low
                total[some] += times(found, 1 << place * _LEFT)
    return reduced(total)


def mix(z: np.ndarray, scratch: np.ndarray, into: np.ndarray) -> None:
    """splitmix64 of z without its constant, reduced to an element. 0 stays 0. z and scratch are overwritten."""
    _spread(z, scratch)
    np.right_shift(z, _UPPER, out=into)


def _spread(z: np.ndarray, scratch: np.ndarray) -> None:
    for shift, factor in _ROUNDS:
        np.right_shift(z, shift, out=scratch)
        np.bitwise_xor(z, scratch, out=z)
        np.multiply(z, factor, out=z)


def mixed(z: np.ndarray) -> Elements:
    """Elements that 64-bit numbers (uint64, contiguous) determine, in place; 0 is 0."""
    flat, scratch = z.reshape(-1), np.empty(_BLOCK, np.uint64)
    for start in range(0, flat.size, _BLOCK):
        part = flat[start : start + _BLOCK]
        mix(part, scratch[: part.size], into=part)
    return z.view(np.int64)


def narrowed(z: np.ndarray) -> Elements:
    """Elements that are the upper bits of 64-bit numbers (uint64, contiguous), in place."""
    z >>= _UPPER
    return z.view(np.int64)


def odd_numbers(z: np.ndarray) -> np.ndarray:
    """Odd 64-bit numbers that 64-bit numbers (uint64) determine, in place."""
    _spread(z, np.empty_like(z))
    z |= np.uint64(1)
    return z


class Field:
    """GF(p) with random functions. Equal seeds have equal random elements and functions.

    algebra: sums over windows are sums of products, too; else they are hashes (`windows.convolved`), a fraction of the
    work, which distinguish different formulas of one sum; hashed: whether there was one.
    """

    def __init__(self, seed: int, *, algebra: bool = False) -> None:
        self.seed, self.algebra, self.hashed = seed, algebra, False
        self._key = lru_cache(1 << 14)(self._new_key)

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
        """An uninterpreted function of elements (any integers of 64 bits), which broadcast; the tuple is its name."""
        assert 0 < len(operands) <= len(_ODD)
        shape = np.broadcast_shapes(*(operand.shape for operand in operands))
        whole, start = list[tuple[np.ndarray, np.uint64]](), np.full((1,) * len(shape), self._key(function), np.uint64)
        for operand, odd in zip(operands, _ODD, strict=False):
            words, factor = np.asarray(operand, np.int64).view(np.uint64), np.uint64(odd)
            if operand.shape == shape:
                whole.append((words, factor))
            else:  # few elements for many results
                start = start + words.reshape((1,) * (len(shape) - operand.ndim) + operand.shape) * factor
        found, start = np.empty(shape, np.uint64), np.broadcast_to(start, shape)
        scratch = np.empty(_BLOCK, np.uint64)
        for index in parts(shape):
            part = found[index]
            room = scratch[: part.size].reshape(part.shape)
            if whole:
                first, factor = whole[0]
                np.add(np.multiply(first[index], factor, out=part), start[index], out=part)
            else:
                part[...] = start[index]
            for operand, factor in whole[1:]:
                part += np.multiply(operand[index], factor, out=room)
            mix(part, room, into=part)
        return found.view(np.int64)

    def factors(self, *counts: int) -> np.ndarray:
        """Random odd 64-bit numbers for the places of a row of up to two axes: sums of products name the row."""
        z = np.full(counts, self._key(("factors",)), np.uint64)
        for place, odd in zip(np.indices(counts), _ODD, strict=False):
            z += place.astype(np.uint64) * np.uint64(odd)
        return odd_numbers(z)

    def row(self, x: Elements, axes: Sequence[int] | None = None) -> Elements:
        """A hash of the elements along `axes` (all: None) in order; these axes have length 1.

        Rows of other lengths are hashed otherwise: zeros at an end are elements, too.
        """
        axes = tuple(axis % x.ndim for axis in (range(x.ndim) if axes is None else axes))
        last = np.moveaxis(x, axes, range(x.ndim - len(axes), x.ndim))
        kept = last.shape[: x.ndim - len(axes)]
        flat = last.reshape(-1, int(np.prod(last.shape[x.ndim - len(axes) :])))
        sums = np.einsum("rk,k->r", np.asarray(flat, np.int64).view(np.uint64), self.factors(flat.shape[-1]))
        sums += np.uint64(self._key(("row", flat.shape[-1])))
        return np.expand_dims(mixed(sums).reshape(kept), axes)

    def tags(self, dtype: str, size: int) -> np.ndarray:
        """What every byte of an element of this type, of so many bytes, is joined with (xor).

        So a byte knows its element's type and its place in it: another type, or another byte, is another number.
        """
        return np.array([self._key(("byte", dtype, place)) >> (64 - _BITS) for place in range(size)], np.int64)

    def of_bytes(self, cells: np.ndarray, dtype: str) -> Elements:
        """The elements of a type whose bytes have these numbers, along the last axis.

        Bytes of one element are it; any others are a function of them in order.
        """
        size = cells.shape[-1]
        tags = self.tags(dtype, size)
        first = cells[..., 0] ^ tags[0]
        whole = [cells[..., i] ^ tags[i] == first for i in range(1, size)]
        if all(part.all() for part in whole):
            return first
        others = self.apply(("bytes", dtype, size), *(cells[..., i] for i in range(size)))
        return np.where(np.logical_and.reduce(whole), first, others)

    def to_bytes(self, x: Elements, dtype: str, size: int) -> Elements:
        """The numbers that the bytes of elements of a type have, along an additional last axis."""
        return x[..., None] ^ self.tags(dtype, size)

    def words(self, x: Elements, dtype: str, wide: str) -> Elements:
        """Elements of a type of four bytes from those of one byte, (..., 4 * words) to (..., words)."""
        return self.of_bytes(self.to_bytes(x, dtype, 1).reshape(*x.shape[:-1], -1, 4), wide)

    def halves(self, pairs: Elements, dtype: str) -> Elements:
        """Elements of 4 bits (..., 2 * bytes) of the numbers of bytes (..., bytes), the low half first."""
        found = [self.apply(("half", dtype, i), pairs) for i in range(2)]
        return np.stack(found, -1).reshape(*pairs.shape[:-1], -1)
