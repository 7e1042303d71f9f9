"""docs/dialects.md: the table of the two dialects as a page, with who computes what, on which chips.

python -m tpusim.fidelity.dialects docs/dialects.md
"""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

from xdsl.ir import Operation

from tpusim.fidelity.support import load
from tpusim.host.files import replacing
from tpusim.ir import upstream
from tpusim.ir.upstream import AttributeEntry, Meaning, OpEntry, meaning
from tpusim.registry import DIALECTS

REFUSED = "Its tools refuse a module with such an op, unless files have the op in another form."
HEAD = """# The two dialects

`make dialects` writes this page; do not edit it. It shows the ops of the dialects `top` and `tpu` in TPU-MLIR's
spelling (`tpusim/ir/upstream`), and what tpusim makes of them. An operand with `?` may be `top.None`, one with `?!`
may be left out, and `*` stands for any number of operands. An attribute with `?` is optional, one with `=` has that
default, and all others must be stated.

What an attribute means here: one in **bold** is computed. An attribute in plain type is *neutral*: it is accepted with
its default, and with another value the op is refused. One in *italics* is *opaque*: it is kept and printed as it was
read, because it changes no number. Ops without arithmetic in tpusim are opaque as a whole. Attributes that tpusim adds
are called `tpusim.`; TPU-MLIR keeps and ignores them.
"""


def page() -> str:
    """The page as Markdown."""
    parts = [HEAD]
    for dialect in ("top", "tpu"):
        parts += [f"## {dialect}\n", *_computed(dialect), *_opaque(dialect), *_added(dialect)]
    return "\n".join(parts) + "\n"


def _classes(dialect: str) -> dict[str, type[Operation]]:
    return {op.name: op for op in sorted(DIALECTS.get(dialect).operations, key=lambda op: op.name)}


def _computed(dialect: str) -> Iterator[str]:
    """A section of each op that both have."""
    chips = _chips()
    for name, cls in _classes(dialect).items():
        if known := upstream.entry(name):
            defined = upstream.defined_attributes(cls)
            yield f"### {name}\n"
            yield f"* operands: {_list(_operand(o) for o in known.operands)}"
            yield f"* results: {_list(_operand(o) for o in known.results)}"
            yield f"* attributes: {_list(_attribute(known, a, defined) for a in known.attributes.values())}"
            if added := sorted(defined - set(known.attributes)):
                yield f"* attributes of tpusim: {_list(f'`{a}`' for a in added)}"
            yield f"* computed by `{cls.__module__}.{cls.__name__}`{chips.get(name, '')}\n"


def _opaque(dialect: str) -> Iterator[str]:
    """A table of the ops that only TPU-MLIR has."""
    ours = _classes(dialect)
    yield f"### Ops of {dialect} without arithmetic in tpusim\n"
    yield "| op | operands | attributes |\n|---|---|---|"
    for name in sorted(upstream.names()):
        known = upstream.entry(name)
        if known and name.startswith(f"{dialect}.") and name not in ours:
            attributes = (f"`{a.name}: {_type(a)}`" for a in known.attributes.values())
            yield f"| {name} | {_list(_operand(o) for o in known.operands)} | {_list(attributes)} |"
    yield ""


def _added(dialect: str) -> Iterator[str]:
    """The ops that only tpusim has, and what TPU-MLIR has in their place."""
    yield f"### Ops of {dialect} that TPU-MLIR does not have\n\n{REFUSED}\n"
    for name, cls in _classes(dialect).items():
        if not upstream.entry(name):
            yield f"* {' '.join((inspect.getdoc(cls) or name).split())}"
    yield ""


def _list(words: Iterator[str]) -> str:
    return ", ".join(words) or "none"


def _operand(operand: upstream.OperandEntry) -> str:
    marks = "?" * operand.absent + "!" * operand.missing + "*" * operand.variadic
    return f"`{operand.name}{marks}`"


def _type(attribute: AttributeEntry) -> str:
    default = "" if attribute.default is None else f" = {attribute.default}"
    return f"{attribute.type}{'?' if attribute.optional else ''}{default}"


def _attribute(op: OpEntry, attribute: AttributeEntry, defined: frozenset[str]) -> str:
    text = f"`{attribute.name}: {_type(attribute)}`"
    if attribute.name in defined:
        return f"**{text}**"
    return f"*{text}*" if meaning(op.name, attribute.name) is Meaning.OPAQUE else text


def _chips() -> dict[str, str]:
    """Op -> the chips on which it is lowered in some mode."""
    table = load()
    found: dict[str, str] = {}
    for op in (*table.ops, *table.frames):
        cells = [cell for outcome in op.outcomes if outcome.status != "refused" for cell in outcome.cells]
        chips = sorted({cell.split("/")[0] for cell in cells})
        found[op.op] = f", on {'all chips' if len(chips) == len(table.chips) else ', '.join(chips) or 'no chip'}"
    return found


def main(path: Path) -> None:
    """Write the page to the given file."""
    with replacing(path) as temporary:
        temporary.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
