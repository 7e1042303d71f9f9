"""What code, tests and docs cite of the specification and of architecture.md exists: `numerics.md 4.3`, `DN-05`."""

import re
from functools import cache
from pathlib import Path

from tpusim.fidelity.spec import DECISIONS, EVERYWHERE, SECTIONS

ROOT = Path(__file__).parent.parent
SPEC = ROOT / "docs" / "spec"
PAGES = ("numerics", "hardware", "layer_group", "codegen", "interface", "files")
TREES = ("tpusim", "kernels", "tests", "benchmarks", "examples", "docs")
NUMBER = r"\d+(?:\.\d+)*"
LIST = rf"{NUMBER}(?!\w)(?:(?:, | and | to ){NUMBER}(?![\w-]))*"
CITED = re.compile(rf"\b({'|'.join(PAGES[:-1])}|architecture)(?:\.md)?,? (?:sections? )?(D[NHCLI]-\d+|{LIST})")
DECISION = re.compile(r"\bD[NHCLI]-\d+\b")
LINK = re.compile(r"\]\(([\w./-]*)#([^)\s]+)\)")


@cache
def anchors(page: str) -> tuple[str, ...]:
    folder = SPEC if page in PAGES else SPEC.parent
    return tuple(re.findall(r'<a id="([^"]+)"></a>', (folder / f"{page}.md").read_text(encoding="utf-8")))


def decisions() -> set[str]:
    return {anchor for page in PAGES for anchor in anchors(page) if DECISION.fullmatch(anchor)}


def sources() -> list[Path]:
    """All text that may cite: Python, chip files and pages, including the specification; not this file."""
    found = [path for tree in TREES for kind in ("py", "toml", "md") for path in (ROOT / tree).rglob(f"*.{kind}")]
    return [path for path in (*found, ROOT / "README.md", ROOT / "CHANGELOG.md") if path != Path(__file__)]


def sections(text: str) -> list[tuple[str, str]]:
    """(page, section or decision) of every citation: `numerics.md 5.1, 5.2 and 6` is three."""
    return [(page, one) for page, many in CITED.findall(text) for one in re.split(r", | and | to ", many)]


def missing(text: str) -> set[str]:
    """What a text cites that no page has."""
    cited = {f"{page}.md {where}" for page, where in sections(text) if where not in anchors(page)}
    return cited | (set(DECISION.findall(text)) - decisions())


def test_every_citation_has_an_anchor():
    wrong = {str(path.relative_to(ROOT)): found for path in sources() if (found := missing(path.read_text("utf-8")))}
    assert not wrong


def test_citations_are_found_at_all():
    """The patterns would pass everything if they saw nothing: they see some 900 in the sources."""
    texts = [path.read_text("utf-8") for path in sources()]
    assert sum(len(sections(text)) for text in texts) > 700
    assert missing("numerics.md 4.3, 4.99 and 6; spec/hardware.md section 2.1, DN-05, DH-99, layer_group.md DL-77") == {
        "numerics.md 4.99", "DH-99", "DL-77", "layer_group.md DL-77",
    }  # fmt: skip


def test_the_fidelity_card_names_sections_and_decisions_of_the_pages():
    assert set(SECTIONS) <= set(anchors("numerics"))
    assert {name.split()[0] for name in (*DECISIONS, *EVERYWHERE)} <= set(anchors("numerics"))


def test_each_section_and_decision_has_one_anchor():
    for page in PAGES:
        headings = re.findall(r"^#{2,3} (.*)$", (SPEC / f"{page}.md").read_text("utf-8"), re.MULTILINE)
        assert sorted(anchors(page)) == sorted(set(anchors(page))), page
        assert headings and all(re.match(rf'<a id="({NUMBER})"></a>\1 ', line) for line in headings), page


def test_links_into_the_specification_resolve():
    wrong = [
        f"{path.name}: {target}#{anchor}"
        for path in SPEC.glob("*.md")
        for target, anchor in LINK.findall(path.read_text("utf-8"))
        if anchor not in anchors(Path(target or path).stem)
    ]
    assert not wrong
