"""The dialects `top` and `tpu` in the spelling of TPU-MLIR.

`ops.json` has every op with its operands, results and attributes; `benchmarks/conformance/dialect_table.py` writes it.
`meanings.toml`, written by hand, says what attributes that tpusim does not compute mean here. The table is read when an
op is first looked up. The page docs/dialects.md shows it.

An attribute of an op has one of three meanings. A *computed* attribute is defined by the op's class in `tpusim.ops`. A
*neutral* one is accepted with a value that changes nothing, and refused with any other. An *opaque* one is kept and
printed as it was read, because it changes no number. All attributes of an op without a class are opaque.

`Spelled`, a base of the op classes, takes names and types of attributes from the table.
"""

from tpusim.ir.upstream.spelling import (
    ARITHMETIC,
    BUFFER,
    DECISIONS,
    FALLBACK,
    FORMER_OPS,
    FRAMEWORK,
    FUNCTION,
    GLOBAL_REASON,
    NOTES,
    OWN,
    PART_OF,
    REMARKS,
    Spelled,
    ir_name,
)
from tpusim.ir.upstream.table import (
    AttributeEntry,
    Meaning,
    NotComputedError,
    OpEntry,
    OperandEntry,
    defined_attributes,
    entry,
    meaning,
    names,
    refusal,
)

__all__ = [
    "ARITHMETIC",
    "BUFFER",
    "DECISIONS",
    "FALLBACK",
    "FORMER_OPS",
    "FRAMEWORK",
    "FUNCTION",
    "GLOBAL_REASON",
    "NOTES",
    "OWN",
    "PART_OF",
    "REMARKS",
    "AttributeEntry",
    "Meaning",
    "NotComputedError",
    "OpEntry",
    "OperandEntry",
    "Spelled",
    "defined_attributes",
    "entry",
    "ir_name",
    "meaning",
    "names",
    "refusal",
]
