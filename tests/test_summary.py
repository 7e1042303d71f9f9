"""What the clock says about a program: shares of the time, cycles of groups and ops, what bounds them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiling import to_program
from end_to_end import digits_run, report_of
from networks import CHIPS, cached_lowered, randomly_grouped
from streams import Builder, lmem, neuron

from tpusim import chips
from tpusim.cli import main
from tpusim.isa.commands import Arith, Fill, GlobalKernel, Move
from tpusim.isa.cycles import command_ns, dma_ns
from tpusim.isa.stream import load
from tpusim.simulator import Summary, summary, timeline

BIG = (1, 64, 64, 64)
SMALL = (1, 1, 1, 64)


def of(build: Builder) -> Summary:
    program = build.program()
    return summary(program, timeline(program, build.chip), build.chip)


def by_sampling(found: Any) -> dict[str, float]:
    """Shares of the time, from the state between any two moments at which something starts or ends."""
    moments = sorted({t for span in found.spans for t in (span.start_ns, span.stop_ns)})
    total = {"tiu": 0.0, "gdma": 0.0, "both": 0.0, "neither": 0.0}
    for core in found.core_busy:
        spans = [span for span in found.spans if span.core == core]
        for start, stop in zip([0.0, *moments], moments, strict=False):
            middle = (start + stop) / 2
            at = {e for span in spans if span.start_ns <= middle < span.stop_ns for e in span.engines}
            states = {"tiu": "tiu" in at, "gdma": "gdma" in at, "both": len(at) == 2, "neither": not at}
            for name, holds in states.items():
                total[name] += (stop - start) * holds
    return {name: value / len(found.core_busy) / moments[-1] for name, value in total.items()}


@pytest.mark.parametrize(("seed", "chip"), [(seed, chip) for seed in (0, 1) for chip in CHIPS])
def test_shares_and_sums(seed: int, chip: str) -> None:
    model, _ = cached_lowered(seed, chip)
    program = to_program(randomly_grouped(model, np.random.default_rng(seed + 7))[0])
    spec = chips.load(chip)
    found = timeline(program, spec)
    made = summary(program, found, spec)
    expected = by_sampling(found)
    assert {name: getattr(made, name) for name in expected} == pytest.approx(expected, abs=1e-9)
    assert made.parallelism == pytest.approx(expected["tiu"] + expected["gdma"])
    assert set(made.groups) == {command.group for command in program.commands}
    computed = {(c.group, c.op) for c in program.commands if c.engine == "tiu"}
    assert {(one.group, one.op) for one in made.ops} <= computed  # no row of a load or store
    for name in ("tiu_cycles", "gdma_cycles"):
        whole = getattr(made.whole, name)
        for parts in (list(made.groups.values()), [one.work for one in made.ops]):
            assert sum(getattr(part, name) for part in parts) == pytest.approx(whole, abs=len(parts))
    if not any(isinstance(command, GlobalKernel) for command in program.commands):
        assert made.whole.tiu_cycles == pytest.approx(made.tiu * found.cycles, abs=2)


def test_bound_by_the_tiu() -> None:
    build = Builder()
    build.add(Fill, 0, output=lmem(0, SMALL), value=1)
    for _ in range(6):
        build.add(Arith, 1, op="work", kind="copy", a=lmem(8192, BIG), output=lmem(16384, BIG))
    made = of(build)
    assert made.whole.bound == made.groups[0].bound == "tiu" and made.tiu > 0.7 and made.both == 0


def test_bound_by_the_dma() -> None:
    build = Builder(neuron_bytes=1 << 20)
    for i in range(4):
        build.add(Move, 0, input=neuron(0, BIG), output=lmem(8192 * i, BIG))
        build.add(Arith, i + 1, op="work", kind="copy", a=lmem(8192 * i, SMALL), output=lmem(65536, SMALL))
    made = of(build)
    assert made.whole.bound == "gdma" and made.gdma > 0.9
    (row,) = made.ops  # the loads belong to the op that reads them
    assert row.op == "work" and row.work.gdma_cycles == made.whole.gdma_cycles > row.work.tiu_cycles


@pytest.mark.parametrize(("together", "bound"), [(False, "dependency"), (True, "gdma")])
def test_bound_by_dependencies(together: bool, bound: str) -> None:
    """Compute and transfer of about one length: in turns they wait for each other, side by side one is the limit."""
    build = Builder()
    for _ in range(8):
        for _ in range(2):
            build.add(Arith, 0 if together else None, kind="copy", a=lmem(8192, BIG), output=lmem(16384, BIG))
        build.add(Fill, 0 if together else None, output=lmem(0, (1, 64, 9, 9)), value=1)
    program = build.program()
    work = {"tiu": 0.0, "gdma": 0.0}
    for command in program.commands:
        work[command.engine] += command_ns(command, build.chip) * build.chip.tiu_mhz / 1000
    assert 0.6 < work["tiu"] / work["gdma"] < 1
    made = of(build)
    assert made.whole.bound == made.groups[0].bound == bound
    assert made.whole.dependency_cycles == (0 if together else pytest.approx(work["tiu"], abs=1))
    assert made.both == (pytest.approx(work["tiu"] / work["gdma"], abs=0.01) if together else 0)


def test_bound_by_synchronisation() -> None:
    """Eight cores, one works and seven wait for it."""
    build = Builder("bm1690")
    build.add(Arith, 0, op="work", kind="copy", a=lmem(0, BIG), output=lmem(16384, BIG))
    build.barrier(0, 8)
    for core in range(8):
        build.add(Arith, 0, core=core, op="after", kind="copy", a=lmem(0, SMALL), output=lmem(16384, SMALL))
    made = of(build)
    assert made.whole.bound == "sync" and made.whole.dependency_cycles == 0
    assert made.neither > 0.7


def test_a_global_kernel_counts_each_sides_own_time() -> None:
    build = Builder()
    view = neuron(0, (1, 1, 1, 1), "f32")
    body = Arith(id=1, dep=0, op="a", kind="copy", a=view, output=view)
    build.add(GlobalKernel, 0, op="a", body=body, tiles=2, load_bytes=62277, store_bytes=47245)
    made = of(build)
    kernel = build.commands[0]
    assert (made.tiu, made.gdma, made.both) == (1.0, 1.0, 1.0)
    assert made.whole.bound == "gdma" and made.whole.tiu_cycles < 20
    assert made.whole.gdma_cycles == pytest.approx(dma_ns(kernel, build.chip) * build.chip.tiu_mhz / 1000, abs=1)


def test_an_empty_program() -> None:
    made = of(Builder())
    assert made.whole.tiu_cycles == 0 and made.groups == {} and json.dumps(made.to_json())


def test_in_the_report(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = digits_run(tmp_path_factory, "bm1684x", "int8")
    report, program = report_of(folder), load(folder / "7_model.tpusim")
    made = summary(program, timeline(program, chips.load("bm1684x")), chips.load("bm1684x"))
    assert report["engines"] == json.loads(json.dumps(made.to_json()))
    assert all(group["bound"] == made.groups[group["id"]].bound for group in report["groups"])
    page = (folder / "report.html").read_text()
    assert "<h2>Engines</h2>" in page and "bound by" in page and f"{made.tiu:.0%}" in page


def test_on_the_terminal(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, capsys: Any) -> None:
    folder = digits_run(tmp_path_factory, "bm1684x", "int8")
    capsys.readouterr()
    out, log = str(tmp_path / "out.npz"), str(tmp_path / "trace.json")
    inputs = str(folder / "inputs.npz")
    assert main(["simulate", str(folder / "7_model.tpusim"), "--input", inputs, "--out", out, "--trace", log]) == 0
    text = capsys.readouterr().out
    bound = report_of(folder)["engines"]["bound"]
    assert "Ops that take longest" in text and f"; bound by {bound}" in text and "stem" in text
