"""docs/support.md: the support table as a page for people, made from the table's data alone."""

from collections.abc import Iterable, Sequence
from textwrap import fill

from tpusim.fidelity.spec import DECISIONS, EVERYWHERE, SECTIONS
from tpusim.fidelity.support import MODES, OpSupport, Outcome, Support, cell, proof, worst_first

WIDTH = 120
"""Columns of running text."""

HEAD = """# How far to trust each op

`make support` writes this page; do not edit it. Every op row of the tests is lowered on every chip in every mode, and
the cell says what the op became. `tpusim support` prints the same for one chip, mode or op, with the test that proves
it; `tpusim support --module 4_tpu.mlir` and the end of `tpusim run` print the card of one model.

| cell | meaning |
|---|---|
| exact | what the specification says, in the mode's own type; integers are held to an independent oracle, bit for bit |
| DN-14 | the specification leaves the value open and tpusim decided; the decisions are listed below |
| f32 (R3) | runs in this float type instead of the mode's, for the reason R3 below |
| refused | the chip does not have the mode |

A cell with several entries has the worst one first: which one a model gets depends on the condition that the reason or
decision names.
"""


def support_page(support: Support) -> str:
    """The page as Markdown."""
    reasons = Reasons()
    parts = [HEAD, _decisions(support), _refused(support)]
    parts += [_mode(support, mode, reasons) for mode in MODES]
    parts += [reasons.listed(), _frames(support), _ops(support)]
    return "\n".join(parts)


class Reasons:
    """Numbers the reasons in the order in which cells mention them, and collects the rows that show them."""

    def __init__(self) -> None:
        self._rows: dict[str, list[str]] = {}

    def number(self, outcome: Outcome) -> str:
        """The number of a reason: R1, R2 ..."""
        rows = self._rows.setdefault(outcome.reason, [])
        rows.extend(r for r in outcome.rows if r not in rows)
        return f"R{list(self._rows).index(outcome.reason) + 1}"

    def listed(self) -> str:
        """The section that spells the reasons out."""
        lines = [
            f"* R{i}: {reason} ({_some(rows)})" for i, (reason, rows) in enumerate(self._rows.items(), 1)
        ]  # fmt: skip
        return "\n".join(["## Reasons", "", "With the op rows of the tests that show each.", "", *lines, ""])


def _some(names: Sequence[str], limit: int = 4) -> str:
    shown = ", ".join(f"`{n}`" for n in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def _short(op: str) -> str:
    return op.removeprefix("top.")


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _decisions(support: Support) -> str:
    """The decisions that ops follow, and the decisions that apply to every integer."""
    rows: list[list[str]] = []
    for name, says in DECISIONS.items():
        met = [(s, o) for s in support.ops for o in s.outcomes if name in o.decisions]
        ops = ", ".join(dict.fromkeys(_short(s.op) for s, _ in met))
        modes = [m for m in MODES if any(c.endswith(f"/{m}") for _, o in met for c in o.cells)]
        if met:
            rows.append([name, says.replace("|", "\\|"), ops, ", ".join(modes)])
    table = _table(("decision", "it says", "ops", "modes"), rows)
    everywhere = "\n".join(f"* {name}: {says}" for name, says in EVERYWHERE.items())
    follow = "These decide every integer result, and the tables do not repeat them for each op"
    return f"## Decisions\n\n{table}\n{follow}:\n\n{everywhere}\n"


def _refused(support: Support) -> str:
    if not support.refused:
        return ""
    lines = [f"* {where.replace('/', ', ')}: {why}" for where, why in support.refused.items()]
    return "\n".join(["## Modes a chip does not have", "", *lines, ""])


def _text(outcomes: Sequence[Outcome], reasons: Reasons) -> str:
    """The content of a cell, worst first."""
    named: dict[str, list[str]] = {}
    for o in worst_first(outcomes):
        name = {"exact": "exact", "decision": ", ".join(o.decisions)}.get(o.status, o.number or "refused")
        details = named.setdefault(name, [])
        if o.status in ("float", "refused"):
            details.extend(d for d in (reasons.number(o), *o.decisions) if d not in details)
    return "; ".join(f"{name} ({', '.join(details)})" if details else name for name, details in named.items())


def _mode(support: Support, mode: str, reasons: Reasons) -> str:
    """The table of one mode: ops that are exact everywhere in a sentence, chips with equal columns together."""
    chips = [c for c in support.chips if cell(c, mode) not in support.refused]
    columns: dict[tuple[str, ...], list[str]] = {}
    for chip in chips:
        texts = tuple(_text([o for o in s.outcomes if cell(chip, mode) in o.cells], reasons) for s in support.ops)
        columns.setdefault(texts, []).append(chip)
    rows = [(_short(s.op), *(texts[i] for texts in columns)) for i, s in enumerate(support.ops)]
    exact = [name for name, *texts in rows if set(texts) == {"exact"}]
    others = [row for row in rows if row[0] not in exact]
    parts = [f"## Mode {mode}", "", _executed(support, mode, chips), ""]
    parts += [fill(f"Exact to spec on all of these chips: {', '.join(exact) or 'nothing'}.", WIDTH), ""]
    if others:
        parts.append(_table(("op", *(", ".join(group) for group in columns.values())), others))
    return "\n".join(parts)


def _executed(support: Support, mode: str, chips: Sequence[str]) -> str:
    """On which chips the tests execute the rows, and on which they only lower them."""
    ran = [c for c in chips if cell(c, mode) in support.tests]
    lowered = [c for c in chips if c not in ran]
    parts = [f"executed in tests on {', '.join(ran)}"] if ran else []
    parts += [f"lowered in tests on {', '.join(lowered)}"] if lowered else []
    text = "; ".join(parts) or "no chip has it"
    return f"{text[0].upper()}{text[1:]}."


def _frames(support: Support) -> str:
    """The ops after an input of camera frames: op, type, cells, and a test."""
    rows: list[Sequence[str]] = []
    for entry in support.frames:
        for o in worst_first(entry.outcomes):
            by_chips: dict[tuple[str, ...], list[str]] = {}
            for mode in MODES:
                if on := tuple(c for c in support.chips if cell(c, mode) in o.cells):
                    by_chips.setdefault(on, []).append(mode)
            where = "; ".join(f"{', '.join(modes)} on {', '.join(on)}" for on, modes in by_chips.items())
            said = {"exact": "exact", "decision": ", ".join(o.decisions)}.get(o.status, o.reason)
            rows.append((entry.op, o.number, said, where, f"`{o.rows[0]}`"))
    head = "## Frames of a camera\n\nOps of the tpu dialect that `--fuse-preprocess` adds after an input.\n\n"
    return head + _table(("op", "type", "fidelity", "modes and chips", "test"), rows)


def _ops(support: Support) -> str:
    """Sections, rows and a proof of every op."""
    rows = [[_short(s.op), ", ".join(s.spec), str(len(_rows(s))), _proof(s, support)] for s in support.ops]
    named = sorted({i for s in support.ops for i in s.spec}, key=lambda i: [int(p) for p in i.split(".")])
    sections = "; ".join(f"{i} {SECTIONS[i]}" for i in named)
    rewritten = ", ".join(_short(op) for op in support.rewritten)
    gone = f"\nAlways rewritten into other ops before lowering: {rewritten}.\n" if rewritten else ""
    head = "## Where it is specified, and the first test that proves it\n\n"
    named_here = fill(f"Sections of numerics.md: {sections}.", WIDTH)
    return f"{head}{named_here}\n{gone}\n{_table(('op', 'sections', 'rows', 'test'), rows)}"


def _rows(entry: OpSupport) -> set[str]:
    return {r for o in entry.outcomes for r in o.rows}


def _proof(entry: OpSupport, support: Support) -> str:
    """A test of the op's integers if it has integer forms, otherwise of its float form."""
    integers_first = sorted(entry.outcomes, key=lambda o: o.number != "int8")
    return next((f"`{t}`" for o in integers_first if (t := proof(o, o.cells[0], support)[0])), "")
