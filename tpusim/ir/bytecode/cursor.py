"""`Cursor`: reads the primitives of MLIR bytecode from one section; names offset and section of damage."""

from array import array
from collections.abc import Callable, Iterator
from typing import NoReturn, TypeVar

from tpusim.errors import ImportModelError
from tpusim.ir.bytecode.varints import unzigzag

T = TypeVar("T")
PADDING = 0xCB
AGAIN = "write the file again with the tool that made it"
INSTALL = "install the package that registers it (entry point group {})"


def places(end: int) -> "array[int]":
    """An empty table of places up to `end`, in four bytes each if they fit."""
    return array("I" if end < 1 << 32 else "Q")


class Cursor:
    """A position in the bytes of a section; reading beyond its end raises ImportModelError.

    data: the bytes. base: the offset in the file of data[0]. position, end: indices of data. section: its name, and
    file: the file's, for errors.
    """

    __slots__ = ("base", "data", "end", "file", "position", "section")

    def __init__(self, data: bytes | memoryview, base: int, begin: int, end: int, section: str, file: str) -> None:
        self.data, self.base, self.section, self.file = data, base, section, file
        self.position, self.end = begin, end

    def fail(self, why: str, position: int | None = None, *, then: str = AGAIN) -> NoReturn:
        """Raise ImportModelError that names file, byte offset, section and, in `then`, the next step."""
        at = self.base + (self.position if position is None else position)
        raise ImportModelError(f"bytecode '{self.file}': byte {at:,} in section {self.section}: {why}; {then}")

    def at_end(self) -> bool:
        """Whether everything was read."""
        return self.position >= self.end

    def require_end(self, what: str) -> None:
        """Refuse bytes that are left over."""
        if self.position != self.end:
            self.fail(f"{what} must fill its bytes exactly, {self.end - self.position:,} are left")

    def byte(self) -> int:
        """Return the next byte and pass over it."""
        if self.position >= self.end:
            self.fail("a byte is required, the section ends here")
        value = self.data[self.position]
        self.position += 1
        return value

    def boolean(self) -> bool:
        """One byte, 0 or 1."""
        value = self.byte()
        if value > 1:
            self.fail(f"a boolean of 0 or 1 is required, got {value}")
        return value == 1

    def varint(self) -> int:
        """An unsigned integer of up to 64 bits."""
        position, data = self.position, self.data
        if position >= self.end:
            self.fail("an integer is required, the section ends here")
        first = data[position]
        if first & 1:
            self.position = position + 1
            return first >> 1
        size = (first & -first).bit_length() if first else 9
        if position + size > self.end:
            self.fail(f"an integer of {size} bytes is required, the section ends before")
        self.position = position + size
        if not first:
            return int.from_bytes(data[position + 1 : position + 9], "little")
        return int.from_bytes(data[position : position + size], "little") >> size

    def varints(self, count: int) -> Iterator[int]:
        """As many unsigned integers, read one by one; nearly all of a table take a byte."""
        data, end = self.data, self.end
        for _ in range(count):
            position = self.position
            if position < end and (first := data[position]) & 1:
                self.position = position + 1
                yield first >> 1
            else:
                yield self.varint()

    def signed(self) -> int:
        """A signed integer of up to 64 bits."""
        return unzigzag(self.varint())

    def flagged(self) -> tuple[int, bool]:
        """An unsigned integer and its flag."""
        value = self.varint()
        return value >> 1, bool(value & 1)

    def count(self, what: str, size: int = 1) -> int:
        """A number of things of at least `size` bytes each that are still to come in this section."""
        count = self.varint()
        if count * size > self.end - self.position:
            self.fail(f"{count:,} {what} are announced, {self.end - self.position:,} bytes are left")
        return count

    def many(self, read: Callable[["Cursor"], T], what: str) -> list[T]:
        """A list: its length, then the elements."""
        return [read(self) for _ in range(self.count(what))]

    def skip(self, size: int) -> int:
        """Pass over the next `size` bytes; returns where they begin."""
        if size > self.end - self.position:
            self.fail(f"{size:,} bytes are announced, {self.end - self.position:,} are left")
        self.position += size
        return self.position - size

    def take(self, size: int) -> bytes | memoryview:
        """The next `size` bytes; a view of the file where the cursor's data is one."""
        begin = self.skip(size)
        return self.data[begin : begin + size]

    def blob(self) -> bytes | memoryview:
        """A length and that many bytes."""
        return self.take(self.varint())

    def terminated(self) -> str:
        """UTF-8 text up to a byte of zero."""
        begin = self.position
        if isinstance(self.data, bytes):
            position = self.data.find(0, begin, self.end)
        else:
            position = next((at for at in range(begin, self.end) if not self.data[at]), -1)
        if position < 0:
            self.fail("text that ends in a byte of zero is required, the section ends before")
        self.position = position + 1
        return self.text(begin, position)

    def text(self, begin: int, end: int) -> str:
        """The UTF-8 text of some bytes of this section."""
        try:
            return str(self.data[begin:end], "utf-8")
        except UnicodeDecodeError as error:
            self.fail(f"UTF-8 text is required ({error.reason})", begin + error.start)

    def align(self, alignment: int) -> None:
        """Skip the padding up to a multiple of `alignment` in the file."""
        if alignment < 1 or alignment & (alignment - 1):
            self.fail(f"an alignment that is a power of two is required, got {alignment:,}")
        padding = self.take(-(self.base + self.position) % alignment)
        if bytes(padding).strip(bytes((PADDING,))):
            self.fail(f"padding of bytes {PADDING:#x} is required")

    def within(self, size: int, section: str) -> "Cursor":
        """A cursor of the next `size` bytes, which this one passes over."""
        begin = self.skip(size)
        return Cursor(self.data, self.base, begin, begin + size, section, self.file)

    def copied(self) -> "Cursor":
        """The same with the section's bytes in memory: many small reads are quicker than from a map."""
        piece = bytes(self.data[self.position : self.end])
        return Cursor(piece, self.base + self.position, 0, len(piece), self.section, self.file)
