"""What TPU-MLIR writes, in the form that the op classes take.

TPU-MLIR prints every operand and every attribute of an op, absent operands as `top.None`, and of a network that was
just imported no shapes. A class of tpusim names what it computes with. `drop_absent` removes absent operands, and
`take` infers shapes. An op that states more than its class takes becomes opaque (`tpusim.ir.opaque`), so that its
module can be read, changed elsewhere and printed.
"""

from collections.abc import Iterable
from dataclasses import replace
from math import prod
from typing import Protocol, cast, runtime_checkable

from xdsl.context import Context
from xdsl.dialects.builtin import (
    IntegerType,
    ModuleOp,
    NoneAttr,
    NoneType,
    Signedness,
    StringAttr,
    UnrankedTensorType,
    UnregisteredAttr,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation, OptOperandDef, OptResultDef, VarOperandDef, VarResultDef
from xdsl.utils.exceptions import VerifyException

from tpusim.errors import TpusimError
from tpusim.ir.attrs import LayerGroupAttr, int_attr, ints_attr, op_name
from tpusim.ir.opaque import OpaqueOp, made_opaque, replaced_by
from tpusim.ir.types import UniformType, address_of, element_of, is_tensor, retyped, set_type, shape_of, tensor
from tpusim.ir.upstream.spelling import SPECIAL_FORMS, Spelled
from tpusim.ir.upstream.table import OpEntry, defined_attributes, entry


@runtime_checkable
class Taking(Protocol):
    """An op that knows its form and the shapes of its results."""

    def take_form(self) -> str:
        """Bring the op into the form that its class computes with; or why that is not possible."""
        ...

    def infer(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the results."""
        ...


def take(module: ModuleOp, *, keep: bool = False) -> None:
    """Bring every op of a module into the form that its class takes, or make it opaque.

    keep: to print the module again. Ops keep their form, and what a class refuses becomes opaque too.
    """
    for op in list(module.walk()):
        if isinstance(op, IRDLOperation) and entry(op.name) is not None and (why := _why_opaque(op, keep=keep)):
            made_opaque(op, why)
    for function in module.walk():
        if isinstance(function, FuncOp) and any(
            isinstance(t, UnrankedTensorType) for t in function.function_type.outputs
        ):
            function.update_function_type()


def take_op(op: Operation) -> str:
    """Bring one op that was made in place of another into the form of its class; or why the class does not take it."""
    return _why_opaque(op, keep=False) if isinstance(op, IRDLOperation) else ""


def _why_opaque(op: IRDLOperation, *, keep: bool) -> str:
    """Bring an op into the form of its class, and give it shapes; or why the class does not take it."""
    if not keep:
        _leave_out_repeated(op)
    if why := why_not_taken(op):
        return why
    if keep:
        return infer_shapes(op) or refused(op)
    _widen(op)
    return _formed(op) or infer_shapes(op)


def generalise(module: ModuleOp, ctx: Context) -> None:
    """Replace ops that are special forms of others by those, without the attributes that these do not have."""
    for op in list(module.walk()):
        if isinstance(op, OpaqueOp) and (name := SPECIAL_FORMS.get(op.name)) and (kind := ctx.get_optional_op(name)):
            special, general = entry(op.name), entry(name)
            assert special is not None and general is not None
            lost = special.attributes.keys() - general.attributes.keys()
            replaced_by(op, kind, {key: value for key, value in op.attributes.items() if key not in lost})


def _leave_out_repeated(op: IRDLOperation) -> None:
    """Remove the operands after those of the class, if they are absent, or constants that repeat something else."""
    known, (fixed, _) = entry(op.name), _arity(type(op))
    if known is None or not isinstance(op, Spelled) or not op.REPEATED:
        return
    more = list(zip(known.operands, op.operands, strict=False))[fixed:]
    if all(isinstance(v.type, NoneType) or (o.name in op.REPEATED and _is_constant(v)) for o, v in more):
        op.operands = op.operands[:fixed]


def _is_constant(value: SSAValue) -> bool:
    return isinstance(value.owner, Operation) and value.owner.name == "top.Weight"


def _widen(op: IRDLOperation) -> None:
    """Give results of lowered ops their type without a narrower range, as bools have: TPU-MLIR saturates to bits."""
    from tpusim.ir.bytecode.missing import RangedUniformType

    for result in list(op.results):
        ranged = element_of(result) if is_tensor(result) else None
        if op.dialect_name() == "tpu" and isinstance(ranged, RangedUniformType):
            signedness = Signedness.SIGNED if ranged.flags.data & 1 else Signedness.UNSIGNED
            axis = NoneAttr() if ranged.axis.data < 0 else int_attr(ranged.axis.data)
            zeros = ints_attr(zero.data for zero in ranged.zero_points)
            storage = IntegerType(ranged.storage.width.data, signedness)
            set_type(result, retyped(result, UniformType(storage, ranged.expressed, ranged.scales, zeros, axis)))


def infer_shapes(op: Operation) -> str:
    """Give results without a rank the shapes that follow from the operands; or why they do not."""
    if not unshaped(op.results):
        return ""
    try:
        shapes = op.infer() if isinstance(op, Taking) else None
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  an op may lack anything that its class needs
        return f"the shape of its result does not follow: {error}"
    for result, shape in zip(list(op.results), shapes or (), strict=False):
        if is_unranked(result):
            unranked = cast("UnrankedTensorType[Attribute]", result.type)
            set_type(result, tensor(shape, unranked.element_type))
    return ""


def reshape_constant(value: SSAValue, shape: tuple[int, ...], element: Attribute | None = None) -> None:
    """Give a weight another shape, and another element type of as many bytes.

    Its data, which TPU-MLIR stores flat, follows when the file of weights is read. The weight may be in local memory,
    where a load of its group put it.
    """
    maker = value.owner if isinstance(value.owner, Operation) else None
    if maker is not None and maker.name == "tpu.Load":
        reshape_constant(maker.operands[0], shape, element)
        _along_channels(maker, len(shape_of(value)))
    if maker is None or maker.name not in ("top.Weight", "tpu.Load"):
        return
    value = maker.results[0]  # another operand of the op may have reshaped it
    if is_tensor(value) and prod(shape_of(value)) == prod(shape):
        set_type(value, tensor(shape, element or element_of(value), address_of(value)))


def reshape_channels(value: SSAValue, channels: int, shape: tuple[int, ...]) -> None:
    """Give a weight of one number per channel another shape; one along another axis is left as it is."""
    stated = shape_of(value)
    if stated == (channels,) or stated[1:2] == (channels,):
        reshape_constant(value, shape)


def _along_channels(load: Operation, rank: int) -> None:
    """State the slice of a constant of one axis along the channels, where an op has it, in place of batch items."""
    stated = load.attributes.get("ginfo")
    if rank == 1 and isinstance(stated, LayerGroupAttr):
        info = stated.data
        items, channels = (info.n_idx, info.n_slice), (info.c_idx, info.c_slice)
        (c_idx, c_slice), (n_idx, n_slice) = items, channels
        load.attributes["ginfo"] = LayerGroupAttr(
            replace(info, n_idx=n_idx, n_slice=n_slice, c_idx=c_idx, c_slice=c_slice)
        )


def unshaped(values: Iterable[SSAValue]) -> list[SSAValue]:
    """The values that have no rank."""
    return [value for value in values if is_unranked(value)]


def is_unranked(value: SSAValue) -> bool:
    """Whether a value has no rank."""
    return isinstance(value.type, UnrankedTensorType)


def _formed(op: Operation) -> str:
    """Bring an op into the form of its class; "" if the class takes it then."""
    for name in defined_attributes(type(op)) & op.attributes.keys():
        value = op.attributes[name]
        if isinstance(value, UnregisteredAttr):  # `#tpu<active_mode SILU>`; the class has the word
            op.attributes[name] = StringAttr(value.value.data.strip())
    try:
        return op.take_form() if isinstance(op, Taking) else ""
    except (TpusimError, MemoryError):
        raise
    except Exception:  # noqa: BLE001  an op without what its class requires, which verification says
        return ""


def refused(op: Operation) -> str:
    """Why the class of an op refuses it; "" if it does not."""
    try:
        op.verify(verify_nested_ops=False)
    except VerifyException as error:
        return str(error)
    return ""


def why_not_taken(op: IRDLOperation) -> str:
    """What an op states that its class does not take; "" if the class takes it, or if TPU-MLIR has no such op."""
    known = entry(op.name)
    return "" if known is None else _shape_refusal(op) or _operand_refusal(op, known)


def _shape_refusal(op: Operation) -> str:
    source = next(iter(unshaped(op.operands)), None)
    if source is None:
        return ""
    maker = source.owner
    return f"the shape of its operand '{op_name(maker) if isinstance(maker, Operation) else ''}' is not known"


def _arity(kind: type[IRDLOperation]) -> tuple[int, bool]:
    """The number of operands that an op of the class always has, and whether it may have more."""
    operands = [definition for _, definition in kind.get_irdl_definition().operands]
    fixed = sum(not isinstance(d, VarOperandDef | OptOperandDef) for d in operands)
    return fixed, fixed < len(operands)


def _operand_refusal(op: IRDLOperation, known: OpEntry) -> str:
    results = [definition for _, definition in type(op).get_irdl_definition().results]
    if len(op.results) > len(results) and not any(isinstance(d, OptResultDef | VarResultDef) for d in results):
        own = {name for name, _ in type(op).get_irdl_definition().results}
        more = (
            r.name
            for r, value in zip(known.results, op.results, strict=False)
            if r.name not in own and is_tensor(value)
        )
        return f"its result '{next(more, known.results[-1].name)}' is not computed"
    fixed, more = _arity(type(op))
    if more or len(op.operands) <= fixed or len(op.operands) > len(known.operands):
        return ""
    return f"its operand '{known.operands[fixed].name}' is not computed, only `none` is taken there"
