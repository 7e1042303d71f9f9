"""The elements with the largest errors of an op alone, and the part of its operands that they are computed from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import SSAValue

from tpusim.inference import run
from tpusim.ir.attrs import value_name
from tpusim.ir.module import Model
from tpusim.ir.types import is_tensor, shape_of
from tpusim.ops.cast import TpuCast
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.structure import TopInput
from tpusim.studies.diagnosis.losses import Tensors, isolated

AXES = {4: ("n", "c", "h", "w"), 5: ("n", "c", "d", "h", "w")}


@dataclass(frozen=True)
class Source:
    """The part of an operand that an element is computed from.

    window: (first, one past the last) by axis; low, high: the range of the float values in it.
    """

    tensor: str
    window: tuple[tuple[int, int], ...]
    low: float
    high: float

    def __str__(self) -> str:
        values = f"= {self.low:.4g}" if self.low == self.high else f"from {self.low:.4g} to {self.high:.4g}"
        return f"{self.tensor}[{', '.join(map(_range, self.window))}] {values}"


@dataclass(frozen=True)
class Element:
    """One element of a tensor. found: the op's result on ideal operands; wanted: the float op's result."""

    tensor: str
    index: tuple[int, ...]
    found: float
    wanted: float
    sources: tuple[Source, ...]

    def __str__(self) -> str:
        made = f", made of {'; '.join(map(str, self.sources))}" if self.sources else ""
        return f"{self.tensor}{list(self.index)}: {self.found:.4g} instead of {self.wanted:.4g}{made}"


def worst_elements(top: Model, tpu: Model, inputs: Tensors, names: Sequence[str], count: int) -> list[Element]:
    """The `count` elements with the largest errors of each of these tensors, the largest first.

    top, tpu, inputs: as in `losses`. Tensors that only one of the modules has are left out.
    """
    (computed, wanted), floats = isolated(top, tpu, inputs, names), run(top, inputs)
    ops = {value_name(v): op for op in tpu.ops if isinstance(op, TpuOp) for v in op.results if is_tensor(v)}
    return [
        element
        for name in names
        if name in computed and name in ops
        for element in _worst(ops[name], computed[name].reshape(wanted[name].shape), wanted[name], floats, count)
    ]


def _worst(op: TpuOp, found: np.ndarray, wanted: np.ndarray, floats: Tensors, count: int) -> Iterator[Element]:
    with np.errstate(invalid="ignore"):
        off = np.nan_to_num(np.abs(found.astype(np.float64) - wanted), nan=np.inf).ravel()
    for at in np.argsort(-off, kind="stable")[:count]:
        index = tuple(map(int, np.unravel_index(int(at), found.shape)))
        sources = (_source(op, number, index, floats) for number in range(len(op.operands)))
        name = value_name(op.results[0])
        yield Element(name, index, float(found[index]), float(wanted[index]), tuple(filter(None, sources)))


def _source(op: TpuOp, number: int, index: Sequence[int], floats: Tensors) -> Source | None:
    """The part of one operand; None for a constant."""
    tensor = _computed(op.operands[number])
    if tensor is None or value_name(tensor) not in floats:
        return None
    shape = shape_of(op.operands[number])
    axes = AXES.get(len(index), ()) if len(shape) == len(index) else ()
    window = [_part(op, number, axes[i], index[i], size) if axes else (0, size) for i, size in enumerate(shape)]
    part = floats[value_name(tensor)].reshape(shape)[tuple(slice(*ends) for ends in window)]
    return Source(value_name(tensor), tuple(window), float(part.min()), float(part.max())) if part.size else None


def _computed(value: SSAValue) -> SSAValue | None:
    """The tensor before the casts of an operand; None for a constant."""
    while isinstance(value.owner, TpuCast):
        value = value.owner.operands[0]
    return value if is_tensor(value) and isinstance(value.owner, TpuOp | TopInput) else None


def _part(op: TpuOp, number: int, axis: str, at: int, size: int) -> tuple[int, int]:
    """(first, one past the last) that the op reads along an axis; the whole axis if it cannot be cut."""
    needed = op.backward_slice(axis, (at, 1), number) if op.can_slice(axis) else None  # type: ignore[arg-type]
    if needed is None or size == 1:
        return 0, size
    first, last = max(needed[0], 0), min(needed[0] + needed[1], size)
    return (first, last) if first < last else (0, size)


def _range(ends: tuple[int, int]) -> str:
    return str(ends[0]) if ends[1] == ends[0] + 1 else f"{ends[0]}:{ends[1]}"
