"""Final modules that TPU-MLIR's code generator took, and whose files gave our bits on the simulator of the chip.

TPUSIM_UPSTREAM=FOLDER python -m benchmarks.conformance.generated compiles the cells, lets the real tools judge each,
and records a hash of every module in tests/upstream/generated.json; tests/test_generated.py compiles them again.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
from xdsl.dialects.builtin import ModuleOp

from benchmarks.accuracy.measure import config
from benchmarks.conformance.replay import Replay
from tests.upstream import networks as small
from tpusim.calibration.stage import apply_table
from tpusim.errors import TpusimError
from tpusim.ir.module import Model
from tpusim.ir.upstream import OWN
from tpusim.ir.upstream.final import written
from tpusim.passes import PassManager
from tpusim.passes.memory import AddressAssign
from tpusim.passes.pipelines import converted, grouped
from tpusim.studies.upstream.road import agreements, generate, simulated
from tpusim.studies.upstream.tools import AUTO, Tools

RECORD = Path(__file__).parents[2] / "tests" / "upstream" / "generated.json"
CELLS = (
    "residual/bm1684x/int8",
    "residual/bm1688/int8",
    "deconv/bm1688/int8",
    "matmul/bm1684x/int8",
    "silu/bm1684x/int8",
    "residual/cv181x/int8",
    "deconv/cv181x/int8",
)


class Generated(msgspec.Struct, frozen=True):
    """A recorded module. elements: how many numbers of the simulator were compared; all of them were equal to ours."""

    sha256: str
    elements: int


def final(cell: str) -> Model:
    """The final module of a cell NETWORK/CHIP/MODE, calibrated with the recorded table."""
    name, chip, mode = cell.split("/")
    replay = Replay(name)
    calibrated = apply_table(replay.canonical, replay.table, asymmetric=False)
    return PassManager((*converted(config(chip, mode)), *grouped(), AddressAssign())).run(calibrated)


def digest(model: Model) -> str:
    """A hash of what the generator reads: all of the written module but attributes of ours and names of values."""
    return hashlib.sha256("\n".join(_lines(written(model.module))).encode()).hexdigest()


def _lines(module: ModuleOp) -> Iterator[str]:
    numbers: dict[object, int] = {}
    for op in module.walk():
        attributes = {k: v for k, v in {**op.properties, **op.attributes}.items() if not k.startswith(OWN)}
        operands = [numbers.setdefault(value, len(numbers)) for value in op.operands]
        results = [(numbers.setdefault(value, len(numbers)), str(value.type)) for value in op.results]
        stated = ", ".join(f"{k} = {attributes[k]}" for k in sorted(attributes))
        yield f"{op.name} {operands} {{{stated}}} {results} {op.location}"


def recorded() -> dict[str, Generated]:
    """The recorded cells."""
    return msgspec.json.decode(RECORD.read_bytes(), type=dict[str, Generated])


def judged(cell: str, tools: Tools) -> Generated:
    """A cell that the real tools took. Raises TpusimError if they refuse it or compute other numbers."""
    model, sample = final(cell), small.samples(small.build(cell.split("/")[0]))[0]
    with tempfile.TemporaryDirectory() as folder:
        theirs = simulated(generate(model, Path(folder), tools), sample, model, tools)
    found = agreements(model, sample, theirs)
    if wrong := [one for one in found if one.differ]:
        raise TpusimError(f"{cell}: equal results are required, got {wrong}")
    return Generated(digest(model), sum(one.elements for one in found))


def main() -> None:
    """Judge all cells and record them."""
    tools = Tools.find(AUTO)
    found = {cell: judged(cell, tools) for cell in CELLS}
    RECORD.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    for cell, one in found.items():
        print(f"{cell}: {one.elements:,} numbers equal")


if __name__ == "__main__":
    try:
        main()
    except TpusimError as error:
        raise SystemExit(str(error)) from None
