"""Sequences of nodes that TPU-MLIR's front end replaces by one node before it imports the graph (U-97).

The nodes of a sequence must follow each other in the graph, apart from nodes of constants and nodes that only pass a
tensor on. Constants are compared exactly, and have no axes or one. The operands of an Add or Mul may be exchanged,
but not those of the first node.
Unlike TPU-MLIR, which fails then, a sequence stays as it is if one of its inner tensors is read elsewhere or returned.
"""

import logging
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod, sqrt
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tpusim.compat import ERF_FOR_TANH
from tpusim.frontend.onnx.folding import evaluate, foldable
from tpusim.frontend.onnx.model_file import (
    DEFAULT_DOMAINS,
    IDIOMS,
    Numbers,
    live_nodes,
    opset_version,
    reads,
)

LOG = logging.getLogger(__name__)
PASSED_ON = frozenset({"Identity", "Dropout"})
"""Nodes that TPU-MLIR removes before it looks for sequences."""
CLOSE = 1e-4
"""Largest difference from the function's constant of a constant that TPU-MLIR does not compare."""


class Result(NamedTuple):
    """The result of a node of the sequence."""

    step: int


class About(NamedTuple):
    """A constant of one element near a value."""

    value: float


class Given(NamedTuple):
    """A constant, which the new node reads or has as an attribute; single: of one element."""

    name: str
    single: bool = False


Operand: TypeAlias = str | float | Result | About | Given
"""A tensor by its name in the sequence, a constant of one element, the result of a node, or another constant."""
X = "x"
EPS, GAMMA, BETA = Given("eps", single=True), Given("gamma"), Given("beta")


@dataclass(frozen=True)
class Step:
    """A node of a sequence; check: what its attributes must be, with the defaults of its operator set."""

    op_type: str
    operands: tuple[Operand, ...]
    check: Callable[[Mapping[str, Any]], bool] = lambda _: True


@dataclass(frozen=True)
class Idiom:
    """A sequence, and the type, operands and attributes of the node in its place."""

    op_type: str
    steps: tuple[Step, ...]
    operands: tuple[str, ...] = (X,)
    attributes: Callable[["Match"], dict[str, Any]] = lambda _: {}
    told: str = ""
    """What the user is warned of, if the node has other values than the sequence."""


@dataclass
class Match:
    """The nodes that fit a sequence so far, and the tensors that its names stand for."""

    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    tensors: dict[str, str] = field(default_factory=dict[str, str])
    numbers: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    axes: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])


def _last(attributes: Mapping[str, Any]) -> bool:
    """Whether axes are the last ones, counted from the end."""
    axes = attributes["axes"]
    return bool(axes) and axes == tuple(range(-len(axes), 0)) and attributes["keepdims"]


def _channels(attributes: Mapping[str, Any]) -> bool:
    """Whether the axis is 1, counted from the front."""
    return attributes["axes"] == (1,) and attributes["keepdims"]


def _norm(check: Callable[[Mapping[str, Any]], bool], *, affine: bool) -> tuple[Step, ...]:
    steps = (
        Step("ReduceMean", (X,), check), Step("Sub", (X, Result(0))), Step("Pow", (Result(1), 2.0)),
        Step("ReduceMean", (Result(2),), check), Step("Add", (Result(3), EPS)), Step("Sqrt", (Result(4),)),
        Step("Div", (Result(1), Result(5))),
    )  # fmt: skip
    return (*steps, Step("Mul", (Result(6), GAMMA)), Step("Add", (Result(7), BETA))) if affine else steps


def _layer_norm(found: Match) -> dict[str, Any]:
    return {"axis": found.axes[0][0], "epsilon": float(found.numbers["eps"].reshape(-1)[0])}


def _pixel_norm(found: Match) -> dict[str, Any]:
    return {"epsilon": float(found.numbers["eps"].reshape(-1)[0])}


def _axis(found: Match) -> dict[str, Any]:
    return {a.name: a.i for a in found.nodes[0].attribute if a.name == "axis"}


SIXTH = numpy_helper.from_array(np.array(1 / 6), "alpha")
"""The slope of the HardSigmoid of a sequence, in double."""
SQUASHED = (Step("Add", (X, 3.0)), Step("Clip", (Result(0), 0.0, 6.0)))
AFFINE = (X, "gamma", "beta")
TANH = sqrt(2 / np.pi)

SEQUENCES = (
    Idiom("LayerNormalization", _norm(_last, affine=True), AFFINE, _layer_norm),
    Idiom("LayerNormalization", _norm(_last, affine=False), (X,), _layer_norm),
    Idiom("PixelNormalization", _norm(_channels, affine=True), AFFINE, _pixel_norm),
    Idiom("PixelNormalization", _norm(_channels, affine=False), (X,), _pixel_norm),
    Idiom("HardSigmoid", (*SQUASHED, Step("Div", (Result(1), 6.0))), (X,), lambda _: {"alpha": SIXTH}),
    Idiom("HardSwish", (
        Step("HardSigmoid", (X,), lambda a: (a["alpha"], a["beta"]) == (float(np.float32(1 / 6)), 0.5)),
        Step("Mul", (X, Result(0))),
    )),
    Idiom("HardSwish", (*SQUASHED, Step("Mul", (X, Result(1))), Step("Div", (Result(2), 6.0)))),
    Idiom("GELU", (
        Step("Div", (X, About(sqrt(2)))), Step("Erf", (Result(0),)), Step("Add", (Result(1), 1.0)),
        Step("Mul", (X, Result(2))), Step("Mul", (Result(3), 0.5)),
    )),
    Idiom("GELU", (
        Step("Mul", (X, 0.5)), Step("Pow", (X, 3.0)), Step("Mul", (Result(1), About(0.044715))),
        Step("Add", (X, Result(2))), Step("Mul", (Result(3), About(TANH))), Step("Tanh", (Result(4),)),
        Step("Add", (Result(5), 1.0)), Step("Mul", (Result(0), Result(6))),
    ), told=ERF_FOR_TANH),
    Idiom("LogSoftmax", (Step("Softmax", (X,)), Step("Log", (Result(0),))), (X,), _axis),
)  # fmt: skip
"""In the order in which they are looked for, each in the whole graph, until none is left."""


def with_idioms(model: onnx.ModelProto, numbers: Numbers) -> onnx.ModelProto:
    """The model with a node in place of each sequence; the given model if it has none."""
    types = {node.op_type for node in model.graph.node}
    if not any(types.issuperset(step.op_type for step in idiom.steps) for idiom in SEQUENCES):
        return model
    nodes = _Rewriting(model, numbers).rewritten()
    if nodes is None:
        return model
    work = onnx.ModelProto()
    work.CopyFrom(model)
    del work.graph.node[:]
    work.graph.node.extend(nodes)
    return work


class _Rewriting:
    """One graph's nodes and constants."""

    def __init__(self, model: onnx.ModelProto, numbers: Numbers) -> None:
        self._graph, self._numbers, self._opsets = model.graph, numbers, list(model.opset_import)
        self._opset = opset_version(model)
        self._initializers = {t.name: t for t in model.graph.initializer}
        self._returned = {o.name for o in model.graph.output}
        self._folded: dict[str, np.ndarray | None] = {}
        self._nodes = self._merged(live_nodes(model.graph))
        self._index()

    def _merged(self, nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
        """The nodes, those without attributes that read the same tensors as an earlier one left out."""
        kept: list[onnx.NodeProto] = []
        seen: dict[Hashable, onnx.NodeProto] = {}
        renamed: dict[str, str] = {}
        for node in nodes:
            if not renamed.keys().isdisjoint(node.input):
                node = _with_inputs(node, [renamed.get(name, name) for name in node.input])  # noqa: PLW2901
            first = seen.setdefault((node.domain, node.op_type, *node.input), node) if not node.attribute else node
            if first is node or not self._returned.isdisjoint(node.output):
                kept.append(node)
            else:
                renamed |= dict(zip(node.output, first.output, strict=True))
        return kept

    def _index(self) -> None:
        """What makes and what reads each tensor, and which tensors are constant."""
        self._fixed = set(self._initializers)
        for node in self._nodes:
            if foldable(node) and self._fixed.issuperset(name for name in node.input if name):
                self._fixed.update(node.output)
        self._makers = {name: node for node in self._nodes for name in node.output}
        self._considered = [(node, node.op_type) for node in self._nodes if not self._is_passed_over(node)]
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self._nodes:
            for name in reads(node):
                self._readers.setdefault(name, []).append(node)

    def rewritten(self) -> list[onnx.NodeProto] | None:
        """All nodes, or None if no sequence was found."""
        types = {node.op_type for node in self._nodes}
        changed, again = False, True
        while again:
            again = False
            for idiom in SEQUENCES:
                if types.issuperset(step.op_type for step in idiom.steps):
                    again |= self._replace(idiom)
            types.update(node.op_type for node in self._nodes)
            changed |= again
        return self._nodes if changed else None

    def _replace(self, idiom: Idiom) -> bool:
        """Put a node in place of each occurrence of a sequence; return whether there was one."""
        found = [match for match in self._matches(idiom) if self._is_closed(match)]
        for match in found:
            made = self._made(idiom, match)
            gone = {id(node) for node in match.nodes}
            place = next(i for i, node in enumerate(self._nodes) if node is match.nodes[-1])
            self._nodes[place] = made
            self._nodes = [node for node in self._nodes if id(node) not in gone]
        if found:
            self._index()
        if found and idiom.told:
            LOG.warning("%s: %s", ", ".join(match.nodes[-1].output[0] for match in found), idiom.told)
        return bool(found)

    def _made(self, idiom: Idiom, match: Match) -> onnx.NodeProto:
        output = match.nodes[-1].output[0]
        inputs = [match.tensors[name] for name in idiom.operands]
        return helper.make_node(
            idiom.op_type, inputs, [output], match.nodes[-1].name, domain=IDIOMS, **idiom.attributes(match)
        )

    def _matches(self, idiom: Idiom) -> Iterator[Match]:
        """Occurrences in the order of the graph; a node that does not continue one may begin the next."""
        match = Match()
        first = idiom.steps[0].op_type
        for node, op_type in self._considered:
            if not match.nodes and op_type != first:
                continue
            if not self._continues(idiom, match, node):
                match = Match()
                self._continues(idiom, match, node)
            if len(match.nodes) == len(idiom.steps):
                yield match
                match = Match()

    def _is_passed_over(self, node: onnx.NodeProto) -> bool:
        if node.domain in DEFAULT_DOMAINS and (node.op_type in PASSED_ON or _to_float(node)):
            return True
        return self._fixed.issuperset(node.output)

    def _continues(self, idiom: Idiom, match: Match, node: onnx.NodeProto) -> bool:
        """Whether a node continues a sequence; then it is added to the match."""
        step = idiom.steps[len(match.nodes)]
        if node.op_type != step.op_type or node.domain not in DEFAULT_DOMAINS:
            return False
        operands, attributes = self._operands(node, step), self._attributes(node)
        if operands is None or not step.check(attributes):
            return False
        if "axes" in attributes:
            if match.axes and match.axes[0] != attributes["axes"]:
                return False
            match.axes.append(attributes["axes"])
        exchangeable = node.op_type in ("Add", "Mul") and bool(match.nodes)
        if self._fits(match, step, operands) or (exchangeable and self._fits(match, step, operands[::-1])):
            match.nodes.append(node)
            return True
        return False

    def _operands(self, node: onnx.NodeProto, step: Step) -> list[str | np.ndarray] | None:
        """The operands, with those that an older operator set has as attributes; None for another number of them."""
        operands: list[str | np.ndarray] = [self._source(name) for name in node.input]
        if node.op_type == "Clip" and self._opset < 11:
            found = {a.name: a.f for a in node.attribute}
            operands += [np.array(found[key], np.float32) for key in ("min", "max") if key in found]
        if node.op_type == "ReduceMean":
            operands = operands[:1]
        return operands if len(operands) == len(step.operands) else None

    def _attributes(self, node: onnx.NodeProto) -> dict[str, Any]:
        """The attributes that are checked, by name."""
        given: dict[str, Any] = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "HardSigmoid":
            return {"alpha": given.get("alpha", 0.2), "beta": given.get("beta", 0.5)}
        if node.op_type != "ReduceMean":
            return {}
        axes = self._constant(node.input[1], large=True) if any(node.input[1:2]) else given.get("axes")
        axes = () if axes is None else tuple(int(axis) for axis in axes)
        return {"axes": axes, "keepdims": bool(given.get("keepdims", 1))}

    def _fits(self, match: Match, step: Step, operands: Sequence[str | np.ndarray]) -> bool:
        """Whether operands are those of a step; then their names are added to the match."""
        tensors, numbers = dict(match.tensors), dict(match.numbers)
        for operand, wanted in zip(operands, step.operands, strict=True):
            if isinstance(wanted, Result):
                fits = operand == match.nodes[wanted.step].output[0]
            elif isinstance(wanted, str):
                fits = isinstance(operand, str) and tensors.setdefault(wanted, operand) == operand
            else:
                large = isinstance(wanted, Given) and not wanted.single
                constant = self._constant(operand, large=large) if isinstance(operand, str) else operand
                fits = constant is not None and _is_constant(constant, wanted)
                if fits and constant is not None and isinstance(wanted, Given) and isinstance(operand, str):
                    tensors[wanted.name], numbers[wanted.name] = operand, constant
            if not fits:
                return False
        match.tensors, match.numbers = tensors, numbers
        return _weights_fit(match)

    def _source(self, name: str) -> str:
        """The tensor that is passed on as `name`."""
        maker = self._makers.get(name)
        while maker is not None and (maker.op_type in PASSED_ON or _to_float(maker)):
            name = maker.input[0]
            maker = self._makers.get(name)
        return name

    def _constant(self, name: str, *, large: bool = False) -> np.ndarray | None:
        """The array of a constant; None for a computed tensor, and unless `large` for one of several elements."""
        if name in self._initializers:
            tensor = self._initializers[name]
            return self._numbers.of(tensor) if large or prod(tensor.dims) == 1 else None
        if name not in self._fixed:
            return None
        if name not in self._folded:
            maker = self._makers[name]
            feeds = {n: array for n in maker.input if n and (array := self._constant(n)) is not None}
            whole = len(feeds) == len({n for n in maker.input if n})
            self._folded[name] = evaluate(maker, self._opsets, feeds).get(name) if whole else None
        return self._folded[name]

    def _is_closed(self, match: Match) -> bool:
        """Whether nothing but the sequence reads its inner tensors."""
        inner, ids = {name for node in match.nodes[:-1] for name in node.output}, {id(n) for n in match.nodes}
        return not inner & self._returned and all(id(node) in ids for n in inner for node in self._readers.get(n, ()))


def _with_inputs(node: onnx.NodeProto, inputs: Sequence[str]) -> onnx.NodeProto:
    made = onnx.NodeProto()
    made.CopyFrom(node)
    del made.input[:]
    made.input.extend(inputs)
    return made


def _to_float(node: onnx.NodeProto) -> bool:
    return node.op_type == "Cast" and any(a.name == "to" and a.i == TensorProto.FLOAT for a in node.attribute)


def _is_constant(constant: np.ndarray, wanted: Operand) -> bool:
    """Whether a constant is what a step wants as its operand."""
    if constant.dtype.kind != "f":
        return False
    if isinstance(wanted, Given):
        return constant.size == 1 or not wanted.single
    one = constant.ndim < 2 and constant.size == 1
    if isinstance(wanted, About):
        return constant.size == 1 and abs(float(constant.reshape(-1)[0]) - wanted.value) < CLOSE
    return one and float(constant.reshape(-1)[0]) == wanted


def _weights_fit(match: Match) -> bool:
    """Whether weight and bias have at most the axes of the norm, apart from leading ones of length 1.

    For a norm over axis 1 they have one axis longer than 1. The mapper, which knows the rank, checks that this is the
    axis of channels.
    """
    axes = len(match.axes[0]) if match.axes else 0
    shapes = [match.numbers[name].shape for name in ("gamma", "beta") if name in match.numbers]
    if match.axes and match.axes[0] == (1,):
        return all(sum(extent > 1 for extent in shape) <= 1 for shape in shapes)
    return all(extent == 1 for shape in shapes for extent in shape[: max(0, len(shape) - axes)])
