"""Scales of casts at every float format: what a command multiplies by, and what the tensor table may say of it.

The expected numbers are those of ml_dtypes and of numerics.md 8.1: a step rounded to the float type, its reciprocal in
double, narrowed to f32 and to the float type.
"""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from builders.calibrated import ranged
from compiling import to_canonical, to_program, to_reordered
from msgspec import structs
from op_row import network, node
from plain_names import import_onnx

from tpusim.errors import SimulationError
from tpusim.inference import run
from tpusim.ir.module import Model
from tpusim.isa.casts import dequantizing_scale, quantizing_scale
from tpusim.isa.commands import Dequantize, GlobalKernel, Quantize
from tpusim.isa.region import DType
from tpusim.isa.stream import Program, load, save
from tpusim.lowering import LoweringConfig
from tpusim.simulator import Simulator

STEPS = (3.92157e-08, 1e-9, 5.9e-8, 2.9e-8, 6.1e-5, 1.4e-5, 7.9e-8, 0.3, 65519.0, 65521.0, 1e30, 1e-30)
"""Below F16's normal numbers, below half of its least number, at its ends, and far beyond them."""
CASTS = (np.float16, ml_dtypes.bfloat16, np.float32)


@pytest.mark.every
@pytest.mark.parametrize("step", STEPS)
def test_steps_in_every_float_type(step: float) -> None:
    kinds: dict[DType, type] = dict(zip(("f16", "bf16", "f32"), CASTS, strict=True))
    with np.errstate(over="ignore"):
        for kind, dtype in kinds.items():
            for unit in (False, True):
                wanted = np.float32(step).astype(ml_dtypes.bfloat16 if unit else dtype)
                assert dequantizing_scale(step, kind, bf16_unit=unit) == np.float32(wanted)
            wanted = np.float32(np.float32(1 / step).astype(dtype))
            assert quantizing_scale(step, kind, in_bf16=False, bf16_unit=False) == wanted
        bf16 = np.float32(np.float32(1 / step).astype(ml_dtypes.bfloat16))
        assert quantizing_scale(step, "f32", in_bf16=True, bf16_unit=True) == bf16
        on_cpu = np.float32(1) / np.float32(step)
        assert quantizing_scale(step, "f32", in_bf16=False, bf16_unit=True) == on_cpu


def test_numbers_that_f16_does_not_have() -> None:
    """Worked by hand: F16's least number is 2**-24, half of it is a tie and becomes 0, 65520 is beyond the largest."""
    found = [dequantizing_scale(s, "f16", bf16_unit=False) for s in (3.92157e-08, 2.0**-25, 65519.9, 65520.0)]
    assert found == [2.0**-24, 0.0, 65504.0, np.inf]
    assert quantizing_scale(1.5e-5, "f16", in_bf16=False, bf16_unit=False) == np.inf


def lowered(step: float, config: LoweringConfig) -> Model:
    """Integers of this step into a float op, whose result becomes integers of this step."""
    nodes = [node("Relu", "x", "m"), node("Sin", "m", "n"), node("Relu", "n")]
    top = to_canonical(import_onnx(network(nodes)({"x": (1, 4, 3, 5)})))
    top = ranged(top, {name: (-127 * step, 127 * step) for name in "xmny"})
    return to_reordered(top, config)


@pytest.mark.every(2)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    ("chip", "mode"), [("bm1684x", "F16"), ("bm1688", "BF16"), ("bm1684", "F32"), ("cv183x", "BF16")]
)
def test_the_tensor_table_agrees_with_the_commands(step: float, chip: str, mode: str) -> None:
    """A table is refused unless the command's number is the rounding of its step."""
    program = to_program(lowered(step, LoweringConfig(chip, "int8", qtable=f"n:{mode}")), "off")
    bodies = [c.body if isinstance(c, GlobalKernel) else c for c in program.commands]
    assert sum(isinstance(body, Quantize | Dequantize) for body in bodies) >= 3
    Simulator(program)
    entries = [t for t in program.tensors if t.scale]
    assert len(entries) >= 3
    for entry in entries:
        for wrong in (-entry.scale, np.inf, np.nan):
            assert not accepted(program, entry.name, wrong)
    assert not all(accepted(program, entry.name, entry.scale * 1.5) for entry in entries)


def accepted(program: Program, name: str, scale: float) -> bool:
    """Whether a program is accepted whose table says another scale of a tensor."""
    others = tuple(structs.replace(t, scale=scale) if t.name == name else t for t in program.tensors)
    try:
        Simulator(structs.replace(program, tensors=others))
    except SimulationError as error:
        assert f"tensor '{name}': " in str(error) and "correct the tensor table" in str(error)
        return False
    return True


@pytest.mark.every
@pytest.mark.parametrize("step", [3.92157e-08, 1e-9, 65521.0])
def test_the_machine_computes_as_flat_inference(step: float, tmp_path: Path) -> None:
    """Subnormal, 0 and infinite in F16, after a turn through the file."""
    module = lowered(step, LoweringConfig("bm1684x", "int8", qtable="n:F16"))
    save(to_program(module.clone()), tmp_path / "p.tpusim")
    x = {"x": np.random.default_rng(1).uniform(-130 * step, 130 * step, (1, 4, 3, 5)).astype(np.float32)}
    flat, found = run(module, x), Simulator(load(tmp_path / "p.tpusim")).run(x, watch=True).tensors
    assert len(found) >= 5
    for name in set(found) & set(flat):
        np.testing.assert_array_equal(found[name], flat[name], err_msg=name)
