"""What is written and read: the stages of small networks, and every attribute, type and location of the corpus."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnknownLoc

from benchmarks.bytecode.tools import Refused, Tool, printed
from benchmarks.how_fast_is_the_compiler import assumed_four
from tests.plain_modules import plain
from tests.upstream import networks as small
from tpusim.frontend import import_onnx
from tpusim.ir.bytecode import Bytecode, Release, encode
from tpusim.ir.module import Model, name_weights
from tpusim.ir.text import context, parse_module, print_module
from tpusim.ir.upstream.final import written
from tpusim.lowering import LoweringConfig
from tpusim.passes import PassContext, PassManager
from tpusim.passes.calibration import ImportCalibrationTable
from tpusim.passes.canonicalize import Canonicalize
from tpusim.passes.layer_group import LayerGroup
from tpusim.passes.lowering import WeightReorder
from tpusim.passes.memory import AddressAssign
from tpusim.passes.pipelines import lowered

CORPUS = Path(__file__).parents[2] / "tests" / "bytecode"
RESOURCES = """
{-# dialect_resources: { builtin: { blob1: "0x10000000010203FF", blob2: "0x080000000000803F00000040" } } #-}"""
"""What the corpus' dense resources refer to."""


UNLIKE = re.compile(r"vector<[^>]*\[")
WHY_UNLIKE = "LLVM 16 and later ones write scalable vectors in different ways, under the same code and version"
"""A count of the last dimensions; from LLVM 17 on a flag for each dimension."""


class Case(ABC):
    """One module. name: for people."""

    name: str

    @abstractmethod
    def text(self, tools: tuple[Tool, ...]) -> str:
        """The module as text, without what one of the tools has no text for."""

    def unlike(self, writer: Tool, reader: Tool) -> str:
        """What of the module the two encode in different ways, as a module; empty if nothing."""
        return ""

    def text_for(self, reader: Tool, text: str) -> str:
        """A text that another tool printed, as this one reads it."""
        return text

    @abstractmethod
    def encoded(self, tool: Tool, version: int, release: Release) -> bytes:
        """The same as bytecode of tpusim."""

    @abstractmethod
    def reads(self, tool: Tool, data: bytes) -> bool:
        """Whether the bytecode that a tool wrote of `text` is read, and prints like it."""


@dataclass(frozen=True)
class Stage(Case):
    """The module of a stage as `tpusim run` writes it."""

    name: str
    source: str

    def text(self, tools: tuple[Tool, ...]) -> str:
        """All of it: the ops of networks are unknown ops to all tools but tpuc-opt."""
        return self.source

    def text_for(self, reader: Tool, text: str) -> str:
        """LLVM 16 has no text of properties."""
        return print_module(_parsed(text, self.name)) if reader.llvm == 16 else text

    def encoded(self, tool: Tool, version: int, release: Release) -> bytes:
        """As the tool has to read it."""
        return encode(self._module, version=version, release=release)

    def reads(self, tool: Tool, data: bytes) -> bool:
        """Compare it with what the tool prints of the text: tpuc-opt adds attributes."""
        expected = _parsed(printed(tool, self.source), self.name)
        return plain(written(Bytecode(data, _context()).module())) == plain(expected)

    @cached_property
    def _module(self) -> ModuleOp:
        return _parsed(self.source, self.name)


class Corpus(Case):
    """The attributes, types and locations of tests/bytecode/corpus.txt, as attributes of one op."""

    name = "corpus"

    def __init__(self) -> None:
        self.lines = (CORPUS / "corpus.txt").read_text(encoding="utf-8").splitlines()
        self._taken: dict[Tool, frozenset[str]] = {}

    def taken(self, tool: Tool) -> frozenset[str]:
        """The lines that a tool reads as text."""
        if tool not in self._taken:
            able = _taken(tool, [""])  # tpuc-opt takes modules of networks only
            self._taken[tool] = frozenset(_taken(tool, self.lines) if able else [])
        return self._taken[tool]

    def text(self, tools: tuple[Tool, ...]) -> str:
        """The lines that all of the tools read, without those that they encode in different ways."""
        lines = self._common(tools)
        return _op([line for line in lines if not UNLIKE.search(line)] if _differ(tools) else lines)

    def unlike(self, writer: Tool, reader: Tool) -> str:
        """The scalable vectors, if one of the two is LLVM 16."""
        lines = [line for line in self._common((writer, reader)) if UNLIKE.search(line)]
        return _op(lines) if lines and _differ((writer, reader)) else ""

    def _common(self, tools: tuple[Tool, ...]) -> list[str]:
        return [line for line in self.lines if all(line in self.taken(tool) for tool in tools)]

    def encoded(self, tool: Tool, version: int, release: Release) -> bytes:
        """The file that LLVM 22 wrote, read and written again with what the tool knows."""
        file = Bytecode((CORPUS / "corpus.6.mlirbc").read_bytes(), _context())
        module = file.module()
        (op,) = module.body.block.ops
        module.location = op.location = UnknownLoc()
        wanted = {line.split(" = ")[0] for line in self.taken(tool)}
        for key in [key for key in op.attributes if key != "op_name__" and key not in wanted]:
            del op.attributes[key]
        return encode(module, version=version, release=release, of_dialects=file.resources.of_dialects)

    def reads(self, tool: Tool, data: bytes) -> bool:
        """Compare every attribute's text with its line."""
        (op,) = Bytecode(data, _context()).module().body.block.ops
        values = {f"{name} = {value}" for name, value in op.attributes.items() if name != "op_name__"}
        return values == self.taken(tool)


def _differ(tools: tuple[Tool, ...]) -> bool:
    return len({tool.llvm == 16 for tool in tools}) > 1


def _taken(tool: Tool, lines: list[str]) -> list[str]:
    """The lines of which a tool reads each: all at once, or half by half."""
    try:
        tool.printed(_op(lines))
    except Refused:
        middle = len(lines) // 2
        return [*_taken(tool, lines[:middle]), *_taken(tool, lines[middle:])] if middle else []
    return lines


def _parsed(text: str, name: str) -> ModuleOp:
    return written(parse_module(text, _context(), name))


def _op(lines: list[str]) -> str:
    op = f'"t.a"() {{{", ".join(lines)}}} : () -> () loc(unknown)'
    return f"module {{ {op} }} loc(unknown)" + RESOURCES * ("dense_resource" in str(lines))


def _context() -> Context:
    ctx = context()
    ctx.allow_unregistered = True
    return ctx


def stages(networks: tuple[str, ...], chips: tuple[str, ...]) -> Iterator[Stage]:
    """The stages of networks: three before the chip is known, three for each chip; no text comes twice."""
    known = set[str]()
    for name in networks:
        for stage, model in models(import_onnx(small.build(name), name=name), chips):
            text = print_module(written(model.module))
            if text not in known:
                known.add(text)
                yield Stage(f"{name}/{stage}", text)


def models(top: Model, chips: tuple[str, ...]) -> Iterator[tuple[str, Model]]:
    """A network at each stage by its name; thresholds are all 4."""
    for stage, model in _models(top, chips):
        name_weights(model, "weights.npz", "text")  # tpuc-opt stops without the name, and needs no file
        yield stage, model


def _models(top: Model, chips: tuple[str, ...]) -> Iterator[tuple[str, Model]]:
    yield "top", top
    canonical = PassManager(Canonicalize()).run(top)
    yield "canonical", canonical
    calibrated = PassManager(ImportCalibrationTable()).run(canonical, PassContext(table=assumed_four(canonical)))
    yield "calibrated", calibrated
    for chip in chips:
        tpu = PassManager(lowered(LoweringConfig(chip, "int8"))).run(calibrated)
        yield f"{chip}/tpu", tpu
        grouped = PassManager((WeightReorder(), LayerGroup())).run(tpu)
        yield f"{chip}/grouped", grouped
        yield f"{chip}/final", PassManager(AddressAssign()).run(grouped)
