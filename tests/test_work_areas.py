"""Local memory that commands use for themselves: what lies there is gone, and no other queue may touch it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiling import to_program
from msgspec import structs
from networks import random_tokens, randomly_grouped, reordered
from streams import Builder, lmem, neuron

from tpusim import chips
from tpusim.errors import CommandError, SimulationError
from tpusim.ir.attrs import op_name
from tpusim.isa.check import check
from tpusim.isa.commands import Arith, GlobalKernel, MatMul, Move, Rescale, Source
from tpusim.isa.commands import Requant as R
from tpusim.isa.layout import extent, work_area
from tpusim.isa.stream import Program
from tpusim.ops.framework.base import TpuOp
from tpusim.simulator import Simulator

X = chips.load("bm1684x")
SHAPE = (1, 2, 1, 4)
ALL = (work_area(0, X.lmem_bytes, X),)


def through(work: Any, **kernel: Any) -> Builder:
    """Loads x (lmem 0), runs a kernel from y to z, copies x to lmem 64 and stores it."""
    build = Builder()
    x, y = (build.tensor(name, neuron(64 * i, SHAPE), "input") for i, name in enumerate("xy"))
    z, out = build.tensor("z", neuron(128, SHAPE)), build.tensor("out", neuron(192, SHAPE), "output")
    build.add(Move, op="load_x", step="h0", input=x, output=lmem(0, SHAPE), sources=(Source("x"),))
    body = Rescale(id=0, dep=0, op="z", input=y, output=z, requant=R())
    build.add(
        GlobalKernel, **{"op": "z", "tensor": "z", "body": body, "sources": (Source("y"),), "work": work, **kernel}
    )
    build.add(
        Arith,
        kind="copy",
        op="c",
        step="h0",
        a=lmem(0, SHAPE),
        output=lmem(64, SHAPE),
        sources=(Source("load_x", 0, "h0", loaded=True),),
    )
    build.add(Move, input=lmem(64, SHAPE), output=out, tensor="out", sources=(Source("c", 0, "h0"),))
    return build


def test_local_memory_does_not_survive_a_global_kernel() -> None:
    assert Simulator(through(()).program())
    for work in (ALL, (work_area(0, 64, X),)):
        with pytest.raises(SimulationError, match=r"Arith 2 .* reads 8 of the 8 bytes .* uninitialised"):
            Simulator(through(work).program())
    assert Simulator(through((work_area(64, 64, X),)).program())  # a part of it that holds nothing


def test_a_kernel_waits_for_loads_into_its_memory() -> None:
    with pytest.raises(SimulationError, match=r"race: GlobalKernel 1 .* works in lanes 0-63, .* and Move 1 .* writes"):
        Simulator(through(ALL, dep=0).program())


def test_nothing_lives_in_a_work_area() -> None:
    build = through(())
    build.commands[2] = structs.replace(build.commands[2], work=(work_area(0, 64, X),))
    with pytest.raises(CommandError, match="work_areas requires work apart from a, got a at 0"):
        Simulator(build.program())
    build.commands[2] = structs.replace(build.commands[2], work=(work_area(X.lmem_bytes - 64, 128, X),))
    with pytest.raises(SimulationError, match="its work area: accesses lanes 0-63"):
        Simulator(build.program())
    with pytest.raises(CommandError, match=r"work of shape \(1, 64, 1, bytes\)"):
        check(structs.replace(build.commands[2], work=(lmem(128, SHAPE, "u8", "compact"),)), X)


def matmul(at: int) -> GlobalKernel:
    """(4000, 512) x (512, 8) in 9 tiles, the result `at` bytes after the left matrix's start."""
    left, right = neuron(0, (4000, 512)), neuron(4000 * 512, (512, 8))
    body = MatMul(id=0, dep=0, op="m", left=left, right=right, output=neuron(at, (4000, 8), "i32"))
    return GlobalKernel(id=1, dep=0, op="m", body=body, tiles=9)


def test_a_kernel_may_not_write_over_its_input() -> None:
    check(matmul(4000 * 512 + 4096), X)
    for at in (0, 4096, 4000 * 512 - 4):
        with pytest.raises(CommandError, match="apart requires a result apart from its operands"):
            check(matmul(at), X)
    body = Rescale(id=0, dep=0, op="r", input=neuron(0, SHAPE), output=neuron(0, SHAPE), requant=R())
    check(GlobalKernel(id=1, dep=0, op="r", body=body), X)  # element by element, in place
    body = structs.replace(body, output=neuron(4, SHAPE))
    with pytest.raises(CommandError, match="apart requires"):
        check(GlobalKernel(id=1, dep=0, op="r", body=body), X)


def test_a_copy_may_not_overlap_itself() -> None:
    check(Move(id=1, dep=0, op="m", input=neuron(0, (64,)), output=neuron(64, (64,))), X)
    with pytest.raises(CommandError, match="apart requires"):
        check(Move(id=1, dep=0, op="m", input=neuron(0, (64,)), output=neuron(32, (64,))), X)


@pytest.mark.parametrize("seed", range(3))
def test_every_work_area_of_a_group_is_named(seed: int) -> None:
    """By the area itself, or by views of commands that lie in it; kernels name all of local memory."""
    model = reordered(random_tokens(seed, (2, 10, 12)).top(), "bm1684x")
    divided, plans = randomly_grouped(model, np.random.default_rng(seed))
    program, found = to_program(divided), 0
    for group in plans:
        for owner, size in group.allocation.size.items():
            if isinstance(owner, TpuOp):
                address = group.allocation.address[owner]
                assert _named(program, op_name(owner), address, address + size)
                found += 1
    assert found
    assert all(c.work == ALL for c in program.commands if isinstance(c, GlobalKernel))


def _named(program: Program, op: str, start: int, stop: int) -> bool:
    own = [c for c in program.commands if c.op == op]
    views = [extent(v, X) for c in own for v in (*c.scratch(), *c.reads(), *c.writes())]
    return any(start <= v.start and v.stop <= stop for v in views)
