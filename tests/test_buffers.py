"""Room in global memory that the vendor's library needs for global layers: its size, its place, and its text."""

import re
from collections.abc import Callable
from math import prod

import numpy as np
import pytest
from xdsl.ir import Operation, SSAValue

from benchmarks.accuracy.measure import config
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ir.text import parse_module, print_module
from tpusim.ir.types import address_of, element_of, shape_of, storage_dtype
from tpusim.ir.upstream import BUFFER
from tpusim.ir.upstream.final import written
from tpusim.ops import context
from tpusim.ops.elements import TopGatherElements
from tpusim.ops.framework.builder import ModuleBuilder
from tpusim.ops.grid_sampler import TopGridSampler
from tpusim.ops.permute import TopPermute
from tpusim.ops.resize import TopInterp
from tpusim.ops.structure import TopInput
from tpusim.ops.tile import TopTile
from tpusim.passes import PassManager
from tpusim.passes.memory import AddressAssign
from tpusim.passes.pipelines import converted, grouped

Make = Callable[[ModuleBuilder, str], SSAValue]
TEXT = re.compile(r'"tpu.Buffer"\(\) \{buffer_type = #tpu<buffer_type GMEM>\} : \(\) -> tensor<([\w]+), \d+ : i64>')


def permute(shape: tuple[int, ...], order: tuple[int, ...]) -> Make:
    return lambda b, name: TopPermute.make(b, b.input(f"{name}x", shape), order=order, name=name)


def tile(shape: tuple[int, ...], times: tuple[int, ...]) -> Make:
    return lambda b, name: TopTile.make(b, b.input(f"{name}x", shape), tile=times, name=name)


def interp(shape: tuple[int, ...], size: tuple[int, int]) -> Make:
    return lambda b, name: TopInterp.make(
        b, b.input(f"{name}x", shape), size=(*shape[:2], *size), mode="linear", coord_mode="half_pixel", name=name
    )


def gathered(b: ModuleBuilder, name: str) -> SSAValue:
    places = b.weight(f"{name}i", np.zeros((3, 5), "int32"))
    return TopGatherElements.make(b, b.input(f"{name}x", (3, 8)), places, axis=1, name=name)


def sampled(b: ModuleBuilder, name: str) -> SSAValue:
    grid = b.input(f"{name}g", (2, 16, 16, 2))
    return TopGridSampler.make(b, b.input(f"{name}x", (2, 3, 8, 12)), grid, name=name)


def final(chip: str, mode: str, makes: list[Make]) -> Model:
    b = ModuleBuilder()
    results = [make(b, f"y{i}") for i, make in enumerate(makes)]
    passes = PassManager((*converted(config(chip, mode)), *grouped(), AddressAssign()))
    return passes.run(b.finish(results, name="m"))


def layers(model: Model) -> dict[str, Operation]:
    """The ops in global memory that follow the inputs, by name."""
    return {op_name(op): op for op in model.ops if re.fullmatch(r"y\d+", op_name(op))}


CASES: list[tuple[Make, str]] = [
    (permute((6, 8, 64), (1, 0, 2)), "6144xf16"),
    (permute((32, 12, 4, 6), (3, 1, 2, 0)), "18432xf16"),
    (permute((4, 6, 10), (2, 0, 1)), ""),
    (permute((49, 12, 1), (2, 0, 1)), ""),
    (tile((1, 4, 6, 6), (1, 2, 3, 1)), "3456xf32"),
    (tile((2, 4, 6, 6), (2, 2, 1, 3)), "13824xf32"),
    (tile((1, 4, 6, 6), (1, 1, 1, 4)), ""),
    (interp((1, 8, 6, 6), (12, 12)), "2076480xi8"),
    (interp((1, 8, 20, 20), (80, 80)), "2075200xi8"),
    (interp((1, 8, 2, 1), (4, 2)), "1310720xi8"),
    (interp((1, 8, 6, 6), (11, 11)), "3872xi8"),
    (gathered, "3x5xi32"),
    (sampled, "8192xi8"),
]
"""Layers of BM1684X in F16, and the type of the buffer that TPU-MLIR 1.30.2 gives each."""


@pytest.fixture(scope="module")
def model() -> Model:
    return final("bm1684x", "f16", [make for make, _ in CASES])


def test_a_layer_has_the_room_that_the_library_needs(model: Model) -> None:
    found = layers(model)
    for number, (_, wanted) in enumerate(CASES):
        stated = found[f"y{number}"].attributes.get(BUFFER)
        assert ("" if stated is None else str(stated).split("<")[1].split(",")[0]) == wanted, number
    inexact = [name for name, op in found.items() if "ppl_flag" in op.attributes]
    assert inexact == ["y10"]  # the library's other kernel


def test_room_shares_no_byte_with_the_tensors_of_its_op(model: Model) -> None:
    for op in layers(model).values():
        if (room := op.attributes.get(BUFFER)) is not None:
            spans = [span(room)] + [span(v.type) for v in (*op.operands, *op.results) if address_of(v) is not None]
            spans.sort()
            assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:], strict=False)), op


def span(kind: object) -> tuple[int, int]:
    """The first byte of a tensor type, and the one after its last."""
    value = TopInput.create(result_types=[kind]).output  # type: ignore[list-item]
    address = address_of(value)
    assert address is not None
    return address, address + prod(shape_of(value)) * storage_dtype(element_of(value)).itemsize


def test_room_is_an_operand_in_files(model: Model) -> None:
    text = print_module(written(model.module))
    assert sorted(TEXT.findall(text)) == sorted(wanted for _, wanted in CASES if wanted)
    assert BUFFER not in text
    again = parse_module(text, context())
    assert [str(op.attributes.get(BUFFER)) for op in again.walk() if BUFFER in op.attributes] == [
        str(op.attributes[BUFFER]) for op in layers(model).values() if BUFFER in op.attributes
    ]
    assert print_module(written(again)) == text


@pytest.mark.parametrize(("chip", "count"), [("bm1688", "2097120xi8"), ("bm1684", ""), ("cv183x", "")])
def test_other_libraries(chip: str, count: str) -> None:
    found = layers(final(chip, "f16" if chip == "bm1688" else "f32" if chip == "bm1684" else "bf16", [CASES[7][0]]))
    stated = [str(op.attributes[BUFFER]) for op in found.values() if BUFFER in op.attributes]
    assert [one.split("<")[1].split(",")[0] for one in stated] == [count] * bool(count)
