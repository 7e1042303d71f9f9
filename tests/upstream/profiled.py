"""What TPU-MLIR's profiles say of commands, for tests and for the fit of constants (benchmarks/fit_constants.py)."""

from __future__ import annotations

ACTIVATIONS = {
    "EXP": 89, "LN": 149, "SIGMOID": 225, "TANH": 237, "SINH": 233, "COSH": 233, "TAN": 250, "ERF": 306, "GELU": 326,
    "SOFT_PLUS": 246, "QGELU": 237, "ELU": 113, "ARCCOS": 434, "SQRT": 152, "RECIPROCAL": 124, "HSIGMOID": 20,
    "HSWISH": 20, "SIGN": 16, "ABSVAL": 4,
}  # fmt: skip
"""TIU cycles of (1, 4, 8, 8) in f32 in the profile of TPU-MLIR 1.30.2 on BM1684X; ELU with another alpha than 1."""

SOFTMAXES = [
    ("bm1684x", "f32", (1, 96, 1, 12), 3, False, 185), ("bm1684x", "f32", (1, 9, 8, 16), 2, False, 256),
    ("bm1684x", "f32", (1, 2, 1, 20), 3, True, 125), ("bm1684x", "f32", (1, 8, 16, 20), 3, False, 1192),
    ("bm1684x", "f32", (1, 197, 1, 197), 3, False, 1617), ("bm1684x", "f32", (1, 64, 19, 25), 2, False, 1089),
    ("bm1684x", "f16", (1, 8, 12, 12), 3, False, 447), ("bm1684x", "f16", (1, 4, 8, 36), 2, False, 532),
    ("bm1684x", "f16", (1, 2, 1, 20), 3, True, 110), ("bm1684x", "f16", (1, 1000, 1, 64), 3, False, 2129),
    ("bm1684x", "f16", (1, 1, 8, 143), 2, False, 1386), ("bm1684x", "f16", (1, 8, 16, 20), 3, False, 924),
    ("bm1688", "f32", (1, 96, 1, 12), 3, False, 357), ("bm1688", "f32", (1, 24, 8, 6), 2, False, 497),
    ("bm1688", "f32", (1, 2, 1, 20), 3, True, 183), ("bm1688", "f32", (1, 8, 16, 20), 3, False, 2879),
    ("bm1688", "f32", (1, 25, 8, 400), 2, False, 24703), ("bm1688", "f16", (1, 65, 1, 33), 3, False, 529),
    ("bm1688", "f16", (1, 18, 8, 8), 2, False, 291), ("bm1688", "f16", (1, 2, 1, 20), 3, True, 123),
    ("bm1688", "f16", (1, 3000, 1, 20), 3, False, 11563), ("bm1688", "f16", (1, 13, 8, 11), 2, False, 532),
]  # fmt: skip
"""(chip, type, form, axis, whether its logarithm, TIU cycles) of softmaxes in the profile of TPU-MLIR 1.30.2."""

SHARED_OUT = [
    ("bm1684x", "table", "i8", "i8", 102400, (65536, 32768, 4096)),
    ("bm1684x", "cast", "f32", "i8", 62720, (32768, 29952)),
    ("bm1684x", "cast", "f32", "i8", 150528, (98304, 32768, 19456)),
    ("bm1684x", "cast", "f32", "i8", 200704, (131072, 65536, 4096)),
    ("bm1684x", "cast", "f32", "i8", 307200, (163840, 131072, 12288)),
    ("bm1684x", "function", "f16", "f16", 32000, (32000,)),
    ("bm1684x", "function", "f16", "f16", 48000, (32768, 15232)),
    ("bm1684x", "function", "f16", "f16", 104000, (65536, 32768, 5696)),
    ("bm1688", "function", "f16", "f16", 104000, (65536, 32768, 5696)),
    ("bm1688", "function", "i8", "i8", 64000, (32768, 31232)),
]
"""Chip, what, types, elements, and those of each transfer in the profile of TPU-MLIR 1.30.2."""
