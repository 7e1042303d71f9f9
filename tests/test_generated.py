"""Final modules are still what TPU-MLIR's code generator took, and tools that are absent or refuse are one sentence."""

import subprocess
from pathlib import Path

import pytest

from benchmarks.conformance.generated import CELLS, digest, final, recorded
from tpusim.cli import main
from tpusim.errors import ConfigError
from tpusim.studies.upstream.tools import AUTO, VARIABLE, Tools, UpstreamError, reason


@pytest.mark.parametrize("cell", CELLS)
def test_modules_that_the_generator_took_are_still_written(cell: str) -> None:
    """The simulator computed our bits of each. After an intended change: python -m benchmarks.conformance.generated."""
    assert digest(final(cell)) == recorded()[cell].sha256


def test_a_change_of_one_attribute_is_another_module() -> None:
    model = final(CELLS[0])
    before = digest(model)
    model.set(neuron_size=model.number("module.neuron_size") + 4096)
    assert digest(model) != before


def test_absent_tools_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(ConfigError, match=f"{VARIABLE} is required"):
        Tools.find(AUTO)
    with pytest.raises(ConfigError, match="no bin/tpuc-opt there"):
        Tools.find(str(tmp_path))
    assert main(["codegen", "x.mlir", "--input", "x.npz"]) == 1
    assert "--input x.npz: needs --through-upstream" in capsys.readouterr().err


CRASH = """tpuc-opt: Codegen.cpp:40: Assertion `num_submodule == 1' failed.
PLEASE submit a bug report
Stack dump:
0.	Program arguments: tpuc-opt
 #0 0x0000 (tpuc-opt+0x95)
"""


@pytest.mark.parametrize(
    ("code", "said", "why"),
    (
        (-6, CRASH, "Assertion `num_submodule == 1' failed."),
        (-11, "Stack dump:\n #0 0x0000 (tpuc-opt+0x95)\n", "it crashed without a message"),
        (1, "one\ntwo\n", "two"),
        (1, "", "it printed nothing"),
    ),
)
def test_a_tool_that_stops_tells_why(code: int, said: str, why: str) -> None:
    assert reason(subprocess.CompletedProcess((), code, "", said)).endswith(why)


def test_a_refusing_tool_is_an_error(tmp_path: Path) -> None:
    """A stand-in for the environment: its tool prints a reason and stops."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text("#!/bin/sh\necho 'error: the op is refused' >&2\nexit 3\n")
    (tmp_path / "bin" / "python").chmod(0o755)
    (tmp_path / "bin" / "tpuc-opt").touch()
    with pytest.raises(UpstreamError, match=r"tpuc-opt of .* stopped \(3\): error: the op is refused"):
        Tools.find(str(tmp_path)).run(tmp_path, "tpuc-opt", "f.mlir")
