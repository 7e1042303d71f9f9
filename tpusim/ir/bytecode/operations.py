"""Section IR: makes ops, blocks and regions of their numbers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from xdsl.context import Context
from xdsl.dialects.builtin import DictionaryAttr, UnknownLoc
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue, Use
from xdsl.irdl import IRDLOperation
from xdsl.parser.core import ForwardDeclaredValue
from xdsl.utils.exceptions import UnregisteredConstructException

from tpusim.ir.bytecode.builtin_attributes import LOCATIONS
from tpusim.ir.bytecode.cursor import INSTALL, Cursor
from tpusim.ir.bytecode.entries import Entries
from tpusim.ir.bytecode.forms import is_of
from tpusim.ir.bytecode.headers import Header, Order, read_block_header, read_header
from tpusim.ir.bytecode.names import Names
from tpusim.ir.bytecode.properties import FORMER_NAMES, Properties
from tpusim.ir.bytecode.sections import Section, read_section
from tpusim.ir.nesting import DEEPEST
from tpusim.ir.upstream import FORMER_OPS

UNKNOWN = UnknownLoc()


@dataclass
class Scope:
    """The values of the nearest isolated region by number. limit: numbers that the open regions have reserved."""

    limit: int = 0
    values: dict[int, SSAValue] = field(default_factory=dict[int, SSAValue])
    forward: dict[int, ForwardDeclaredValue] = field(default_factory=dict[int, ForwardDeclaredValue])

    def use(self, number: int, cursor: Cursor) -> SSAValue:
        """The value of a number, a placeholder if it is made later."""
        found = self.values.get(number)
        if found is None:
            if number >= self.limit:
                cursor.fail(f"value {number:,} of {self.limit:,} does not exist")
            found = self.values[number] = self.forward[number] = ForwardDeclaredValue(cast("Any", NO_TYPE))
        return found

    def define(self, number: int, value: SSAValue) -> None:
        """Give a number its value."""
        placeholder = self.forward.pop(number, None) if self.forward else None
        if placeholder is not None:
            _replace_uses(placeholder, value)
        self.values[number] = value


NO_TYPE = UNKNOWN
"""Stands for the type of a placeholder."""


def _replace_uses(placeholder: SSAValue, value: SSAValue) -> None:
    """Replace a placeholder, keeping the order of uses: the last that was read comes first."""
    for use in reversed(list(placeholder.uses)):
        use.operation.operands[use.index] = value


@dataclass
class _Frame:
    """A region that is being read: its blocks by number, the next value's number, use-list orders to apply."""

    count: int
    next: int
    end: int
    blocks: dict[int, Block] = field(default_factory=dict[int, Block])
    orders: list[tuple[SSAValue, Order]] = field(default_factory=list["tuple[SSAValue, Order]"])

    def block(self, number: int, cursor: Cursor) -> Block:
        """The block of a number."""
        if number >= self.count:
            cursor.fail(f"block {number:,} of {self.count:,} does not exist")
        if number not in self.blocks:
            self.blocks[number] = Block()
        return self.blocks[number]


class OperationReader:
    """Makes the ops of a file in a context."""

    def __init__(
        self, ctx: Context, version: int, names: Names, entries: Entries, properties: Properties | None
    ) -> None:
        self._ctx, self._version, self._names = ctx, version, names
        self._entries, self._properties = entries, properties
        entries.start()
        self._classes: dict[int, tuple[type[Operation], frozenset[str]]] = {}

    def op(self, cursor: Cursor, scope: Scope, frame: _Frame | None = None) -> Operation:
        """The op that comes next, with its regions."""
        header = read_header(cursor)
        cls, inherent = self._class(header.name, cursor)
        entries = self._entries
        attributes = self._attributes(header, cursor)
        properties = self._read_properties(header, cls, cursor)
        for name in inherent.intersection(attributes) if attributes else ():
            properties.setdefault(FORMER_NAMES.get(name, name), attributes.pop(name))
        location = self._location(header.location, cursor)
        values = scope.values
        operands = [values.get(number) or scope.use(number, cursor) for number in header.operands]
        types = [entries.type_at(index, cursor) for index in header.results]
        successors = [self._successor(number, frame, cursor) for number in header.successors]
        regions = [Region() for _ in range(header.regions)]
        found = cls.create(
            operands=operands, result_types=types, properties=properties, attributes=attributes,
            location=location, successors=successors, regions=regions,
        )  # fmt: skip
        if header.orders and frame:
            frame.orders += [(found.results[order[0]], order) for order in header.orders]
        if regions:  # after the op, so that its uses of a value come before those inside
            self._regions(header, cursor, scope, regions)
        return found

    def inherent(self, header: Header, cursor: Cursor) -> dict[str, Attribute]:
        """The attributes and properties of an op that is not made."""
        cls, _ = self._class(header.name, cursor)
        return {**self._attributes(header, cursor), **self._read_properties(header, cls, cursor)}

    def _class(self, index: int, cursor: Cursor) -> tuple[type[Operation], frozenset[str]]:
        """The class of an op's name and the names of its properties, also those of LLVM 16."""
        found = self._classes.get(index)
        if found is None:
            if index >= len(self._names.ops):
                cursor.fail(f"op name {index:,} of {len(self._names.ops):,} does not exist")
            name = self._names.ops[index]
            try:
                cls = self._ctx.get_op(FORMER_OPS.get(name, name))
            except UnregisteredConstructException:
                cursor.fail(
                    f"'{name}' is an op of a dialect that is not registered",
                    then=INSTALL.format("tpusim.dialects or xdsl.universe") + ", or allow unregistered dialects",
                )
            inherent = cls.get_irdl_definition().properties if issubclass(cls, IRDLOperation) else ()
            former = (name for name, later in FORMER_NAMES.items() if later in inherent)
            found = self._classes[index] = cls, frozenset((*inherent, *former))
        return found

    def _attributes(self, header: Header, cursor: Cursor) -> dict[str, Attribute]:
        if header.attributes < 0:
            return {}
        found = self._entries.attribute_at(header.attributes, cursor)
        if not isinstance(found, DictionaryAttr):
            cursor.fail(f"attribute {header.attributes:,} must be a dictionary, it is of {type(found).__name__}")
        return dict(found.data)

    def _read_properties(self, header: Header, cls: type[Operation], cursor: Cursor) -> dict[str, Attribute]:
        if header.properties < 0:
            return {}
        if self._properties is None:
            cursor.fail(f"properties require version 5 or later, the file is of version {self._version}")
        name, known = self._names.ops[header.name], self._names.registered[header.name]
        return self._properties.read(header.properties, name, cls, known, self._entries, cursor)

    def _location(self, index: int, cursor: Cursor) -> Any:
        found = self._entries.attribute_at(index, cursor)
        if not is_of(found, LOCATIONS):
            cursor.fail(f"attribute {index:,} must be a location, it is of {type(found).__name__}")
        return found

    @staticmethod
    def _successor(number: int, frame: _Frame | None, cursor: Cursor) -> Block:
        if frame is None:
            cursor.fail("the op at the top of a file has no successors")
        return frame.block(number, cursor)

    def _regions(self, header: Header, cursor: Cursor, scope: Scope, regions: Sequence[Region]) -> None:
        """Fill the regions of an op; those of an isolated one lie in a section, from version 2 on."""
        if self._entries.regions >= DEEPEST:
            cursor.fail(f"regions in regions of at most {DEEPEST} levels are required")
        self._entries.regions += 1
        sectioned = header.isolated and self._version >= 2
        body = read_section(cursor, Section.IR)[1] if sectioned else cursor
        for region in regions:
            self._region(body, Scope() if header.isolated else scope, region)
        if sectioned:
            body.require_end("the regions of an isolated op")
        self._entries.regions -= 1

    def _region(self, cursor: Cursor, scope: Scope, region: Region) -> None:
        count = cursor.count("blocks")
        if not count:
            return
        frame = open_region(cursor, scope, count)
        before = scope.limit - (frame.end - frame.next)
        for number in range(count):
            self._block(cursor, scope, frame, frame.block(number, cursor))
        self._close(cursor, scope, frame, before)
        region.add_block([frame.blocks[number] for number in range(count)])

    def _block(self, cursor: Cursor, scope: Scope, frame: _Frame, block: Block) -> None:
        header = read_block_header(cursor, self._version)
        for kind, location in header.arguments:
            argument = block.insert_arg(self._entries.type_at(kind, cursor), len(block.args))
            if location >= 0:
                argument.location = self._location(location, cursor)
            self._define(cursor, scope, frame, argument)
        frame.orders += [(block.args[order[0]], order) for order in header.orders]
        for _ in range(header.ops):
            op = self.op(cursor, scope, frame)
            for result in op.results:
                self._define(cursor, scope, frame, result)
            block.add_op(op)

    @staticmethod
    def _define(cursor: Cursor, scope: Scope, frame: _Frame, value: SSAValue) -> None:
        if frame.next >= frame.end:
            cursor.fail("a region has more values than it announces")
        scope.define(frame.next, value)
        frame.next += 1

    @staticmethod
    def _close(cursor: Cursor, scope: Scope, frame: _Frame, before: int) -> None:
        """Apply use-list orders and free the region's numbers."""
        missing = [number for number in scope.forward if number >= before]
        if missing:
            cursor.fail(f"value {missing[0]:,} is used and never made")
        for value, order in frame.orders:
            _reorder(value, order, cursor)
        for number in range(before, frame.next):
            del scope.values[number]
        scope.limit = before


def open_region(cursor: Cursor, scope: Scope, count: int) -> _Frame:
    """Reserve the numbers of the values that a region of `count` blocks defines."""
    reserved = cursor.count("values")
    base = scope.limit
    scope.limit += reserved
    return _Frame(count, base, base + reserved)


def _reorder(value: SSAValue, order: Order, cursor: Cursor) -> None:
    """Put the uses of a value, of which the last read is the first, into the order that the file states."""
    _, by_pairs, numbers = order
    uses: list[Use] = list(value.uses)
    places = list(range(len(uses))) if by_pairs else numbers
    if by_pairs:
        for place, wanted in zip(numbers[::2], numbers[1::2], strict=False):
            if place >= len(uses):
                cursor.fail(f"use {place:,} of {len(uses):,} does not exist")
            places[place] = wanted
    if sorted(places) != list(range(len(uses))):
        cursor.fail(f"the use-list order of a value with {len(uses):,} uses must be a permutation, got {places[:8]}")
    order_uses(value, [use for _, use in sorted(zip(places, uses, strict=True), key=lambda pair: pair[0])])


def order_uses(value: SSAValue, uses: Sequence[Use]) -> None:
    """Let the uses of a value stand in this order."""
    value.first_use = None
    for use in reversed(uses):
        value.add_use(use)
