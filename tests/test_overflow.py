"""int32 accumulators that can overflow are named at lowering, those that do by `why`.

Filters and samples are integers under scales of 1, so that every sum is known by hand: K products of 127 * 127, and the
bias. A bias of 2^31 - 2^22 leaves room for 260 of them.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
import pytest
from compiling import to_calibrated, to_canonical, to_tpu
from plain_names import import_onnx
from planted import Graph

from tpusim.calibration.table import CalibrationTable, Entry
from tpusim.errors import ModeWarning
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.lowering import LoweringConfig
from tpusim.ops.structure import TopInput
from tpusim.studies.commands.causes import overflow_lines
from tpusim.studies.diagnosis import Remedies, accumulator_overflows
from tpusim.studies.diagnosis.accumulators import Overflowed, overflowed

ROOM = 2**22
END = 2**31
Array = np.ndarray


@dataclass(frozen=True)
class Case:
    """One op on an input of one shape.

    products: of an output; bias: of all channels, 0: none; sign: of the filter; listed: the op in quantisation tables.
    """

    build: Callable[[Graph, str, Case], str]
    shape: tuple[int, ...]
    products: int
    bias: float = END - ROOM
    sign: float = 1
    listed: str = "y"

    @property
    def reach(self) -> int:
        """The largest magnitude of a sum where every operand is 127."""
        return abs(int(self.sign) * 127 * 127 * self.products + int(self.bias))


def constants(g: Graph, case: Case, channels: int, *filter: int) -> list[str]:
    filters = g.constant(np.full(filter, 127.0 * case.sign, np.float32))
    return [filters, *[g.constant(np.full(channels, case.bias, np.float32))] * bool(case.bias)]


def conv(*filter: int, op: str = "Conv", **attributes: int | Sequence[int]) -> Callable[[Graph, str, Case], str]:
    def build(g: Graph, x: str, case: Case) -> str:
        channels = filter[1 if op == "ConvTranspose" else 0]
        return g.add(op, [x, *constants(g, case, channels, *filter)], "y", **attributes)

    return build


def gemm(g: Graph, x: str, case: Case) -> str:
    return g.add("Gemm", [x, *constants(g, case, 3, case.products, 3)], "y")


def batched(g: Graph, x: str, case: Case) -> str:
    """A product of rows of tokens."""
    matrix, *bias = constants(g, case, 3, case.products, 3)
    return g.add("Add", [g.add("MatMul", [x, matrix], "product"), *bias], "y")


CASES = {
    "conv": Case(conv(4, 64, 3, 3), (1, 64, 3, 3), 576),
    "conv of one axis": Case(conv(4, 64, 9), (1, 64, 9), 576, listed="y_2d"),
    "grouped": Case(conv(4, 32, 3, 3, group=2), (1, 64, 3, 3), 288),
    "volume": Case(conv(4, 64, 3, 3, 3), (1, 64, 4, 3, 3), 1728),
    "transposed": Case(conv(576, 4, 1, 1, op="ConvTranspose"), (1, 576, 2, 2), 576),
    "depthwise": Case(conv(64, 1, 3, 3, group=64), (1, 64, 3, 3), 9, END - 2**17),
    "product": Case(gemm, (1, 576), 576),
    "rows": Case(batched, (1, 4, 576), 576),
    "long product": Case(gemm, (1, 140_000), 140_000, 0),
    "long, negative": Case(gemm, (1, 140_000), 140_000, 0, -1),
    "long, on CV18xx": Case(gemm, (1, 140_000), 140_000, 0),
}
FITS = {
    "few products": Case(conv(4, 16, 3, 3), (1, 16, 3, 3), 144),
    "other sign": Case(gemm, (1, 200), 200, -END + ROOM),
    "no bias": Case(gemm, (1, 130_000), 130_000, 0),
}


def calibrated(case: Case, given: float = 127.0, limit: float = 1000.0) -> Model:
    """Thresholds: of the input, where 127 makes steps of 1, and of all results, which saturate above theirs."""
    g = Graph(0)
    return calibrated_of(g.finish(case.shape, case.build(g, "x", case)), given, limit)


def calibrated_of(proto: onnx.ModelProto, first: float = 127.0, limit: float = 1000.0) -> Model:
    model = to_canonical(import_onnx(proto))
    given = {op_name(op) for op in model.ops if isinstance(op, TopInput)}
    names = given | {op_name(op) for op in model.ops if op.results and op.name.startswith("top.")}
    ends = {name: first if name in given else limit for name in names}
    return to_calibrated(model, CalibrationTable({name: Entry(end, -end, end) for name, end in ends.items()}))


def sample(case: Case, value: float = 127.0) -> dict[str, Array]:
    return {"x": np.full(case.shape, value, np.float32)}


def chip_of(name: str) -> LoweringConfig:
    return LoweringConfig("cv183x" if "CV18xx" in name else "bm1684x", "int8")


@pytest.mark.parametrize("name", CASES)
def test_what_can_overflow_is_named_and_what_does_is_counted(name: str) -> None:
    case = CASES[name]
    top = calibrated(case)
    told = rf"the accumulator of '{case.listed}' \([\d,]+\) can leave int32.*qtable.*{case.listed}:F16"
    with pytest.warns(ModeWarning, match=told):
        lowered = to_tpu(top, chip_of(name))
    assert overflowed(top, lowered, [sample(case, 1.0), sample(case)]) == [Overflowed(case.listed, case.reach, 1, 2)]


def test_an_op_in_float_overflows_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        to_tpu(calibrated(CASES["conv of one axis"]), replace(chip_of(""), qtable="y_2d:F16"))


def test_many_are_named_in_one_line() -> None:
    g, case = Graph(0), CASES["conv"]
    for number in range(6):
        filter = g.constant(np.full((4, 64, 3, 3), 127, np.float32))
        g.add("Conv", ["x", filter, g.constant(np.full(4, case.bias + 256 * number, np.float32))], f"y{number}")
    model = calibrated_of(g.finish(case.shape, g.add("Sum", [f"y{number}" for number in range(6)])))
    with pytest.warns(ModeWarning) as told:
        to_tpu(model, chip_of(""))
    [one] = [str(warning.message) for warning in told]
    assert re.findall(r"'(y\d)'", one) == ["y0", "y1", "y2", "y3"]
    assert ") ... can leave int32" in one


@pytest.mark.parametrize("name", ["conv", "product"])
def test_the_cause_is_named_with_its_remedy(name: str) -> None:
    """Steps of 5e-5 and 2e-5, so that the results are around 2.15 and f32 has them all."""
    case, rng = CASES[name], np.random.default_rng(0)
    small = replace(case, bias=case.bias * 1e-9, sign=5e-5)
    factors = rng.uniform(0.2, 1.0, 8).astype(np.float32)
    given = [{"x": sample(case, 127 * 2e-5)["x"] * factor} for factor in factors]
    sums = [int(case.bias) + int(np.rint(factor * 127)) * 127 * case.products for factor in factors]
    over = [one for one in sums if one >= END]
    assert 0 < len(over) < len(sums)
    with pytest.warns(ModeWarning, match="can leave int32"):
        remedies = Remedies(calibrated(small, 127 * 2e-5, 2.2), chip_of(name), given, "f32")
        [cause] = accumulator_overflows(remedies)
    assert (cause.kind, cause.tensor, cause.remedy.modes) == ("accumulator overflow", "y", {"y": "f32"})
    words = re.match(r"its sums reach ([\d,]+) on (\d) of 8 samples, int32 ends at 2,147,483,647", cause.evidence)
    assert words is not None
    assert float(words[1].replace(",", "")) == pytest.approx(max(sums), rel=1e-6)  # the scales are rounded to f32
    assert int(words[2]) == len(over)
    assert cause.remedy.judged.last.error < 1e-12 < remedies.before.last.error
    [line] = overflow_lines(remedies)
    assert line.startswith("accumulator overflow at y: its sums reach")
    assert "with y in F32: error" in line


def test_networks_that_do_not_overflow_have_no_such_cause() -> None:
    small = Case(gemm, (1, 576), 576, 1.0)
    given = [sample(small, value) for value in (60.0, 127.0)]
    remedies = Remedies(calibrated(small), chip_of(""), given)
    assert accumulator_overflows(remedies) == []
    assert list(overflow_lines(remedies)) == []


@pytest.mark.parametrize("name", FITS)
def test_what_fits_is_not_named(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lowered = to_tpu(top := calibrated(FITS[name]), chip_of(name))
    assert overflowed(top, lowered, [sample(FITS[name])]) == []
