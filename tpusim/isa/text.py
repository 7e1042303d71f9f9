"""One command, tensor or slice as one line of text that a person reads and diffs, and back (codegen.md DC-01).

    tiu       2 dep=3     lut             op=t2 step=n0h0 group=0 input=lmem:0x0:1x3x5x6:i8:aligned table=... output=...

A command's line is engine, id, the id it waits for, opcode, then `field=value`; fields at their defaults are left out.
A value is JSON without blanks; a plain word needs no quotes, `NaN` and `Infinity` are numbers. A view is
memory:address:shape:dtype:layout, then the values that differ from the default: `:strides=48,16,4,1`, `:interleave=4`,
`:lane=3`, `:lane_pitch=1024`, `:batch_axis=1`; `[view;view]` is a list of views. The body of a global kernel or host
call follows the word `computes`. A source is the name of a tensor or constant, or `[op,group,step]` of a slice, with a
last `true` if a load wrote it. `parse_command(command_line(c))` is `c` again, bit for bit.
"""

import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, TypeVar, cast, get_args

import msgspec
from msgspec.structs import FieldInfo, fields

from tpusim.isa.commands import Command, GlobalKernel, Source
from tpusim.isa.decoding import MALFORMED, convert, kind_of
from tpusim.isa.region import View
from tpusim.registry import COMMANDS

R = TypeVar("R", bound=msgspec.Struct)

_HEAD = re.compile(r"(tiu|gdma) +(\d{1,9}) +dep=(\d{1,9}) +(\w+)")
_KEY = re.compile(r" +(?:([A-Za-z_]\w*)=|computes +(\w+)(?= |$))")
_WORD = re.compile(r"[A-Za-z_/][\w./-]*", re.ASCII)
_VIEW = re.compile(r"[lg]mem:\S*|\[[lg]mem:\S*")
_CONSTANTS = ("true", "false", "null", "NaN", "Infinity")
_POSITIONAL = ("id", "dep")
_JSON = json.JSONDecoder()


# --------------------------------------------------------------------------------------------------------------- write


def command_line(command: Command) -> str:
    """The line of a command, without its end."""
    opcode = str(command.__struct_config__.tag)
    line = f"{command.engine:<4} {command.id:>6} dep={command.dep:<5} {opcode:<15}{_pairs(command, _POSITIONAL)}"
    if (body := command.computed) is command:
        return line
    inherited = [name for name, value in _inherited(command).items() if getattr(body, name) == value]
    return f"{line} computes {body.__struct_config__.tag}{_pairs(body, inherited)}"


def record_line(word: str, record: msgspec.Struct, without: Iterable[str] = (), first: str = "") -> str:
    """The line of a tensor, group, slice or header: a word, what comes `first` (" name=value"), its fields."""
    return f"{word:<8}{first}{_pairs(record, without)}"


def _inherited(kernel: Command) -> dict[str, Any]:
    """Field values that the body of a global kernel takes from the kernel unless its line states others."""
    return {"id": 0, "dep": 0, "op": kernel.op, "group": kernel.group}


def _pairs(record: msgspec.Struct, without: Iterable[str]) -> str:
    """` name=value` of every field that is not at its default; a command's views last, inputs first."""
    shown = [field for field in _ordered(type(record)) if field.name not in without]
    values = ((field, _number(field, getattr(record, field.name))) for field in shown)
    return "".join(f" {field.encode_name}={_value(value)}" for field, value in values if not _default(field, value))


@cache
def _ordered(kind: type[msgspec.Struct]) -> tuple[FieldInfo, ...]:
    """Fields in the order of the text; for a command: where it comes from, what it does, its views."""
    if not issubclass(kind, Command):
        return fields(kind)
    first, last = Command.__struct_fields__, (*kind.inputs_, *kind.outputs_)
    rank = {name: place for place, name in enumerate((*first, "", *last))}
    return tuple(sorted(fields(kind), key=lambda f: rank.get(f.name, rank[""])))


def _number(field: FieldInfo, value: Any) -> Any:
    """A whole number in a float field as a float, so that one value has one text."""
    return float(value) if type(value) is int and float in (field.type, *get_args(field.type)) else value


def _default(field: FieldInfo, value: object) -> bool:
    if field.name == "body":
        return True  # after `computes`
    if field.default_factory is not msgspec.NODEFAULT:
        return not value
    return value is field.default or (type(value) is type(field.default) and repr(value) == repr(field.default))


def _value(value: object) -> str:
    if isinstance(value, View):
        return view_text(value)
    if isinstance(value, str) and _WORD.fullmatch(value) and value not in _CONSTANTS:
        return value
    if isinstance(value, tuple) and value:
        items = cast("tuple[object, ...]", value)
        if isinstance(items[0], View):
            return f"[{';'.join(view_text(cast('View', item)) for item in items)}]"
    return json.dumps(value, separators=(",", ":"), default=_builtin)


def _builtin(value: object) -> Any:
    """The JSON form of a record; a source has the form that the module's docstring states."""
    if not isinstance(value, Source):
        return msgspec.to_builtins(value)
    return [value.name, value.group, value.step, *[True] * value.loaded] if value.step else value.name


def view_text(view: View) -> str:
    """The text of a view, as in `lmem:0x200:1x3x5x6:i8:aligned:interleave=4`."""
    shape = "x".join(map(str, view.shape))
    parts = [view.memory, f"{view.address:#x}", shape, view.dtype, view.layout]
    if view.strides is not None:
        parts.append(f"strides={','.join(map(str, view.strides))}")
    more = {name: getattr(view, name) for name in _VIEW_FIELDS}
    return ":".join([*parts, *(f"{name}={value}" for name, value in more.items() if value != _VIEW_FIELDS[name])])


_VIEW_FIELDS = {"interleave": 1, "lane": 0, "lane_pitch": 0, "batch_axis": 0}


# ---------------------------------------------------------------------------------------------------------------- read


def parse_command(line: str) -> Command:
    """The command of a line. Raises ValueError."""
    head = _HEAD.match(line)
    if head is None:
        raise ValueError(f"a command begins with engine, id, dep and opcode, got '{line[:60]}'")
    engine, number, dep, opcode = head.groups()
    own, inner, body = _split(line, head.end())
    given = {"cmd": opcode, "id": int(number), "dep": int(dep), **own}
    if "sources" in given:
        given["sources"] = _sources(given["sources"])
    kind = kind_of(COMMANDS, opcode)
    if issubclass(kind, GlobalKernel):
        given["body"] = {"cmd": inner, **body}
    elif inner:
        raise ValueError("only a global kernel may have 'computes'")
    command = kind.decoded(given)
    if command.engine != engine:
        raise ValueError(f"{opcode} is a command of the {command.engine} engine, not of {engine}")
    return command


def _sources(value: Any) -> Any:
    """Names of tensors and constants as sources."""
    if not isinstance(value, list):
        return value
    return [[item] if isinstance(item, str) else item for item in cast("list[object]", value)]


def parse_record(text: str, kind: type[R], **given: object) -> R:
    """A tensor, group, slice or header from the fields of its line. Raises ValueError."""
    own, inner, _ = _split(text, 0)
    if inner:
        raise ValueError("only a global kernel may have 'computes'")
    return convert({**own, **given}, kind)


def _split(line: str, at: int) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """(fields, opcode of a global kernel's body, fields of the body) from position `at` on."""
    own: dict[str, Any] = {}
    body: dict[str, Any] = {}
    inner = ""
    for key, value in _tokens(line.rstrip(), at):
        if not key:
            if inner:
                raise ValueError("'computes' is given twice")
            inner = str(value)
            continue
        target = body if inner else own
        if key in target:
            raise ValueError(f"field '{key}' is given twice")
        target[key] = value
    return own, inner, body


def _tokens(line: str, at: int) -> Iterator[tuple[str, Any]]:
    while at < len(line):
        found = _KEY.match(line, at)
        if found is None:
            raise ValueError(f"field=value is required at column {at + 1}, got '{line[at : at + 40].strip()}'")
        key, inner = found.groups()
        value, at = (inner, found.end()) if inner else _scan(line, found.end())
        yield key or "", value


def _scan(line: str, at: int) -> tuple[Any, int]:
    """Read one value of a line: (value, the position after it)."""
    view = _VIEW.match(line, at)
    if view is not None:
        text = view.group()
        if not text.startswith("["):
            return _view(text), view.end()
        if not text.endswith("]"):
            raise ValueError(f"a list of views ends with ], got '{text[-40:]}'")
        return [_view(part) for part in text[1:-1].split(";")], view.end()
    word = _WORD.match(line, at)
    if word is not None and word.group() not in _CONSTANTS:
        return word.group(), word.end()
    try:
        return _JSON.raw_decode(line, at)
    except MALFORMED as error:
        raise ValueError(f"a value is required at column {at + 1}, got '{line[at : at + 40]}'") from error


def _view(text: str) -> dict[str, Any]:
    memory, address, shape, dtype, layout, *more = [*text.split(":"), *[""] * 4][: max(5, text.count(":") + 1)]
    view: dict[str, Any] = {"memory": memory, "dtype": dtype, "layout": layout}
    try:
        view["address"] = int(address, 16)
        view["shape"] = _numbers(shape, "x")
        for item in more:
            name, _, value = item.partition("=")
            if name in view or name not in ("strides", *_VIEW_FIELDS):
                raise ValueError(name)
            view[name] = _numbers(value, ",") if name == "strides" else int(value)
    except ValueError as error:
        raise ValueError(f"a view is memory:address:shape:dtype:layout, got '{text[:80]}'") from error
    return view


def _numbers(text: str, separator: str) -> list[int]:
    return [int(part) for part in text.split(separator)] if text else []
