"""Final modules are still what TPU-MLIR's code generator took, and tools that are absent or refuse are one sentence."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks.accuracy.measure import config
from benchmarks.conformance.generated import CELLS, digest, final, recorded
from tpusim.cli import main
from tpusim.errors import ConfigError
from tpusim.ir.attrs import op_name
from tpusim.ir.types import element_of, storage_dtype
from tpusim.ops.conv import TopConv
from tpusim.ops.elements import TopGatherElements, TopScatterElements
from tpusim.ops.framework.builder import ModuleBuilder
from tpusim.passes import PassManager
from tpusim.passes.memory import AddressAssign
from tpusim.passes.pipelines import converted, grouped
from tpusim.studies.upstream.road import for_generator, generate
from tpusim.studies.upstream.tools import AUTO, NEEDED, VARIABLE, Tools, UpstreamError, reason


@pytest.mark.parametrize("cell", CELLS)
def test_modules_that_the_generator_took_are_still_written(cell: str) -> None:
    """The simulator computed our bits of each. After an intended change: python -m benchmarks.conformance.generated."""
    assert digest(final(cell)) == recorded()[cell].sha256


def test_a_change_of_one_attribute_is_another_module() -> None:
    model = final(CELLS[0])
    before = digest(model)
    model.set(neuron_size=model.number("module.neuron_size") + 4096)
    assert digest(model) != before


@pytest.mark.parametrize(
    ("chip", "mode", "groups", "wanted"),
    [
        ("bm1688", "f16", 32, "float16"),
        ("bm1688", "bf16", 32, "bfloat16"),
        ("cv186x", "f16", 32, "float16"),
        ("bm1688", "f32", 32, "float32"),
        ("bm1688", "f16", 1, "float32"),
        ("bm1684x", "f16", 32, "float32"),
    ],
)
def test_a_bias_has_the_type_that_the_library_reads(chip: str, mode: str, groups: int, wanted: str) -> None:
    """The real compiler's final modules have these types; ours keeps F32, so that our numbers stay."""
    b, rng = ModuleBuilder(), np.random.default_rng(0)
    weights = (b.weight(n, rng.normal(size=s).astype("f")) for n, s in (("w", (32, 32 // groups, 3, 3)), ("b", (32,))))
    y = TopConv.make(b, b.input("x", (1, 32, 4, 4)), *weights, pads=(1, 1, 1, 1), group=groups, name="y")
    passes = PassManager((*converted(config(chip, mode)), *grouped(), AddressAssign()))
    model = passes.run(b.finish([y], name="m"))
    made = for_generator(model)
    (name,) = [name for name in model.weights if name.endswith("_bias")]
    assert (model.weights[name].dtype, made.weights[name].dtype.name) == (np.float32, wanted)
    types = {element_of(op.results[0]) for op in made.module.walk() if op_name(op) in (name, f"load_{name}")}
    assert [storage_dtype(element).name for element in types] == [wanted]


def test_absent_tools_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(ConfigError, match=f"{VARIABLE} is required"):
        Tools.find(AUTO)
    with pytest.raises(ConfigError, match="no bin/python, bin/tpuc-opt, "):
        Tools.find(str(tmp_path))
    assert main(["codegen", "x.mlir", "--input", "x.npz"]) == 1
    assert "--input x.npz: needs --through-upstream" in capsys.readouterr().err


CRASH = """tpuc-opt: Codegen.cpp:40: Assertion `num_submodule == 1' failed.
PLEASE submit a bug report
Stack dump:
0.	Program arguments: tpuc-opt
 #0 0x0000 (tpuc-opt+0x95)
"""


ASSERTED = """ERROR: ASSERT conv.c: gen: 273: A >> 18 == R >> 18
ASSERT info: none.
Obtained 10 stack frames.
/lib/libbackend_bm1684x.so(gen_cmd_error+0x5d0) [0x7fb00dfe0c20]
"""


@pytest.mark.parametrize(
    ("code", "said", "why"),
    (
        (-6, CRASH, "Assertion `num_submodule == 1' failed."),
        (-11, "Stack dump:\n #0 0x0000 (tpuc-opt+0x95)\n", "it crashed without a message"),
        (1, "one\ntwo\n", "two"),
        (1, "", "it printed nothing"),
        (1, "codegen op: 'a'\ncodegen op: 'fail_b'\n", "at op 'fail_b': it printed nothing"),
        (1, f"codegen op: 'b'\n{ASSERTED}", "at op 'b': ERROR: ASSERT conv.c: gen: 273: A >> 18 == R >> 18"),
    ),
)
def test_a_tool_that_stops_tells_why(code: int, said: str, why: str) -> None:
    assert reason(subprocess.CompletedProcess((), code, "", said)).endswith(why)


def test_a_refusing_tool_is_an_error(tmp_path: Path) -> None:
    """A stand-in for the environment: its tool prints a reason and stops."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text("#!/bin/sh\necho 'error: the op is refused' >&2\nexit 3\n")
    (tmp_path / "bin" / "python").chmod(0o755)
    for tool in NEEDED[1:]:
        (tmp_path / "bin" / tool).touch()
    with pytest.raises(UpstreamError, match=r"tpuc-opt of .* stopped \(3\): error: the op is refused"):
        Tools.find(str(tmp_path)).run(tmp_path, "tpuc-opt", "f.mlir")


def test_a_chip_of_other_files_is_refused(tmp_path: Path) -> None:
    """Its generator would make a file that computes other numbers."""
    model = final("residual/bm1684/int8")
    with pytest.raises(UpstreamError, match="got bm1684: there a cast with a scale is a product and a cast"):
        generate(model, tmp_path, Tools(tmp_path))


@pytest.mark.parametrize(
    ("shape", "indices", "axis", "taken"),
    [
        ((4, 8), (4, 5), 1, True),
        ((2, 3, 4, 5), (2, 3, 4, 3), 3, True),
        ((4, 8), (3, 8), 0, False),
        ((1, 6, 8), (1, 4, 8), 1, False),
        ((2, 3, 4, 5), (1, 2, 3, 3), 3, False),
        ((2, 3, 4, 1), (2, 3, 2, 1), 2, False),
    ],
)
@pytest.mark.parametrize("kind", ["Gather", "Scatter"])
def test_elements_that_need_computed_places_are_refused(
    kind: str, shape: tuple[int, ...], indices: tuple[int, ...], axis: int, taken: bool, tmp_path: Path
) -> None:
    """The simulator of bm1684x computed our numbers of the taken cases, and others of the refused ones."""
    b = ModuleBuilder()
    x, places = b.input("x", shape), b.weight("i", np.zeros(indices, "int32"))
    if kind == "Gather":
        y = TopGatherElements.make(b, x, places, axis=axis, name="y")
    else:
        y = TopScatterElements.make(b, x, places, b.weight("u", np.ones(indices, "f")), axis=axis, name="y")
    passes = PassManager((*converted(config("bm1684x", "f16")), *grouped(), AddressAssign()))
    wanted = "bin/python" if taken else f"tpu.{kind}Elements 'y': the last axis and indices .* got axis {axis} and"
    with pytest.raises(UpstreamError, match=wanted):
        generate(passes.run(b.finish([y], name="m")), tmp_path, Tools(tmp_path))
