"""The float type of every op row, by mode and chip, against the tables of numerics.md 12 (typed once, here).

12.1: what an op becomes in INT8 mode where it has no integer form; 12.2: F16 mode; 12.3: BF16 mode.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from compiling import to_calibrated, to_canonical, to_program, to_tpu, to_tpu_with_fallbacks
from op_cases import CASES
from op_row import OpCase, network, node
from plain_names import import_onnx
from rotation import marks, turn
from rows import calibrated, canonical
from xdsl.ir import Operation

from tpusim import chips
from tpusim.inference import run
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ir.types import element_of, shape_of
from tpusim.lowering import LoweringConfig
from tpusim.lowering.chip_forms import require_fitting_rules
from tpusim.ops import Top
from tpusim.ops.framework.base import TopOp, reads_indices
from tpusim.ops.structure import TopInput, TopNone, TopWeight
from tpusim.ops.view import ViewTop
from tpusim.running.pipeline import compare_local
from tpusim.simulator import Simulator

ALL = ("bm1684x", "bm1688", "cv186x", "bm1690")
BM1688 = ("bm1688", "cv186x")

INT8_F32 = {
    "Sub": "asym", "Relu": "asym", "MatMul": "act x act asym, or batch > 1 with z_in", "AvgPool": "uneven or adaptive",
    "Conv": "dynamic filter", "Deconv": "dynamic filter", "Div": "", "GroupNorm": "", "InstanceNorm": "", "LRN": "",
    "Compare": "unequal scales",
    "Where": "unequal scales, as Compare", "Arg": "", "CumSum": "", "Mod": "", "TopK": "", "Nms": "", "Pow3": "",
    "Tan": "", "Arccos": "", "Arctanh": "", "Arcsin": "", "Arctan": "", "Trunc": "", "GRU": "", "Reverse": "",
}  # fmt: skip
"""12.1, rows F32 and F32 (BF16c), 9.6 for AvgPool; every other fallback is F16."""

F16_F32 = frozenset(
    [
        "Arg",
        "CumSum",
        "Mod",
        "TopK",
        "Nms",
        "Pow",
        "Pow3",
        "Tan",
        "Arccos",
        "Arctanh",
        "Arcsin",
        "Arctan",
        "Trunc",
        "Cosh",
        "Sinh",
        "LRN",
        "Mish",
        "Reciprocal",
        "Softplus",
        "Softsign",
        "AvgPool",
        "Cos",
        "Elu",
        "Sin",
        "Tanh",
        "InstanceNorm",
        "Sigmoid",
        "Sqrt",
        "GRU",
        "LSTM",
        "Reverse",
        "PixelNorm",
    ]
)
"""12.2, rows F32 and F32 (BF16c); PixelNorm because no range bounds its sum of squares here (11.2)."""
F16_CHIPS = {
    "GELU": BM1688, "SiLU": ("bm1690",), "HardSigmoid": BM1688, "Erf": BM1688, "Div": BM1688
}  # fmt: skip
"""12.2, chip dependent: the chips where it is F16; F32 on the others."""

BF16_F32 = frozenset(
    [
        "Arg",
        "GridSampler",
        "Mod",
        "TopK",
        "Nms",
        "Pow",
        "Pow3",
        "Tan",
        "Arccos",
        "Arctanh",
        "Arcsin",
        "Arctan",
        "Trunc",
        "Cosh",
        "Sinh",
        "Mish",
        "Softsign",
        "Sigmoid",
        "Sqrt",
        "Cos",
        "Elu",
        "Sin",
        "Tanh",
        "GroupNorm",
        "LRN",
        "Reciprocal",
        "Softplus",
        "GRU",
        "Reverse",
    ]
)
"""12.3, rows F32 and F32 unless CV184X/SGTPUV8."""
BF16_CHIPS = {
    "Div": BM1688, "Erf": BM1688, "GELU": BM1688, "SiLU": ("bm1690",), "LayerNorm": ("bm1684x", "bm1690")
}  # fmt: skip
"""12.3, chip dependent: the chips where it is BF16; F32 on the others."""


def expected(kind: str, mode: str, chip: str, *, dynamic_filter: bool = False, constant_left: bool = False) -> str:
    """The float type of the op `top.<kind>`."""
    if kind == "LSTM" and mode == "int8":
        return "f32" if chip in BM1688 else "bf16"
    if mode == "int8":
        return "f32" if dynamic_filter or (kind in INT8_F32 and not constant_left) else "f16"
    if dynamic_filter:  # 9.1: F32 in every mode
        return "f32"
    listed, by_chip = (F16_F32, F16_CHIPS) if mode == "f16" else (BF16_F32, BF16_CHIPS)
    if kind in by_chip:
        return mode if chip in by_chip[kind] else "f32"
    return "f32" if kind in listed else mode


def test_the_tables_name_ops_that_exist() -> None:
    known = {cls.name.removeprefix("top.") for cls in Top.operations}
    assert {*INT8_F32, *F16_F32, *F16_CHIPS, *BF16_F32, *BF16_CHIPS} <= known


def test_the_chip_files_name_ops_that_exist() -> None:
    for name in chips.available():
        require_fitting_rules(chips.load(name))
    named = [(chip, e.op) for chip in chips.available() for e in chips.load(chip).float_exceptions]
    assert len(set(named)) == len(named)


def kinds(op: TopOp) -> tuple[bool, bool]:
    """(a convolution whose filter or bias is computed, a product whose left operand is constant)."""
    constant = [isinstance(v.owner, TopWeight | TopNone) for v in op.operands]
    return op.name in ("top.Conv", "top.Deconv") and not all(constant[1:]), op.name == "top.MatMul" and constant[0]


INDICES = ("tpu.Arg", "tpu.Nms", "tpu.TopK")


def float_elements(tpu: Model) -> dict[str, str]:
    """Element type of every tpu op by name; of ops of indices that of the operand, as indices are i32."""
    ops = [op for op in tpu.ops if op.name.startswith("tpu.")]
    return {op_name(op): str(element_of(op.operands[0] if op.name in INDICES else op.results[0])) for op in ops}


def assert_types(top: Model, tpu: Model, mode: str, chip: str, only: set[str] | None = None) -> int:
    """Compare the float ops that stand for the top ops (by name, those of `only`); returns how many there were."""
    found = float_elements(tpu)
    count = 0
    for op in top.ops:
        name = op_name(op)
        if isinstance(op, TopOp) and found.get(name) in ("f32", "f16", "bf16") and (only is None or name in only):
            dynamic, constant_left = kinds(op)
            kind = op.name.removeprefix("top.")
            want = expected(kind, mode, chip, dynamic_filter=dynamic, constant_left=constant_left)
            want = "f32" if kind in ("Compare", "CompareConst", "Where") and reads_indices(op) else want
            if isinstance(op, ViewTop):  # a view keeps the type of what it is a view of
                source = op.operands[0].owner
                assert isinstance(source, Operation)
                want = "f32" if isinstance(source, TopInput) else found.get(op_name(source), want)
            assert found[name] == want, (name, op.name)
            count += 1
    return count


@pytest.mark.parametrize(
    ("case", "names"),
    [
        pytest.param(case, names, id=f"{case.id}-{'-'.join(names)}", marks=marks(turn(case, number, 160)))
        for case in CASES
        for number, names in enumerate((ALL[:2], ALL[2:]))
    ],
)
def test_float_types(case: OpCase, names: tuple[str, ...]) -> None:
    assert_types_of_16_bit_modes(case, names)
    assert_types_of_fallbacks(case, names)


def assert_types_of_16_bit_modes(case: OpCase, names: tuple[str, ...]) -> None:
    top = canonical(case.id)
    for chip, mode in product(names, ("f16", "bf16")):
        tpu = to_tpu(top, chip, mode)
        assert assert_types(top, tpu, mode, chip)


def assert_types_of_fallbacks(case: OpCase, names: tuple[str, ...]) -> None:
    for chip, asymmetric in product(names, (False, True)):
        top = calibrated(case.id, asymmetric=asymmetric)
        tpu, fallbacks = to_tpu_with_fallbacks(top, chip, "int8", asymmetric=asymmetric)
        marked = {f.op for f in fallbacks if MARKED.intersection(f.why.split(" ")) == MARKED}
        assert_types(top, tpu, "int8", chip, {f.op for f in fallbacks} - marked)
        floats = float_elements(tpu)
        assert all(floats[name] == "f16" for name in marked)


MARKED = frozenset({"threshold", "below"})
"""Words of the reason of a marked difference (3.4), which runs in F16 whatever 12.1 says of the op."""


# ------------------------------------------------------------------------------------------- conditions of 12.1 to 12.3


def made(nodes: list[object], constants: dict[str, np.ndarray], shape: tuple[int, ...] = (2, 3, 4)) -> Model:
    model = network(nodes, constants)({"x": shape})  # type: ignore[arg-type]
    return to_canonical(import_onnx(model))


def type_of(top: Model, config: LoweringConfig) -> str:
    tpu = to_tpu(top, config)
    return next(str(element_of(op.results[0])) for op in tpu.ops if op_name(op) == "y")


@pytest.mark.parametrize(
    ("number", "f16", "bf16"), [(6e4, "f16", "bf16"), (7e4, "f32", "bf16"), (3.4e38, "f32", "f32")]
)
def test_product_with_a_number_outside_the_type(number: float, f16: str, bf16: str) -> None:
    """12.2, 12.3: MulConst only; a sum with such a number stays in the type."""
    constants = {"c": np.array(number, np.float32)}
    for op, wanted in (("Mul", (f16, bf16)), ("Add", ("f16", "bf16"))):
        top = made([node(op, "x c")], constants)
        assert tuple(type_of(top, LoweringConfig("bm1684x", m)) for m in ("f16", "bf16")) == wanted  # type: ignore[arg-type]


@pytest.mark.parametrize("chip", ALL)
def test_softmax_of_a_long_axis(chip: str) -> None:
    """DN-20: as many elements as half a bank of local memory has bytes."""
    longest = chips.load(chip).lmem_bank_bytes // 2
    for length, wanted in ((longest, "f16"), (longest + 1, "f32")):
        top = made([node("Softmax", "x", axis=-1)], {}, (2, length))
        config = LoweringConfig(chip, "f16")
        assert type_of(top, config) == wanted
        tpu = to_tpu(top, config)
        op = next(op for op in tpu.ops if op.name == "tpu.Softmax")
        assert ("DN-20" in str(op.attributes.get("tpusim.decisions", ""))) == (wanted == "f32")


@pytest.mark.parametrize("chip", ALL)
def test_product_with_a_constant_left_operand(chip: str) -> None:
    """9.2, 12.1: F16 in INT8 mode."""
    model = network([node("MatMul", "w x")], {"w": np.ones((2, 5, 3), np.float32)})({"x": (2, 3, 4)})
    top = to_canonical(import_onnx(model))
    samples = [{"x": np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)}]
    assert type_of(to_calibrated(top, samples), LoweringConfig(chip, "int8")) == "f16"


@pytest.mark.parametrize("chip", ALL)
def test_bias_of_a_product_in_f16(chip: str) -> None:
    """9.2: rounded to F16 on BM1684X and the 1690 family, f32 on the others."""
    top = made([node("Gemm", "x w b")], {"w": np.ones((4, 5), np.float32), "b": np.ones(5, np.float32)}, (3, 4))
    tpu = to_tpu(top, chip, "f16")
    product = next(op for op in tpu.ops if op.name == "tpu.MatMul")
    assert str(element_of(product.operands[2])) == ("f32" if chip in BM1688 else "f16")
    assert shape_of(product.results[0]) == (3, 5)


# ------------------------------------------------------------------------------------------ the machine in these types


DEPENDENT = [
    pytest.param(case, chip, mode, id=f"{case.id}-{chip}-{mode}", marks=marks(turn(case, number, 4)))
    for case in CASES
    for number, (chip, mode) in enumerate(product(("bm1688", "bm1690"), ("f16", "bf16")))
    if case.result in ("tpu.Active", "tpu.Lut|tpu.Active", "tpu.Div", "tpu.LayerNorm|tpu.GroupNorm", "tpu.Arg")
]


@pytest.mark.parametrize(("case", "chip", "mode"), DEPENDENT)
def test_machine_agrees_in_the_types_that_differ_by_chip(case: OpCase, chip: str, mode: str) -> None:
    tpu = to_tpu(canonical(case.id), chip, mode)
    program = to_program(tpu)
    feeds = case.feeds()
    machine = Simulator(program).run(feeds, watch=True).tensors
    found = compare_local(tpu, feeds, machine, run(tpu, feeds))
    assert found.compared and found.passed, [(t.name, t.verdict, t.note) for t in found.failures]
