"""`tpu.Attention` of bm1684x: which blocks become one, its integers by an independent oracle, and the machine."""

from __future__ import annotations

import numpy as np
import pytest
from compiling import to_addressed, to_calibrated, to_canonical, to_program, to_reordered, to_tpu
from msgspec.structs import replace
from plain_names import import_onnx

from tests.upstream.networks import Array, Builder, samples
from tpusim import chips
from tpusim.chips import ChipSpec
from tpusim.inference import run
from tpusim.ir.attrs import ints, op_name
from tpusim.ir.module import Model
from tpusim.ir.types import uniform_of
from tpusim.ir.weights import WeightStore
from tpusim.isa.commands import Fn, GlobalKernel, MatMul
from tpusim.proof import prove
from tpusim.simulator import Simulator, SimulatorOptions

BATCH, ROWS, OTHERS, WIDTH, HEADS = 2, 6, 5, 12, 3
SIZE = WIDTH // HEADS
CHIP = chips.load("bm1684x")
GLOBAL = replace(CHIP, name="without_local_attention", local=replace(CHIP.local, global_only=("tpu.Attention",)))
"""A chip that has no local form of it: what is too large for local memory runs so."""


def block(*, mask: bool = True, scaled: bool = True, relu: bool = False, wide_mask: bool = False) -> Builder:
    """Attention of x to y, masked for each batch."""
    b = Builder("block")
    x, y = b.input("x", BATCH, ROWS, WIDTH), b.input("y", BATCH, OTHERS, WIDTH)
    parts = [b.linear(source, WIDTH, WIDTH) for source in (x, y, y)]
    parts[0] = b.node("Relu", parts[0]) if relu else parts[0]
    q, k, v = (b.reshape(p, BATCH, n, HEADS, SIZE) for p, n in zip(parts, (ROWS, OTHERS, OTHERS), strict=True))
    q, v = (b.node("Transpose", part, perm=[0, 2, 1, 3]) for part in (q, v))
    scores = b.node("MatMul", q, b.node("Transpose", k, perm=[0, 2, 3, 1]))
    scores = b.node("Mul", scores, b.constant(SIZE**-0.5)) if scaled else scores
    if mask:
        m = b.input("m", BATCH, 1, ROWS if wide_mask else 1, OTHERS)
        scores = b.node("Add", scores, b.node("Mul", b.node("Relu", m, out="kept"), b.constant(-9.0), out="bias"))
    mixed = b.node("Transpose", b.node("MatMul", b.node("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    b.output(b.linear(b.reshape(mixed, BATCH, ROWS, WIDTH), WIDTH, WIDTH))
    return b


def lowered(
    b: Builder, chip: ChipSpec = CHIP, mode: str = "int8", **options: object
) -> tuple[Model, dict[str, Array]]:  # fmt: skip
    proto = b.model()
    top, feeds = to_canonical(import_onnx(proto)), samples(proto, 2)
    asymmetric = bool(options.get("asymmetric"))
    top = to_calibrated(top, feeds, asymmetric=asymmetric) if mode == "int8" else top
    return to_tpu(top, chip, mode, **options), feeds[0]


def heads_of(model: Model) -> list[object]:
    return [op for op in model.ops if op.name == "tpu.Attention"]


@pytest.mark.parametrize(
    ("what", "count"),
    [({}, HEADS), ({"mask": False}, HEADS), ({"scaled": False}, 0), ({"relu": True}, 0), ({"wide_mask": True}, 0)],
    ids=["masked", "plain", "without-scale", "with-relu", "mask-of-rows"],
)
def test_which_blocks_are_one_op(what: dict[str, bool], count: int) -> None:
    """One op for each head; the scale is required, and a mask is the same for all rows. Upstream would lose Relus."""
    assert len(heads_of(lowered(block(**what), mode="f16")[0])) == count


def test_only_one_chip_has_it() -> None:
    assert [c for c in chips.available() if chips.load(c).forms.attention] == ["bm1684x"]


def half_away(values: Array, fit: tuple[int, ...]) -> Array:
    """Multiplied, shifted, halves away from zero, in bytes."""
    m, r, _ = fit
    scaled = [[(abs(int(v)) * m + (1 << r >> 1)) >> r for v in row] for row in values]
    return np.clip(np.sign(values) * np.array(scaled), -128, 127)


def of_head(op: object, weights: WeightStore, x: Array, y: Array, mask: Array) -> Array:
    """By Python integers; the sum of the exponentials in index order."""
    data = [weights.get(op_name(v.owner)) if hasattr(v.owner, "output") else None for v in op.operands]  # type: ignore[attr-defined]
    numbers = ints(op.quant_param)  # type: ignore[attr-defined]
    fits = [numbers[i : i + 3] for i in range(0, 15, 3)]
    made = [
        half_away(s @ data[3 + 2 * i].astype(int) + data[4 + 2 * i].reshape(-1), fits[i])  # type: ignore[union-attr]
        for i, s in enumerate((x, y, y))
    ]
    scores = half_away(made[0] @ made[1].T, fits[3])
    scores = np.where(mask != 0, np.maximum(scores - 255, -128), scores)
    terms, total = data[12].reshape(-1)[127 - scores], np.float32(0)  # type: ignore[union-attr]
    for column in terms.T:
        total = total + column
    p = terms / (np.asarray(total) * np.float32(1 / 255))[:, None]
    mixed = half_away(np.floor(p.astype(np.float64) + 0.5).clip(0, 255).astype(int) @ made[2], fits[4])
    bias = 0 if data[10] is None else data[10].reshape(-1)
    return mixed @ data[9][0].astype(int) + bias  # type: ignore[index]


def test_a_head_in_integers() -> None:
    """Each batch has a separate row of the mask, of which only 0 is distinguished from other values."""
    model, feeds = lowered(block())
    tensors = run(model, feeds)
    stored = {op_name(op): tensors[op_name(op)] for op in model.ops if op_name(op) in tensors}
    for op in heads_of(model):
        names = [op_name(v.owner) for v in op.operands[:3]]  # type: ignore[attr-defined]
        x, y, mask = stored[names[0]], stored[names[1]], stored[op_name(op.operands[11].owner)]  # type: ignore[attr-defined]
        assert 0 < (mask != 0).mean() < 1
        wanted = [
            of_head(op, model.weights, a.astype(int), b.astype(int), m[0]) for a, b, m in zip(x, y, mask, strict=True)
        ]
        assert np.array_equal(stored[op_name(op)], np.array(wanted))  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["int8", "f16"])
@pytest.mark.parametrize("local", [True, False], ids=["local", "global"])
def test_the_machine_beside_flat(mode: str, local: bool) -> None:
    """In local memory six MM2 and a softmax for each head, in global memory a kernel; integers bit for bit."""
    model, feeds = lowered(block(), mode=mode, chip=CHIP if local else GLOBAL)
    model = to_reordered(model)
    program = to_program(model)
    bodies = [c.body if isinstance(c, GlobalKernel) else c for c in program.commands]
    kinds = [type(b.function).__name__ for b in bodies if isinstance(b, Fn)]
    assert kinds.count("AttentionWeights" if local else "Attention") == HEADS
    assert sum(isinstance(b, MatMul) for b in bodies) == 6 * HEADS * local
    found, wanted = Simulator(program).run(feeds).tensors, run(model, feeds)
    for name, values in found.items():
        if mode == "int8":
            assert np.array_equal(values, wanted[name]), name
        else:  # two roundings of the same sums in another order
            assert np.allclose(values, wanted[name], rtol=0, atol=2**-8), name


def test_a_mask_with_a_zero_point() -> None:
    """By the quirk its bytes are taken as they are: where nothing is masked, all is; without it nothing is lost."""
    biases = {}
    for off in ((), ("attention_mask_bytes",)):
        model, feeds = lowered(block(), asymmetric=True, quirks_off=off)
        mask = heads_of(model)[0].operands[11]  # type: ignore[attr-defined]
        assert (uniform_of(mask.owner.operands[0]).zero_point.value.data) != 0  # type: ignore[union-attr]
        biases[off] = (run(model, feeds)[op_name(mask.owner)] != 0).mean()
    assert biases[()] == 1 and 0 < biases[("attention_mask_bytes",)] < 1


@pytest.mark.parametrize("mode", ["int8", "f16"])
@pytest.mark.parametrize("local", [True, False], ids=["local", "global"])
def test_heads_are_proven(mode: str, local: bool) -> None:
    """A head in a layer group has the expression of the whole block, with a mask for each batch item."""
    model = to_addressed(to_reordered(lowered(block(), mode=mode, chip=CHIP if local else GLOBAL)[0]))
    program = to_program(model)
    proof = prove(model, Simulator(program), wanted=10)
    assert proof.passed and not proof.uncut


def test_a_wrong_head_is_located() -> None:
    """Scores with the values instead of the keys."""
    model = to_addressed(to_reordered(lowered(block(mask=False), mode="f16")[0]))
    program = to_program(model)
    commands = list(program.commands)
    at = next(i for i, c in enumerate(commands) if isinstance(c, MatMul) and c.right_transpose)
    weights = next(c for c in commands[at:] if isinstance(c, MatMul) and not c.right_transpose)
    commands[at] = replace(commands[at], right=weights.right)
    machine = Simulator(replace(program, commands=tuple(commands)), options=SimulatorOptions(sanitize=False))
    proof = prove(model, machine, wanted=10)
    assert proof.wrong is not None and commands[at].op in proof.wrong.command
