"""`tpusim opt` on modules of other dialects: what it imports, and in what order values may be made."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from generic_modules import of_mlir

from tpusim.cli import main
from tpusim.ir.bytecode import MAGIC

pytestmark = pytest.mark.every
ADDED = """func.func @main(%a: i32, %b: i32) -> i32 {
  %0 = arith.addi %a, %b : i32
  func.return %0 : i32
}
"""
LOADED = """
import json, sys
from tpusim.cli import main
assert main(["opt", *sys.argv[1:]]) == 0
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
NETWORKS = ("jax", "onnx", "onnxruntime", "tpusim.ops", "tpusim.lowering", "tpusim.layer_group", "tpusim.calibration")


def imported(*words: object) -> list[str]:
    """The modules that `tpusim opt` imports in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *map(str, words)], capture_output=True, text=True, check=True
    )  # fmt: skip
    return json.loads(done.stderr.splitlines()[-1])


def test_a_module_of_arith_imports_no_dialect_of_networks_and_no_jax(tmp_path: Path) -> None:
    source, binary = tmp_path / "a.mlir", tmp_path / "a.mlirbc"
    source.write_text(ADDED)
    assert main(["opt", str(source), "--emit-bytecode", "-o", str(binary)]) == 0
    for file in (source, binary):
        modules = imported(file)
        assert not [name for name in modules if name.startswith(NETWORKS)]
        assert "xdsl.dialects.arith" in modules and "xdsl.dialects.linalg" not in modules
    assert not [name for name in imported(source) if name == "tpusim.ir.bytecode.reading"]


def test_only_networks_have_a_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.mlir").write_text(ADDED)
    assert main(["opt", str(tmp_path / "a.mlir")]) == 0
    assert "module.state" not in capsys.readouterr().out
    assert main(["opt", str(tmp_path / "a.mlir"), "-o", str(tmp_path / "b.mlir")]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.mlir", "b.mlir"], "no file of weights"


UNKNOWN = """func.func @f(%a: i32) -> i32 {
  %0 = "foo.x"(%a) {k = 1 : i32} : (i32) -> i32
  %1 = "foo.x"(%a) {k = 1 : i32} : (i32) -> i32
  %c = arith.constant 0 : i32
  %2 = arith.addi %0, %c : i32
  %3 = "foo.region"(%2) ({
    %d = arith.addi %a, %a : i32
    %e = arith.addi %a, %a : i32
    "foo.yield"(%e) : (i32) -> ()
  }) : (i32) -> i32
  %4 = arith.addi %a, %a : i32
  func.return %3 : i32
}
func.func @g(%t: tensor<2x!foo.ty<3>>) -> tensor<2x!foo.ty<3>> { func.return %t : tensor<2x!foo.ty<3>> }
"""
SIMPLIFIED = """module {
  func.func @f(%arg0: i32) -> i32 {
    %0 = "foo.x"(%arg0) {k = 1 : i32} : (i32) -> i32
    %1 = "foo.x"(%arg0) {k = 1 : i32} : (i32) -> i32
    %2 = "foo.region"(%0) ({
      %3 = arith.addi %arg0, %arg0 : i32
      "foo.yield"(%3) : (i32) -> ()
    }) : (i32) -> i32
    func.return %2 : i32
  }
  func.func @g(%arg0: tensor<2x!foo.ty<3>>) -> tensor<2x!foo.ty<3>> {
    func.return %arg0 : tensor<2x!foo.ty<3>>
  }
}"""
"""UNKNOWN after `mlir-opt --allow-unregistered-dialect --cse --canonicalize` of LLVM 22.1.8."""


def test_unregistered_dialects_are_read_if_allowed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, binary = tmp_path / "a.mlir", tmp_path / "a.mlirbc"
    source.write_text(UNKNOWN)
    allow = "--allow-unregistered-dialect"
    for reader, version in (("llvm19", 4), ("llvm16", 0)):  # the version that the reader needs; a file is no version
        assert main(["opt", allow, f"--bytecode-for={reader}", "--emit-bytecode", str(source), "-o", str(binary)]) == 0
        assert binary.read_bytes()[len(MAGIC)] == version << 1 | 1
    for file in (source, binary):
        assert main(["opt", str(file)]) == 1
        assert "entry point group tpusim.dialects or xdsl.universe" in capsys.readouterr().err
        assert main(["opt", str(file), allow, "-p", "cse,canonicalize"]) == 0
        assert of_mlir(capsys.readouterr().out) == of_mlir(SIMPLIFIED)


BRANCHES = """func.func @f(%a: i32, %c: i1) -> i32 {{
  cf.cond_br %c, ^bb1, ^bb2
^bb2:
  cf.br ^bb3({second} : i32)
^bb1:
  %y = arith.addi %a, %a : i32
  cf.br ^bb3(%y : i32)
^bb3(%z : i32):
  func.return {last} : i32
}}
"""


@pytest.mark.parametrize(
    ("second", "last", "fine"), [("%a", "%z", True), ("%a", "%y", False), ("%y", "%z", False), ("%z", "%z", False)]
)
def test_values_are_used_where_they_are_made(
    second: str, last: str, fine: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.mlir").write_text(BRANCHES.format(second=second, last=last))
    assert main(["opt", str(tmp_path / "a.mlir")]) == (0 if fine else 1)
    assert ("before it is made" in capsys.readouterr().err) != fine


def test_extents_may_be_unknown_in_modules_of_other_dialects(tmp_path: Path) -> None:
    (tmp_path / "a.mlir").write_text(
        "func.func @f(%a: tensor<?xf32>) -> tensor<?xf32> { func.return %a : tensor<?xf32> }"
    )
    assert main(["opt", str(tmp_path / "a.mlir")]) == 0
