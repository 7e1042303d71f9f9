"""The automaton of the patterns that ops draw for canonicalisation, compiled by `make patterns` and stored as JSON.

To compile it takes longer than to canonicalise a network: xDSL's `pdl` dialects have to be imported. Patterns of
packages are not in it; the driver compiles those when a module has their ops.
"""

from functools import cache
from pathlib import Path

import msgspec

from tpusim.ir.dialects import dialect
from tpusim.ir.pdl import DataPattern, load, rows_of
from tpusim.ir.pdl.automaton import Automaton
from tpusim.ir.pdl.rows import Rows
from tpusim.ir.weights import WeightStore
from tpusim.ops.framework.base import TopOp
from tpusim.registry import DIALECTS

FILE = Path(__file__).with_name("automaton.json")


@cache
def stored() -> Automaton:
    """The automaton of the file."""
    return load(msgspec.json.decode(FILE.read_bytes(), type=Rows))


def content() -> bytes:
    """What the file must contain: the automaton of the patterns as they are drawn now."""
    ops = [op for namespace in DIALECTS.shipped() for op in dialect(namespace).operations if issubclass(op, TopOp)]
    patterns = [pattern for op in ops for pattern in op.canonicalization_patterns(WeightStore())]
    drawn = {pattern.key: pattern for pattern in patterns if isinstance(pattern, DataPattern)}
    return msgspec.json.encode(rows_of(list(drawn.values()))).replace(b"]],[[", b"]],\n[[") + b"\n"


def write() -> None:
    """Write the file anew."""
    FILE.write_bytes(content())
