"""One row of the table, and the release that it is about."""

from typing import Final, NamedTuple

UPSTREAM: Final = "TPU-MLIR 1.30.2"
"""The release whose rules these are; the code says "TPU-MLIR" or "upstream" and means it."""


class Rule(NamedTuple):
    """A rule that exists only because TPU-MLIR has it.

    number: the code cites it; it is never used for another rule. name: that of a quirk is an option's value.
    where: the stage, and the op if it is about one. does: what TPU-MLIR does, and tpusim with it. plain: what a correct
    or a simpler rule would do. source: a section of docs/spec ("numerics.md 5.1"), a file of TPU-MLIR's sources, or
    "observed: ..." with the tool that shows it. switch: the option that turns the rule off; empty: it is always on.
    """

    number: str
    name: str
    where: str
    does: str
    plain: str
    source: str
    switch: str = ""
