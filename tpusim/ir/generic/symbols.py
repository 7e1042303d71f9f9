"""Symbols: who refers to them, and those that nobody does."""

from collections.abc import Iterator
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr, SymbolRefAttr
from xdsl.ir import Attribute, Operation, ParametrizedAttribute
from xdsl.traits import SymbolOpInterface, SymbolTable


def erase_dead_symbols(root: Operation) -> None:
    """Erase the symbols of each table inside `root` that are not public, and to which no living op refers."""
    for table in [op for op in root.walk() if op.has_trait(SymbolTable, value_if_unregistered=False)]:
        if table is root or table.parent is not None:
            _erase_dead_in(table, hidden=table is not root and not is_public(table))


def _erase_dead_in(table: Operation, *, hidden: bool) -> None:
    """hidden: nobody outside can refer to the symbols, because the table is a private symbol itself."""
    symbols = {name: op for op in _content(table) if (name := symbol_of(op))}
    todo: list[Operation] = []
    for op in _content(table):
        if not symbol_of(op) or (is_public(op) and not hidden):
            todo.append(op)
    living = set[Operation]()
    outside = table.parent_op()
    for op in () if outside is None else (one for one in outside.walk() if not table.is_ancestor(one)):
        todo.extend(symbols[name] for name in referred(op) if name in symbols)
    while todo:
        op = todo.pop()
        if op in living:
            continue
        living.add(op)
        names = {name for one in op.walk() for name in referred(one)}
        todo.extend(symbols[name] for name in names if name in symbols)
    for op in symbols.values():
        if op not in living:
            op.detach()
            op.erase(safe_erase=False)


def _content(table: Operation) -> Iterator[Operation]:
    for region in table.regions:
        for block in region.blocks:
            yield from block.ops


def symbol_of(op: Operation) -> str:
    """The symbol that an op defines, "" if none."""
    found = op.get_trait(SymbolOpInterface)
    name = None if found is None else found.get_sym_attr_name(op)
    return "" if name is None else name.data


def is_public(op: Operation) -> bool:
    """Whether a symbol may be referred to from anywhere, which is so unless its op says otherwise."""
    said = op.get_attr_or_prop("sym_visibility")
    return not isinstance(said, StringAttr) or said.data == "public"


def referred(op: Operation) -> set[str]:
    """The symbols that an op's attributes refer to, by all parts of the references."""
    return {name for value in (*op.attributes.values(), *op.properties.values()) for name in _names(value)}


def _names(value: object) -> Iterator[str]:
    if isinstance(value, SymbolRefAttr):
        yield value.root_reference.data
        yield from (part.data for part in value.nested_references.data)
    elif isinstance(value, ParametrizedAttribute):
        for part in value.parameters:
            yield from _names(part)
    elif isinstance(value, ArrayAttr):
        for part in cast("ArrayAttr[Attribute]", value).data:
            yield from _names(part)
    elif isinstance(value, DictionaryAttr):
        for part in value.data.values():
            yield from _names(part)
