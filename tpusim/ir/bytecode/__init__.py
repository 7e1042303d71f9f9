"""MLIR bytecode, versions 0 to 6: the binary form of a module, as MLIR's tools read and write it.

Input and output are modules of xDSL. `Bytecode.open` maps a file and reads its tables; `Bytecode.module` makes the
module, `Bytecode.function` one function; `Bytecode.resources` has the blobs after the module as views of the map.
`encode` writes. Whatever is damaged raises ImportModelError with byte offset and section. The reader allocates by what
it has read, never by a number in the file. It knows the encodings of builtin, quant and of the `DialectCodes` it is
given; of any other dialect it reads what is written as text, and refuses the rest by the dialect's name when used.

varints, cursor, sections, strings, names, resources: the layers of the format. forms: how the codes of a dialect are
described; builtin_attributes, builtin_types, quant_types, dialects: these descriptions; releases: the codes that each
release of MLIR reads. entries: attributes and types by id. headers, operations, index, properties: section IR.
reading, writing: files. Reader and writer are imported when they are first used: to recognise a file takes neither.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tpusim.ir.bytecode.releases import EVERYBODY, RELEASES, Release, release
from tpusim.ir.bytecode.sections import MAGIC, VERSIONS, is_bytecode

if TYPE_CHECKING:
    from tpusim.ir.bytecode.forms import DialectCodes, Form
    from tpusim.ir.bytecode.reading import Bytecode
    from tpusim.ir.bytecode.resources import Blob, Resource, Resources
    from tpusim.ir.bytecode.writing import encode

__all__ = [
    "EVERYBODY", "MAGIC", "RELEASES", "VERSIONS", "Blob", "Bytecode", "DialectCodes", "Form", "Release", "Resource",
    "Resources", "encode", "is_bytecode", "release",
]  # fmt: skip

_PLACES = {
    "Blob": "resources", "Bytecode": "reading", "DialectCodes": "forms", "Form": "forms", "Resource": "resources",
    "Resources": "resources", "encode": "writing",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Reader and writer, which come with their first use."""
    if name not in _PLACES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
