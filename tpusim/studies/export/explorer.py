"""A grouped module as a graph for Model Explorer, and a run's measures as data of its nodes.

Model Explorer cannot read the module's text: its MLIR reader knows only the dialects that it was built with. So the
graph is written as Model Explorer's JSON (`{label, graphs: [{id, nodes}]}`): a node is an op, its id the name of the
op's tensor, its namespace the layer group. Node data is one file per measure: `{graph id: {name, results,
thresholds}}`, or with `gradient` instead of `thresholds`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute, Operation, SSAValue

from tpusim.ir.attrs import framework_name, op_name, value_name
from tpusim.ir.module import Model
from tpusim.ir.upstream import FRAMEWORK
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.structure import TopInput, TopWeight, TpuGroup, TpuLoad
from tpusim.schedule import numbered

Json = dict[str, Any]
Group = tuple[Literal["input", "group", "global", "view"], int | None]
"""The place of an op, and the number of its layer group or global layer."""

MEASURES = "cosine", "sqnr", "cycles", "group"
LONGEST = 8
"""The longest list of numbers that a node shows: kernels and strides are shorter, multipliers longer."""
RED, ORANGE, YELLOW, GREEN = "#f4a9a0", "#fcd3a1", "#fbf0a8", "#bfe5c5"
COSINE = {0.9: RED, 0.99: ORANGE, 0.999: YELLOW, 1.0: GREEN}
SQNR = {10.0: RED, 20.0: ORANGE, 30.0: YELLOW, 1e6: GREEN}
"""Upper limit of SQNR in dB -> colour of a node."""
CYCLES = {0.0: "#ffffff", 0.5: ORANGE, 1.0: "#e2604f"}
"""The colours from the least (0) to the greatest value (1)."""
GROUPS = "#aec7e8", "#ffbb78", "#98df8a", "#c5b0d5", "#c49c94", "#f7b6d2", "#dbdb8d", "#9edae5"
GLOBAL = "#e0e0e0"
"""Colours of layer groups, used in rotation, and of all global layers."""


def graph(model: Model) -> Json:
    """The graph of a grouped module: ops, network inputs and outputs as nodes; constants are left out."""
    nodes = [_node(op, _place(group)) for op, group in _ops(model)]
    nodes += [_output(value) for value in model.results]
    return {"label": graph_name(model), "graphs": [{"id": graph_name(model), "nodes": nodes}]}


def graph_name(model: Model) -> str:
    """The id of the graph in node data."""
    return model.name or "main"


def node_data(model: Model, report: Mapping[str, Any]) -> Iterator[tuple[str, Json]]:
    """(measure, node data) for each measure of the module's ops that the object of a `report.json` has."""
    tensors = report.get("compare", {}).get("tpu_vs_top", {}).get("tensors", ())
    works = (report.get("roofline") or {"ops": ()})["ops"]
    found = (
        ("cosine to the float network", {t["name"]: t["cosine"] for t in tensors}, _thresholds(COSINE)),
        ("SQNR in dB", {t["name"]: _sqnr(t) for t in tensors}, _thresholds(SQNR)),
        ("cycles of the longer engine", {work["name"]: work["cycles"] for work in works}, _gradient()),
        ("layer group", {op_name(op): _group(group) for op, group in _ops(model)}, Json()),
    )
    for measure, (says, results, colours) in zip(MEASURES, found, strict=True):
        ops = {op_name(op) for op, _ in _ops(model)}
        known = {name: _result(value) for name, value in results.items() if value is not None and name in ops}
        if known:
            yield measure, {graph_name(model): {"name": says, "results": known, **colours}}


def _result(value: Any) -> Any:
    return value if isinstance(value, dict) else {"value": value}  # type: ignore[reportUnknownVariableType]


def _sqnr(tensor: Mapping[str, Any]) -> float | Json | None:
    """SQNR in dB; "equal" for equal tensors; None if it was not measured."""
    found = tensor["sqnr_db"]
    return {"value": "equal", "bgColor": GREEN} if found is None and tensor["passed"] else found


def _group(group: Group) -> Json | None:
    """The group as a text, so that Model Explorer does not add numbers of groups."""
    kind, number = group
    if number is None:
        return None
    if kind == "global":
        return {"value": f"{number} (global)", "bgColor": GLOBAL}
    return {"value": f"{number}", "bgColor": GROUPS[number % len(GROUPS)]}


def _place(group: Group) -> str:
    """The namespace of an op: Model Explorer draws a namespace as one box that opens."""
    return f"group {group[1]}" if group[0] == "group" else ""


def _thresholds(colours: Mapping[float, str]) -> Json:
    return {"thresholds": [{"value": value, "bgColor": colour} for value, colour in colours.items()]}


def _gradient() -> Json:
    return {"gradient": [{"stop": stop, "bgColor": colour} for stop, colour in CYCLES.items()]}


def _ops(model: Model) -> Iterator[tuple[TpuOp | TopInput, Group]]:
    """Ops and network inputs in program order."""
    for op in model.ops:
        if isinstance(op, TopInput):
            yield op, ("input", None)
    for op, number in numbered(model):
        if isinstance(op, TpuGroup):
            for inside in op.body.block.ops:
                if isinstance(inside, TpuOp):
                    yield inside, ("group", number)
        else:
            yield op, ("view" if number is None else "global", number)


def _node(op: TpuOp | TopInput, group: str) -> Json:
    sources = [(i, source) for i, value in enumerate(op.operands) if (source := _source(value)) is not None]
    return {
        "id": op_name(op),
        "label": op.name.split(".")[-1],
        "namespace": group,
        "attrs": [{"key": key, "value": value} for key, value in _attributes(op)],
        "incomingEdges": [] if isinstance(op, TopInput) else [_edge(source, i) for i, source in sources],
        "outputsMetadata": [_metadata(i, value) for i, value in enumerate(op.results)],
    }


def _output(value: SSAValue) -> Json:
    source = _source(value)
    assert source is not None
    return {"id": f"output {value_name(source)}", "label": "Output", "namespace": "", "attrs": [],
            "incomingEdges": [_edge(source, 0)], "outputsMetadata": []}  # fmt: skip


def _edge(source: SSAValue, index: int) -> Json:
    owner = source.owner
    assert isinstance(owner, Operation)
    at = list(owner.results).index(source)  # type: ignore[arg-type]
    return {"sourceNodeId": op_name(owner), "sourceNodeOutputId": str(at), "targetNodeInputId": str(index)}


def _source(value: SSAValue) -> SSAValue | None:
    """The result of an op or a network input before loads and stores; None for a constant."""
    owner = value.owner
    if isinstance(owner, TpuLoad):
        return _source(owner.input)
    if isinstance(owner, TpuGroup):
        return _source(owner.store_of(value).input)
    return value if isinstance(owner, TpuOp | TopInput) else None


def _metadata(index: int, value: SSAValue) -> Json:
    attrs = {"tensor_name": value_name(value), "tensor_shape": str(value.type)}
    return {"id": str(index), "attrs": [{"key": key, "value": text} for key, text in attrs.items()]}


def _attributes(op: Operation) -> Iterator[tuple[str, str]]:
    """The attributes shown at a node: the name in the model's file, constants, and short attributes."""
    if framework_name(op) not in ("", op_name(op)):
        yield "name in the model", framework_name(op)
    for i, value in enumerate(op.operands):
        outside = value.owner.input if isinstance(value.owner, TpuLoad) else value
        if isinstance(outside.owner, TopWeight):
            yield f"constant {i}", value_name(outside)
    for name, attribute in op.attributes.items():
        if name not in ("ginfo", FRAMEWORK) and _is_short(attribute):
            yield name, str(attribute)


def _is_short(attribute: Attribute) -> bool:
    return not isinstance(attribute, ArrayAttr) or len(cast("ArrayAttr[Attribute]", attribute).data) <= LONGEST
