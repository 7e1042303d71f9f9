"""One command on a machine: operands put into its local memory, the result read back."""

from itertools import product
from typing import Any

import numpy as np
from streams import NEURON, lmem

from tpusim import chips
from tpusim.isa import commands as isa
from tpusim.isa.layout import align, extent
from tpusim.isa.region import View, dtype_of, numpy_dtype
from tpusim.simulator.memory import Machine, Region
from tpusim.simulator.run import execute


class Bench:
    """A machine, and operands placed one after the other in its local memory."""

    def __init__(self, chip: str = "bm1684x"):
        self.chip = chips.load(chip)
        regions = (Region("coefficients", 0, 0, False), Region("neurons", NEURON, 1 << 17, True))
        self.machine = Machine(self.chip, regions, np.zeros(0, np.uint8))
        self.top = 0

    def space(self, shape: tuple[int, ...], dtype: str, *, packed: bool = False, **more: Any) -> View:
        factor = self.chip.batch_factor(numpy_dtype(dtype).itemsize) if packed else 1  # type: ignore[arg-type]
        view = lmem(self.top, shape, dtype, interleave=factor, **more)
        self.top = align(extent(view, self.chip).stop, 128)
        return view

    def put(self, array: np.ndarray, **more: Any) -> View:
        view = self.space(array.shape, dtype_of(array.dtype), **more)
        self.machine.write(view, array)
        return view

    def run(self, kind: type[isa.Command], /, **fields: Any) -> np.ndarray:
        command = kind(id=1, dep=0, op="op", **fields)
        execute(command, self.machine)  # type: ignore[arg-type]
        return self.machine.read(command.writes()[0])


def pack(w: np.ndarray, packing: int) -> np.ndarray:
    """hardware.md 2.3: position of (ic, k) is (ic div P)*(kh*kw*P) + k*P + ic mod P."""
    oc, ic, kh, kw = w.shape
    out = np.zeros((1, oc, 1, align(ic, packing) * kh * kw), w.dtype)
    for c, k in product(range(ic), range(kh * kw)):
        out[0, :, 0, (c // packing) * (kh * kw * packing) + k * packing + c % packing] = w[:, c, k // kw, k % kw]
    return out


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Values of the whole type (up to +-30000); the same for the same arguments, whatever ran before."""
    kind = numpy_dtype(dtype)  # type: ignore[arg-type]
    rng = np.random.default_rng([*shape, *dtype.encode()])
    if kind.kind not in "iu":
        return rng.normal(0, 3, shape).astype(kind)
    low, high = max(np.iinfo(kind).min, -30000), min(np.iinfo(kind).max, 30000)
    return rng.integers(low, high + 1, shape).astype(kind)
