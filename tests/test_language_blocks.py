"""Blocks of a language model: equal to the chip's closed simulator, and the machine equal to flat inference."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from builders.llama_block import llama_block
from builders.timings import in_every_order
from llm_numbers import TYPES, kind_of, record

import tpusim
from tpusim import chips
from tpusim.compiled import Compiled
from tpusim.errors import ConfigError
from tpusim.inference import run
from tpusim.ir.attrs import op_name
from tpusim.isa.commands import Fn
from tpusim.isa.functions import FlashBlock
from tpusim.kernel_library.attention import block_sizes
from tpusim.ops.attention import TpuFAttention
from tpusim.ops.interfaces import TwoArithmetics
from tpusim.ops.rmsnorm import TpuRMSNorm

SHARES: dict[str, tuple[float, float, float]] = {
    "cache_bm1684x_w4bf16": (1, 1, 1), "cache_bm1688_w4bf16": (1, 1, 1), "cache_bm1684x_w4f16": (1, 1, 1),
    "kv_bm1684x_w4bf16": (0.99, 1, 1), "block_bm1688_w4bf16": (1, 1, 0.999), "block_bm1684x_w4bf16": (0.99, 0.999, 1),
}  # fmt: skip
"""Equal shares of states, keys and values. What is left: the order of f32 sums inside the array, one unit each."""


@cache
def compiled(name: str, arithmetic: str = "chip") -> tuple[Compiled, dict[str, Any]]:
    found, (_, chip, mode) = record(name), name.split("_")
    x = {key: value for key, value in found.items() if not key.startswith(("sim_", "int_"))}
    history = x["history_k"].shape[1] if "history_k" in x else 0
    proto = llama_block(x["input_states"].shape[1], history)
    return tpusim.compile(proto, [x], chip=chip, mode=mode, high_precision=True, arithmetic=arithmetic), x


def results(tensors: dict[str, np.ndarray], name: str) -> np.ndarray:
    """The network's result of that name, after its cast to f32."""
    return np.asarray([value for key, value in tensors.items() if key.startswith(name)][-1], np.float32)


@pytest.mark.parametrize("name", SHARES)
def test_as_the_chip_computes(name: str) -> None:
    model, x = compiled(name)
    tensors, kind = run(model.tpu, x), TYPES[kind_of(name)]
    for result, least in zip(("output_states", "k_cache", "v_cache"), SHARES[name], strict=True):
        y, wanted = results(tensors, result), record(name)[f"sim_{result}_f32"]
        assert np.mean(y == wanted) >= least, result
        step = np.spacing(np.abs(wanted).astype(kind)).astype(np.float32)
        assert (np.abs(y - wanted) <= 4 * np.maximum(step, np.abs(wanted).max() * 2.0**-10)).all()


@pytest.mark.parametrize("name", ["cache_bm1684x_w4bf16", "kv_bm1684x_w4bf16", "block_bm1688_w4bf16"])
def test_machine_and_flat_inference_agree_in_every_bit(name: str) -> None:
    """Block of keys by block of keys, in every order of DMA; and the program provably computes its module."""
    model, x = compiled(name)
    blocks = [c for c in model.program.commands if isinstance(c, Fn) and isinstance(c.function, FlashBlock)]
    assert len(blocks) == {"cache": 2, "kv": 5, "block": 1}[name.partition("_")[0]]
    flat, machine = run(model.tpu, x), in_every_order(model.program, x)
    shared = [key for key in machine if key in flat]
    assert len(shared) > 10
    for key in shared:
        assert np.array_equal(np.asarray(machine[key], np.float32), np.asarray(flat[key], np.float32)), key
    assert model.prove().passed


def test_heads_of_keys_are_not_repeated() -> None:
    """In both forms of exporters; on BM1684X without shared heads the attention stays apart."""
    x = compiled("kv_bm1684x_w4bf16")[1]
    for late in (True, False):
        model = tpusim.compile(llama_block(16, 64, repeat_late=late), [x], mode="bf16")
        (op,) = (op for op in model.tpu.ops if isinstance(op, TpuFAttention))
        assert (op.q_head.value.data, op.kv_head.value.data) == (4, 2)
        assert not any(op.name == "tpu.Tile" for op in model.tpu.ops)
        assert op.key_block is None and op.as_interpreter


def test_the_interpreters_arithmetic() -> None:
    """Every op that has two says so, and the results are others."""
    (model, x), (other, _) = compiled("cache_bm1684x_w4bf16"), compiled("cache_bm1684x_w4bf16", "interpreter")
    able = [
        [op for op in m.tpu.ops if isinstance(op, TwoArithmetics) and op.name != "tpu.Cast"] for m in (model, other)
    ]
    assert len(able[0]) == len(able[1]) > 8
    assert not any(op.as_interpreter for op in able[0]) and all(op.as_interpreter for op in able[1])
    assert set(model.fidelity.by_arithmetic()) == {"chip"} and set(other.fidelity.by_arithmetic()) == {"interpreter"}
    y, z = (results(run(found.tpu, x), "output_states") for found in (model, other))
    assert 0.1 < np.mean(y == z) < 0.9
    with pytest.raises(ConfigError, match="arithmetic 'real': one of chip, interpreter is required"):
        tpusim.compile(llama_block(1, 64), [x], mode="bf16", arithmetic="real")


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_norms_of_the_interpreter_on_the_machine(kind: str) -> None:
    """Equal but for ties: the two executors add up the squares in f32 in order, and in double."""
    model, x = compiled(f"cache_bm1684x_w4{kind}", "interpreter")
    flat, machine = run(model.tpu, x), tpusim.simulate(model.program, x).tensors
    names = [op_name(op) for op in model.tpu.ops if isinstance(op, TpuRMSNorm)]
    assert len(names) == 2
    for name in names:
        pair = [np.asarray(tensors[name], np.float32) for tensors in (flat, machine)]
        assert np.mean(pair[0] == pair[1]) > 0.99 and np.allclose(*pair, rtol=0.01)


MEASURED = [
    ("bm1684x", (64, 64, 4, 2, 64), 64), ("bm1688", (64, 64, 4, 2, 64), 64), ("bm1684x", (16, 80, 4, 2, 64), 16),
    ("bm1688", (16, 80, 4, 2, 64), 16), ("bm1684x", (256, 256, 16, 8, 128), 256),
    ("bm1684x", (512, 512, 16, 8, 128), 512), ("bm1688", (512, 512, 16, 8, 128), 256),
    ("bm1684x", (512, 512, 14, 2, 64), 256), ("bm1688", (512, 512, 14, 2, 64), 128),
    ("bm1684x", (128, 2176, 16, 8, 128), 128), ("bm1684x", (1, 65, 4, 2, 64), 64), ("bm1688", (1, 65, 4, 2, 64), 32),
    ("bm1684x", (1, 129, 4, 2, 64), 64), ("bm1688", (1, 129, 4, 2, 64), 64), ("bm1684x", (1, 257, 16, 8, 128), 128),
    ("bm1688", (1, 257, 16, 8, 128), 128), ("bm1684x", (1, 513, 9, 3, 64), 256), ("bm1688", (1, 513, 9, 3, 64), 256),
    ("bm1684x", (1, 1025, 16, 8, 128), 256), ("bm1688", (1, 1025, 16, 8, 128), 128),
    ("bm1684x", (1, 2049, 14, 2, 64), 1024), ("bm1688", (1, 2049, 14, 2, 64), 1024), ("bm1690", (1, 65, 4, 2, 64), 64),
]  # fmt: skip
"""Chip, (queries, keys, heads, heads of keys, elements of a head): keys of a block that TPU-MLIR 1.30.2 has."""


@pytest.mark.parametrize(("chip", "sizes", "block"), MEASURED, ids=str)
def test_blocks_of_keys(chip: str, sizes: tuple[int, int, int, int, int], block: int) -> None:
    rows, keys, heads, kv, size = sizes
    assert block_sizes(rows, keys, kv, size, chips.load(chip), heads // kv)[1] == block
