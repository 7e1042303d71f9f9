"""Flat inference: any top or tpu module -> tensors, in JAX.

Input: a `Model` at any stage (layer groups are executed op by op, loads and stores change nothing) and arrays by
input name. Output: arrays by tensor name, quantised tensors as their stored integers. Three ways with the same INT8
bits: `run` goes op by op and keeps every tensor; `Graph` compiles the whole network once and runs sample after sample
(`Gradual` does so when there are enough of them); `Flat` takes any number of samples in one call, which `Arguments`
checks. `to_stablehlo` gives the same function to other compilers. It decides nothing: every op's `inference` defines
the op. It must not know commands, slices or memories.
"""

from tpusim.inference.batched import Arguments, Flat, Inputs
from tpusim.inference.executor import (
    Graph,
    RealValues,
    dequantised,
    input_specs,
    quantisation,
    results_of,
    run,
    without_padding,
)
from tpusim.inference.gradual import Gradual
from tpusim.inference.parts import Parts, parts_of
from tpusim.inference.replay import float_upstream, replay
from tpusim.inference.stablehlo import StableHlo, to_stablehlo

__all__ = [
    "Arguments", "Flat", "Gradual", "Graph", "Inputs", "Parts", "RealValues", "StableHlo", "dequantised",
    "float_upstream", "input_specs", "parts_of", "quantisation", "replay", "results_of", "run", "to_stablehlo",
    "without_padding",
]  # fmt: skip
