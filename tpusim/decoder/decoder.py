"""What the runtime does around the nets of a decoder: masks, positions, and caches that grow in place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tpusim.decoder.nets import BlockNet, block_nets
from tpusim.errors import ConfigError, SimulationError
from tpusim.numbers.persistent import Signature, numbers_of

HIDDEN = -10000.0
"""The mask's value for keys that a token does not see; BF16 rounds it to -9984."""


class Runs(Protocol):
    """A session: nets that run on tensors that stay; of the machine or flat."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the nets."""
        ...

    def signature(self, net: str) -> Signature:
        """Types and shapes of the inputs and results of a net."""
        ...

    def run(self, net: str, inputs: Mapping[str, np.ndarray]) -> Any:
        """Tensors by name, or an object that has them as `tensors`."""
        ...

    def read(self, name: str) -> np.ndarray:
        """The values of a persistent tensor."""
        ...

    def write(self, name: str, values: np.ndarray, at: int = 0, axis: int = 1) -> None:
        """Store values from a position on."""
        ...

    def clear(self) -> None:
        """Zero in all persistent tensors."""
        ...


@dataclass(frozen=True)
class Step:
    """What a net computed for `count` tokens after `at` cached ones. new: keys and values of these tokens, in turn."""

    net: BlockNet
    at: int
    count: int
    states: np.ndarray
    """(count, hidden)."""
    new: tuple[np.ndarray, ...]
    tensors: Mapping[str, np.ndarray]


class Decoder:
    """The blocks of a language model on a session, with one sequence in their caches.

    `feed` takes any number of tokens: with empty caches that is a prefill, later a chunk, and one token is a decode. It
    runs the net with the fewest rows that takes all of them, or several nets in turn if none does. `clear` begins a new
    sequence.
    """

    def __init__(self, session: Runs, nets: Sequence[str] = ()) -> None:
        """nets: those to use, () for all of the session."""
        if not hasattr(session, "signature"):
            raise ConfigError(f"session: one of tpusim.Session(nets) is required, got {type(session).__name__}")
        self.session = session
        self.layers = block_nets({name: session.signature(name) for name in nets or session.names})
        self.length = 0
        self.written: dict[str, int] = {}
        """Cache -> how many tokens of the sequence it has."""
        self.clear()

    def __repr__(self) -> str:
        """Layers, cached tokens and capacity."""
        return f"<Decoder of {len(self.layers)} layers: {self.length} of {self.capacity} tokens>"

    @property
    def capacity(self) -> int:
        """The most tokens of a sequence: those of the caches; without caches, those of the longest net."""
        return min(
            max((net.history for net in nets), default=0) or max(net.rows for net in nets)
            for nets in self.layers.values()
        )

    def clear(self) -> None:
        """Forget all tokens of the sequence."""
        self.session.clear()
        self.written.clear()
        self.length = 0

    def feed(self, states: np.ndarray) -> np.ndarray:
        """Hidden states (n, hidden) of the next tokens -> the states after the last block.

        Raises ConfigError for more tokens than the caches have room for, and if no net takes them.
        """
        rows = numbers_of("states", states)
        if rows.ndim != 2 or not len(rows):  # noqa: PLR2004  tokens and hidden
            raise ConfigError(f"states: an array (tokens, hidden) is required, got {rows.shape}")
        self.require_room(len(rows))
        found: list[np.ndarray] = []
        while len(rows):
            found.append(self._piece(rows))
            rows = rows[len(found[-1]) :]
        return np.concatenate(found)

    def require_room(self, count: int) -> None:
        """Raise ConfigError if so many more tokens do not fit into the caches."""
        if self.length + count > self.capacity:
            raise ConfigError(
                f"sequence: at most {self.capacity} tokens are required, the history of the nets, got "
                f"{self.length + count}; clear() begins a new sequence, or compile nets with a longer history"
            )

    def _piece(self, rows: np.ndarray) -> np.ndarray:
        """The next tokens through all blocks, as many as one net takes."""
        first, *others = self.layers
        net, count = self.choose(first, self.length, len(rows))
        states = self.step(net, self.length, rows[:count]).states
        for layer in others:
            net, possible = self.choose(layer, self.length, count)
            if possible < count:
                raise ConfigError(
                    f"layer {layer}: a net for {count} tokens after {self.length} is required, as layer {first} has; "
                    f"'{net.name}' takes {possible}"
                )
            states = self.step(net, self.length, states).states
        self.length += count
        return states

    def choose(self, layer: int, at: int, most: int) -> tuple[BlockNet, int]:
        """The net of a layer for the next tokens, and how many of them it takes. Raises ConfigError if there is none.

        Of nets that take all of them, the one with the fewest rows and the shortest history.
        """
        able = [(net.takes(at, most), net) for net in self.layers[layer]]
        count = max(taken for taken, _ in able)
        if not count:
            listed = "; ".join(
                f"'{n.name}' {n.rows} after {'exactly ' * (n.mask is None and n.history > 0)}{n.history}"
                for _, n in able
            )
            raise ConfigError(f"layer {layer}: no net takes tokens after {at} cached ones; there are {listed}")
        nets = [net for taken, net in able if taken == count]
        return min(nets, key=lambda net: (net.rows, net.history)), count

    def step(self, net: BlockNet, at: int, states: np.ndarray, *, padding: float | np.ndarray = 0.0) -> Step:
        """Run one net for tokens after `at` cached ones, and append their keys and values.

        padding: the states of the rows that have no token. Raises SimulationError if a token sees a key that nothing
        has written.
        """
        count = len(states)
        inputs: dict[str, np.ndarray] = {net.states: self.rows(net, states, padding)}
        if net.mask is not None:
            inputs[net.mask] = self.mask(net, at, count)
        if net.positions is not None:
            inputs[net.positions] = self.positions(net, at, count)
        self._require_written(net, inputs.get(net.mask or ""), at, count)
        found = self.session.run(net.name, inputs)
        tensors: Mapping[str, np.ndarray] = getattr(found, "tensors", found)
        place = tuple(slice(None) if i != net.axis else slice(-net.rows, None) for i in range(net.axis + 1))
        rows = tuple(slice(None) if i != net.axis else slice(count) for i in range(net.axis + 1))
        new = tuple(tensors[name][place][rows] for name in net.new)
        for cache, values in zip(net.caches, new, strict=True):
            self.append(cache, values, at, net.axis)
        result = tensors[net.result]
        return Step(net, at, count, result.reshape(-1, result.shape[-1])[:count], new, tensors)

    def append(self, cache: str, values: np.ndarray, at: int, axis: int) -> None:
        """Write keys or values of new tokens to their place in a cache, if a net reads it."""
        if self.keeps(cache):
            self.session.write(cache, values, at, axis)
            self.written[cache] = at + values.shape[axis]

    def keeps(self, cache: str) -> bool:
        """Whether a net reads a cache; without a reader the cache does not exist."""
        return any(cache in net.caches and net.past for nets in self.layers.values() for net in nets)

    def rows(self, net: BlockNet, states: np.ndarray, padding: float | np.ndarray) -> np.ndarray:
        """Hidden states in the shape of the net's input: rows of tokens, then rows of padding."""
        shape = self.session.signature(net.name)[0][net.states][1]
        full = np.full((net.rows, shape[-1]), padding, np.float32)
        if states.shape[-1] != shape[-1]:
            raise ConfigError(f"states: {shape[-1]} numbers for each token are required, got {states.shape[-1]}")
        full[: len(states)] = states
        return full.reshape(shape)

    def mask(self, net: BlockNet, at: int, count: int) -> np.ndarray:
        """0 for the keys that a token sees: all cached ones, and the new ones up to itself; else -10000.

        New keys follow the whole history, even if it is not full.
        """
        seen = np.concatenate(
            [
                np.broadcast_to(np.arange(net.history) < at, (net.rows, net.history)),
                np.tri(net.rows, dtype=np.bool_),
            ],
            axis=1,
        )
        shape = self.session.signature(net.name)[0][net.mask or ""][1]
        return np.broadcast_to(np.where(seen, np.float32(0), np.float32(HIDDEN)), shape).copy()

    def positions(self, net: BlockNet, at: int, count: int) -> np.ndarray:
        """The positions of the tokens in their sequence; 0 for rows without one."""
        found = np.zeros(net.rows, np.int32)
        found[:count] = at + np.arange(count)
        return found.reshape(self.session.signature(net.name)[0][net.positions or ""][1])

    def _require_written(self, net: BlockNet, mask: np.ndarray | None, at: int, count: int) -> None:
        if not net.history:
            return
        seen = np.ones(net.history, np.bool_)
        if mask is not None:
            rows = mask.reshape(-1, *mask.shape[-2:])[:, :count, : net.history].reshape(-1, net.history)
            seen = np.asarray((rows > HIDDEN / 2).max(axis=0), np.bool_)
        for cache in net.caches:
            written = self.written.get(cache, 0)
            if seen[written:].any():
                first = written + int(np.flatnonzero(seen[written:])[0])
                raise SimulationError(
                    f"net '{net.name}' at position {at}: reads position {first} of cache '{cache}', which nothing has "
                    f"written ({written} are); correct the mask, or feed the tokens before it"
                )
