"""Rows of op_cases.py for LSTM and GRU."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper
from op_row import CHIPS, EXPONENTS, OpCase, network

STEPS, BATCH, WIDTH, HIDDEN = 4, 2, 6, 5
GATES = {"LSTM": 4, "GRU": 3}


def row(name: str, kind: str, *, result: int = 0, ways: int = 1, biased: bool = True, states: bool = False) -> OpCase:
    """A node of which one output is read. result: its number; states: the initial states are network inputs."""
    rng, rows = np.random.default_rng(5), GATES[kind] * HIDDEN
    constants = {
        "W": rng.normal(0, 0.5, (ways, rows, WIDTH)), "R": rng.normal(0, 0.5, (ways, rows, HIDDEN)),
        "B": rng.normal(0, 0.3, (ways, 2 * rows)),
    }  # fmt: skip
    constants = {name: array.astype(np.float32) for name, array in constants.items() if biased or name != "B"}
    given = ["h", "c"][: 1 + (kind == "LSTM")] * states
    inputs = {"x": (STEPS, BATCH, WIDTH)} | dict.fromkeys(given, (ways, BATCH, HIDDEN))
    more: dict[str, Any] = {"direction": "bidirectional"} if ways > 1 else {}
    more |= {"linear_before_reset": 1} if kind == "GRU" else {}
    read = ["x", "W", "R", *["B" if biased else ""], "", *given]
    node = helper.make_node(kind, read, [""] * result + ["y"], hidden_size=HIDDEN, **more)
    return OpCase(name, network([node], constants), inputs, f"tpu.{kind}", tolerance=EXPONENTS, axes="",
                  fallback=dict.fromkeys(CHIPS, "has no integer form"), batched=False)  # fmt: skip


CASES: tuple[OpCase, ...] = (
    row("lstm", "LSTM"), row("lstm-cell-state", "LSTM", result=2, biased=False),
    row("lstm-both-ways", "LSTM", ways=2, states=True), row("gru", "GRU"),
    row("gru-both-ways", "GRU", result=1, ways=2, states=True),
)  # fmt: skip
