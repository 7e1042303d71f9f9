"""Ops of TPU-MLIR that tpusim reads, keeps and prints, and does not compute.

Such an op has a name of the table without a class here, or a class that does not take what the op states
(`tpusim.ir.reading`). It is printed as it was read. What would have to compute it refuses it by name.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import ClassVar

from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import UnregisteredAttr
from xdsl.ir import Attribute, Operation
from xdsl.irdl import traits_def
from xdsl.rewriter import Rewriter

from tpusim.errors import UnsupportedError
from tpusim.ir.attrs import op_name
from tpusim.ir.types import CalibratedType, UniformType, is_tensor, tensor_of
from tpusim.ir.upstream.table import attribute_names, entry

NO_CLASS = "tpusim has no arithmetic for this op"
KNOWN = (UniformType, CalibratedType)
"""The quant types that are computed with."""
SHOWN = 8
"""Ops that a message names."""


class OpaqueOp(Operation):
    """An op that is not computed; `opaque_class` makes its class, which has the name and the reason."""

    traits = traits_def()
    why: ClassVar[str]


@cache
def opaque_class(name: str, why: str = NO_CLASS) -> type[OpaqueOp]:
    """The class of the opaque ops of a name, with why they are; it stays with their copies."""
    return type(f"Opaque_{name.replace('.', '_')}", (OpaqueOp,), {"name": name, "why": why})


def made_opaque(op: Operation, why: str) -> Operation:
    """Replace an op by an opaque one of the same name, operands, attributes, regions and results."""
    return replaced_by(op, opaque_class(op.name, why), op.attributes)


def replaced_by(op: Operation, kind: type[Operation], attributes: Mapping[str, Attribute]) -> Operation:
    """Replace an op by one of another class with the same operands, regions, results and place."""
    new = kind.create(
        operands=list(op.operands),
        result_types=[result.type for result in op.results],
        properties=op.properties,
        attributes=attributes,
        location=op.location,
        regions=[op.detach_region(region) for region in list(op.regions)],
    )
    for old, replacement in zip(op.results, new.results, strict=True):
        replacement.name_hint = old.name_hint
    Rewriter.replace_op(op, new)
    return new


def opaque_ops(ops: Iterable[Operation]) -> Iterator[OpaqueOp]:
    """The opaque ones of these ops."""
    return (op for op in ops if isinstance(op, OpaqueOp))


def _why_unknown(op: Operation) -> str:
    """Why an op is not computed: it is opaque, or a result has a type that is only kept; "" if it is computed."""
    if isinstance(op, OpaqueOp):
        return op.why
    elements = [tensor_of(result).element_type for result in op.results if is_tensor(result)]
    kept = next((e for e in elements if e.name.startswith("quant.") and not isinstance(e, KNOWN)), None)
    return "" if kept is None else f"tpusim does not compute with the type {kept}"


def require_known(ops: Iterable[Operation], what: str) -> None:
    """Raise UnsupportedError that names the opaque ones of these ops and why they are; `what` needs to compute them."""
    listed = [f"{op.name} '{op_name(op)}' ({why})" for op in ops if (why := _why_unknown(op))]
    if listed:
        more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
        raise UnsupportedError(
            f"{what}: ops that tpusim computes are required, got {'; '.join(listed[:SHOWN])}{more}; "
            "`tpusim opt` and other tools still read and print the module"
        )


class TableContext(Context):
    """An xDSL context in which ops and attributes of TPU-MLIR that have no class here are opaque.

    one_function: the functions of a module are read as one (`tpusim.ir.functions`).
    """

    one_function: ClassVar[bool] = True

    @override
    def get_optional_op(self, name: str, *, dialect_stack: Sequence[str] = ()) -> type[Operation] | None:
        """The class of an op, an opaque one for a name of the table, else None."""
        found = super().get_optional_op(name, dialect_stack=dialect_stack)
        return opaque_class(name) if found is None and entry(name) is not None else found

    @override
    def get_optional_attr(self, name: str) -> type[Attribute] | None:
        """The class of an attribute, an opaque one for a name of the table, else None."""
        found = super().get_optional_attr(name)
        return opaque_attribute(name) if found is None and name in attribute_names() else found


@cache
def opaque_attribute(name: str) -> type[UnregisteredAttr]:
    """The class of attributes `#tpu<NAME ...>` that no class here reads: kept as text."""
    return UnregisteredAttr.with_name_and_type(name, is_type=False)


def opaque_mode(name: str, case: str) -> Attribute:
    """The opaque attribute `#tpu<NAME CASE>`, as it is read; name: `tpu.NAME`."""
    return opaque_attribute(name)(name, is_type=False, is_opaque=True, value=f" {case}")
