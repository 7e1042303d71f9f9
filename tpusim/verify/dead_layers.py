"""Layers that pass although most of their channels are dead: one large channel determines the cosine of a tensor."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from tpusim.host.threads import each
from tpusim.verify.channels import Channels, channels_of
from tpusim.verify.compare import Comparison, TensorResult
from tpusim.verify.similarity import Tensor, is_integer

DEAD_SHARE: Final = 0.25
"""A layer with at least this share of dead channels gets a warning."""


def with_channels(
    comparison: Comparison, stored: Mapping[str, Tensor], real: Mapping[str, Tensor], wanted: Mapping[str, Tensor]
) -> Comparison:
    """The same comparison with `channels` added to integer tensors.

    stored: the target's integers; real: the same dequantised; wanted: the reference.
    """

    def looked_at(tensor: TensorResult) -> TensorResult:
        own, found, reference = (arrays[tensor.name] for arrays in (stored, real, wanted))
        counts = is_integer(own.dtype) and found.size == reference.size
        return replace(tensor, channels=channels_of(own, found, reference)) if counts else tensor

    return replace(comparison, tensors=tuple(each(looked_at, comparison.tensors)))


def dead_layers(comparison: Comparison) -> Iterator[str]:
    """One line for every tensor that lost many of its channels, whatever its verdict."""
    for tensor in comparison.tensors:
        if tensor.channels is not None and _is_dead(tensor.channels):
            dead, count = tensor.channels.dead, tensor.channels.count
            yield (
                f"{dead} of {count} channels of {tensor.name} are zero in integers and not in float; its verdict "
                f"is {tensor.verdict}, cosine {tensor.cosine:.4f}"
            )


def _is_dead(channels: Channels) -> bool:
    return channels.lost > 0 and channels.lost >= DEAD_SHARE * channels.count
