"""Write `tpusim/ir/upstream/ops.json`: names and types of TPU-MLIR's ops, operands, results and attributes.

    python -m benchmarks.conformance.dialect_table FOLDER...

A folder has `TopOps.td` and `TpuOps.td` of one version of TPU-MLIR (`include/tpu_mlir/Dialect/{Top,Tpu}/IR`). The table
is the union of the versions; where they differ, the first folder counts. Only names, types and defaults are taken;
descriptions and code are not.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import tpusim.ir.upstream

DEFINITION = re.compile(r'^(?:def|class)\s+(\w+)\s*(?:<[^{;]*?>)?\s*:\s*(\w+)\s*(?:<\s*"([\w.]+)")?', re.MULTILINE)
NEXT = re.compile(r"^(?:def|class)\s", re.MULTILINE)
Table = dict[str, dict[str, Any]]
COMMENT = re.compile(r"//[^\n]*")
SCALARS = {
    **{f"{k}Attr": k.lower() for k in ("I64", "I32", "SI32", "UI32", "F64", "F32", "Bool")},
    **{"StrAttr": "string", "DictionaryAttr": "dict", "DictArrayAttr": "dict[]", "AffineMapAttr": "affine_map"},
    **{f"{k}ArrayAttr": f"{k.lower()}[]" for k in ("I64", "I32", "F64")},
}


def bodies(text: str) -> dict[str, tuple[str, str | None, str]]:
    """Base, mnemonic and text of every record of a TableGen file."""
    return {
        m[1]: (m[2], m[3], text[m.start() : n.start() if (n := NEXT.search(text, m.end())) else len(text)])
        for m in DEFINITION.finditer(text)
    }


def balanced(text: str, start: int) -> str:
    """What the bracket at `start` encloses."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] in "(<[{") - (text[at] in ")>]}")
        if not depth:
            return text[start + 1 : at]
    raise ValueError("a closing bracket is required")


def items(text: str) -> list[str]:
    """The parts of a list, separated by commas that no bracket or string encloses."""
    parts, depth, quoted = [""], 0, False
    for at, c in enumerate(text):
        quoted ^= c == '"' and text[at - 1] != "\\"
        depth += 0 if quoted else (c in "(<[{") - (c in ")>]}")
        if c == "," and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts if part.strip()]


def named(body: str, which: str) -> list[tuple[str, str]] | None:
    """(name, constraint) of `let arguments` or `let results`; None if the record does not state it."""
    found = re.search(rf"let\s+{which}\s*=\s*\(", body)
    if not found:
        return None
    inside = balanced(body, found.end() - 1).removeprefix("ins").removeprefix("outs")
    pairs = [re.fullmatch(r"(.*?)\s*:\s*\$(\w+)", item, re.DOTALL) for item in items(inside)]
    return [(pair[2], re.sub(r"\s+(?=\W)|(?<=\W)\s+", "", pair[1])) for pair in pairs if pair]


def choices(text: str) -> dict[str, list[str]]:
    """The values of every enumeration: `string.NAME` are strings, `tpu.MNEMONIC` attributes of the dialect."""
    found: dict[str, list[str]] = {}
    for m in re.finditer(r"def\s+(\w+)Attr\s*:\s*AnyStrAttrOf<\[(.*?)\]>", text, re.DOTALL):
        found[f"string.{m[1]}"] = re.findall(r'"([^"]*)"', m[2])
    cases = {
        m[1]: re.findall(r'I32EnumAttrCase<"(\w+)"', m[2])
        for m in re.finditer(r"def\s+(\w+)\s*:\s*I32EnumAttr<(.*?)\]\s*>", text, re.DOTALL)
    }
    for m in re.finditer(r'def\s+(\w+)Attr\s*:\s*EnumAttr<Tpu_Dialect,\s*(\w+),\s*"(\w+)"', text):
        found[f"tpu.{m[3]}"] = cases[m[2]]
    return found


def mnemonics(text: str) -> dict[str, str]:
    """Word of the table for every attribute that the dialect defines itself."""
    enums = {
        m[1]: f"tpu.{m[2]}" for m in re.finditer(r'def\s+(\w+)\s*:\s*EnumAttr<Tpu_Dialect,\s*\w+,\s*"(\w+)"', text)
    }
    structs = {m[1]: f"tpu.{m[2]}" for m in re.finditer(r'def\s+(\w+)\s*:\s*Tpu_Attr<"\w+",\s*"(\w+)"', text)}
    strings = {f"{m[1]}Attr": f"string.{m[1]}" for m in re.finditer(r"def\s+(\w+)Attr\s*:\s*AnyStrAttrOf", text)}
    return SCALARS | enums | structs | strings


def attribute(constraint: str, words: dict[str, str]) -> str | None:
    """`i64`, `si32 = 4` or `bool?`; None if the constraint is of an operand."""
    if match := re.fullmatch(r"OptionalAttr<(.*)>", constraint):
        return f"{words[match[1]]}?"
    if match := re.fullmatch(r'DefaultValuedAttr<(\w+),"(.*)">', constraint):
        default = match[2].replace('\\"', "").split("::")[-1].replace("{", "[").replace("}", "]")
        return f"{words[match[1]]} = {default}"
    return words.get(constraint)


def operand(name: str, constraint: str) -> str:
    """`input`, `bias?` (may be none), `mask?!` (may be left out) or `inputs*`."""
    if "Variadic" in constraint:
        return f"{name}*"
    if constraint.startswith("Optional<"):
        return f"{name}?!"
    return f"{name}?" if "None" in constraint else name


def ops(path: Path, dialect: str, words: dict[str, str]) -> Table:
    """The entries of one dialect."""
    records = bodies(COMMENT.sub("", path.read_text()))

    def stated(record: str, which: str) -> list[tuple[str, str]]:
        base, _, body = records[record]
        found = named(body, which)
        return found if found is not None else stated(base, which) if base in records else []

    table: Table = {}
    for record, (_, mnemonic, body) in records.items():
        if not mnemonic or not body.startswith("def") or not record.lower().startswith(f"{dialect}_"):
            continue
        if re.match(r"def\s+\w+\s*:\s*(EnumAttr|I32EnumAttr|\w+_Attr)\b", body):
            continue
        arguments = stated(record, "arguments")
        kinds = {name: attribute(constraint, words) for name, constraint in arguments}
        table[f"{dialect}.{mnemonic}"] = {
            "operands": [operand(name, constraint) for name, constraint in arguments if kinds[name] is None],
            "results": [operand(name, constraint) for name, constraint in stated(record, "results")],
            "attributes": {name: kind for name, kind in kinds.items() if kind is not None},
        }
    return table


def table_of(folder: Path) -> Table:
    """Enumerations and ops of both dialects."""
    files = {dialect: folder / f"{dialect.title()}Ops.td" for dialect in ("top", "tpu")}
    found: Table = {"choices": {}, "ops": {}}
    for dialect, path in files.items():
        text = COMMENT.sub("", path.read_text())
        found["choices"] |= choices(text)
        found["ops"] |= ops(path, dialect, mnemonics(text))
    return found


def union(tables: list[Table]) -> Table:
    """What any version has. An op's longest list of operands counts: a version adds them at the end."""
    first, *others = tables
    for other in others:
        first["choices"] = other["choices"] | first["choices"]
        for name, entry in other["ops"].items():
            known = first["ops"].setdefault(name, entry)
            known["operands"] = max(known["operands"], entry["operands"], key=len)
            known["attributes"] = entry["attributes"] | known["attributes"]
    return first


def write(table: Table, path: Path) -> None:
    """One line for each entry, so that a change of TPU-MLIR is a readable difference."""
    parts = [
        f"{json.dumps(key)}: {{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(rows.items()))
        for key, rows in table.items()
    ]
    path.write_text("{\n" + "\n},\n".join(parts) + "\n}\n}\n")


if __name__ == "__main__":
    write(
        union([table_of(Path(folder)) for folder in sys.argv[1:]]),
        Path(tpusim.ir.upstream.__file__).parent / "ops.json",
    )
