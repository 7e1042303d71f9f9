"""Windows beyond a command's ranges: strides, dilations and pads above 15 (codegen.md DC-09)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from op_row import network, node

import tpusim
from tpusim import chips
from tpusim.calibration.stage import CalibrationConfig
from tpusim.isa.commands import Arith
from tpusim.isa.commands.window import window_ranges
from tpusim.ops.conv import TpuConv2D
from tpusim.simulator.timing import timeline

Array = np.ndarray
ALL = (
    "bm1684 f32", "bm1684 int8", "bm1684x f32", "bm1684x f16", "bm1684x int8", "bm1688 bf16", "bm1688 int8",
    "cv183x bf16", "cv183x int8", "bm1690 f16",
)  # fmt: skip
MAX = CalibrationConfig("max")


class Row(NamedTuple):
    """A convolution: input (n, c, ...), filter, attributes."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    more: dict[str, Any]
    relu: bool = False


ROWS = {
    "1-D stride 16": Row((1, 4, 70), (6, 4, 16), {"strides": [16]}),
    "1-D stride 160, 400 taps": Row((1, 1, 880), (6, 1, 400), {"strides": [160]}),
    "1-D stride 128, a batch": Row((2, 3, 300), (5, 3, 20), {"strides": [128], "pads": [10, 10]}, relu=True),
    "patches 16x16": Row((1, 3, 32, 32), (6, 3, 16, 16), {"strides": [16, 16]}),
    "patches 32x32": Row((1, 3, 64, 32), (6, 3, 32, 32), {"strides": [32, 32]}, relu=True),
    "overlapping stride 16": Row((1, 4, 50, 50), (6, 4, 19, 17), {"strides": [16, 16], "pads": [3, 2, 1, 0]}),
    "small kernel": Row((2, 5, 40, 40), (6, 5, 3, 3), {"strides": [17, 16], "pads": [1, 1, 1, 1]}, relu=True),
    "one wide axis": Row((1, 4, 40, 12), (6, 4, 3, 3), {"strides": [16, 2], "pads": [0, 1, 0, 1]}),
    "two groups": Row((2, 8, 40, 40), (6, 4, 3, 3), {"strides": [16, 16], "group": 2}),
    "dilation 16": Row((1, 4, 40, 40), (6, 4, 3, 3), {"dilations": [16, 16], "pads": [16, 16, 16, 16]}, relu=True),
    "dilation 17 and stride": Row((1, 4, 50, 40), (6, 4, 3, 2), {"dilations": [17, 1], "strides": [2, 16]}),
    "depthwise stride 16": Row((1, 9, 40, 40), (9, 1, 3, 3), {"strides": [16, 16], "group": 9, "pads": [1] * 4}),
    "depthwise, 20 taps": Row((1, 70, 36, 36), (70, 1, 20, 20), {"strides": [16, 16], "group": 70}, relu=True),
    "depthwise dilation 18": Row((1, 70, 40, 40), (70, 1, 3, 3), {"dilations": [18, 18], "group": 70}),
    "pads 20 and 3": Row((1, 3, 10, 10), (5, 3, 17, 17), {"pads": [16, 3, 0, 16]}),
    "pads 31": Row((1, 3, 6, 6), (5, 3, 33, 33), {"pads": [31, 31, 31, 31], "strides": [4, 4]}),
    "pads 20, stride 16": Row((1, 3, 30, 30), (5, 3, 33, 5), {"pads": [20, 2, 20, 2], "strides": [16, 16]}),
}  # fmt: skip


def saved(row: Row, path: Path) -> Path:
    """The convolution with a bias, and a relu where the row has one, as a network."""
    rng = np.random.default_rng(7)
    weights = {"w": rng.normal(0, 0.3, row.w).astype(np.float32), "b": rng.normal(0, 1, row.w[0]).astype(np.float32)}
    nodes = [node("Conv", "x w b", "a" if row.relu else "y", **row.more)]
    nodes += [node("Relu", "a", "y")] if row.relu else []
    onnx.save(network(nodes, weights)({"x": row.x}), path)
    return path


def samples(row: Row) -> list[dict[str, Array]]:
    return [{"x": np.random.default_rng(seed).normal(0, 1, row.x).astype(np.float32)} for seed in range(2)]


def pairs() -> list[tuple[str, str]]:
    """Every geometry on two chips and modes, and every chip and mode with three geometries or more."""
    return [(name, ALL[(i * 3 + k * 5) % len(ALL)]) for i, name in enumerate(ROWS) for k in (0, 1)]


@pytest.mark.parametrize(("name", "target"), pairs())
def test_runs_as_the_network_says(name: str, target: str, tmp_path: Path) -> None:
    """ONNX Runtime, flat inference and the machine; integers of the last two are equal bit for bit."""
    run_and_verify(name, target, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("target", ALL)
@pytest.mark.parametrize("name", ROWS)
def test_runs_on_every_chip_in_every_mode(name: str, target: str, tmp_path: Path) -> None:
    run_and_verify(name, target, tmp_path)


def run_and_verify(name: str, target: str, folder: Path) -> None:
    (chip, mode), row = target.split(), ROWS[name]
    data = samples(row)
    net = tpusim.compile(saved(row, folder / "m.onnx"), data, chip=chip, mode=mode, calibration=MAX)
    found = net.verify(data[0])
    assert list(found.comparisons) == ["top_vs_onnx", "tpu_vs_top", "local_vs_tpu"]
    assert found.passed
    assert mode != "int8" or chip == "bm1684" or found.bit_exact
    for command in net.program.commands:
        assert window_ranges(command, chips.load(chip)) is None


class Profile(NamedTuple):
    """What TPU-MLIR 1.30.2 says of a network of one convolution: cycles, and the work area of the convolution."""

    row: Row
    target: str
    cycles: int
    work_bytes: int
    copies: int


SMALL = Row((1, 16, 64, 64), (16, 16, 3, 3), {"strides": [16, 16], "pads": [1, 1, 1, 1]})
LARGE = Row((1, 4, 96, 96), (8, 4, 35, 35), {"strides": [16, 16], "pads": [3, 3, 3, 3]})
DILATED = Row((1, 64, 40, 40), (32, 64, 3, 3), {"dilations": [16, 16], "pads": [16, 16, 16, 16]})
PRIME = Row((1, 4, 96, 96), (8, 4, 17, 17), {"strides": [16, 16]})
PROFILES = [
    Profile(SMALL, "bm1684x f16", 5883, 1920, 8),
    Profile(SMALL, "bm1684x int8", 6628, 1280, 8),
    Profile(LARGE, "bm1684x int8", 27407, 9792, 150),
    Profile(PRIME, "bm1684x f16", 9187, 12864, 30),
    Profile(PRIME, "bm1684x int8", 15236, 6784, 1530),
    Profile(DILATED, "bm1684x f16", 30567, 44800, 80),
    Profile(Row((2, 16, 64, 64), (16, 8, 3, 3), {"strides": [16, 17], "group": 2}), "bm1688 f16", 34550, 1888, 16),
]


@pytest.mark.every
@pytest.mark.parametrize("seen", PROFILES, ids=lambda seen: f"{seen.target} {seen.cycles}")
def test_time_and_work_area_are_upstreams(seen: Profile, tmp_path: Path) -> None:
    """Within 4 %: the rates of transfers and short rows are fitted, commands and work area are the same."""
    (chip, mode), row = seen.target.split(), seen.row
    net = tpusim.compile(saved(row, tmp_path / "m.onnx"), samples(row), chip=chip, mode=mode, calibration=MAX)
    copies = [c for c in net.program.commands if isinstance(c, Arith) and c.kind == "copy"]
    assert len([c for c in copies if c.a.dtype == c.output.dtype]) == seen.copies
    conv = next(op for op in net.grouped.body.walk() if isinstance(op, TpuConv2D))
    assert conv.group_info is not None and conv.group_info.data.buffer_size == seen.work_bytes
    assert abs(timeline(net.program, chips.load(chip)).cycles / seen.cycles - 1) < 0.04
