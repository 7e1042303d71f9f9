"""docs/isa.md: every command, field, legality rule and layout, made of the docstrings of this package only.

`python -m tpusim.isa.page OUT.md` (`make isa`) writes it; a test checks that it is current.
"""

import ast
import inspect
import re
import sys
from pathlib import Path
from typing import Any, get_args

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

from tpusim.chips import available, load
from tpusim.host.files import replacing
from tpusim.isa import archive, commands, layout, listing, region, stream, text
from tpusim.isa.check import BODY_RULES, RULES
from tpusim.isa.commands import Command, Requant
from tpusim.isa.region import View, bits
from tpusim.registry import COMMANDS, FUNCTIONS

HEAD = """# The instruction set

`make isa` writes this page from the docstrings of `tpusim/isa`; do not edit it. Opcodes and semantics follow
`codegen.md` sections 3 and 4 of the specification, legality `hardware.md` section 4. `tpusim dis MODEL.tpusim` prints a
program in the text form below, `tpusim asm` reads it.
"""

SECTIONS = (
    ("One line of text", text),
    ("A whole program as text", listing),
    ("The program file", stream),
    ("Its container", archive),
)
FORMULAS = (
    layout.channel_stride,
    layout.lmem_strides,
    layout.gmem_strides,
    layout.lmem_bytes,
    layout.gmem_bytes,
)


def page() -> str:
    """The page as Markdown."""
    parts = [HEAD]
    parts += [f"## {title}\n\n{_prose(module)}\n" for title, module in SECTIONS]
    parts += [_common(), _views(), _types(), "## Commands\n"]
    parts += [_command(opcode, kind) for opcode, kind in COMMANDS.shipped().items()]
    parts += [_functions(), _rules()]
    return "\n".join(parts)


def _doc(thing: object) -> str:
    return inspect.getdoc(thing) or ""


def _line(thing: object) -> str:
    """A docstring as one line."""
    return " ".join(_doc(thing).split())


def _prose(thing: object) -> str:
    """A docstring as Markdown; for a struct without the lines about single fields."""
    names: tuple[str, ...] = getattr(thing, "__struct_fields__", ())
    return "\n".join(_fenced(_split(_doc(thing), names)[0]))


def _split(doc: str, names: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    """(lines about no field, field -> the text after `field: `)."""
    rest: list[str] = []
    said: dict[str, str] = {}
    current: list[str] = []
    for line in doc.split("\n"):
        begun = re.match(r"((?:\w+, )*\w+): +(.*)", line)
        words = begun.group(1).split(", ") if begun else []
        if begun and words and set(words) <= set(names):
            current = words
            said |= dict.fromkeys(words, begun.group(2))
        elif current and line.startswith("    "):
            said |= {word: f"{said[word]} {line.strip()}" for word in current}
        else:
            current = []
            rest.append(line)
    return rest, said


def _fenced(lines: list[str]) -> list[str]:
    """Keep indented paragraphs as they are, and join a line with its indented continuations."""
    found: list[str] = []
    code = False
    for line in lines:
        indented = line.startswith("    ")
        if indented and not code and found and found[-1]:
            found[-1] += f" {line.strip()}"
            continue
        if indented and not code:
            code = True
            found.append("```text")
        elif code and line and not indented:
            code = False
            found.insert(len(found) - (found[-1] == ""), "```")
        found.append(line[4:] if code and line else line)
    while found and not found[-1]:
        found.pop()
    return [*found, "```"] if code else found


def _notes(kind: type) -> dict[str, str]:
    """Field -> the string below it in the class."""
    tree = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, str] = {}
    for field, note in zip(tree.body, tree.body[1:], strict=False):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(note, ast.Expr) and isinstance(note.value, ast.Constant):
            found[field.target.id] = " ".join(str(note.value.value).split())
    return found


def _annotations(kind: type) -> dict[str, str]:
    """Field -> its type as written, including the fields that a command inherits from another command."""
    tree = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(tree, ast.ClassDef)
    base = kind.__base__
    inherited = _annotations(base) if base is not None and issubclass(base, Command) and base is not Command else {}
    return inherited | {
        node.target.id: ast.unparse(node.annotation)
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def _table(kind: type[Struct], skip: tuple[str, ...] = ()) -> str:
    said = _split(_doc(kind), kind.__struct_fields__)[1]
    notes, types = {**said, **_notes(kind)}, _annotations(kind)
    views: dict[str, str] = {}
    if issubclass(kind, Command):
        views = {**dict.fromkeys(kind.inputs_, "read"), **dict.fromkeys(kind.outputs_, "written")}
    rows = ["| field | type | default | |", "|---|---|---|---|"]
    for field in fields(kind):
        if field.name in skip:
            continue
        note = ". ".join(part for part in (views.get(field.name, ""), notes.get(field.name, "")) if part)
        written = re.sub(r"Annotated\[int, msgspec.Meta\((.*)\)\]", r"int, \1", types[field.name])
        cells = (f"`{field.name}`", f"`{written}`", _default(field.default, field.default_factory), note)
        rows.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _default(value: Any, factory: Any) -> str:
    if factory is not NODEFAULT:
        return f"`{factory()!r}`"
    return "required" if value is NODEFAULT else f"`{value!r}`"


def _common() -> str:
    return f"## What every command has\n\n{_prose(Command)}\n\n{_prose(commands)}\n\n{_table(Command)}"


def _views() -> str:
    sizes = ", ".join(f"{name} {bits(name) / 8:g}" for name in get_args(region.DType))
    formulas = "\n".join(f"* `{f.__name__}`: {_line(f)}" for f in FORMULAS)
    rows = ["| chip | lanes | bytes per lane | EU_BYTES | 4N/2N |", "|---|---|---|---|---|"]
    for name in available():
        chip = load(name)
        packed = "yes" if chip.hardware.batch_packing else "no"
        rows.append(f"| {name} | {chip.lanes} | {chip.lmem_bytes:,} | {chip.eu_bytes} | {packed} |")
    chips = "\n".join(rows)
    return (
        f"## Views and layouts\n\n{_prose(View)}\n\n{_table(View)}\nBytes per element: {sizes}.\n\n{_prose(layout)}\n\n"
        f"{formulas}\n\n{chips}\n"
    )


def _types() -> str:
    """What the names of types stand for."""
    named = {name: getattr(module, name) for module, name in _ALIASES}
    shown = (f"* `{name}`: {', '.join(map(str, get_args(alias)))}" for name, alias in named.items())
    return "## Types of fields\n\n" + "\n".join(shown) + "\n"


_ALIASES = (
    (region, "Memory"),
    (region, "DType"),
    (region, "Layout"),
    (commands, "Relation"),
    (commands, "Rounding"),
)


def _command(opcode: str, kind: type[Command]) -> str:
    engine = kind.works or kind.engine.upper()
    body = f"### {opcode}\n\n{kind.__name__}, {engine}. {_prose(kind)}\n\n{_table(kind, Command.__struct_fields__)}"
    if opcode == next(iter(COMMANDS)):
        body += f"\n**Requant.** {_prose(Requant)}\n\n{_table(Requant)}"
    return body


def _functions() -> str:
    """Every macro function with its parameters."""
    head = (
        "## Macro functions\n\nThe functions that `fn` computes, by `name`, with their parameters.\n\n"
        "| name | parameters | |\n|---|---|---|"
    )
    rows: list[str] = []
    for name, kind in FUNCTIONS.shipped().items():
        types = _annotations(kind)
        shown = ", ".join(f"`{field.name}: {types[field.name]}`" for field in fields(kind)).replace("|", r"\|")
        rows.append(f"| `{name}` | {shown} | {_line(kind)} |")
    return "\n".join([head, *rows]) + "\n"


def _rules() -> str:
    head = (
        "## Legality\n\nEvery command obeys every rule of the chip it runs on, in this order; what a global kernel\n"
        "computes obeys those marked *body*. A broken rule is a CommandError that names command, rule, requirement and "
        "what was got.\n\n| rule | | requires |\n|---|---|---|"
    )
    rows = [f"| `{r.__name__}` | {'body' if r in BODY_RULES else ''} | {_line(r)} |" for r in RULES]
    return re.sub(r" +\n", "\n", "\n".join([head, *rows])) + "\n"


def main(path: Path) -> None:
    """Write the page to the given file."""
    with replacing(path) as temporary:
        temporary.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
