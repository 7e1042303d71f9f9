"""Differences of the compiler between chips: the forms of ops, and which ops work in local memory.

Tables of a chip's file. The defaults are the 1684X family's. Sections are those of docs/spec/numerics.md and, for
`LocalRules`, of docs/spec/layer_group.md.
"""

import msgspec


class FloatOnly(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An op that has integer forms on other chips, or that follows decisions about one chip."""

    op: str
    """The op's name in the IR, as in "top.Compare"."""
    why: str
    """The reason that users read."""
    decisions: tuple[str, ...] = ()
    """The decisions that it follows, as in "DN-13"; none: the specification says so."""


class IntegerRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which ops compute on quantised integers."""

    float_only: tuple[FloatOnly, ...] = ()
    """Ops without an integer form on this chip, in addition to those of its family (9.0, 10, 12.1)."""


class OpForms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which forms of ops a chip has; the compiler replaces the forms that it lacks (U-45)."""

    attention: bool = False
    """A block of attention is a tpu.Attention for each head; else products, softmax and Permutes."""
    flash_attention: bool = False
    """Attention in 16 bits is one tpu.FAttention for all heads."""
    grouped_attention: bool = False
    """Attention in 16 bits with fewer heads of keys than of queries is one tpu.FAttention."""
    patch_products: int = 0
    """A convolution of up to 3 channels with adjacent windows of at least 14 and fewer than this many rows and columns
    becomes a product with a row for each patch."""
    whole_image_products: tuple[str, ...] = ()
    """Float types, as in "bf16", in which a convolution of one group whose window is its whole image is a product."""
    on_host: tuple[str, ...] = ()
    """Top ops without an integer form on this chip, as in "top.Interp", that the host computes, in f32, in addition to
    those of its family."""


class LocalRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which ops work in local memory (layer_group.md 2)."""

    global_only: tuple[str, ...] = ()
    """Ops whose local form this chip lacks, as in "tpu.Sub", in addition to those of its family."""
    moving_transfer_bytes: int = 0
    """A load or store of a group also does the work of adjacent Permutes and views if its first slice has at least this
    many bytes and one command is enough; 0: none does."""
    moving_transfers: int = 1
    """A load also does so if it takes at most this many commands, with `moving_transfer_bytes` each on average."""
