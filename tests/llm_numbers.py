"""What TPU-MLIR 1.30.2 computed for language models of ours: golden/llm.npz, 16-bit patterns by name.

`simulator` and `sim_*` are results of the closed simulator of the chip, `interpreter` and `int_*` of the interpreter of
the lowered module, which computes something else. Weights of a16_*: `RandomState(11).randn(K, N)/sqrt(K)`, then a bias
0.1 * randn. Weights of block_*, cache_*, kv_*: `block_weights`. An array that several records share is stored once.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

FILE = Path(__file__).parent / "golden" / "llm.npz"
TYPES = {"bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16)}
NARROW = {"bf16": "bfloat16", "f16": "float16"}


@cache
def _file() -> dict[str, Any]:
    with np.load(FILE) as stored:
        return dict(stored)


def names(prefix: str) -> list[str]:
    """All records whose name begins so."""
    return sorted({key.partition("/")[0] for key in _file() if key.startswith(prefix)})


def kind_of(name: str) -> str:
    """`bf16` or `f16`."""
    mode = str(_file()[f"{name}/mode"]) if f"{name}/mode" in _file() else name
    return "bf16" if "bf16" in mode.lower() else "f16"


def record(name: str) -> dict[str, Any]:
    """The arrays of a record; 16-bit patterns as f32."""
    found = {key.partition("/")[2]: array for key, array in _file().items() if key.startswith(name + "/")}
    found = {key: _file()[str(a)] if a.dtype.kind == "U" and "/" in str(a) else a for key, a in found.items()}
    kind = TYPES[kind_of(name)]
    return {key: a.view(kind).astype(np.float32) if a.dtype == np.uint16 else a for key, a in found.items()}


def rounded(x: np.ndarray, kind: str) -> Any:
    """f32 values rounded to `bf16` or `f16`."""
    return np.asarray(x, np.float32).astype(TYPES[kind]).astype(np.float32)


def a16_weights(name: str) -> tuple[np.ndarray, Any]:
    """The matrix (K, N) of a product and its bias (N,), if it has one."""
    found, random = record(name), np.random.RandomState(11)
    k, n = (int(size) for size in found["shape"])
    matrix = (random.randn(k, n) / np.sqrt(k)).astype(np.float32)
    return matrix, (0.1 * random.randn(n)).astype(np.float32) if found["has_bias"] else None
