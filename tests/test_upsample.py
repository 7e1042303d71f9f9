"""Upsample by a table of indices: what the table holds, how it is cut, and where the search has it.

The windows of the table are those of modules that TPU-MLIR 1.30.2 wrote (`indices_idx`, `indices_slice`) for networks
of a convolution, an Upsample and a convolution, or an Upsample between casts.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from bench import Bench, numbers
from builders.timings import in_every_order
from compiling import to_calibrated, to_groups, to_program, to_reordered, to_tpu
from plain_names import import_onnx
from upstream.networks import Builder

from benchmarks.conformance.clock import CHIPS
from benchmarks.conformance.replay import Replay
from tpusim import chips
from tpusim.canonicalize import canonicalize
from tpusim.errors import SimulationError
from tpusim.inference import run
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.isa import commands as isa
from tpusim.isa.cycles import tiu_cycles
from tpusim.layer_group.files import Counts, ForcedGroup
from tpusim.layer_group.slicing import SliceError, slice_group
from tpusim.ops.framework.logical import Windows
from tpusim.ops.resize import TpuUpsample
from tpusim.ops.resize.indices import IndexTable
from tpusim.ops.structure import TopWeight, TpuGroup, TpuLoad
from tpusim.schedule import Sections, subgraph

OFF = ("resize_modes",)
"""With it two different factors are an Interp, as in TPU-MLIR."""
SLICES: dict[str, tuple[int, Windows, Windows, Windows]] = {
    "whole": (64, ((0, 128),), ((0, 128),), ((0, 256),)),
    "halo": (32, ((0, 65), (63, 65)), ((0, 128),), ((0, 260), (260, 260))),
    "rows": (64, ((0, 75), (75, 75), (150, 74)), ((0, 520),), ((0, 610), (610, 610), (1220, 602))),
    "columns": (64, ((0, 32),), ((0, 1143), (1143, 1142)), ((0, 572), (572, 571))),
}
"""lanes, windows of the result along h and w, and those of the table along the axis that is cut."""


@pytest.mark.parametrize("name", SLICES)
def test_windows_of_the_table_are_upstreams(name: str) -> None:
    lanes, h, w, wanted = SLICES[name]
    rows, columns = IndexTable((2, 2), lanes).windows(h, w)
    assert (columns if name == "columns" else rows) == wanted
    assert len(rows if name == "columns" else columns) == 1


def test_a_slice_with_more_elements_than_16_bits_number_is_cut() -> None:
    """INT8 on BM1684X: 300 x 300 and twice as much would fit local memory in one slice; no index may wrap."""
    table = IndexTable((1, 2), 64)
    assert table.reaches(((0, 256),), ((0, 512),))
    assert not table.reaches(((0, 300),), ((0, 600),))
    b = Builder("wide")
    x = b.node("Relu", b.input("x", 1, 8, 300, 300))
    b.output(b.node("Relu", b.node("Resize", x, "", b.constant([1.0, 1.0, 1.0, 2.0]), mode="nearest")))
    top = canonicalize(import_onnx(b.model()), quirks_off=OFF)[0]
    image = np.linspace(0, 1, 8 * 300 * 300, dtype=np.float32).reshape(1, 8, 300, 300)
    tpu = to_tpu(top, "bm1684x", ranges=[{"x": image}])
    (op,) = (op for op in to_reordered(tpu).ops if isinstance(op, TpuUpsample))
    chip = chips.load("bm1684x")
    graph = subgraph([op], chip)
    with pytest.raises(SliceError, match="cannot number"):
        slice_group(graph, Sections(), chip)
    assert slice_group(graph, Sections(h=2), chip)[op.operands[1]].h


@pytest.mark.parametrize("factors", [(2, 2), (3, 2), (1, 4)])
@pytest.mark.parametrize(
    ("h", "w"),
    [
        (((0, 12),), ((0, 24),)), (((0, 5), (4, 8)), ((0, 24),)), (((0, 12),), ((0, 7), (7, 7), (14, 10))),
        (((0, 7), (5, 7)), ((1, 9), (10, 14))),
    ],
)  # fmt: skip
def test_every_part_gathers_its_slice(factors: tuple[int, int], h: Windows, w: Windows) -> None:
    """On the machine, from the operand's slice alone; the parts are where the windows say."""
    bench, table = Bench(), IndexTable(factors, 64)
    data, parts = table.data(h, w), table.windows(h, w)
    x = numbers((2, 70, 12 // factors[0], 24 // factors[1]), "i8")
    whole = x.repeat(factors[0], 2).repeat(factors[1], 3)
    for i, (top, rows) in enumerate(h):
        for j, (left, columns) in enumerate(w):
            (y, dy), (z, dz) = parts[0][i], parts[1][j]
            first = [start // f for start, f in zip((top, left), factors, strict=True)]
            last = [(end - 1) // f + 1 for end, f in zip((top + rows, left + columns), factors, strict=True)]
            got = bench.run(
                isa.Pick, input=bench.put(x[:, :, first[0] : last[0], first[1] : last[1]]),
                indices=bench.put(data[:, :, y : y + dy, z : z + dz]),
                output=bench.space((2, 70, rows, columns), "i8"),
            )  # fmt: skip
            np.testing.assert_array_equal(got, whole[:, :, top : top + rows, left : left + columns])


def test_indices_are_unsigned_and_inside_a_plane() -> None:
    """A plane has more than 32,767 elements; one lane takes a cycle for each it writes."""
    bench = Bench()
    x, indices = numbers((1, 3, 190, 190), "i8"), np.zeros((1, 64, 1, 1), np.uint16)
    indices[0, :2, 0, 0] = 36_099, 32_768
    views: dict[str, Any] = {"input": bench.put(x), "output": bench.space((1, 3, 1, 2), "i8")}
    got = bench.run(isa.Pick, indices=bench.put(indices.view(np.int16)), **views)
    np.testing.assert_array_equal(got[0, :, 0], x.reshape(3, -1)[:, [36_099, 32_768]])
    indices[0, 1, 0, 0] = 36_100
    with pytest.raises(SimulationError, match="below 36,100, the elements of a plane, are required, got 36,100"):
        bench.run(isa.Pick, indices=bench.put(indices.view(np.int16)), **views)
    command = isa.Pick(id=1, dep=0, op="o", indices=bench.put(indices.view(np.int16)), **views)
    assert tiu_cycles(command, bench.chip) == 2


@cache
def lowered(chip: str, mode: str = "int8") -> tuple[Model, dict[str, np.ndarray]]:
    b = Builder("between")
    up = b.node("Upsample", b.conv(b.input("x", 1, 70, 12, 12), 70, 70), b.constant(np.array([1, 1, 2, 3], np.float32)),
                out="up", mode="nearest")  # fmt: skip
    b.output(b.conv(up, 70, 5, 3))
    model = b.model()
    model.opset_import[0].version = 9
    feeds = {"x": np.random.default_rng(0).normal(size=(1, 70, 12, 12)).astype(np.float32)}
    top = canonicalize(import_onnx(model, name="between"), quirks_off=OFF)[0]
    if mode == "int8":
        top = to_calibrated(top, [feeds])
    return to_reordered(top, chip, mode), feeds


def grouped(model: Model, *forced: ForcedGroup) -> Model:
    return to_groups(model, force=forced)


def all_ops(sections: Counts, model: Model) -> ForcedGroup:
    names = [op_name(op) for op in model.ops if op.name.startswith("tpu.")]
    return ForcedGroup(names[0], names[-1], sections=sections)


@pytest.mark.parametrize("counts", [Counts(), Counts(h=3), Counts(w=2), Counts(h=2, w=3)], ids=str)
@pytest.mark.parametrize(("chip", "mode"), [("bm1684x", "int8"), ("bm1688", "int8"), ("bm1688", "f16")])
def test_a_group_with_a_table_computes_what_the_flat_network_does(chip: str, mode: str, counts: Counts) -> None:
    model, feeds = lowered(chip, mode)
    divided = grouped(model, all_ops(counts, model))
    (group,) = (op for op in divided.ops if isinstance(op, TpuGroup))
    (up,) = (op for op in group.body.block.ops if isinstance(op, TpuUpsample))
    assert up.indices is not None and isinstance(load := up.indices.owner, TpuLoad)
    assert isinstance(load.input.owner, TopWeight) and op_name(load.input.owner) in divided.weights
    program = to_program(divided)
    assert [c.op for c in program.commands if isinstance(c, isa.Pick)] == ["up"] * group.sections()["h"] * (
        group.sections()["w"]
    )
    flat, machine = run(model, feeds), in_every_order(program, feeds)
    (before,) = (op_name(op.input.owner) for op in model.ops if isinstance(op, TpuUpsample))  # type: ignore[arg-type]
    np.testing.assert_array_equal(machine["up"], machine[before].repeat(2, 2).repeat(3, 3))
    for name in set(flat) & set(machine) if mode == "int8" else ():
        np.testing.assert_array_equal(machine[name], flat[name], err_msg=name)


@pytest.mark.parametrize("chip", ["bm1684x", "bm1688"])
def test_alone_it_is_computed_in_tiles_without_a_table(chip: str) -> None:
    model, feeds = lowered(chip)
    divided = to_groups(model, "off")
    (up,) = (op for op in divided.ops if isinstance(op, TpuUpsample))
    assert up.indices is None and not [name for name in divided.weights if name.endswith("_indices")]
    program = to_program(divided)
    moved = [c.traffic() for c in program.commands if "up" in (c.op, c.op.removeprefix("load_"))]
    assert sum(store for _, store in moved) == 70 * 24 * 36
    machine, flat = in_every_order(program, feeds), run(model, feeds)
    np.testing.assert_array_equal(machine["up"], flat["up"])


@pytest.mark.parametrize("chip", ["bm1684", "bm1690"])
def test_others_copy(chip: str) -> None:
    """Their compilers give the op no table."""
    model, _ = lowered(chip)
    assert all(len(op.operands) == 1 for op in model.ops if isinstance(op, TpuUpsample))


def test_what_a_table_costs_decides_where_the_op_is() -> None:
    """As in the real module: 64 short runs are more than what BM1684X saves, 32 on BM1688 are not."""
    found = {}
    for chip in CHIPS:
        divided = to_groups(Replay("resize").lowered(f"{chip}/int8"))
        found[chip] = [a.nbytes for name, a in divided.weights.items() if name.endswith("_indices")]
    assert found == {"bm1684x": [], "bm1688": [320, 704]}
