"""How far to trust a number: which part of the specification an op follows, and what is known about it.

`spec` lists the sections of numerics.md and its decisions in one line each. `card` reads the fidelity of a lowered
model from its text: lowering writes `decisions` and `fallback` on the tpu op (tpusim.lowering), so a module that was
stopped at, edited and resumed from still tells. `support` is the table of every op on every chip in every mode: data
that `make support` measures from the op rows of the tests and that ships with the package; `page` shows it as
docs/support.md.

Nothing here names an op, and nothing decides: everything is read from the marks in the code.
"""

from tpusim.fidelity.card import Card, OpFidelity, card_of, fidelity_of
from tpusim.fidelity.spec import DECISIONS, SECTIONS

__all__ = ["DECISIONS", "SECTIONS", "Card", "OpFidelity", "card_of", "fidelity_of"]
