"""Several cases as one network: the real tools take seconds to start and little for a tiny network.

Groups and clock of a batch say nothing about its cases. Values do: a case no tensor of which differs is equal, and the
others are judged alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import onnx
from onnx import compose, helper

from benchmarks.conformance.fuzz.case import Case
from benchmarks.conformance.fuzz.judge import VALUES, Judged


def joined(cases: Sequence[Case]) -> Case:
    """One network of all, side by side; the names of case i begin with `i_`. They have one opset."""
    parts = [compose.add_prefix(case.proto, f"{number}_").graph for number, case in enumerate(cases)]
    first = cases[0].proto
    name = f"batch_{zlib.crc32(' '.join(c.name for c in cases).encode()):08x}"
    graph = helper.make_graph(
        [n for g in parts for n in g.node], name, [v for g in parts for v in g.input],
        [v for g in parts for v in g.output], [c for g in parts for c in g.initializer],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=first.opset_import, ir_version=first.ir_version)
    return Case(onnx.shape_inference.infer_shapes(model))


def suspects(cases: Sequence[Case], judged: Judged) -> list[Case]:
    """The cases that must be judged alone: those with a tensor that differs, or all if the batch failed as a whole."""
    found = [f for f in judged.findings if f.stage in VALUES]
    if judged.there or any(not _number(f.tensor).isdigit() for f in found):
        return list(cases)
    numbers = {int(_number(f.tensor)) for f in found}
    return [case for number, case in enumerate(cases) if number in numbers]


def _number(tensor: str) -> str:
    return tensor.partition("_")[0]
