"""What each op of `pdl_interp` does: a closure over the slots of a run, made of its row."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, cast

from xdsl.dialects.builtin import NoneAttr
from xdsl.ir import Attribute, Operation, OpResult, SSAValue, TypedAttribute
from xdsl.irdl import IRDLOperation

from tpusim.errors import ConfigError
from tpusim.ir.pdl.constraints import constraint, imported, wants_weights
from tpusim.ir.pdl.rows import END, MATCHED, Constant, Row, Slots, State, Step

_MEANINGS: dict[str, Callable[[Row, Constant], Step]] = {}


def step_of(row: Row, constant: Constant) -> Step:
    """The closure of a row. Raises ConfigError for an op without a meaning."""
    make = _MEANINGS.get(row.name)
    if make is None:
        raise ConfigError(f"pattern: pdl_interp.{row.name} has no meaning here; write the pattern without it")
    return make(row, constant)


def _meaning(name: str) -> Callable[[Callable[[Row, Constant], Step]], Callable[[Row, Constant], Step]]:
    def registered(make: Callable[[Row, Constant], Step]) -> Callable[[Row, Constant], Step]:
        _MEANINGS[name] = make
        return make

    return registered


# -- values


def _from_one(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The meaning of an op that takes one value and gives one: a function of that value and of what the op states."""

    def registered(get: Callable[..., Any]) -> Callable[..., Any]:
        def make(row: Row, constant: Constant) -> Step:
            del constant
            (to,), (source,), stated = row.results, row.operands, row.stated

            def step(slots: Slots) -> None:
                slots[to] = get(slots[source], *stated)

            return step

        _MEANINGS[name] = make
        return get

    return registered


@_from_one("get_operand")
def _operand(op: Operation, index: int) -> SSAValue | None:
    return op.operands[index] if index < len(op.operands) else None


@_from_one("get_operands")
def _operands(op: Operation, index: int | None) -> Sequence[SSAValue] | None:
    return tuple(op.operands) if index is None else _group(op, "operands", index)


@_from_one("get_result")
def _result(op: Operation, index: int) -> SSAValue | None:
    return op.results[index] if index < len(op.results) else None


@_from_one("get_results")
def _results(op: Operation, index: int | None) -> Sequence[SSAValue] | None:
    return tuple(op.results) if index is None else _group(op, "results", index)


def _group(op: Operation, kind: str, index: int) -> Sequence[SSAValue] | None:
    """The values of one definition of an op's class."""
    named = getattr(op.get_irdl_definition(), kind) if isinstance(op, IRDLOperation) else ()
    if index >= len(named):
        return None
    values = getattr(op, named[index][0])
    if values is None:
        return ()
    return (cast("SSAValue", values),) if isinstance(values, SSAValue) else tuple(cast("Sequence[SSAValue]", values))


@_from_one("get_attribute")
def _attribute(op: Operation, name: str) -> Attribute | None:
    return op.attributes[name] if name in op.attributes else op.properties.get(name)


@_from_one("get_attribute_type")
def _attribute_type(attribute: Attribute) -> Attribute:
    return attribute.get_type() if isinstance(attribute, TypedAttribute) else NoneAttr()


@_from_one("get_value_type")
def _value_type(value: "SSAValue | Sequence[SSAValue]") -> Any:
    return value.type if isinstance(value, SSAValue) else tuple(one.type for one in value)


@_from_one("get_defining_op")
def _defining_op(value: "SSAValue | Sequence[SSAValue] | None") -> Operation | None:
    first = value if isinstance(value, SSAValue) or not value else value[0]
    return first.owner if isinstance(first, OpResult) else None


def _constants(is_type: bool, many: bool = False) -> Callable[[Row, Constant], Step]:
    def make(row: Row, constant: Constant) -> Step:
        (to,), stated = row.results, row.stated
        wanted = cache(lambda: tuple(constant(t, True) for t in stated[0]) if many else constant(stated[0], is_type))

        def step(slots: Slots) -> None:
            slots[to] = wanted()

        return step

    return make


_MEANINGS["create_attribute"] = _constants(False)
_MEANINGS["create_type"] = _constants(True)
_MEANINGS["create_types"] = _constants(True, many=True)


@_meaning("create_range")
def _create_range(row: Row, constant: Constant) -> Step:
    del constant
    (to,), operands = row.results, row.operands

    def step(slots: Slots) -> None:
        slots[to] = tuple(_flat(slots[i] for i in operands))

    return step


def _flat(values: Iterator[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, tuple):
            yield from cast("tuple[Any, ...]", value)
        else:
            yield value


# -- control flow


def _check(name: str) -> Callable[[Callable[..., bool]], Callable[..., bool]]:
    """The meaning of a question about values: a function of them and of what the op states."""

    def registered(holds: Callable[..., bool]) -> Callable[..., bool]:
        def make(row: Row, constant: Constant) -> Step:
            del constant
            stated, (yes, no) = row.stated, row.blocks
            if len(row.operands) == 1:
                (only,) = row.operands
                return lambda slots: yes if holds(slots[only], *stated) else no
            first, second = row.operands
            return lambda slots: yes if holds(slots[first], slots[second]) else no

        _MEANINGS[name] = make
        return holds

    return registered


@_check("is_not_null")
def _is_there(value: object) -> bool:
    return value is not None


@_check("are_equal")
def _are_equal(left: object, right: object) -> bool:
    return left == right


@_check("check_operation_name")
def _has_name(op: Operation, name: str) -> bool:
    return op.name == name


@_check("check_operand_count")
def _has_operands(op: Operation, count: int, at_least: bool) -> bool:
    return len(op.operands) >= count if at_least else len(op.operands) == count


@_check("check_result_count")
def _has_results(op: Operation, count: int, at_least: bool) -> bool:
    return len(op.results) >= count if at_least else len(op.results) == count


def _is_constant(is_type: bool, many: bool = False) -> Callable[[Row, Constant], Step]:
    def make(row: Row, constant: Constant) -> Step:
        (source,), stated, (yes, no) = row.operands, row.stated, row.blocks
        wanted = cache(lambda: tuple(constant(t, True) for t in stated[0]) if many else constant(stated[0], is_type))
        return lambda slots: yes if slots[source] == wanted() else no

    return make


_MEANINGS["check_attribute"] = _is_constant(False)
_MEANINGS["check_type"] = _is_constant(True)
_MEANINGS["check_types"] = _is_constant(True, many=True)


def _switch(key: Callable[[Any], Any]) -> Callable[[Row, Constant], Step]:
    """A choice among plain values. The first block is the one for all others."""

    def make(row: Row, constant: Constant) -> Step:
        del constant
        (source,), (default, *cases) = row.operands, row.blocks
        table = dict(zip(row.stated[0], cases, strict=True))
        return lambda slots: table.get(key(slots[source]), default)

    return make


_MEANINGS["switch_operation_name"] = _switch(lambda op: op.name)
_MEANINGS["switch_operand_count"] = _switch(lambda op: len(op.operands))
_MEANINGS["switch_result_count"] = _switch(lambda op: len(op.results))


def _switch_constant(is_type: bool, many: bool = False) -> Callable[[Row, Constant], Step]:
    def make(row: Row, constant: Constant) -> Step:
        (source,), (default, *cases), texts = row.operands, row.blocks, row.stated[0]

        @cache
        def table() -> dict[Any, int]:
            keys = [tuple(constant(t, True) for t in one) if many else constant(one, is_type) for one in texts]
            return dict(zip(keys, cases, strict=True))

        return lambda slots: table().get(slots[source], default)

    return make


_MEANINGS["switch_attribute"] = _switch_constant(False)
_MEANINGS["switch_type"] = _switch_constant(True)
_MEANINGS["switch_types"] = _switch_constant(True, many=True)


@_meaning("branch")
def _branch(row: Row, constant: Constant) -> Step:
    del constant
    (target,) = row.blocks
    return lambda slots: target


@_meaning("finalize")
def _finalize(row: Row, constant: Constant) -> Step:
    del row, constant
    return lambda slots: END


@_meaning("apply_constraint")
def _apply_constraint(row: Row, constant: Constant) -> Step:
    del constant
    (name, negated), operands, (yes, no) = row.stated, row.operands, row.blocks
    if row.results:
        raise ConfigError(f"constraint '{name}': constraints with results have no meaning here; use a native rewrite")
    if negated:
        yes, no = no, yes
    function = cache(lambda: constraint(name, "pattern"))

    def step(slots: Slots) -> int:
        holds = function()
        before = (slots[-1].weights,) if wants_weights(holds) else ()
        return yes if holds(*before, *[slots[i] for i in operands]) else no

    return step


@_meaning("record_match")
def _record_match(row: Row, constant: Constant) -> Step:
    del constant
    (name,), operands, (target,) = row.stated, row.operands, row.blocks

    def step(slots: Slots) -> int:
        slots[-1].matches.append((name, [slots[i] for i in operands]))
        return target

    return step


# -- rewrites


@_meaning("apply_rewrite")
def _apply_rewrite(row: Row, constant: Constant) -> Step:
    del constant
    (name,), results, operands = row.stated, row.results, row.operands
    if name == MATCHED:

        def note(slots: Slots) -> None:
            slots[-1].matched = tuple(slots[i] for i in operands)

        return note
    function = cache(lambda: imported(name, "native rewrite"))

    def step(slots: Slots) -> None:
        state: State = slots[-1]
        native = function()
        before = (state.weights,) if wants_weights(native) else ()
        found = native(state.rewriter, *before, *[slots[i] for i in operands])
        given = cast("tuple[Any, ...]", found if isinstance(found, tuple) else () if found is None else (found,))
        if len(given) != len(results):
            raise ConfigError(f"native rewrite '{name}': {len(results)} results are required, got {len(given)}")
        for slot, value in zip(results, given, strict=True):
            slots[slot] = value

    return step


@_meaning("create_operation")
def _create_operation(row: Row, constant: Constant) -> Step:
    del constant
    (to,), (name, names, count) = row.results, row.stated
    values, others = row.operands[:count], row.operands[count:]
    attributes, types = others[: len(names)], others[len(names) :]

    def step(slots: Slots) -> None:
        state: State = slots[-1]
        cls = state.makes(name)
        if cls is None:
            raise ConfigError(f"pattern: '{name}' is an op of no dialect that is known; name an op that exists")
        inherent = cls.get_irdl_definition().properties if issubclass(cls, IRDLOperation) else {}
        given = {key: slots[i] for key, i in zip(names, attributes, strict=True)}
        made = cls.create(
            operands=list(_flat(slots[i] for i in values)),
            result_types=list(_flat(slots[i] for i in types)),
            attributes={key: value for key, value in given.items() if key not in inherent},
            properties={key: value for key, value in given.items() if key in inherent},
        )
        assert state.rewriter is not None  # rewrites run with one
        state.rewriter.insert(made)
        slots[to] = made

    return step


@_meaning("replace")
def _replace(row: Row, constant: Constant) -> Step:
    del constant
    source, *values = row.operands

    def step(slots: Slots) -> None:
        op, given = slots[source], list(_flat(slots[i] for i in values))
        if len(op.results) != len(given):
            raise ConfigError(f"pattern: {op.name} has {len(op.results)} results, {len(given)} values replace them")
        slots[-1].rewriter.replace(op, [], given)

    return step


@_meaning("erase")
def _erase(row: Row, constant: Constant) -> Step:
    del constant
    (source,) = row.operands

    def step(slots: Slots) -> None:
        slots[-1].rewriter.erase(slots[source])

    return step
