"""Calibrated modules: written as text, or with ranges given by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from compiling import to_reordered, to_tpu_with_fallbacks

from tpusim import chips
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model, update_function_type
from tpusim.ir.text import parse_module, print_module
from tpusim.ir.types import CalibratedType, calibrated_range, f32, is_tensor, retyped, set_type
from tpusim.ir.weights import WeightStore
from tpusim.lowering.lower import Fallback
from tpusim.lowering.propagate import propagate
from tpusim.ops import context
from tpusim.ops.structure import TopWeight

Array = np.ndarray
Range = tuple[float, float]
WINDOW = (
    "kernel_shape = [{k} : i64, {k} : i64], strides = [{s} : i64, {s} : i64], "
    "pads = [{p} : i64, {p} : i64, {p} : i64, {p} : i64]"
)


@dataclass(frozen=True)
class Row:
    """One op: `name = kind(operands) {attributes}` with the result's shape and calibrated range."""

    name: str
    kind: str
    operands: str
    shape: tuple[int, ...]
    range: Range | None = None
    attributes: str = ""

    @property
    def type(self) -> str:
        if self.kind == "None":
            return "none"
        element = CalibratedType.of(*self.range) if self.range else f32
        return f"tensor<{'x'.join(map(str, self.shape))}x{element}>"

    def text(self, rows: dict[str, Row]) -> str:
        names = self.operands.split()
        if self.kind == "Input":
            shape = "x".join(map(str, self.shape))
            types = f"(tensor<{shape}xf32>) -> {self.type}"
            return f'%{self.name} = "top.Input"(%arg_{self.name}) : {types} loc("{self.name}")'
        types = ", ".join(rows[n].type for n in names)
        operands = ", ".join(f"%{n}" for n in names)
        attributes = f" {{{self.attributes}}}" if self.attributes else ""
        return f'%{self.name} = "top.{self.kind}"({operands}){attributes} : ({types}) -> {self.type} loc("{self.name}")'


def x(name: str, shape: Sequence[int], low: float, high: float) -> Row:
    return Row(name, "Input", "", tuple(shape), (low, high))


def module(*rows: Row, results: str = "y", weights: dict[str, Array] | None = None) -> Model:
    """A calibrated module; weights are declared before everything else."""
    weights = weights or {}
    constants = [Row(n, "Weight", "", a.shape) for n, a in weights.items()] + [Row("none", "None", "", ())]
    by_name = {r.name: r for r in (*constants, *rows)}
    inputs = [r for r in rows if r.kind == "Input"]
    arguments = ", ".join(f"%arg_{r.name}: tensor<{'x'.join(map(str, r.shape))}xf32>" for r in inputs)
    returned = results.split()
    types = ", ".join(by_name[n].type for n in returned)
    lines = "\n    ".join(r.text(by_name) for r in by_name.values())
    text = f"""builtin.module attributes {{module.name = "net", module.state = "TOP_CALIBRATED"}} {{
  func.func @main({arguments}) -> ({types}) {{
    {lines}
    func.return {", ".join(f"%{n}" for n in returned)} : {types}
  }}
}}"""
    return Model(parse_module(text, context()), WeightStore(weights))


def lowered(model: Model, chip: str = "bm1684x") -> tuple[Model, dict[str, Any], list[Fallback]]:
    """(module, its ops by name, fallbacks); the text round-trips and a later stage takes it."""
    result, fallbacks = to_tpu_with_fallbacks(model, chip)
    text = print_module(result.module)
    assert print_module(parse_module(text, context())) == text
    assert to_reordered(result).state == "TPU_REORDERED"
    return result, {op_name(op): op for op in result.ops if op_name(op)}, fallbacks


IMAGE = (1, 2, 4, 4)
HALF = WINDOW.format(k=2, s=2, p=0)
ORDER = "order = [0 : i64, 1 : i64, 3 : i64, 2 : i64]"


def propagated(*rows: Row, results: str = "y", chip: str = "bm1684x", weights: dict[str, Array] | None = None) -> Any:
    model = module(*rows, results=results, weights=weights)
    propagate(model, chips.load(chip))
    assert print_module(parse_module(print_module(model.module), context()))
    return {
        op_name(op): calibrated_range(op.results[0])
        for op in model.ops
        if op.results and not isinstance(op, TopWeight) and is_tensor(op.results[0]) and op_name(op)
    }


def image(name: str, low: float, high: float) -> Row:
    return x(name, IMAGE, low, high)


def op(name: str, kind: str, operands: str, low: float, high: float) -> Row:
    """An op on images; pools halve them."""
    pools = kind.endswith("Pool")
    shape = (1, 4, 4, 4) if kind == "Concat" else (1, 2, 2, 2) if pools else IMAGE
    attributes = {"Permute": ORDER, "Concat": "axis = 1 : i64"}.get(kind, HALF if pools else "")
    return Row(name, kind, operands, shape, (low, high), attributes)


def ranged(model: Model, ranges: dict[str, Range]) -> Model:
    """The module with calibrated ranges by name."""
    for op in list(model.ops):
        if op.results and not isinstance(op, TopWeight) and is_tensor(op.results[0]):
            value = op.results[0]
            set_type(value, retyped(value, CalibratedType.of(*ranges[op_name(op)])))
    update_function_type(model)
    model.set(state="TOP_CALIBRATED")
    return model
