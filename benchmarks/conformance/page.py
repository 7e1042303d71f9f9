"""docs/conformance.md from the results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from benchmarks.conformance.explained import reason
from benchmarks.conformance.measure import CHIPS
from benchmarks.conformance.ours import NETWORKS
from benchmarks.conformance.results import Cell, Clock, Difference, Part, Results
from tpusim.fidelity.support import MODES

DECIDING = ("lowering", "ops", "tensors", "outputs")
HEAD = """# Beside TPU-MLIR itself

`make conformance` compiles every network with TPU-MLIR ({version}, from an environment of its own) and with tpusim,
from one ONNX file with one calibration table, runs both on one input, and writes this page from
`benchmarks/conformance/results.json`; do not edit it. Small networks: `tests/upstream/networks.py`.

* **top**: ops of the canonical module, paired by name. **constants**: paired ops of the lowered module with equal type,
  scale, zero point, multipliers, shifts and constants. **ops**: results equal to the real interpreter's, each op of
  ours on the interpreter's own operands: integers exactly, 16-bit floats after rounding to their type (it leaves F16
  results of LayerNorm and Interp in f32, and the next op reads them so; tpusim stores F16); where the
  interpreter disagrees with the closed simulator of its own compiler, equal to one of the two. **tensors**:
  the same from the network's input on. **outputs**: equal to the closed simulator of the chip, without those in which
  it disagrees with the interpreter of its own compiler (**itself**: how many). "-": not run, as the largest networks
  are in float modes, where it takes ten minutes and more for one sample.
* **groups**: of the real layer groups and global layers, those we have with the same ops and sections. **cycles**, and
  **bytes** loaded and stored: ours / theirs ("-": its compiler writes no profile for the chip). By layer, and before
  the clock and the groups followed the real ones: [clock.md](clock.md).
  Those of cells that `tests/upstream/data` or docs/clock.md holds are of the present compiler; of other cells ours are
  of the day on which the cell was compared.
* Ops that only move elements (Reshape, Permute) need no partner: one side may have more of them.
* A cell is **equal** if constants, tensors and outputs are, and every lowered op has its partner; **near** if constants
  are, and every op on its own but for 16-bit floats one unit in the last place away (F32: 16 units at the tensor's
  largest magnitude). Else the first op that differs on equal operands is named, with its reason from
  `benchmarks/conformance/explained.py`, or *unexplained*. Sizes: integer steps, or units in the last place.
"""


def conformance_page(found: Results) -> str:
    """The page as Markdown."""
    versions = sorted({c.upstream for c in found.cells})
    parts = [HEAD.format(version=", ".join(versions) or "not run yet"), _summary(found.cells)]
    order = {name: i for i, name in enumerate(NETWORKS)}
    cells = sorted(found.cells, key=lambda c: (order.get(c.key.network, len(order)), *_place(c)))
    for network, group in groupby(cells, key=lambda c: c.key.network):
        parts.append(f"## {network}\n\n{_table(list(group))}")
    return "\n".join(parts)


def _place(cell: Cell) -> tuple[int, int]:
    return MODES.index(cell.key.mode), CHIPS.index(cell.key.chip)


def _summary(cells: Sequence[Cell]) -> str:
    """How many cells are equal, near and neither, by chip and mode."""
    modes = [m for m in MODES if any(c.key.mode == m for c in cells)]
    lines = [["chip", *modes], ["---"] * (1 + len(modes))]
    for chip in CHIPS:
        lines.append([chip, *(_share([c for c in cells if (c.key.chip, c.key.mode) == (chip, m)]) for m in modes)])
    return f"Cells: equal + near + others, (refused there).\n\n{_lines(lines)}"


def _share(cells: Sequence[Cell]) -> str:
    taken = [c for c in cells if not c.refused]
    equal, near = sum(c.equal for c in taken), sum(c.near and not c.equal for c in taken)
    left = len(cells) - len(taken)
    return f"{equal} + {near} + {len(taken) - equal - near}" + (f" ({left})" if left else "") if cells else "-"


def _table(cells: Sequence[Cell]) -> str:
    header = [
        "mode", "chip", "top", "constants", "ops", "tensors", "outputs", "itself",
        "groups", "cycles", "bytes", "verdict",
    ]  # fmt: skip
    return _lines([header, ["---"] * len(header), *(_row(cell) for cell in cells)])


def _row(cell: Cell) -> list[str]:
    figures = [_figure(cell.parts.get(name)) for name in ("top", *DECIDING)]
    itself = str(len(cell.disagreeing)) if cell.disagreeing else ""
    return [
        cell.key.mode, cell.key.chip, *figures, itself, _figure(cell.parts.get("groups")),
        _cycles(cell.here, cell.there), _bytes(cell.here, cell.there), verdict(cell),
    ]  # fmt: skip


def _figure(part: Part | None) -> str:
    return "-" if part is None else f"{part.equal}/{part.compared}"


def _cycles(here: Clock | None, there: Clock | None) -> str:
    return "-" if here is None or there is None else f"{here.cycles:,} / {there.cycles:,}"


def _bytes(here: Clock | None, there: Clock | None) -> str:
    return "-" if here is None or there is None else f"{here.moved:,} / {there.moved:,}"


def verdict(cell: Cell) -> str:
    """*equal*, or what differs first and why."""
    if cell.refused:
        return "; ".join(f"refused {where}: {why}" for where, why in cell.refused.items())
    if cell.equal:
        return "equal"
    if cell.near:
        return _near(cell)
    part, first = next(_originals(cell), ("tensors", Difference("-", "only what other differences leave behind")))
    why = reason(cell.key, part, first) or "*unexplained*"
    others = sum(reason(cell.key, p, d) is None for p, d in _originals(cell))
    more = f"; {others} unexplained in all" if others > 1 else ""
    return f"{part} {first}: {why}{more}".replace("|", "\\|")


def _near(cell: Cell) -> str:
    ops, through = cell.parts["ops"], cell.parts["tensors"]
    if ops.equal == ops.compared and through.differing:
        behind = f"{through.differing} of {through.compared} are not, behind 16-bit results that it keeps in f32"
        return f"near: every op is equal on the interpreter's operands; {behind}"
    worst = max((d.largest for d in ops.differences), default=0.0)
    return f"near: {ops.compared - ops.equal} of {ops.compared} float results off by at most {worst:.3g} units"


def _originals(cell: Cell) -> Iterator[tuple[str, Difference]]:
    """Differences that no operand explains, beginning with those of single ops."""
    for name in ("ops", "lowering"):
        part = cell.parts.get(name)
        yield from ((name, d) for d in (part.differences if part else ()) if not d.tolerated)


def _lines(rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"
