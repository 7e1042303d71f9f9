"""The rows of op_cases.py at every stage, made once per test process, and how to ask their ops."""

from __future__ import annotations

from functools import cache

import numpy as np
from compiling import to_calibrated, to_canonical, to_tpu_with_fallbacks
from op_cases import BY_ID, OpCase
from plain_names import import_onnx
from xdsl.dialects.builtin import NoneType
from xdsl.ir import Operation, SSAValue

from tpusim.calibration.stage import CalibrationConfig, calibrate
from tpusim.calibration.table import CalibrationTable
from tpusim.inference import run
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ir.types import element_of, shape_of, storage_dtype
from tpusim.lowering import LoweringConfig
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.structure import TopWeight

Array = np.ndarray

SECONDARY = {
    "bm1684x-f16": LoweringConfig("bm1684x", "f16"),
    "bm1684x-bf16": LoweringConfig("bm1684x", "bf16"),
    "bm1684x-asym": LoweringConfig("bm1684x", "int8", asymmetric=True),
    "bm1688-int8": LoweringConfig("bm1688", "int8"),
    "bm1688-f16": LoweringConfig("bm1688", "f16"),
    "bm1690-asym": LoweringConfig("bm1690", "int8", asymmetric=True),
    "cv183x-int8": LoweringConfig("cv183x", "int8"),
    "cv183x-bf16": LoweringConfig("cv183x", "bf16"),
    "cv182x-int8": LoweringConfig("cv182x", "int8"),
}
"""Chips, number modes and zero points beyond the two chips and modes that every row meets."""

# ------------------------------------------------------------------------------------------------------------- stages


@cache
def imported(case_id: str, batch: int | None = None) -> Model:
    return import_onnx(BY_ID[case_id].model(batch), name=case_id.replace("-", "_"))


@cache
def canonical(case_id: str, batch: int | None = None) -> Model:
    return to_canonical(imported(case_id, batch))


@cache
def table(case_id: str) -> CalibrationTable:
    samples = [BY_ID[case_id].feeds(seed) for seed in (0, 1)]
    return calibrate(canonical(case_id), samples, CalibrationConfig(method="max"))[0]


@cache
def calibrated(case_id: str, batch: int | None = None, *, asymmetric: bool = False) -> Model:
    """The thresholds are those of the row, whatever the batch."""
    return to_calibrated(canonical(case_id, batch), table(case_id), asymmetric=asymmetric)


def top_for(case_id: str, config: LoweringConfig, batch: int | None = None) -> Model:
    """What is lowered in the mode."""
    return (
        calibrated(case_id, batch, asymmetric=config.asymmetric) if config.mode == "int8" else canonical(case_id, batch)
    )


@cache
def lowered(case_id: str, chip: str, mode: str, batch: int | None = None) -> tuple[Model, tuple[str, ...]]:
    """(tpu module as the layer groups get it, reasons of the float fallbacks)."""
    top = calibrated(case_id, batch) if mode == "int8" else canonical(case_id, batch)
    model, fallbacks = to_tpu_with_fallbacks(top, chip, mode)
    return model, tuple(f.why for f in fallbacks)


@cache
def flat(case_id: str, chip: str, mode: str) -> dict[str, Array]:
    return run(lowered(case_id, chip, mode)[0], BY_ID[case_id].feeds())


@cache
def top_tensors(case_id: str) -> dict[str, Array]:
    return run(canonical(case_id), BY_ID[case_id].feeds())


def tpu_ops(model: Model) -> list[TpuOp]:
    return [op for op in model.body.walk() if isinstance(op, TpuOp)]


def under_test(case: OpCase, model: Model) -> TpuOp:
    """The last op of the class the row is about."""
    return [op for op in tpu_ops(model) if op.name in case.result.split("|")][-1]


def tail(model: Model) -> str:
    """The name of the returned tensor."""
    owner = model.results[0].owner
    assert isinstance(owner, Operation)
    return op_name(owner)


# ----------------------------------------------------------------------------------------------------------- operands


def constant(value: SSAValue, model: Model) -> Array | None:
    return model.weights[op_name(value.owner)] if isinstance(value.owner, TopWeight) else None


def whole_range(value: SSAValue, seed: int) -> Array:
    """Values over all that the storage can hold (floats: a little more than a quantised tensor can)."""
    shape, dtype, rng = shape_of(value), storage_dtype(element_of(value)), np.random.default_rng(seed)
    if dtype.kind not in "iu":
        return rng.uniform(-3, 3, shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, int(info.max) + 1, shape).astype(dtype)


def operands_of(op: TpuOp, model: Model, tensors: dict[str, Array] | None) -> list[Array | None]:
    """Operands from the flat run, or over the whole range of their types."""
    found: list[Array | None] = []
    for i, value in enumerate(op.operands):
        if isinstance(value.type, NoneType):
            found.append(None)
            continue
        fixed = constant(value, model)
        if fixed is None:
            owner = value.owner
            assert isinstance(owner, Operation)
            fixed = whole_range(value, i) if tensors is None else tensors[op_name(owner)]
        found.append(fixed)
    return found
