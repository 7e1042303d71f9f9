"""The text of a module with what bytecode keeps of it."""

from xdsl.dialects.builtin import ModuleOp

from tpusim.ir.text import print_module


def plain(module: ModuleOp) -> str:
    """The text of a module without names of values, attributes in order: what bytecode keeps."""
    copy = module.clone()
    for op in copy.walk():
        for attributes in (op.attributes, op.properties):
            items = sorted(attributes.items())
            attributes.clear()
            attributes.update(items)
        for value in (*op.results, *(arg for region in op.regions for block in region.blocks for arg in block.args)):
            value.name_hint = None
    return print_module(copy)
