"""Reads MLIR text of tpusim and of upstream into flat lists of ops, with the data that the comparison needs.

Upstream's modules have ops, attributes and nested regions that tpusim's dialects do not know, so that no verifying
parser can read them. Both print the generic form with one op per line, which is all that this reader requires.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tpusim.ir.upstream.spelling import OWN

_OP = re.compile(r'^\s*(?:(%[^=]*?) = )?"(\w+\.\w+)"\(([^)]*)\)(?: <\{.*?\}>)?(.*)$')
_END = re.compile(r"^\s*\}\)(.*)$")
_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_TYPE = re.compile(r"tensor<((?:\d+x)*)([^,<>]*(?:<[^<>]*(?:<[^<>]*>)?[^<>]*>)?)[^<>]*>|none")
_UNIFORM = re.compile(r"!quant\.uniform<([iu]\d+)(?:<[-\d:]+>)?:(\w+), ([-\d.eE+]+)(?::(-?\d+))?>")
_CALIBRATED = re.compile(r"!quant\.calibrated<(\w+)<([-\d.eE+]+):([-\d.eE+]+)>>")


BY_RESULT = ("lstm", "gru", "topk")
"""Kinds with several results there, on the chip or on the host."""


@dataclass(frozen=True)
class Tensor:
    """The type of one value: shape, storage ("i8", "u8", "f16", ...), scale and zero point, calibrated range."""

    shape: tuple[int, ...]
    storage: str
    scale: float | None = None
    zero: int = 0
    range: tuple[float, float] | None = None

    @property
    def quantised(self) -> bool:
        """Whether the tensor holds integers with a scale."""
        return self.scale is not None


@dataclass
class Op:
    """One op: dialect and type ("tpu.Conv2D"), result names and types, names of its operands, attributes as text."""

    kind: str
    names: tuple[str, ...]
    operands: tuple[str, ...]
    attributes: dict[str, str]
    types: tuple[Tensor, ...]

    @property
    def name(self) -> str:
        """The first result's name."""
        return self.names[0] if self.names else ""

    def numbers(self, key: str) -> tuple[float, ...]:
        """An attribute that is a number or a list of numbers; empty if it is absent."""
        return tuple(
            float(n) for n in re.findall(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", _untyped(self.attributes.get(key, "")))
        )


def read(text: str) -> list[Op]:
    """The ops of a module in order, those of nested regions before the op that contains them."""
    aliases = dict(_ALIAS.findall(text))
    values: dict[str, str] = {}
    found: list[Op] = []
    for result, kind, operands, rest in _lines(text):
        op = _op(kind, tuple(values.get(o.strip(), "") for o in operands.split(",") if o.strip()), rest, aliases)
        values |= zip(_values(result), op.names, strict=False)
        found += _by_result(op, [value for value in _values(result) if _is_read(value, text)], result, rest)
    return found


def _by_result(op: Op, read: Sequence[str], result: str, rest: str) -> list[Op]:
    """An LSTM, GRU or TopK as an op for each result that is not `none` and is read, as tpusim has it (DN-35)."""
    name = op.attributes.get("cpu_op_name", op.kind.partition(".")[2]).strip('"').lower()
    if name not in BY_RESULT or len(op.names) == 1:
        return [op]
    types = rest[rest.rfind(" -> ") : rest.rfind(" loc(")]
    results, of = [match[0] for match in _TYPE.finditer(types)], iter(op.types)
    typed = [None if result == "none" else next(of) for result in results]
    whole = zip(op.names, typed, _values(result), strict=False)  # the host of CV18xx gives the first result only
    return [replace(op, names=(name,), types=(kind,)) for name, kind, value in whole if kind and value in read]


def _is_read(value: str, text: str) -> bool:
    """Whether a value occurs elsewhere than where it is made."""
    made = int("#" not in value)
    return len(re.findall(rf"{re.escape(value)}\b", text)) > made


def lines_of(text: str) -> dict[int, Op]:
    """The ops without a region by the number of their line, from 1."""
    aliases = dict(_ALIAS.findall(text))
    return {
        number: _op(match[2], (), match[4], aliases)
        for number, line in enumerate(text.splitlines(), 1)
        if (match := _OP.match(line)) is not None and not line.rstrip().endswith("({")
    }


def _values(result: str) -> list[str]:
    """The names of an op's results: `%1`, `%a, %b`, or `%1#0`, `%1#1` for `%1:2`."""
    stem, _, count = result.partition(":")
    return [f"{stem}#{n}" for n in range(int(count))] if count else result.split(", ")


def _lines(text: str) -> Iterator[tuple[str, str, str, str]]:
    """(result, kind, operands, the rest of the line) of every op; an op with a region comes with its last line."""
    open_ops: list[tuple[str, str, str]] = []
    for line in text.splitlines():
        if (match := _OP.match(line)) is not None:
            result, kind, operands, rest = match.groups()
            if rest.rstrip().endswith("({"):
                open_ops.append((result or "", kind, operands))
            else:
                yield result or "", kind, operands, rest
        elif (end := _END.match(line)) is not None and open_ops:
            yield (*open_ops.pop(), end[1])


def _op(kind: str, operands: tuple[str, ...], rest: str, aliases: dict[str, str]) -> Op:
    signature = rest.rfind(" : (")
    attributes, types = rest[:signature].strip(), rest[signature:]
    location = types.rfind(" loc(")
    names = _names(types[location + 5 :].rstrip()[:-1], aliases) if location >= 0 else ()
    arrow = types.rfind(" -> ", 0, location if location >= 0 else None)
    results = tuple(tensor(m) for m in _TYPE.finditer(types[arrow:location]) if m[0] != "none")
    return Op(kind, names if results else names[:0], operands, dict(_attributes(attributes)), results)


def _names(location: str, aliases: dict[str, str]) -> tuple[str, ...]:
    """The names in a location: a string, perhaps followed by another location, an alias, or a fused list of them."""
    location = location.strip()
    if location.startswith("#"):
        return _names(aliases.get(location, ""), aliases)
    if location.startswith("fused["):
        return tuple(n for part in _split(location[6:-1]) for n in _names(part, aliases))
    return (location[1 : location.index('"', 1)],) if location.startswith('"') else ()


def tensor(match: re.Match[str]) -> Tensor:
    """The type in a match of a tensor's text."""
    shape = tuple(int(n) for n in match[1].split("x") if n)
    element = match[2].strip()
    if (uniform := _UNIFORM.fullmatch(element)) is not None:
        return Tensor(shape, uniform[1], float(uniform[3]), int(uniform[4] or 0))
    if (calibrated := _CALIBRATED.fullmatch(element)) is not None:
        return Tensor(shape, calibrated[1], range=(float(calibrated[2]), float(calibrated[3])))
    return Tensor(shape, element.removeprefix("s") if element.startswith("si") else element.replace("ui", "u"))


def _attributes(text: str) -> Iterator[tuple[str, str]]:
    """The pairs of `{a = 1 : i64, b}`; names that only tpusim has lose their prefix."""
    if text.startswith("{") and text.endswith("}"):
        for part in _split(text[1:-1]):
            key, _, value = part.partition(" = ")
            yield key.strip().removeprefix(OWN), value.strip()


def _split(text: str) -> Iterator[str]:
    """Parts between commas outside of any bracket or string."""
    depth, begin, quoted = 0, 0, False
    for position, char in enumerate(text):
        if char == '"':
            quoted = not quoted
        elif not quoted:
            depth += (char in "[{(<") - (char in "]})>" and text[position - 1] != "-")
            if char == "," and depth == 0:
                yield text[begin:position]
                begin = position + 1
    if text[begin:].strip():
        yield text[begin:]


def _untyped(value: str) -> str:
    """A number or list without the types of its items (`3 : i64`)."""
    return re.sub(r"\s*:\s*\w+", "", value).removeprefix("array<i64:").removesuffix(">")
