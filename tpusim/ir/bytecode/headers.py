"""The head of an op in section IR, as numbers: it is read to make the op, or to skip it."""

from typing import NamedTuple

from tpusim.ir.bytecode.cursor import Cursor

ATTRIBUTES, RESULTS, OPERANDS, SUCCESSORS, REGIONS, USE_LISTS, PROPERTIES = 1, 2, 4, 8, 16, 32, 64
"""Bits of an op's mask: which of its parts follow."""
Order = tuple[int, bool, list[int]]
"""A use-list order: (number of the result or argument, whether its indices are pairs, the indices)."""
EMPTY: tuple[int, ...] = ()


class Header(NamedTuple):
    """Ids of an op's name, location, attributes and properties (-1 without), result types, operands and successors."""

    name: int
    location: int
    attributes: int
    properties: int
    results: list[int] | tuple[int, ...]
    operands: list[int] | tuple[int, ...]
    successors: list[int] | tuple[int, ...]
    orders: list[Order]
    regions: int
    isolated: bool


NO_ORDERS: list[Order] = []


def read_header(cursor: Cursor) -> Header:
    """Everything up to an op's regions."""
    varint = cursor.varint
    name, mask, location = varint(), cursor.byte(), varint()
    if mask > 127:
        cursor.fail(f"a mask of an op's parts below 128 is required, got {mask}")
    attributes = varint() if mask & ATTRIBUTES else -1
    properties = varint() if mask & PROPERTIES else -1
    results = [varint() for _ in range(cursor.count("results"))] if mask & RESULTS else EMPTY
    operands = [varint() for _ in range(cursor.count("operands"))] if mask & OPERANDS else EMPTY
    successors = [varint() for _ in range(cursor.count("successors"))] if mask & SUCCESSORS else EMPTY
    orders = read_orders(cursor, len(results)) if mask & USE_LISTS else NO_ORDERS
    regions, isolated = cursor.flagged() if mask & REGIONS else (0, False)
    if regions > cursor.end - cursor.position:
        cursor.fail(f"{regions:,} regions are announced, {cursor.end - cursor.position:,} bytes are left")
    return Header(name, location, attributes, properties, results, operands, successors, orders, regions, isolated)


def read_orders(cursor: Cursor, values: int) -> list[Order]:
    """The use-list orders of some of an op's results, or a block's arguments."""
    number = 1 if values == 1 else cursor.count("use-list orders", 2)
    orders: list[Order] = []
    for _ in range(number):
        index = 0 if values == 1 else cursor.varint()
        if index >= values:
            cursor.fail(f"value {index:,} of {values:,} has no use-list order")
        count, pairs = cursor.flagged()
        if count > cursor.end - cursor.position:
            cursor.fail(f"{count:,} uses are announced, {cursor.end - cursor.position:,} bytes are left")
        orders.append((index, pairs, [cursor.varint() for _ in range(count)]))
    return orders


def _ordered(cursor: Cursor) -> bool:
    """Whether use-list orders of arguments follow: MLIR writes the bit that has this meaning in the mask of an op."""
    found = cursor.byte()
    if found not in (0, 1, USE_LISTS):
        cursor.fail(f"0, or {USE_LISTS} before use-list orders of arguments, is required, got {found}")
    return bool(found)


class BlockHeader(NamedTuple):
    """Number of ops, and per argument its type and location (-1 for an unknown one)."""

    ops: int
    arguments: list[tuple[int, int]]
    orders: list[Order]


def read_block_header(cursor: Cursor, version: int) -> BlockHeader:
    """Everything up to a block's ops."""
    ops, has_arguments = cursor.flagged()
    if ops > cursor.end - cursor.position:
        cursor.fail(f"{ops:,} ops are announced, {cursor.end - cursor.position:,} bytes are left")
    if not has_arguments:
        return BlockHeader(ops, [], NO_ORDERS)
    arguments: list[tuple[int, int]] = []
    for _ in range(cursor.count("arguments")):
        kind, located = cursor.flagged() if version >= 4 else (cursor.varint(), True)
        arguments.append((kind, cursor.varint() if located else -1))
    ordered = version >= 3 and _ordered(cursor)
    return BlockHeader(ops, arguments, read_orders(cursor, len(arguments)) if ordered else NO_ORDERS)
