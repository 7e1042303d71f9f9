"""Global memory: placement of constants and neurons, and the commands' accesses to it (hardware.md 3)."""

from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from compiling import to_addressed, to_groups, to_program
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import CHIPS, Network, cached_lowered, randomly_grouped, reordered
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Operation, SSAValue

from tpusim import chips
from tpusim.codegen import generate
from tpusim.errors import ImportModelError
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model, load_model, save_model
from tpusim.ir.text import parse_module, print_module
from tpusim.ir.types import address_of, f32, shape_of, tensor
from tpusim.isa.commands import Command
from tpusim.isa.layout import align, extent
from tpusim.isa.stream import Program
from tpusim.memory import assign_addresses
from tpusim.memory.assign import Neuron, live_ranges, place
from tpusim.ops import context
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.structure import TopInput, TopWeight, TpuGroup, TpuLoad, TpuStore

ON_CHIPS = pytest.mark.parametrize("chip", CHIPS)
PAGE = 4096
KEYS = ((0, 6, 1), (1, 4, 4), (2, 6, 1))


def value() -> SSAValue:
    return TopInput.create(result_types=[tensor((1, 4), f32)]).output


# ---------------------------------------------------------------------------------------------------------- placement


def neurons(lives: list[tuple[int, int, int]]) -> list[Neuron]:
    """(pages, start, length of life) of each."""
    return [Neuron(value(), pages * PAGE, start, start + life) for pages, start, life in lives]


LIVES = st.lists(st.tuples(st.integers(1, 20), st.integers(0, 12), st.integers(0, 6)), max_size=14)


def most_alive(found: list[Neuron]) -> int:
    """The bytes that live at once at the fullest position; no placement can do with less."""
    return max((sum(n.size for n in found if n.start <= t <= n.end) for t in range(40)), default=0)


@given(LIVES)
@settings(max_examples=300, deadline=None)
def test_tensors_alive_together_share_no_byte(lives: list[tuple[int, int, int]]) -> None:
    found = neurons(lives)
    offsets, total = place(found)
    assert set(offsets) == {n.value for n in found}
    assert all(offset % PAGE == 0 and offset >= 0 for offset in offsets.values())
    assert total == max((offsets[n.value] + n.size for n in found), default=0)
    assert most_alive(found) <= total <= sum(n.size for n in found)
    for a, b in combinations(found, 2):
        if a.start <= b.end and b.start <= a.end:
            apart = offsets[a.value] + a.size <= offsets[b.value] or offsets[b.value] + b.size <= offsets[a.value]
            assert apart, (lives, offsets)


def test_a_chain_takes_two_tensors() -> None:
    found = neurons([(3, i, 1) for i in range(6)])
    assert place(found)[1] == 6 * PAGE


@pytest.mark.parametrize(
    ("lives", "total"),
    [
        # by start: 0..1, 1..4, then 5 pages at 4..9; by size: 5 first, the others side by side above: 9 pages
        ([(1, 0, 1), (3, 1, 2), (5, 2, 2)], 8),
        # the largest first wins: it lies at 0, small ones above; by start they would push it up
        ([(1, 0, 0), (2, 0, 2), (6, 1, 3), (1, 4, 0)], 8),
        ([], 0),
    ],
)
def test_the_smaller_of_two_placements_is_kept(lives: list[tuple[int, int, int]], total: int) -> None:
    found = neurons(lives)
    assert place(found)[1] == total * PAGE == most_alive(found)


def test_the_smallest_gap_that_fits_is_taken() -> None:
    """Blocks that die leave gaps of 4 and 2 pages; 2 pages go into the second, so that 4 still fit into the first."""
    found = neurons([(4, 0, 3), (1, 1, 8), (2, 2, 1), (1, 3, 6), (2, 4, 5), (4, 5, 4)])
    offsets, total = place(found)
    assert total == 8 * PAGE
    assert [offsets[n.value] // PAGE for n in found] == [0, 4, 5, 7, 5, 0]


# ------------------------------------------------------------------------------------------------------------ modules


@cache
def addressed(key: tuple[int, int, int], chip: str, opt: str = "1") -> Model:
    model, _ = cached_lowered(key[0], chip, *key[1:])
    return to_addressed(model, opt)


def addressed_values(model: Model) -> Iterator[tuple[Operation, SSAValue]]:
    for op in model.ops:
        for result in op.results if isinstance(op, TopWeight | TopInput | TpuGroup | TpuOp) else ():
            yield op, result


@ON_CHIPS
@pytest.mark.parametrize("key", KEYS, ids=str)
def test_regions_and_alignment(key: tuple[int, int, int], chip: str) -> None:
    model = addressed(key, chip)
    assert model.state == "TPU_ADDRESSED"
    start = {"bm1684x": 0x100000000, "bm1684": 0x105100000}[chip]
    assert model.number("module.coeff_addr") == start
    assert model.number("module.neuron_addr") == align(start + model.number("module.coeff_size"), PAGE)
    end = start
    for op, result in addressed_values(model):
        address = address_of(result)
        assert address is not None and address % PAGE == 0
        if isinstance(op, TopWeight):
            assert address == align(end, PAGE)  # walk order, each at the next page
            end = address + model.weights[op_name(op)].nbytes
        else:
            inside = address - model.number("module.neuron_addr")
            assert 0 <= inside < model.number("module.neuron_size")
    assert align(end, PAGE) - start == model.number("module.coeff_size")


def test_published_start_of_the_neurons() -> None:
    """Hardware.md 3.1: coefficients that end at 159 pages put the neurons of a BM1684X at 4295618560."""
    net = Network(np.random.default_rng(0))
    x = net.input((1, 3, 12, 10))
    for _ in range(159):
        x = net.conv(x, 3, 3)  # one page of coefficients each
    lowered = reordered(net.top(), "bm1684x")
    model = to_addressed(lowered, "off")
    assert model.number("module.coeff_size") == 159 * PAGE == 651264
    assert model.number("module.neuron_addr") == 4295618560


@ON_CHIPS
def test_tensors_inside_groups_have_no_address(chip: str) -> None:
    for group in addressed(KEYS[0], chip).ops:
        if isinstance(group, TpuGroup):
            inside = [op for op in group.body.block.ops if isinstance(op, TpuOp | TpuLoad | TpuStore)]
            outside = {group.store_of(result).output: address_of(result) for result in group.results}
            assert inside and all(address_of(v) == outside.get(v) for op in inside for v in op.results)
            assert all(address_of(v) is not None for v in (*group.operands, *group.results))


@ON_CHIPS
def test_live_ranges_by_hand(chip: str) -> None:
    """Positions count inputs, groups, layers and the return; an operand lives to its last user, a result to the end."""
    net = Network(np.random.default_rng(2))
    x = net.input((1, 5, 12, 10))
    y = net.conv(x, 10)
    z = net.conv(y, 10)
    net.add(y, z)
    model = to_groups(reordered(net.top(), chip), "off")
    found, aliases = live_ranges(model, chips.load(chip))
    lives = [(n.start, n.end) for n in found]
    # input, cast, conv y, conv z, add, cast of the result, return
    assert lives == [(0, 1), (1, 2), (2, 4), (3, 4), (4, 5), (5, 6 + 1)] and not aliases
    assert all(n.size == PAGE * -(-int(np.prod(shape_of(n.value))) * size // PAGE) for n, size in zip(
        found, packed_sizes(chip), strict=True))  # fmt: skip


def packed_sizes(chip: str) -> list[int]:
    """Bytes per element: f32, or bytes, which take a whole 4N word for a batch of one on BM1684."""
    byte = 4 if chip == "bm1684" else 1
    return [4, byte, byte, byte, byte, 4]


# ------------------------------------------------------------------------------------------------------------ in place

RESHAPED = """builtin.module attributes {{module.name = "net", module.state = "TPU_DIVIDED", module.chip = "{chip}",
    module.mode = "f32", module.asymmetric = 0 : i64}} {{
  func.func @main(%arg0: tensor<2x6xf32> loc("x")) -> tensor<2x2x3xf32> {{
    %0 = "top.Input"(%arg0) : (tensor<2x6xf32>) -> tensor<2x6xf32> loc("x")
    %1 = "tpu.Relu"(%0) : (tensor<2x6xf32>) -> tensor<2x6xf32> loc("r")
    %2 = "tpu.Reshape"(%1) {{shape = [2 : i64, 3 : i64, 2 : i64]}} : (tensor<2x6xf32>) -> tensor<2x3x2xf32> loc("a")
    %3 = "tpu.Relu"(%0) : (tensor<2x6xf32>) -> tensor<2x6xf32> loc("other")
    %4 = "tpu.Reshape"(%2) {{shape = [2 : i64, 2 : i64, 3 : i64]}} : (tensor<2x3x2xf32>) -> tensor<2x2x3xf32> loc("b")
    func.return %4 : tensor<2x2x3xf32>
  }}
}}
"""


@ON_CHIPS
def test_in_place_results_are_their_operands_bytes(chip: str) -> None:
    model = Model(parse_module(RESHAPED.format(chip=chip), context()), cached_lowered(0, chip)[0].weights)
    found = {op_name(op): address_of(op.results[0]) for op in to_addressed(model).ops if op.results}
    assert found["r"] == found["a"] == found["b"]
    assert found["other"] not in (found["r"], found["x"])  # r lives on under the name of b
    ranges, aliases = live_ranges(model, chips.load(chip))
    assert len(ranges) == 3 and len(aliases) == 2 and max(n.end for n in ranges) == 6


# ---------------------------------------------------------------------------------------------- what the commands do


def pages(command: Command, program: Program, *, write: bool) -> Iterator[tuple[int, int]]:
    """Byte ranges in global memory."""
    chip = chips.load(program.header.chip)
    for view in command.writes() if write else command.reads():
        if view.memory == "gmem":
            reach = extent(view, chip)
            yield reach.start, reach.stop


def tensor_at(program: Program, start: int, names: set[str]) -> list[str]:
    chip = chips.load(program.header.chip)
    found: list[str] = []
    for entry in program.tensors:
        reach = extent(entry.view, chip)
        if entry.name in names and reach.start <= start < reach.stop:
            found.append(entry.name)
    return found


@ON_CHIPS
@pytest.mark.parametrize("opt", ["1", "off", "random"])
@pytest.mark.parametrize("key", KEYS, ids=str)
def test_every_read_sees_the_tensor_that_was_written_last(key: tuple[int, int, int], chip: str, opt: str) -> None:
    """Follow the bytes: whoever loads tensor t reads pages that were last stored as t and are still whole."""
    lowered, _ = cached_lowered(key[0], chip, *key[1:])
    if opt == "random":
        divided, _ = randomly_grouped(lowered, np.random.default_rng(7))
        model = to_addressed(divided)
    else:
        model = addressed(key, chip, opt)
    program = to_program(model)
    wanted = tensors_read(model)
    owner: dict[int, str] = {}  # page -> tensor whose bytes are in it
    for entry in program.inputs:
        mark(owner, entry.name, *span(program, entry.name))
    reads: dict[str, int] = defaultdict(int)
    for command in program.commands:
        for start, stop in pages(command, program, write=False):
            if start < program.header.neuron_address:
                continue
            (name,) = [n for n in tensor_at(program, start, wanted) if owner.get(start // PAGE) == n]
            assert all(owner.get(p) == name for p in range(start // PAGE, (stop - 1) // PAGE + 1))
            reads[name] += 1
        for start, stop in pages(command, program, write=True):
            assert start >= program.header.neuron_address
            mark(owner, command.tensor, start, stop)
    assert set(reads) == wanted


def span(program: Program, name: str) -> tuple[int, int]:
    reach = extent(program.tensor(name).view, chips.load(program.header.chip))
    return reach.start, reach.stop


def mark(owner: dict[int, str], name: str, start: int, stop: int) -> None:
    assert name
    owner.update(dict.fromkeys(range(start // PAGE, (stop - 1) // PAGE + 1), name))


def tensors_read(model: Model) -> set[str]:
    """Names of the activations that groups and layers read from global memory."""
    names: set[str] = set()
    for op in model.ops:
        for value_ in op.operands if isinstance(op, TpuGroup | TpuOp) else ():
            if not isinstance(value_.owner, TopWeight) and isinstance(value_.owner, Operation):
                names.add(stored_name(value_))
    return names


def stored_name(value_: SSAValue) -> str:
    owner = value_.owner
    assert isinstance(owner, Operation)
    if isinstance(owner, TpuGroup):
        last = owner.body.block.last_op
        assert last is not None
        store = last.operands[list(owner.results).index(value_)].owner  # type: ignore[arg-type]
        assert isinstance(store, TpuStore) and isinstance(store.input.owner, Operation)
        return op_name(store.input.owner)
    return op_name(owner)


# ---------------------------------------------------------------------------------------------------------- text form


def same_program(a: Program, b: Program) -> bool:
    return (
        a.commands == b.commands and a.tensors == b.tensors and a.groups == b.groups and a.locations == b.locations
        and a.header == b.header and np.array_equal(a.coefficients, b.coefficients)
    )  # fmt: skip


@ON_CHIPS
@pytest.mark.parametrize("key", KEYS, ids=str)
def test_the_program_follows_from_the_files(key: tuple[int, int, int], chip: str, tmp_path: Path) -> None:
    model = addressed(key, chip)
    save_model(model, tmp_path / "6_final.mlir")
    again = load_model(tmp_path / "6_final.mlir", context())
    assert print_module(again.module) == print_module(model.module)
    assert [address_of(r) for _, r in addressed_values(again)] == [address_of(r) for _, r in addressed_values(model)]
    assert same_program(to_program(again), to_program(model))


def test_addresses_are_read_from_the_text() -> None:
    """Codegen believes the module: a tensor moved by hand moves in the commands."""
    model = addressed(KEYS[0], "bm1684x")
    program = to_program(model)
    entry = next(t for t in program.tensors if t.role == "output")
    moved = entry.view.address + 64 * PAGE
    text = print_module(model.module).replace(f"{entry.view.address} : i64", f"{moved} : i64")
    edited = to_program(Model(parse_module(text, context()), model.weights))
    assert edited.tensor(entry.name).view.address == moved
    assert any(v.address == moved for c in edited.commands for v in c.writes())


def test_commands_need_addresses() -> None:
    divided = to_groups(cached_lowered(0, "bm1684x")[0])
    with pytest.raises(ImportModelError, match="TPU_ADDRESSED"):
        generate(divided)
    divided.set(state="TPU_ADDRESSED")
    with pytest.raises(ImportModelError, match="an address is required"):
        generate(divided)


def test_addresses_need_layer_groups() -> None:
    model, _ = cached_lowered(0, "bm1684x")
    with pytest.raises(ImportModelError, match="TPU_DIVIDED"):
        assign_addresses(model)
    assert any(isinstance(op, ReturnOp) for op in model.ops)
