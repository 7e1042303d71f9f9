"""How the ops of a dialect of TPU-MLIR spell their attributes: names and integer types as the table has them."""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar, cast

from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, IntegerType, Signedness, StringAttr, i1, i32, i64
from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import Attribute, Operation
from xdsl.irdl import IRDLOperation
from xdsl.utils.str_enum import StrEnum

from tpusim.ir.modes import MODE_ATTRIBUTES
from tpusim.ir.upstream.table import entry

OWN = "tpusim."
"""The prefix of attributes that TPU-MLIR does not have; its tools keep and ignore them."""
PART_OF = OWN + "part_of"
"""Of a top op: the node of the source that was decomposed into this op and others."""
DECISIONS = OWN + "decisions"
"""Of a lowered op: the decisions (DN-...) that its form follows."""
FALLBACK = OWN + "fallback"
"""Of a lowered op: why it runs in another float type than its mode requests."""
GLOBAL_REASON = OWN + "global_reason"
"""Of an op outside groups: why it is in none."""
FRAMEWORK = OWN + "framework"
"""Of a top op: the framework's tensor that its (first) result equals, if that is called otherwise."""
ARITHMETIC = OWN + "arithmetic"
"""Of a lowered op: whose order of float steps it has, if that is not the chip's."""
FUNCTION = OWN + "function"
"""Of an op of a module that TPU-MLIR cut into functions: name and run mode of its function."""
BUFFER = OWN + "buffer"
"""Of an op with an address: the type, with its address, of the `tpu.Buffer` that is its operand in files."""
NOTES = frozenset({PART_OF, DECISIONS, FALLBACK, GLOBAL_REASON, ARITHMETIC, FUNCTION})
"""Attributes that stages add to any op."""
REMARKS = NOTES - {ARITHMETIC} | {FRAMEWORK}
"""Attributes that say where an op comes from and why it is as it is; it computes the same without them."""
RENAMED = {
    "group_info": "ginfo",
    "frame_strides": OWN + "frame_strides",
    **{note.removeprefix(OWN): note for note in NOTES},
}
"""Attributes of any op that earlier releases spelled otherwise."""
FORMER_OPS = {"tpu.PRelu": "tpu.PReluOp"}
"""Ops that earlier releases called otherwise."""
SPECIAL_FORMS = {"tpu.Squeeze": "tpu.Reshape", "tpu.Unsqueeze": "tpu.Reshape", "tpu.Pool1D": "tpu.Pool2D"}
"""Ops of TPU-MLIR that are special forms of others, as which they are computed."""
INTEGERS = {
    "i64": i64,
    "i32": i32,
    "si32": IntegerType(32, Signedness.SIGNED),
    "ui32": IntegerType(32, Signedness.UNSIGNED),
    "bool": i1,
}


class Spelled(IRDLOperation):
    """An op whose attributes have the spelling of TPU-MLIR, however they are given or read.

    A class defines attributes by their Python names. One that TPU-MLIR's op of this name does not have gets the prefix
    `tpusim.` in the IR. An integer gets the type that the table states; a mode may be given as a string.
    """

    CODES: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """The words of attributes that TPU-MLIR has as numbers, at the place of their number.

    A word without a number stays a word, which its tools refuse.
    """

    WRITTEN_AS: ClassVar[tuple[str, Mapping[str, Attribute]] | None] = None
    """The op of TPU-MLIR, with further attributes, that stands in files for an op which it does not have."""
    REPEATED: ClassVar[tuple[str, ...]] = ()
    """Operands of TPU-MLIR's op that follow from its attributes and other operands; constants there are left out."""
    STATED: ClassVar[Mapping[str, Attribute]] = {}
    """Attributes that an op states because TPU-MLIR computes something else without them: names -> values."""

    __hash__ = object.__hash__  # as IRDLOperation's, which is a function of Python: stages look up ops all the time

    def word(self, name: str) -> str:
        """The word of an attribute in `CODES`. Raises ValueError for a number without a word."""
        value, words = self.attributes[name], self.CODES[name]
        if isinstance(value, IntegerAttr):
            number = cast("IntegerAttr[IntegerType]", value).value.data
            if not 0 <= number < len(words):
                known = ", ".join(f"{i} ({word})" for i, word in enumerate(words))
                raise ValueError(f"{name} among {known} is required, got {number}")
            return words[number]
        if not isinstance(value, StringAttr):
            raise ValueError(f"{name} requires a number or a word, got {value}")
        return value.data

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Give the attributes that the class defines or inherits their names in the IR."""
        super().__init_subclass__(**kwargs)
        known = entry(cls.__dict__.get("name", ""))
        if known is None:
            return
        for field, definition in _definitions(cls).items():
            if field not in known.attributes and definition.ir_name is None:
                own = copy(definition)
                own.ir_name = OWN + field
                setattr(cls, field, own)

    def derived(self, name: str) -> Attribute | None:
        """The value of an attribute that TPU-MLIR requires and tpusim does not, if it follows from the op."""
        del name
        return None

    def result_names(self) -> tuple[str, ...]:
        """The names that the results have among those of TPU-MLIR's op; another name stands for the same number."""
        return tuple(name for name, _ in type(self).get_irdl_definition().results)

    def __post_init__(self) -> None:
        """Spell the attributes that the op was made with, and state those that follow from the rest of the op."""
        super().__post_init__()
        spelling = _spelling(type(self))
        if not spelling.names.keys().isdisjoint(self.attributes):
            self.attributes = {spelling.names.get(name, name): value for name, value in self.attributes.items()}
        for name in self.CODES.keys() & self.attributes.keys():
            self.attributes[name] = _as_code(self.attributes[name], self.CODES[name])
        for name in spelling.typed.keys() & self.attributes.keys():
            self.attributes[name] = spelling.typed[name](self.attributes[name])
        for name, value in self.STATED.items():
            self.attributes.setdefault(name, value)
        for name in spelling.required:
            if name not in self.attributes and (value := self.derived(name)) is not None:
                self.attributes[name] = value


@dataclass(frozen=True)
class _Spelling:
    """The spelling of a class. names: former and Python names of attributes, and those on other ops -> their names.

    typed: the attributes whose types the table states -> what gives a value the type. required: those that must be
    stated.
    """

    names: Mapping[str, str]
    typed: Mapping[str, Callable[[Attribute], Attribute]]
    required: tuple[str, ...]


@cache
def _spelling(cls: type[IRDLOperation]) -> _Spelling:
    known, defined = entry(cls.name), set(cls.get_irdl_definition().attributes)
    fields = {name.removeprefix(OWN): name for name in defined if name.startswith(OWN)}
    others = {OWN + name: name for name in defined if not name.startswith(OWN)}
    names = RENAMED | fields | others
    if known is None:
        return _Spelling(names, {}, ())
    typed = {name: converted for name, a in known.attributes.items() if (converted := _typed(a.type))}
    return _Spelling(names, typed, tuple(attribute.name for attribute in known.required))


def as_stated(name: str, attributes: Mapping[str, Attribute]) -> dict[str, Attribute]:
    """Attributes in the types that the table states for an op."""
    known = entry(name)
    kinds = {} if known is None else {key: _typed(a.type) for key, a in known.attributes.items()}
    return {key: convert(value) if (convert := kinds.get(key)) else value for key, value in attributes.items()}


def _typed(kind: str) -> Callable[[Attribute], Attribute] | None:
    """What gives an attribute the type that the table calls `kind`; None if it may be of any type."""
    classes: dict[str, Any] = {cls.name: cls for cls in MODE_ATTRIBUTES}
    if kind in classes:
        return partial(as_mode, mode=classes[kind])
    integer = INTEGERS.get(kind.removesuffix("[]"))
    return partial(retyped, wanted=integer) if integer else None


def _definitions(cls: type[IRDLOperation]) -> dict[str, Any]:
    """The attributes that a class and its bases define, by Python name, before xDSL makes properties of them."""
    fields = {name: value for base in reversed(cls.mro()) for name, value in base.__dict__.items()}
    return {name: value for name, value in fields.items() if hasattr(value, "ir_name")}


def _as_code(attribute: Attribute, words: tuple[str, ...]) -> Attribute:
    """The number of a word; any other attribute as it is."""
    if isinstance(attribute, StringAttr) and attribute.data in words:
        return IntegerAttr(words.index(attribute.data), i64)
    return attribute


def as_mode(attribute: Attribute, mode: type[EnumAttribute[StrEnum]]) -> Attribute:
    """A mode by its name; any other attribute as it is, to be refused by the op."""
    if isinstance(attribute, StringAttr) and attribute.data in list(mode.enum_type):
        return mode(mode.enum_type(attribute.data))
    return attribute


def retyped(attribute: Attribute, wanted: IntegerType) -> Attribute:
    """An integer, or an array of integers, in a type; any other attribute as it is, to be refused by the op."""
    if isinstance(attribute, IntegerAttr):
        number = cast("IntegerAttr[IntegerType]", attribute)
        if number.type == wanted:
            return number
        value = number.value.data
        return IntegerAttr(abs(value) if number.type == i1 else value, wanted)  # true is -1 in one bit
    if isinstance(attribute, ArrayAttr):
        items = cast("ArrayAttr[Attribute]", attribute).data
        if items and retyped(items[0], wanted) is not items[0]:
            return ArrayAttr([retyped(item, wanted) for item in items])
    return cast("Attribute", attribute)


def ir_name(op: Operation, field: str) -> str:
    """The name in the IR of an attribute that an op's class calls `field`."""
    return _spelling(type(op)).names.get(field, field) if isinstance(op, Spelled) else field
