"""The graph for Model Explorer: every op with its inputs, the layer groups as boxes, and data at the right nodes.

What Model Explorer takes was tried with its own reader (ai-edge-model-explorer 0.1.34); the tests say what it needs:
unique ids, edges between nodes of the graph, data by id, thresholds that rise, or stops from 0 to 1.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from end_to_end import digits_run, report_of
from networks import cached_lowered, randomly_grouped

from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.layer_group import GroupView, views
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.structure import TopInput
from tpusim.studies.export import MEASURES, graph, node_data


def edges_of(flat: Model) -> set[tuple[str, str, int]]:
    """(maker, reader, operand) of a module without groups; constants are none of it."""
    ops = [op for op in flat.ops if isinstance(op, TpuOp)]
    makers = [(op, i, value.owner) for op in ops for i, value in enumerate(op.operands)]
    return {(op_name(o), op_name(op), i) for op, i, o in makers if isinstance(o, TpuOp | TopInput)}


@pytest.mark.parametrize(("seed", "chip"), [(0, "bm1684x"), (1, "bm1684"), (2, "bm1684x"), (3, "bm1684")])
def test_grouping_leaves_the_edges_and_makes_the_boxes(seed: int, chip: str) -> None:
    flat = cached_lowered(seed, chip)[0]
    model = randomly_grouped(flat, np.random.default_rng(seed))[0]
    (drawn,) = graph(model)["graphs"]
    nodes = {node["id"]: node for node in drawn["nodes"]}
    assert len(nodes) == len(drawn["nodes"])
    edges = {(edge["sourceNodeId"], node["id"], int(edge["targetNodeInputId"]))
             for node in drawn["nodes"] if node["label"] != "Output" for edge in node["incomingEdges"]}  # fmt: skip
    assert edges == edges_of(flat)
    results = [
        edge["sourceNodeId"] for node in nodes.values() if node["label"] == "Output" for edge in node["incomingEdges"]
    ]
    assert results == [op_name(value.owner) for value in flat.results]  # type: ignore[arg-type]
    for view in views(model):
        names = [name for name, _ in view.ops] if isinstance(view, GroupView) else [view.name]
        assert {nodes[name]["namespace"] for name in names} == {f"group {view.index}" * isinstance(view, GroupView)}
    assert all(nodes[op_name(op)]["label"] == "Input" for op in flat.ops if isinstance(op, TopInput))
    ((kind, data),) = node_data(model, {})
    assert kind == "group" and set(data[drawn["id"]]["results"]) == {
        op_name(op) for op in flat.ops if isinstance(op, TpuOp)
    } - {view.name for view in views(model) if not isinstance(view, GroupView) and view.index is None}


def test_a_run_writes_the_values_of_its_report(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = digits_run(tmp_path_factory, "bm1684x", "int8")
    report = report_of(folder)
    (drawn,) = json.loads((folder / "graph.json").read_text())["graphs"]
    ids = {node["id"] for node in drawn["nodes"]}
    found: dict[str, dict[str, Any]] = {}
    for measure in MEASURES:
        data = json.loads((folder / f"graph_{measure}.json").read_text())
        assert list(data) == [drawn["id"]]
        (one,) = data.values()
        assert set(one["results"]) <= ids and one["name"]
        colours = [step["bgColor"] for kind in ("thresholds", "gradient") for step in one.get(kind, ())]
        colours += [result["bgColor"] for result in one["results"].values() if "bgColor" in result]
        assert colours and all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in colours)
        rising = [step["value"] for step in one.get("thresholds", ())]
        assert all(a < b for a, b in pairwise(rising))
        stops = [step["stop"] for step in one.get("gradient", ())]
        assert not stops or (stops[0], stops[-1], stops) == (0, 1, sorted(stops))
        found[measure] = {name: result["value"] for name, result in one["results"].items()}
    tensors = {t["name"]: t for t in report["compare"]["tpu_vs_top"]["tensors"]}
    assert found["cosine"] == {name: t["cosine"] for name, t in tensors.items()}
    assert found["sqnr"] == {name: "equal" if t["sqnr_db"] is None else t["sqnr_db"] for name, t in tensors.items()}
    assert found["cycles"] == {op["name"]: op["cycles"] for op in report["roofline"]["ops"]}
    groups = {
        op: f"{group['id']}{' (global)' if group['reason'] else ''}"
        for group in report["groups"]
        for op in group["ops"]
    }
    assert found["group"] == groups
