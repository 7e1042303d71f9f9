"""Names of weights and ops survive the passes of other tools, or their loss is said."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.printer import Printer
from xdsl.transforms.canonicalize import CanonicalizePass
from xdsl.transforms.common_subexpression_elimination import CommonSubexpressionElimination
from xdsl.transforms.dead_code_elimination import DeadCodeElimination

from tests.real_folders import TRANSFORM, lowered
from tpusim import ops
from tpusim.cli.opt import optimise
from tpusim.errors import ImportModelError
from tpusim.inference.executor import run
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model, NamesWeight, load_model, save_model
from tpusim.ir.names import names_to_attributes

MODULES: dict[str, Callable[[], Path]] = {
    "top": lambda: TRANSFORM / "m.mlir",
    "int8": lambda: lowered("bm1688-INT8"),
    "bf16": lambda: lowered("cv183x-BF16"),
}
PASSES = [CommonSubexpressionElimination, DeadCodeElimination, CanonicalizePass]


def weight_names(module: ModuleOp) -> list[str]:
    return [op_name(op) for op in module.walk() if op.has_trait(NamesWeight)]


def results(model: Model) -> dict[str, np.ndarray]:
    with np.load(TRANSFORM / "in.npz") as given:
        return run(model, dict(given))


@pytest.mark.parametrize("steps", [[p] for p in PASSES] + [PASSES], ids=lambda steps: steps[0].name + str(len(steps)))
@pytest.mark.parametrize("which", MODULES)
def test_passes_of_xdsl_keep_weights_and_numbers(which: str, steps: list[type[ModulePass]]):
    """The constants of the normalisation-like ops here have equal types and no operands: a textbook CSE merges them."""
    path = MODULES[which]()
    model, before = load_model(path, ops.context()), load_model(path, ops.context())
    for step in steps:
        step().apply(Context(), model.module)
    assert weight_names(model.module) == weight_names(before.module)
    ours, expected = results(model), results(before)
    for name, array in ours.items():
        np.testing.assert_array_equal(array, expected[name])
    assert set(ours) == set(expected)


def test_a_weight_without_users_goes():
    model = load_model(TRANSFORM / "m.mlir", ops.context())
    weight = next(op for op in model.module.walk() if op.has_trait(NamesWeight))
    copy = weight.clone()
    model.body.insert_op_before(copy, weight)
    count = len(weight_names(model.module))
    DeadCodeElimination().apply(Context(), model.module)
    assert copy.parent is None and len(weight_names(model.module)) == count - 1


def without_locations(module: ModuleOp) -> str:
    stream = io.StringIO()
    Printer(stream, print_debuginfo=False).print_op(module)
    return stream.getvalue()


@pytest.mark.parametrize("which", MODULES)
def test_a_module_that_lost_its_names_says_how_to_keep_them(tmp_path: Path, which: str):
    model = load_model(MODULES[which](), ops.context())
    save_model(model, tmp_path / "m.mlir", weight_file="w.npz")
    count = len(weight_names(model.module))
    for op in model.module.walk():
        for result in op.results:
            result.name_hint = None
    (tmp_path / "m.mlir").write_text(without_locations(model.module))
    with pytest.raises(ImportModelError, match=rf"got {count} of {count} without one; .*--mlir-print-debuginfo"):
        load_model(tmp_path / "m.mlir", ops.context())


@pytest.mark.parametrize("which", MODULES)
def test_names_as_attributes_come_back_without_locations(tmp_path: Path, which: str):
    model = load_model(MODULES[which](), ops.context())
    save_model(model, tmp_path / "m.mlir", weight_file="w.npz")
    assert optimise([str(tmp_path / "m.mlir"), "--names-as-attributes", "-o", str(tmp_path / "named.mlir")]) == 0
    printed = (tmp_path / "named.mlir").read_text()
    assert f'tpusim.name = "{weight_names(model.module)[0]}"' in printed
    named = load_model(tmp_path / "named.mlir", ops.context())
    assert "tpusim.name" not in {key for op in named.module.walk() for key in op.attributes}
    names_to_attributes(named.module)
    (tmp_path / "named.mlir").write_text(without_locations(named.module))
    again = load_model(tmp_path / "named.mlir", ops.context())
    assert [op_name(op) for op in again.ops] == [op_name(op) for op in model.ops]
    expected = results(model)
    assert all(np.array_equal(array, expected[name]) for name, array in results(again).items())
