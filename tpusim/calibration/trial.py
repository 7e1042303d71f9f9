"""One float op tried with many thresholds: how much its result changes when its operands are rounded to INT8.

The results are estimates, with sums in any order. Rounding, the op and the differences for all thresholds are one
compiled function, kept on disk and shared by all equal ops; an op may provide a faster way (`Estimate.trial`).
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import tpusim_kernels
from numpy.typing import NDArray
from tpusim_kernels.lazy import jax
from tpusim_kernels.store import Stored, text_of
from tpusim_kernels.trial import rounded, squares
from xdsl.ir import Operation

from tpusim.ir.upstream import FRAMEWORK
from tpusim.ops.framework.base import TopOp
from tpusim.ops.interfaces import estimate_of

ALIGNED = 64
"""Alignment in bytes at which JAX reads an array in place; other arrays are copied."""
Known = dict[str, Stored]
"""Compiled functions by a description of what they compute."""


class Way:
    """How an op is tried. operands: (array, whether it is constant or absent); known: functions of other ops.

    error: the relative error of the op's rounded constants (`Estimate.trial`).
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
        """A function from scales to sums of squares, for the operands of one sample. wanted: the float result."""
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
    """A text of everything that an op's function depends on except its arrays; None for an op of another package."""
    if not type(op).__module__.startswith("tpusim."):
        return None
    owners = [v.owner.name if isinstance(v.owner, Operation) else "" for v in op.operands]
    types = [str(v.type) for v in (*op.operands, *op.results)]
    stated = {name: str(a) for name, a in (*op.attributes.items(), *op.properties.items()) if name != FRAMEWORK}
    texts = text_of(Path(tpusim_kernels.__file__).parent), text_of(Path(__file__).parents[1])
    return hashlib.sha256(repr(("trial", op.name, owners, types, sorted(stated.items()), texts)).encode()).hexdigest()


class Trial:
    """One op on one sample. operands: (array, whether it is a constant); wanted: the float result.

    unit: the distance of an all-zero result.
    """

    def __init__(self, way: Way, operands: Sequence[tuple[Any, bool]], wanted: np.ndarray) -> None:
        self._squares = way.of(operands, wanted)
        with np.errstate(all="ignore"):  # squares may overflow f32
            self._one = np.linalg.norm(wanted.ravel(), ord=1)
            self.unit = float(np.linalg.norm(wanted.ravel()) / self._one)

    def distances(self, thresholds: Sequence[float]) -> NDArray[np.float64]:
        """The distance of the result from the float result, with operands rounded by each of these thresholds."""
        scales = np.array([127.0 / threshold for threshold in thresholds], np.float32)
        with jax.enable_x64(True):
            found = np.asarray(self._squares(scales), np.float64)
        with np.errstate(all="ignore"):
            return np.sqrt(found) / self._one


def on_device(array: Any, order: tuple[int, ...]) -> Any:
    """An array on the device, stored with its axes in this order; (): unchanged; None stays None."""
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
