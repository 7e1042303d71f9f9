"""docs/conformance.md from the results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from benchmarks.conformance.explained import reason
from benchmarks.conformance.fuzz.summary import published, section
from benchmarks.conformance.measure import CHIPS
from benchmarks.conformance.ours import NETWORKS
from benchmarks.conformance.results import Cell, Clock, Difference, Part, Results
from tpusim.fidelity.support import MODES

DECIDING = ("lowering", "ops", "tensors", "outputs")
HEAD = """# Conformance with TPU-MLIR

`make conformance` compiles every network with TPU-MLIR ({version}, in a separate environment) and with tpusim, from one
ONNX file with one calibration table, runs both on one input, and writes this page from
`benchmarks/conformance/results.json`; do not edit it. Small networks: `tests/upstream/networks.py`.

The page leads with networks that nobody chose: drawn at random with a seed that changes with each release, and the op
sequences that exporters write for each layer (`benchmarks/conformance/fuzz`, `make conformance-fuzz`). The rates of the
known networks follow.

The newest set is seed 20270, which nothing had been fitted to when it was judged: of 30 cells the real tool compiles
18, and equal in values are 14 of these. With every output run in the closed simulator, it agrees with its interpreter
in 6 of the 18, and all 6 are equal. These are too few for a rate. Of seeds 20261 and 20262, which were judged once
before, 6 of 38 comparable cells differed. Their kinds have been looked at since, so that they count as known.

The clock alone was also compared on networks drawn with a seed that nothing had been fitted to (7717: 56 cells of
bm1684x and bm1688, the real profiles): cycles within 10 % in 44 (79 %), bytes within 2 % in 44 (79 %),
median distance 1.9 %.
Of the rest, most have other layer groups; linear Interp, Pool3D over whole planes and integer products differ by
themselves. A part of the batch, which groups did not take then, and BF16 layer norms have been mended since.
Again with seed 20264 (39 cells in INT8, F16 and BF16): cycles within 10 % in 31 (79 %), bytes within 2 % in 34 (87 %),
median distance 0.6 %, 147 of 159 groups and global layers equal.

* **top**: ops of the canonical module, paired by name. **constants**: paired ops of the lowered module with equal type,
  scale, zero point, multipliers, shifts and constants.
* **ops**: our ops whose results equal the real interpreter's on the interpreter's operands. Integers must be equal
  exactly, 16-bit floats after rounding to their type (the interpreter keeps F16 results of LayerNorm and Interp in f32,
  and the next op reads them in f32; tpusim stores F16). If the interpreter disagrees with the closed simulator of its
  compiler, a result must equal one of the two. **tensors**: the same comparison, from the network's input on.
* **outputs**: results equal to the closed simulator of the chip, without those for which it disagrees with the
  interpreter of its compiler (**itself**: their number). "-": not run, such as the largest networks in float modes,
  which take ten minutes and more for one sample.
* **groups**: how many of the real layer groups and global layers tpusim has with the same ops and sections. **cycles**,
  and **bytes** loaded and stored: ours / theirs ("-": the real compiler writes no profile for the chip). For cells of
  `tests/upstream/data` or docs/clock.md these are figures of the present compiler; for other cells, of the day on which
  the cell was compared. [clock.md](clock.md) has them by layer, and before the clock and the groups followed the real
  ones.
* Ops that only move elements (Reshape, Permute) need no partner: one side may have more of them.
* A cell is **equal** if constants, tensors and outputs are equal, and every lowered op has a partner. It is **near** if
  constants are equal, and every op on the real operands is equal except for 16-bit floats that differ by one unit in
  the last place (F32: 16 units at the tensor's largest magnitude). Otherwise the first op that differs on equal
  operands is named, with its reason from `benchmarks/conformance/explained.py`, or *unexplained*. Sizes: integer steps,
  or units in the last place.
"""

KNOWN = """## Known networks

The small networks, digits and the networks of `tpusim zoo`, which tpusim was made equal on, one by one.
"""


def conformance_page(found: Results) -> str:
    """The page as Markdown."""
    versions = sorted({c.upstream for c in found.cells})
    head = HEAD.format(version=", ".join(versions) or "not run yet")
    parts = [head, *filter(None, [section(published())]), KNOWN, _summary(found.cells)]
    order = {name: i for i, name in enumerate(NETWORKS)}
    cells = sorted(found.cells, key=lambda c: (order.get(c.key.network, len(order)), *_place(c)))
    for network, group in groupby(cells, key=lambda c: c.key.network):
        parts.append(f"### {network}\n\n{_table(list(group))}")
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
    part, first = next(_originals(cell), ("tensors", Difference("-", "only consequences of other differences")))
    why = reason(cell.key, part, first) or "*unexplained*"
    others = sum(reason(cell.key, p, d) is None for p, d in _originals(cell))
    more = f"; {others} unexplained in all" if others > 1 else ""
    return f"{part} {first}: {why}{more}".replace("|", "\\|")


def _near(cell: Cell) -> str:
    ops, through = cell.parts["ops"], cell.parts["tensors"]
    if ops.equal == ops.compared and through.differing:
        late = f"{through.differing} of {through.compared} are not, after 16-bit results that it keeps in f32"
        return f"near: every op is equal on the interpreter's operands; {late}"
    worst = max((d.largest for d in ops.differences), default=0.0)
    return f"near: {ops.compared - ops.equal} of {ops.compared} float results off by at most {worst:.3g} units"


def _originals(cell: Cell) -> Iterator[tuple[str, Difference]]:
    """Differences that no operand explains, beginning with those of single ops."""
    for name in ("ops", "lowering"):
        part = cell.parts.get(name)
        yield from ((name, d) for d in (part.differences if part else ()) if not d.tolerated)


def _lines(rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"
