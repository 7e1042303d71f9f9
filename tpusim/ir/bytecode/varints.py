"""Variable-length integers of MLIR bytecode as bytes: varint, signed varint and varint with a flag."""

SMALL = tuple(bytes((value << 1 | 1,)) for value in range(128))
"""The varints of one byte."""
WORD = 1 << 64


def varint(value: int) -> bytes:
    """An unsigned integer below 2**64: the first byte's trailing zeros count the bytes that follow."""
    if value < 128:
        return SMALL[value]
    size = (value.bit_length() + 6) // 7
    if size > 8:
        return b"\0" + value.to_bytes(8, "little")
    return ((value << 1 | 1) << (size - 1)).to_bytes(size, "little")


def signed(value: int) -> bytes:
    """A signed integer of 64 bits, in zigzag order: 0, -1, 1, -2 ..."""
    return varint(((value << 1) ^ (value >> 63)) & (WORD - 1))


def flagged(value: int, flag: bool) -> bytes:
    """An unsigned integer below 2**63 with a flag as its lowest bit."""
    return varint(value << 1 | flag)


def unzigzag(value: int) -> int:
    """The signed integer of a zigzag number."""
    return (value >> 1) ^ -(value & 1)
