"""Several cases as one network: the real tools take seconds to start and little for a tiny network.

Groups and clock of a batch say nothing about its cases, values do: each case gets the findings of its tensors.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

import onnx
from msgspec.structs import replace
from onnx import compose, helper

from benchmarks.accuracy.results import Key
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


def split(cases: Sequence[Case], judged: Judged) -> Iterator[Judged]:
    """The verdict of each case; none if the batch as a whole was refused, so that the cases must be judged alone."""
    found = [f for f in judged.findings if f.stage in VALUES]
    if judged.there or any(not _number(f.tensor).isdigit() for f in found):
        return
    for number, case in enumerate(cases):
        mine = tuple(replace(f, tensor=f.tensor.partition("_")[2]) for f in found if _number(f.tensor) == str(number))
        odd = tuple(n.partition("_")[2] for n in judged.disagreeing if _number(n) == str(number))
        key = Key(case.name, judged.key.chip, judged.key.mode)
        yield Judged(key, mine, disagreeing=odd, timed=False)


def _number(tensor: str) -> str:
    return tensor.partition("_")[0]
