"""The clock is monotone: a command that is larger along one axis never takes less time (DH-07).

Two exceptions are the real compiler's too. It merges a kernel's axis into few channels by a rule that does not ask for
the time (hardware.md 2.4), so that a convolution with more channels may be quicker unmerged. And on CV18xx a
convolution of fewer channels than a strided row needs fetches waits for them, longer than more channels take, and one
channel is read alone where two of more are read at once (the open model of hardware.md 5.3).

Transfers are monotone but for the share of the memory channels that few pages have, an exception that the real
compiler's profile has too (DH-08): 768 bytes of bm1688 take longer than 896.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from msgspec.structs import replace

from tpusim import chips
from tpusim.chips import ChipSpec
from tpusim.isa import commands as isa
from tpusim.isa.cycles import dma_ns, tiu_cycles
from tpusim.isa.functions import AddInt, Lrn, Softmax
from tpusim.isa.region import DType, View

Sizes = Mapping[str, int]
MOST = {"n": 3, "c": 200, "oc": 200, "h": 40, "w": 40, "kh": 7, "kw": 7, "rows": 200, "inner": 400, "columns": 400}
MOST_FETCHES = 5
"""Of a row with stride 4 on CV18xx."""
FEW, MANY = 400, 20_000
COMMON = {"id": 1, "dep": 0, "op": "op"}


def local(shape: tuple[int, ...], dtype: DType = "i8") -> View:
    return View("lmem", 0, shape, dtype, "aligned")


def image(s: Sizes, dtype: DType = "i8", stride: int = 1) -> View:
    return local((s["n"], s["c"], (s["h"] - 1) * stride + s["kh"], (s["w"] - 1) * stride + s["kw"]), dtype)


def conv(s: Sizes, stride: int) -> isa.Command:
    filter, bias = local((1, s["oc"], 1, s["c"] * s["kh"] * s["kw"])), local((1, s["oc"], 1, 1), "i32")
    return isa.Conv(
        input=image(s, stride=stride), filter=filter, bias=bias, requant=isa.Requant(), kernel=(s["kh"], s["kw"]),
        strides=(stride, stride), output=local((s["n"], s["oc"], s["h"], s["w"])), **COMMON,
    )  # fmt: skip


def depthwise(s: Sizes, stride: int) -> isa.Command:
    filter, output = local((1, s["c"], 1, s["kh"] * s["kw"])), local((s["n"], s["c"], s["h"], s["w"]))
    return isa.Depthwise(
        input=image(s, stride=stride), filter=filter, output=output, requant=isa.Requant(),
        kernel=(s["kh"], s["kw"]), strides=(stride, stride), **COMMON,
    )  # fmt: skip


def pool(s: Sizes, stride: int) -> isa.Command:
    output = local((s["n"], s["c"], s["h"], s["w"]))
    kernel, strides = (s["kh"], s["kw"]), (stride, stride)
    return isa.Pool(mode="max", input=image(s, stride=stride), output=output, kernel=kernel, strides=strides, **COMMON)


def product(s: Sizes, stride: int) -> isa.Command:
    del stride
    left, right = local((1, s["rows"], s["inner"], 1)), local((1, s["inner"], s["columns"], 1))
    return isa.MatMul(
        left=left, right=right, output=local((1, s["rows"], s["columns"], 1)), requant=isa.Requant(), **COMMON
    )


def element_wise(s: Sizes, stride: int) -> isa.Command:
    shape = (s["n"], s["c"], s["h"], s["w"])
    if stride == 1:
        return isa.Quantize(input=local(shape, "f32"), output=local(shape), scale=1.0, **COMMON)
    function = (AddInt((1, 1), (0, 0), (0, 0), 0, True), Softmax(1), Lrn(5, 1.0, 0.75, 1.0))[stride - 2]
    inputs = (local(shape),) * 2 if isinstance(function, AddInt) else (local(shape, "f32"),)
    return isa.Fn(function=function, inputs=inputs, output=inputs[0], **COMMON)


COMMANDS: dict[str, tuple[Callable[[Sizes, int], isa.Command], tuple[str, ...]]] = {
    "conv": (conv, ("n", "c", "oc", "h", "w", "kh", "kw")),
    "depthwise": (depthwise, ("n", "c", "h", "w", "kh", "kw")),
    "pool": (pool, ("n", "c", "h", "w", "kh", "kw")),
    "product": (product, ("rows", "inner", "columns")),
    "element_wise": (element_wise, ("n", "c", "h", "w")),
}


def merged(s: Sizes, chip: ChipSpec) -> tuple[bool, ...]:
    """What the choice of hardware.md 2.4 depends on."""
    kernels = (s["kh"] * s["kw"], s["kh"], s["kw"])
    return s["kh"] > 1, s["kw"] > 1, s["kh"] < s["kw"], *(s["c"] * k <= chip.ic_parallel_bytes for k in kernels)


def on_chip(command: isa.Command, chip: ChipSpec) -> isa.Command:
    """A convolution as the chip's compiler merges its kernel."""
    if not isinstance(command, isa.Conv):
        return command
    kh, kw = command.kernel
    return replace(command, merged=chip.merged_kernel_axes(1, command.input.shape[1], (kh, kw)))


def pairs(chip: ChipSpec, count: int) -> list[str]:
    """Which of so many random pairs of commands cost less where they are larger."""
    random, found = np.random.default_rng(7), list[str]()
    for number in range(count):
        name, (build, axes) = list(COMMANDS.items())[number % len(COMMANDS)]
        sizes = {axis: int(random.integers(1, most + 1)) for axis, most in MOST.items()}
        axis, stride = str(random.choice(axes)), int(random.integers(1, 5))
        larger = {**sizes, axis: sizes[axis] + int(random.integers(1, 17))}
        cv18xx = chip.hardware.cycle_model == "cv18xx"
        if cv18xx and (name == "element_wise" and stride > 2 or name == "conv" and sizes["c"] <= MOST_FETCHES):
            continue  # float functions have no command on this chip
        if chip.hardware.merges_kernels and name == "conv" and merged(sizes, chip) != merged(larger, chip):
            continue
        before, after = (tiu_cycles(on_chip(build(s, stride), chip), chip) for s in (sizes, larger))
        if after < before:
            found.append(f"{name} stride {stride} {axis} {sizes[axis]} -> {larger[axis]}: {before} -> {after} {sizes}")
    return found


@pytest.mark.parametrize("chip", ["bm1684x", "bm1688", "bm1684", "cv183x"])
def test_a_larger_command_never_takes_less(chip: str) -> None:
    assert pairs(chips.load(chip), FEW) == []


@pytest.mark.slow
@pytest.mark.parametrize("chip", chips.available())
def test_many_larger_commands_never_take_less(chip: str) -> None:
    assert pairs(chips.load(chip), MANY) == []


@pytest.mark.parametrize("chip", ["bm1684x", "bm1688"])
def test_a_longer_transfer_takes_less_by_its_pages_alone(chip: str) -> None:
    """The rate is the share of the memory channels that the pages have; without it nothing longer is quicker."""
    spec, random = chips.load(chip), np.random.default_rng(3)

    def share(channels: int, columns: int) -> float:
        begins = {(c * columns + at) // spec.dma_page_bytes
                  for c in range(channels) for at in range(0, columns, spec.dma_page_bytes)}  # fmt: skip
        return min(len(begins), spec.dma_channels) / spec.dma_channels

    def load(channels: int, columns: int) -> float:
        source = View("gmem", 0, (1, channels, 1, columns), "i8", "dense")
        return dma_ns(isa.Move(input=source, output=local(source.shape), **COMMON), spec)

    for _ in range(FEW):
        channels, columns, more = (int(n) for n in random.integers(1, 300, 3))
        first, second = (
            (load(c, columns) - spec.dma_latency_ns) * share(c, columns) for c in (channels, channels + more)
        )
        assert second >= first * (1 - 1e-9)
