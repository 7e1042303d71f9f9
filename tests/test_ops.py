"""Every row of op_cases.py on every stage, chip and mode.

Text, shapes, float, lowering, integers by an oracle, batches, whole-graph jit, and slices on the machine. One item per
row and configuration; some configurations take turns by rows (rotation.py), and `make slow` has the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import frame_cases
import numpy as np
import onnx
import pytest
from builders.timings import in_every_order
from compiling import to_addressed, to_groups, to_program, to_reordered
from op_cases import BY_ID, CASES, CHIPS, MODES, NOT_REACHED, STEPS, OpCase
from op_oracles import ORACLES, has_integer_form
from rotation import is_usual, marks, slow_marks, some_first, turn
from rows import (
    calibrated,
    canonical,
    flat,
    imported,
    lowered,
    operands_of,
    tail,
    top_tensors,
    tpu_ops,
    under_test,
)
from slicings import Forced, cuts, few_sections, sections_between
from xdsl.dialects.builtin import i32

from tpusim import chips
from tpusim.frontend import OnnxReference
from tpusim.frontend.onnx.table import FAMILIES, MAPPERS
from tpusim.inference import Graph, dequantised, replay, run
from tpusim.interfaces import rules
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ir.text import parse_module, print_module
from tpusim.ir.types import element_of, shape_of, storage_dtype, uniform_of
from tpusim.isa.stream import Program
from tpusim.layer_group.slicing import even_windows
from tpusim.numbers.closeness import FLOAT_BOUND_ULPS
from tpusim.ops import Top, Tpu, context
from tpusim.ops.framework.base import TopOp, TpuOp
from tpusim.ops.interfaces import FilledUp, GroupRules, is_in_place
from tpusim.ops.resize import TpuUpsample
from tpusim.ops.structure import TpuGroup
from tpusim.registry import STRATEGIES
from tpusim.schedule import Sections
from tpusim.verify.compare import Tolerance, compare

Array = np.ndarray

EVERY = pytest.mark.parametrize("case", [pytest.param(c, id=c.id, marks=marks(is_usual(c, 0))) for c in CASES])
CONFIGS = tuple((chip, mode) for mode in MODES for chip in CHIPS)


def configured(usual: Callable[[OpCase, int], bool], configs: Sequence[tuple[str, str]] = CONFIGS) -> Any:
    """Every row on every chip in every mode; the default tests have the `usual` ones, asked by their number."""
    return pytest.mark.parametrize(
        ("case", "chip", "mode"),
        [
            pytest.param(case, chip, mode, id=f"{case.id}-{chip}-{mode}", marks=marks(usual(case, number)))
            for case in CASES
            for number, (chip, mode) in enumerate(configs)
        ],
    )


INT8_TOLERANCE = Tolerance(0.95, 0.70)
"""TPU against TOP in op tests (interface.md 6.3)."""
F32_TOLERANCE = Tolerance(0.9999, 0.9999)
"""Upstream asks 0.9, 0.9; the same formulas in the same precision must do better."""


# ----------------------------------------------------------------------------------------------------------- the census


def test_every_class_that_a_front_end_makes_has_a_row() -> None:
    reached = {op.name for case in CASES for op in imported(case.id).ops}
    not_here = {"top.SiLU", "top.Rsqrt"}  # no node before opset 24; made of Sqrt and Div by the lowering
    assert {c.name for c in Top.operations if hasattr(c, "make")} <= reached | not_here
    node_types = {node.op_type for case in CASES for node in case.model().graph.node}
    assert set(MAPPERS) <= node_types | {"Scatter", "CumProd"}  # ScatterElements before opset 11; from opset 26 on
    assert len(MAPPERS) == sum(len(family.MAPPERS) for family in FAMILIES)
    assert {"Dropout", "Identity"} <= node_types


def test_every_op_of_the_dialects_is_reached() -> None:
    """The lowering tests check `result` of every row; a few modules check the rest."""
    reached = {name for case in CASES for name in case.result.split("|")}
    reached |= {op.name for case in CASES for model in (imported(case.id), canonical(case.id)) for op in model.ops}
    for row in ("concat-requant", "topk-places"):
        tpu, _ = lowered(row, "bm1684x", "int8")
        reached |= {op.name for op in to_groups(tpu).body.walk()}
    for network, chip, mode, options, _ in (*frame_cases.CASES[10:12], frame_cases.CASES[15]):
        reached |= {op.name for op in frame_cases.lowered(network, chip, mode, options).ops}
    missing = {c.name for dialect in (Top, Tpu) for c in dialect.operations} - reached
    assert missing == set(NOT_REACHED)


# ------------------------------------------------------------------------------------------------------ text and shapes


def assert_round_trip(model: Model) -> None:
    once = print_module(model.module)
    parsed = parse_module(once, context())
    assert print_module(parsed) == once
    assert parsed.is_structurally_equivalent(model.module)


@configured(lambda case, number: some_first(case, number) or turn(case, number, 80), CONFIGS[: len(CHIPS)])
def test_text_of_modules(case: OpCase, chip: str, mode: str) -> None:
    """INT8: the module of every stage; f32: the last, which has all that the ones before it have."""
    for model in (imported(case.id), canonical(case.id), calibrated(case.id)):
        assert_round_trip(model)
    for model in tpu_modules(case, chip, mode):
        assert_round_trip(model)
    assert_round_trip(tpu_modules(case, chip, "f32")[-1])


def tpu_modules(case: OpCase, chip: str, mode: str) -> tuple[Model, ...]:
    tpu, _ = lowered(case.id, chip, mode)
    reordered = to_reordered(tpu)
    grouped = to_groups(reordered)
    return tpu, reordered, grouped, to_addressed(grouped)


def onnx_shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    graph = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    return {
        v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim)
        for v in (*graph.value_info, *graph.output)
        if v.type.tensor_type.HasField("shape") and all(d.HasField("dim_value") for d in v.type.tensor_type.shape.dim)
    }


UNKNOWN_TO_ONNX = {
    "groupnorm": "onnx.shape_inference infers nothing for GroupNormalization of opset 21",
    "nms": "how many rows NonMaxSuppression has depends on the data",
}


@EVERY
def test_shapes_and_floats_are_those_of_onnx(case: OpCase) -> None:
    assert_shapes_are_those_of_onnx(case)
    assert_top_inference_is_onnx_runtime(case)


def assert_shapes_are_those_of_onnx(case: OpCase) -> None:
    expected = onnx_shapes(case.model())
    for model in (imported(case.id), canonical(case.id), *(lowered(case.id, c, "int8")[0] for c in CHIPS)):
        found = {op_name(op): shape_of(op.results[0]) for op in model.ops if isinstance(op, TopOp | TpuOp)}
        common = found.keys() & expected.keys()
        assert ("y" in common) == (case.id not in UNKNOWN_TO_ONNX)
        assert {name: found[name] for name in common} == {name: expected[name] for name in common}


def assert_top_inference_is_onnx_runtime(case: OpCase) -> None:
    expected = OnnxReference(case.model(), threads=1).run(case.feeds())
    found, ops = run(imported(case.id), case.feeds()), {op_name(op): op for op in imported(case.id).ops}
    names = expected.keys() & found.keys()
    assert "y" in names
    for name in names:
        assert found[name].dtype == np.float32
        op, slack = ops[name], case.tolerance.atol * float(np.abs(expected[name]).max())
        value = op.without_padding(found[name]) if isinstance(op, FilledUp) else found[name]
        np.testing.assert_allclose(value, expected[name], rtol=case.tolerance.rtol, atol=slack, err_msg=name)


# ------------------------------------------------------------------------------------------------------------- lowering


@configured(
    lambda case, number: is_usual(case, number) or turn(case, number, 40 if CONFIGS[number][1] == "int8" else 80)
)
def test_lowering_kernels_and_machine(case: OpCase, chip: str, mode: str) -> None:
    """The lowered row against the float one, its integers against the oracle, its commands against its kernels."""
    if mode == "int8":
        assert_integer_form_or_the_declared_reason(case, chip)
        assert_integers_are_within_a_step_of_top(case, chip)
        assert_integer_kernels_are_the_oracle(case, chip)
    else:
        assert_float_form(case, chip)
    assert_tpu_is_similar_to_top(case, chip, mode)
    assert_machine_equals_flat(case, chip, mode)


def assert_integer_form_or_the_declared_reason(case: OpCase, chip: str) -> None:
    tpu, why_float = lowered(case.id, chip, "int8")
    op = under_test(case, tpu)
    if chip not in case.fallback:
        assert why_float == ()
        assert storage_dtype(element_of(op.results[0])).kind in "iu"
    else:
        assert [why for why in why_float if case.fallback[chip] in why]
        assert uniform_of(op.results[0]) is None  # a float, or an index as int32


def assert_float_form(case: OpCase, chip: str) -> None:
    tpu, why_float = lowered(case.id, chip, "f32")
    assert why_float == ()
    assert under_test(case, tpu).name in case.result.split("|")
    assert all(uniform_of(op.results[0]) is None for op in tpu_ops(tpu))
    assert all(element_of(op.operands[0]) == i32 for op in tpu_ops(tpu) if op.name == "tpu.Cast")


def assert_tpu_is_similar_to_top(case: OpCase, chip: str, mode: str) -> None:
    tpu, _ = lowered(case.id, chip, mode)
    real = dequantised(tpu, flat(case.id, chip, mode))
    tolerance = INT8_TOLERANCE if mode == "int8" else F32_TOLERANCE
    found = compare(real, top_tensors(case.id), tolerance, label=case.id)
    assert found.passed, [(t.name, t.cosine, t.euclidean) for t in found.tensors if not t.passed]
    assert found.compared


def assert_integers_are_within_a_step_of_top(case: OpCase, chip: str) -> None:
    """Stricter than upstream's similarity: a wrong scale or multiplier shows."""
    tpu, _ = lowered(case.id, chip, "int8")
    real, top = dequantised(tpu, flat(case.id, chip, "int8")), top_tensors(case.id)
    for op in tpu_ops(tpu):
        name, uniform = op_name(op), uniform_of(op.results[0])
        if uniform is not None and name in top:
            error = np.sqrt(np.mean((real[name] - top[name]) ** 2)) / uniform.scale.data
            assert error <= case.steps.get(chip, STEPS), name


@pytest.mark.parametrize("chip", CHIPS)
def test_only_bm1684_clamps_a_scale_to_16_bits(chip: str) -> None:
    op = under_test(BY_ID["bn-wide"], lowered("bn-wide", chip, "int8")[0])
    assert ("tpusim.clamp16" in op.attributes) == (chip == "bm1684")


# ------------------------------------------------------------------------------------------------ integers by an oracle


def assert_integer_kernels_are_the_oracle(case: OpCase, chip: str) -> None:
    tpu, _ = lowered(case.id, chip, "int8")
    tensors = flat(case.id, chip, "int8")
    for op in tpu_ops(tpu):
        if has_integer_form(op):
            expected = ORACLES[op.name](op, operands_of(op, tpu, tensors))
            np.testing.assert_array_equal(tensors[op_name(op)], expected, err_msg=op_name(op), strict=True)
            extreme = operands_of(op, tpu, None)
            found = np.asarray(op.compute(extreme, chips.load(chip))[0])
            np.testing.assert_array_equal(found, ORACLES[op.name](op, extreme), err_msg=op_name(op), strict=True)


# ------------------------------------------------------------------------------------------------ batch and whole graph


OTHER_ON_BM1684 = ("conv-3x3", "conv-depthwise", "gemm-fc", "add", "relu", "bn-alone", "avgpool-3x3-inside", "mul")
"""Rows with integer kernels that differ from BM1684X (shift only, 8-bit relu, 16-bit clamp); the other rows compile to
the same code on both, so once is enough."""
ONCE = [
    pytest.param(case, chip, id=f"{case.id}-{chip}", marks=marks(some_first(case, number) or turn(case, number, 80)))
    for number, chip in enumerate(CHIPS)
    for case in CASES
    if chip == "bm1684x" or case.id in OTHER_ON_BM1684
]


@pytest.mark.parametrize(("case", "chip"), ONCE)
def test_batch_and_whole_graph(case: OpCase, chip: str) -> None:
    assert_whole_graph_equals_op_by_op(case, chip)
    if case.batched:
        assert_integers_do_not_depend_on_the_batch(case, chip)


def assert_integers_do_not_depend_on_the_batch(case: OpCase, chip: str) -> None:
    together, feeds = flat(case.id, chip, "int8"), case.feeds()
    single, _ = lowered(case.id, chip, "int8", batch=1)
    for i in (0, len(together["y"]) - 1):
        alone = run(single, {k: v if k in case.fixed else v[i : i + 1] for k, v in feeds.items()})
        for name, found in alone.items():
            if found.dtype != np.float32:
                expected = together[name]
                expected = expected if expected.shape == found.shape else expected[i : i + 1]
                np.testing.assert_array_equal(found, expected, err_msg=name)


def assert_whole_graph_equals_op_by_op(case: OpCase, chip: str) -> None:
    """Integers bit for bit, after float ops too: kernels are fenced (tpusim_kernels.base); floats to 1e-5."""
    tpu, _ = lowered(case.id, chip, "int8")
    together, apart = Graph(tpu, "all")(case.feeds()), flat(case.id, chip, "int8")
    assert together.keys() == apart.keys()
    for name, expected in apart.items():
        assert together[name].dtype == expected.dtype
        if expected.dtype.kind in "iu":
            np.testing.assert_array_equal(together[name], expected, err_msg=name)
        else:
            slack = 1e-5 * float(np.abs(expected).max())
            np.testing.assert_allclose(together[name], expected, rtol=0, atol=slack, err_msg=name)


# ------------------------------------------------------------------------------------------------ slices on the machine


UNREAD = {"deconv-pads-beyond-kernel": {"xy_si8"}}
"""Rows whose op reads no edge of an operand, by pads beyond its kernel: where it is cut, those columns are not made."""


def assert_machine_is_flat(case: OpCase, chip: str, mode: str, program: Program) -> None:
    """Under both DMA timings: integers bit for bit, floats within the bound on the machine's inputs."""
    tpu, _ = lowered(case.id, chip, mode)
    reference, feeds = flat(case.id, chip, mode), case.feeds()
    shown = {op_name(op) for op in tpu_ops(tpu) if not is_in_place(op)} | {tail(tpu)}
    shown -= UNREAD.get(case.id, set())
    machine = in_every_order(program, feeds)
    assert shown <= machine.keys()
    own = replay(tpu, {**feeds, **machine})
    for name in machine.keys() - feeds.keys():
        assert_equal_or_within_bound(name, machine[name], own.get(name, reference[name]))


def assert_equal_or_within_bound(name: str, found: Array, expected: Array) -> None:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if found.dtype != np.float32:
        np.testing.assert_array_equal(found, expected, err_msg=name)
        return
    unit = np.spacing(np.abs(expected).max())
    np.testing.assert_allclose(found, expected, rtol=0, atol=FLOAT_BOUND_ULPS * unit, err_msg=name)


def assert_machine_equals_flat(case: OpCase, chip: str, mode: str) -> None:
    """As the compiler groups by itself; making the machine checks every command."""
    reordered = to_reordered(lowered(case.id, chip, mode)[0])
    assert_machine_is_flat(case, chip, mode, to_program(reordered))


@configured(lambda case, number: some_first(case, number) or turn(case, number, 20), CONFIGS[: len(CHIPS)])
def test_machine_with_every_op_alone(case: OpCase, chip: str, mode: str) -> None:
    """INT8 without groups: every op goes through global memory."""
    reordered = to_reordered(lowered(case.id, chip, mode)[0])
    assert_machine_is_flat(case, chip, mode, to_program(reordered, "off"))


NO_PROGRESS = "makes no progress"
"""A cut after which a window along d, on BM1684 along h too, starts at 0 again or ends where the one before it does, is
refused (layer_group.md 7.1)."""


NO_INPUT = {
    "deconv-open-end": ("cannot be cut along", 6),
    "conv-padding-alone": ("needs an empty window", 1),
    "conv3d-padding-alone": ("needs an empty window", 1),
}
"""Rows whose last elements see no input, so that a slice of those alone has none: the reason, the most sections."""


def cuts_a_cell(op: TpuUpsample, sections: Sections) -> bool:
    """Whether a slice begins or ends inside the copies of one element (layer_group.md 7.2)."""
    lengths = shape_of(op.output)[2:]
    return any(
        start % factor or size % factor
        for count, length, factor in zip((sections.h, sections.w), lengths, op.factors, strict=True)
        for start, size in even_windows(length, count)
    )


@configured(lambda case, number: some_first(case, number) or turn(case, number, 80))
def test_stitched_slices_equal_the_whole(case: OpCase, chip: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first and the largest section count along every axis, and pairs: the machine's slices are the flat tensor."""
    assert_slices_equal_the_whole(case, chip, mode, monkeypatch, few_sections)


@pytest.mark.parametrize(
    ("case", "chip"),
    [
        pytest.param(case, chip, id=f"{case.id}-{chip}", marks=slow_marks(case, number))
        for number, chip in enumerate(CHIPS)
        for case in CASES
    ],
)
def test_every_section_count(case: OpCase, chip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """INT8, the counts between: every legal one along n and h, some along the other axes."""
    assert_slices_equal_the_whole(case, chip, "int8", monkeypatch, sections_between)


def assert_slices_equal_the_whole(
    case: OpCase,
    chip: str,
    mode: str,
    monkeypatch: pytest.MonkeyPatch,
    choice: Callable[[Sections], list[Sections]],
) -> None:
    spec = chips.load(chip)
    reordered = to_reordered(lowered(case.id, chip, mode)[0])
    op = under_test(case, reordered)
    axes, limit, kind = cuts(op, spec)
    assert axes == case.cut_axes(chip, mode)
    for sections in choice(limit):
        monkeypatch.setitem(STRATEGIES.entries, "forced", Forced(sections, kind))
        grouped = to_groups(reordered, "forced")
        found = sections_of(case, grouped)
        if isinstance(found, str) and NO_PROGRESS in found:
            assert sections.d > 1 or (spec.hardware.batch_packing and sections.h > 2)
            continue
        if isinstance(found, str) and isinstance(op, TpuUpsample):
            assert rules(spec, GroupRules).WHOLE_UPSAMPLE and cuts_a_cell(op, sections)
            continue
        if isinstance(found, str) and case.id in NO_INPUT:
            reason, most = NO_INPUT[case.id]
            assert reason in found
            assert sections.h > most or sections.w > most
            continue
        assert found == sections
        assert_machine_is_flat(case, chip, mode, to_program(grouped))


def sections_of(case: OpCase, model: Model) -> Sections | str:
    """How the op under test was cut, or why it is not in a group."""
    op = under_test(case, model)
    group = op.parent_op()
    if not isinstance(group, TpuGroup):
        return str(op.attributes["tpusim.global_reason"])
    found = group.sections()
    return Sections(**found)
