"""Patterns in the dialect `pdl` -> the rows of their automaton, by xDSL's `convert-pdl-to-pdl-interp`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

from xdsl.context import Context
from xdsl.dialects import pdl, pdl_interp
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseIntElementsAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
)
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.transforms.convert_pdl_to_pdl_interp.conversion import ConvertPDLToPDLInterpPass
from xdsl.utils.exceptions import VerifyException

from tpusim.errors import ConfigError, first_line
from tpusim.ir.pdl.rows import MATCHED, Function, Rewriter, Row, Rows

_Stated = Callable[[Any], list[Any]]


def compiled(patterns: Sequence[tuple[str, Sequence[pdl.PatternOp]]], where: str) -> Rows:
    """The automaton of patterns; each has a name and its forms (`Drawing`).

    where: for errors. Raises ConfigError for a pattern that is not complete, or that xDSL cannot translate.
    """
    copies: list[Operation] = []
    rewriters: dict[str, tuple[int, int, bool]] = {}
    for number, (name, forms) in enumerate(patterns):
        for form in forms:
            copy = form.clone()
            _require_rewrite(copy, name)
            _shield_constants(copy, name)
            copy.sym_name = StringAttr(f"r{len(rewriters)}")
            rewriters[f"r{len(rewriters)}"] = number, form.benefit.value.data, _note_matched(copy)
            copies.append(copy)
    module = _converted(ModuleOp(copies), where)
    matcher, bodies = (cast("Any", op) for op in module.body.block.ops)
    functions = {cast("pdl_interp.FuncOp", op).sym_name.data: op for op in bodies.body.block.ops}
    return Rows(
        [name for name, _ in patterns],
        _function(matcher),
        {name: Rewriter(*about, _function(functions[name])) for name, about in rewriters.items()},
    )


def _converted(module: ModuleOp, where: str) -> ModuleOp:
    try:
        ConvertPDLToPDLInterpPass().apply(Context(), module)
    except (ValueError, TypeError, NotImplementedError, AssertionError, KeyError, VerifyException) as error:
        raise ConfigError(f"{where}: {first_line(error)}; mend the pattern") from error
    return module


def _require_rewrite(pattern: pdl.PatternOp, where: str) -> None:
    rewrites = [one for one in pattern.walk() if isinstance(one, pdl.RewriteOp)]
    if len(rewrites) != 1 or rewrites[0].root is None or not rewrites[0].body.blocks:
        raise ConfigError(f"{where}: one pdl.rewrite with a root and a body is required")


_SHIELD = StringAttr("tpusim.shielded")


def _shield_constants(pattern: pdl.PatternOp, where: str) -> None:
    """Wrap 0, false and empty lists: xDSL asks for the truth of a constant where it asks whether there is one."""
    for op in pattern.walk():
        if isinstance(op, pdl.AttributeOp) and op.value is not None and not op.value:
            op.value = ArrayAttr([_SHIELD, op.value])
        if isinstance(op, pdl.TypesOp) and op.constantTypes is not None and not op.constantTypes:
            raise ConfigError(f"{where}: pdl.types of at least one type is required; leave the types of no result out")


def _text(constant: Attribute) -> str:
    """The text of a constant, without what shields it."""
    parts = cast("ArrayAttr[Attribute]", constant).data if constant.name == ArrayAttr.name else ()
    return str(parts[1] if len(parts) == 2 and parts[0] == _SHIELD else constant)


def _note_matched(pattern: pdl.PatternOp) -> bool:
    """Let the rewrite note the matched ops if PDL makes or replaces ops; return whether it does."""
    (rewrite,) = (one for one in pattern.walk() if isinstance(one, pdl.RewriteOp))
    inside = list(rewrite.body.walk())
    if not any(isinstance(one, pdl.OperationOp | pdl.ReplaceOp) for one in inside):
        return False
    ops = [one.op for one in pattern.body.block.ops if isinstance(one, pdl.OperationOp)]
    rewrite.body.block.insert_op_before(pdl.ApplyNativeRewriteOp(MATCHED, ops, []), inside[0])
    return True


# -- rows


def _integer(attribute: Attribute | None) -> int | None:
    return cast("IntegerAttr", attribute).value.data if attribute is not None else None


def _texts(attributes: Iterable[Attribute]) -> list[str]:
    return [_text(one) for one in attributes]


def _strings(attributes: ArrayAttr[StringAttr]) -> list[str]:
    return [one.data for one in attributes]


def _numbers(attribute: DenseIntElementsAttr) -> list[int]:
    return [int(one) for one in attribute.get_values()]


_STATED: dict[type[Operation], _Stated] = {
    pdl_interp.GetOperandOp: lambda op: [_integer(op.index)],
    pdl_interp.GetOperandsOp: lambda op: [_integer(op.index)],
    pdl_interp.GetResultOp: lambda op: [_integer(op.index)],
    pdl_interp.GetResultsOp: lambda op: [_integer(op.index)],
    pdl_interp.GetAttributeOp: lambda op: [op.constraint_name.data],
    pdl_interp.CreateAttributeOp: lambda op: [_text(op.value)],
    pdl_interp.CreateTypeOp: lambda op: [str(op.value)],
    pdl_interp.CreateTypesOp: lambda op: [_texts(op.value)],
    pdl_interp.CheckOperationNameOp: lambda op: [op.operation_name.data],
    pdl_interp.CheckOperandCountOp: lambda op: [_integer(op.count), op.compareAtLeast is not None],
    pdl_interp.CheckResultCountOp: lambda op: [_integer(op.count), op.compareAtLeast is not None],
    pdl_interp.CheckAttributeOp: lambda op: [_text(op.constantValue)],
    pdl_interp.CheckTypeOp: lambda op: [str(op.type)],
    pdl_interp.CheckTypesOp: lambda op: [_texts(op.types)],
    pdl_interp.SwitchOperationNameOp: lambda op: [_strings(op.case_values)],
    pdl_interp.SwitchOperandCountOp: lambda op: [_numbers(op.case_values)],
    pdl_interp.SwitchResultCountOp: lambda op: [_numbers(op.case_values)],
    pdl_interp.SwitchAttributeOp: lambda op: [_texts(op.caseValues)],
    pdl_interp.SwitchTypeOp: lambda op: [_texts(op.case_values)],
    pdl_interp.SwitchTypesOp: lambda op: [[_texts(one) for one in op.case_values]],
    pdl_interp.ApplyConstraintOp: lambda op: [op.constraint_name.data, bool(op.is_negated.value.data)],
    pdl_interp.ApplyRewriteOp: lambda op: [op.rewrite_name.data],
    pdl_interp.RecordMatchOp: lambda op: [cast("SymbolRefAttr", op.rewriter).string_value().rpartition(".")[2]],
    pdl_interp.CreateOperationOp: lambda op: [
        op.constraint_name.data, _strings(op.input_attribute_names), len(op.input_operands)
    ],
}  # fmt: skip
"""What a row states of an op, next to operands, results and blocks."""


def _function(function: Any) -> Function:
    slots: dict[SSAValue, int] = {}
    blocks = {block: number for number, block in enumerate(function.body.blocks)}
    for block in blocks:
        for value in (*block.args, *(result for op in block.ops for result in op.results)):
            slots[value] = len(slots)
    return Function(len(slots), [list(_rows(block, slots, blocks)) for block in blocks])


def _rows(block: Block, slots: dict[SSAValue, int], blocks: dict[Block, int]) -> Iterator[Row]:
    for op in block.ops:
        state = _STATED.get(type(op))
        yield Row(
            op.name.partition(".")[2],
            [slots[result] for result in op.results],
            [slots[operand] for operand in op.operands],
            state(op) if state else [],
            [blocks[successor] for successor in op.successors],
        )
