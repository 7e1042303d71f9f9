"""Properties (from version 5): an op's inherent attributes, in a layout that differs by op and release.

A file does not state the layout. The known layouts are tried, then the layout of xDSL's definition of the op. The first
that fills the entry exactly with attributes of the right classes is used.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, DictionaryAttr, StringAttr, SymbolRefAttr, UnitAttr, i32
from xdsl.ir import Attribute, Operation, TypeAttribute
from xdsl.irdl import IRDLOperation, OptPropertyDef

from tpusim.errors import ImportModelError
from tpusim.ir.bytecode.cursor import Cursor, places
from tpusim.ir.bytecode.entries import Entries
from tpusim.ir.bytecode.varints import flagged, varint

FORMER_NAMES = {"operand_segment_sizes": "operandSegmentSizes", "result_segment_sizes": "resultSegmentSizes"}
"""Of the attributes that are properties since LLVM 17: name in LLVM 16 -> name of the property."""
_NAMES_BEFORE = {name: former for former, name in FORMER_NAMES.items()}

SPARSEST = 256
"""The last index of segment sizes that are written as pairs."""


class Property(NamedTuple):
    """One property of a layout: its name, the class of its attribute, whether it may be absent, for segment sizes how
    many.
    """

    name: str
    cls: type = Attribute
    optional: bool = False
    segments: int = 0


Layout = tuple[Property, ...]

_ARGUMENTS, _RESULTS = Property("arg_attrs", ArrayAttr, True), Property("res_attrs", ArrayAttr, True)
_SYMBOL, _VISIBILITY = Property("sym_name", StringAttr), Property("sym_visibility", StringAttr, True)
_TYPE, _CALLEE = Property("function_type", TypeAttribute), Property("callee", SymbolRefAttr)
_NO_INLINE = Property("no_inline", UnitAttr, True)
_BRANCHES = Property("operandSegmentSizes", DenseArrayBase, False, 3)
_NONTEMPORAL = Property("nontemporal", Attribute, True)
_ACCESS: tuple[Layout, ...] = ((Property("alignment", Attribute, True), _NONTEMPORAL), (_NONTEMPORAL,))

LAYOUTS: Mapping[str, tuple[Layout, ...]] = {
    "builtin.module": ((Property("sym_name", StringAttr, True), _VISIBILITY),),
    "func.func": (
        (_ARGUMENTS, _TYPE, _NO_INLINE, _RESULTS, _SYMBOL, _VISIBILITY),
        (_ARGUMENTS, _TYPE, _RESULTS, _SYMBOL, _VISIBILITY),
    ),
    "func.call": ((_ARGUMENTS, _CALLEE, _NO_INLINE, _RESULTS), (_CALLEE, _NO_INLINE), (_CALLEE,)),
    "func.return": ((),),
    "cf.cond_br": ((Property("branch_weights", DenseArrayBase, True), _BRANCHES), (_BRANCHES,)),
    "scf.for": ((Property("unsignedCmp", UnitAttr, True),), ()),
}
"""The layouts of ops by name: first that of LLVM 22 and 24, then those of LLVM 19 and 18, where they differ."""
_READ_ONLY: Mapping[str, tuple[Layout, ...]] = {"memref.load": _ACCESS, "memref.store": _ACCESS}
"""Those of LLVM 22, and of 19 and 18; LLVM 24 has another, so that they are not written."""


class Properties:
    """The entries of section PROPERTIES."""

    def __init__(self, cursor: Cursor, version: int) -> None:
        self._version, self._cursor = version, cursor
        self._begin = places(cursor.end)
        for _ in range(cursor.count("properties")):
            self._begin.append(cursor.position)
            cursor.skip(cursor.varint())
        cursor.require_end("the properties")

    def read(self, index: int, name: str, cls: type[Operation], known: bool, entries: Entries, user: Cursor
             ) -> dict[str, Attribute]:  # fmt: skip
        """The properties of an op by name. known: whether the op was registered with the writer."""
        if index >= len(self._begin):
            user.fail(f"properties {index:,} of {len(self._begin):,} do not exist")
        table = self._cursor
        sized = Cursor(table.data, table.base, self._begin[index], table.end, table.section, table.file)
        entry = sized.within(sized.varint(), table.section)
        if not known:
            return self._dictionary(entry, entries)
        for layout in map(self._ordered, _layouts(name, cls)):
            cursor = Cursor(entry.data, entry.base, entry.position, entry.end, entry.section, entry.file)
            found = self._matched(cursor, layout, entries)
            if found is not None:
                return found
        return entry.fail(
            f"the properties of '{name}' have a layout that is not known",
            then="write the file again in a version without properties, 0 to 4",
        )

    def _ordered(self, layout: Layout) -> Layout:
        """As the version has it: in version 6 segment sizes come after all others."""
        return tuple(sorted(layout, key=lambda one: one.segments > 0)) if self._version >= 6 else layout

    def _dictionary(self, entry: Cursor, entries: Entries) -> dict[str, Attribute]:
        """The properties of an op that the writer did not know: one dictionary."""
        cursor = Cursor(entry.data, entry.base, entry.position, entry.end, entry.section, entry.file)
        found = entries.attribute(cursor, DictionaryAttr)
        cursor.require_end("the properties of an op that the writer did not know")
        assert isinstance(found, DictionaryAttr)
        return dict(found.data)

    def _matched(self, cursor: Cursor, layout: Layout, entries: Entries) -> dict[str, Attribute] | None:
        """The properties, None if the layout is another: it does not fill the entry, or a class differs."""
        found: dict[str, Attribute] = {}
        try:
            for wanted in layout:
                value = self._property(cursor, wanted, entries)
                if value is not None:
                    found[wanted.name] = value
        except ImportModelError:
            return None
        return found if cursor.at_end() else None

    def _property(self, cursor: Cursor, wanted: Property, entries: Entries) -> Attribute | None:
        if wanted.segments and self._version >= 6:
            return DenseArrayBase.from_list(i32, _sparse_array(cursor, wanted.segments))
        if not wanted.optional:
            return entries.attribute(cursor, wanted.cls)
        index, present = cursor.flagged()
        if not present:
            return None
        found = entries.attribute_at(index, cursor)
        if not isinstance(found, wanted.cls):
            cursor.fail(f"property {wanted.name} of another class")
        return found


def _layouts(name: str, cls: type[Operation]) -> Iterator[Layout]:
    known = LAYOUTS.get(name) or _READ_ONLY.get(name, ())
    yield from known
    if not known and issubclass(cls, IRDLOperation):
        yield _defined(cls)


def _defined(cls: type[IRDLOperation]) -> Layout:
    """The layout that xDSL's definition suggests: properties in alphabetical order, those with a default optional."""
    definition = cls.get_irdl_definition()
    segments = {"operandSegmentSizes": len(definition.operands), "resultSegmentSizes": len(definition.results)}
    return tuple(
        Property(
            name, Attribute, isinstance(kind, OptPropertyDef) or kind.default_value is not None, segments.get(name, 0)
        )
        for name, kind in sorted(definition.properties.items())
    )


def _sparse_array(cursor: Cursor, length: int) -> list[int]:
    """Segment sizes as version 6 writes them: in order, or those that are not zero with their indices."""
    count, sparse = cursor.flagged()
    if count > length:
        cursor.fail(f"at most {length} segments are required, got {count:,}")
    if not sparse:
        return [cursor.varint() for _ in range(count)]
    found = [0] * length
    bits = cursor.varint() if count else 0
    for _ in range(count):
        pair = cursor.varint()
        index = pair & ((1 << min(bits, 64)) - 1)
        if index >= length:
            cursor.fail(f"segment {index:,} of {length} does not exist")
        found[index] = pair >> bits
    return found


def layout_to_write(name: str, release: int | None) -> Layout | None:
    """The layout of the properties of an op's name, None if none is known for the release, which reads attributes too.

    release: 0 for LLVM 22 and 24, 1 for 19, 2 for 18; None: any.
    """
    known = LAYOUTS.get(name) if release is not None else None
    return known[min(release or 0, len(known) - 1)] if known is not None else None


def before_properties(op: Operation) -> dict[str, Attribute]:
    """The properties of an op as attributes of LLVM 16: by their names in it, without those that have their default."""
    defined = op.get_irdl_definition().properties if isinstance(op, IRDLOperation) else {}
    defaults = {name: kind.default_value for name, kind in defined.items()}
    return {_NAMES_BEFORE.get(key, key): value for key, value in op.properties.items() if value != defaults.get(key)}


def encoded_segments(sizes: Sequence[int]) -> bytes:
    """Segment sizes as version 6 writes them."""
    used = [index for index, size in enumerate(sizes) if size]
    if 2 * len(used) > len(sizes) or (used and used[-1] > SPARSEST):
        return flagged(len(sizes), False) + b"".join(map(varint, sizes))
    if not used:
        return flagged(0, True)
    bits = used[-1].bit_length()
    pairs = (varint(sizes[index] << bits | index) for index in used)
    return flagged(len(used), True) + varint(bits) + b"".join(pairs)
