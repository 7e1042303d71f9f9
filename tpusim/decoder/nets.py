"""What the nets of a decoder are, by the names and shapes of their tensors.

A block has hidden states, new keys and new values among its tensors, as exporters of language models write them:
`input_states, position_ids, attention_mask, history_k, history_v` to `output_states, k_cache, v_cache`, or
`past_key_values.0.key` to `present.0.key`. Keys and values are (1, n, heads, size) or (1, heads, n, size). A number in
the net's name is its layer. Nets without new keys and values, such as an embedding, are no blocks and are left out.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tpusim.errors import ConfigError
from tpusim.numbers.persistent import Signature, Tensors

KEYS, VALUES = frozenset({"k", "key", "keys"}), frozenset({"v", "value", "values"})
"""Words in a name that mark a tensor of keys or of values; the last such word counts."""
_RANK = 4
_SEQUENCE_AXES = (1, 2)
"""The possible axes of a cache's tokens: (1, n, heads, size) or (1, heads, n, size)."""


@dataclass(frozen=True)
class BlockNet:
    """One net of a block. rows: tokens of a run; history: cached tokens that it reads, 0: none.

    past, new: keys and values of each of its attentions in turn: inputs, and results, whose last `rows` tokens are new.
    mask: None: causal in itself, and every cached token is seen. axis: of the tokens in past and new.
    """

    name: str
    layer: int
    rows: int
    history: int
    states: str
    result: str
    mask: str | None
    positions: str | None
    past: tuple[str, ...]
    new: tuple[str, ...]
    axis: int
    heads: tuple[int, ...]
    """The extents of a cache without the axis of the tokens."""

    @property
    def caches(self) -> tuple[str, ...]:
        """The persistent tensors of keys and values, in the order of `new`."""
        several = len(self.new) > 2  # noqa: PLR2004  keys and values
        return tuple(f"{'kv'[i % 2]}_{self.layer}{f'_{i // 2}' if several else ''}" for i in range(len(self.new)))

    def takes(self, at: int, most: int) -> int:
        """How many of `most` tokens it can compute after `at` cached ones; 0: none."""
        exact = self.mask is None and self.history
        if (at != self.history) if exact or not self.history else (at > self.history):
            return 0
        return min(self.rows, most)


def block_nets(signatures: Mapping[str, Signature]) -> dict[int, tuple[BlockNet, ...]]:
    """Layer -> the nets of its block, by number. Raises ConfigError for nets that are no decoder."""
    found: dict[int, list[BlockNet]] = {}
    for name, signature in signatures.items():
        net = _block_net(name, *signature)
        if net is not None:
            found.setdefault(net.layer, []).append(net)
    if not found:
        raise ConfigError(
            f"nets {', '.join(signatures)}: a block of a decoder is required, with results for new keys and values "
            "(k_cache, v_cache, present_key ...) among its results; none of these nets has them"
        )
    for layer, nets in found.items():
        _require_one_kind(layer, nets)
    return {layer: tuple(found[layer]) for layer in sorted(found)}


def persistent_of(signatures: Mapping[str, Signature]) -> dict[str, dict[str, str]]:
    """Caches of a decoder: name -> net -> its input; {} if the nets are no decoder."""
    if not any(_block_net(name, *signature) for name, signature in signatures.items()):
        return {}
    found: dict[str, dict[str, str]] = {}
    for nets in block_nets(signatures).values():
        for net in nets:
            for cache, tensor in zip(net.caches, net.past, strict=False):
                found.setdefault(cache, {})[net.name] = tensor
    return found


def words(name: str) -> list[str]:
    """The words of a tensor's name: "past_key_values.0.key" has past, key, values, 0, key."""
    return [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]


def _kind(name: str) -> str:
    """`k` or `v` of a cache, "" of another tensor."""
    known = [word for word in words(name) if word in KEYS | VALUES]
    return "" if not known or "mask" in words(name) else "k" if known[-1] in KEYS else "v"


def _block_net(name: str, inputs: Tensors, results: Tensors) -> BlockNet | None:
    """The net as a block; None if it has no new keys and values. Raises ConfigError for a block of another form."""
    new, past = _pairs(name, results, "results"), _pairs(name, inputs, "inputs")
    if not new:
        return None
    if past and len(past) != len(new):
        raise ConfigError(
            f"net '{name}': a cached input for each of the results {', '.join(new)} is required, got {', '.join(past)}"
        )
    mask = [tensor for tensor in inputs if "mask" in words(tensor)]
    positions = [tensor for tensor in inputs if any(word.startswith("pos") for word in words(tensor))]
    states = [tensor for tensor in inputs if tensor not in (*past, *mask, *positions)]
    result = [tensor for tensor in results if tensor not in new]
    if (len(states), len(result)) != (1, 1) or max(len(mask), len(positions)) > 1:
        raise ConfigError(
            f"net '{name}': one input and one result of hidden states, at most one mask and one input of positions are "
            f"required; inputs are {', '.join(inputs)}, results {', '.join(results)}"
        )
    shape = inputs[states[0]][1]
    if len(shape) < 2 or any(len(results[tensor][1]) != _RANK for tensor in new):  # noqa: PLR2004
        raise ConfigError(
            f"net '{name}': states (1, n, hidden) and keys (1, n, heads, size) are required, got {shape} and "
            f"{results[new[0]][1]}"
        )
    rows, axis = shape[1], _axis(name, shape[1], inputs, past, results[new[0]][1])
    history = inputs[past[0]][1][axis] if past else 0
    _require_mask(name, [inputs[tensor][1] for tensor in mask], rows, history)
    first = results[new[0]][1]
    number = re.search(r"\d+", name)
    return BlockNet(
        name, int(number[0]) if number else 0, rows, history, states[0], result[0], mask[0] if mask else None,
        positions[0] if positions else None, past, new, axis, (*first[:axis], *first[axis + 1 :]),
    )  # fmt: skip


def _pairs(net: str, tensors: Tensors, what: str) -> tuple[str, ...]:
    """Keys and values, alternating. Raises ConfigError unless there are as many keys as values."""
    keys, values = ([name for name in tensors if _kind(name) == kind] for kind in "kv")
    if len(keys) != len(values):
        raise ConfigError(
            f"net '{net}': as many keys as values are required among its {what}, got keys {', '.join(keys) or '(none)'}"
            f" and values {', '.join(values) or '(none)'}"
        )
    return tuple(name for pair in zip(keys, values, strict=True) for name in pair)


def _axis(net: str, rows: int, inputs: Tensors, past: Sequence[str], new: tuple[int, ...]) -> int:
    """The axis of the tokens in keys and values."""
    for axis in _SEQUENCE_AXES:
        history = inputs[past[0]][1] if past else new
        rest = [a == b for i, (a, b) in enumerate(zip(history, new, strict=False)) if i != axis]
        if len(history) == _RANK and all(rest) and new[axis] in (rows, rows + history[axis] * bool(past)):
            return axis
    raise ConfigError(
        f"net '{net}': new keys of {rows} tokens are required, (1, {rows}, heads, size) like its cached ones, got {new}"
        + (f" and {inputs[past[0]][1]}" if past else "")
    )


def _require_mask(net: str, masks: Sequence[tuple[int, ...]], rows: int, history: int) -> None:
    for shape in masks:
        if shape[-2:] != (rows, history + rows):
            raise ConfigError(
                f"net '{net}': a mask (1, 1, {rows}, {history + rows}) is required, the new tokens after the cached "
                f"ones, got {shape}"
            )


def _require_one_kind(layer: int, nets: Sequence[BlockNet]) -> None:
    """Raise ConfigError for nets of one layer that cannot share their caches."""
    first = nets[0]
    for net in nets:
        if (net.axis, net.heads, len(net.new)) != (first.axis, first.heads, len(first.new)):
            raise ConfigError(
                f"layer {layer}: one shape of keys and values is required, '{first.name}' has {first.heads} per token, "
                f"'{net.name}' {net.heads}; give the nets of different blocks different numbers in their names"
            )
    lengths = {net.history for net in nets if net.history}
    if first.axis != _SEQUENCE_AXES[0] and len(lengths) > 1:
        raise ConfigError(
            f"layer {layer}: histories of one length are required for caches (1, heads, n, size), got "
            f"{', '.join(map(str, sorted(lengths)))}; export caches (1, n, heads, size), or nets with one length"
        )
