"""`Bytecode`: an opened file. Its tables are read at once, functions when asked for, attributes when used."""

import mmap
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Operation

from tpusim.errors import ImportModelError, TpusimError, first_line
from tpusim.host.files import opened
from tpusim.ir.bytecode.cursor import INSTALL, Cursor
from tpusim.ir.bytecode.dialects import Codes
from tpusim.ir.bytecode.entries import Entries
from tpusim.ir.bytecode.forms import DialectCodes
from tpusim.ir.bytecode.headers import Header
from tpusim.ir.bytecode.index import Index, Located, again
from tpusim.ir.bytecode.names import read_names
from tpusim.ir.bytecode.operations import OperationReader, Scope
from tpusim.ir.bytecode.properties import Properties
from tpusim.ir.bytecode.resources import Resources, read_resources
from tpusim.ir.bytecode.sections import MAGIC, VERSIONS, Section, read_sections, sizes
from tpusim.ir.bytecode.strings import Strings
from tpusim.ir.bytecode.text import parser_for
from tpusim.ir.splats import SPARE, Budget


class Bytecode:
    """An opened file of MLIR bytecode.

    name: what errors call it. version: of the format. producer: who wrote it. dialects, dialect_versions, resources,
    sizes: what its tables say. Blobs of resources are views of the file. ctx: the dialects of the ops and of what is
    written as text. dialects: encodings in addition to those of builtin and quant.
    Raises ImportModelError with file, byte offset and section for a damaged file, when what is damaged is read.
    """

    def __init__(
        self, data: bytes | memoryview, ctx: Context, name: str = "<bytes>", dialects: Iterable[DialectCodes] = ()
    ) -> None:
        self.name, self._ctx = name, ctx
        self._codes: Mapping[str, DialectCodes] = Codes(dialects)
        view = memoryview(data)
        head = Cursor(view, 0, 0, len(view), "header", name)
        if bytes(view[: len(MAGIC)]) != MAGIC:
            head.fail(f"the bytes {MAGIC!r} are required, got {bytes(view[:4])!r}")
        head.skip(len(MAGIC))
        self.version = head.varint()
        if self.version not in VERSIONS:
            head.fail(f"a version from {VERSIONS[0]} to {VERSIONS[-1]} is required, got {self.version:,}")
        self.producer = head.terminated()
        self._read_tables(read_sections(head, self.version))

    @classmethod
    def open(cls, path: Path, ctx: Context, dialects: Iterable[DialectCodes] = ()) -> "Bytecode":
        """Map a file. Raises ImportModelError if it cannot be read, or is no bytecode."""
        try:
            with opened(path) as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise ImportModelError(
                f"bytecode '{path}' cannot be read: {error}; give a file that is not empty"
            ) from error
        return cls(memoryview(data), ctx, str(path), dialects)

    def _read_tables(self, sections: dict[Section, Cursor]) -> None:
        self.sizes = sizes(sections)
        strings = Strings(sections[Section.STRING])
        self._dialects_at = again(sections[Section.DIALECT])
        self._names = read_names(sections[Section.DIALECT], strings, self.version)
        self.resources = Resources()
        if Section.RESOURCE in sections:
            offsets, data = sections[Section.RESOURCE_OFFSET], sections[Section.RESOURCE]
            self.resources = read_resources(offsets, data, strings, self._names)
        budget = Budget(SPARE + sections[Section.ATTR_TYPE].end)
        self._entries = Entries(
            sections[Section.ATTR_TYPE_OFFSET], sections[Section.ATTR_TYPE], self._names, strings, self.resources,
            self._codes, parser_for(self._ctx, self.name, budget), budget,
        )  # fmt: skip
        self._properties = None
        if self.version >= 5:
            self._properties = Properties(sections[Section.PROPERTIES], self.version)
        self._ir = sections[Section.IR]

    @property
    def dialects(self) -> tuple[str, ...]:
        """The dialects that the file names."""
        return tuple(self._names.dialects)

    @property
    def dialect_versions(self) -> Mapping[str, bytes]:
        """The version bytes of the dialects that have some."""
        return self._names.versions

    @cached_property
    def op_counts(self) -> Counter[str]:
        """How many ops of each name there are; none of them is made."""
        self._top_op(cursor := again(self._ir))
        return Index(cursor, self.version, self._names).counts()

    @cached_property
    def _top(self) -> Mapping[str, Located]:
        self._top_op(cursor := again(self._ir))
        found: dict[str, Located] = {}
        for op in Index(cursor, self.version, self._names).top():
            name = self._symbol(op.header, op.body)
            if name is not None:
                found.setdefault(name, op)
        return found

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of the functions, and of other symbols directly in the module."""
        return tuple(self._top)

    def ops_of(self, symbol: str) -> Counter[str]:
        """How many ops of each name a function (or other symbol) consists of, without making any."""
        return Index(self._at(symbol), self.version, self._names).counts()

    def _at(self, symbol: str) -> Cursor:
        """Where a symbol's op begins. Raises ImportModelError for an unknown one."""
        found = self._top.get(symbol)
        if found is None:
            raise ImportModelError(f"bytecode '{self.name}': '{symbol}': one of {', '.join(self._top)} is required")
        cursor = again(found.body)
        cursor.position = found.position
        return cursor

    def function(self, symbol: str) -> Operation:
        """One function (or other symbol) without the rest of the module. Raises ImportModelError for an unknown one."""
        cursor = self._at(symbol)
        return self._made(cursor, Scope(self._top[symbol].values))

    def module(self) -> ModuleOp:
        """The whole module, brought up to date by the dialects whose versions the file states; not verified."""
        self._check_versions()
        cursor = again(self._ir)
        self._top_op(cursor)
        module = self._made(cursor, Scope())
        cursor.require_end("the module")
        if not isinstance(module, ModuleOp):
            self._ir.fail(f"a builtin.module is required, got '{module.name}'")
        for dialect in self.dialect_versions:
            self._codes[dialect].upgrade(module, self._entries.version_of(dialect))
        return module

    def _check_versions(self) -> None:
        for dialect in self.dialect_versions:
            if dialect not in self._codes:
                self._dialects_at.fail(
                    f"dialect '{dialect}' has a version, and nothing here knows its versions; known are "
                    f"{', '.join(self._codes)}",
                    then=INSTALL.format("tpusim.bytecode"),
                )

    @staticmethod
    def _top_op(cursor: Cursor) -> None:
        """Pass the head of section IR: a block of one op without arguments."""
        ops, arguments = cursor.flagged()
        if ops != 1 or arguments:
            cursor.fail(f"one op without arguments is required, got {ops:,}")

    def _made(self, cursor: Cursor, scope: Scope) -> Operation:
        reader = OperationReader(self._ctx, self.version, self._names, self._entries, self._properties)
        try:
            found = reader.op(cursor, scope)
        except TpusimError:
            raise
        except Exception as error:  # noqa: BLE001  xDSL's ops meet parts that do not fit with errors of every kind
            cursor.fail(f"an op cannot be made of its parts, {first_line(error)}")
        if scope.forward:
            cursor.fail(f"{found.name} uses values of the module around it, and cannot be read without that")
        return found

    def _symbol(self, header: Header, cursor: Cursor) -> str | None:
        """The symbol of an op: its property or attribute `sym_name`."""
        reader = OperationReader(self._ctx, self.version, self._names, self._entries, self._properties)
        found = reader.inherent(header, cursor).get("sym_name")
        return found.data if isinstance(found, StringAttr) else None
