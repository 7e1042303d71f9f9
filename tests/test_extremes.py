"""Networks fed with the largest values of every calibrated range and beyond: integers at the ends of their types.

What test_ops.py and test_modes.py hold for usual values holds where everything saturates: the machine's commands and
the flat kernels give the same integers, in local memory and in global layers.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from builders.timings import in_every_order
from compiling import to_program, to_reordered, to_tpu
from op_cases import BY_ID, CASES, OpCase
from rotation import one_in, slow_marks, turn
from rows import calibrated, top_for

from tpusim.inference import Graph, run
from tpusim.ir.module import Model
from tpusim.ir.types import element_of, storage_dtype
from tpusim.lowering import LoweringConfig
from tpusim.ops.framework.base import TpuOp
from tpusim.running.agreement import compare_local
from tpusim.simulator import Simulator, SimulatorOptions

CONFIGS = {
    "bm1684x": LoweringConfig("bm1684x", "int8"),
    "bm1684x-asym": LoweringConfig("bm1684x", "int8", asymmetric=True),
    "bm1684": LoweringConfig("bm1684", "int8"),
    "cv183x": LoweringConfig("cv183x", "int8"),
}
USUAL_RUN = (
    *("conv-3x3", "conv-depthwise", "conv-grouped", "gemm-fc", "matmul-activations", "add", "sum-three", "sub", "mul"),
    *("max", "relu", "bn-alone", "avgpool-3x3-padded", "maxpool-3x3-s2", "leaky", "prelu", "sigmoid", "concat-requant"),
    *("softmax-channels", "abs", "addconst", "subconst-reverse", "maxconst", "minconst", "mulconst-relu", "pad"),
)
"""Rows of the default tests, one per kind of integer op."""


def cells() -> list[object]:
    """Every row in every configuration; of USUAL_RUN one in six belongs to the default tests."""
    return [
        pytest.param(
            case,
            label,
            id=f"{case.id}-{label}",
            marks=() if case.id in USUAL_RUN and turn(case, number, 6) else slow_marks(case, number),
        )
        for number, label in enumerate(CONFIGS)
        for case in CASES
    ]


def loud(case: OpCase) -> dict[str, np.ndarray]:
    """Inputs four times as large as in calibration, a quarter of them zero."""
    found = {}
    for i, (name, shape) in enumerate(case.inputs.items()):
        low, high = case.ranges.get(name, (-1.0, 1.0))
        rng = np.random.default_rng([9, i])
        ends = np.where(rng.integers(0, 2, shape) == 0, low, high) * 4
        found[name] = np.where(rng.integers(0, 4, shape) == 0, 0.0, ends).astype(np.float32)
    return found


@pytest.mark.parametrize(("case", "label"), cells())
def test_saturated_integers_agree(case: OpCase, label: str) -> None:
    config, feeds = CONFIGS[label], loud(case)
    tpu = to_tpu(top_for(case.id, config), config)
    flat = run(tpu, feeds)
    reordered = to_reordered(tpu)
    for grouping, dma in (("1", "late"), ("off", "early")):
        program = to_program(reordered, grouping)
        machine = Simulator(program, options=SimulatorOptions(dma=dma)).run(feeds, watch=True).tensors  # type: ignore[arg-type]
        found = compare_local(tpu, feeds, machine, flat)
        assert found.compared and found.passed, [(t.name, t.verdict, t.note) for t in found.failures]
        assert all(t.bit_exact for t in found.tensors if t.is_integer)


BATCHES = ("conv-3x3", "conv-depthwise", "gemm-fc", "add", "avgpool-3x3-padded", "softmax-channels", "concat-requant")


EVERY_FAMILY = {**CONFIGS, "bm1688": LoweringConfig("bm1688", "int8")}


def typed(case_id: str, config: LoweringConfig, batch: int | None = None) -> Model:
    """The lowered row with another batch; the thresholds are those of the row."""
    return to_tpu(top_for(case_id, config, batch), config)


@pytest.mark.parametrize(("case_id", "label"), one_in(6, product(BATCHES, EVERY_FAMILY)))
def test_eight_images_are_eight_times_one(case_id: str, label: str) -> None:
    """Batch 8 against batch 1, flat and on the machine; on BM1684 four images share a word."""
    case, config = BY_ID[case_id], EVERY_FAMILY[label]
    eight, one = (typed(case_id, config, n) for n in (8, 1))
    images = loud(replace(case, inputs=case.shapes(8)))
    feeds = {k: v if k in case.fixed else v.copy() for k, v in images.items()}
    together = run(eight, feeds)
    program = to_program(eight)
    machine = Simulator(program, options=SimulatorOptions(dma="late")).run(feeds, watch=True).tensors
    found = compare_local(eight, feeds, machine, together)
    assert found.passed and all(t.bit_exact for t in found.tensors if t.is_integer)
    for i in range(8):
        alone = run(one, {k: v if k in case.fixed else v[i : i + 1] for k, v in feeds.items()})
        for name, expected in alone.items():
            if expected.dtype.kind in "iu":
                np.testing.assert_array_equal(together[name][i : i + 1], expected, err_msg=f"{name} of image {i}")


@pytest.mark.parametrize("label", [n for n in EVERY_FAMILY if n not in ("bm1684x", "bm1684")])  # those: test_ops.py
@pytest.mark.parametrize("case_id", BATCHES)
def test_whole_graph_equals_op_by_op(case_id: str, label: str) -> None:
    """One jitted graph, single ops, and the machine with either DMA: the same integers, saturated ones included."""
    tpu, feeds = typed(case_id, EVERY_FAMILY[label]), loud(BY_ID[case_id])
    apart, together = run(tpu, feeds), Graph(tpu, "all")(feeds)
    integers = [name for name, found in apart.items() if found.dtype.kind in "iu"]
    assert integers or (case_id, label) == ("softmax-channels", "cv183x")  # float on CV18xx
    for name in integers:
        np.testing.assert_array_equal(together[name], apart[name], err_msg=name, strict=True)
    program = to_program(tpu)
    in_every_order(program, feeds)


def test_the_inputs_saturate() -> None:
    """Both ends of a byte are reached after the casts."""
    case = next(c for c in CASES if c.id == "conv-3x3")
    tpu = to_tpu(calibrated(case.id), CONFIGS["bm1684x"])
    flat = run(tpu, loud(case))
    quantised = [flat[n] for n in flat if flat[n].dtype == np.int8]
    assert any({-128, 127} <= set(np.unique(t).tolist()) for t in quantised)
    assert any(isinstance(op, TpuOp) and storage_dtype(element_of(op.results[0])).itemsize == 1 for op in tpu.ops)


def test_the_usual_rows_exist() -> None:
    assert set(USUAL_RUN) <= {c.id for c in CASES}


@pytest.mark.parametrize(("chip", "mode"), [("bm1684x", "f32"), ("cv183x", "bf16")])
@pytest.mark.parametrize("name", ["conv-3x3", "matmul-activations", "add", "sub", "mul", "gemm-fc"])
def test_floats_beyond_their_type_are_computed_without_a_word(chip: str, mode: str, name: str) -> None:
    """Infinities, or the largest numbers of a chip without them, are results; NumPy's warnings are errors in tests."""
    large = {key: (np.sign(value) * 3e38).astype(np.float32) for key, value in loud(BY_ID[name]).items()}
    tensors = Simulator(to_program(typed(name, LoweringConfig(chip, mode)))).run(large).tensors
    assert any(not (np.abs(np.asarray(value, np.float32)) < 3.3e38).all() for value in tensors.values())
