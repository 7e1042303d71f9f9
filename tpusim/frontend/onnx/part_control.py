"""Control flow with constant conditions: If, Loop and Scan become the nodes that they run."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import onnx

from tpusim.frontend.onnx.functions import rename
from tpusim.frontend.onnx.parts import Parts

MOST_NODES = 20_000
"""One loop may become at most so many nodes."""


def branch(p: Parts) -> None:
    """If: its condition must be constant, and the chosen branch takes its place."""
    p.opset = p.node.opset
    chosen = "then_branch" if bool(p.node.need(0, "conditions").reshape(-1)[0]) else "else_branch"
    graphs = {key: p.node.take(key) for key in ("then_branch", "else_branch")}
    for i, name in enumerate(inlined(p, graphs[chosen], {})):
        p.result("Identity", name, index=i)


def loop(p: Parts) -> None:
    """Loop of a constant count whose condition stays true."""
    p.opset = p.node.opset
    body: onnx.GraphProto = p.node.take("body")
    count = int(p.node.need(0, "trip counts").reshape(-1)[0]) if p.input(0) else None
    if count is None or count * len(body.node) > MOST_NODES:
        raise ValueError(f"a trip count that gives at most {MOST_NODES:,} nodes in all is required, got {count}")
    going = bool(p.node.need(1, "conditions").reshape(-1)[0]) if p.input(1) else True
    _require_endless(body)
    carried = list(p.node.inputs[2:])
    stacked: list[list[str]] = [[] for _ in body.output[1 + len(carried) :]]
    for step in range(count if going else 0):
        given = dict(zip([i.name for i in body.input][2:], carried, strict=True))
        constants = {body.input[0].name: np.array(step, np.int64), body.input[1].name: np.array(True)}
        _, *made = inlined(p, body, given, constants)
        carried, found = made[: len(carried)], made[len(carried) :]
        for rows, name in zip(stacked, found, strict=True):
            rows.append(_raised(p, name, 0))
    _return(p, carried, [(rows, 0) for rows in stacked])


def _require_endless(body: onnx.GraphProto) -> None:
    """Raise unless the condition that a loop's body returns is its input condition or the constant true."""
    name = body.output[0].name
    made = {n.output[0]: n for n in body.node}
    while name in made and made[name].op_type == "Identity":
        name = made[name].input[0]
    constant = made.get(name)
    always = constant is not None and constant.op_type == "Constant"
    if name != body.input[1].name and not always:
        raise ValueError("a loop that runs to its count is required, its condition is computed in the body")


def scan(p: Parts) -> None:
    """Scan of opset 9 and later: one copy of the body per element."""
    p.opset = p.node.opset
    body: onnx.GraphProto = p.node.take("body")
    count = int(p.node.take("num_scan_inputs", 0))
    if p.node.opset < 9:
        raise ValueError("a Scan of opset 9 or later is required")
    states = len(p.node.inputs) - count
    carried, scanned = list(p.node.inputs[:states]), p.node.inputs[states:]
    outputs = len(body.output) - states
    axes, directions = (list(p.node.take(f"scan_input_{k}", (0,) * count)) for k in ("axes", "directions"))
    out_axes, out_directions = (list(p.node.take(f"scan_output_{k}", (0,) * outputs)) for k in ("axes", "directions"))
    length: int = p.node.shape(states)[int(axes[0])]
    if length * len(body.node) > MOST_NODES:
        raise ValueError(f"a Scan of at most {MOST_NODES:,} nodes in all is required, got length {length}")
    stacked: list[list[str]] = [[] for _ in range(outputs)]
    for step in range(length):
        places = [length - 1 - step if backwards else step for backwards in directions]
        parts = [
            p.op("Gather", name, np.array(at), axis=axis) for name, at, axis in zip(scanned, places, axes, strict=True)
        ]
        made = inlined(p, body, dict(zip([i.name for i in body.input], [*carried, *parts], strict=True)))
        carried, found = made[:states], made[states:]
        for rows, name, axis in zip(stacked, found, out_axes, strict=True):
            rows.append(_raised(p, name, axis))
    ordered = [rows[::-1] if backwards else rows for rows, backwards in zip(stacked, out_directions, strict=True)]
    _return(p, carried, list(zip(ordered, out_axes, strict=True)))


def _raised(p: Parts, name: str, axis: int) -> str:
    """One more axis, in the operator set of the subgraph."""
    if p.opset < 13:
        return p.op("Unsqueeze", name, axes=[axis])
    return p.op("Unsqueeze", name, np.array([axis]))


def _return(p: Parts, carried: Sequence[str], stacked: Sequence[tuple[list[str], int]]) -> None:
    for i, name in enumerate(carried):
        p.result("Identity", name, index=i)
    for i, (rows, axis) in enumerate(stacked, len(carried)):
        if not rows:
            raise ValueError("a loop with stacked results must run at least once")
        p.result("Concat", *rows, axis=axis, index=i)


def inlined(
    p: Parts, graph: onnx.GraphProto, given: Mapping[str, str], constants: Mapping[str, np.ndarray] | None = None
) -> list[str]:
    """Append a subgraph's nodes and return its outputs; given: tensors by the names of its inputs."""
    prefix = p.op("Identity", np.array(0))  # a unique name
    names = dict(given)
    for name, array in (constants or {}).items():
        names[name] = p.op("Identity", array)
    for tensor in graph.initializer:
        names[tensor.name] = p.op("Identity", onnx.numpy_helper.to_array(tensor))
    for node in graph.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        names |= {name: f"{prefix}_{name}" for name in node.output if name}
        rename(copy, partial(_new_name, names))
        p.nodes.append(copy)
    return [names.get(o.name, o.name) for o in graph.output]


def _new_name(names: Mapping[str, str], name: str) -> str:
    return names.get(name, name)


DECOMPOSITIONS: dict[str, Callable[[Parts], None]] = {"If": branch, "Loop": loop, "Scan": scan}
