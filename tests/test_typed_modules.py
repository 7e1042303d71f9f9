"""What a person does by hand: type a calibrated module, run `tpusim lower`, read multipliers and shifts in the result.

Expected numbers are derived here from numerics.md alone, with Python's integers, fractions and doubles. A chip's
family decides its rules; a new family is one more entry of FAMILIES.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tpusim import chips
from tpusim.cli import main

Array = np.ndarray
Range = tuple[float, float]
Pair = tuple[int, int]


# --------------------------------------------------------------------------------------------- typing and reading


class Desk:
    """A folder with typed modules, and the command line."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def type(self, text: str, **weights: Array) -> Path:
        path = self.folder / "typed.mlir"
        path.write_text(text, encoding="utf-8")
        if weights:
            np.savez(self.folder / "typed.npz", **weights)  # type: ignore[arg-type]
        return path

    def lower(self, path: Path, chip: str, *more: str) -> str:
        """The lowered module's text."""
        out = self.folder / f"{chip}.mlir"
        status = main(["lower", str(path), "--chip", chip, "--mode", "int8", "--out", str(out), *more])
        printed = self._capsys.readouterr()
        assert status == 0, printed.err
        assert "exact to spec" in printed.out and "float fallback" not in printed.out
        return out.read_text(encoding="utf-8")

    def refusal(self, path: Path, *more: str) -> str:
        """The one message of a refused `lower`, on one line."""
        assert main(["lower", str(path), *more]) == 1
        found = self._capsys.readouterr().err
        assert found.startswith("tpusim: ") and "Traceback" not in found
        return " ".join(found.split())

    def says(self, *words: str | Path) -> str:
        """What a command that succeeds prints."""
        assert main([str(w) for w in words]) == 0
        return self._capsys.readouterr().out


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(tmp_path, capsys)


def line_of(text: str, kind: str, name: str = "y") -> str:
    """The line of one op, found as a reader finds it: by kind and name."""
    found = [s for s in text.splitlines() if f'"{kind}"' in s and s.endswith(f'loc("{name}")')]
    assert len(found) == 1, text
    return found[0]


def integers(line: str, key: str) -> list[int]:
    """`key = [1 : i64, 2 : i64]` or `key = 1 : i64` of a printed op."""
    match = re.search(rf"\b{key} = (\[[^\]]*\]|-?\d+)", line)
    assert match is not None, f"{key} in {line}"
    return [int(v) for v in re.findall(r"(?<![\w.])-?\d+(?= : i64|[,\]]|$)", match.group(1).replace(" : i64", ""))]


def pairs_of(line: str, multipliers: str, shifts: str) -> list[tuple[int, int]]:
    """(multiplier, shift) each; one shift may stand for all multipliers."""
    m, r = integers(line, multipliers), integers(line, shifts)
    return list(zip(m, r * len(m) if len(r) == 1 else r, strict=True))


def real(line: str, key: str) -> float:
    match = re.search(rf"\b{key} = (-?[\d.]+(?:[eE][-+]?\d+)?)", line)
    assert match is not None, f"{key} in {line}"
    return float(match.group(1))


def stored(line: str) -> tuple[str, float, int]:
    """(i8 or u8, scale, zero point) of the op's result."""
    match = re.findall(r"!quant\.uniform<([iu]8):f32, ([-\d.e+]+)(?::(-?\d+))?>", line)[-1]
    return match[0], float(match[1]), int(match[2] or 0)


def q(low: float, high: float, shape: str = "1x4x4x4") -> str:
    return f"tensor<{shape}x!quant.calibrated<f32<{low}:{high}>>>"


# ---------------------------------------------------------------------------------------------- the specification, 2


@dataclass(frozen=True)
class Scale:
    """Numerics.md 2.2."""

    scale: float
    zero: int
    signed: bool

    @classmethod
    def of(cls, low: float, high: float, asymmetric: bool = False) -> Scale:
        signed = low < 0
        least, most = (-128, 127) if signed else (0, 255)
        if not asymmetric:
            return cls(max(abs(low), abs(high)) / most, 0, signed)
        scale = (high - low) / (most - least)
        exact = least - low / scale
        if exact < least:
            return cls(high / (most - least), least, signed)
        assert exact <= most
        return cls(scale, away(exact), signed)

    def matches(self, line: str) -> bool:
        kind, scale, zero = stored(line)
        return (kind, zero) == ("i8" if self.signed else "u8", self.zero) and math.isclose(scale, self.scale)


def away(v: float | Fraction) -> int:
    """Round half away from zero, exactly."""
    exact = Fraction(v)
    return math.floor(abs(exact) + Fraction(1, 2)) * (1 if exact >= 0 else -1)


def clamp(v: int, bits: int, signed: bool = True) -> int:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return min(max(v, low), high)


def fit(scale: float, bits: int, *, left: bool = True) -> Pair:
    """Numerics.md 5.1: every shift tried in turn."""
    s = Fraction(float(np.float32(scale)))
    limit = 2**31 - 1 if bits == 32 else 127
    best: tuple[np.float32, Pair] | None = None
    for n in range(-32 if left else 0, 31):
        m = away(s * Fraction(2) ** n)
        error = np.float32(float(abs(Fraction(m) / Fraction(2) ** n - s)))
        if abs(m) < limit and (best is None or error < best[0]):
            best = error, (m, n)
    assert best is not None
    return best[1]


def doublings(value: float) -> int:
    """Numerics.md 5.4: how often a number is doubled to reach 127, less one; 31 beyond 32."""
    count = next(n for n in range(34) if value * 2**n >= 127 or n == 33)
    return 31 if count > 32 else count - 1


# ---------------------------------------------------------------------------------------------- the rules by family


class Multipliers:
    """The X and 1690 families: numerics.md 5.1, 5.6, 7.1, 7.2."""

    leaky = ("multiplier", "rshift")
    """Attributes of the slope of negative values."""

    def scale(self, low: float, high: float, asymmetric: bool = False) -> Scale:
        return Scale.of(low, high, asymmetric)

    def requant(self, lowered: str, asymmetric: bool) -> str:
        """The line with the requant of the first operand of Concat y."""
        name = "ay_ui8_to_y" if "ay_ui8" in lowered else "ay_si8_to_y"
        return line_of(lowered, "tpu.RequantInt" if asymmetric else "tpu.MulShift", name)

    def add(self, inputs: Sequence[Scale], out: Scale) -> list[Pair]:
        return [fit(s.scale / out.scale, 8, left=False) for s in inputs]

    def mul(self, inputs: Sequence[Scale], out: Scale) -> Pair:
        return fit(inputs[0].scale * inputs[1].scale / out.scale, 8)

    def leaky_relu(self, alpha: float) -> Pair:
        return fit(alpha, 8)

    def concat(self, source: Scale, out: Scale) -> Pair:
        return fit(source.scale / out.scale, 8, left=False)

    def average(self, x: Scale, y: Scale, kernel: int) -> Pair:
        return fit(x.scale / (y.scale * kernel), 8)

    def conv(self, w: Array, b: Array | None, x: Scale, y: Scale) -> dict[str, Any]:
        signed = bool((w < 0).any()) or b is not None
        flat = w.reshape(len(w), -1).astype(np.float64)
        scales = [
            float(max(np.float32(abs(row).max()) / np.float32(127 if signed else 255), np.float32(1e-5)))
            for row in flat
        ]
        filter = [[clamp(away(v / s), 8, signed) for v in row] for row, s in zip(flat, scales, strict=True)]
        pairs = [fit(s * x.scale / y.scale, 32) for s in scales]
        sums = [sum(row) if signed else 0 for row in filter]  # 17.2, uint8_filter_zp_zero
        bias = None
        if b is not None or x.zero:
            reals = [0.0] * len(w) if b is None else [float(v) / (s * x.scale) for v, s in zip(b, scales, strict=True)]
            bias = [away(v - x.zero * n) for v, n in zip(reals, sums, strict=True)]
        return {"pairs": pairs, "filter": filter, "bias": bias}

    def matmul(self, w: Array, b: Array | None, x: Scale, y: Scale) -> dict[str, Any]:
        s_w = float(np.abs(w).max()) / 127
        filter = [[clamp(away(float(v) / s_w), 8) for v in row] for row in w]
        bias = None
        if b is not None or x.zero:
            columns = [sum(row[n] for row in filter) for n in range(w.shape[1])]
            reals = [0.0] * len(columns) if b is None else [float(v) / (s_w * x.scale) for v in b]
            bias = [away(v - x.zero * c) for v, c in zip(reals, columns, strict=True)]
        return {"pairs": [fit(s_w * x.scale / y.scale, 32)], "filter": filter, "bias": bias}


class RightShifts(Multipliers):
    """BM1684: numerics.md 5.4 (Mul, LeakyRelu and Concat as the X family)."""

    def add(self, inputs: Sequence[Scale], out: Scale) -> list[Pair]:
        pairs = []
        for s in inputs:
            ratio = Fraction(s.scale / out.scale)
            r = max(n for n in range(-40, 32) if ratio * Fraction(2) ** n <= 127)
            pairs.append((clamp(away(ratio * 2**r), 8), r))
        return pairs

    def mul(self, inputs: Sequence[Scale], out: Scale) -> Pair:
        m, r = super().mul(inputs, out)
        return m, min(max(r, 0), 31)

    def average(self, x: Scale, y: Scale, kernel: int) -> Pair:
        del x, y  # the output takes the input's range (3.3 step 9)
        e = max(n for n in range(40) if math.floor(Fraction(2**n, kernel) + Fraction(1, 2)) <= 255)
        m = math.floor(Fraction(2**e, kernel) + Fraction(1, 2))
        while m % 2 == 0 and e > 0:
            m, e = m // 2, e - 1
        return m, e

    def conv(self, w: Array, b: Array | None, x: Scale, y: Scale) -> dict[str, Any]:
        r = doublings(float(np.abs(w).max()) * x.scale / y.scale)
        bias = None
        if b is not None:
            while True:
                wide = [away(float(v) * 2.0**r / y.scale) for v in b]
                bias = [clamp(v, 16) for v in wide]
                if r == 0 or sum(v != k for v, k in zip(wide, bias, strict=True)) / len(wide) <= 0.03:
                    break
                r -= 1
        filter = [[clamp(away(float(v) * 2.0**r * x.scale / y.scale), 8) for v in row] for row in w.reshape(len(w), -1)]
        return {"pairs": [(1, r)], "filter": filter, "bias": bias}

    matmul = conv


class SmallMultipliers(Multipliers):
    """CV18xx: numerics.md 5.3 and 5.5; int8 always, thresholds instead of scales."""

    leaky = ("multiplier_neg", "rshift_neg")

    def scale(self, low: float, high: float, asymmetric: bool = False) -> Scale:
        del low, asymmetric
        return Scale(high / 127, 0, True)

    def requant(self, lowered: str, asymmetric: bool) -> str:
        return line_of(lowered, "tpu.Concat")

    @staticmethod
    def small(ratios: Sequence[float]) -> list[Pair]:
        exact = [Fraction(float(np.float32(v))) for v in ratios]
        if max(exact) > 127:
            return [(127, 0)] * len(exact)
        r = next(n for n in range(64) if max(exact) * 2 ** (n + 1) >= 127)
        return [(math.floor(v * 2**r), r) for v in exact]

    @staticmethod
    def qdm(q: float) -> Pair:
        """5.2, 5.5: q = m / 2^(31 + r), m in 2^30 .. 2^31 - 1."""
        exact = Fraction(min(q, 0.999999))
        r = next(n for n in range(64) if exact * 2 ** (n + 1) >= 1)
        return away(exact * 2 ** (31 + r)), r

    def add(self, inputs: Sequence[Scale], out: Scale) -> list[Pair]:
        return self.small([s.scale / out.scale for s in inputs])

    def mul(self, inputs: Sequence[Scale], out: Scale) -> Pair:
        return self.qdm(inputs[0].scale * inputs[1].scale / out.scale)

    def leaky_relu(self, alpha: float) -> Pair:
        return self.small([alpha])[0]

    def concat(self, source: Scale, out: Scale) -> Pair:
        return self.small([source.scale / out.scale])[0]

    def average(self, x: Scale, y: Scale, kernel: int) -> Pair:
        return self.small([x.scale / (y.scale * kernel)])[0]

    def conv(self, w: Array, b: Array | None, x: Scale, y: Scale) -> dict[str, Any]:
        return self._product(w.reshape(len(w), -1), b, x, y)

    def matmul(self, w: Array, b: Array | None, x: Scale, y: Scale) -> dict[str, Any]:
        found = self._product(w.reshape(1, -1), b, x, y)
        return {**found, "filter": np.reshape(found["filter"], w.shape)}

    def _product(self, rows: Array, b: Array | None, x: Scale, y: Scale) -> dict[str, Any]:
        """5.5, its products in f32; a row per multiplier."""
        f = np.float32
        th_x, th_y = f(x.scale * 127), f(y.scale * 127)
        pairs = [self.qdm(float(f(f(abs(row).max()) * th_x) / f(f(127) * th_y))) for row in rows]
        by_row = [f(float(th_x / th_y) * 2.0 ** (31 + r) / m) for m, r in pairs]
        filter = [[clamp(round(float(v * k)), 8) for v in row] for row, k in zip(rows, by_row, strict=True)]
        bias = None
        if b is not None:
            factors = [f(float(f(127) / th_y) * 2.0 ** (31 + r) / m) for m, r in pairs]
            bias = [clamp(round(float(v * k)), 32) for v, k in zip(b, factors * (len(b) // len(factors)), strict=True)]
        return {"pairs": pairs, "filter": filter, "bias": bias}


FAMILIES: Mapping[str, Multipliers] = {
    "bm1684x": Multipliers(),
    "bm1690": Multipliers(),
    "bm1684": RightShifts(),
    "cv18xx": SmallMultipliers(),
}
"""By `ChipSpec.family`."""

EVERY_CHIP = pytest.mark.parametrize("chip", chips.available())
WITH_ZEROS = pytest.mark.parametrize(
    ("chip", "asymmetric"),
    [(c, a) for c in chips.available() for a in (False, True) if chips.load(c).hardware.asymmetric or not a],
)


def rules(chip: str) -> Multipliers:
    return FAMILIES[chips.load(chip).family]


def options(asymmetric: bool) -> list[str]:
    return ["--asymmetric"] if asymmetric else []


# ---------------------------------------------------------------------------------------------------- the modules

TWO = """
module {{
  func.func @main(%0: tensor<1x4x4x4xf32>, %1: tensor<1x4x4x4xf32>) -> {y} {{
    %a = "top.Input"(%0) : (tensor<1x4x4x4xf32>) -> {a}
    %b = "top.Input"(%1) : (tensor<1x4x4x4xf32>) -> {b}
    %y = "top.{kind}"(%a, %b) : ({a}, {b}) -> {y}
    return %y : {y}
  }}
}}
"""
ONE = """
module {{
  func.func @main(%0: tensor<1x4x4x4xf32>) -> {y} {{
    %x = "top.Input"(%0) : (tensor<1x4x4x4xf32>) -> {x}
    %y = "top.{op} : ({x}) -> {y}
    return %y : {y}
  }}
}}
"""
ADDITIONS: list[tuple[Range, Range, Range]] = [
    ((-1.0, 1.0), (-1.5, 1.5), (-2.0, 2.0)),
    ((0.0, 6.0), (-0.7, 2.5), (-1.3, 7.1)),
    ((-4.1780586, 4.493248), (0.0, 0.31), (-4.2, 4.6)),
]


@WITH_ZEROS
@pytest.mark.parametrize("ranges", ADDITIONS)
def test_add(desk: Desk, chip: str, asymmetric: bool, ranges: tuple[Range, Range, Range]) -> None:
    a, b, y = ranges
    path = desk.type(TWO.format(kind="Add", a=q(*a), b=q(*b), y=q(*y)))
    line = line_of(desk.lower(path, chip, *options(asymmetric)), "tpu.Add")
    scale = rules(chip).scale
    inputs, out = [scale(*r, asymmetric) for r in (a, b)], scale(*y, asymmetric)
    assert pairs_of(line, "multipliers", "rshifts") == rules(chip).add(inputs, out)
    assert out.matches(line)


PRODUCTS: list[tuple[Range, Range, Range]] = [
    ((-1.0, 1.0), (-1.5, 1.5), (-1.4, 1.4)),
    ((0.0, 6.0), (-0.7, 2.5), (-3.0, 14.0)),
    ((0.0, 2.0), (0.0, 1.0), (0.0, 1.9)),
]


@WITH_ZEROS
@pytest.mark.parametrize("ranges", PRODUCTS)
def test_mul(desk: Desk, chip: str, asymmetric: bool, ranges: tuple[Range, Range, Range]) -> None:
    a, b, y = ranges
    if ranges[0][0] == 0.0 > ranges[2][0]:
        a, b = b, a  # a first operand without the output's sign is exchanged with the second (3.3 step 3)
    path = desk.type(TWO.format(kind="Mul", a=q(*a), b=q(*b), y=q(*y)))
    line = line_of(desk.lower(path, chip, *options(asymmetric)), "tpu.Mul")
    scale = rules(chip).scale
    inputs, out = [scale(*r, asymmetric) for r in (a, b)], scale(*y, asymmetric)
    assert (integers(line, "multiplier")[0], integers(line, "rshift")[0]) == rules(chip).mul(inputs, out)
    assert out.matches(line)


@EVERY_CHIP
@pytest.mark.parametrize("alpha", [0.1, 0.01, 0.3, 1 / 3])
def test_leaky_relu(desk: Desk, chip: str, alpha: float) -> None:
    text = ONE.format(op=f'LeakyRelu"(%x) {{alpha = {alpha!r} : f64}}', x=q(-3.0, 4.0), y=q(-3.0, 4.0))
    line = line_of(desk.lower(desk.type(text), chip), "tpu.LeakyRelu")
    assert pairs_of(line, *rules(chip).leaky) == [rules(chip).leaky_relu(alpha)]


def pooled(kernel: int, stride: int, x: Range, y: Range) -> str:
    op = f'AvgPool"(%x) {{kernel_shape = [{kernel}, {kernel}], strides = [{stride}, {stride}], pads = [0, 0, 0, 0]}}'
    size = (4 - kernel) // stride + 1
    return ONE.format(op=op, x=q(*x), y=q(*y, shape=f"1x4x{size}x{size}"))


@EVERY_CHIP
@pytest.mark.parametrize(("kernel", "stride"), [(2, 2), (3, 1), (4, 1)])
def test_average_pool(desk: Desk, chip: str, kernel: int, stride: int) -> None:
    x, y = (-3.0, 4.0), (-2.0, 2.9)
    line = line_of(desk.lower(desk.type(pooled(kernel, stride, x, y)), chip), "tpu.Pool2D")
    wanted = rules(chip).average(rules(chip).scale(*x), rules(chip).scale(*y), kernel**2)
    assert (integers(line, "multiplier")[0], integers(line, "rshift")[0]) == wanted


@pytest.mark.parametrize("chip", [c for c in chips.available() if chips.load(c).hardware.asymmetric])
def test_average_pool_with_zero_points(desk: Desk, chip: str) -> None:
    """Numerics.md 9.6: one real scale and offset."""
    x, y = (-3.0, 4.0), (-2.0, 2.9)
    line = line_of(desk.lower(desk.type(pooled(2, 2, x, y)), chip, "--asymmetric"), "tpu.Pool2D")
    a, b = Scale.of(*x, True), Scale.of(*y, True)
    assert real(line, "scale") == pytest.approx(a.scale / (4 * b.scale), rel=1e-6)
    assert real(line, "offset") == pytest.approx(b.zero - a.scale / b.scale * a.zero, rel=1e-6)


CONCAT = """
module {{
  func.func @main(%0: tensor<1x4x4x4xf32>, %1: tensor<1x4x4x4xf32>) -> ({y}, {s}) {{
    %a = "top.Input"(%0) : (tensor<1x4x4x4xf32>) -> {a}
    %b = "top.Input"(%1) : (tensor<1x4x4x4xf32>) -> {b}
    %y = "top.Concat"(%a, %b) {{axis = 1}} : ({a}, {b}) -> {y}
    %s = "top.Add"(%a, %b) : ({a}, {b}) -> {s}
    return %y, %s : {y}, {s}
  }}
}}
"""


@WITH_ZEROS
def test_concat(desk: Desk, chip: str, asymmetric: bool) -> None:
    """Operands with another user keep their scales and are requantised; an operand with the output's scale is moved."""
    a, y = (-1.0, 1.3), (-2.0, 2.5)
    text = CONCAT.format(a=q(*a), b=q(*y), y=q(*y, shape="1x8x4x4"), s=q(-3.0, 3.0))
    lowered = desk.lower(desk.type(text), chip, *options(asymmetric))
    line = rules(chip).requant(lowered, asymmetric)
    key = "multipliers" if "multipliers" in line else "multiplier"
    source, out = rules(chip).scale(*a, asymmetric), rules(chip).scale(*y, asymmetric)
    assert pairs_of(line, key, key.replace("multiplier", "rshift"))[0] == rules(chip).concat(source, out)
    assert lowered.count('_to_y")') <= 1
    assert out.matches(line_of(lowered, "tpu.Concat"))


CONV = """
module attributes {{module.weight_file = "typed.npz"}} {{
  func.func @main(%0: tensor<1x4x4x4xf32>) -> {y} {{
    %x = "top.Input"(%0) : (tensor<1x4x4x4xf32>) -> {x}
    %w = "top.Weight"() : () -> tensor<3x4x3x3xf32>
    {bias}
    %y = "top.Conv"(%x, %w, %b) {{kernel_shape = [3, 3], strides = [1, 1], pads = [1, 1, 1, 1]}}
      : ({x}, tensor<3x4x3x3xf32>, {b}) -> {y}
    return %y : {y}
  }}
}}
"""
MATMUL = """
module attributes {{module.weight_file = "typed.npz"}} {{
  func.func @main(%0: tensor<2x6xf32>) -> {y} {{
    %x = "top.Input"(%0) : (tensor<2x6xf32>) -> {x}
    %w = "top.Weight"() : () -> tensor<6x3xf32>
    {bias}
    %y = "top.MatMul"(%x, %w, %b) : ({x}, tensor<6x3xf32>, {b}) -> {y}
    return %y : {y}
  }}
}}
"""


def weights_of(desk: Desk, chip: str) -> Mapping[str, Array]:
    with np.load(desk.folder / f"{chip}_weights.npz") as archive:
        return {k: archive[k] for k in archive.files}


def check_product(desk: Desk, chip: str, line: str, expected: dict[str, Any], names: tuple[str, str]) -> None:
    """Multipliers, shifts, stored weights and bias of a lowered product."""
    found, width = weights_of(desk, chip), expected["pairs"]
    assert pairs_of(line, *names) == width
    stored_filter = found["w_int8"]
    assert stored_filter.dtype == (np.uint8 if np.max(expected["filter"]) > 127 else np.int8)
    np.testing.assert_array_equal(stored_filter.reshape(len(stored_filter), -1), expected["filter"])
    biases = [v for k, v in found.items() if "bias" in k]
    if expected["bias"] is None:
        assert biases == []
    else:
        np.testing.assert_array_equal(biases[0].reshape(-1), expected["bias"])


FILTERS = {
    "signed": (-0.7, 0.9, True),
    "signed, no bias": (-0.7, 0.9, False),
    "unsigned": (0.01, 0.9, False),
    "unsigned with bias": (0.01, 0.9, True),
}


def constants(kind: str, shape: tuple[int, ...], outputs: int) -> tuple[Array, Array | None]:
    low, high, biased = FILTERS[kind]
    rng = np.random.default_rng(3)
    w = rng.uniform(low, high, shape).astype(np.float32)
    return w, rng.uniform(-2, 2, outputs).astype(np.float32) if biased else None


def bias_line(b: Array | None) -> dict[str, str]:
    if b is None:
        return {"bias": '%b = "top.None"() : () -> none', "b": "none"}
    return {"bias": f'%b = "top.Weight"() : () -> tensor<{len(b)}xf32>', "b": f"tensor<{len(b)}xf32>"}


@WITH_ZEROS
@pytest.mark.parametrize("kind", FILTERS)
def test_conv(desk: Desk, chip: str, asymmetric: bool, kind: str) -> None:
    x, y = (-3.0, 4.0), (-9.0, 11.0)
    w, b = constants(kind, (3, 4, 3, 3), 3)
    text = CONV.format(x=q(*x), y=q(*y, shape="1x3x4x4"), **bias_line(b))
    path = desk.type(text, w=w, **({} if b is None else {"b": b}))
    line = line_of(desk.lower(path, chip, *options(asymmetric)), "tpu.Conv2D")
    scale = rules(chip).scale
    expected = rules(chip).conv(w, b, scale(*x, asymmetric), scale(*y, asymmetric))
    check_product(desk, chip, line, expected, ("multiplier", "rshift"))
    assert scale(*y, asymmetric).matches(line)


@WITH_ZEROS
@pytest.mark.parametrize("kind", ["signed", "signed, no bias"])
def test_matmul(desk: Desk, chip: str, asymmetric: bool, kind: str) -> None:
    x, y = (-3.0, 4.0), (-9.0, 11.0)
    w, b = constants(kind, (6, 3), 3)
    text = MATMUL.format(x=q(*x, shape="2x6"), y=q(*y, shape="2x3"), **bias_line(b))
    path = desk.type(text, w=w, **({} if b is None else {"b": b}))
    line = line_of(desk.lower(path, chip, *options(asymmetric)), "tpu.MatMul")
    scale = rules(chip).scale
    expected = rules(chip).matmul(w, b, scale(*x, asymmetric), scale(*y, asymmetric))
    check_product(desk, chip, line, expected, ("multipliers", "rshifts"))
    assert scale(*y, asymmetric).matches(line)


# ---------------------------------------------------------------------------------------- what a slip of the pen costs


SUM = TWO.format(kind="Add", a=q(-1, 1), b=q(-1.5, 1.5), y=q(-2, 2))


def test_a_typed_module_goes_all_the_way(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """No location, no state, no name: values name the ops, types say that the module is calibrated."""
    path = desk.type(SUM)
    rng = np.random.default_rng(0)
    np.savez(desk.folder / "in.npz", **{n: rng.uniform(-1, 1, (1, 4, 4, 4)).astype(np.float32) for n in "ab"})
    lowered = desk.lower(path, "bm1684x")
    assert 'module.state = "TPU_LOWERED"' in lowered and 'loc("y")' in lowered
    previous = desk.folder / "bm1684x.mlir"
    for stage in ("group", "assign", "codegen"):
        out = desk.folder / f"{stage}.out"
        desk.says(stage, previous, "--out", out)
        previous = out
    desk.says("simulate", previous, "--input", desk.folder / "in.npz", "--out", desk.folder / "local.npz")
    flat = desk.folder / "flat.npz"
    desk.says("infer", desk.folder / "bm1684x.mlir", "--input", desk.folder / "in.npz", "--all-tensors", "--out", flat)
    with np.load(flat) as a, np.load(desk.folder / "local.npz") as b:
        np.testing.assert_array_equal(a["y_f32"], b["y_f32"])
        assert a["y"].dtype == np.int8 and len(np.unique(a["y"])) > 10


SLIPS = {
    "unknown op": ('"top.Add"', '"top.Addd"', ["top.Addd", "line 6"]),
    "wrong shape": (q(-2, 2), q(-2, 2, "1x4x4x5"), ["top.Add 'y'", "(1, 4, 4, 4)", "(1, 4, 4, 5)"]),
    "unknown value": ("(%a, %b)", "(%a, %c)", ["%c"]),
    "type of an operand": (f"({q(-1, 1)}, {q(-1.5, 1.5)})", f"({q(-1, 1)}, {q(-1, 1)})", ["line 6"]),
    "empty range": ("<-2:2>", "<2:-2>", ["min <= max", "<2.0:-2.0>"]),
    "no state that fits": ("module {", 'module attributes {module.state = "TOP_F32"} {', ["TOP_CALIBRATED", "TOP_F32"]),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_is_named(desk: Desk, slip: str) -> None:
    right, wrong, words = SLIPS[slip]
    assert right in SUM
    message = desk.refusal(desk.type(SUM.replace(right, wrong)))
    assert all(word in message for word in words), message


CONV_SLIPS = {
    "misspelt attribute": ("strides =", "stride =", ["top.Conv 'y'", "strides"]),
    "attribute of another framework": ("pads =", "groups = 1, pads =", ["unknown attribute 'groups'", "'group'"]),
    "no attribute": (", pads = [1, 1, 1, 1]", "", ["top.Conv 'y'", "pads"]),
    "no weight file": (' attributes {module.weight_file = "typed.npz"}', "", ["'w'", "module.weight_file"]),
    "missing weight file": ('"typed.npz"', '"other.npz"', ["other.npz", "No such file"]),
    "weight of another name": ("%w", "%filter", ["'filter' is not there"]),
    "weight of another shape": ("3x4x3x3xf32", "3x4x5x5xf32", ["top.Conv 'y'", "(3, 3)", "(5, 5)"]),
}


@pytest.mark.parametrize("slip", CONV_SLIPS)
def test_a_slip_in_a_convolution_is_named(desk: Desk, slip: str) -> None:
    right, wrong, words = CONV_SLIPS[slip]
    text = CONV.format(x=q(-3, 4), y=q(-9, 11, shape="1x3x4x4"), **bias_line(None))
    assert right in text
    message = desk.refusal(desk.type(text.replace(right, wrong), w=constants("signed", (3, 4, 3, 3), 3)[0]))
    assert all(word in message for word in words), message


@EVERY_CHIP
def test_a_tensor_without_calibration_is_reported(desk: Desk, chip: str) -> None:
    """DN-05: the op runs in float, and the command says which one and why."""
    path = desk.type(SUM.replace(q(-1.5, 1.5), "tensor<1x4x4x4xf32>"))
    out = desk.folder / "out.mlir"
    printed = " ".join(desk.says("lower", path, "--chip", chip, "--out", out).split())
    assert "is not calibrated: y" in printed and "DN-05" in printed
    assert "multipliers" not in line_of(out.read_text(), "tpu.Add")
