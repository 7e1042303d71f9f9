"""Tensors may be called anything: names that look like loads, stores, slices or syntax name what they name.

A network whose tensors have such names is the same program as one with plain names, on every family of chips, with and
without groups, and it stays that through its files.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from builders.calibrated import ranged
from compiling import to_canonical, to_program, to_reordered
from onnx import TensorProto, helper
from plain_names import import_onnx

from tpusim.ir.module import Model
from tpusim.isa.commands import Command, GlobalKernel
from tpusim.isa.listing import assemble, listing
from tpusim.isa.stream import Program, load, save
from tpusim.simulator import Simulator

X = np.random.default_rng(0).uniform(-4, 4, (1, 4, 6, 5)).astype(np.float32)
FIRST = 2
"""So many lists meet every target, the others two of them."""
PLAIN = tuple(f"t{i}" for i in range(7))
NAMES = [
    ("X", "load_X", "store_X", "load_load_X", "store_load_X", "load_store_X", "Y"),
    ("X", "X@g0n0h0", "load_X@g0n0h0", "X@g0", "@g0n0h0", "X@g1n0h0@g0n0h0", "@"),
    ("a", "ab", "bc", "c", "abc", "a_f32", "a_si8"),
    ("X[0]", "X:0", "X.0", "X/0", "X;0", "X,0", "X=0"),
    ("a b", " a", "a ", "a  b", "tile0", "global", "computes fn"),
    ("it's", 'say "x"', "\\n", "\\", "`x`", "$x", "%x"),
    ("größe", "张量", "😀", "ﬁ", "\u00a0", "e\u0301", "é"),
    ("{}", "{0}", "{x}", "%s", "<x>", "&amp;", "#x"),
    ("null", "true", "NaN", "Infinity", "0", "-1", "0x10"),
    ("gmem:0x0:1x2:i8:dense", "lmem:0x0", "[lmem:0x0", "op=x", "tiu", "header", "; x"),
]
TARGETS = [("bm1688", "f16"), ("bm1684x", "int8"), ("bm1684", "int8"), ("cv183x", "int8"), ("bm1684x", "f32")]


def model_of(names: tuple[str, ...]) -> onnx.ModelProto:
    """Seven tensors: every op reads the network's input and the tensor before it; all are results."""
    x, *rest = names
    kinds = ("Relu", "Add", "Mul", "Add", "Max", "Add")
    nodes = []
    for kind, before, name in zip(kinds, names, rest, strict=False):
        operands = [before] if kind == "Relu" else [before, x]
        nodes.append(helper.make_node(kind, operands, [name], name=f"node {name}"))
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, 4, 6, 5)) for n in names]
    graph = helper.make_graph(nodes, "net", value[:1], value[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def lowered(names: tuple[str, ...], chip: str, mode: str) -> Model:
    top = to_canonical(import_onnx(model_of(names), name="net"))
    if mode == "int8":
        top = ranged(top, {name: (-4.0 - i, 4.0 + i) for i, name in enumerate(names)})
    return to_reordered(top, chip, mode)


def programs(names: tuple[str, ...], chip: str, mode: str) -> list[Program]:
    module = lowered(names, chip, mode)
    strategies = ("2", "off")
    return [to_program(module.clone(), s) for s in strategies]


def nameless(command: Command) -> Command:
    return command.body.form if isinstance(command, GlobalKernel) else command.form


@cache
def plainly(chip: str, mode: str) -> list[tuple[Program, dict[str, int], list[np.ndarray]]]:
    """(program, what nothing confirms in it, results) of the network with plain names."""
    machines = [(program, Simulator(program)) for program in programs(PLAIN, chip, mode)]
    return [(p, m.unconfirmed, results(p, m.run({"t0": X}).tensors)) for p, m in machines]


def results(program: Program, tensors: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    return [tensors[entry.name] for entry in program.outputs]


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("names", "chip", "mode"),
    [(n, *t) for i, n in enumerate(NAMES) for j, t in enumerate(TARGETS) if i < FIRST or (i + j) % 5 < 2],
    ids=lambda text: ascii(text[1]) if isinstance(text, tuple) else text,
)
def test_names_do_not_matter(names: tuple[str, ...], chip: str, mode: str, tmp_path: Path) -> None:
    """The same commands as with plain names, accepted by the machine, the same numbers, the same after files."""
    for program, (plain, silent, wanted) in zip(programs(names, chip, mode), plainly(chip, mode), strict=True):
        machine = Simulator(program)
        assert machine.unconfirmed == silent
        assert list(map(nameless, program.commands)) == list(map(nameless, plain.commands))
        found = results(program, machine.run({names[0]: X}).tensors)
        assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))
        save(program, tmp_path / "p.tpusim")
        for again in (load(tmp_path / "p.tpusim"), assemble(listing(program), program.coefficients)):
            assert (again.commands, again.tensors, again.locations) == (
                program.commands, program.tensors, program.locations,
            )  # fmt: skip
