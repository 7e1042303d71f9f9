"""Reads the table: `entry("tpu.Conv2D").attributes["with_bias"].type` is "bool"."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, TypedDict

from xdsl.ir import Attribute, Operation
from xdsl.irdl import IRDLOperation
from xdsl.utils.exceptions import VerifyException

from tpusim.ir.upstream.values import plain, read

EVERY = "every"
"""The key of meanings.toml for attributes that are opaque on every op."""


class Meaning(StrEnum):
    """What an attribute that an op's class does not define means for the op."""

    NEUTRAL = "neutral"
    OPAQUE = "opaque"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class OperandEntry:
    """An operand or result. absent: it may be `top.None`. missing: it may be left out at the end of the list."""

    name: str
    absent: bool
    missing: bool
    variadic: bool

    @classmethod
    def of_text(cls, text: str) -> "OperandEntry":
        """Read `input`, `bias?`, `kT?!` or `inputs*`."""
        name = text.rstrip("?!*")
        return cls(name, *(mark in text[len(name) :] for mark in "?!*"))


@dataclass(frozen=True)
class AttributeEntry:
    """An attribute.

    type: `i64`, `si32`, `bool`, `f64[]` and so on, `string.NAME` for one of the strings `choices`, or `tpu.NAME` for
    an attribute of the dialect (`#tpu<NAME ...>`, or `#tpu.lg`). default: None if the attribute has none; then it is
    `optional` or must be stated.
    """

    name: str
    type: str
    optional: bool
    default: str | None
    choices: tuple[str, ...] = ()
    neutral: tuple[str, ...] = ()
    opaque: bool = False

    @property
    def required(self) -> bool:
        """Whether an op must state it."""
        return not self.optional and self.default is None

    @property
    def without_effect(self) -> tuple[str, ...]:
        """The values, as text, with which the attribute changes nothing."""
        return self.neutral if self.default is None else (self.default, *self.neutral)

    def changes_nothing(self, value: Attribute) -> bool:
        """Whether the attribute has no effect with a value."""
        return self.opaque or plain(value) in map(read, self.without_effect)


@dataclass(frozen=True)
class OpEntry:
    """An op of TPU-MLIR with what it takes and gives."""

    name: str
    operands: tuple[OperandEntry, ...]
    results: tuple[OperandEntry, ...]
    attributes: Mapping[str, AttributeEntry]

    def is_default(self, name: str, value: Attribute) -> bool:
        """Whether the op means the same without an attribute of this value."""
        return name in self.attributes and self.attributes[name].changes_nothing(value)

    @cached_property
    def required(self) -> tuple[AttributeEntry, ...]:
        """The attributes that the op must state."""
        return tuple(a for a in self.attributes.values() if a.required)

    @property
    def variadic(self) -> bool:
        """Whether the number of operands is open."""
        return any(operand.variadic for operand in self.operands)


class _Op(TypedDict):
    operands: list[str]
    results: list[str]
    attributes: dict[str, str]


class _Table(TypedDict):
    choices: dict[str, list[str]]
    ops: dict[str, _Op]


@cache
def _table() -> _Table:
    return json.loads(files("tpusim.ir.upstream").joinpath("ops.json").read_bytes())


@cache
def _meanings() -> dict[str, dict[str, Any]]:
    return tomllib.loads(files("tpusim.ir.upstream").joinpath("meanings.toml").read_text(encoding="utf-8"))


def names() -> tuple[str, ...]:
    """The names of all ops that TPU-MLIR has, `top` first."""
    return tuple(_table()["ops"])


@cache
def entry(name: str) -> OpEntry | None:
    """The entry of an op; None if TPU-MLIR has no op of this name."""
    op = _table()["ops"].get(name)
    if op is None:
        return None
    return OpEntry(
        name,
        tuple(map(OperandEntry.of_text, op["operands"])),
        tuple(map(OperandEntry.of_text, op["results"])),
        {key: _attribute(name, key, text) for key, text in op["attributes"].items()},
    )


def _attribute(op: str, name: str, text: str) -> AttributeEntry:
    """Read `i64`, `bool?` or `si32 = 1`."""
    kind, equals, default = text.partition(" = ")
    kind, optional = kind.removesuffix("?"), kind.endswith("?")
    opaque, neutral = _meanings()["opaque"], _meanings()["neutral"].get(op, {}).get(name, ())
    return AttributeEntry(
        name=name,
        type=kind,
        optional=optional,
        default=default if equals else None,
        choices=tuple(_table()["choices"].get(kind, ())),
        neutral=tuple(neutral),
        opaque=name in opaque[EVERY] or name in opaque.get(op, ()),
    )


def meaning(op: str, attribute: str) -> Meaning:
    """What an attribute means that the class of the op does not define; `Meaning.UNKNOWN` if TPU-MLIR has none."""
    found = known.attributes.get(attribute) if (known := entry(op)) else None
    if found is None:
        return Meaning.UNKNOWN
    return Meaning.OPAQUE if found.opaque else Meaning.NEUTRAL


def defined_attributes(cls: type[Operation]) -> frozenset[str]:
    """The names of the attributes that a class of ops defines."""
    assert issubclass(cls, IRDLOperation)
    definition = cls.get_irdl_definition()
    return frozenset({*definition.attributes, *definition.properties})


class NotComputedError(VerifyException):
    """An op whose attribute has a value that tpusim does not compute with."""


def refusal(op: Operation) -> str:
    """Why the op cannot be computed with its attributes: the first neutral one with another value; "" if it can."""
    known, defined = entry(op.name), defined_attributes(type(op))
    if known is None:
        return ""
    for name in op.attributes:
        found = known.attributes.get(name)
        if found and name not in defined and not found.changes_nothing(op.attributes[name]):
            accepted = " or ".join(found.without_effect) or "no such attribute"
            return f"{name} requires {accepted}, got {op.attributes[name]}; tpusim does not compute it"
    return ""


@cache
def attribute_names() -> frozenset[str]:
    """The names of the attributes that the dialects define, such as `tpu.round_mode`."""
    types = {a.partition(" ")[0].rstrip("?[]") for op in _table()["ops"].values() for a in op["attributes"].values()}
    return frozenset({kind for kind in (*types, *_table()["choices"]) if kind.startswith("tpu.")})
