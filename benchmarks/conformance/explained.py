"""Differences whose reason is known, kept by hand; one that no line here matches is called unexplained."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from benchmarks.accuracy.results import Key
from benchmarks.conformance.results import Difference


@dataclass(frozen=True)
class Explained:
    """cells: globs NETWORK/CHIP/MODE. tensors: globs of our names. what: globs of what differs. parts: all if empty."""

    reason: str
    cells: tuple[str, ...]
    tensors: tuple[str, ...] = ("*",)
    what: tuple[str, ...] = ("*",)
    parts: tuple[str, ...] = ()

    def covers(self, key: Key, part: str, found: Difference) -> bool:
        """Whether this is the reason of that difference."""
        return (
            key.matches(self.cells)
            and (not self.parts or part in self.parts)
            and any(fnmatchcase(found.tensor, glob) for glob in self.tensors)
            and any(fnmatchcase(found.what, glob) for glob in self.what)
        )


FLOAT_CAST = ("*_float32", "*_f32")
LINEAR = ("add[0-9]*", "matmul18*")
TABLE: tuple[Explained, ...] = (
    # what upstream's front end makes of ONNX, where tpusim follows ONNX
    Explained("upstream reads a HardSigmoid without alpha as 1/6, ONNX says 0.2", ("tables/*",), ("hardsigmoid*",)),
    Explained("upstream reads an Elu without alpha as 0, ONNX says 1", ("tables/*",), ("elu_Elu*",)),
    Explained(
        "upstream merges equal nodes, so that the op before the Relu has two users and keeps its own result",
        ("add/*", "multiply/*"), ("sum_relu*", "product_relu*"),
    ),
    Explained("upstream merges equal nodes: Abs of the same value is one op there", ("tables/*",), ("magnitude*",)),
    # mended where a line goes away; until then the cause is known
    Explained(
        "upstream lowers a block of attention to one tpu.Attention per head on bm1684x",
        ("attention/bm1684x/int8*", "vit/bm1684x/int8*"), ("add19*", "add24*"),
    ),
    Explained(
        "upstream takes a constant Add behind a MatMul as its bias",
        ("matmul/*", "attention/*", "vit/*", "bert/*", "segformer/*", "residual/*"), LINEAR, ("*Add *",),
    ),
    Explained("D22: batch norms are folded into filters in f32 steps there", ("conv/*", "residual/*"),
              ("normed*", "relu*", "batchnormalization*"), ("multiplier*", "constant*")),
    Explained("on CV18xx upstream dequantises in bf16: bf16(bf16(scale) * q)", ("*/cv18*/int8",), FLOAT_CAST,
              ("Cast in f32",)),
    Explained("ReduceMean over rows and columns is an AvgPool there", ("reduce/*", "squeeze/*"),
              ("mean_plane*", "*reducemean*", "conv13")),
    Explained("1-D convolutions and pools stay 1-D there, here they are 2-D between two reshapes", ("conv1d/*",)),
    Explained("a 1x1 Conv without activation is merged into the 1x1 Conv behind it there", ("relu6/*",),
              ("clip16*", "conv14*")),
    Explained("D13: to_int8 of unsigned results on BM1684", ("deconv/bm1684/*",), ("relued*",)),
    Explained("D6: padding of an asymmetric MaxPool never wins there", ("pool/*/int8-asym",), ("max*",),
              ("Pool2D*",)),
    Explained("D5: a Where with a constant is INT8 there", ("logic/*",), ("capped*", "masked*")),
    Explained("Max and Min compare the stored integers there, whatever their scales", ("multiply/*",),
              ("larger*", "smaller*")),
    Explained("DN-30: an asymmetric AvgPool stays INT8 there", ("average/*/int8-asym",), ("avg_*",)),
    Explained("layout ops between a network input and its first cast stay in f32 there", ("shapes/*",),
              ("tiled*", "flat*", "reshape*")),
    Explained("an enlargement by an integer is a Deconv on CV18xx there", ("resize/cv18*", "detector/cv18*"),
              ("nearest*", "triple*", "resize*"), ("*Deconv there",)),
    Explained("BM1684 takes a LayerNorm apart into its steps there", ("*/bm1684/*",), ("layernormalization*",),
              ("*LayerNorm here*",)),
    Explained("x - c is an AddConst of -c there", ("constants/*",), ("minus*",), ("*SubConst here*",)),
    Explained("a product with, or sum of, a constant per channel is a depthwise Conv there",
              ("constants/bm168*", "norms/bm168*"), ("*_channel*", "batchnormalization*", "scale_relu*"),
              ("*Scale *",)),
)  # fmt: skip
"""Only what was traced to its cause with the real tool belongs here: a decision, a quirk of upstream, a known gap."""


def reason(key: Key, part: str, found: Difference) -> str | None:
    """Why a tensor differs in this part of the cell; None if nobody knows."""
    return next((e.reason for e in TABLE if e.covers(key, part, found)), None)
