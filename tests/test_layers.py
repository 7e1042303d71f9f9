"""Who may import whom (architecture section 2), that no stage names an op, and that importing has no side effects."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOTS = {"tpusim": ROOT / "tpusim", "tpusim_kernels": ROOT / "kernels" / "tpusim_kernels"}

FOR_ALL = {"tpusim.errors", "tpusim.version", "tpusim.registry", "tpusim.compat", "tpusim.numbers"}
FOR_ALL |= {f"tpusim.host.{p.stem}" for p in (ROOTS["tpusim"] / "host").glob("[a-z]*.py")}
IR = {"tpusim_kernels", "tpusim.ir"}
CHIP = {"tpusim.isa", "tpusim.chips"}
BELOW_OPS = {*IR, *CHIP, "tpusim.interfaces", "tpusim.kernel_library", "tpusim.field"}
OPS = {*BELOW_OPS, "tpusim.ops"}
STAGES = ("frontend", "canonicalize", "calibration", "lowering", "layer_group", "memory", "codegen")
STAGE_UNITS = {f"tpusim.{name}" for name in STAGES}
RUNNING_FILES = {
    f"tpusim.running.{n}" for n in ("artefacts", "accuracy", "agreement", "asked", "levels", "persistence", "store")
}
RUNNING = {*RUNNING_FILES, "tpusim.running.pipeline", "tpusim.running.network", "tpusim.running.calling"}
SPLIT_ROOMS = ("host", "running", "studies")
"""Rooms whose files and folders are units each."""

BELOW_PIPELINE = {
    *OPS,
    "tpusim.schedule",
    *STAGE_UNITS,
    "tpusim.images",
    "tpusim.inference",
    "tpusim.simulator",
    "tpusim.proof",
    "tpusim.verify",
    "tpusim.fidelity",
    "tpusim.page",
    "tpusim.passes",
}
BELOW_RUNNING = {*BELOW_PIPELINE, "tpusim.studies.prospect", "tpusim.studies.diagnosis", "tpusim.studies.export"}
STUDIES = {
    f"tpusim.studies.{name}"
    for name in (
        "prospect",
        "diagnosis",
        "export",
        "search",
        "explore",
        "bench",
        "training",
        "upstream",
        "verification",
    )
}

ALLOWED: dict[str, set[str]] = {
    "tpusim_kernels": set(),
    **{unit: set[str]() for unit in FOR_ALL},
    "tpusim.moved": set(),
    "tpusim.ir": {"tpusim_kernels"},
    "tpusim.isa": {*IR, *CHIP},
    "tpusim.chips": {*IR, *CHIP},
    "tpusim.interfaces": {*IR, *CHIP},
    "tpusim.kernel_library": CHIP,
    "tpusim.ops": {*BELOW_OPS, "tpusim.moved"},
    "tpusim.targets": OPS,
    "tpusim.inference": OPS,
    "tpusim.images": OPS,
    "tpusim.schedule": OPS,
    **{unit: OPS for unit in STAGE_UNITS},
    "tpusim.lowering": {*OPS, "tpusim.images"},
    "tpusim.layer_group": {*OPS, "tpusim.schedule"},
    "tpusim.codegen": {*OPS, "tpusim.schedule"},
    "tpusim.calibration": {*OPS, "tpusim.inference", "tpusim.images"},
    "tpusim.field": set(),
    "tpusim.simulator": {*CHIP, "tpusim.field"},
    "tpusim.proof": {*OPS, "tpusim.codegen", "tpusim.simulator", "tpusim.passes"},
    "tpusim.verify": set(),
    "tpusim.page": {*CHIP, "tpusim.layer_group", "tpusim.simulator", "tpusim.verify"},
    "tpusim.fidelity": OPS,
    "tpusim.passes": {*OPS, *STAGE_UNITS, "tpusim.images", "tpusim.inference", "tpusim.simulator"},
    **{f"tpusim.{room}": set[str]() for room in SPLIT_ROOMS},
    "tpusim.running.agreement": {*IR, "tpusim.inference", "tpusim.verify"},
    "tpusim.running.store": IR,
    "tpusim.running.artefacts": BELOW_RUNNING,
    "tpusim.running.accuracy": {*BELOW_RUNNING, "tpusim.running.artefacts"},
    "tpusim.running.levels": {*BELOW_RUNNING, "tpusim.running.artefacts"},
    "tpusim.running.asked": {*BELOW_RUNNING, "tpusim.running.artefacts", "tpusim.running.store"},
    "tpusim.running.persistence": {*BELOW_RUNNING, "tpusim.running.artefacts", "tpusim.running.store"},
    "tpusim.running.pipeline": {*BELOW_RUNNING, *RUNNING_FILES},
    "tpusim.running.network": {*BELOW_RUNNING, *RUNNING_FILES, "tpusim.running.pipeline"},
    "tpusim.running.calling": {*BELOW_RUNNING, "tpusim.running.artefacts", "tpusim.running.network"},
    "tpusim.studies.prospect": {*OPS, *STAGE_UNITS, "tpusim.schedule", "tpusim.fidelity", "tpusim.passes"},
    "tpusim.studies.export": {
        *OPS,
        "tpusim.frontend",
        "tpusim.canonicalize",
        "tpusim.fidelity",
        "tpusim.inference",
        "tpusim.schedule",
    },
    "tpusim.studies.diagnosis": {
        *OPS,
        "tpusim.frontend",
        "tpusim.canonicalize",
        "tpusim.calibration",
        "tpusim.lowering",
        "tpusim.images",
        "tpusim.inference",
        "tpusim.passes",
        "tpusim.verify",
    },
    "tpusim.studies.search": BELOW_RUNNING - {"tpusim.page", "tpusim.studies.export"},
    "tpusim.studies.explore": {*BELOW_RUNNING, *RUNNING, "tpusim.studies.upstream"},
    "tpusim.studies.bench": {*BELOW_RUNNING, *RUNNING, "tpusim.compiled"},
    "tpusim.studies.training": {*OPS, "tpusim.inference", "tpusim.lowering", "tpusim.passes"},
    "tpusim.studies.verification": BELOW_RUNNING,
    "tpusim.studies.upstream": {*OPS, "tpusim.inference", "tpusim.verify"},
    "tpusim.studies.commands": {*BELOW_RUNNING, *RUNNING, *STUDIES, "tpusim.cli"},
    "tpusim.decoder": {*CHIP, "tpusim.simulator"},
    "tpusim.compiled_nets": {*BELOW_RUNNING, *RUNNING, "tpusim.compiled", "tpusim.decoder"},
    "tpusim.compiled": {*BELOW_RUNNING, *RUNNING, "tpusim.studies.explore", "tpusim.studies.training"},
    "tpusim.backend": {*IR, "tpusim.frontend", "tpusim.inference"},
    "tpusim.zoo": {"tpusim.ir"},
    "tpusim.cli": {
        *BELOW_RUNNING,
        *RUNNING,
        "tpusim.compiled",
        "tpusim.compiled_nets",
        "tpusim.decoder",
        "tpusim.zoo",
    },
    "tpusim.__main__": {"tpusim.cli"},
    **{unit: {"tpusim.moved"} for unit in ("tpusim.explore", "tpusim.diagnosis", "tpusim.artefacts")},
}
"""Unit -> the units that it may import in addition to itself and FOR_ALL; see `unit_of`."""

GROUP_ROOMS = ("candidates", "slicing", "local_memory", "planning", "cost", "refinement", "files", "search")
"""The folders of layer_group, each above those before it."""

THIRD_PARTY: dict[str, set[str]] = {
    "tpusim_kernels": {"jax", "numpy", "ml_dtypes"},
    "tpusim.simulator": {"numpy", "threadpoolctl"},  # threadpoolctl: BLAS threads, no arithmetic
    "tpusim.verify": {"numpy", "msgspec"},
    "tpusim.page": {"numpy", "jinja2"},
    "tpusim.numbers.closeness": {"numpy"},
    "tpusim.isa": {"numpy", "msgspec", "ml_dtypes"},
    "tpusim.field": {"numpy"},
    "tpusim.chips": {"msgspec"},
    "tpusim.errors": set(),
}
"""Units whose third-party imports are limited."""

THIRD_PARTY_OF_FILE = {
    "tpusim.verify.render": {"rich"},
    "tpusim.simulator.host_function": {"jax"},  # a compiler of code that the program has; no kernel
    "tpusim.simulator.host_work": {"jax"},  # what reads such code
}

NAMELESS = {*STAGES, "passes", "schedule", "inference", "fidelity", "diagnosis", "prospect"}
"""Folders that know no op."""

MAPPERS = {
    f"tpusim.frontend.onnx.{name}"
    for name in ("activations", "arithmetic", "integers", "norms", "products", "recurrent", "reductions")
} | {f"tpusim.frontend.onnx.{name}" for name in ("resizing", "shapes", "windows")}
"""Modules of a front end that say which op a node is."""

FROM_OPS: dict[str, set[str] | None] = {
    "tpusim.ops.framework.base": None,  # the questions and the contexts
    "tpusim.ops.interfaces": None,  # the questions that targets may answer
    "tpusim.ops.framework.logical": None,  # how a tensor is seen as n, c, d, h, w
    "tpusim.ops.framework.moves": {
        "scattered_of",
        "strides_of",
    },  # what a transfer's map does, whichever ops it stands for
    "tpusim.ops.pad": {"borders"},  # what a store fills around a tensor
    "tpusim.ops.framework.views": None,  # what a slice or a tensor is for a command
    "tpusim.ops.framework.emission": None,  # operands and results for `emit`
    "tpusim.ops.framework.host_functions": None,  # which ops are one function of the host
    "tpusim.ops.framework.families": {"command_dtype"},  # a tensor's element type on the chip
    # ops without arithmetic that hold a module together
    "tpusim.ops.structure": {
        *("TopInput", "TopNone", "TopWeight", "make_none", "make_weight"),
        *("TpuGroup", "TpuLoad", "TpuStore", "TpuYield", "Transfer", "group_info", "make_group"),
    },
    "tpusim.ops.patterns.masking": {"MASK", "has_mask"},  # what integers would ruin
    "tpusim.ops.patterns.interpolated": {"UNSTATED", "interpolated"},  # what a front end makes of one node
    "tpusim.ops.patterns.recurrent": {  # what a front end makes of one node
        "TYPES",
        "mark_parts",
        "named_parts",
        "keep_parts",
        "float_type_of_part",
    },
    "tpusim.ops.cast": {"TpuCast"},  # lowering inserts casts where types differ
    "tpusim.ops.frames": {"Fused", "fold_swaps", "frame_type", "lower_frame"},  # what images of the user become
    "tpusim.ops.patterns.smoothing": {
        "Smoothing",
        "attentions",
        "smoothings",
        "split_norms",
        "divide_softmax",
    },  # where factors may move
    "tpusim.ops.rescale": {"requantised_indices"},  # and what stands for two of them
    "tpusim.ops.view": {"make_view", "keeps_elements", "returns_again"},  # second names of returned values
    "tpusim.ops": {"context", "op_classes"},  # all ops, as data
    "tpusim.ops.framework.rewriting": {"Requested"},  # which patterns run once
    "tpusim.ir.dialects": {"is_op", "load_dialect_of"},  # the existing ones
    "tpusim.ops.framework.builder": {"ModuleBuilder"},  # what a front end appends ops to
    "tpusim.ops.framework.building": {
        "BuildError",
        "TooLarge",
        "fitting",
    },  # how an op refuses to be made or to be used
}
"""Module -> the names the folders without ops may import from it, None for all."""

REQUANTISING = {
    "tpusim.isa.requants",  # says which are legal
}
"""Modules that may ask a chip for its requantisation; what ops and stages do by family is a target's."""

FAMILY = re.compile(r"\b(CV18xx|CV18\dx|cv18xx|CV186X|BM1684X?|BM1688|BM1690|1684X)\b")
NAMES_FAMILIES = (
    "tpusim.targets",
    "tpusim.chips",
    "tpusim.registry",  # what there is
    "tpusim.isa.families",  # the clock's formulas by family
    "tpusim.compat",  # the real tool's rules and constants, with their sources
    "tpusim.fidelity.spec",  # headings of the specification
    "tpusim.cli.options",  # which chips have an option
)
"""Rooms and modules that name families or chips; others do in neither code nor comment: it is a target's, or data."""


@dataclass(frozen=True)
class Import:
    """One imported module; `name` is what `from module import name` asked for, "" for `import module`."""

    source: str
    line: int
    module: str
    name: str = ""
    lazy: bool = False
    """Inside a function or under `if TYPE_CHECKING`."""

    def __str__(self) -> str:
        return f"{self.source}:{self.line} imports {self.module}" + (f" ({self.name})" if self.name else "")


def module_name(path: Path, root: Path, package: str) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join((package, *parts)).removesuffix(".__init__")


def sources() -> dict[str, str]:
    """Every module of the project by name, as text."""
    return {
        module_name(path, root, package): path.read_text(encoding="utf-8")
        for package, root in ROOTS.items()
        for path in sorted(root.rglob("*.py"))
    }


@cache
def parsed(text: str) -> tuple[ast.AST, ...]:
    """Every node of a module; a module is read once for all tests."""
    return tuple(ast.walk(ast.parse(text)))


def defers(node: ast.AST) -> bool:
    """Whether what stands inside runs later, or only when types are checked."""
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (
        isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    )


@cache
def import_nodes(text: str) -> tuple[tuple[ast.Import | ast.ImportFrom, bool], ...]:
    """Every import statement, and whether it is lazy."""
    return tuple(_imports_in(ast.parse(text), lazy=False))


def _imports_in(node: ast.AST, *, lazy: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, lazy
        elif not isinstance(child, ast.expr):
            yield from _imports_in(child, lazy=lazy or defers(child))


def imports_of(module: str, text: str, modules: set[str]) -> Iterator[Import]:
    """All imports of a module; `from package import submodule` counts as an import of the submodule."""
    for node, lazy in import_nodes(text):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, node.lineno, alias.name, lazy=lazy)
        else:
            assert node.level == 0, f"{module}:{node.lineno}: imports are written in full, never relative"
            base = node.module or ""
            for alias in node.names:
                full = f"{base}.{alias.name}"
                found = (full, "") if full in modules else (base, alias.name)
                yield Import(module, node.lineno, *found, lazy=lazy)


def unit_of(module: str) -> str:
    """The room or file whose imports are judged as one.

    tpusim.ir.text -> tpusim.ir; tpusim.studies.search.run -> tpusim.studies.search; tpusim_kernels.prim.scale ->
    tpusim_kernels; the package itself stays tpusim.
    """
    parts = module.split(".")
    if parts[0] == "tpusim_kernels":
        return parts[0]
    return ".".join(parts[: 3 if len(parts) > 2 and parts[1] in SPLIT_ROOMS else 2])


def is_own(module: str) -> bool:
    return module.split(".")[0] in ROOTS


def all_imports(texts: dict[str, str]) -> list[Import]:
    modules = set(texts)
    return [found for module, text in texts.items() for found in imports_of(module, text, modules)]


def upward(texts: dict[str, str]) -> list[str]:
    """Imports that ALLOWED does not allow; the package's `__init__` may import anything, but only lazily."""
    problems: list[str] = []
    for found in all_imports(texts):
        if not is_own(found.module):
            continue
        source, target = unit_of(found.source), unit_of(found.module)
        if source == target or (target in FOR_ALL and source != "tpusim_kernels"):
            continue
        if source == "tpusim":
            if not found.lazy:
                problems.append(f"{found}: only inside functions")
        elif source not in ALLOWED:
            problems.append(f"{found}: {source} has no place in the layers")
        elif target not in ALLOWED[source]:
            problems.append(f"{found}: {source} may not import {target}")
    return problems


def foreign(texts: dict[str, str]) -> list[str]:
    """Third-party imports of units that have few."""
    problems: list[str] = []
    for found in all_imports(texts):
        package = found.module.split(".")[0]
        if is_own(found.module) or package in sys.stdlib_module_names:
            continue
        allowed = THIRD_PARTY.get(unit_of(found.source))
        if allowed is not None and package not in allowed | THIRD_PARTY_OF_FILE.get(found.source, set()):
            problems.append(str(found))
    return problems


def folder_cycle(texts: dict[str, str]) -> list[str]:
    """The units of a cycle, [] without one."""
    graph: dict[str, set[str]] = {}
    for found in all_imports(texts):
        source, target = unit_of(found.source), unit_of(found.module)
        if is_own(found.module) and source not in (target, "tpusim"):
            graph.setdefault(source, set()).add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def named_ops(texts: dict[str, str]) -> list[str]:
    """Where a folder that knows no op imports one, or spells one's IR name outside a message that needs it."""
    problems: list[str] = []
    for found in all_imports(texts):
        folder = found.source.split(".")[1] if found.source.count(".") else ""
        if folder not in NAMELESS or found.source in MAPPERS or unit_of(found.module) != "tpusim.ops":
            continue
        allowed = FROM_OPS.get(found.module, set())
        if allowed is not None and found.name not in allowed:
            problems.append(str(found))
    for module, text in texts.items():
        if module.count(".") and module.split(".")[1] in NAMELESS:
            problems.extend(f"{module} spells '{name}'" for name in spelled_ops(text))
    return problems


def spelled_ops(text: str) -> list[str]:
    """String constants that are exactly an op's IR name (messages and docstrings may mention one)."""
    constants = [n.value for n in parsed(text) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return [c for c in constants if re.fullmatch(r"(top|tpu)\.[A-Z]\w*", c)]


def asked_of_chips(texts: dict[str, str]) -> list[str]:
    """Where a chip is asked for its requantisation outside quantisation, or told from others by its name or family."""
    return [
        f"{module}:{node.lineno} {ast.unparse(node)}"
        for module, text in texts.items()
        if unit_of(module) != "tpusim.chips" and re.search(r"\.(requant|name|family)\b", text)
        for node in parsed(text)
        if (is_requantisation(node, module) and module not in REQUANTISING) or tells_chips_apart(node)
    ]


def is_requantisation(node: ast.AST, module: str) -> bool:
    """`x.requant`, unless x is a command, which may have a requant, too."""
    commands = ("command", "self") if module.startswith("tpusim.isa.commands.") else ("command",)
    return isinstance(node, ast.Attribute) and node.attr == "requant" and ast.unparse(node.value) not in commands


def tells_chips_apart(node: ast.AST) -> bool:
    """A comparison, or a match, of the name or family of something called chip or spec."""
    compared = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
    compared += [node.subject] if isinstance(node, ast.Match) else []
    named = [
        n for one in compared for n in ast.walk(one) if isinstance(n, ast.Attribute) and n.attr in ("name", "family")
    ]
    return any(re.search(r"\b(chip|spec)\.(name|family)$", ast.unparse(one)) for one in named)


# --- the project


@pytest.fixture(scope="module")
def project() -> dict[str, str]:
    found = sources()
    assert len(found) > 100 and {"tpusim.ir.text", "tpusim_kernels.prim.scale", "tpusim.ops.conv.tpu"} <= set(found)
    return found


def test_no_upward_import(project: dict[str, str]):
    assert upward(project) == []


def test_every_unit_has_a_place(project: dict[str, str]):
    assert {unit_of(module) for module in project} - {"tpusim"} <= set(ALLOWED)


def test_no_cycle_between_folders(project: dict[str, str]):
    assert folder_cycle(project) == []


def test_one_way_into_a_room(project: dict[str, str]):
    """The folders of layer_group and the schedule are read through their `__init__`."""
    rooms = {f"tpusim.layer_group.{room}" for room in GROUP_ROOMS} | {"tpusim.schedule"}
    found = [
        str(one)
        for one in all_imports(project)
        for room in rooms
        if one.module.startswith(f"{room}.") and not f"{one.source}.".startswith(f"{room}.")
    ]
    assert found == []


def test_rooms_in_the_order_of_thought(project: dict[str, str]):
    """A folder of layer_group imports only those before it."""
    for one in all_imports(project):
        here, there = (name.split(".")[2:3] for name in (one.source, one.module))
        if unit_of(one.source) == unit_of(one.module) == "tpusim.layer_group" and here and there:
            assert GROUP_ROOMS.index(there[0]) <= GROUP_ROOMS.index(here[0]), one


def test_third_party_imports(project: dict[str, str]):
    assert foreign(project) == []


def test_no_op_outside_ops(project: dict[str, str]):
    assert named_ops(project) == []


FRAMEWORKS = {"onnx", "onnxruntime", "torch", "tensorflow", "caffe"}
WITH_FRAMEWORK = {"tpusim.backend", "tpusim.studies.bench", "tpusim.studies.export", "tpusim.frontend", "tpusim.zoo"}
"""Units that may import a framework: front ends, exports for its tools, the networks of the `onnx` package, and what
measures against it."""


def frameworks(texts: dict[str, str]) -> list[str]:
    """Where a unit that must not know one imports a framework, or an op says of which nodes it is made."""
    found = [
        str(one)
        for one in all_imports(texts)
        if one.module.split(".")[0] in FRAMEWORKS and unit_of(one.source) not in WITH_FRAMEWORK
    ]
    for module, text in texts.items():
        if unit_of(module) == "tpusim.ops":
            names = {n.id for n in parsed(text) if isinstance(n, ast.Name)}
            names |= {n.name for n in parsed(text) if isinstance(n, ast.FunctionDef)}
            found.extend(f"{module} has '{name}'" for name in sorted(names) if "onnx" in name.lower())
    return found


def test_ops_know_no_framework(project: dict[str, str]):
    assert frameworks(project) == []


def test_only_mappers_name_ops_in_a_front_end(project: dict[str, str]):
    """Each mapper exists, and each names ops: the exception is no larger than it must be."""
    for module in MAPPERS:
        assert any(unit_of(one.module) == "tpusim.ops" for one in imports_of(module, project[module], set(project)))


def test_no_chip_is_named_in_code(project: dict[str, str]):
    """Chip differences are data; a default value of an option is not a difference."""
    found: list[str] = []
    for module, text in project.items():
        for node in parsed(text) if "bm1" in text else ():
            if isinstance(node, ast.Compare):
                written = ast.unparse(node)
                if re.search(r"['\"]bm1\d{3}x?['\"]", written):
                    found.append(f"{module}:{node.lineno} {written}")
    assert found == []


def family_named(texts: dict[str, str]) -> set[str]:
    """Modules of the compiler and machine that name a family or chip but must not."""
    return {
        module
        for module, text in texts.items()
        if not any(f"{module}.".startswith(f"{one}.") for one in NAMES_FAMILIES) and FAMILY.search(text)
    }


def test_no_family_is_named_outside_targets(project: dict[str, str]):
    """In code or comment: what differs is a target's."""
    assert family_named(project) == set()
    named = {
        "tpusim.isa.a": "# BM1684X", "tpusim.simulator.b": "# CV186X", "tpusim.ops.c": "# the 1684X family",
        "tpusim_kernels.d": "# BM1690",
    }  # fmt: skip
    allowed = {"tpusim.isa.families.x": "# CV18xx", "tpusim.targets.x": "# BM1684"}
    assert family_named({**named, **allowed}) == set(named)
    assert family_named({"tpusim.ops.add": 'SAME = f"{BM1684_SHIFT} of 1684"'}) == set()
    for one in NAMES_FAMILIES:
        assert any(f"{module}.".startswith(f"{one}.") and FAMILY.search(text) for module, text in project.items()), one


def between_test_files(texts: dict[str, str]) -> list[str]:
    """Imports of one test file by another, whatever it is called from."""
    modules = {name.split(".")[-1] for name in texts}
    return [
        str(found)
        for name, text in texts.items()
        for found in imports_of(name, text, set(texts))
        if found.module.split(".")[-1] in modules and found.module.split(".")[-1].startswith("test_")
    ]


def test_no_test_file_imports_another():
    """Shared code is in tests/builders or a separate module, so that a test file can be split or moved."""
    folder = ROOT / "tests"
    texts = {module_name(path, folder, "tests"): path.read_text(encoding="utf-8") for path in folder.rglob("*.py")}
    assert len(texts) > 100
    assert between_test_files(texts) == []


def test_chips_are_asked_what_is_meant(project: dict[str, str]):
    """Each difference is a separate field: neither the requantisation nor the name stands for others."""
    assert asked_of_chips(project) == []


def test_layers_are_acyclic():
    """The table itself: isa and chips share a level, and so do nothing else."""
    graph = {unit: allowed - {unit} for unit, allowed in ALLOWED.items()}
    graph["tpusim.chips"] = graph["tpusim.chips"] - {"tpusim.isa"}
    TopologicalSorter(graph).prepare()


# --- the checker


def planted(**extra: str) -> dict[str, str]:
    """A small project without violations, with modules replaced or added (`__` stands for a dot)."""
    base = {
        "tpusim": "from tpusim.errors import E\ndef f():\n    import tpusim.running.pipeline as p\n    return p\n",
        "tpusim.errors": "",
        "tpusim.version": "",
        "tpusim.ir": "",
        "tpusim.ir.text": "from tpusim.errors import E\n",
        "tpusim.ops": "",
        "tpusim.ops.framework.base": "from tpusim.ir.text import parse\n",
        "tpusim.ops.conv": "from tpusim.ops.framework.base import TpuOp\n",
        "tpusim.lowering": "from tpusim.ops.framework.base import TpuOp\n",
        "tpusim.running.pipeline": "from tpusim.lowering import lower\n",
        "tpusim.verify.compare": "import numpy as np\n",
        "tpusim.verify.render": "import rich\n",
        "tpusim_kernels.conv": "import jax.numpy as jnp\n",
    }
    return base | {name.replace("__", "."): text for name, text in extra.items()}


def test_checker_passes_what_is_right():
    assert not any(check(planted()) for check in (upward, folder_cycle, foreign, named_ops, frameworks))


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("tpusim__ir__text", "from tpusim.ops.framework.base import TpuOp"),
        ("tpusim__ir__text", "def f():\n    import tpusim.running.pipeline"),
        ("tpusim__ir__text", "from tpusim import ops"),
        ("tpusim__lowering", "from tpusim.codegen import generate"),
        ("tpusim__lowering", "from tpusim.inference import run"),
        (
            "tpusim__codegen",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tpusim.lowering import lower",
        ),
        ("tpusim__simulator__run", "from tpusim.ops.framework.base import TpuOp"),
        ("tpusim__simulator__run", "import tpusim_kernels.conv"),
        ("tpusim__simulator__run", "from tpusim.ir.text import parse"),
        ("tpusim__verify__compare", "from tpusim.ir.text import parse"),
        ("tpusim_kernels__conv", "from tpusim.errors import TpusimError"),
        ("tpusim__ops__base", "from tpusim.simulator import simulate"),
        ("tpusim__elsewhere", "import tpusim.ir.text"),
        ("tpusim", "from tpusim.running.pipeline import run"),
    ],
)
def test_checker_sees_an_upward_import(module: str, text: str):
    assert upward(planted(**{module: text}))


def test_checker_sees_a_cycle():
    texts = planted(tpusim__ir__text="def f():\n    from tpusim.ops.framework.base import TpuOp\n")
    assert set(folder_cycle(texts)) == {"tpusim.ir", "tpusim.ops"}


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("tpusim__verify__compare", "import rich"),
        ("tpusim__verify__render", "import onnx"),
        ("tpusim__simulator__run", "import jax"),
        ("tpusim_kernels__conv", "def f():\n    import onnx"),
    ],
)
def test_checker_sees_a_foreign_package(module: str, text: str):
    assert foreign(planted(**{module: text}))


@pytest.mark.parametrize("text", ["from test_ops import EVERY", "def f():\n    import tests.test_ops as rows"])
def test_checker_sees_a_test_file_that_is_imported(text: str):
    texts = {"tests.test_ops": "from onnx.backend.test.case import test_case", "tests.bench": text}
    assert len(between_test_files(texts)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "from tpusim.ops.conv import TpuConv2D",
        "from tpusim.ops import conv",
        "from tpusim.ops.framework.families import relu_of",
        "KIND = 'tpu.Conv2D'",
    ],
)
def test_checker_sees_an_op(text: str):
    assert named_ops(planted(tpusim__lowering=text))


@pytest.mark.parametrize(
    "text",
    [
        "def f(ctx):\n    return ctx.chip.hardware.requant == 'qdm'",
        "def f(chip):\n    return {'qdm': 1}.get(chip.hardware.requant, 0)",
        "def f(c):\n    kind = c.requant",
        "def f(chip):\n    return chip.name == NAME",
        "def f(self):\n    return self.chip.name.startswith('cv') is True",
        "def f(spec):\n    return spec.family in OLD",
        "def f(chip):\n    match chip.name:\n        case 'a':\n            return 1",
    ],
)
def test_checker_sees_what_a_chip_is_asked(text: str):
    assert asked_of_chips(planted(tpusim__ops__conv=text))
    assert not asked_of_chips(planted(tpusim__chips__spec=text))


@pytest.mark.parametrize(
    "text",
    [
        "from onnx import TensorProto",
        "def f():\n    import torch",
        "class TopRelu:\n    ONNX = ('Relu',)",
        "class TopRelu:\n    def from_onnx(cls): ...",
    ],
)
def test_checker_sees_a_framework(text: str):
    assert frameworks(planted(tpusim__ops__relu=text))
    assert not frameworks(planted(tpusim__frontend__onnx__table=text))


# --- side effects of importing


def in_a_new_process(code: str) -> dict[str, object]:
    """What `code` leaves in `found`."""
    program = f"import json, sys\nfound = {{}}\n{code}\nprint(json.dumps(found))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stderr == ""
    return json.loads(done.stdout)


STATE = """
import logging, warnings, numpy
def state():
    root = logging.getLogger()
    config = {k: repr(v) for k, v in jax.config.values.items()} if "jax" in sys.modules else {}
    return [[repr(h) for h in root.handlers], root.level, repr(warnings.filters), numpy.geterr(), config]
"""


def test_import_is_light():
    """`import tpusim` takes less than a second and loads none of the heavy packages."""
    found = in_a_new_process(
        STATE
        + """
import time
before, begin = state(), time.perf_counter()
import tpusim
found["seconds"] = time.perf_counter() - begin
found["loaded"] = [m for m in ("jax", "jaxlib", "onnx", "onnxruntime", "xdsl", "rich", "tyro") if m in sys.modules]
found["changed"] = before != state()
import tpusim.cli
found["loaded for --help"] = [m for m in ("jax", "onnx", "xdsl", "tpusim.verify.compare") if m in sys.modules]
"""
    )
    assert found["loaded"] == found["loaded for --help"] == []
    assert found["changed"] is False
    assert isinstance(found["seconds"], float) and found["seconds"] < 1.0


def test_importing_the_stages_changes_no_global_state():
    found = in_a_new_process(
        STATE
        + """
import jax, onnx, onnxruntime, xdsl
before = state()
import tpusim.ops, tpusim.running.pipeline, tpusim.cli, tpusim_kernels
after = state()
found["parts"] = [i for i, (a, b) in enumerate(zip(before, after)) if a != b]
found["config"] = len(before[4])
"""
    )
    assert found["parts"] == []
    assert isinstance(found["config"], int) and found["config"] > 50


def one_word_docstrings(texts: dict[str, str]) -> list[str]:
    """Functions and classes whose docstring is one word, which says no more than the name."""

    def said(node: ast.FunctionDef | ast.ClassDef) -> int:
        return len((ast.get_docstring(node) or "nothing at all").split())

    return [
        f"{module}:{node.lineno} {node.name}"
        for module, text in texts.items()
        for node in parsed(text)
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and said(node) < 2
    ]


def test_docstrings_are_sentences(project: dict[str, str]):
    assert one_word_docstrings(project) == []
    assert one_word_docstrings({"m": 'def f():\n    """f32."""\n'}) == ["m:1 f"]
