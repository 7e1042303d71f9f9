"""Read StableHLO by the MLIR that JAX brings: text, bytecode, portable artefacts, and what JAX lowers a function to."""

# the bindings have no complete type stubs:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters.mlir import make_ir_context

from tpusim.errors import ImportModelError, UnsupportedError, first_line, lacks_memory

ARTEFACT = b"ML\xefR"
"""The first bytes of MLIR bytecode, and so of a portable artefact."""
DTYPES: Mapping[str, str] = {
    "f64": "float64", "f32": "float32", "f16": "float32", "bf16": "float32", "i1": "bool", "i8": "int8",
    "i16": "int16", "i32": "int32", "i64": "int64", "ui8": "uint8", "ui16": "uint16",
    "ui32": "uint32", "ui64": "uint64",
}  # fmt: skip
"""Element types of StableHLO -> those of the network: numbers of 16 bits become f32; only constants may be f64."""


SKIPPED = re.compile(r"p?jit\(.*\)$")
"""Parts of a scope that say that a function was compiled."""


def parsed(content: str | bytes, label: str) -> Any:
    """A verified module with the dialects of StableHLO. Raises ImportModelError with MLIR's reason."""
    context = make_ir_context()
    context.allow_unregistered_dialects = True
    try:
        if isinstance(content, bytes) and content.startswith(ARTEFACT):
            try:
                return stablehlo.deserialize_portable_artifact(context, content)
            except Exception as error:  # noqa: BLE001  bytecode that is no portable artefact
                if lacks_memory(error):
                    raise
                return ir.Module.parse(content, context)
        return ir.Module.parse(content.decode() if isinstance(content, bytes) else content, context)
    except Exception as error:  # noqa: BLE001  the bindings' errors share no base class
        raise ImportModelError(f"{label}: no valid StableHLO module ({_reason(error)})") from error


def _reason(error: Exception) -> str:
    """The parser's first reason, with the line."""
    found = re.search(r'error: (?:"[^"]*":(\d+):\d+: )?(.*)', str(error))
    return first_line(error) if found is None else f"line {found[1]}: {found[2]}" if found[1] else found[2]


@dataclass(frozen=True)
class Op:
    """One instruction: its kind as in `stablehlo.add`, attributes, and where it was written."""

    op: Any

    @property
    def kind(self) -> str:
        """The name with its dialect."""
        return str(self.op.operation.name)

    @cached_property
    def place(self) -> str:
        """The scope in the program that was lowered, or the line of the file; "" if neither is known."""
        text = str(self.op.location)
        if (file := re.match(r'loc\(("[^"]*"):(\d+):\d+', text)) is not None:
            return f"line {file[2]}"
        scope = re.match(r'loc\("([^"]*)"', text)
        if scope is None:
            return ""
        return "/".join(part for part in scope[1].split("/") if part and not SKIPPED.match(part))

    @property
    def name(self) -> str:
        """A name for its results: the scope, or the instruction."""
        found = self.place
        return self.kind.rpartition(".")[2] if not found or found.startswith("line ") else found

    def attribute(self, name: str) -> Any:
        """An attribute, None if it is absent."""
        return self.op.attributes[name] if name in self.op.attributes else None  # noqa: SIM401  it has no get

    def integers(self, name: str) -> tuple[int, ...]:
        """The numbers of an array or of a dense attribute, in order; () if it is absent."""
        found = self.attribute(name)
        if found is None:
            return ()
        return (
            tuple(int(v) for v in np.array(found).reshape(-1))
            if hasattr(found, "__array__")
            else tuple(map(int, found))
        )

    def number(self, name: str, default: int = 0) -> int:
        """The value of an integer attribute."""
        found = self.attribute(name)
        return default if found is None else int(found.value)

    def word(self, name: str) -> str:
        """The case that an attribute of an enumeration names, as in `GT` of `#stablehlo<comparison_direction GT>`."""
        return str(self.attribute(name)).removesuffix(">").rpartition(" ")[2]

    @property
    def operands(self) -> list[Any]:
        """The values that it reads."""
        return list(self.op.operands)

    @property
    def results(self) -> list[Any]:
        """The values that it makes."""
        return list(self.op.results)

    def block(self, region: int = 0) -> Any:
        """The block of a region."""
        return self.op.regions[region].blocks[0]


def instructions(block: Any) -> Iterator[Op]:
    """The instructions of a block in order, the terminator last."""
    return (Op(op) for op in block.operations)


def functions(module: Any) -> dict[str, Any]:
    """The functions of a module by name. Raises ImportModelError without a @main or a single public function."""
    return {
        str(op.attributes["sym_name"]).strip('"'): op for op in module.body.operations if "sym_name" in op.attributes
    }


def type_of(value: Any) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and element type of a value. Raises UnsupportedError for dynamic shapes and types that no op computes."""
    shape, element = shape_of(value), str(ir.RankedTensorType(value.type).element_type)
    if element not in DTYPES:
        raise UnsupportedError(f"f32, f16, bf16, bools or integers are required, got {value.type}")
    return shape, np.dtype(DTYPES[element])


def shape_of(value: Any) -> tuple[int, ...]:
    """The extents of a value. Raises UnsupportedError for those that are not static."""
    kind = str(value.type)
    try:
        ranked = ir.RankedTensorType(value.type)
    except ValueError as error:
        raise UnsupportedError(f"tensors of static shapes are required, got {kind}") from error
    if any(ranked.is_dynamic_dim(i) for i in range(ranked.rank)):
        raise UnsupportedError(
            f"static shapes are required, got {kind}; export it with the shapes that it is to run with"
        )
    return tuple(ranked.shape)
