"""Whose bytes a command uses: other tensors, old slices, outputs that do not last, elements stored twice."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compiling import to_program
from end_to_end import digits_run
from msgspec import structs
from mutation.mutant import renumbered
from networks import Network, reordered
from streams import Builder, lmem, neuron

from tpusim import chips
from tpusim.errors import SimulationError
from tpusim.isa.commands import Arith, Fill, Move, Source
from tpusim.isa.stream import GroupEntry, load
from tpusim.layer_group.candidates import base_groups
from tpusim.layer_group.files import write_group
from tpusim.layer_group.planning import plan
from tpusim.schedule import GroupSchedule, Sections
from tpusim.simulator import Simulator
from tpusim.simulator.ownership import Restore, check_restores

SHAPE = (1, 2, 1, 4)
LOADED = {name: Source(f"load_{name}", 0, "h0", loaded=True) for name in "xy"}


def two_inputs(**last: Any) -> Builder:
    """Loads x (lmem 0) and y (lmem 64), copies x to lmem 128 and stores it."""
    build = Builder()
    x, y = (build.tensor(name, neuron(64 * i, SHAPE), "input") for i, name in enumerate("xy"))
    out = build.tensor("out", neuron(128, SHAPE), "output")
    build.add(Move, op="load_x", step="h0", input=x, output=lmem(0, SHAPE), sources=(Source("x"),))
    build.add(Move, op="load_y", step="h0", input=y, output=lmem(64, SHAPE), sources=(Source("y"),))
    copy: dict[str, Any] = {"a": lmem(0, SHAPE), "sources": (LOADED["x"],), **last}
    build.add(Arith, op="copy", step="h0", kind="copy", output=lmem(128, SHAPE), **copy)
    build.add(
        Move,
        op="store",
        step="h0",
        input=lmem(128, SHAPE),
        output=out,
        tensor="out",
        sources=(Source("copy", 0, "h0"),),
    )
    return build


def refused(build: Builder, words: str) -> None:
    with pytest.raises(SimulationError, match=words):
        Simulator(build.program())


def test_right_streams_have_no_finding() -> None:
    x = np.arange(8, dtype=np.int8).reshape(SHAPE)
    assert np.array_equal(Simulator(two_inputs().program()).run({"x": x, "y": x}).tensors["out"], x)


def test_bytes_of_another_tensor_are_found_though_their_values_may_be_equal() -> None:
    refused(
        two_inputs(a=lmem(64, SHAPE)),
        r"Arith 1 \(tiu\) of op 'copy' step 'h0' reads lanes 0-1, local bytes \[64, 68\) as 'load_x@g0h0', but 8 of "
        r"its 8 bytes \(lanes 0-1, local bytes \[64, 68\)\) were last written by Move 2 \(gdma\) of op 'load_y' step "
        r"'h0' for 'load_y@g0h0'; correct the address",
    )


def test_bytes_of_another_slice_are_found() -> None:
    refused(
        two_inputs(sources=(Source("load_x", 0, "h1", loaded=True),)), r"as 'load_x@g0h1', but .* for 'load_x@g0h0'"
    )


def test_every_operand_has_a_source_or_none() -> None:
    refused(two_inputs(sources=(LOADED["x"], Source("y"))), "one source per operand it reads is required, got 2 for 1")


def test_an_output_must_last() -> None:
    build = two_inputs()
    build.add(Fill, op="late", output=neuron(130, (2,)), value=1)
    refused(build, r"output 'out' is read by the host at the end, but 2 of its 8 bytes .* by Fill 4 \(gdma\)")


@pytest.mark.parametrize("same", [False, True])
def test_an_output_must_last_to_the_end_of_its_function(same: bool) -> None:
    """A later group overwrites the result of group 0. same: it is of the same function."""
    build = two_inputs()
    late = build.tensor("late", neuron(130, (2,)))
    build.add(Fill, op="late", group=1, output=late, tensor="late", value=1)
    ops = ("copy",), ("late",)
    groups = [GroupEntry(n, ops[n], {}, 132, function="f" if same or not n else "g") for n in range(2)]
    program = structs.replace(build.program(), groups=tuple(groups))
    if same:
        with pytest.raises(SimulationError, match="output 'out' is read by the host at the end of function 'f'"):
            Simulator(program)
    else:
        x = np.arange(8, dtype=np.int8).reshape(SHAPE)
        assert np.array_equal(Simulator(program).run({"x": x, "y": x}).tensors["out"], x)


def test_a_store_outside_its_tensor() -> None:
    build = two_inputs()
    build.add(Move, op="again", input=lmem(128, SHAPE), output=neuron(132, SHAPE), tensor="out")
    refused(build, "Move 4 .* stores a part of tensor 'out' to global memory .*, the tensor is global memory")


def constants(**load: Any) -> Builder:
    """Loads filter and bias, which lie side by side, and stores the filter."""
    build = Builder()
    views = [build.coefficient(np.zeros(SHAPE, np.int8), name) for name in ("filter", "bias")]
    build.tensor("y", neuron(0, SHAPE), "output")
    for i, (name, view) in enumerate(zip(("filter", "bias"), views, strict=True)):
        build.add(
            Move, **{"op": name, "input": view, "output": lmem(64 * i, SHAPE), "sources": (Source(name),), **load}
        )
    build.add(Move, op="store", input=lmem(0, SHAPE), output=neuron(0, SHAPE), tensor="y", sources=(Source("filter"),))
    return build


def test_a_constant_is_read_by_its_name() -> None:
    silent = "transfers that do not say which window they move"
    assert Simulator(constants().program()).unconfirmed == {silent: 1, "shapes": 1}
    view = constants().commands[0].input
    refused(
        constants(input=view), r"Move 2 .* bytes of 'bias', \[0x100000008, 0x100000010\), is required, got \[0x1000000"
    )
    refused(constants(sources=(Source("scale"),)), "a name of the table of constants is required, got 'scale'")
    build = constants()
    build.constants[1] = structs.replace(build.constants[1], address=view.address + 4)
    refused(build, "bytes of 'bias'|constant 'bias': bytes that no other constant has")


@pytest.mark.parametrize("source", [0, 64])
def test_elements_stored_twice_have_one_value(source: int) -> None:
    build = two_inputs()
    part = (1, 2, 1, 4)
    held = (LOADED["x" if source == 0 else "y"],)
    build.add(Move, op="again", input=lmem(source, part), output=neuron(128, part), tensor="out", sources=held)
    machine = Simulator(build.program())
    x = np.arange(8, dtype=np.int8).reshape(SHAPE)
    machine.run({"x": x, "y": x})
    if source == 0:
        machine.run({"x": x, "y": x + 1})
    else:
        with pytest.raises(SimulationError, match="stores 8 elements of tensor 'out' again with other .* Move 3"):
            machine.run({"x": x, "y": x + 1})


@pytest.mark.parametrize("bits", [0x7F81, 0x7FC0])
def test_no_number_is_stored_again_without_a_warning_of_numpy(bits: int) -> None:
    """A signalling NaN and a quiet one of BF16 are the same value as before."""
    values = np.full(4, bits, np.uint16).view(ml_dtypes.bfloat16)
    command: Any = SimpleNamespace(label="gdma 3", tensor="x")
    memory: Any = SimpleNamespace(read=lambda view: values, chip=chips.load("bm1684x"))
    restore = Restore(neuron(0, (4,), "bf16"), np.full(4, True), "gdma 2")
    check_restores(command, [(restore, values.copy())], memory)
    with pytest.raises(SimulationError, match="stores 1 elements of tensor 'x' again"):
        check_restores(command, [(restore, np.where([0, 1, 0, 0], ml_dtypes.bfloat16(1), values))], memory)


def test_a_slice_that_another_group_loaded_is_stale() -> None:
    """Two groups load one tensor, cut in 4 and in 8: steps of equal names are different rows."""
    net = Network(np.random.default_rng(3))
    t4 = net.conv(net.input((1, 4, 16, 8)), 4)
    net.conv(t4, 4)
    net.conv(t4, 4)
    model = reordered(net.top(), "bm1690").clone()
    ((ops, _),) = base_groups(model, chips.load("bm1690"))
    cuts = {2: Sections(), 3: Sections(h=4), 4: Sections(), 5: Sections(h=8), 6: Sections()}  # each Conv its Cast
    plans = [
        plan(ops[first:last], chips.load("bm1690"), cuts[last]) for first, last in zip((0, *cuts), cuts, strict=False)
    ]
    for found in reversed(plans):
        assert isinstance(found, GroupSchedule)
        write_group(found)
    model.set(state="TPU_DIVIDED")
    program = to_program(model, share=8)
    assert Simulator(program)
    again = [i for i, c in enumerate(program.commands) if c.core == 1 and c.op == "load_t1"]
    without = renumbered(program, [i for i in range(len(program.commands)) if i != again[-1]])
    with pytest.raises(SimulationError, match=r"as 'load_.*@g3n0h1', but .* for 'load_.*@g1n0h1'"):
        Simulator(without)


def test_a_wrong_address_in_the_digits_network(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Every operand of the real program that is shifted to where another tensor lies is named with both owners."""
    program = load(digits_run(tmp_path_factory, "bm1684x", "int8") / "7_model.tpusim")
    assert all(len(c.sources) == len(c.reads()) for c in program.commands)
    index, command = next((i, c) for i, c in enumerate(program.commands) if isinstance(c, Arith))
    assert isinstance(command.b, type(command.a))
    swapped = structs.replace(command, a=command.b, sources=(Source("half", 0, "n0h0"), *command.sources[1:]))
    broken = structs.replace(program, commands=(*program.commands[:index], swapped, *program.commands[index + 1 :]))
    with pytest.raises(SimulationError, match=f"as 'half@g0n0h0', but .* for '{command.sources[1]}'"):
        Simulator(broken)
