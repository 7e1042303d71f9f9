"""Constants of small networks as TPU-MLIR 1.30.2 computes them: recorded integers, no tolerance."""

from __future__ import annotations

import numpy as np
from op_row import network, node
from test_logic import Range, ranged

from tpusim.canonicalize import canonicalize
from tpusim.frontend import import_onnx
from tpusim.ir.attrs import ints
from tpusim.lowering import LoweringConfig, lower
from tpusim.ops.base import TpuOp

Array = np.ndarray
IMAGE = {"x": (1, 4, 3, 3)}


def lowered(op: str, constants: dict[str, Array], ranges: dict[str, Range], chip: str = "bm1684x") -> list[TpuOp]:
    """The tpu ops of a network of one node "y" on "x" and the constants, in INT8."""
    top = canonicalize(import_onnx(network([node(op, " ".join(["x", *constants]))], constants)(IMAGE)))[0]
    tpu = lower(ranged(top, ranges), LoweringConfig(chip, "int8"))[0]
    return [op for op in tpu.ops if isinstance(op, TpuOp)]


def named(ops: list[TpuOp], kind: str) -> TpuOp:
    return next(op for op in ops if op.name == kind)


# ------------------------------------------------------------------------------------------------------ filters' scales


def test_the_scale_of_a_filter_is_a_quotient_in_f32() -> None:
    """Six of these sixteen multipliers are others where max|W_c|/127 is divided in f64."""
    filter = np.random.default_rng(8).standard_normal((16, 4, 1, 1)).astype(np.float32)
    conv = named(lowered("Conv", {"w": filter}, {"x": (-1.7, 1.7), "y": (-0.6, 0.6)}), "tpu.Conv2D")
    assert ints(conv.attributes["multiplier"]) == (
        5204993, 13849397, 8337841, 9015901, 4311927, 9818191, 5743129, 6711459,
        1161269, 461341, 2261755, 5923141, 13581629, 6358287, 7599977, 13107367,
    )  # fmt: skip
    assert ints(conv.attributes["rshift"]) == (27, 28, 28, 28, 27, 28, 30, 27, 25, 23, 26, 28, 29, 27, 27, 29)
