"""What the code of a host function can cost: a bound from its StableHLO, before XLA sees it.

Code comes from a file. It may have the ops of this module's tables alone, which compute values of their operands and
reach nothing else. Every loop counts from a number to a number, so that its turns are known. Calls are followed, and
what is in a loop counts once for every turn.
"""

# the bindings have no complete type stubs:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NoReturn

import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

MOST_INSTRUCTIONS = 1 << 14
"""After every call is replaced by what it calls. XLA compiles so many in seconds."""
MOST_STEPS = 3 << 34
"""A step is an addition of two elements, 0.3 to 1 ns on one core."""
MOST_BYTES = 1 << 30
"""Of one value."""
_LEAST = 512
"""Steps of an instruction of arrays, however small these are."""
_COMPILED = 64
"""Steps for one of an instruction of constants: XLA's interpreter may compute it."""
_UNCOMPUTED = ("stablehlo.iota", "stablehlo.broadcast_in_dim", "stablehlo.constant")
"""Instructions that XLA keeps, because their results are larger than they are."""
_SPECIAL = 256
"""Steps for an element of a function of the dialect `chlo`, such as those of Bessel."""
_SIMPLE = """
abs add and bitcast_convert broadcast_in_dim ceil clamp compare complex concatenate constant convert
count_leading_zeros divide dynamic_slice dynamic_update_slice floor gather imag iota is_finite maximum minimum multiply
negate not optimization_barrier or pad popcnt real reduce reduce_precision remainder reshape reverse round_nearest_afz
round_nearest_even select shift_left shift_right_arithmetic shift_right_logical sign slice subtract transpose xor
"""
_SLOW = """
atan2 cbrt cosine exponential exponential_minus_one log log_plus_one logistic power rsqrt scatter sine sqrt tan tanh
"""
_STEPS = {**dict.fromkeys(_SIMPLE.split(), 1), **dict.fromkeys(_SLOW.split(), 16), "sort": 256}
"""Steps of an instruction for each element of its largest value."""
_PARTS = ("dynamic_slice", "gather", "slice")
"""Ops that read a part of their first operand."""
_IN_PLACE = ("dynamic_update_slice", "scatter")
"""Ops that write a part of their first operand, in place if nothing else reads it."""
_UP, _DOWN = {"LT": 0, "LE": 1}, {"GT": 0, "GE": 1}
"""Comparisons that end a loop -> whether it runs for equal numbers too."""

Known = dict[Any, int | None]
"""Values that XLA may compute from constants -> the number of a constant integer."""


class Unbounded(Exception):
    """Code that is refused: (what is required, what the code has)."""


def require_bounded(module: Any) -> None:
    """Raise Unbounded for a module of MLIR whose @main takes too much time or memory, or for which neither is known."""
    functions = {op.attributes["sym_name"].value: op for op in module.body.operations if len(op.regions[0].blocks)}
    _Walk(functions).function("main", (), {}, 1, _LEAST)


class _Walk:
    """Follows functions and counts. times: how often an instruction runs; least: the steps that it takes at least."""

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self._functions, self._instructions, self._steps = functions, 0, 0

    def function(
        self, name: str, callers: tuple[str, ...], known: Mapping[int, int | None], times: int, least: int
    ) -> dict[int, int | None]:
        """Follow a call; known: of its arguments, by number. Returns what is known of the results."""
        if name in callers or name not in self._functions:
            raise Unbounded("calls of functions that are here and do not call themselves", f"one of '{name}'")
        block = self._functions[name].regions[0].blocks[0]
        inside: Known = {block.arguments[number]: value for number, value in known.items()}
        self._block(block, (*callers, name), inside, times, least)
        return {number: inside[v] for number, v in enumerate(_results(block)) if v in inside}

    def _block(self, block: Any, callers: tuple[str, ...], known: Known, times: int, least: int) -> None:
        for op in block.operations:
            self._instructions += 1
            if self._instructions > MOST_INSTRUCTIONS:
                raise Unbounded(f"at most {MOST_INSTRUCTIONS:,} instructions", "more")
            self._instruction(op.operation, callers, known, times, least)

    def _instruction(self, op: Any, callers: tuple[str, ...], known: Known, times: int, least: int) -> None:
        elements = max(map(_elements, (*op.results, *op.operands)), default=1)
        fixed = all(value in known for value in op.operands)
        if fixed and op.name != "stablehlo.iota":
            known.update({value: _integer(value) for value in op.results})
        if op.name in ("func.call", "stablehlo.composite"):
            name = op.attributes["callee" if op.name == "func.call" else "decomposition"].value
            given = {number: known[value] for number, value in enumerate(op.operands) if value in known}
            made = self.function(name, callers, given, times, least)
            known.update({op.results[number]: value for number, value in made.items()})
        elif op.name == "stablehlo.while":
            self._loop(op, callers, known, times, least)
        elif op.name in ("stablehlo.if", "stablehlo.case"):
            for region in op.regions:
                self._block(region.blocks[0], callers, known, times, least)
        elif op.name not in ("func.return", "stablehlo.return"):
            weight = _COMPILED if fixed and op.name not in _UNCOMPUTED else 1
            self._add(max(_steps(op, elements) * weight, least) * times)
            for region in op.regions:  # a function of elements
                self._block(region.blocks[0], callers, known, times * elements, 1)

    def _add(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MOST_STEPS:
            raise Unbounded(f"work of at most {MOST_STEPS:,} steps", "more")

    def _loop(self, op: Any, callers: tuple[str, ...], known: Known, times: int, least: int) -> None:
        test, body = (region.blocks[0] for region in op.regions)
        kept = [
            (number, known[value])
            for number, (value, result) in enumerate(zip(op.operands, _results(body), strict=True))
            if value in known and result == body.arguments[number]
        ]
        inside: list[Known] = [{**known, **{block.arguments[n]: v for n, v in kept}} for block in (test, body)]
        turns = _turns(op, inside)
        self._block(test, callers, inside[0], times * (turns + 1), least)
        self._block(body, callers, inside[1], times * turns, least)


def _turns(loop: Any, known: Sequence[Known]) -> int:
    """How often a loop runs its body; known: in its test and in its body. Raises Unbounded if that is not known."""
    test, body = (region.blocks[0] for region in loop.regions)
    compare = _maker(_results(test)[0])
    counters = list(test.arguments)
    if compare is not None and compare.name == "stablehlo.compare" and compare.operands[0] in counters:
        number = counters.index(compare.operands[0])
        begin, end = _number(loop.operands[number], known[0]), _number(compare.operands[1], known[0])
        step = _added(_results(body)[number], body.arguments[number], known[1])
        word = str(compare.attributes["comparison_direction"]).removesuffix(">").rpartition(" ")[2]
        further = (_UP if step is not None and step > 0 else _DOWN).get(word)
        if begin is not None and end is not None and step and further is not None:
            distance = (end - begin if step > 0 else begin - end) + further
            turns = max(-(-distance // abs(step)), 0)
            limits = np.iinfo(_integers(counters[number]) or "int8")
            if limits.min <= begin + turns * step <= limits.max:
                return turns
    raise Unbounded("loops that count from a number to a number", "a loop whose turns are not known")


def _added(result: Any, counter: Any, known: Known) -> int | None:
    """What a turn adds to a counter; None if that is not known."""
    op = _maker(result)
    if op is None or op.name not in ("stablehlo.add", "stablehlo.subtract") or op.operands[0] != counter:
        return None
    found = _number(op.operands[1], known)
    return -found if found is not None and op.name == "stablehlo.subtract" else found


def _number(value: Any, known: Known) -> int | None:
    """The integer that a value is; None if it is not known."""
    return known[value] if value in known else _integer(value)


def _integer(value: Any) -> int | None:
    """The integer of a constant of one element; None of other values."""
    op = _maker(value)
    if op is None or op.name != "stablehlo.constant" or _elements(value) != 1 or _integers(value) is None:
        return None
    return int(np.array(op.attributes["value"]).reshape(-1)[0])


def _maker(value: Any) -> Any:
    """The instruction that makes a value; None of an argument."""
    return value.owner if isinstance(value, ir.OpResult) else None


def _results(block: Any) -> list[Any]:
    return list(block.operations[len(block.operations) - 1].operands)


# ---------------------------------------------------------------------------------------------------------------- sizes


def _steps(op: Any, elements: int) -> int:
    """Steps of an instruction without its regions. Raises Unbounded for an op that is in no table."""
    dialect, _, kind = op.name.partition(".")
    if dialect == "chlo":
        return elements * _SPECIAL
    if dialect == "stablehlo" and kind in _TIMES:
        return _elements(op.results[0]) * _TIMES[kind](op)
    if dialect != "stablehlo" or kind not in _STEPS:
        raise Unbounded("ops that compute values of their operands alone", op.name)
    if kind in _PARTS:
        elements = _elements(op.results[0])
    elif kind in _IN_PLACE and len(list(op.operands[0].uses)) == 1:
        elements = max(map(_elements, list(op.operands)[1:]))
    return elements * _STEPS[kind]


def _inner(op: Any) -> int:
    axes = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"]).lhs_contracting_dimensions
    return prod(_shape(op.operands[0])[axis] for axis in axes)


def _taps(op: Any) -> int:
    axis = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"]).kernel_output_feature_dimension
    shape = _shape(op.operands[1])
    return prod(shape) // max(shape[axis], 1)


def _window(op: Any) -> int:
    return prod(int(size) for size in np.array(op.attributes["window_dimensions"]).reshape(-1))


_TIMES: Mapping[str, Callable[[Any], int]] = {"dot_general": _inner, "convolution": _taps, "reduce_window": _window}
"""Ops of sums -> the terms of an element."""


def _shape(value: Any) -> tuple[int, ...]:
    """The shape of a tensor. Raises Unbounded for another type or an open size."""
    if not isinstance(value.type, ir.RankedTensorType) or not value.type.has_static_shape:
        _refuse(value)
    return tuple(value.type.shape)


def _elements(value: Any) -> int:
    """The number of elements. Raises Unbounded for more bytes than a value may have."""
    found = prod(_shape(value))
    if found * _bytes(value) > MOST_BYTES:
        raise Unbounded(f"values of at most {MOST_BYTES:,} bytes", str(value.type))
    return found


def _bytes(value: Any) -> int:
    """Bytes of an element, rounded up."""
    kind = value.type.element_type
    if isinstance(kind, ir.ComplexType):
        return 2 * _width(kind.element_type, value)
    return _width(kind, value)


def _width(kind: Any, value: Any) -> int:
    if not isinstance(kind, ir.IntegerType | ir.FloatType):
        _refuse(value)
    return -(-kind.width // 8)


def _integers(value: Any) -> str | None:
    """NumPy's name of an integer type; None of others, and of truth values."""
    kind = value.type.element_type
    if not isinstance(kind, ir.IntegerType) or kind.width < 8:  # noqa: PLR2004  a byte
        return None
    return f"{'u' * kind.is_unsigned}int{kind.width}"


def _refuse(value: Any) -> NoReturn:
    raise Unbounded("tensors of fixed shapes", str(value.type))
