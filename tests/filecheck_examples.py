"""The examples of `tests/filecheck`: a module before a pass, and CHECK lines of the module after it.

`python tests/filecheck_examples.py FILE.mlir ...` prints what the command of the RUN line prints. A line
`// WEIGHT name = 1 2 3` gives the data of a weight: numbers, repeated until the tensor is full. Lines
`// FILE name: text` are the content of a file. The test writes a copy of the module, the weights, as `weights.npz`, and
these files into an empty folder, which the RUN line calls %S.
"""

from __future__ import annotations

import re
import shlex
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from xdsl.context import Context

from tpusim.cli.opt import optimise
from tpusim.ir.attrs import op_name
from tpusim.ir.module import NamesWeight
from tpusim.ir.text import parse_module
from tpusim.ir.types import storage_dtype, tensor_of

ROOT = Path(__file__).with_name("filecheck")
WEIGHT = re.compile(r"^// WEIGHT (\S+) = (.*)$", re.MULTILINE)
FILE = re.compile(r"^// FILE (\S+): (.*)$", re.MULTILINE)
RUN = re.compile(r"\A// RUN: tpusim opt (.*) %s \| filecheck %s$", re.MULTILINE)


def command(text: str) -> list[str]:
    """The options of `tpusim opt` on the RUN line, which is the first line of the file."""
    found = RUN.search(text)
    assert found is not None, "the first line must be: // RUN: tpusim opt ... %s | filecheck %s"
    return shlex.split(found[1])


def write_weights(text: str, folder: Path, ctx: Context) -> None:
    """Write the data of the file's weights, each once, in the types of the module."""
    stated = {name: [float(number) for number in numbers.split()] for name, numbers in WEIGHT.findall(text)}
    module = parse_module(text, ctx)
    weights = {op_name(op): tensor_of(op.results[0]) for op in module.walk() if op.has_trait(NamesWeight)}
    assert set(weights) == set(stated), "every weight must have a WEIGHT line, and every WEIGHT line a weight"
    if weights:
        data = {
            name: np.resize(np.array(stated[name], storage_dtype(of.element_type)), of.get_shape())
            for name, of in weights.items()
        }
        np.savez(folder / "weights.npz", **data)  # type: ignore[reportArgumentType]


def output(text: str, folder: Path, ctx: Context, *more: str) -> str:
    """What the RUN line of a file with this text prints in front of the pipe; more: further options of `tpusim opt`."""
    write_weights(text, folder, ctx)
    for name, line in FILE.findall(text):
        with (folder / name).open("a", encoding="utf-8") as file:
            file.write(line + "\n")
    source = folder / "example.mlir"
    source.write_text(text, encoding="utf-8")
    printed = StringIO()
    with redirect_stdout(printed):
        status = optimise([*(word.replace("%S", str(folder)) for word in command(text)), *more, str(source)])
    assert status == 0, "a pass or pattern changed numbers"
    return printed.getvalue()


if __name__ == "__main__":
    from tpusim.ir.dialects import open_context

    for path in sys.argv[1:]:
        with TemporaryDirectory() as folder:
            sys.stdout.write(output(Path(path).read_text(encoding="utf-8"), Path(folder), open_context()))
