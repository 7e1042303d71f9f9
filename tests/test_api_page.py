"""docs/api.md has every public name: what `tpusim` exports, what its calls take and give, and the kernels."""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import tpusim_kernels

import tpusim
from tpusim import compiled, compiled_nets

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs/api.md").read_text(encoding="utf-8")
PAGE = re.findall(r"^::: (\S+)$", TEXT, re.M)
MEMBERS = re.search(r"members: \[(.*)\]", TEXT)


def where(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def classes_in(hint: Any) -> Iterator[type]:
    """Our classes in an annotation."""
    if inspect.isclass(hint) and hint.__module__.startswith("tpusim"):
        yield hint
    if get_origin(hint) in (Union, UnionType) or get_args(hint):
        for part in get_args(hint):
            yield from classes_in(part)


def hints_of(function: Any) -> dict[str, Any]:
    """Annotations, resolved with the names that only type checkers import."""
    known: dict[str, Any] = {}
    for module in (
        "numpy",
        "pathlib",
        "collections.abc",
        "typing",
        "tpusim.studies.explore.whatif",
        "tpusim.studies.diagnosis",
        "tpusim.studies.training",
        "tpusim.proof",
    ):
        known |= vars(import_module(module))
    for name in (
        "calibration.stage", "calibration.table", "compiled", "compiled_nets", "frontend.reference", "images",
        "ir.formats", "ir.module", "isa.nets", "isa.stream", "layer_group", "running.artefacts", "simulator",
        "verify.compare", "frontend.onnx",
    ):  # fmt: skip
        known |= vars(import_module(f"tpusim.{name}"))
    import numpy as np

    from tpusim.chips import ChipSpec

    known |= {"np": np, "Chip": ChipSpec, "Samples": object, "Sample": object}
    return get_type_hints(function, known)


def public_classes() -> set[type]:
    """Of the exported functions, and of the methods and properties of what `compile` gives."""
    functions = [getattr(tpusim, name) for name in tpusim.__all__ if inspect.isfunction(getattr(tpusim, name))]
    for cls in (compiled.Compiled, compiled.Verification, compiled.Why, compiled_nets.CompiledNets):
        for name, member in vars(cls).items():
            found = getattr(member, "fget", None) or getattr(member, "func", None) or member
            if not name.startswith("_") and inspect.isfunction(found):
                functions.append(found)
    found = {cls for function in functions for hint in hints_of(function).values() for cls in classes_in(hint)}
    return found | {obj for name in tpusim.__all__ if inspect.isclass(obj := getattr(tpusim, name))}


def test_every_name_of_the_package_is_on_the_page() -> None:
    assert MEMBERS is not None
    functions = [name for name in tpusim.__all__ if inspect.isfunction(getattr(tpusim, name))]
    assert sorted(MEMBERS[1].split(", ")) == sorted(functions)


def test_every_public_class_is_on_the_page() -> None:
    found = public_classes()
    missing = sorted(where(cls) for cls in found if where(cls) not in PAGE)
    assert missing == [] and len(found) > 15


def test_what_was_asked_for_is_on_the_page() -> None:
    groups = "LayerGroupConfig", "CalibrationConfig", "CalibrationTable", "SimulatorOptions"
    for name in (*groups, "Timeline", "NumberFormat", "RunConfig"):
        assert [entry for entry in PAGE if entry.endswith(f".{name}")], name


def test_every_module_of_kernels_is_on_the_page() -> None:
    with_kernels = [
        name for _, name, _ in pkgutil.iter_modules(tpusim_kernels.__path__, "tpusim_kernels.")
        if "@kernel" in inspect.getsource(import_module(name))
    ]  # fmt: skip
    assert with_kernels and [name for name in with_kernels if name not in PAGE] == []


def test_every_entry_of_the_page_is_there() -> None:
    for entry in PAGE:
        try:
            import_module(entry)
        except ModuleNotFoundError:
            module, _, name = entry.rpartition(".")
            found = getattr(import_module(module), name)
            assert found.__module__ == module, f"{entry} is defined in {found.__module__}"
