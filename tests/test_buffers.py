"""Room in global memory that the vendor's library needs for global layers: its size, its place, and its text."""

import re
from collections.abc import Callable
from math import prod

import numpy as np
import pytest
from xdsl.ir import Operation, SSAValue

from benchmarks.accuracy.measure import config
from tpusim.ir.attrs import flag, float_attr, ints_attr, op_name, text
from tpusim.ir.modes import ResizeCoordinates, ResizeMode
from tpusim.ir.module import Model
from tpusim.ir.text import parse_module, print_module
from tpusim.ir.types import address_of, element_of, shape_of, storage_dtype
from tpusim.ir.upstream import BUFFER
from tpusim.ir.upstream.final import written
from tpusim.ops import context
from tpusim.ops.elements import TopGatherElements, TopScatterElements
from tpusim.ops.framework.builder import ModuleBuilder
from tpusim.ops.grid_sampler import TopGridSampler
from tpusim.ops.interfaces import GlobalBuffer
from tpusim.ops.permute import TopPermute
from tpusim.ops.recurrent import TopGRU, TopLSTM, TopRecurrent
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


def nearest(shape: tuple[int, ...], size: tuple[int, int]) -> Make:
    """TPU-MLIR's Interp of mode nearest with asymmetric coordinates."""

    def make(b: ModuleBuilder, name: str) -> SSAValue:
        steps = [before / after for before, after in zip(shape[2:], size, strict=True)]
        attributes = {
            "target_shape": ints_attr(size), "scale_h": float_attr(steps[0]), "scale_w": float_attr(steps[1]),
            "align_corners": flag(False), "mode": text(ResizeMode.NEAREST),
            "coord_mode": text(ResizeCoordinates.ASYMMETRIC),
        }  # fmt: skip
        return b.build(TopInterp, [b.input(f"{name}x", shape)], attributes, name)

    return make


def gathered(b: ModuleBuilder, name: str) -> SSAValue:
    places = b.weight(f"{name}i", np.zeros((3, 5), "int32"))
    return TopGatherElements.make(b, b.input(f"{name}x", (3, 8)), places, axis=1, name=name)


def scattered(b: ModuleBuilder, name: str) -> SSAValue:
    places, updates = b.weight(f"{name}i", np.zeros((3, 5), "int32")), b.input(f"{name}u", (3, 5))
    return TopScatterElements.make(b, b.input(f"{name}x", (3, 8)), places, updates, axis=1, name=name)


def recurrent(kind: type[TopRecurrent], gates: int) -> Make:
    def make(b: ModuleBuilder, name: str) -> SSAValue:
        wide, square = (b.weight(f"{name}{n}", np.ones((1, gates * 4, n), "float32")) for n in (6, 4))
        x = b.input(f"{name}x", (3, 2, 6))
        return kind.make(b, x, [wide, square], hidden=4, bidirectional=False, result="Y", whole=name, name=name)

    return make


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
    (nearest((1, 8, 6, 6), (9, 9)), "2592xi8"),
    (nearest((1, 8, 10, 12), (5, 18)), "2880xi8"),
    (nearest((1, 8, 6, 6), (12, 24)), "2076480xi8"),
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
    inexact = {name for name, op in found.items() if "ppl_flag" in op.attributes}
    assert inexact == {"y10", "y11", "y12"}  # the library's other kernel


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
    printed = print_module(written(model.module))
    assert sorted(TEXT.findall(printed)) == sorted(wanted for _, wanted in CASES if wanted)
    assert BUFFER not in printed
    again = parse_module(printed, context())
    assert [str(op.attributes.get(BUFFER)) for op in again.walk() if BUFFER in op.attributes] == [
        str(op.attributes[BUFFER]) for op in layers(model).values() if BUFFER in op.attributes
    ]
    assert print_module(written(again)) == printed


ONE_OF_EACH: dict[str, Make] = {
    "tpu.Permute": CASES[0][0], "tpu.Tile": CASES[4][0], "tpu.Interp": CASES[7][0], "tpu.GatherElements": gathered,
    "tpu.ScatterElements": scattered, "tpu.GridSampler": sampled, "tpu.LSTM": recurrent(TopLSTM, 4),
    "tpu.GRU": recurrent(TopGRU, 3),
}  # fmt: skip


def kinds(cls: type) -> set[str]:
    """The names of the ops that implement an interface."""
    return {name for sub in cls.__subclasses__() for name in ({sub.__dict__.get("name", "")} | kinds(sub)) if name}


@pytest.mark.parametrize("chip", ["bm1684x", "bm1688"])
def test_every_op_with_a_buffer_is_read_as_it_was_written(chip: str) -> None:
    assert kinds(GlobalBuffer) == set(ONE_OF_EACH)
    model = final(chip, "f32", list(ONE_OF_EACH.values()))  # in f16 a cast and a transposing load replace the Permute
    stated = {op.name: str(op.attributes.get(BUFFER)) for op in layers(model).values()}
    assert set(stated) == set(ONE_OF_EACH)
    assert "None" not in stated.values()
    printed = print_module(written(model.module))
    assert len(TEXT.findall(printed)) == len(ONE_OF_EACH)
    again = parse_module(printed, context())
    assert {op.name: str(op.attributes[BUFFER]) for op in again.walk() if BUFFER in op.attributes} == stated
    assert "tpu.Buffer" not in {op.name for op in again.walk()}
    assert print_module(written(again)) == printed


def test_a_buffer_follows_an_open_number_of_operands() -> None:
    buffer = '%u = "tpu.Buffer"() {buffer_type = #tpu<buffer_type GMEM>} : () -> tensor<4096xi8, 4096 : i64>'
    given = parse_module(
        f"""func.func @main(%a: tensor<1x6x4xf32>, %b: tensor<1x1x6xf32>) -> tensor<4x3xi32> {{
          {buffer}
          %r = "tpu.Nms"(%a, %b, %u) {{center_point_box = 0 : i64, max_output_size = 4 : i64,
            iou_threshold = 5.0e-01 : f64, score_threshold = 1.0e-01 : f64}}
            : (tensor<1x6x4xf32>, tensor<1x1x6xf32>, tensor<4096xi8, 4096 : i64>) -> tensor<4x3xi32>
          return %r : tensor<4x3xi32>
        }}""",
        context(),
    )
    printed = print_module(written(given))
    assert '"tpu.Nms"(%a, %b, %0)' in printed
    assert TEXT.findall(printed) == ["4096xi8"]
    assert print_module(written(parse_module(printed, context()))) == printed


@pytest.mark.parametrize(("chip", "count"), [("bm1688", "2097120xi8"), ("bm1684", ""), ("cv183x", "")])
def test_other_libraries(chip: str, count: str) -> None:
    found = layers(final(chip, "f16" if chip == "bm1688" else "f32" if chip == "bm1684" else "bf16", [CASES[7][0]]))
    stated = [str(op.attributes[BUFFER]) for op in found.values() if BUFFER in op.attributes]
    assert [one.split("<")[1].split(",")[0] for one in stated] == [count] * bool(count)
