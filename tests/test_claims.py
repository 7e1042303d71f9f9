"""Metadata of a program is compared with its commands, or counted as stated by the table alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiling import to_program
from end_to_end import digits_run
from msgspec import structs
from rows import lowered

from tpusim.errors import SimulationError
from tpusim.isa.commands import TILE, Dequantize, GlobalKernel, HostCall, Move, Source
from tpusim.isa.stream import Program, load, save
from tpusim.simulator import Simulator

Change = Callable[[Program], Program]


def header(**fields: Any) -> Change:
    return lambda program: structs.replace(program, header=structs.replace(program.header, **fields))


def tensor(name: str, **fields: Any) -> Change:
    def change(program: Program) -> Program:
        entries = tuple(structs.replace(t, **fields) if t.name == name else t for t in program.tensors)
        return structs.replace(program, tensors=entries)

    return change


def group(**fields: Any) -> Change:
    return lambda p: structs.replace(p, groups=(structs.replace(p.groups[0], **fields), *p.groups[1:]))


def command(kind: type[Any], **fields: Any) -> Change:
    """The first command of a class is another."""

    def change(program: Program) -> Program:
        index = next(i for i, c in enumerate(program.commands) if isinstance(c, kind))
        new = structs.replace(program.commands[index], **fields)
        return structs.replace(program, commands=(*program.commands[:index], new, *program.commands[index + 1 :]))

    return change


CHANGES: list[tuple[Change, str]] = [
    (header(macs=1), "header: multiplications from .* got 1"),
    (header(macs=1 << 40), "header: multiplications from .* got 1,099"),
    (
        tensor("logits_Gemm", scale=0.5),
        "'logits_Gemm': scale .* with which .* computes, .* got 0.5 and 0 of its scale 0.5",
    ),
    (
        tensor("logits_Gemm", zero_point=1),
        "'logits_Gemm': scale .* and zero point 0, with which .* got .* and 1 of its",
    ),
    (tensor("logits_Gemm", shape=(5, 2)), r"'logits_Gemm': .*\(1, 10\).* is required, got .*\(5, 2\)"),
    (group(lmem_peak_bytes=64), "group 0: lmem_peak_bytes from "),
    (
        group(secs={"n": 1, "c": 1, "d": 1, "h": 2, "w": 1}),
        "group 0: says sections .*'h': 2, .* its slices have .*'h': 1, ",
    ),
    (group(ops=("stem_Relu",)), "group 0: the ops of its commands"),
    (command(Move, sources=()), "a source for each operand it reads is required, got none"),
    (lambda p: structs.replace(p, constants=p.constants[1:]), "a name of the table of constants is required"),
    (lambda p: structs.replace(p, groups=p.groups[1:]), "table of groups: entries 0, 1, 2"),
]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return load(digits_run(tmp_path_factory, "bm1684x", "int8") / "7_model.tpusim")


@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_what_contradicts_the_commands_is_refused(number: int, digits: Program) -> None:
    change, message = CHANGES[number]
    with pytest.raises(SimulationError, match=message):
        Simulator(change(digits))


def test_kernels_say_what_they_move(digits: Program) -> None:
    """The digits' casts have tiles: a kernel is made of one, at the end of everything."""
    last = next(c for c in reversed(digits.commands) if isinstance(c, Dequantize))
    entry = next(t for t in digits.tensors if t.name == last.op)
    loads = {c.owner: c.sources[0].name for c in digits.commands if isinstance(c, Move) and c.direction == "s2l"}
    source = next(t for t in digits.tensors if t.name == loads[last.sources[0]])
    body = structs.replace(last, id=0, dep=0, step="", sources=(), input=source.view, output=entry.view)
    tiu, gdma = (max(c.id for c in digits.commands if c.engine == engine) for engine in ("tiu", "gdma"))
    kernel = GlobalKernel(
        id=tiu + 1, dep=gdma, op=last.op, group=last.group, body=body, tensor=last.op, sources=(Source(source.name),),
        load_bytes=source.view.nbytes, store_bytes=entry.view.nbytes,
    )  # fmt: skip
    with_kernel = structs.replace(digits, commands=(*digits.commands, kernel))
    Simulator(with_kernel)
    for fields in ({"load_bytes": 1}, {"store_bytes": 1}, {"tiles": 0}, {"tensor": ""}):
        with pytest.raises(
            SimulationError, match="bytes loaded and .* stored, in one tile or more|the name of the tensor"
        ):
            Simulator(command(GlobalKernel, **fields)(with_kernel))


@pytest.mark.parametrize("chip", ["cv183x", "bm1684x"])
def test_the_host_moves_nothing_whatever_the_chip_moves_for_a_function(chip: str) -> None:
    program = to_program(lowered("topk", chip, "f32" if chip == "bm1684x" else "bf16")[0])
    Simulator(program)
    (kernel,) = (c for c in program.commands if isinstance(c, GlobalKernel) and c.body.loads)
    assert (kernel.load_bytes == kernel.store_bytes == 0) == isinstance(kernel, HostCall)


def test_tiles_stay_where_they_were_computed(digits: Program) -> None:
    stores = [c for c in digits.commands if isinstance(c, Move) and c.step.startswith(TILE) and c.direction == "l2s"]
    assert stores
    number = digits.commands.index(stores[0])
    for fields, message in (
        ({"sources": (Source(stores[0].op, stores[0].group, "tile9"),)}, "tile"),
        ({"start": (0, 0, 0, 0, 1)}, "the window at .0, 0, 0, 0, 1."),
        ({"tensor": ""}, "as 'logits_Gemm', but 10 of its 10 bytes"),
    ):
        new = structs.replace(stores[0], **fields)
        changed = (*digits.commands[:number], new, *digits.commands[number + 1 :])
        with pytest.raises(SimulationError, match=message):
            Simulator(structs.replace(digits, commands=changed))


def test_what_nothing_confirms_is_counted(digits: Program) -> None:
    known = Simulator(digits).unconfirmed
    assert "commands that do not say what they read" not in known
    bare = structs.replace(
        digits, commands=tuple(structs.replace(c, sources=()) for c in digits.commands), constants=()
    )
    found = Simulator(bare).unconfirmed
    assert found["commands that do not say what they read"] == sum(bool(c.reads()) for c in digits.commands)


def test_the_table_of_constants_is_in_the_file(digits: Program, tmp_path: Any) -> None:
    assert digits.constants and sum(c.size for c in digits.constants) <= digits.coefficients.nbytes
    save(digits, tmp_path / "again.tpusim")
    again = load(tmp_path / "again.tpusim")
    assert again.constants == digits.constants and np.array_equal(again.coefficients, digits.coefficients)
