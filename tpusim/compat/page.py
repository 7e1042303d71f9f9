"""docs/compat.md: the table of rules as a page, made of nothing but the table's data.

`python -m tpusim.compat.page OUT.md` (`make compat`) writes it; a test holds it current.
"""

import re
import sys
from pathlib import Path

from tpusim.compat.fitted import FITTED, Fitted
from tpusim.compat.rule import UPSTREAM, Rule
from tpusim.compat.rules import AREAS

HEAD = f"""# What TPU-MLIR does

`make compat` writes this page from `tpusim/compat`; do not edit it. A row is a rule that tpusim has only because
{UPSTREAM} has it: what the tool does, what a correct or a plain rule would do, and the option that leaves it out. The
code cites a row by its number. Rules without an option are always on: names, formats, orders of summation, groups and
the clock are what users compare with the tool.

The quirks change compiled constants against the model's meaning; `--quirks-off NAME` leaves one out
([numerics.md 17.2](spec/numerics.md#17.2)), and the fidelity card of a run counts the ops that follow one.
"""
CONSTANTS = """## Fitted constants

Numbers of the clock and of the library's tiles that no source states. They were fitted to profiles that the tool
writes of our networks. `python -m benchmarks.fit_constants` fits each again from the recorded ones and prints
the fitted and the used value; `python -m benchmarks.constants.record` records them anew with the tool.

| number | constant | means | fitted to | a fit needs | where it differs |
|---|---|---|---|---|---|"""
_SECTION = re.compile(r"([a-z_]+)\.md (\S+)")


def page() -> str:
    """The page as Markdown."""
    return "\n".join([HEAD, *(_area(title, rules) for title, rules in AREAS.items()), _constants()])


def _area(title: str, rules: tuple[Rule, ...]) -> str:
    head = "| number | rule | where | TPU-MLIR | instead | switch | source |\n|---|---|---|---|---|---|---|"
    return "\n".join([f"## {title}\n", head, *map(_row, rules), ""])


def _row(rule: Rule) -> str:
    """A row of the table with an anchor; the source as a link into the specification."""
    source = _SECTION.sub(r"[\1.md \2](spec/\1.md#\2)", rule.source)
    switch = re.sub(r"(--.*)", r"`\1`", rule.switch)
    cells = (f'<a id="{rule.number}"></a>{rule.number}', f"`{rule.name}`", rule.where, rule.does, rule.plain)
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in (*cells, switch or "always on", source)) + " |"


def _constants() -> str:
    return "\n".join([CONSTANTS, *map(_constant, FITTED.values()), ""])


def _constant(row: Fitted) -> str:
    name = f"`{row.name}`" + (f" of {', '.join(row.chips)}" if row.chips else "")
    cells = (f'<a id="{row.number}"></a>{row.number}', name, row.means, row.profiles, row.needs, row.differs)
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def main(path: Path) -> None:
    """Write the page to the given file."""
    path.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):  # noqa: PLR2004  the program and a file
        raise SystemExit(f"the file to write is required, as in `... compat.page docs/compat.md`; got {sys.argv[1:]}")
    main(Path(sys.argv[1]))
