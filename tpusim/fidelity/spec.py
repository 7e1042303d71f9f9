"""The sections of numerics.md and its `Decision:` lines, each in one line, to which ops and reports refer."""

from typing import Final

from tpusim.compat import Quirk

SECTIONS: Final[dict[str, str]] = {
    "2.2": "activation scale and zero point",
    "3.3": "threshold propagation",
    "5.3": "small multiplier",
    "5.4": "BM1684: shift without multiplier",
    "5.5": "CV18xx: 32-bit multiplier by QDM",
    "5.6": "which derivation of multiplier and shift an op uses",
    "6": "requant modes",
    "7.1": "weights",
    "7.2": "bias",
    "8.1": "casts",
    "8.2": "F16 and BF16",
    "8.4": "F8 by op",
    "9.0": "summary of ops",
    "9.1": "convolutions",
    "9.2": "matrix product",
    "9.3": "element-wise with constants",
    "9.4": "Scale",
    "9.5": "Add and relu",
    "9.6": "pooling",
    "9.7": "relu-like",
    "9.8": "float activation functions",
    "10": "lookup tables",
    "11.1": "Softmax",
    "11.2": "LayerNorm",
    "11.3": "Reduce",
    "11.4": "Interp",
    "11.5": "Attention",
    "11.7": "LSTM and GRU",
    "12.1": "float types in INT8 mode",
    "12.2": "float types in F16 mode",
    "12.3": "float types in BF16 mode",
    "14": "weight-only quantisation and INT4",
}
"""The sections an op's `SPEC` may name."""

DECISIONS: Final[dict[str, str]] = {
    "DN-02": "a known upstream quirk that reaches compiled constants is reproduced",
    **{quirk.decision: f"{quirk.rule.number} is reproduced: {quirk.rule.does}" for quirk in Quirk},
    "DN-05": "an op without a scale runs in the chip's float type",
    "DN-08": "a scale above 126.5 has no 8-bit multiplier: the op runs in float (numerics.md 5.1 would stop)",
    "DN-11": "F8: filter scale per channel, float for ops outside the list",
    "DN-12": "Conv3D and Deconv on chips without a rule for them",
    "DN-13": "CV18xx: an op without a listed rule runs in BF16",
    "DN-14": "Abs of bytes wraps, as the closed simulator's: |-128| = -128 (CV18xx: 127)",
    "DN-15": "max and min with a number compare bytes with c/s without the zero point, as the closed simulator",
    "DN-16": "a float Scale is rounded once, at the output",
    "DN-17": "padding never wins a maximum",
    "DN-18": "the sign of 0 is 0",
    "DN-19": "table entries beyond 64 bits, infinite or no number are the smallest byte",
    "DN-20": "a Softmax axis of more elements than half a bank's bytes runs in F32",
    "DN-21": "F16 LayerNorm is rounded once, at the output",
    "DN-22": "CV18xx: Interp that is no convolution is computed by the host, in f32",
    "DN-24": "weight-only MatMul: scale in the compute type, one rounding",
    "DN-28": "an INT4 op with other users hands them INT8",
    "DN-29": "an unsigned or asymmetric product before an op in float stays 8 bits wide, not int16 (numerics.md 3.4)",
    "DN-32": "the chip cannot use a scale of a quantised network, so these integers are computed again in its own",
    "DN-33": "non-maximum suppression has a row for each box that may be kept, -1 after the last, where upstream has "
    "as many rows as boxes",
    "DN-34": "part of a recurrent node, rounded for itself to the float type that upstream's one op has",
    "DN-30": "with avgpool_full_kernel off, averages with zero points that leave padding out run in float",
}
"""Decisions that belong to single ops: the specification leaves the value open, tpusim chose this one."""

EVERYWHERE: Final[dict[str, str]] = {
    "DN-01": "sums are exact integers; upstream's interpreter sums in f32 and can lose bits above 2^24",
    "DN-03": "the chip rounds as upstream's interpreter does; accumulators are 32 bits and never wrap",
    "DN-06": "thresholds propagate in program order until nothing changes",
    "DN-10": "multiplier, shift and zero point are separate numbers; packing them changes no value",
    "DN-23": "no hidden mixed-precision heuristics: only tables, marks and the fallback lists",
}
"""Decisions that apply to every integer, listed once and not per op."""
