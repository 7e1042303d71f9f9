"""`onnx_of_stablehlo`: the walk over a module's functions and regions, and the ONNX model of it."""

# the bindings have no complete type stubs, some functions of the onnx package are only partly annotated:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tpusim.errors import ImportModelError, UnsupportedError, first_line
from tpusim.frontend.onnx.model_file import STABLEHLO
from tpusim.frontend.stablehlo import activations, elements, moves, norms, ordering, places, products, scattering
from tpusim.frontend.stablehlo.constants import resources
from tpusim.frontend.stablehlo.graph import Graph
from tpusim.frontend.stablehlo.reading import Op, functions, instructions, parsed, shape_of, type_of
from tpusim.frontend.stablehlo.values import Computed, Constant, Value
from tpusim.frontend.stablehlo.writer import IR_VERSION, OPSET, Writer
from tpusim.host.files import content

FORMS: Mapping[str, Callable[[Writer, Op, Sequence[Value]], list[Value]]] = {
    **elements.FORMS, **moves.FORMS, **products.FORMS, **places.FORMS, **ordering.FORMS, **scattering.FORMS,
}  # fmt: skip
"""Instruction -> the function that writes its nodes."""
SHARDING = ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement")
"""Custom calls that only state on which device a value lies."""
MOST_STEPS = 10_000
"""The most steps that all loops of a network may have together; they are written one after the other."""
ENDS = ("func.return", "stablehlo.return")
CALLS = ("func.call", "stablehlo.composite")
THROUGH = ("stablehlo.optimization_barrier", "sdy.sharding_constraint")


def onnx_of_stablehlo(
    module: Any, label: str, *, inputs: Sequence[str] = (), outputs: Sequence[str] = (),
    weights: Sequence[tuple[str, np.ndarray]] = (), name: str = "",
) -> onnx.ModelProto:  # fmt: skip
    """The network of a module as an ONNX model.

    inputs, outputs: names of arguments and results, by default those of the file. weights: names and values of the
    first arguments, which are no inputs. name: of the graph, by default the label. Raises
    UnsupportedError with one line per kind of unsupported instruction.
    """
    found = functions(module)
    main = found.get("main") or (next(iter(found.values())) if len(found) == 1 else None)
    if main is None:
        raise ImportModelError(f"{label}: a function @main is required, got {', '.join(found) or 'none'}")
    walk = Walk(Writer(), found, label)
    walk.writer.resources = cache(partial(resources, module))
    try:
        block = _only_block(main)
    except UnsupportedError as error:
        raise UnsupportedError(f"{label}: @main: {error}") from error
    arguments = list(block.arguments)
    given: list[Value] = [
        Constant(array.astype(walk.typed(argument, f"weight {name}")[1]), name)
        for argument, (name, array) in zip(arguments, weights, strict=False)
    ]
    infos: list[onnx.ValueInfoProto] = []
    for number, argument in enumerate(arguments[len(weights) :]):
        called = walk.writer.fresh(inputs[number] if inputs else f"arg{number}")
        shape, dtype = walk.typed(argument, f"argument {number}")
        given.append(Computed.plain(called, shape, dtype))
        walk.writer.shapes[called] = shape
        infos.append(helper.make_tensor_value_info(called, helper.np_dtype_to_tensor_dtype(dtype), shape))
    results = walk.block(block, given)
    walk.finish()
    return _model(walk.writer, infos, results, outputs, name or label)


def onnx_of_stablehlo_file(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """The network of a StableHLO file: text, bytecode or a portable artefact.

    Raises ImportModelError for a file that cannot be read, and the errors of `onnx_of_stablehlo`.
    """
    try:
        found = content(path)
    except OSError as error:
        raise ImportModelError(f"model '{os.fspath(path)}' cannot be read: {first_line(error)}") from error
    return onnx_of_stablehlo(parsed(found, os.fspath(path)), os.fspath(path), name=Path(path).stem)


def _model(
    w: Writer, inputs: Sequence[onnx.ValueInfoProto], results: Sequence[Value], names: Sequence[str], label: str
) -> onnx.ModelProto:
    made: list[onnx.ValueInfoProto] = []
    for number, value in enumerate(results):
        name = w.fresh(names[number] if names else f"result{number}" if len(results) > 1 else "result")
        w.nodes.append(helper.make_node("Identity", [w.plain(value)], [name], name=name))
        made.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape))
    whole = Graph(w.nodes, w.initializers, w.shapes, (*norms.RULES, *activations.RULES))
    graph = helper.make_graph(whole.nodes, label, list(inputs), made, list(whole.constants.values()))
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name=STABLEHLO)


def _only_block(function: Any) -> Any:
    """The block of a function. Raises UnsupportedError for a declaration and for branches between blocks."""
    blocks = list(function.regions[0].blocks)
    if len(blocks) != 1:
        raise UnsupportedError(
            f"a function of one block is required, got {len(blocks)}, as of cf.br; write its loops as stablehlo.while"
        )
    return blocks[0]


def _computable(value: Any) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and element type of a value that is no constant. Raises UnsupportedError as `type_of`, and for f64."""
    shape, dtype = type_of(value)
    if dtype == np.float64:
        raise UnsupportedError(f"f32, f16, bf16, bools or integers are required, got {value.type}")
    return shape, dtype


class Walk:
    """The conversion of functions and regions; what cannot be converted is collected."""

    def __init__(self, writer: Writer, functions: Mapping[str, Any], label: str) -> None:
        self.writer = writer
        writer.run = self.block
        self._functions = functions
        self._label = label
        self._refused: dict[str, list[str]] = {}
        self._steps = 0

    def finish(self) -> None:
        """Raises UnsupportedError with what was refused, a line for each reason."""
        lines = [
            f"  {why} ({len(at)}, first at {at[0]})" if at[0] else f"  {why} ({len(at)})"
            for why, at in self._refused.items()
        ]
        if lines:
            raise UnsupportedError(f"{self._label}: {len(lines)} kinds of instruction are not supported:", *lines)

    def typed(self, value: Any, who: str) -> tuple[tuple[int, ...], np.dtype]:
        """Shape and element type of an argument. Raises UnsupportedError that names it."""
        try:
            return _computable(value)
        except UnsupportedError as error:
            raise UnsupportedError(f"{self._label}: {who}: {error}") from error

    def block(self, block: Any, given: Sequence[Value]) -> list[Value]:
        """The values that a block returns for values of its arguments."""
        known: dict[Any, Value] = dict(zip(block.arguments, given, strict=True))
        return self._inside(block, known)

    def _inside(self, block: Any, known: dict[Any, Value]) -> list[Value]:
        for op in instructions(block):
            if op.kind in ENDS:
                return [known[v] for v in op.operands]
            with self.writer.at(op.name):
                made = self._tried(op, known)
            known.update(zip(op.results, made, strict=True))
            self.writer.shapes.update((v.name, v.stored) for v in made if isinstance(v, Computed))
        return []

    def _tried(self, op: Op, known: dict[Any, Value]) -> list[Value]:
        """The results of an instruction; stand-ins if it is refused, so that the rest is examined too."""
        try:
            if any(v not in known for v in op.operands):
                raise UnsupportedError("it reads a value that was not computed")
            made = self._written(op, known, [known[v] for v in op.operands])
            for result, value in zip(op.results, made, strict=True):
                if isinstance(value, Computed):
                    _computable(result)
            return made
        except UnsupportedError as error:
            self._refused.setdefault(f"{op.kind}: {error}", []).append(op.place)
            return [self._stand_in(v) for v in op.results]

    def _stand_in(self, value: Any) -> Value:
        try:
            shape = shape_of(value)
        except UnsupportedError:
            shape = (1,)
        try:
            dtype = _computable(value)[1]
        except UnsupportedError:
            dtype = np.dtype(np.float32)
        return Computed.plain(self.writer.fresh("refused"), shape, dtype)

    def _written(self, op: Op, known: dict[Any, Value], operands: list[Value]) -> list[Value]:
        if op.kind in CALLS:
            return self._called(op, operands)
        types = [type_of(value) for value in op.results]
        if types and all(0 in shape for shape, _ in types):
            return [Constant(np.zeros(shape, dtype)) for shape, dtype in types]
        match op.kind:
            case "stablehlo.while":
                return self._loop(op, known, operands)
            case "stablehlo.case" | "stablehlo.if":
                return self._branch(op, known, operands)
            case kind if kind in THROUGH:
                return operands
            case kind if kind in FORMS:
                return FORMS[kind](self.writer, op, operands)
            case "stablehlo.custom_call" if str(op.attribute("call_target_name")).strip('"') in SHARDING:
                return operands
            case "stablehlo.custom_call":
                raise UnsupportedError(
                    f"a call of {op.attribute('call_target_name')}, which only its framework computes"
                )
            case _:
                raise UnsupportedError("tpusim has no such instruction")

    def _called(self, op: Op, operands: list[Value]) -> list[Value]:
        name = str(op.attribute("callee") or op.attribute("decomposition")).removeprefix("@").strip('"')
        if name not in self._functions:
            raise UnsupportedError(f"a call of @{name}, which is no function of the module")
        return self.block(_only_block(self._functions[name]), operands)

    def _loop(self, op: Op, known: dict[Any, Value], carried: list[Value]) -> list[Value]:
        """A loop whose condition is known: its steps one after the other."""
        while True:
            condition, body = op.block(0), op.block(1)
            (goes_on,) = self._inside(condition, {**known, **dict(zip(condition.arguments, carried, strict=True))})
            if not isinstance(goes_on, Constant):
                raise UnsupportedError("a number of steps that is known is required, the loop's condition is computed")
            if not goes_on.array.item():
                return carried
            self._steps += 1
            if self._steps > MOST_STEPS:
                raise UnsupportedError(f"at most {MOST_STEPS:,} steps of loops are written one after the other")
            carried = self._inside(body, {**known, **dict(zip(body.arguments, carried, strict=True))})

    def _branch(self, op: Op, known: dict[Any, Value], operands: list[Value]) -> list[Value]:
        """The branch that is known, or a choice between the results of all."""
        (chosen,), count = operands, len(op.op.regions)
        if not isinstance(chosen, Constant):
            *parts, made = [self._inside(op.block(number), dict(known)) for number in range(count)]
            for number, part in reversed([*enumerate(parts)]):
                place = Constant(np.asarray(number, chosen.dtype))
                takes = chosen if op.kind == "stablehlo.if" else self.writer.equal(chosen, place)
                made = [elements.selected(self.writer, takes, *pair) for pair in zip(part, made, strict=True)]
            return made
        number = int(chosen.array.item())
        place = (0 if number else 1) if op.kind == "stablehlo.if" else number if 0 <= number < count else count - 1
        return self._inside(op.block(place), dict(known))
