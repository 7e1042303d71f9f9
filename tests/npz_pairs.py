"""Pairs of tensors, made from a seed, on which `npz_tool.py compare` and `tpusim compare` must give equal verdicts."""

from collections.abc import Iterator

import numpy as np

Pair = tuple[str, np.ndarray, np.ndarray]
"""Name, target, reference."""
TOLERANCE = "0.95,0.80"
LEVELS = (1e-7, 3e-6, 9e-6, 3e-5, 9e-5, 3e-4, 9e-4, 3e-3, 1e-2, 3e-2, 0.1, 0.2, 0.25, 0.28, 0.3, 0.35, 0.5, 1.0, 3.0)
"""Noise relative to a signal of 1: from CLOSE at five decimals, past the tolerance, to garbage."""
SHAPES = ((1, 3, 8, 8), (2, 40), (7,), (1, 1), (1, 4, 5, 6))


def pairs(count: int, seed: int = 0) -> Iterator[Pair]:
    """`count` pairs of every kind in turn."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        name, target, reference = kind(rng)
        yield f"{name}_{number}", target, reference


def _signal(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal(SHAPES[rng.integers(len(SHAPES))]).astype(np.float32)


def noisy(rng: np.random.Generator) -> Pair:
    x = _signal(rng)
    noise = rng.standard_normal(x.shape) * LEVELS[rng.integers(len(LEVELS))]
    return "noisy", (x + noise).astype(np.float32), x


def relative(rng: np.random.Generator) -> Pair:
    x = _signal(rng) * 10.0 ** rng.integers(-6, 7)
    factor = 1 + rng.uniform(-1, 1, x.shape) * LEVELS[rng.integers(10)]
    return "relative", (x * factor).astype(np.float32), x.astype(np.float32)


def offset(rng: np.random.Generator) -> Pair:
    x = _signal(rng)
    return "offset", (x * rng.uniform(0.5, 2) + rng.uniform(-1, 1)).astype(np.float32), x


def integers(rng: np.random.Generator) -> Pair:
    dtypes = (np.int8, np.uint8, np.int32, np.int16, np.uint32)
    dtype = dtypes[rng.integers(len(dtypes))]
    x = rng.integers(0 if np.dtype(dtype).kind == "u" else -100, 100, SHAPES[rng.integers(len(SHAPES))])
    step = rng.integers(0, 2, x.shape) * rng.integers(0, 3)
    return "integers", (x + step).astype(dtype), x.astype(dtype)


def mixed(rng: np.random.Generator) -> Pair:
    dtypes = (np.int8, np.int32, np.float32, np.float64, np.float16, np.uint8)
    left, right = (dtypes[rng.integers(len(dtypes))] for _ in range(2))
    x = rng.integers(0, 60, SHAPES[rng.integers(len(SHAPES))]) + rng.integers(0, 2) * 0.25
    return "mixed", x.astype(left), x.astype(right)


def bf16_patterns(rng: np.random.Generator) -> Pair:
    x = _signal(rng)
    return "bf16", (x.view(np.uint32) >> 16).astype(np.uint16), x


def not_finite(rng: np.random.Generator) -> Pair:
    x = _signal(rng)
    y = x + np.float32(rng.choice([0.0, 1e-6, 0.1])) * np.abs(x)
    for value in (np.nan, np.inf, -np.inf):
        if rng.integers(2):
            x.flat[rng.integers(x.size)] = value
        if rng.integers(2):
            y.flat[rng.integers(y.size)] = value
    return "not_finite", y, x


def constant(rng: np.random.Generator) -> Pair:
    x = np.zeros(SHAPES[rng.integers(len(SHAPES))], np.float32)
    return "constant", x + np.float32(rng.choice([0, 1, 1e-9])), x + np.float32(rng.choice([0, 0, 1]))


def shapes(rng: np.random.Generator) -> Pair:
    x = _signal(rng)
    match rng.integers(4):
        case 0:
            return "reshaped", x.reshape(-1), x
        case 1:
            return "cropped", x[..., : max(1, x.shape[-1] - 1)] + np.float32(1e-7), x
        case 2:
            return "NonMaxSuppression", x[: max(1, len(x) - 1)], x
        case _:
            return "unlike", np.stack([x, x]), x


def large(rng: np.random.Generator) -> Pair:
    """Sums of squares near what f32 holds, but within it."""
    x = _signal(rng) * np.float32(1e17)
    return "large", x * np.float32(rng.choice([1.0, 1.001, 1.3])), x


KINDS = (noisy, relative, offset, integers, noisy, mixed, bf16_patterns, not_finite, constant, shapes, large)
