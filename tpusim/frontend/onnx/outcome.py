"""The outcome of each node of a model at import, for reports before anything runs."""

from dataclasses import dataclass
from typing import Literal

from xdsl.ir import Operation

from tpusim.frontend.onnx.problems import NetworkRefused
from tpusim.ir.module import Model

How = Literal["passed on", "folded", "merged", "mapped", "decomposed", "function body", "refused", "after a refusal"]
"""passed on: the result is the input (Identity); folded: computed at import; merged: an earlier node does the same;
mapped: read as a top op; decomposed: read as other ONNX ops; function body: read as the ops of its ONNX definition."""


@dataclass(frozen=True)
class Outcome:
    """One node: `ops` are the top ops it became, `why` says what is refused, `inputs` are its known computed inputs."""

    node: str
    op_type: str
    how: How
    ops: tuple[Operation, ...] = ()
    why: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Inspection:
    """All nodes that the outputs need, in order; the model, or the error that refuses it."""

    nodes: tuple[Outcome, ...]
    model: Model | None
    refusal: NetworkRefused | None
