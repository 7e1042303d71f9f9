"""The string table: texts by index, decoded when they are used."""

from tpusim.ir.bytecode.cursor import Cursor, places
from tpusim.ir.bytecode.varints import varint


class Strings:
    """The texts of a file by index."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._begin = begin = places(cursor.end)
        for length in cursor.varints(cursor.count("strings")):
            if length > cursor.end:
                cursor.fail(f"a text of {length:,} bytes is announced, the section has {cursor.end:,}")
            begin.append(length)
        begin.reverse()  # the lengths, which become places
        position = cursor.position
        for index, length in enumerate(begin):
            if not length or position + length > cursor.end or cursor.data[position + length - 1]:
                cursor.position = position
                cursor.fail(f"a text of {length:,} bytes that ends in a byte of zero is required")
            begin[index] = position
            position += length
        cursor.position = position
        cursor.require_end("the string table")
        begin.append(position)
        self._texts: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._begin) - 1

    def at(self, index: int, user: Cursor) -> str:
        """The text of an index that `user` has just read. Raises ImportModelError there if it is none."""
        if index >= len(self):
            user.fail(f"text {index:,} of {len(self):,} does not exist")
        text = self._texts.get(index)
        if text is None:
            begin, end = self._begin[index], self._begin[index + 1] - 1
            text = self._texts[index] = self._cursor.text(begin, end)
        return text

    def bytes_at(self, index: int, user: Cursor) -> bytes:
        """The bytes of a text, which may be any."""
        if index >= len(self):
            user.fail(f"text {index:,} of {len(self):,} does not exist")
        return bytes(self._cursor.data[self._begin[index] : self._begin[index + 1] - 1])

    def read(self, user: Cursor) -> str:
        """The text whose index comes next in `user`."""
        return self.at(user.varint(), user)


class StringTable(dict[str, int]):
    """Texts to write, by the index that each gets when it is first asked for."""

    def index(self, text: str) -> int:
        """The index of a text."""
        return self.setdefault(text, len(self))

    def reference(self, text: str) -> bytes:
        """The index of a text as a varint."""
        return varint(self.index(text))

    def encoded(self) -> bytes:
        """The table as a section's contents."""
        texts = [text.encode("utf-8", "surrogateescape") + b"\0" for text in self]
        lengths = b"".join(varint(len(text)) for text in reversed(texts))
        return varint(len(texts)) + lengths + b"".join(texts)
