"""docs/accuracy.md from the results: one table per network, with one line for chips with equal figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.accuracy.measure import NETWORKS, TRAINED
from benchmarks.accuracy.published import asked, models_of
from benchmarks.accuracy.results import Measured, Results
from tpusim.fidelity.support import MODES
from tpusim.verify.tolerances import tpu_vs_top

HEAD = """# How accurate is each network on each chip

`make accuracy` measures what is missing and writes this page from benchmarks/accuracy/results.json; do not edit it.
Every figure compares the TPU module with the float module on one sample, tensor by tensor; the worst tensor counts.

* *cosine, euclidean*: the worst similarity of any tensor. *tensor*: the one with the worst cosine.
* *default*: whether every tensor is within tpusim's tolerance of the mode, which is upstream's `model_deploy` default
  ({defaults}).
* *upstream asks*: the tolerance that upstream publishes for the same topology in that chip's section, and whether this
  network is within it; "-": nothing is published for this topology, chip and mode.
* *machine*: the compiled commands executed on the local-memory machine against the flat model. *bit-exact*: all integer
  tensors are equal; *within bounds*: no integer tensors, floats within their bound; "-": not run in this cell.
* *ops*: exact to spec / following a decision / float fallbacks, as in [support.md](support.md).

The digits network is trained and its images are real, so its top-1 means something. **The other networks have seeded
random weights and see random images**: they show what the arithmetic does to a topology of that depth, but an upstream
tolerance was set for trained weights and real images. A cell within it says that nothing is lost that should not be; a
cell outside it does not by itself say that the simulator is wrong. Top-1 of such a network would be meaningless and is
not given.
"""


def accuracy_page(results: Results) -> str:
    """The page as Markdown."""
    defaults = "; ".join(f"{m} {tpu_vs_top(m)}" for m in ("int8", "f16", "bf16", "f32"))
    names = [n for n in NETWORKS if any(c.key.network == n for c in results.cells)]
    missing = [n for n in NETWORKS if n not in names]
    parts = [HEAD.format(defaults=defaults), *(_network(n, results) for n in names)]
    if missing:
        parts.append(f"Not measured yet: {', '.join(missing)}.\n")
    if results.failed:
        lines = [f"* {key}: {why}" for key, why in results.failed.items()]
        parts.append("\n".join(["## Refused", "", *lines, ""]))
    return "\n".join(parts)


def _network(name: str, results: Results) -> str:
    cells = [c for c in results.cells if c.key.network == name]
    trained = name == TRAINED
    header = ["mode", "chips", "cosine", "euclidean", "tensor", "default", "upstream asks", "machine", "ops"]
    lines: dict[tuple[str, ...], list[str]] = {}
    for cell in sorted(cells, key=lambda c: (MODES.index(c.key.mode), c.key.chip)):
        lines.setdefault(_figures(cell, trained), []).append(cell.key.chip)
    rows = [(mode, ", ".join(chips), *rest) for (mode, *rest), chips in lines.items()]
    kind = "trained" if trained else "seeded random weights"
    models = ", ".join(models_of(name))
    same = f"Upstream's model of this topology: {models}." if models else "Upstream publishes no tolerance for it."
    return f"## {name} ({kind})\n\n{same}\n\n{_table([*header, *(['top-1'] if trained else [])], rows)}"


def _figures(cell: Measured, trained: bool) -> tuple[str, ...]:
    """A line without its chips."""
    found = (
        cell.key.mode,
        _similarity(cell.cosine),
        _similarity(cell.euclidean),
        f"`{cell.worst}`" if cell.worst else "all equal",
        "pass" if cell.passed else "**fail**",
        _asked(cell),
        _machine(cell),
        f"{cell.exact} / {cell.decision} / {cell.fallback}",
    )
    if not trained:
        return found
    top1 = "-" if cell.top1 is None else f"{cell.top1.top1:.2%} (float {cell.top1.float_top1:.2%}, {cell.top1.samples})"
    return (*found, top1)


def _similarity(value: float | None) -> str:
    return "not a number" if value is None else f"{value:.4f}"


def _asked(cell: Measured) -> str:
    tolerance = asked(cell.key)
    if tolerance is None:
        return "-"
    cosine, euclidean = cell.cosine, cell.euclidean
    within = cosine is not None and euclidean is not None
    within = within and cosine >= tolerance.cosine and euclidean >= tolerance.euclidean  # type: ignore[operator]
    return f"{tolerance}: {'pass' if within else '**outside**'}"


def _machine(cell: Measured) -> str:
    if cell.local is None:
        return "-"
    if not cell.local.passed:
        return "**differs**"
    return "bit-exact" if cell.local.bit_exact else "within bounds"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
