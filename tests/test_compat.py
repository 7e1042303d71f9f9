"""The table of TPU-MLIR's rules: every citation has a row, every row is cited, and its sources and switches exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tpusim.cli.page import help_of
from tpusim.compat import FITTED, RULES, UPSTREAM, Quirk, checked
from tpusim.compat.page import page
from tpusim.compat.rules import AREAS
from tpusim.errors import ConfigError

ROOT = Path(__file__).parent.parent
CITED = re.compile(r"\b[UF]-\d{2,3}\b")
RELEASE = UPSTREAM.split()[1]


@cache
def product() -> dict[str, str]:
    """Text of the product by path, without the table itself."""
    kinds = ("py", "toml", "json", "html", "js")
    paths = [path for tree in ("tpusim", "kernels") for kind in kinds for path in (ROOT / tree).rglob(f"*.{kind}")]
    table = ROOT / "tpusim" / "compat"
    return {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in paths if table not in path.parents}


def test_every_cited_number_has_a_row() -> None:
    trees = ("tpusim", "kernels", "tests", "benchmarks", "examples", "docs")
    paths = [path for tree in trees for kind in ("py", "toml", "md") for path in (ROOT / tree).rglob(f"*.{kind}")]
    cited = {number for path in paths if path != Path(__file__) for number in CITED.findall(path.read_text("utf-8"))}
    assert cited <= {*RULES, *FITTED}


def test_every_row_is_cited() -> None:
    """By its number, or a quirk by its name as a member of the Enum."""
    cited = {number for text in product().values() for number in CITED.findall(text)}
    cited |= {q.rule.number for q in Quirk if any(f"Quirk.{q.name}" in text for text in product().values())}
    assert set(RULES) - cited == set()
    assert {number for number, row in FITTED.items() if not row.chips and "." not in row.name} <= cited


def test_what_is_as_in_tpu_mlir_cites_a_rule() -> None:
    """Docstrings and comments; the texts of options and messages are for users."""
    said = re.compile(r"\bas (?:in |by )?(?:upstream|TPU-MLIR|the real (?:compiler|tool))\b", re.IGNORECASE)
    lines = {
        f"{path}: {line.strip()}"
        for path, text in product().items()
        for line in text.splitlines()
        if not path.startswith(("tpusim/cli/", "tpusim/studies/commands/"))
        and said.search(line)
        and not re.search(r"\b(?:U|F|D[NHCLI])-\d+", line)
    }
    assert lines == set()


def test_numbers_and_names_are_unique_and_without_gaps() -> None:
    rules = [rule for area in AREAS.values() for rule in area]
    numbers = sorted((rule.number for rule in rules), key=lambda number: int(number[2:]))
    assert numbers == [f"U-{n:02}" for n in range(1, len(rules) + 1)]
    assert len({rule.name for rule in rules}) == len(rules)
    assert all(all(part.strip() for part in rule[:6]) for rule in rules)
    assert not any(rule.does == rule.plain for rule in rules)


def test_the_release_is_written_once() -> None:
    """In the product; pages and tests may say which release they are about."""
    assert not [path for path, text in product().items() if RELEASE in text]
    table = (ROOT / "tpusim" / "compat").rglob("*.py")
    assert sum(path.read_text("utf-8").count(RELEASE) for path in table) == 1


def test_sources_resolve() -> None:
    """A section or decision of the specification, a file of the sources, or what the tools show."""
    for rule in RULES.values():
        where = re.fullmatch(r"([a-z_]+)\.md (\S+)", rule.source)
        assert where or re.fullmatch(r"(lib|python)/\S+|observed: .+", rule.source), rule.number
        if where:
            assert f'<a id="{where[2]}"></a>' in (ROOT / "docs" / "spec" / f"{where[1]}.md").read_text("utf-8"), rule


def test_switches_are_options() -> None:
    """Every option that a row names is in the help of a command."""
    helps = "".join(map(help_of, ("run", "import", "infer", "group", "compare", "search-qtable")))
    for rule in RULES.values():
        for option in re.findall(r"--[\w-]+", rule.switch):
            assert option in helps, (rule.number, option)


def test_an_unknown_quirk_is_answered_with_the_rows() -> None:
    with pytest.raises(ConfigError) as told:
        checked(["round_half_away", "no_quirk"])
    lines = str(told.value).splitlines()
    assert lines[0] == "quirks_off: no_quirk is no quirk; expected some of"
    assert lines[1:] == [f"  {q.rule.number} {q}: {q.rule.does}" for q in Quirk]
    assert checked(list(Quirk)) == set(Quirk)


def test_page_is_current_and_has_every_row() -> None:
    assert (ROOT / "docs" / "compat.md").read_text("utf-8") == page(), "run `make compat`"
    assert all(page().count(f'<a id="{number}"></a>{number} |') == 1 for number in (*RULES, *FITTED))
