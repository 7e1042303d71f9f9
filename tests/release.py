"""`make release`: what must hold before a version is tagged; prints the command that tags it.

Looks at the files only. That tests pass is the business of `.ci/run`, which must have run on the same commit.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from empty_environments import build_wheel
from pattern_page import page as patterns_page

from tpusim.cli.page import page as command_line_page
from tpusim.compat.page import page as compat_page
from tpusim.fidelity.dialects import page as dialects_page
from tpusim.isa.page import page as instruction_page
from tpusim.version import __version__

ROOT = Path(__file__).resolve().parent.parent
PAGE = 120
"""Lines that the changelog of one release may have."""
PAGES = {
    "docs/cli.md": command_line_page,
    "docs/compat.md": compat_page,
    "docs/dialects.md": dialects_page,
    "docs/isa.md": instruction_page,
    "docs/patterns.md": patterns_page,
}
"""Generated pages, and what makes them."""


def faults(root: Path, version: str) -> Iterator[str]:
    """What is wrong with the files of a release, one sentence each."""
    declared = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    cited = re.search(r"^version: (.*)$", (root / "CITATION.cff").read_text(), re.MULTILINE)
    for name, found in (("pyproject.toml", declared), ("CITATION.cff", cited and cited[1])):
        if found != version:
            yield f"{name}: version {version} of tpusim/version.py is required, got {found}"
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", (root / "CHANGELOG.md").read_text(), re.M | re.S))
    if sections.get("Unreleased", "").strip():
        yield f"CHANGELOG.md: an empty section Unreleased is required; move its lines to {version}"
    title = re.compile(re.escape(version) + r" \(\d{4}-\d\d-\d\d\)")
    dated = [text for name, text in sections.items() if title.fullmatch(name)]
    if len(dated) != 1:
        yield f"CHANGELOG.md: one section '## {version} (YYYY-MM-DD)' is required, got {list(sections)}"
    elif len(dated[0].splitlines()) > PAGE:
        yield f"CHANGELOG.md: at most {PAGE} lines for {version} are required, got {len(dated[0].splitlines())}"


def main() -> int:
    """Every fault on a line, or the command that tags the commit."""
    found = list(faults(ROOT, __version__))
    for name, page in PAGES.items():
        if (ROOT / name).read_text() != page():
            found.append(f"{name}: the generated page is required; run make {Path(name).stem}")
    if changed := git("status", "--porcelain"):
        found.append(f"the working tree: no changes are required, got {len(changed.splitlines())} changed files")
    if git("tag", "--list", f"v{__version__}"):
        found.append(f"v{__version__}: the tag exists; raise the version")
    with tempfile.TemporaryDirectory(prefix="tpusim-release-") as folder:
        wheel = build_wheel(Path(folder))
        sys.stdout.write(f"{wheel.name}, {wheel.stat().st_size:,} bytes\n")
    for fault in found:
        sys.stdout.write(f"{fault}\n")
    if not found:
        sys.stdout.write(f"ready: git tag -a v{__version__} -m 'tpusim {__version__}'\n")
    return int(bool(found))


def git(*words: str) -> str:
    """What git prints."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
