"""Proofs over a finite field: right programs are proven, every wrong expression is found and located."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations
from itertools import product as product_of
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiling import to_addressed, to_canonical, to_program, to_reordered
from msgspec import structs
from mutation.mutant import Mutant, Mutator
from mutation.mutators_place import PLACE
from mutation.mutators_value import VALUE
from networks import Network, random_network, random_tokens, randomly_grouped
from plain_names import import_onnx
from rows import lowered
from xdsl.dialects.builtin import StringAttr

from tests.upstream.networks import Builder
from tpusim import chips
from tpusim.cli import main
from tpusim.cli.proof import module_of, proof_lines
from tpusim.codegen import group
from tpusim.errors import SimulationError, TpusimError
from tpusim.field import (
    PRIME,
    Field,
    Scaling,
    Sliding,
    convolved,
    extreme,
    largest,
    product,
    requanted,
    stored,
    summed,
    times,
)
from tpusim.field.arithmetic import RANDOM
from tpusim.field.selected import of_samples, of_whole, picked
from tpusim.ir.module import Model, save_model
from tpusim.ir.types import shape_of
from tpusim.isa.commands import Arith, Command, Conv, LaneCopy, MatMul, Move, Pool, Rescale
from tpusim.isa.layout import work_area
from tpusim.isa.region import DType, View, itemsize
from tpusim.isa.stream import Program, save
from tpusim.layer_group import LayerGroupConfig
from tpusim.lowering import LoweringConfig
from tpusim.ops.add import TpuAdd
from tpusim.ops.conv import TpuConv2D
from tpusim.ops.framework.base import TensorSlice
from tpusim.ops.matmul.tpu import TpuMatMul
from tpusim.ops.pool.tpu import TpuPool2D
from tpusim.ops.rescale import TpuMulShift
from tpusim.ops.structure import TopWeight
from tpusim.proof import Proof, prove
from tpusim.proof.declared import differences
from tpusim.running.network import open_network
from tpusim.running.store import Manifest
from tpusim.schedule import GroupSchedule
from tpusim.simulator import Simulator, SimulatorOptions
from tpusim.simulator.field import FieldMachine
from tpusim.simulator.memory import Region

QUICK = 10
"""Bits that one seed gives: enough to find what is wrong."""


@cache
def images(seed: int, chip: str) -> Model:
    """A random network of images in INT8, ready for layer groups."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return to_reordered(random_network(seed).top(), chip, "int8")


@cache
def tokens(seed: int) -> Model:
    """A random network of matrix products in INT8."""
    return to_reordered(random_tokens(seed, (2, 10, 12)).top(), "bm1684x")


@cache
def final(seed: int, chip: str, opt: str = "2", cores: int = 1) -> Model:
    config = LayerGroupConfig(opt=opt, cores=cores)
    return to_addressed(images(seed, chip), config)


def judged(model: Model, program: Program, wanted: float = QUICK, *, explain: bool = False) -> Proof:
    """Without the checks of structure."""
    machine = Simulator(program, options=SimulatorOptions(sanitize=False))
    return prove(model, machine, wanted=wanted, explain=explain)


# ---------------------------------------------------------------------------------------- right programs


@pytest.mark.parametrize(
    ("chip", "opt", "cores"),
    [("bm1684x", "2", 1), ("bm1684x", "off", 1), ("bm1684", "2", 1), ("cv183x", "2", 1), ("bm1688", "2", 2)],
)
def test_right_programs_are_proven(chip: str, opt: str, cores: int) -> None:
    model = final(1, chip, opt, cores)
    proof = prove(model, Simulator(to_program(model, share=cores)))
    assert proof.passed and not proof.unjudged and not proof.unseen
    assert proof.bits > 40
    assert not proof.uncut
    assert len(proof.stated) > 3


ROWS = (
    *(
        "conv-3x3",
        "conv-grouped",
        "conv-s2",
        "deconv-uneven",
        "conv3d-padding-alone",
        "avgpool3d-inside",
        "maxpool-ceil",
    ),
    *("add-three", "mul", "concat-channels", "softmax", "layernorm", "gelu", "subconst-reverse", "reduce-mean-image"),
    *("upsample-half-pixel", "resize-nearest", "max-three", "concat-requant", "clip"),
)
"""Rows whose commands take another way than their op, or that were judged wrongly once."""


@pytest.mark.parametrize(
    ("chip", "mode"), [("bm1684x", "int8"), ("bm1684x", "f32"), ("bm1684", "int8"), ("cv183x", "bf16")]
)
def test_rows_are_proven(chip: str, mode: str) -> None:
    from op_cases import BY_ID

    for case in (row for row in ROWS if row in BY_ID):
        model = to_addressed(lowered(case, chip, mode)[0])
        proof = prove(model, Simulator(to_program(model)), wanted=QUICK)
        assert proof.passed, f"{case}: {proof.wrong}; {proof.why}"
        assert not proof.unjudged and not proof.unseen, case


def test_other_groups_and_orders_are_the_same_expressions() -> None:
    """One module, three ways to cut it: each is proven by itself, and by the order of late DMA."""
    model = final(0, "bm1684x")
    machine = Simulator(to_program(model), options=SimulatorOptions(dma="late"))
    assert prove(model, machine, wanted=QUICK).passed


# ---------------------------------------------------------------------------------------- wrong programs


def exchanged(program: Program, index: int, **fields: Any) -> Program:
    commands = list(program.commands)
    commands[index] = structs.replace(commands[index], **fields)
    return structs.replace(program, commands=tuple(commands))


def first_of(program: Program, kind: type[Command], test: Callable[[Any], bool] = lambda c: True) -> int:
    return next(i for i, c in enumerate(program.commands) if isinstance(c, kind) and test(c))


def test_a_shifted_window_is_named() -> None:
    """A load takes the rows after the right ones, and says so: the element found is one row further."""
    model = final(0, "bm1684x", "off")
    program = to_program(model)

    def movable(c: Any) -> bool:
        view = c.input
        return view.memory == "gmem" and c.start is not None and len(view.shape) == 4 and view.shape[2] > 2

    index = first_of(program, Move, movable)
    view, out = program.commands[index].input, program.commands[index].output  # type: ignore[attr-defined]
    step = view.shape[3]
    wrong = exchanged(program, index, input=structs.replace(view, address=view.address + step))
    assert out.shape == view.shape
    proof = judged(model, wrong, explain=True)
    assert not proof.passed
    assert proof.wrong is not None and proof.wrong.index > index
    assert "h=" in proof.wrong.headline and proof.why


def test_exchanged_parts_of_a_concatenation_are_named() -> None:
    for seed in range(12):
        model = final(seed, "bm1684x", "off")
        program = to_program(model)
        copies = [i for i, c in enumerate(program.commands) if isinstance(c, LaneCopy | Move) and "Concat" in c.op]
        pairs = [
            (i, j)
            for i, j in zip(copies, copies[1:], strict=False)
            if program.commands[i].output.shape == program.commands[j].output.shape  # type: ignore[attr-defined]
            and program.commands[i].tensor == program.commands[j].tensor
        ]
        if pairs:
            i, j = pairs[0]
            a, b = program.commands[i], program.commands[j]
            wrong = exchanged(exchanged(program, i, input=b.input), j, input=a.input)  # type: ignore[attr-defined]
            proof = judged(model, wrong)
            assert proof.wrong is not None and proof.wrong.index == i
            return


PROGRAMS: tuple[tuple[str, Callable[[], Model]], ...] = (
    ("images bm1684x", lambda: final(2, "bm1684x")),
    ("images bm1684", lambda: final(3, "bm1684")),
    ("images cv183x", lambda: final(0, "cv183x")),
    ("tokens", lambda: to_addressed(tokens(1))),
)


def outputs_of(program: Program, seed: int) -> dict[str, bytes]:
    machine, rng = Simulator(program, options=SimulatorOptions(sanitize=False)), np.random.default_rng(seed)
    feeds = {e.name: rng.uniform(-3, 3, e.shape or e.view.shape).astype(np.float32) for e in program.inputs}
    with np.errstate(all="ignore"):
        return {name: array.tobytes() for name, array in machine.run(feeds).tensors.items()}


@pytest.mark.parametrize(("name", "make"), PROGRAMS, ids=[name for name, _ in PROGRAMS])
def test_mutants_that_give_other_values_are_exposed(name: str, make: Callable[[], Model]) -> None:
    """Every class of wrong places and values: what differs in values is refused, or is another expression."""
    model = make()
    program = to_program(model)
    rng, exposed = np.random.default_rng(5), 0
    mutators: tuple[Mutator, ...] = (*PLACE, *VALUE)
    for mutator in mutators:
        mutant: Mutant | None = mutator(program, rng)
        if mutant is None:
            continue
        try:
            machine = Simulator(mutant.program, options=SimulatorOptions(sanitize=False))
            proof = prove(model, machine, wanted=QUICK, explain=False)
        except TpusimError:
            continue  # refused: no command of the chip
        exposed += not proof.passed
        if proof.passed:
            assert outputs_of(program, 1) == outputs_of(mutant.program, 1), mutant.note
    assert exposed > 10


def test_roundings_relus_and_shifts_are_part_of_the_expression() -> None:
    """What three inputs may not show: each field of a requant, however little it changes."""
    model = final(3, "bm1684x")
    program = to_program(model)
    index = first_of(program, Rescale)
    command = program.commands[index]
    assert isinstance(command, Rescale)
    r = command.requant
    for other in (
        structs.replace(r, rounding="half_away"),
        structs.replace(r, rounding="down"),
        structs.replace(r, multiplier=r.multiplier + 1),
        structs.replace(r, rshift=r.rshift + 1),
        structs.replace(r, zero_point=1),
    ):
        proof = judged(model, exchanged(program, index, requant=other))
        assert proof.wrong is not None, other
        assert proof.wrong.index >= index


# ---------------------------------------------------------------------------------------- faults of the compiler


def fields_of(
    kind: type[Command], change: Callable[[Any], dict[str, Any]]
) -> Callable[[type[Command], dict[str, Any]], None]:
    """A fault in what an op emits: other fields of every command of this class."""

    def fault(cls: type[Command], fields: dict[str, Any]) -> None:
        if cls is kind:
            fields.update(change(fields))

    return fault


FAULTS: dict[str, tuple[type[Any], Callable[[type[Command], dict[str, Any]], None]]] = {
    "a pad on the other side": (
        TpuConv2D,
        fields_of(Conv, lambda f: {"pads": (f["pads"][2], *f["pads"][1:2], f["pads"][0], f["pads"][3])}),
    ),
    "no relu": (TpuConv2D, fields_of(Conv, lambda f: {"relu": not f["relu"]})),
    "the padding of another zero point": (TpuConv2D, fields_of(Conv, lambda f: {"pad_value": 1})),
    "no bias": (TpuConv2D, fields_of(Conv, lambda f: {"bias": None})),
    "a wrong shift of a sum": (
        TpuAdd,
        fields_of(Rescale, lambda f: {"requant": structs.replace(f["requant"], rshift=f["requant"].rshift + 1)}),
    ),
    "a difference for a sum": (TpuAdd, fields_of(Arith, lambda f: {"kind": "sub"} if f["kind"] == "add" else {})),
    "one operand twice": (TpuAdd, fields_of(Arith, lambda f: {"b": f["a"]} if f["kind"] == "add" else {})),
    "a maximum for an average": (TpuPool2D, fields_of(Pool, lambda f: {"mode": "max"} if f["mode"] == "avg" else {})),
    "a mean that counts its padding": (
        TpuPool2D,
        fields_of(Pool, lambda f: {"count_include_pad": not f["count_include_pad"]} if any(f["pads"]) else {}),
    ),
    "another multiplier of a requant": (
        TpuMulShift,
        fields_of(
            Rescale, lambda f: {"requant": structs.replace(f["requant"], multiplier=f["requant"].multiplier + 1)}
        ),
    ),
    "a requant that rounds down": (
        TpuMulShift,
        fields_of(Rescale, lambda f: {"requant": structs.replace(f["requant"], rounding="down")}),
    ),
}
"""What is wrong -> the op that emits it, and the fault."""


EQUAL = ("a pad on the other side", "a mean that counts its padding")
"""Faults that need not change anything: windows of equal pads, means without padding."""


@pytest.mark.parametrize("what", FAULTS)
def test_faults_of_the_compiler_are_located(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first wrong command belongs to an op of the class whose emission is wrong."""
    cls, fault = FAULTS[what]
    emit = cls.emit

    def faulty(self: Any, ctx: Any) -> None:
        honest = ctx.emit

        def changed(command: type[Command], /, **fields: Any) -> None:
            fault(command, fields)
            honest(command, **fields)

        ctx.emit = changed
        emit(self, ctx)

    found = 0
    for seed in range(8):
        if found:
            return
        model = final(seed, "bm1684x")
        right = to_program(model)
        with monkeypatch.context() as patch:
            patch.setattr(cls, "emit", faulty)
            try:
                wrong = to_program(model)
            except TpusimError:
                continue  # the chip has no such command
        if wrong.commands == right.commands:
            continue
        proof = judged(model, wrong)
        if proof.passed and what in EQUAL:
            assert outputs_of(right, 1) == outputs_of(wrong, 1)
            continue
        assert proof.wrong is not None
        named = right.commands[proof.wrong.index].op
        assert any(c.op == named for c, d in zip(wrong.commands, right.commands, strict=True) if c != d)
        found += 1
    assert found


def _inside(moving: str, function: str, change: Callable[[Any], Any]) -> Callable[[Any], None]:
    """A function that is changed while `_load` or `_store` moves slices of activations."""

    def fault(patch: Any) -> None:
        honest = getattr(group, moving)

        def changed(value: Any, schedule: Any, *others: Any) -> None:
            with pytest.MonkeyPatch.context() as inner:
                if value not in schedule.graph.constants:
                    inner.setattr(group, function, change(getattr(group, function)))
                honest(value, schedule, *others)

        patch.setattr(group, moving, changed)

    return fault


def _parts(change: Callable[[TensorSlice], TensorSlice]) -> Callable[[Any], Any]:
    """Transfers of another part of a tensor in global memory."""
    return lambda honest: lambda whole, lengths, part, *others: honest(whole, lengths, change(part), *others)


def _row_before(part: TensorSlice) -> TensorSlice:
    return replace(part, h=(part.h[0] - 1, part.h[1])) if part.h[0] > 0 else part


def _stale(patch: Any) -> None:
    """Only the first step loads a tensor."""
    honest = group._load  # noqa: SLF001

    def changed(value: Any, schedule: Any, step: Any, emitter: Any) -> None:
        if value in schedule.graph.constants or step == schedule.sections.loop[0]:
            honest(value, schedule, step, emitter)

    patch.setattr(group, "_load", changed)


def _wrong_constants(patch: Any) -> None:
    """A constant is loaded from where another one lies that is not smaller."""
    honest = group._address  # noqa: SLF001

    def changed(value: Any) -> int:
        block, size = value.owner.parent_block(), np.prod(shape_of(value))
        weights = [op.output for op in block.ops if isinstance(op, TopWeight) and isinstance(value.owner, TopWeight)]
        others = [other for other in weights if other is not value and np.prod(shape_of(other)) >= size]
        return honest(others[0] if others else value)

    patch.setattr(group, "_address", changed)


def _elsewhere(honest: Any) -> Any:
    """Slices lie a vector further than ops look for them."""
    return lambda value, address, *others, **more: honest(value, address + 64, *others, **more)


def _one_step_less(patch: Any) -> None:
    """The last step is none's."""
    honest = GroupSchedule.shares
    patch.setattr(
        GroupSchedule, "shares", lambda self, cores: [s[: len(s) - (len(s) > 1)] for s in honest(self, cores)]
    )


GROUP_FAULTS: dict[str, Callable[[Any], None]] = {
    "a halo of the row before": _inside("_load", "transfers", _parts(_row_before)),
    "the first slice of every step": _inside(
        "_load", "transfers", _parts(lambda part: replace(part, h=(0, part.h[1])))
    ),
    "a stale slice": _stale,
    "the constant of another op": _wrong_constants,
    "a load that is a vector off": _inside("_load", "lmem_view", _elsewhere),
    "a store one row before": _inside("_store", "transfers", _parts(_row_before)),
    "a step less": _one_step_less,
}
"""What is wrong in how groups are cut, moved and placed."""


@pytest.mark.parametrize("what", GROUP_FAULTS)
def test_faults_of_groups_are_located(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first wrong result is that of a changed command, or of an op that reads what was moved wrongly."""
    for seed in range(6):
        model = to_addressed(randomly_grouped(images(seed, "bm1684x"), np.random.default_rng(seed))[0])
        right = to_program(model)
        with monkeypatch.context() as patch:
            GROUP_FAULTS[what](patch)
            try:
                wrong = to_program(model)
            except TpusimError:
                continue  # there is no such command
        if wrong.commands == right.commands:
            continue
        proof = judged(model, wrong)
        if proof.passed:
            assert outputs_of(right, 1) == outputs_of(wrong, 1)
            continue
        assert proof.wrong is not None
        known = {structs.replace(c, id=0, dep=0) for c in right.commands}
        other = [c for c in wrong.commands if structs.replace(c, id=0, dep=0) not in known]
        at = wrong.commands[proof.wrong.index]
        assert not other or at in other or {source.name for source in at.sources} & {command.op for command in other}
        return
    raise AssertionError("no program shows it")


# ---------------------------------------------------------------------------------------- the field


def test_products_are_exact() -> None:
    """In blocks of 2048 terms, against Python's integers."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, PRIME, (3, 5000)), rng.integers(0, PRIME, (5000, 2))
    a[0], b[:, 0] = PRIME // 2, PRIME // 2  # the largest products
    expected = [[sum(int(x) * int(y) for x, y in zip(row, column, strict=True)) % PRIME for column in b.T] for row in a]
    assert product(a, b).tolist() == expected


def test_products_of_many_columns_are_those_of_some() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, PRIME, (2, 3, 5)), rng.integers(0, PRIME, (1, 5, 1030))
    parts = [product(a, b[..., :1000]), product(a, b[..., 1000:])]
    assert product(a, b).tolist() == np.concatenate(parts, -1).tolist()


def test_products_that_numpy_may_lay_out_in_another_order_are_folded() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, PRIME, (3, 5, 4)), rng.integers(0, PRIME, (4,))
    turned = a.swapaxes(0, 2)
    assert times(turned, turned).tolist() == [[[int(x) ** 2 % PRIME for x in r] for r in p] for p in turned.tolist()]
    assert times(a, b).tolist() == [[[x * y % PRIME for x, y in zip(r, b.tolist(), strict=True)] for r in p]
                                    for p in a.tolist()]  # fmt: skip
    assert (summed((turned, turned, turned)) == 3 * turned % PRIME).all()
    assert times(b, -7).tolist() == [-7 * x % PRIME for x in b.tolist()]
    assert times(b, 1 << 40).tolist() == [(x << 40) % PRIME for x in b.tolist()]


SLIDING = Sliding((3, 2), (2, 1), (1, 0, 1, 1), (1, 2))


def windows(change: Callable[[np.ndarray, np.ndarray], None] = lambda x, w: None, pad: int = 3) -> np.ndarray:
    """Sums over windows of a small image after a change of image or filter."""
    rng, field = np.random.default_rng(4), Field(2)
    x, w = rng.integers(0, PRIME, (2, 6, 7, 5)), rng.integers(0, PRIME, (4, 3, 6))
    change(x, w)
    return convolved(field, x, w, SLIDING, 2, (4, 4), pad)


def test_sums_over_windows_depend_on_every_element_and_its_place() -> None:
    right = windows()

    def exchange(x: np.ndarray, w: np.ndarray) -> None:
        w[1, [0, 2]] = w[1, [2, 0]]

    def both(x: np.ndarray, w: np.ndarray) -> None:
        x[:, [0, 2]], w[:, [0, 2]] = x[:, [2, 0]], w[:, [2, 0]]

    def one(x: np.ndarray, w: np.ndarray) -> None:
        x[1, 5, 4, 2] += 1

    assert (windows(exchange) != right).any((0, 2, 3)).tolist() == [False, True, False, False]
    assert (windows(both) != right).any()
    changed = windows(one) != right
    assert changed[1, 2:].any() and not changed[0].any() and not changed[:, :2].any()
    assert (windows(pad=4) != right)[:, :, 0].all() and (windows(pad=4) == right)[:, :, 1:3, :3].all()


def test_windows_of_zeros_are_zero_and_volumes_are_sums_of_planes() -> None:
    rng, field = np.random.default_rng(4), Field(2)
    x, w = rng.integers(0, PRIME, (1, 2, 4, 5, 5)), rng.integers(0, PRIME, (3, 2, 12))
    whole = convolved(field, x, w, Sliding((3, 2, 2), (1, 1, 1), (0,) * 6), 1, (2, 4, 4), 0)
    planes = [
        convolved(field, x[:, :, 1 + d], w[:, :, 4 * d : 4 * d + 4], Sliding((2, 2), (1, 1), (0,) * 4), 1, (4, 4), 0)
        for d in range(3)
    ]
    assert (summed(planes) == whole[:, :, 1]).all()
    assert not convolved(field, x * 0, w, Sliding((3, 2, 2), (1, 1, 1), (0,) * 6), 1, (2, 4, 4), 0).any()


def test_sums_of_products_are_those_of_integers() -> None:
    """Over windows with pads, strides and dilations, for all windows at once and for one row after the other."""
    rng, field = np.random.default_rng(4), Field(2, algebra=True)
    x, w = rng.integers(0, PRIME, (2, 6, 7, 5)), rng.integers(0, PRIME, (4, 3, 6))
    found = convolved(field, x, w, SLIDING, 2, (4, 4), 3)
    wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 1)), constant_values=3).astype(object)
    for n, o, i, j in np.ndindex(*found.shape):
        seen = wide[n, o // 2 * 3 : o // 2 * 3 + 3, 2 * i : 2 * i + 3, j : j + 3 : 2]
        assert (seen.reshape(3, -1) * w[o]).sum() % PRIME == found[n, o, i, j]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tpusim.field.windows._SEEN", 1)
        assert np.array_equal(convolved(field, x, w, SLIDING, 2, (4, 4), 3), found)


def by_halves(program: Program, lane: int = 16) -> Program:
    """A program whose convolution is the sum of two, of the first and of the last 16 of its 32 channels."""
    index = first_of(program, Conv)
    whole = program.commands[index]
    assert isinstance(whole, Conv)
    n, c, h, w = whole.input.shape
    row, half = whole.filter.shape[3], whole.filter.shape[3] // 2
    image = structs.replace(whole.input, shape=(n, c // 2, h, w))
    shape, strides = (*whole.filter.shape[:3], half), (0, row, row, 1)
    filter = structs.replace(whole.filter, shape=shape, layout="strided", strides=strides)
    parts = [
        structs.replace(whole, input=image, filter=filter),
        structs.replace(
            whole, input=structs.replace(image, lane=lane), bias=None, accumulate=True, id=whole.id + 1,
            filter=structs.replace(filter, address=filter.address + half * 4),
        ),
    ]  # fmt: skip
    after = [structs.replace(c, dep=c.dep + 1) if c.engine == "gdma" else c for c in program.commands[index + 1 :]]
    locations = tuple(structs.replace(slice_, command=slice_.command + 1) for slice_ in program.locations)
    return structs.replace(program, commands=(*program.commands[:index], *parts, *after), locations=locations)


def test_another_formula_of_one_sum_is_proven_by_algebra() -> None:
    """A convolution as the sum of two over its channels; the same channels twice are another sum."""
    net = Network(np.random.default_rng(0))
    net.conv(net.input((1, 32, 5, 5)), 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = to_addressed(to_reordered(net.top(), "bm1684x", "f32"))
    program = to_program(model)
    plain, halves = judged(model, program), judged(model, by_halves(program))
    assert plain.passed and plain.hashed
    assert halves.wrong is None and not halves.hashed
    assert judged(model, by_halves(program, lane=15)).wrong is not None


POOL = Sliding((2, 2), (2, 2), (1, 1, 0, 0))


def test_an_extreme_depends_on_every_element_that_it_is_of() -> None:
    """Also on a constant one, which is the least or the greatest of all in every order; a window of one is that one."""
    field, rng = Field(5), np.random.default_rng(5)
    x = rng.integers(0, PRIME, (1, 3, 5, 5))
    right = largest(field, x, POOL, (3, 3))
    assert right[0, :, 0, 0].tolist() == x[0, :, 0, 0].tolist()
    for value in (0, 1, PRIME - 1):
        wrong = x.copy()
        wrong[0, 0, 2, 2] = value
        assert np.argwhere(largest(field, wrong, POOL, (3, 3)) != right).tolist() == [[0, 0, 1, 1]]
        filled = largest(field, np.pad(x, ((0, 0), (0, 0), (1, 0), (0, 0)), constant_values=value),
                         Sliding((2, 2), (2, 2), (0, 1, 0, 0)), (3, 3))  # fmt: skip
        assert (filled != right)[:, :, 0].all() and not (filled != right)[:, :, 1:].any()


def test_extremes_join_like_sets() -> None:
    """In any order and in parts; of equal elements one; minima, numbers and the maximum of others are not the same."""
    field, rng = Field(5), np.random.default_rng(5)
    a, b, c = rng.integers(0, PRIME // 2, (3, 50))
    high = extreme(field, "max", a, b, c)
    assert (high == extreme(field, "max", c, extreme(field, "max", b, a))).all()
    assert (extreme(field, "max", a, a) == a).all()
    others = [extreme(field, "min", a, b, c), extreme(field, "max", a, b), extreme(field, "max", a, b, c + 1)]
    others += [extreme(field, "min", extreme(field, "max", a, b), c), a]
    numbers = [extreme(field, "max", a, np.array(field.constant(n))) for n in (0, 1, 0.5, -1)]
    for one, other in combinations([high, *others, *numbers], 2):
        assert not (one == other).any()
    assert all((found < PRIME).all() and (found >= 0).all() for found in (high, *others, *numbers))


@pytest.mark.parametrize("kind", ["max", "min"])
def test_no_arithmetic_of_extremes_is_the_extreme_of_other_arithmetic(kind: str) -> None:
    """Constants change places between operands that are extremes, and summands between those in their range."""
    field, rng = Field(5), np.random.default_rng(5)
    a, b, c, d = rng.integers(0, RANDOM, (4, 4000))
    one, other = extreme(field, kind, a, b), extreme(field, kind, c, d)
    for number in (1, 3, -1, 1 << 20):
        moved = extreme(field, kind, (one + number) % PRIME, other)
        assert not (moved == extreme(field, kind, one, (other + number) % PRIME)).any()
        assert not (moved == (extreme(field, kind, one, other) + number) % PRIME).any()
    wide, more = summed((a, one)), summed((b, other))
    assert (wide >= RANDOM).any() and (more >= RANDOM).any()
    assert not (extreme(field, kind, wide, more) == extreme(field, kind, summed((a, other)), summed((b, one)))).any()


def test_extremes_of_many_elements_join() -> None:
    """The sums of more hashes than 64 bits take are those of the parts."""
    field, rng = Field(5), np.random.default_rng(5)
    x = rng.integers(0, RANDOM, (1, 1, 136, 136))
    halves = largest(field, x, Sliding((68, 136), (68, 1), (0,) * 4), (2, 1))
    whole = largest(field, x, Sliding((136, 136), (1, 1), (0,) * 4), (1, 1))
    assert (extreme(field, "max", halves[:, :, :1], halves[:, :, 1:]) == whole).all()


def test_functions_of_rows_and_of_wholes_depend_on_shapes() -> None:
    """A zero more at the end of a row, and the same elements in another shape."""
    field, rng = Field(5), np.random.default_rng(5)
    x = rng.integers(0, RANDOM, (4, 6))
    for more in (1, 2, 7):
        assert not (field.row(np.pad(x, ((0, 0), (0, more))), (1,)) == field.row(x, (1,))).any()
    turned = x.reshape(6, 4)
    assert not (of_whole(field, ("f",), (x,), (3,)) == of_whole(field, ("f",), (turned,), (3,))).any()
    assert not (picked(field, ("f",), x, x) == picked(field, ("f",), x, turned)).any()
    one, other = (of_samples(field, ("f",), (y[None],), (1, 3)) for y in (x, turned))
    assert not (one == other).any()


def test_means_of_large_planes_are_proven() -> None:
    """Sums of more elements than 64 bits take."""
    net = Network(np.random.default_rng(0))
    net.global_pool(net.input((1, 1, 136, 136)))
    model = to_addressed(to_reordered(net.top(), LoweringConfig("bm1684x", "f32")))
    assert judged(model, to_program(model)).passed


def test_a_rounding_before_the_bias_is_part_of_the_expression() -> None:
    tpu = lowered("gemm-fc", "bm1684x", "f16")[0].clone()
    for op in tpu.body.walk():
        if isinstance(op, TpuMatMul):
            op.arithmetic = StringAttr("chip")
    model = to_addressed(tpu)
    right = to_program(model)
    index = first_of(right, MatMul)
    assert judged(model, right).passed
    wrong = judged(model, exchanged(right, index, bias_after=False)).wrong
    assert wrong is not None and wrong.index == index


def test_constants_of_different_value_are_different_elements() -> None:
    field = Field(0)
    fractions = {Fraction(p, q) for q in range(1, 40) for p in range(-60, 60)}
    numbers = [float(f) for f in fractions] + [0.1234567, 1e-9, 3.5e20]
    assert len({field.constant(x) for x in numbers}) == len(numbers)
    assert field.constant(1 / 3) * 3 % PRIME == 1
    assert field.constant(-5) == PRIME - 5


def test_functions_are_named_by_all_parameters() -> None:
    """Equal names agree, others differ in nearly all elements; so do seeds."""
    x = np.arange(4096)
    by = Scaling(77, 9, 3)
    first = requanted(Field(1), x, by, "i8")
    assert np.array_equal(first, requanted(Field(1), x, by, "i8"))
    others = (
        Scaling(78, 9, 3),
        Scaling(77, 8, 3),
        Scaling(77, 9, 4),
        Scaling(77, 9, 3, "down"),
        Scaling(77, 9, 3, mode="qdm"),
    )
    for other in others:
        assert (first == requanted(Field(1), x, other, "i8")).mean() < 0.01
    for dtype, relu in (("u8", False), ("i8", True)):
        assert (first == requanted(Field(1), x, by, dtype, relu=relu)).mean() < 0.01
    assert (first == requanted(Field(2), x, by, "i8")).mean() < 0.01


def _memory() -> FieldMachine:
    """Some global memory that commands may write."""
    regions = (Region("coefficients", 0, 0, writable=False), Region("neurons", 4096, 4096, writable=True))
    return FieldMachine(chips.load("bm1684x"), regions, np.empty(0, np.uint8), 64, field=Field(4))


def _row(dtype: DType, count: int, start: int = 0) -> View:
    return View(memory="gmem", address=4096 + start, dtype=dtype, shape=(1, 1, 1, count), layout="dense")


@pytest.mark.parametrize("written", ["f32", "i32", "bf16", "i16", "i8"])
def test_bytes_as_another_type_or_from_elsewhere_are_other_elements(written: DType) -> None:
    """One number everywhere: no neighbour of another value shows what is read."""
    memory, size = _memory(), itemsize(written)
    memory.write(_row(written, 16), np.full((1, 1, 1, 16), 3))
    kinds: tuple[DType, ...] = ("f32", "i32", "f16", "u16", "u8", "i8")
    for read, start in product_of(kinds, range(5)):
        found, other = (memory.read(_row(read, 4, at)) for at in (start, start + 1))
        assert (found == 3).all() == (read == written and start % size == 0)
        assert (found == 3).all() or not (found == 3).any()
        assert (found == other).all() == (size == 1)  # every byte is one of its element


@pytest.mark.parametrize(
    ("wide", "narrow"), [("f32", "i8"), ("i32", "u8"), ("f32", "f16"), ("i16", "i8"), ("bf16", "u8")]
)
def test_what_narrower_data_leaves_of_an_element_is_another_one(wide: DType, narrow: DType) -> None:
    memory, size = _memory(), itemsize(wide)
    seen = {3}
    for start in range(0, size, itemsize(narrow)):
        memory.write(_row(wide, 4), np.full((1, 1, 1, 4), 3))
        memory.write(_row(narrow, 1, size + start), np.full((1, 1, 1, 1), 3))
        first, changed, *others = memory.read(_row(wide, 4)).ravel().tolist()
        assert first == others[0] == others[1] == 3
        assert changed not in seen
        seen.add(changed)
    memory.write(_row(wide, 4), np.full((1, 1, 1, 4), 3))
    first, last = _row("u8", 1, size), _row("u8", 1, 2 * size - 1)
    memory.copy(first, last)  # a byte of the same element, at another place
    assert memory.read(_row(wide, 4)).ravel().tolist()[1] not in seen


@pytest.mark.parametrize(
    ("shape", "strides"), [((1, 3, 5, 7), (0, 40, 7, 1)), ((2, 3, 1), (4, 1, 9)), ((3, 4), (1, 20)), ((0, 3), (3, 1))]
)
def test_the_element_of_a_constant_byte_depends_on_the_byte_and_its_address(
    shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    data = np.random.default_rng(0).integers(0, 256, 20000).astype(np.uint8)
    whole, places = stored(Field(1), data, 5000), 11 + offsets_of(shape, strides)
    part = np.ndarray(shape, np.uint8, data, 11, strides)
    assert stored(Field(1), part, 5011).tolist() == whole[places].tolist()
    assert len(set(whole.tolist())) == len(whole)
    assert not (stored(Field(1), data, 5001) == whole).any()
    assert not (stored(Field(1), data ^ 1, 5000) == whole).any()
    assert not (stored(Field(2), data, 5000) == whole).any()


@pytest.mark.parametrize(
    "memory",
    [
        np.zeros((40, 64, 50), np.int64),
        np.zeros((50, 64, 40), np.int64).transpose(2, 1, 0),
        np.zeros((40, 80, 60), np.int64)[:, 3:67, 5:55],
        np.zeros((40, 64, 100), np.int64)[..., ::2],
    ],
    ids=["whole", "transposed", "a part", "with gaps"],
)
def test_numbers_of_constants_do_not_depend_on_the_memory_they_are_written_to(memory: np.ndarray) -> None:
    data = np.random.default_rng(5).integers(0, 256, memory.shape, dtype=np.uint8)
    assert stored(Field(1), data, 77, tag=9, into=memory) is memory
    np.testing.assert_array_equal(memory, stored(Field(1), data, 77, tag=9))


def offsets_of(shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """The offsets of the elements of a strided array."""
    return np.sum([i * stride for i, stride in zip(np.indices(shape), strides, strict=True)], 0)


def test_constants_are_read_and_not_written() -> None:
    regions = (Region("coefficients", 0, 64, writable=False), Region("neurons", 4096, 4096, writable=True))
    memory = FieldMachine(chips.load("bm1684x"), regions, np.arange(64, dtype=np.uint8), 64, field=Field(4))
    constants = View(memory="gmem", address=16, dtype="i8", shape=(1, 1, 1, 16), layout="dense")
    first = memory.read(constants)
    memory.copy(constants, _row("i8", 16))
    assert (memory.read(_row("i8", 16)) == first).all()
    for write in (lambda: memory.copy(_row("i8", 16), constants), lambda: memory.write(constants, first)):
        with pytest.raises(SimulationError, match="read-only"):
            write()
    assert (memory.read(constants) == first).all()


def test_copies_move_the_numbers_of_all_bytes_between_any_layouts() -> None:
    chip, size = chips.load("bm1684x"), 1 << 16
    regions = (Region("coefficients", 0, size, writable=False), Region("neurons", size, size, writable=True))
    data = np.random.default_rng(1).integers(0, 256, size).astype(np.uint8)
    memory = FieldMachine(chip, regions, data, 1024, field=Field(4))
    memory.gmem["neurons"][:] = np.arange(size)
    dense = View("gmem", size, (2, 3 * chip.lanes, 3, 5), "i16", "dense")
    apart = structs.replace(dense, address=size + 16, layout="strided", strides=(5800, 30, 10, 2))
    compact = View("lmem", 0, dense.shape, "i16", "compact")
    local = [
        compact,
        structs.replace(compact, lane=1),
        structs.replace(compact, lane=1, address=30),  # a row after the one before it
        structs.replace(compact, layout="aligned", lane=chip.lanes - 4, address=256),
    ]
    constants = [structs.replace(view, address=view.address - size) for view in (dense, apart)]
    for source, target in product_of((*constants, dense, apart, *local), (dense, apart, *local)):
        before = memory.raw(source)
        memory.copy(source, target)
        assert (memory.raw(target) == before).all(), (source, target)
        if source in constants:
            places = 2 * offsets_of(dense.shape, source.strides or (45 * chip.lanes, 15, 5, 1))
            whole = memory.numbers_of_constants()
            assert (before[..., 0] == whole[source.address + places]).all()


# --------------------------------------------------------------------------------------------------- what is declared


def redeclared(program: Program, what: str) -> Program:
    """A program whose computation is right and whose declarations are not."""
    commands = program.commands
    match what:
        case "kind":
            index = first_of(program, Move, lambda c: c.of_tile)
            return exchanged(program, index, kind="lanes" if commands[index].kind != "lanes" else "tensor")  # type: ignore[attr-defined]
        case "work":
            return exchanged(program, next(i for i, c in enumerate(commands) if c.work and c.in_group), work=())
        case "macs":
            return structs.replace(program, header=structs.replace(program.header, macs=program.header.macs + 1))
        case "slice":
            return structs.replace(program, locations=program.locations[1:])
        case "peak":
            first = structs.replace(program.groups[0], lmem_peak_bytes=1 << 16)
            return structs.replace(program, groups=(first, *program.groups[1:]))
        case "scale":
            first, *rest = program.tensors
            return structs.replace(program, tensors=(structs.replace(first, scale=0.5), *rest))
        case _:
            raise ValueError(what)


@pytest.mark.parametrize("what", ["kind", "work", "macs", "slice", "peak", "scale"])
def test_declarations_are_those_of_the_module(what: str) -> None:
    for seed in range(6):
        model = final(seed, "bm1684x", "off" if what == "kind" else "2")
        program = to_program(model)
        try:
            wrong = redeclared(program, what)
        except StopIteration:
            continue  # the program has none
        proof = judged(model, wrong)
        assert proof.wrong is None
        assert len(proof.declared) >= 1
        assert not proof.passed
        assert not judged(model, program).declared
        return
    raise AssertionError(what)


def test_regions_share_no_address() -> None:
    program = to_program(final(0, "bm1684x"))
    header = program.header
    wrong = structs.replace(header, io_regions=((header.coeff_address + header.coeff_bytes - 64, 4096),))
    with pytest.raises(TpusimError, match="overlap"):
        Simulator(structs.replace(program, header=wrong))


def test_work_areas_are_required_without_the_module() -> None:
    """None is smaller than the fields of its command require, and all commands of an op in a group state the same."""
    seen = set[str]()
    for program in (to_program(final(1, "bm1684x")), to_program(to_addressed(tokens(1)))):
        chip = program.header.chip_spec
        for index, command in enumerate(program.commands):
            least = command.least_work(chip) if command.in_group else 0
            if not least:
                continue
            seen.add(type(command).__name__)
            area = command.work[0]
            for size in (0, least - 1):
                smaller = structs.replace(area, shape=(*area.shape[:3], size))
                with pytest.raises(TpusimError, match=f"work area of {least:,} bytes or more is required, got {size}"):
                    Simulator(exchanged(program, index, work=(smaller,) * bool(size)))
    assert {"Conv", "MatMul"} <= seen


def test_heads_of_one_product_need_their_work_area() -> None:
    """Several commands at a step, none of which reads another's result."""
    program = to_program(lowered("matmul-heads", "bm1684x", "int8")[0])
    products = [c for c in program.commands if c.in_group and c.least_work(program.header.chip_spec)]
    assert len({c.step for c in products}) < len(products)
    without = [structs.replace(c, work=()) if c in products else c for c in program.commands]
    with pytest.raises(TpusimError, match=r"work area of .* bytes or more is required, got 0"):
        Simulator(structs.replace(program, commands=without))


def test_commands_of_an_op_in_a_group_have_one_work_area() -> None:
    for seed in range(6):
        program = to_program(final(seed, "bm1684x"))
        places = defaultdict[tuple[int, str], list[int]](list)
        for index, command in enumerate(program.commands):
            if command.in_group and not isinstance(command, Move):
                places[command.group, command.op].append(index)
        several = next((found for found in places.values() if len(found) > 1), None)
        if several is None:
            continue
        chip = program.header.chip_spec
        area = (work_area(chip.lmem_bytes - 512, 512, chip),)
        with pytest.raises(TpusimError, match=r"the work area of .* is required, got bytes \["):
            Simulator(exchanged(program, several[-1], work=area))
        return
    raise AssertionError("an op with several commands is required")


def test_sections_are_those_of_the_slices() -> None:
    """On another axis, or more than there are; and an op without slices."""
    for seed in range(8):
        program = to_program(final(seed, "bm1684x"))
        group = next((g for g in program.groups if any(c.in_group and c.group == g.id for c in program.commands)), None)
        if group is None:
            continue
        secs = {**group.secs, "d": 2}
        groups = tuple(structs.replace(g, secs=secs) if g is group else g for g in program.groups)
        with pytest.raises(TpusimError, match="sections"):
            Simulator(structs.replace(program, groups=groups))
        name = program.locations[0].tensor
        left = tuple(location for location in program.locations if location.tensor != name)
        with pytest.raises(TpusimError):
            Simulator(structs.replace(program, locations=left))
        return


def test_the_terminal_says_what_was_proven_and_what_not() -> None:
    model = final(3, "bm1684x")
    program = to_program(model)
    first, *_ = proof_lines(prove(model, Simulator(program)))
    assert first.startswith("proven for all inputs: ")
    assert "a chance below 2**-" in first
    index = first_of(program, Rescale)
    found = judged(model, exchanged(program, index, input_zero=1), explain=True)
    wrong, why, *_ = proof_lines(found)
    assert wrong.startswith("not proven: ")
    assert found.wrong is not None and found.wrong.command in wrong
    assert why.strip()


@pytest.mark.parametrize("other", [(1, 2, 5, 5), (2, 3, 5, 5)])
def test_a_module_with_other_inputs_is_refused(other: tuple[int, ...]) -> None:
    def compiled(shape: tuple[int, ...]) -> Model:
        net = Network(np.random.default_rng(0))
        net.relu(net.input(shape))
        return to_addressed(to_reordered(net.top(), "bm1684x", "f32"))

    program = to_program(compiled((1, 3, 5, 5)))
    words = r"program's inputs 't0' \(1, 3, 5, 5\) is required, got 't0' .*; give the module"
    with pytest.raises(TpusimError, match=words):
        prove(compiled(other), Simulator(program))


def test_the_module_of_a_program_is_next_to_it(tmp_path: Path) -> None:
    """A file of a program, and the module in its folder: right, absent, of an earlier stage, or no module."""
    model = final(1, "bm1684x")
    path, file = tmp_path / "7_model.tpusim", tmp_path / "6_final.mlir"
    save(to_program(model), path)
    network = open_network(path)
    with pytest.raises(TpusimError, match="6_final.mlir next to it"):
        module_of(network, path)
    save_model(model, file)
    assert differences(module_of(network, path), to_program(model)) == ()
    save_model(images(1, "bm1684x"), file)
    with pytest.raises(TpusimError, match="TPU_ADDRESSED is required"):
        module_of(network, path)
    file.write_text("nothing")
    with pytest.raises(TpusimError, match="does not parse"):
        module_of(network, path)


def test_a_proof_needs_no_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A program of a folder is proven alone; without a proof, inputs are required."""
    model = final(1, "bm1684x")
    save(to_program(model), tmp_path / "7_model.tpusim")
    save_model(model, tmp_path / "6_final.mlir")
    assert main(["simulate", str(tmp_path / "7_model.tpusim"), "--prove"]) == 0
    assert "proven for all inputs: " in capsys.readouterr().out
    assert not (tmp_path / "local_outputs.npz").exists()
    (tmp_path / "local_outputs.npz").write_text("mine")
    Manifest("1").write(tmp_path)
    assert main(["simulate", str(tmp_path / "7_model.tpusim"), "--prove"]) == 0
    noted = Manifest.read(tmp_path)
    assert noted is not None and list(noted.files) == ["trace.json"]  # what the command wrote
    assert main(["simulate", str(tmp_path / "7_model.tpusim")]) == 1
    assert "--input: inputs are required" in capsys.readouterr().err


@pytest.mark.parametrize("opt", ["2", "off"])
@pytest.mark.parametrize("number", [-1.0, -3.0, 0.5, 1e-3])
def test_products_with_a_number_are_proven(number: float, opt: str) -> None:
    """In 16 bits -x is not rounded again; other products are."""
    net = Builder("numbers")
    net.output(net.node("Mul", net.node("Abs", net.input("x", 1, 3, 5, 5)), net.constant(number)))
    tpu = to_reordered(to_canonical(import_onnx(net.model())), "bm1684x", "f16")
    model = to_addressed(tpu, LayerGroupConfig(opt=opt))
    assert prove(model, Simulator(to_program(model)), wanted=QUICK).passed
