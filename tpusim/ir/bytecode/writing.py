"""Writes a module as MLIR bytecode."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Union, cast

from xdsl.dialects.builtin import DenseArrayBase, DictionaryAttr, IntegerType, ModuleOp, UnknownLoc, UnregisteredOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.traits import IsolatedFromAbove

from tpusim.errors import ConfigError, UnsupportedError
from tpusim.ir.bytecode import headers
from tpusim.ir.bytecode.dialects import Codes
from tpusim.ir.bytecode.forms import DialectCodes
from tpusim.ir.bytecode.names import encode_names
from tpusim.ir.bytecode.numbering import LANES, Entry, Lane, Numbering, Order, Token, order_of, references
from tpusim.ir.bytecode.properties import Property, before_properties, encoded_segments, layout_to_write
from tpusim.ir.bytecode.releases import EVERYBODY, Release
from tpusim.ir.bytecode.resources import EncodedResources, Groups, Resource, encode_resources
from tpusim.ir.bytecode.sections import MAGIC, VERSIONS, Section, aligned_section, section_bytes
from tpusim.ir.bytecode.strings import StringTable
from tpusim.ir.bytecode.use_lists import UseLists
from tpusim.ir.bytecode.varints import flagged, varint

PRODUCER = "tpusim"
NAME_OF_UNREGISTERED = "op_name__"
Code = list[Union[bytes, int, "Code"]]
"""Section IR before ids are known; a list in it is a nested section."""


def encode(
    module: ModuleOp, *, version: int | None = None, release: Release = EVERYBODY, external: Groups | None = None,
    of_dialects: Groups | None = None, dialects: Iterable[DialectCodes] = (), use_lists: bool = True,
) -> bytes:  # fmt: skip
    """A module as bytecode.

    version: of the format, by default the release's: 4, which every MLIR since LLVM 17 reads. release: whose codes may
    be used; whatever has none is written as text. external, of_dialects: resources, by tool and by dialect. dialects:
    encodings in addition to those of builtin and quant; their versions are written too (from version 1 on). use_lists:
    keep the order of the uses of each value (from version 3 on); without it, equal modules are equal bytes.
    Raises ConfigError for an unknown version, UnsupportedError for a module that is nested too deeply.
    """
    version = release.version if version is None else version
    if version not in VERSIONS:
        raise ConfigError(f"bytecode version {version}: one of {VERSIONS[0]} to {VERSIONS[-1]} is required")
    uses = UseLists(module) if use_lists and version >= 3 else None
    writer = _Writer(version, release, Codes(dialects, release.packages), uses)
    try:
        return writer.file(module, external or {}, of_dialects or {})
    except RecursionError as error:
        raise UnsupportedError(
            "bytecode: regions and attributes of a few hundred levels are required, this module has more; "
            "write it as text"
        ) from error


@dataclass
class _Values:
    """Numbers of the values of the nearest isolated region."""

    next: int = 0
    numbers: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])


class _Writer:
    """Section IR first, which numbers all else on its way; then everything in the file's order."""

    def __init__(self, version: int, release: Release, codes: Codes, use_lists: UseLists | None) -> None:
        self._version, self._codes, self._use_lists = version, codes, use_lists
        self._strings = StringTable()
        self._numbering = Numbering(release, codes, self._strings)
        self._dialects: dict[str, int] = {}
        self._ops: dict[str, int] = {}
        self._properties: dict[tuple[Token, ...], int] = {}
        self._known_ops: set[str] = set()
        self._release = release

    # -- operations

    def _op(self, op: Operation, values: _Values, blocks: Mapping[Block, int], out: Code) -> None:
        numbering = self._numbering
        name = _name(op)
        out.append(self._ops.setdefault(name, len(self._ops)) * LANES + Lane.OP)
        attributes, properties = self._split(op, name)
        mask_at = len(out)
        out += (b"", numbering.attribute(op.location))
        mask = 0
        if attributes:
            mask |= headers.ATTRIBUTES
            out.append(numbering.attribute(DictionaryAttr(attributes)))
        if properties:
            mask |= headers.PROPERTIES
            out.append(varint(self._properties.setdefault(properties, len(self._properties))))
        if op.results:
            mask |= headers.RESULTS
            out.append(varint(len(op.results)))
            out += [numbering.type(result.type) for result in op.results]
        if op.operands:
            mask |= headers.OPERANDS
            out.append(varint(len(op.operands)))
            out += [varint(values.numbers[operand]) for operand in op.operands]
        if op.successors:
            mask |= headers.SUCCESSORS
            out.append(varint(len(op.successors)))
            out += [varint(blocks[block]) for block in op.successors]
        if self._use_lists is not None and op.results and (orders := self._use_lists.orders(op.results)):
            mask |= headers.USE_LISTS
            out.append(orders)
        if op.regions:
            mask |= headers.REGIONS
            self._regions(op, values, out)
        out[mask_at] = bytes((mask,))

    def _split(self, op: Operation, name: str) -> tuple[dict[str, Attribute], tuple[Token, ...]]:
        """Attributes, and properties as encoded; below version 5, and without a known layout, all are attributes."""
        attributes = dict(op.attributes)
        if isinstance(op, UnregisteredOp):
            del attributes[NAME_OF_UNREGISTERED]
        if self._version >= 5 and isinstance(op, UnregisteredOp):
            return attributes, (self._numbering.attribute(DictionaryAttr(op.properties)),) if op.properties else ()
        layout = layout_to_write(name, self._release.layouts) if self._version >= 5 else None
        if layout is None:
            return {**attributes, **(op.properties if self._release.properties else before_properties(op))}, ()
        self._known_ops.add(name)
        named = {wanted.name for wanted in layout}
        attributes |= {key: value for key, value in op.properties.items() if key not in named}
        return attributes, tuple(self._property(wanted, op.properties.get(wanted.name)) for wanted in layout)

    def _property(self, wanted: Property, value: Attribute | None) -> Token:
        if value is None:
            return varint(0)
        if wanted.segments and self._version >= 6:
            return encoded_segments(cast("DenseArrayBase[IntegerType]", value).get_values())
        token = self._numbering.attribute(value)
        return token + Lane.PRESENT if wanted.optional else token

    def _regions(self, op: Operation, values: _Values, out: Code) -> None:
        isolated = not isinstance(op, UnregisteredOp) and op.has_trait(IsolatedFromAbove)
        out.append(flagged(len(op.regions), isolated))
        body: Code = [] if isolated and self._version >= 2 else out
        for region in op.regions:
            self._region(region, _Values() if isolated else values, body)
        if body is not out:
            out.append(body)

    def _region(self, region: Region, values: _Values, out: Code) -> None:
        blocks = {block: number for number, block in enumerate(region.blocks)}
        out.append(varint(len(blocks)))
        if not blocks:
            return
        before = number = values.next
        for block in blocks:
            for value in chain(block.args, *[op.results for op in block.ops]):
                values.numbers[value] = number
                number += 1
        values.next = number
        out.append(varint(number - before))
        for block in blocks:
            self._block(block, values, blocks, out)
        values.next = before

    def _block(self, block: Block, values: _Values, blocks: Mapping[Block, int], out: Code) -> None:
        ops = tuple(block.ops)
        out.append(flagged(len(ops), bool(block.args)))
        if block.args:
            out.append(varint(len(block.args)))
            for argument in block.args:
                self._argument(argument.type, argument.location, out)
            if self._version >= 3:
                orders = self._use_lists.orders(block.args) if self._use_lists is not None else b""
                out += (bytes((headers.USE_LISTS,)), orders) if orders else (b"\0",)
        for op in ops:
            self._op(op, values, blocks, out)

    def _argument(self, kind: Attribute, location: Attribute, out: Code) -> None:
        token = self._numbering.type(kind)
        if self._version < 4:
            out += (token, self._numbering.attribute(location))
        elif isinstance(location, UnknownLoc):
            out.append(token - Lane.TYPE + Lane.TYPE_ALONE)
        else:
            out += (token - Lane.TYPE + Lane.TYPE_LOCATED, self._numbering.attribute(location))

    # -- the file

    def file(self, module: ModuleOp, external: Groups, of_dialects: Groups) -> bytes:
        """All sections in the order of MLIR's writer."""
        code: Code = [flagged(1, False)]
        self._op(module, _Values(), {}, code)
        numbering = self._numbering
        self._number_dialects(of_dialects)
        resources = self._resources(external, of_dialects)
        attributes = order_of(numbering.attributes, self._dialects)
        types = order_of(numbering.types, self._dialects)
        known = self._references(attributes, types)
        data, offsets = self._entries(attributes, types, known)
        parts = [MAGIC, varint(self._version), PRODUCER.encode(), b"\0"]
        parts.append(section_bytes(Section.DIALECT, self._names()))
        parts += [section_bytes(Section.ATTR_TYPE, data), section_bytes(Section.ATTR_TYPE_OFFSET, offsets)]
        parts.append(section_bytes(Section.IR, _flat(code, known)))
        if resources:
            parts.append(section_bytes(Section.RESOURCE_OFFSET, resources.offsets))
            at = sum(map(len, parts))
            parts.append(aligned_section(Section.RESOURCE, b"".join(resources.data), at, resources.alignment))
        parts.append(section_bytes(Section.STRING, self._strings.encoded()))
        if self._version >= 5:
            parts.append(section_bytes(Section.PROPERTIES, self._encoded_properties(known)))
        return b"".join(parts)

    def _number_dialects(self, of_dialects: Groups) -> None:
        """Every dialect that is named, the ops' first."""
        entries = (*self._numbering.attributes.entries, *self._numbering.types.entries)
        named = [*map(_dialect, self._ops), *(entry.dialect for entry in entries), *of_dialects]
        for dialect in [*named, *(dialect for dialect, _ in self._numbering.handles)]:
            self._dialects.setdefault(dialect, len(self._dialects))

    def _resources(self, external: Groups, of_dialects: Groups) -> EncodedResources | None:
        """The resources; those of a dialect that a handle refers to are declared even without contents."""
        groups: dict[str, dict[str, Resource | None]] = {}
        for dialect, key in self._numbering.handles:
            groups.setdefault(dialect, {})[key] = of_dialects.get(dialect, {}).get(key)
        for dialect, group in of_dialects.items():
            groups[dialect] = {**groups.get(dialect, {}), **group}
        if not external and not groups:
            return None
        self._handles = [(dialect, key) for dialect, group in groups.items() for key in group]
        by_id = {self._dialects[dialect]: group for dialect, group in groups.items()}
        return encode_resources(external, by_id, self._strings)

    def _op_groups(self) -> list[tuple[str, list[str]]]:
        groups: dict[str, list[str]] = {}
        for name in self._ops:
            groups.setdefault(_dialect(name), []).append(name)
        return list(groups.items())

    def _references(self, attributes: Order, types: Order) -> dict[int, bytes]:
        """The bytes of every token."""
        names = {name: index for index, name in enumerate(chain(*[group for _, group in self._op_groups()]))}
        known = references(Lane.ATTRIBUTE, attributes.ids)
        if self._properties:
            known |= references(Lane.PRESENT, attributes.ids)
        for lane in (Lane.TYPE, Lane.TYPE_ALONE, Lane.TYPE_LOCATED):
            known |= references(lane, types.ids)
        handles = self._numbering.handles
        if handles:
            known |= references(Lane.HANDLE, [self._handles.index(handle) for handle in handles])
        return known | references(Lane.OP, [names[name] for name in self._ops])

    def _names(self) -> bytes:
        """Encode section DIALECT: dialects with their versions, names of ops."""
        groups = [
            (dialect, [(name[len(dialect) + 1 :], name in self._known_ops) for name in names])
            for dialect, names in self._op_groups()
        ]
        versions = {name: self._codes[name].write_version() for name in self._dialects if name in self._codes}
        stated = {name: version for name, version in versions.items() if version is not None}
        return encode_names(list(self._dialects), stated, groups, self._strings, self._version)

    def _entries(self, attributes: Order, types: Order, known: Mapping[int, bytes]) -> tuple[bytes, bytes]:
        """Sections ATTR_TYPE and ATTR_TYPE_OFFSET."""
        data: list[bytes] = []
        offsets = [varint(len(attributes.numbers)), varint(len(types.numbers))]
        numbering = self._numbering
        for order, entries in ((attributes, numbering.attributes.entries), (types, numbering.types.entries)):
            for dialect, group in _by_dialect([entries[number] for number in order.numbers]):
                offsets += [varint(self._dialects[dialect]), varint(len(group))]
                for entry in group:
                    encoded = _joined(entry.tokens, known)
                    data.append(encoded)
                    offsets.append(flagged(len(encoded), entry.custom))
        return b"".join(data), b"".join(offsets)

    def _encoded_properties(self, known: Mapping[int, bytes]) -> bytes:
        """Encode section PROPERTIES: what each op refers to by index."""
        entries = [_joined(tokens, known) for tokens in self._properties]
        return varint(len(entries)) + b"".join(varint(len(entry)) + entry for entry in entries)


def _by_dialect(entries: Sequence[Entry]) -> list[tuple[str, list[Entry]]]:
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.dialect, []).append(entry)
    return list(groups.items())


def _joined(tokens: Sequence[Token], known: Mapping[int, bytes]) -> bytes:
    return b"".join([token if isinstance(token, bytes) else known[token] for token in tokens])


def _name(op: Operation) -> str:
    return op.op_name.data if isinstance(op, UnregisteredOp) else op.name


def _dialect(name: str) -> str:
    return name.split(".", 1)[0]


def _flat(code: Code, known: Mapping[int, bytes]) -> bytes:
    """Section IR with all ids; nested sections are put in with their lengths."""
    parts: list[bytes] = []
    for token in code:
        if type(token) is int:
            parts.append(known[token])
        elif type(token) is bytes:
            parts.append(token)
        else:
            parts.append(section_bytes(Section.IR, _flat(token, known)))  # type: ignore[arg-type]
    return b"".join(parts)
