"""How far to trust a number: the part of the specification that an op follows, and the evidence for it.

`spec` lists the sections of numerics.md and its decisions in one line each. `card` reads the fidelity of a lowered
model from its text: lowering writes `tpusim.decisions` and `tpusim.fallback` on the tpu op, so a module that was
edited between stages still has them. `support` is the table of every op on every chip in every mode: data that `make
support` measures from the op rows of the tests and that is part of the package; `page` shows it as docs/support.md.

This package names no op and decides nothing: everything is read from attributes of ops.
"""

from tpusim.fidelity.card import Card, OpFidelity, card_of, fidelity_of
from tpusim.fidelity.spec import DECISIONS, SECTIONS

__all__ = ["DECISIONS", "SECTIONS", "Card", "OpFidelity", "card_of", "fidelity_of"]
