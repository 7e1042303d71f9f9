"""Commands: ids and dependencies, coefficients on the chip, one stream as text (codegen.md 2, hardware.md 2.3).

`pytest tests/test_codegen.py --update-golden` writes tests/golden anew.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from compiling import to_addressed, to_program, to_reordered
from networks import CHIPS, IMAGE, Network, cached_lowered, cached_network, randomly_grouped, reordered
from xdsl.ir import Operation

from tpusim import chips
from tpusim.chips import ChipSpec
from tpusim.codegen.emitter import Emitter
from tpusim.errors import CommandError, ImportModelError
from tpusim.inference import run
from tpusim.ir.attrs import LayerGroupAttr, LayerGroupInfo, ints, ints_attr, op_name
from tpusim.ir.module import Model
from tpusim.isa.check import ID_LIMIT
from tpusim.isa.commands import TILE, Arith, Command, Conv, Depthwise, Move, Source
from tpusim.isa.layout import align, ceil_div
from tpusim.isa.listing import assemble, listing
from tpusim.isa.region import View
from tpusim.isa.stream import FORMAT_VERSION, Program, load
from tpusim.layer_group.candidates import base_groups
from tpusim.layer_group.files import write_group
from tpusim.layer_group.planning import plan
from tpusim.ops.conv.coeff import MergedLayout, filter_row, foldable_shape, pack_filter, unpack_filter
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.structure import TopWeight, TpuGroup, TpuLoad, TpuStore, group_info
from tpusim.schedule import GroupSchedule, Sections
from tpusim.simulator import Simulator

ON_CHIPS = pytest.mark.parametrize("chip", CHIPS)
GOLDEN = Path(__file__).parent / "golden"
X = chips.load("bm1684x")
WORDS_OF_TWO = msgspec.structs.replace(X, requant_words=2)
"""A chip with packed requant parameters (every merged chip but BM1684X)."""


def grouped(model: Model, sections: Sections) -> Model:
    """All local ops in groups of the given sections, as large as they can be; other ops alone."""
    work = model.clone()
    spec = chips.load(work.attribute("module.chip"))
    plans: list[GroupSchedule] = []
    for ops, why in list(base_groups(work, spec)):
        while ops and why is None:
            tries = (plan(ops[:size], spec, sections) for size in range(len(ops), 0, -1))
            found = next(p for p in tries if isinstance(p, GroupSchedule))
            plans.append(found)
            ops = ops[len(found.graph.ops) :]
    for found in reversed(plans):
        write_group(found)
    work.set(state="TPU_DIVIDED")
    return work


def two_convs(channels: int = 3) -> Network:
    net = Network(np.random.default_rng(42))
    x = net.input((1, channels, 8, 6))
    net.conv(net.relu(net.conv(x, 5, 3)), 4, 3, 2)
    return net


# ---------------------------------------------------------------------------------------------- ids and dependencies


@ON_CHIPS
@pytest.mark.parametrize("key", [(0, 6, 1), (1, 4, 4)], ids=str)
def test_ids_count_per_engine_from_one(key: tuple[int, int, int], chip: str) -> None:
    divided, _ = randomly_grouped(cached_lowered(key[0], chip, *key[1:])[0], np.random.default_rng(1))
    program = to_program(divided)
    for engine in ("tiu", "gdma"):
        ids = [c.id for c in program.commands if c.engine == engine]
        assert ids == list(range(1, len(ids) + 1)) and ids
    last = {"tiu": 0, "gdma": 0}
    for command in program.commands:  # a dependency is never on a command that comes later
        assert 0 <= command.dep <= last["gdma" if command.engine == "tiu" else "tiu"]
        last[command.engine] = command.id


Item = tuple[int, int, str, str, bool]
"""(iteration, row, op name, step, whether the GDMA does it)."""


def expected_items(group: TpuGroup) -> Iterator[Item]:
    """What layer_group.md 15 executes, in order: written from the text of the specification."""
    by_id: dict[int, tuple[Operation, LayerGroupInfo]] = {}
    for op in group.body.block.ops:
        info = group_info(op)  # type: ignore[arg-type]
        if info is not None:
            by_id[info.id] = (op, info)
    assert group.flow is not None
    flow, secs = ints(group.flow), group.sections()
    ring: list[dict[str, int]] = []
    now = dict.fromkeys("nchdw", 0)
    i = q = 0
    while q < 3:
        ring = [dict(now), *ring][:3]
        for row, op, info in _row_items(flow, by_id):
            s = info.stage
            if s > i or s < q:  # q is 0 until the loop drains
                continue
            step = ring[s]
            over = any(step[axis] >= len(getattr(info, f"{axis}_idx")) for axis in "nchdw")
            if not over or i == s:
                extra = "".join(f"{axis}{step[axis]}" for axis in "cdw" if step[axis])
                yield i, row, op_name(op), f"n{step['n']}h{step['h']}{extra}", isinstance(op, TpuLoad | TpuStore)
        if now["n"] < secs["n"]:
            for axis in "cwhdn":  # the first is the fastest
                now[axis] += 1
                if axis == "n" or now[axis] < secs[axis]:
                    break
                now[axis] = 0
        i += 1
        q += now["n"] == secs["n"]


def _row_items(
    flow: tuple[int, ...], by_id: dict[int, tuple[Operation, LayerGroupInfo]]
) -> Iterator[tuple[int, Operation, LayerGroupInfo]]:
    row = -1
    for code in flow:
        if code < 0:
            row = -code - 1
        else:
            yield row, *by_id[code]


def rows_of(program: Program, divided: Model) -> Iterator[list[Command]]:
    """The commands of every row of every group, matched with what the loop is expected to execute."""
    commands = list(program.commands)
    for op in divided.ops:
        if not isinstance(op, TpuGroup):
            continue
        now: tuple[int, int] | None = None
        row: list[Command] = []
        for iteration, index, name, step, moves in expected_items(op):
            if (iteration, index) != now and row:
                yield row
                row = []
            now = iteration, index
            taken = 0
            while commands and (commands[0].op, commands[0].step) == (name, step) and not (moves and taken):
                row.append(commands.pop(0))
                taken += 1
            assert taken and all((c.engine == "gdma") == moves for c in row[-taken:]), (name, step)
        if row:
            yield row
    assert not commands


@ON_CHIPS
@pytest.mark.parametrize(("key", "trial"), [((0, 6, 1), 0), ((4, 6, 1), 0), ((2, 6, 1), 1)], ids=str)
def test_commands_and_dependencies_of_rows(key: tuple[int, int, int], trial: int, chip: str) -> None:
    """The order is that of section 15; a row's commands depend on the state at its start (DC-08)."""
    divided, plans = randomly_grouped(cached_lowered(key[0], chip, *key[1:])[0], np.random.default_rng(trial))
    assert any(p.sections.steps > 1 for p in plans)
    last = {"tiu": 0, "gdma": 0}
    both = 0
    for row in rows_of(to_program(divided), divided):
        start = dict(last)
        for command in row:
            other = "gdma" if command.engine == "tiu" else "tiu"
            assert command.dep == start[other]
            last[command.engine] = command.id
        both += len({c.engine for c in row}) == 2
    assert both  # some rows keep both engines busy


def test_serial_order_outside_rows() -> None:
    emitter = Emitter(X)
    lmem = View("lmem", 0, (1, 4, 2, 2), "f32", "aligned")
    gmem = View("gmem", X.gmem_base, (1, 4, 2, 2), "f32", "dense")
    emitter.move(gmem, lmem, op="load")
    emitter.begin_row()
    emitter.move(gmem, lmem, op="a")
    emitter.add(Arith, a=lmem, output=lmem, kind="copy", op="b")
    emitter.end_rows()
    emitter.add(Arith, a=lmem, output=lmem, kind="copy", op="c")
    emitter.move(lmem, gmem, op="store")
    assert [(c.op, c.id, c.dep) for c in emitter.commands] == [
        ("load", 1, 0), ("a", 2, 0), ("b", 1, 1), ("c", 2, 2), ("store", 3, 2),
    ]  # fmt: skip


def test_ids_have_twenty_bits() -> None:
    emitter = Emitter(X)
    emitter._last["gdma"] = ID_LIMIT - 2  # a million commands take too long to emit
    lmem = View("lmem", 0, (1, 4, 2, 2), "f32", "aligned")
    gmem = View("gmem", X.gmem_base, (1, 4, 2, 2), "f32", "dense")
    emitter.move(gmem, lmem, op="last")
    assert emitter.commands[0].id == ID_LIMIT - 1 == (1 << 20) - 1
    with pytest.raises(CommandError, match="1,048,575 commands; ids are 20 bits"):
        emitter.move(gmem, lmem, op="one too many")


def test_illegal_commands_are_refused_when_they_are_made() -> None:
    lmem = View("lmem", 4, (1, 4, 2, 2), "f32", "aligned")
    with pytest.raises(CommandError, match="x1"):
        Emitter(X).add(Arith, a=lmem, output=lmem, kind="copy", op="x1")


# -------------------------------------------------------------------------------------------------- loads and stores


@ON_CHIPS
def test_how_often_what_is_loaded_and_stored(chip: str) -> None:
    """Constants once per group, inputs and outputs once per step, nothing else crosses global memory."""
    net = cached_network(0)
    model = reordered(net.top(), chip)
    for sections in (Sections(h=1), Sections(h=2), Sections(h=3)):
        divided = grouped(model, sections)
        program = to_program(divided)
        moves = Counter(c.op for c in program.commands if isinstance(c, Move))
        wanted: Counter[str] = Counter()
        for group in divided.ops:
            for op in group.body.block.ops if isinstance(group, TpuGroup) else ():
                steps = group.sections()["h"]  # type: ignore[union-attr]
                if isinstance(op, TpuLoad):
                    wanted[op_name(op)] += 1 if isinstance(op.input.owner, TopWeight) else steps
                elif isinstance(op, TpuStore):
                    wanted[op_name(op)] += steps
        assert moves == wanted
        assert {g.secs["h"] for g in program.groups} == {sections.h}


def test_a_group_loads_each_tensor_once_for_all_its_users() -> None:
    net = Network(np.random.default_rng(3))
    x = net.input((1, 10, *IMAGE))
    y = net.conv(x, 10, 3)
    net.add(net.add(net.conv(y, 10, 3), y), y)
    program = to_program(grouped(reordered(net.top(), "bm1684x"), Sections(h=2)))
    loads = [c.op for c in program.commands if isinstance(c, Move) and c.direction == "s2l" and not c.op.endswith("d")]
    assert loads.count("load_t0") == 2 and len(program.groups) == 1


# ------------------------------------------------------------------------------------------------------ global layers


@ON_CHIPS
def test_a_global_layer_says_why(chip: str) -> None:
    net = Network(np.random.default_rng(4))
    x = net.input((1, 10, *IMAGE))
    y = net.conv(x, 10, 3)
    net._node("Softmax", [y], [], net._new(y.shape, 1.0, False), axis=1)
    lowered = _lowered_with_fallbacks(net, chip)
    program = to_program(lowered)
    found = [g for g in program.groups if g.reason]
    assert found and all(len(g.ops) == 1 and g.lmem_peak_bytes > 0 for g in found)
    assert any("softmax" in g.reason.lower() for g in found)
    tiles = [c for c in program.commands if c.step.startswith(TILE)]
    computed = {(c.group, c.op) for c in tiles if c.engine == "tiu"}
    assert {c.group for c in tiles} == {g.id for g in found} and computed == {(g.id, *g.ops) for g in found}
    assert [c.tensor for c in tiles if isinstance(c, Move) and c.direction == "l2s"] == [g.ops[0] for g in found]
    assert [g.id for g in program.groups] == list(range(len(program.groups)))
    assert {c.group for c in program.commands} == {g.id for g in program.groups}


def _lowered_with_fallbacks(net: Network, chip: str) -> Model:
    return to_reordered(net.top(), chip)


# --------------------------------------------------------------------------------------------------- refused modules


def test_a_flow_must_name_items_of_the_group() -> None:
    model = to_addressed(grouped(reordered(two_convs().top(), "bm1684x"), Sections(h=2)))
    group = next(op for op in model.ops if isinstance(op, TpuGroup))
    good = group.flow
    assert good is not None
    for flow in ([-1, 99], [0, -1]):
        group.attributes["flow"] = ints_attr(flow)
        with pytest.raises(ImportModelError, match="flow names item"):
            to_program(model)
    del group.attributes["flow"]
    with pytest.raises(ImportModelError, match="attribute flow is required"):
        to_program(model)
    group.attributes["flow"] = good
    inside = next(op for op in group.body.block.ops if isinstance(op, TpuOp))
    del inside.attributes["ginfo"]
    with pytest.raises(ImportModelError, match=r"#tpu\.lg is required"):
        to_program(model)


def test_a_transfer_has_no_work_area() -> None:
    model = to_addressed(grouped(reordered(two_convs().top(), "bm1684x"), Sections(h=2)))
    load = next(op for op in model.body.walk() if isinstance(op, TpuLoad))
    info = group_info(load)
    assert info is not None
    load.attributes["ginfo"] = LayerGroupAttr(replace(info, buffer_size=64))
    with pytest.raises(ImportModelError, match="tpu.Load '.*': buffer_size 0 is required, .* got 64"):
        to_program(model)


def test_slices_that_do_not_fit_together_are_refused() -> None:
    """Hand-edited windows: a load that brings too few rows is an error that names tensor and step, not wrong bits."""
    model = to_addressed(grouped(reordered(two_convs().top(), "bm1684x"), Sections(h=2)))
    load = next(
        op
        for group in model.ops
        if isinstance(group, TpuGroup)
        for op in group.body.block.ops
        if isinstance(op, TpuLoad) and not isinstance(op.input.owner, TopWeight)
    )
    info = group_info(load)
    assert info is not None
    load.attributes["ginfo"] = LayerGroupAttr(replace(info, h_slice=(info.h_slice[0] - 1, info.h_slice[1])))
    with pytest.raises(ImportModelError, match=r"at n0h0: the slice of .* does not contain what is needed"):
        to_program(model)


# -------------------------------------------------------------------------------------------------------- coefficients


def random_filter(oc: int, ic: int, k: int, dtype: type = np.int8) -> np.ndarray:
    return np.random.default_rng(oc + ic + k).integers(-128, 128, (oc, ic, k, k)).astype(dtype)


@pytest.mark.parametrize("packing", [1, 4, 32, 64])
@pytest.mark.parametrize(("oc", "ic", "k"), [(1, 1, 1), (5, 3, 3), (70, 64, 3), (130, 70, 1), (3, 130, 5)])
def test_packed_filters(oc: int, ic: int, k: int, packing: int) -> None:
    """Element (ic, k) at (ic div P)*(kh*kw*P) + k*P + ic mod P, unused ic zero (hardware.md 2.3)."""
    w = random_filter(oc, ic, k)
    rows = pack_filter(w, packing)
    assert rows.shape == (oc, filter_row(ic, k * k, packing)) == (oc, ceil_div(ic, packing) * packing * k * k)
    for i in range(ic):
        for t in range(k * k):
            place = i // packing * (k * k * packing) + t * packing + i % packing
            assert (rows[:, place] == w[:, i, t // k, t % k]).all()
    assert np.abs(rows.astype(int)).sum() == np.abs(w.astype(int)).sum()  # the rest is zero
    assert np.array_equal(unpack_filter(rows, ic, (k, k), packing), w)


def test_filter_packing_of_the_chips() -> None:
    assert [chips.load(c).filter_packing(size, 3) for c in CHIPS for size in (1, 2, 4)] == [64, 32, 1, 4, 2, 1]


@pytest.mark.parametrize(
    ("oc", "depthwise", "bias", "expected"),
    [
        # (bias offset, filter offset, rows): requant (G-1)*64 + 12 bytes, 4 bytes of bias per group
        (5, False, True, (12, 64, 5)),
        (5, False, False, (12, 64, 5)),
        (64, False, True, (12, 64, 64)),
        (70, False, True, (76, 128, 64)),
        (130, False, True, (140, 192, 64)),
        (130, False, False, (140, 192, 64)),
        (70, True, True, (76, 84, 64)),  # depthwise: no alignment
        (70, True, False, (76, 128, 64)),  # without bias the filter starts at AL(requant bytes, EU_BYTES)
    ],
)
def test_offsets_of_merged_coefficients(oc: int, depthwise: bool, bias: bool, expected: tuple[int, int, int]) -> None:
    layout = MergedLayout.of(oc, 9, X, with_bias=bias, depthwise=depthwise)
    assert (layout.bias_offset, layout.filter_offset, layout.rows) == expected
    assert layout.row_bytes == layout.filter_offset + ceil_div(oc, 64) * 9


def test_offsets_of_merged_coefficients_with_packed_requant() -> None:
    layout = MergedLayout.of(130, 9, WORDS_OF_TWO, with_bias=True, depthwise=False)
    assert (layout.bias_offset, layout.filter_offset) == (3 * 8, align(3 * 8 + 3 * 4, 64))


@pytest.mark.parametrize("chip", [X, WORDS_OF_TWO], ids=["three words", "two words"])
@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("oc", [3, 64, 70, 130])
def test_merged_coefficients(oc: int, bias: bool, depthwise: bool, chip: ChipSpec) -> None:
    """Pack, read back byte by byte as hardware.md 2.3 says, and unpack."""
    rng = np.random.default_rng(oc)
    rows = rng.integers(-128, 128, (oc, 9 if depthwise else 128)).astype(np.int8)
    b = rng.integers(-(2**31), 2**31, oc).astype(np.int32) if bias else None
    m, r = rng.integers(1, 2**31 - 1, oc), rng.integers(-32, 31, oc)
    layout = MergedLayout.of(oc, rows.shape[1], chip, with_bias=bias, depthwise=depthwise)
    image = layout.pack(rows, b, m, r, -7)
    assert image.shape == (min(oc, 64), layout.row_bytes)
    raw = image.view(np.uint8)
    words = chip.requant_words
    for c in range(oc):
        lane, group = c % 64, c // 64
        requant = raw[lane, group * layout.requant_pitch_words * 4 :][: words * 4].copy().view("<i4").tolist()
        if words == 3:
            assert requant == [m[c], -r[c], -7]
        else:
            assert requant == [m[c], np.uint32((-r[c] & 0xFF) | (-7 & 0xFFFF) << 16).view(np.int32)]
        if b is not None:
            assert raw[lane, layout.bias_offset + 4 * group :][:4].copy().view("<i4")[0] == b[c]
        at = layout.filter_offset + group * rows.shape[1]
        assert np.array_equal(raw[lane, at : at + rows.shape[1]].view(np.int8), rows[c])
    again, bias_again, _ = layout.unpack(image, with_bias=bias)
    assert np.array_equal(again, rows)
    if b is None:
        assert bias_again is None
    else:
        assert bias_again is not None and np.array_equal(bias_again, b)


def test_long_rows_are_folded() -> None:
    """Hardware.md 2.3: a last dimension above 65535 is split by the largest divisor of the row that is <= P."""
    assert foldable_shape(64, 65535, 64) == (1, 64, 1, 65535)
    assert foldable_shape(64, 2**16, 64) == (1, 64, 64, 1024)
    assert foldable_shape(64, 65537 * 3, 64) == (1, 64, 3, 65537)


@ON_CHIPS
@pytest.mark.parametrize(
    ("ic", "oc", "k", "groups", "bias"),
    [(5, 5, 3, 1, True), (10, 130, 1, 1, False), (70, 70, 3, 70, True), (70, 70, 3, 70, False), (64, 70, 3, 2, True)],
)
def test_convolutions_read_their_coefficients(ic: int, oc: int, k: int, groups: int, bias: bool, chip: str) -> None:
    """End to end: what weight-reorder packs is what the CONV command reads, whole and in sections."""
    net = Network(np.random.default_rng(ic + oc))
    x = net.input((1, ic, *IMAGE))
    net.conv(x, oc, k, groups=groups, bias=bias)
    model = reordered(net.top(), chip)
    flat = run(model, net.feeds())
    for sections in (Sections(h=1), Sections(h=3)):
        program = to_program(grouped(model, sections))
        kind = Depthwise if groups == ic else Conv
        assert sum(isinstance(c, kind) for c in program.commands) == sections.h
        found = Simulator(program).run(net.feeds(), watch=True).tensors
        assert all(np.array_equal(found[n], flat[n]) for n in flat if n in found) and "t1" in found


# -------------------------------------------------------------------------------------------------------------- golden


@ON_CHIPS
def test_golden_command_stream(chip: str, update_golden: bool) -> None:
    """Two convolutions in one group of two sections, every command and operand."""
    channels = 6 if chip == "bm1684" else 3  # a convolution of few channels has no group there
    program = to_program(grouped(reordered(two_convs(channels).top(), chip), Sections(h=2)))
    program = msgspec.structs.replace(program, header=msgspec.structs.replace(program.header, tpusim="any"))
    text = listing(program)
    assert assemble(text, program.coefficients).commands == program.commands
    path = GOLDEN / f"two_convs_{chip}.txt"
    if update_golden:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.exists() and path.read_text(encoding="utf-8") == text, (
        f"the command stream differs from {path.name}; if that is wanted: pytest tests/test_codegen.py --update-golden"
    )


def reads(commands: Iterable[Command]) -> list[tuple[type, str, int, tuple[Source, ...]]]:
    """What each command reads; addresses have changed since, a work area has grown."""
    return [(type(c), c.op, c.dep, c.sources) for c in commands]


def test_older_formats_are_read() -> None:
    """A file and a listing of format 7, where sources were text, are the program that is made today."""
    made = to_program(grouped(reordered(two_convs().top(), "bm1684x"), Sections(h=2)))
    file = load(GOLDEN / "two_convs_format7.tpusim")
    text = assemble((GOLDEN / "two_convs_format7.txt").read_text(encoding="utf-8"), made.coefficients)
    for old in (file, text):
        assert old.header.format_version == FORMAT_VERSION
        assert reads(old.commands) == reads(made.commands) and old.tensors == made.tensors
    assert file.commands == text.commands and file.locations == text.locations
    assert any(source.loaded for command in file.commands for source in command.sources)
