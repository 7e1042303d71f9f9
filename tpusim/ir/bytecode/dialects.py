"""The dialects whose encodings are known."""

from collections.abc import Iterable, Mapping

from tpusim.ir.bytecode.builtin_attributes import ATTRIBUTES
from tpusim.ir.bytecode.builtin_types import TYPES
from tpusim.ir.bytecode.forms import DialectCodes
from tpusim.ir.bytecode.quant_types import TYPES as QUANT_TYPES

BUILTIN, QUANT = DialectCodes("builtin", ATTRIBUTES, TYPES), DialectCodes("quant", (), QUANT_TYPES)
KNOWN = (BUILTIN, QUANT)


def by_name(dialects: Iterable[DialectCodes]) -> Mapping[str, DialectCodes]:
    """The known dialects and others, of plug-ins, by name."""
    return {codes.name: codes for codes in (*KNOWN, *dialects)}
