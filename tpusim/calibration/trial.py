"""One float op tried with many thresholds: by how much its result changes when its operands are rounded to INT8.

All of it are estimates, sums in any order. Rounding, the op and the difference by all thresholds are one compiled
function, kept on disk and shared by all ops that are equal; ops that know a quicker way say so (`Estimate.trial`).
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import tpusim_kernels
from numpy.typing import NDArray
from tpusim_kernels.store import Stored, text_of
from tpusim_kernels.trial import rounded, squares
from xdsl.ir import Operation

from tpusim.ops.base import TopOp
from tpusim.ops.interfaces import estimate_of

ALIGNED = 64
"""Bytes: JAX reads such an array where it is, and others from a copy."""
Known = dict[str, Stored]
"""Compiled functions by what they compute."""


class Way:
    """How an op is tried. operands: (array, whether it is a constant or nothing at all); known: of other ops.

    error: of the op's constants as they are tried (`Estimate.trial`).
    """

    def __init__(self, op: TopOp, operands: Sequence[tuple[Any, bool]], known: Known) -> None:
        estimate = estimate_of(op)
        self._orders, self._result = estimate.operands, estimate.result
        self._weighs = tuple(weighs for _, weighs in operands)
        constants = [array if weighs else None for array, weighs in operands]
        self._quicker, self.error = (estimate.trial and estimate.trial(constants)) or (None, 0.0)
        if self._quicker is None:
            kept = [on_device(array, self._orders.get(i, ())) for i, array in enumerate(constants)]
            rounds = [not weighs and array.dtype == np.float32 for array, weighs in operands]
            self._whole = self._compiled(op, rounds, kept, known)

    def of(self, operands: Sequence[tuple[Any, bool]], wanted: np.ndarray) -> Callable[[Any], Any]:
        """The op on the operands of one sample: sums of squares by scales. wanted: the float result."""
        left = enumerate(operands)
        values = [on_device(array, self._orders.get(i, ())) for i, (array, weighs) in left if not weighs]
        if self._quicker is not None:
            return partial(self._quicker, values)
        return partial(self._whole, values, on_device(wanted, self._result))

    def _compiled(
        self, op: TopOp, rounds: Sequence[bool], kept: Sequence[Any], known: Known
    ) -> Callable[[list[Any], Any, Any], Any]:
        identity = _identity(op)
        compute, weighs = estimate_of(op).compute, self._weighs

        def tried(values: list[Any], constants: list[Any], scales: Any, wanted: Any) -> Any:
            def difference(scale: Any) -> Any:
                left = iter(values)
                operands = [constant if weighs[i] else next(left) for i, constant in enumerate(constants)]
                operands = [rounded(v, scale) / scale if rounds[i] else v for i, v in enumerate(operands)]
                return wanted - compute(operands)[0]

            return squares(difference, scales)

        key = identity or str(id(op))
        function = known.setdefault(key, Stored(tried, lambda: identity))
        return lambda values, wanted, scales: function(values, list(kept), scales, wanted)


def _identity(op: TopOp) -> str | None:
    """All that an op computes depends on besides its arrays; None of an op from elsewhere."""
    if not type(op).__module__.startswith("tpusim."):
        return None
    owners = [v.owner.name if isinstance(v.owner, Operation) else "" for v in op.operands]
    types = [str(v.type) for v in (*op.operands, *op.results)]
    said = sorted((name, str(attribute)) for name, attribute in (*op.attributes.items(), *op.properties.items()))
    texts = text_of(Path(tpusim_kernels.__file__).parent), text_of(Path(__file__).parents[1])
    return hashlib.sha256(repr(("trial", op.name, owners, types, said, texts)).encode()).hexdigest()


class Trial:
    """One op on one sample. operands: (array, whether it is a constant); wanted: the float result.

    unit: the distance of a result of zeros.
    """

    def __init__(self, way: Way, operands: Sequence[tuple[Any, bool]], wanted: np.ndarray) -> None:
        self._squares = way.of(operands, wanted)
        with np.errstate(all="ignore"):  # squares that f32 does not hold
            self._one = np.linalg.norm(wanted.ravel(), ord=1)
            self.unit = float(np.linalg.norm(wanted.ravel()) / self._one)

    def distances(self, thresholds: Sequence[float]) -> NDArray[np.float64]:
        """How far the result is from the float one when the operands are rounded by each of these thresholds."""
        scales = np.array([127.0 / threshold for threshold in thresholds], np.float32)
        with jax.enable_x64(True):
            found = np.asarray(self._squares(scales), np.float64)
        with np.errstate(all="ignore"):
            return np.sqrt(found) / self._one


def on_device(array: Any, order: tuple[int, ...]) -> Any:
    """An array with its axes in another order in memory too, (): as it is; nothing stays nothing."""
    if array is None:
        return None
    moved = np.asarray(array).transpose(order) if order else np.asarray(array)
    if moved.dtype == np.float32 and not (moved.flags.c_contiguous and moved.ctypes.data % ALIGNED == 0):
        room = np.empty(moved.nbytes + ALIGNED, np.uint8)
        start = -room.ctypes.data % ALIGNED
        copy = room[start : start + moved.nbytes].view(np.float32).reshape(moved.shape)
        copy[...] = moved
        moved = copy
    return cast("Any", jax).device_put(moved)
