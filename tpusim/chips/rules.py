"""What compilers do differently from chip to chip: the forms that ops have, and what works in local memory.

Tables of a chip's file. The defaults are the 1684X family's. Sections are those of docs/spec/numerics.md and, for
`LocalRules`, of docs/spec/layer_group.md.
"""

from typing import Literal

import msgspec


class FloatOnly(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An op that has integer forms elsewhere, or decisions behind it that hold on one chip."""

    op: str
    """The op's name in the IR, as in "top.Compare"."""
    why: str
    """The reason that users read."""
    decisions: tuple[str, ...] = ()
    """The decisions behind it, as in "DN-13"; none: the specification says so."""


class IntegerRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which ops compute on quantised integers, and how, beside the requantisation of products (`ChipSpec.requant`)."""

    scaling: Literal["best_fit", "right_shift", "small_multiplier"] = "best_fit"
    """Where ops other than products get an 8-bit multiplier and a shift: by the best fit (5.1, 5.6); the shift first,
    then the multiplier (5.4); or from thresholds, in the op itself, with one shift for operands that are added or
    compared (5.3, 9.6, 9.7)."""
    float_only: tuple[FloatOnly, ...] = ()
    """Ops without an integer form (9.0, 10, 12.1)."""
    volumes: Literal["all", "pools", "max_pools"] = "all"
    """Which windows over volumes have integer forms (9.1, 12.1; DN-12)."""
    products: Literal["any", "constant", "fully_connected"] = "any"
    """Which matrix products do: of two activations too, with a constant matrix, with one in two axes only (9.0)."""
    constant_factors: bool = True
    """Whether a factor of Mul, but the first, may be a constant tensor (12.1)."""
    reductions: bool = False
    """Whether Reduce has an integer form (11.3), so that the largest and the smallest keep the range (3.3 step 9)."""
    limited_relu: bool = True
    """Whether Relu with an upper limit has one (12.1)."""
    most_pooled: int = 0
    """Elements of the largest kernel that pools in integers (12.1); 0: any."""
    average_table: bool = False
    """Averages multiply by a table of 1/kernel at the input's scale (5.4), so that they keep its range (3.3 step 9)."""
    scale_as: Literal["conv", "scale", "depthwise"] = "conv"
    """What top.Scale becomes: a top.Conv where it can be, tpu.Scale, or a depthwise tpu.Conv2D (9.4)."""
    scale_bits: Literal[16, 32] = 32
    """Bits of tpu.Scale's accumulators; those of 16 saturate, and are never shifted left (9.4)."""
    constants_as_tables: bool = False
    """Ops of a tensor and a number are lookup tables, or ops of two tensors (9.3, 10)."""
    abs_table: bool = False
    """Absolute values are looked up; else they are taken of the bytes (9.0)."""
    gelu_table: Literal["own", "tanh"] = "own"
    """Whether byte tables of GELU are of the form the op has or always of the tanh form (10)."""
    bounded_reciprocal: bool = False
    """A byte table of 1/x holds the calibrated maximum at 0 (10)."""
    pads_half_up: bool = False
    """The number that Pad fills in is rounded half up, not half away from zero (9.0)."""
    sums_set_ranges: bool = True
    """Products that feed one Add take its range (3.3 step 6)."""

    def without_zero_points(self) -> list[str]:
        """Fields whose values have no rule for zero points."""
        chosen = {
            "scaling": self.scaling != "best_fit",
            "reductions": self.reductions,
            "average_table": self.average_table,
            "constants_as_tables": self.constants_as_tables,
        }
        return [name for name, is_so in chosen.items() if is_so]

    def of_thresholds(self) -> list[str]:
        """Fields whose values take the ratio of thresholds for that of scales."""
        chosen = {"scaling": self.scaling == "small_multiplier", "reductions": self.reductions}
        return [name for name, is_so in chosen.items() if is_so]


class OpForms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which forms of ops a chip has; the compiler makes others of those it lacks (U-45)."""

    add_const: bool = True
    """A tensor plus a number; else the number is a tensor."""
    div: bool = True
    """Quotients of tensors; else products with a reciprocal."""
    clip: bool = True
    """Whether the chip has tpu.Clip; without it tpu.MaxConst and tpu.MinConst take its place."""
    limited_relu: bool = True
    """tpu.Relu with an upper limit in float; else tpu.Clip."""
    layer_norm: bool = True
    """tpu.LayerNorm; else tpu.GroupNorm, tpu.Mul and tpu.Add, from axis 1, 2 or 3 on."""
    rms_norm: bool = True
    """tpu.RMSNorm; else squares, their mean, root, reciprocal and products."""
    instance_norm: bool = True
    """tpu.InstanceNorm; else a tpu.GroupNorm with a channel per group."""
    attention: bool = False
    """A block of attention is a tpu.Attention for each head; else products, softmax and Permutes."""
    flash_attention: bool = False
    """Attention in 16 bits is one tpu.FAttention, of all heads."""
    patch_products: int = 0
    """Convolutions of up to 3 channels whose windows of 14 to fewer than so many rows and columns lie side by side are
    products of a row for each patch."""
    whole_image_products: tuple[str, ...] = ()
    """Float types, as in "bf16", in which a convolution of one group whose window is its whole image is a product."""
    hard_activations: Literal["op", "constants", "depthwise"] = "op"
    """HardSigmoid and HardSwish in float: tpu.Active; ops of a tensor and a number; or a depthwise convolution between
    bounds."""
    reduce_l2: bool = True
    """tpu.Reduce of mode ReduceL2 in float; else a sum of squares and its root, which are tpu.Active."""
    resize: bool = True
    """tpu.Upsample and tpu.Interp; else transposed convolutions, and convolutions over an image with inserted zeros,
    where factors are whole."""
    upsample: Literal["copies", "indices"] = "copies"
    """tpu.Upsample in a layer group copies its operand to every place of a cell, and alone in global memory; or gathers
    it by a constant table of indices, and alone is computed in tiles."""
    nms: bool = True
    """Non-maximum suppression; else a network that has it is refused."""
    on_host: tuple[str, ...] = ()
    """Top ops without an integer form here, as in "top.Interp", that the host computes, in f32."""
    without_relu: tuple[str, ...] = ()
    """Top ops, as in "top.MaxPool", whose relu is an op of its own."""


class LocalRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which ops work in local memory (layer_group.md 2)."""

    global_only: tuple[str, ...] = ()
    """Ops without a local form that other chips have, as in "tpu.Sub"."""
    moving_transfer_bytes: int = 0
    """A load or store of a group whose first slice has so many bytes does the work of Permutes and views beside it,
    where one command can; 0: none does."""
    moving_transfers: int = 1
    """A load does so too where it takes at most so many commands, of `moving_transfer_bytes` each on average."""
