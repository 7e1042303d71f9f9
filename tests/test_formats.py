"""Number formats and scales as values, quantised types per axis, values of 4 bits in files, views and memory."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from msgspec import structs
from streams import NEURON, Builder, gmem, lmem
from xdsl.dialects.builtin import i1
from xdsl.utils.exceptions import VerifyException

from tpusim import chips, ops
from tpusim.chips import ChipSpec
from tpusim.errors import CommandError, ConfigError, ImportModelError, SimulationError
from tpusim.ir.formats import (
    BF16,
    F8E5M2,
    F16,
    F32,
    INT8,
    INT8_ASYMMETRIC,
    W4BF16,
    W4F16,
    W4INT8,
    W8BF16,
    W8F16,
    ModeName,
    NumberFormat,
    number_format,
)
from tpusim.ir.module import Model, load_model, save_model
from tpusim.ir.packing import pack, packed_shape, unpack
from tpusim.ir.quantisation import QuantParams, quantised_weight
from tpusim.ir.text import parse_module, print_module
from tpusim.ir.types import (
    UniformType,
    element_of,
    element_type,
    is_packed,
    storage_bits,
    storage_dtype,
    stored_bytes,
)
from tpusim.ir.weights import WeightStore
from tpusim.isa.commands import Conv, Move, Requant
from tpusim.isa.layout import channel_stride, distance_bytes, extent, gmem_bytes, gmem_strides, lmem_bytes, lmem_strides
from tpusim.isa.listing import assemble, listing
from tpusim.isa.region import View, byte_view
from tpusim.isa.stream import load, save
from tpusim.isa.text import command_line, parse_command
from tpusim.ops.framework.logical import TensorSlice
from tpusim.ops.framework.views import transfers
from tpusim.registry import FORMATS
from tpusim.simulator import Simulator
from tpusim.simulator.memory import Machine, Region

Array = np.ndarray
RNG = np.random.default_rng(4)


# ------------------------------------------------------------------------------------------------------------- formats


def test_names_are_looked_up_in_one_place() -> None:
    assert set(get_args(ModeName)) == set(FORMATS) and all(f.name == name for name, f in FORMATS.shipped().items())
    assert [number_format(name) for name in FORMATS] == [
        F32,
        F16,
        BF16,
        INT8,
        W4F16,
        W4BF16,
        W8F16,
        W8BF16,
        W4INT8,
        F8E5M2,
    ]
    assert number_format("int8", asymmetric=True) == INT8_ASYMMETRIC != INT8
    assert number_format("bf16", asymmetric=True) is BF16 and number_format(F32) is F32
    with pytest.raises(
        ConfigError,
        match="mode 'int3': one of f32, f16, bf16, int8, w4f16, .* f8e5m2, or a .*NumberFormat is required",
    ):
        number_format("int3")


def test_what_a_format_says() -> None:
    assert (INT8.families, INT8.calibrated, INT8.title, INT8_ASYMMETRIC.title) == (
        ("integer", "float"), True, "int8", "int8-asym"
    )  # fmt: skip
    assert (BF16.families, BF16.calibrated, BF16.weight_bits, str(BF16)) == (("float",), False, 16, "bf16")
    w4f16 = NumberFormat("w4f16", "w4f16", "f16", "u4", "f32", "group", 64, fallback=("float",), unit="f16")
    assert (w4f16.calibrated, w4f16.weight_bits, w4f16.needs, w4f16.spelling) == (False, 4, "f16", "W4F16")
    assert NumberFormat("mine", "mine") == NumberFormat("mine", "mine", methods={"top.Add": lambda op, ctx: ""})


@pytest.mark.parametrize("axis, group", [(None, 0), (0, 0), (1, 0), (1, 3), (0, 2)])
def test_weights_are_quantised_by_tensor_axis_and_group(axis: int | None, group: int) -> None:
    """Element by element: the nearest multiple of the largest magnitude of its part over 7."""
    w = RNG.normal(size=(4, 6)).astype(np.float32)
    w[2] = 0.0
    stored, params = quantised_weight(w, 4, axis=axis, group_size=group)
    assert (stored.dtype, stored.shape, params.bits, params.axis, params.group_size) == (
        np.int8,
        w.shape,
        4,
        axis,
        group,
    )
    parts: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for i, j in product(range(4), range(6)):
        along, across = ((j, i) if axis == 1 else (i, j)) if axis is not None else (0, 0)
        parts.setdefault((across, along // group) if group else (along,), []).append((i, j))
    assert len(parts) == len(params.scales)
    for key, scale in zip(sorted(parts), params.scales, strict=True):
        largest = max(abs(float(w[at])) for at in parts[key])
        assert scale == (largest / 7 if largest else 1e-5)
        assert all(stored[at] == round(float(w[at]) / scale) for at in parts[key])


def test_parameters_of_several_scales_have_no_single_one() -> None:
    params = QuantParams((0.5, 0.25), (0, 1), False, 4, 0)
    assert params.limits == (0, 15) and params.dtype == "uint8"
    with pytest.raises(ValueError, match="one scale is required, got 2 along axis 0"):
        _ = params.scale
    with pytest.raises(ValueError, match="got groups of 8"):
        UniformType.of_params(QuantParams((0.5,), (0,), group_size=8))
    with pytest.raises(ValueError, match="groups of 4 do not divide an axis of 6"):
        quantised_weight(np.zeros((2, 6)), 4, axis=1, group_size=4)


# --------------------------------------------------------------------------------------------------------------- types

PER_AXIS = "!quant.uniform<i8:f32:0, {0.1:1,0.2:-5,0.3}>"
"""As `tpuc-opt` of TPU-MLIR prints it, but for its six decimals."""
FIVE = QuantParams((1e-8, 0.5, 0.5, 0.5, 2.0), (15, 0, 0, 0, 0), False, 4, 1)


def module_of(element: str, shape: str = "3x5") -> str:
    return (
        f'module {{\n  func.func @main() -> tensor<{shape}x{element}> {{\n    %0 = "top.Weight"() : () -> '
        f'tensor<{shape}x{element}> loc("w")\n    func.return %0 : tensor<{shape}x{element}>\n  }}\n}}\n'
    )


@pytest.mark.parametrize(
    "element, read",
    [
        (PER_AXIS, QuantParams((0.1, 0.2, 0.3), (1, -5, 0), True, 8, 0)),
        ("!quant.uniform<u4:f32:1, {1.0e-08:15,0.5,0.5,0.5,2.0}>", FIVE),
        ("!quant.uniform<i4:f32, 0.5:-8>", QuantParams.of(0.5, -8, bits=4)),
    ],
)  # fmt: skip
def test_quantised_types_round_trip(element: str, read: QuantParams) -> None:
    module = parse_module(module_of(element), ops.context())
    found = element_of(next(op for op in module.walk() if op.name == "top.Weight").results[0])
    assert isinstance(found, UniformType) and found.params == read and UniformType.of_params(read) == found
    printed = print_module(module)
    assert element in printed and print_module(parse_module(printed, ops.context())) == printed
    spaced = printed.replace(",0.", ", 0.")
    assert print_module(parse_module(spaced, ops.context())) == printed


@pytest.mark.parametrize(
    "element, why",
    [
        ("!quant.uniform<i8:f32:0, {}>", "a scale and a zero point for each index"),
        ("!quant.uniform<i8:f32:-1, {0.5}>", "line 2"),
        ("!quant.uniform<i8:f32:0, 0.5>", "line 2"),
        ("!quant.uniform<i8:f32, {0.5}>", "line 2"),
        ("!quant.uniform<u4:f32:0, {0.5,0.5,0.5:16}>", r"a zero point in \[0, 15\], got 16"),
        ("!quant.uniform<i4:f32:0, {0.5,-0.5,0.5}>", "a positive finite scale, got -0.5"),
        ("!quant.uniform<i4:f32:0, {0.5,0.5}>", "2 scales along axis 0 do not fit the shape"),
        ("!quant.uniform<i4:f32:7, {0.5,0.5}>", "2 scales along axis 7 do not fit the shape"),
    ],
)
def test_wrong_quantised_types(element: str, why: str) -> None:
    with pytest.raises(ImportModelError, match=why):
        parse_module(module_of(element), ops.context())


def test_scales_without_an_axis_are_refused() -> None:
    with pytest.raises(VerifyException, match="requires an axis for 2 scales"):
        UniformType.of_params(QuantParams((0.5, 0.5), (0, 0)))
    with pytest.raises(ValueError, match="a type with one scale is required"):
        _ = UniformType.of_params(QuantParams((0.5, 0.5), (0, 0), axis=0)).scale


def test_storage_of_every_type() -> None:
    four = UniformType.of(0.5, bits=4, signed=False)
    assert (storage_dtype(four), storage_bits(four), is_packed(four)) == (np.uint8, 4, True)
    found = [
        (storage_dtype(e).name, storage_bits(e)) for e in map(element_type, ("i4", "u4", "i8", "u16", "bf16", "f32"))
    ]
    assert found == [("int8", 4), ("uint8", 4), ("int8", 8), ("uint16", 16), ("bfloat16", 16), ("float32", 32)]
    for wrong in ("i5", "f8", "x", "i"):
        with pytest.raises(TypeError):
            element_type(wrong)
    with pytest.raises(TypeError, match="no storage for element type i1"):
        storage_dtype(i1)
    assert not is_packed(i1)


# ------------------------------------------------------------------------------------------------------------- packing

SHAPES = [(1,), (5,), (4, 6), (2, 3, 5), (2, 3, 5, 1), (3, 1, 1), (1, 1), ()]


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_two_values_share_a_byte_low_half_first(shape: tuple[int, ...], signed: bool) -> None:
    low, high = (-8, 8) if signed else (0, 16)
    values = RNG.integers(low, high, shape).astype(np.int8 if signed else np.uint8)
    stored = pack(values)
    assert stored.shape == packed_shape(shape) and stored.dtype == np.uint8
    length = next((size for size in reversed(shape) if size > 1), 1)
    halves = [[int(v) % 16 for v in row] + [0] * (length % 2) for row in values.reshape(-1, length)]
    expected = [row[i] + 16 * row[i + 1] for row in halves for i in range(0, len(row), 2)]
    assert stored.reshape(-1).tolist() == expected
    again = unpack(stored, shape, signed=signed)
    assert again.dtype == values.dtype and np.array_equal(again, values)


def test_values_of_more_bits_are_not_packed() -> None:
    with pytest.raises(ValueError, match="values of 4 bits are -8 to 7, got -9 to 3"):
        pack(np.array([-9, 3], np.int8))
    with pytest.raises(ValueError, match=r"uint8 \(2,\) is required, got uint8 \(3,\)"):
        unpack(np.zeros(3, np.uint8), (4,), signed=True)


@pytest.mark.parametrize("element", ["i4", "ui4", "!quant.uniform<u4:f32:0, {0.1,0.2:3,0.3}>"])
def test_weight_files_hold_packed_values(tmp_path: Path, element: str) -> None:
    signed = element == "i4"
    values = RNG.integers(*((-8, 8) if signed else (0, 16)), (3, 5)).astype(np.int8 if signed else np.uint8)
    model = Model(parse_module(module_of(element), ops.context()), WeightStore({"w": values}))
    save_model(model, tmp_path / "m.mlir", weight_file="w.npz")
    with np.load(tmp_path / "w.npz") as stored:
        assert (stored["w"].dtype, stored["w"].shape) == (np.uint8, (3, 3))
    again = load_model(tmp_path / "m.mlir", ops.context())
    assert again.weights["w"].dtype == values.dtype and np.array_equal(again.weights["w"], values)
    weight = next(op for op in again.module.walk() if op.name == "top.Weight")
    assert stored_bytes(weight.results[0]) == 9
    np.savez(tmp_path / "w.npz", w=np.zeros((3, 2), np.uint8))
    with pytest.raises(ImportModelError, match=r"'w' is uint8 \(3, 2\), not u?int8 \(3, 5\)"):
        load_model(tmp_path / "m.mlir", ops.context())


# --------------------------------------------------------------------------------------------------- views and memories

REGIONS = (Region("coefficients", 0, 0, writable=False), Region("neurons", NEURON, 4096, writable=True))
VIEWS = [
    lmem(128, (2, 70, 3, 5), "i4"),
    lmem(64, (1, 9, 3, 4), "u4", "compact", lane=60),
    lmem(128, (2, 70, 9, 1), "i4"),
    lmem(3, (1, 5, 1, 1), "i4", "compact"),
    lmem(5, (1, 70, 2, 5), "u4", "strided", strides=(0, 20, 8, 1)),
    gmem(NEURON + 7, (3, 5), "i4"),
    gmem(NEURON, (2, 3, 5, 1), "u4"),
    gmem(NEURON + 1, (4, 3), "i4", "strided", strides=(10, 1)),
    gmem(NEURON + 64, (1, 70, 1, 9), "i4", "compact", lane_pitch=16),
]


def half_bytes(view: View, chip: ChipSpec, index: tuple[int, ...]) -> int:
    """Which half byte of the memory an element is, from hardware.md 2.1; rows begin at whole bytes."""
    sizes = list(view.shape)
    axis = max((i for i, size in enumerate(sizes) if size > 1 and (i > 1 or not view.laned)), default=len(sizes) - 1)
    if view.strides is not None and not view.laned:
        return 2 * (view.address - NEURON) + sum(i * s for i, s in zip(index, view.strides, strict=True))
    sizes[axis] += sizes[axis] % 2
    if not view.laned:
        return 2 * (view.address - NEURON) + int(np.ravel_multi_index(index, sizes))
    lane, row = (view.lane + index[1]) % chip.lanes, (view.lane + index[1]) // chip.lanes
    unit = 2 * chip.eu_bytes if view.layout == "aligned" else 1
    if chip.hardware.batch_packing and view.layout == "aligned":
        unit = 2 * (chip.eu_bytes // 4)
    plane = -(-sizes[2] * sizes[3] // unit) * unit
    rows = -(-(view.lane + sizes[1]) // chip.lanes)
    strides = view.strides or (rows * plane, plane, sizes[3], 1)
    base = lane * chip.lmem_bytes + view.address
    if view.memory == "gmem":
        base = lane * view.lane_pitch + view.address - NEURON
    return 2 * base + sum(i * s for i, s in zip((index[0], row, *index[2:]), strides, strict=True))


@pytest.mark.parametrize("chip", ["bm1684x", "bm1684"])
@pytest.mark.parametrize("view", VIEWS, ids=lambda v: f"{v.memory}-{v.layout}-{'x'.join(map(str, v.shape))}")
def test_the_machine_reads_and_writes_halves(view: View, chip: str) -> None:
    """Element by element; only bytes of the view change, and half bytes after a row become 0."""
    machine = Machine(chips.load(chip), REGIONS, np.zeros(0, np.uint8))
    buffer = machine.lmem if view.memory == "lmem" else machine.gmem["neurons"]
    buffer[:] = 0x5A
    low, high = (-8, 8) if view.dtype == "i4" else (0, 16)
    values = RNG.integers(low, high, view.shape).astype(np.int8 if view.dtype == "i4" else np.uint8)
    expected, touched = buffer.copy(), {half_bytes(view, machine.chip, i) // 2 for i in np.ndindex(view.shape)}
    expected[list(touched)] = 0
    for index in np.ndindex(view.shape):
        place, odd = divmod(half_bytes(view, machine.chip, index), 2)
        expected[place] |= (int(values[index]) % 16) << (4 * odd)
    machine.write(view, values)
    assert np.array_equal(buffer, expected)
    found = machine.read(view)
    assert found.dtype == values.dtype and np.array_equal(found, values)
    reach = extent(view, machine.chip)
    if not view.laned:
        assert (reach.start, reach.stop) == (NEURON + min(touched), NEURON + max(touched) + 1)
    assert view.nbytes == len(touched)


def test_a_value_of_more_bits_is_not_written() -> None:
    machine = Machine(chips.load("bm1684x"), REGIONS, np.zeros(0, np.uint8))
    with pytest.raises(SimulationError, match="takes i4, -8 to 7, got 0 to 8"):
        machine.write(lmem(0, (1, 1, 1, 2), "i4"), np.array([[[[0, 8]]]], np.int8))


def test_strides_and_sizes_count_elements() -> None:
    chip = chips.load("bm1684x")
    assert lmem_strides(lmem(0, (2, 70, 3, 5), "i4"), chip) == (256, 128, 6, 1)
    assert lmem_strides(lmem(0, (2, 70, 3, 5), "i4", "compact"), chip) == (36, 18, 6, 1)
    assert gmem_strides(gmem(0, (2, 3, 5), "i4")) == (18, 6, 1) and gmem_bytes((2, 3, 5), "i4", chip) == 18
    assert (
        channel_stride(3, 5, "i4", chip, aligned=True) == 128 and channel_stride(9, 1, "u4", chip, aligned=False) == 10
    )
    assert (
        lmem_bytes((2, 70, 3, 5), "i4", chip) == 2 * 2 * 64
        and lmem_bytes((1, 70, 3, 5), "u4", chip, aligned=False) == 18
    )
    assert byte_view(gmem(0, (2, 3, 5), "i4")) == gmem(0, (2, 3, 3), "u8")
    assert distance_bytes(gmem(0, (4, 6), "i4"), 6) == 3


def test_a_view_does_not_start_at_half_a_byte() -> None:
    """A slice at an odd element has no address, and axes whose rows end within a byte cannot be joined."""
    chip = chips.load("bm1684x")
    with pytest.raises(CommandError, match="3 elements after 0x0: it would start at half a byte"):
        distance_bytes(gmem(0, (4, 6), "i4"), 3)
    whole = gmem(0, (1, 4, 6), "i4")
    part = TensorSlice((0, 1), (0, 4), (3, 3), (0, 1))
    with pytest.raises(CommandError, match="half a byte"):
        list(transfers(whole, (1, 4, 1, 6, 1), part, lmem(0, (1, 4, 3, 1), "i4"), chip))
    with pytest.raises(CommandError, match=r"i4 tensor \(1, 4, 5\) at 0x0 as \(1, 1, 1, 4, 5\)|cannot be joined"):
        list(transfers(gmem(0, (1, 4, 5), "i4"), (1, 1, 1, 20, 1), part, lmem(0, (1, 1, 20, 1), "i4"), chip))


def test_four_bits_move_through_text_file_and_machine(tmp_path: Path) -> None:
    """GDMA from coefficients into lanes and back: listing, program file and the sanitised machine agree."""
    values = RNG.integers(-8, 8, (1, 70, 5)).astype(np.int8)
    b = Builder()
    image = pack(values)
    source = structs.replace(b.coefficient(image), shape=values.shape, dtype="i4")
    local = lmem(64, (1, 70, 5, 1), "i4")
    b.add(Move, input=structs.replace(source, shape=(1, 70, 5, 1)), output=local)
    kept = b.tensor("kept", gmem(NEURON, (1, 70, 5, 1), "i4"), "output")
    b.add(Move, input=local, output=kept, tensor="kept")
    program = b.program()
    save(program, tmp_path / "p.tpusim")
    assert load(tmp_path / "p.tpusim").commands == program.commands
    assert assemble(listing(program), program.coefficients).commands == program.commands
    assert parse_command(command_line(program.commands[0])) == program.commands[0]
    assert ":i4:aligned" in command_line(program.commands[0])
    found = Simulator(program).run({}).tensors["kept"]
    assert np.array_equal(found.reshape(values.shape), values)


def convolved(values: Array, dtype: str) -> Array:
    """A 3x3 convolution of 64 channels whose filter lies in memory as `dtype`."""
    b = Builder()
    image = pack(values) if dtype == "i4" else values
    stored = structs.replace(b.coefficient(image), shape=values.shape, dtype=dtype)
    x = b.tensor("x", gmem(NEURON, (1, 64, 4, 4)), "input")
    y = b.tensor("y", gmem(NEURON + 4096, (1, 64, 4, 4)), "output")
    local, filter, result = lmem(0, x.shape), lmem(2048, values.shape, dtype, "compact"), lmem(1024, x.shape)
    b.add(Move, input=x, output=local)
    b.add(Move, input=stored, output=filter)
    b.add(
        Conv, input=local, filter=filter, output=result, kernel=(3, 3), pads=(1, 1, 1, 1), requant=Requant(1, 7)
    )  # fmt: skip
    b.add(Move, input=result, output=y, tensor="y")
    feeds = np.random.default_rng(9).integers(-128, 128, x.shape).astype(np.int8)
    return Simulator(b.program()).run({"x": feeds}).tensors["y"]


def test_a_filter_of_4_bits_gives_what_its_bytes_give() -> None:
    values = RNG.integers(-8, 8, (1, 64, 1, 576)).astype(np.int8)
    found = convolved(values, "i4")
    assert np.array_equal(found, convolved(values, "i8")) and len(np.unique(found)) > 50
