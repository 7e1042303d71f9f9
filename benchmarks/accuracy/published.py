"""Upstream's published tolerances for topologies of the zoo.

published.csv: rows of the model regression settings of sophgo/tpu-mlir, commit 36e3c625a (2026-04-29), columns renamed.
`network` is the zoo's name of the same topology; `section` is upstream's chip section; a tolerance "0.96,0.72" is the
smallest cosine and euclidean similarity that any tensor of the TPU module may have against the TOP module; `chips` are
those on which upstream runs the model daily. Networks of the zoo without a row have no published figure.
"""

from __future__ import annotations

import csv
from functools import cache

from benchmarks.accuracy.results import FOLDER, Key
from tpusim import chips
from tpusim.verify.compare import Tolerance

COMMON_SECTION = "bm1684x"
"""Upstream's section for chips without a separate section."""


@cache
def rows() -> tuple[dict[str, str], ...]:
    """The lines of published.csv."""
    with (FOLDER / "published.csv").open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def section_of(network: str, chip: str) -> dict[str, str] | None:
    """The row for a chip: of its section, of its family's, or of the common section if upstream runs it on the chip."""
    found = {row["section"]: row for row in rows() if row["network"] == network}
    for name in (chip, chips.load(chip).family):
        if name in found:
            return found[name]
    common = found.get(COMMON_SECTION)
    return common if common is not None and chip in common["chips"].split() else None


def models_of(network: str) -> tuple[str, ...]:
    """Upstream's models of the same topology, with their files."""
    return tuple(dict.fromkeys(f"{r['upstream_model']} ({r['file']})" for r in rows() if r["network"] == network))


def asked(key: Key) -> Tolerance | None:
    """Upstream's tolerance for this topology on this chip in this mode; None without one."""
    row = section_of(key.network, key.chip)
    text = "" if row is None else row.get(key.mode) or ""
    return Tolerance.parse(text) if text else None
