"""`simulate --check`: the first wrong element of the first wrong command, with its place; and `dis` and `asm`."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiling import to_program, to_reordered
from end_to_end import digits_run, tensors
from msgspec import structs
from networks import cached_lowered, cached_network, randomly_grouped
from rotation import one_in

from tpusim.cli import main
from tpusim.errors import ConfigError, SimulationError
from tpusim.inference import run
from tpusim.isa.blocks import offsets
from tpusim.isa.commands import Conv, Move
from tpusim.isa.layout import extent
from tpusim.isa.region import View
from tpusim.isa.stream import Program, load, save
from tpusim.simulator import Checker, Simulator, SimulatorOptions


def network(seed: int, chip: str) -> tuple[Program, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(program in random groups, flat tensors, network inputs)."""
    model, flat = cached_lowered(seed, chip)
    grouped, _ = randomly_grouped(model, np.random.default_rng(seed + 7))
    return to_program(grouped), flat, cached_network(seed).feeds()


def replaced(program: Program, index: int, **fields: Any) -> Program:
    commands = list(program.commands)
    commands[index] = structs.replace(commands[index], **fields)
    return structs.replace(program, commands=tuple(commands))


NETWORKS = tuple(product((0, 1, 2, 3), ("bm1684x", "bm1684")))


def checked(program: Program, reference: dict[str, np.ndarray], feeds: Any, **options: Any) -> Checker:
    machine = Simulator(program)
    checker = Checker(program, machine.chip, reference, **options)
    machine.run(feeds, after=checker.after)
    return checker


@pytest.mark.parametrize(("seed", "chip"), one_in(6, NETWORKS))
def test_a_right_program_has_no_mismatch(seed: int, chip: str) -> None:
    program, flat, feeds = network(seed, chip)
    checker = checked(program, flat, feeds, collect=True)
    assert checker.mismatches == [] and checker.unknown == ()
    assert checker.checked >= len(program.locations) + sum(bool(c.tensor) for c in program.commands)


@pytest.mark.parametrize(("seed", "chip"), one_in(6, NETWORKS))
def test_a_changed_reference_is_found_where_it_was_changed(seed: int, chip: str) -> None:
    """One element of the reference is off by one: the message has its index, and the address holds its value."""
    program, flat, feeds = network(seed, chip)
    rng = np.random.default_rng(seed)
    integer = [n for n in dict.fromkeys(loc.tensor for loc in program.locations) if flat[n].dtype.itemsize == 1]
    for name in integer:
        wrong = flat[name].copy()
        place = tuple(int(rng.integers(size)) for size in wrong.shape)
        wrong[place] ^= 1
        found = checked(program, {**flat, name: wrong}, feeds, collect=True).mismatches
        assert {m.tensor for m in found} == {name}
        assert all(m.wrong == 1 and tuple(i for _, i in m.where) == place for m in found)
        assert all((m.expected, m.found) == (wrong[place], flat[name][place]) for m in found)
        local = next(m for m in found if m.memory == "lmem")
        memory = Simulator(program)

        def look(index: int, machine: Any, local: Any = local) -> None:
            if index == local.index:
                byte = machine.lmem[local.lane * machine.lane_bytes + local.address]
                assert byte == np.uint8(local.found & 0xFF)

        memory.run(feeds, after=look)


def first_conv(program: Program) -> int:
    """The first that computes its whole tensor: where slices overlap, others store what it would store wrong."""
    steps = Counter(c.op for c in program.commands if isinstance(c, Conv))
    return next(i for i, c in enumerate(program.commands) if isinstance(c, Conv) and steps[c.op] == 1)


def test_a_wrong_command_is_named_first() -> None:
    program, flat, feeds = network(3, "bm1684x")
    index = first_conv(program)
    command = program.commands[index]
    assert isinstance(command, Conv)
    broken = replaced(program, index, relu=not command.relu)
    with pytest.raises(SimulationError) as caught:
        checked(broken, flat, feeds)
    assert str(caught.value).startswith(f"{command.label}: tensor '{command.op}' is wrong, ")
    assert "the first is n=0, c=" in str(caught.value) and "lane " in str(caught.value)
    several = checked(broken, flat, feeds, collect=True).mismatches
    assert several[0].index == index and str(several[0]) == str(caught.value)


def test_a_store_to_the_wrong_place_is_named() -> None:
    program, flat, feeds = network(0, "bm1684x")
    index = max(i for i, c in enumerate(program.commands) if isinstance(c, Move) and c.tensor)
    command = program.commands[index]
    assert isinstance(command, Move)
    shifted = structs.replace(command.output, address=command.output.address + 64)
    region_stop = program.header.neuron_address + program.header.neuron_bytes
    assert extent(shifted, Simulator(program).chip).stop <= region_stop
    broken = replaced(program, index, output=shifted)
    machine = Simulator(broken, options=SimulatorOptions(sanitize=False))
    checker = Checker(broken, machine.chip, flat)
    with pytest.raises(SimulationError, match=rf"tensor '{command.tensor}' is wrong.* at global byte 0x"):
        machine.run(feeds, after=checker.after)


def test_references_that_do_not_fit() -> None:
    program, flat, feeds = network(0, "bm1684x")
    name = program.outputs[0].name
    with pytest.raises(ConfigError, match="none of the program's tensors is in it"):
        checked(program, {"nobody": np.zeros(3)}, feeds)
    with pytest.raises(ConfigError, match=rf"reference '{name}': .* elements of float32 are required"):
        checked(program, {name: flat[name].astype(np.float64)}, feeds)
    assert checked(program, {name: flat[name]}, feeds).unknown


def test_offsets_are_where_memory_reads() -> None:
    program, _, feeds = network(3, "bm1684")
    machine = Simulator(program)
    views = [view for c in program.commands for view in (*c.reads(), *c.writes()) if view.memory == "lmem"]

    def compare(index: int, memory: Any) -> None:
        if index == machine.order[-1]:
            for view in views:
                lane, byte = np.divmod(offsets(view, machine.chip), machine.chip.lmem_bytes)
                first = memory.lmem.reshape(machine.chip.lanes, -1)[lane, byte]
                read = memory.read(view).view(np.uint8).reshape(*view.shape, -1)[..., 0]
                np.testing.assert_array_equal(first, read)

    machine.run(feeds, after=compare)


# --------------------------------------------------------------------------------------------------------------- tables


def with_tensor(program: Program, **fields: Any) -> Program:
    return structs.replace(program, tensors=(structs.replace(program.tensors[0], **fields), *program.tensors[1:]))


def with_slice(program: Program, **fields: Any) -> Program:
    first, *rest = program.locations
    return structs.replace(program, locations=(structs.replace(first, **fields), *rest))


def test_tables_that_contradict_themselves_are_refused() -> None:
    program, _, _ = network(0, "bm1684x")
    view, slice_view = program.tensors[0].view, program.locations[0].view
    region = program.header.neuron_address + program.header.neuron_bytes
    twice = structs.replace(program, tensors=(*program.tensors, program.tensors[0]))
    for broken, words in (
        (with_tensor(program, shape=(1, 2)), "shape .1, 2. has 2 elements, its view"),
        (with_tensor(program, view=structs.replace(view, address=region)), "no region of global memory holds address"),
        (twice, "one entry in the tensor table is required, got two"),
        (with_slice(program, command=len(program.commands)), "there are"),
        (with_slice(program, start=(9, 0, 0, 0, 0)), "is no part of"),
        (with_slice(program, depth=3), "with depth 3 from"),
        (with_slice(program, shape=(7,)), "is no part of"),
        (with_slice(program, view=structs.replace(slice_view, shape=(1, 3, 0, 4))), "is no part of"),
        (with_slice(program, view=structs.replace(slice_view, address=1 << 20)), "has 262,144 bytes"),
    ):
        with pytest.raises(SimulationError, match=words):
            Simulator(broken)


def test_sizes_beyond_memory_are_refused() -> None:
    """Strides of 0 make a view of any size out of a few bytes; pads make an input of any size."""
    program, _, _ = network(0, "bm1684x")
    index = next(i for i, c in enumerate(program.commands) if isinstance(c, Move) and c.input.memory == "gmem")
    command = program.commands[index]
    assert isinstance(command, Move)
    huge = View("gmem", command.input.address, (1 << 30, 1 << 30), "i8", "strided", strides=(0, 0))
    with pytest.raises(SimulationError, match=r"an operand of at most .* elements is required, .* got 1,152,921"):
        Simulator(replaced(program, index, input=huge), options=SimulatorOptions(sanitize=False))
    index = first_conv(program)
    with pytest.raises(SimulationError, match=r"a padded input of at most 2,147,483,648 elements is required"):
        Simulator(replaced(program, index, pads=(1 << 40,) * 4), options=SimulatorOptions(sanitize=False))


# ------------------------------------------------------------------------------------------------------- command line


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return digits_run(tmp_path_factory, "bm1684x", "int8")


def simulate(folder: Path, out: Path, program: Path | None = None, *more: str | Path) -> int:
    words = ("simulate", program or folder / "7_model.tpusim", "--input", folder / "inputs.npz", "--out", out / "l.npz")
    return main([str(w) for w in (*words, "--trace", out / "t.json", *more)])


def test_simulate_check(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reference = folder / "tpu_outputs.npz"
    assert simulate(folder, tmp_path, None, "--check", reference) == 0
    assert ": 0 wrong" in capsys.readouterr().out
    values = dict(tensors(reference))
    name = next(n for n, v in values.items() if v.dtype == np.int8 and v.ndim == 4)
    values[name] = values[name] ^ 1
    np.savez(tmp_path / "wrong.npz", **values)
    assert simulate(folder, tmp_path, None, "--check", tmp_path / "wrong.npz") == 1
    assert f"tensor '{name}' is wrong" in capsys.readouterr().err
    assert simulate(folder, tmp_path, None, "--check", tmp_path / "wrong.npz", "--collect") == 1
    assert f"tensor '{name}' is wrong" in capsys.readouterr().out
    assert simulate(folder, tmp_path, None, "--collect") == 1
    assert "--check REF.npz is required" in capsys.readouterr().err
    assert simulate(folder, tmp_path, None, "--chip", "bm1684") == 1
    assert "is for chip bm1684x, not for the requested bm1684" in capsys.readouterr().err


def test_dis_and_asm(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, text, again = folder / "7_model.tpusim", tmp_path / "model.txt", tmp_path / "model.tpusim"
    assert main(["dis", str(program), "--out", str(text)]) == 0
    assert main(["asm", str(text), "--coefficients", str(program)]) == 0
    assert again.read_bytes() == program.read_bytes()
    capsys.readouterr()
    assert main(["dis", str(program)]) == 0
    assert capsys.readouterr().out == text.read_text()
    op = next(c.op for c in load(program).commands if isinstance(c, Conv))
    assert main(["dis", str(program), "--op", op, "--engine", "tiu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 1 and all(f" op={op} " in line and line.startswith("tiu ") for line in lines[1:])
    text.write_text("\n".join(lines))
    assert main(["asm", str(text), "--coefficients", str(program)]) == 1
    assert "one header line is required" in capsys.readouterr().err


def test_asm_refuses_an_illegal_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, text = folder / "7_model.tpusim", tmp_path / "model.txt"
    assert main(["dis", str(program), "--out", str(text)]) == 0
    text.write_text(text.read_text().replace(" pads=[1,1,1,1]", " pads=[16,1,1,1]", 1))
    assert main(["asm", str(text), "--coefficients", str(program)]) == 1
    assert "window_ranges requires pads within 0-15" in capsys.readouterr().err
    assert not (tmp_path / "model.tpusim").exists()
    assert main(["asm", str(tmp_path / "none.txt"), "--coefficients", str(program)]) == 1


def test_a_saved_program_runs(folder: Path, tmp_path: Path) -> None:
    save(load(folder / "7_model.tpusim"), tmp_path / "copy.tpusim")
    assert simulate(folder, tmp_path, tmp_path / "copy.tpusim", "--check", folder / "tpu_outputs.npz") == 0


@pytest.mark.slow
def test_f16_is_held_to_units_of_f16() -> None:
    """A right program passes, f32 results of f16 sums included; a result 8 units off in one element does not."""
    network = cached_network(1)
    model = to_reordered(network.top(), "bm1684x", "f16")
    program, feeds = to_program(randomly_grouped(model, np.random.default_rng(1))[0]), network.feeds()
    flat = {name: np.asarray(array) for name, array in run(model, feeds).items()}
    assert checked(program, flat, feeds).mismatches == []
    name = next(loc.tensor for loc in program.locations if loc.view.dtype == "f16")
    wrong = flat[name].copy()
    wrong.reshape(-1)[0] += np.float16(8 * np.spacing(np.abs(wrong).max()))
    with pytest.raises(SimulationError, match=f"tensor '{name}' is wrong, 1 of"):
        checked(program, {**flat, name: wrong}, feeds)
