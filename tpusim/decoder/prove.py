"""All ways to the same tokens agree: prefill, chunks, and one token after another.

Layer by layer, and for the same hidden states on every way, each net runs wherever it may stand in a sequence. Keys and
values must be the same bits on all ways; by induction, so are the caches that later tokens read. Queries must be equal
too. The result of attention and the states after the block must be equal if the blocks of keys are
(`tpusim.decoder.partition`). If the blocks differ, attention must be what its blocks give, may differ by what roundings
of probabilities can change, and the states follow from it. Rows and cache positions without a token have other random
numbers on every way, so that a read of them changes the result.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np

from tpusim.decoder.decoder import Decoder, Step
from tpusim.decoder.nets import BlockNet
from tpusim.decoder.partition import (
    Partition,
    attentions,
    bound,
    is_near,
    keys_first,
    mixed_by,
    partition,
    rounding,
    rows_of,
    shown,
)
from tpusim.errors import ConfigError, SimulationError, option
from tpusim.simulator.session import Session

CHUNKS = "chunks of "
STATES = 32
"""How many roundings of their norm the states after a block may differ by if blocks of keys differ. Decision: attention
has a strict bound; this loose one catches gross faults after it."""


@dataclass(frozen=True)
class Token:
    """What one way gives for one token of a layer. exact: tensors that are equal on all ways, by name."""

    way: str
    net: str
    exact: dict[str, np.ndarray]
    attention: tuple[np.ndarray | None, ...]
    states: np.ndarray
    keys: tuple[Partition, ...]


@dataclass(frozen=True)
class Fault:
    """Two ways that do not agree, at the first tensor that differs."""

    token: int
    layer: int
    tensor: str
    way: str
    other: str
    why: str

    def __str__(self) -> str:
        """The difference in one sentence."""
        return f"token {self.token}, layer {self.layer}, {self.tensor}: {self.way} is not {self.other}: {self.why}"


@dataclass(frozen=True)
class Case:
    """A sequence of n tokens by prefill, in chunks of c, and token by token.

    equal: tokens that are equal in every bit on all ways, of all layers; apart: token -> how its blocks of keys differ.
    """

    tokens: int
    chunk: int
    ways: tuple[str, ...]
    equal: int
    apart: dict[int, str]
    fault: Fault | None

    @property
    def passed(self) -> bool:
        """Whether no fault was observed."""
        return self.fault is None


@dataclass
class Agreement:
    """The cases of a decoder, and how far the ways lie apart where blocks of keys differ."""

    cases: list[Case] = field(default_factory=list[Case])
    compared: int = 0
    """How often a token of a layer was compared with the first way to it."""
    largest: float = 0.0
    """The largest difference of an attention's result, as a share of what is allowed."""
    apart: Counter[str] = field(default_factory=Counter[str])
    """Nets with their blocks of keys -> how many tokens of a pair of runs differ because of them."""

    @property
    def passed(self) -> bool:
        """Whether there are cases, and none has a fault."""
        return bool(self.cases) and all(case.passed for case in self.cases)

    @property
    def faults(self) -> list[Fault]:
        """The faults of all cases, each once."""
        return list(dict.fromkeys(case.fault for case in self.cases if case.fault is not None))

    def to_json(self) -> dict[str, Any]:
        """Counts, faults, and the pairs of partitions that differ."""
        return {
            "passed": self.passed,
            "cases": len(self.cases),
            "compared": self.compared,
            "failed": sum(not case.passed for case in self.cases),
            "equal": sum(not case.apart and case.passed for case in self.cases),
            "apart": dict(self.apart.most_common()),
            "largest_share_of_bound": self.largest,
            "faults": [str(fault) for fault in self.faults],
        }


def prove(decoder: Decoder, *, seed: int = 0, most: int = 0, chunks: Sequence[int] = ()) -> Agreement:
    """Compare all ways for every length at an edge. most: the longest sequence, 0: the capacity.

    chunks: lengths of chunks; default: what the nets take, one less, and half. Raises ConfigError for a decoder that
    has one way only, and for lengths that it has no room for.
    """
    if not 0 <= most <= decoder.capacity:
        raise ConfigError(
            f"{option('most', most)}: 0 to {decoder.capacity} are required, which the caches have room for; 0 takes "
            "as many as there is room for"
        )
    if any(chunk < 1 for chunk in chunks):
        raise ConfigError(f"{option('chunks', ' '.join(map(str, chunks)))}: numbers of 1 or more are required")
    return _Proof(decoder, np.random.RandomState(seed)).run(most or _longest(decoder), chunks)


def _longest(decoder: Decoder) -> int:
    """The most tokens that some net can compute."""
    alone = [max((n.rows for n in nets if not n.history), default=0) for nets in decoder.layers.values()]
    return decoder.capacity if any(n.history for nets in decoder.layers.values() for n in nets) else min(alone)


def edges(decoder: Decoder, blocks: Iterable[int], lanes: int, most: int) -> list[int]:
    """Lengths of sequences around which something changes: 1, lanes, rows and histories of nets, blocks of keys."""
    sizes = {1, lanes, most, *blocks}
    for nets in decoder.layers.values():
        sizes |= {size for net in nets for size in (net.rows, net.history) if size}
    return sorted({n for size in sizes for n in (size - 1, size, size + 1) if 1 <= n <= most})


class _Proof:
    """One proof: what was computed so far, so that no piece of a sequence is run twice."""

    def __init__(self, decoder: Decoder, random: np.random.RandomState) -> None:
        session = decoder.session
        if not isinstance(session, Session):
            raise ConfigError("prove: a decoder on the machine is required, whose programs say the blocks of keys")
        self.decoder, self.random = decoder, random
        self.session = session
        self.attentions = {
            net.name: found if 2 * len(found) == len(net.new) else ()
            for nets in decoder.layers.values()
            for net in nets
            for found in (attentions(session.nets[net.name]),)
        }
        self.found = Agreement()

    def run(self, most: int, chunks: Sequence[int]) -> Agreement:
        net = next(iter(self.decoder.layers.values()))[0]
        width = self.session.signature(net.name)[0][net.states][1][-1]
        states = self.random.randn(most, width).astype(np.float32)
        chunked = tuple(chunks) or self._usual_chunks(most)
        lengths = edges(self.decoder, self._block_edges(), self.session.nets.first.header.chip_spec.lanes, most)
        cases = [(n, c) for n in lengths for c in chunked if c <= n or c == min(chunked)]
        results = {case: list[_Layer]() for case in cases}
        for layer in self.decoder.layers:
            proof = _LayerProof(self, layer, states)
            for case in cases:
                results[case].append(proof.case(*case))
            states = proof.reference_states()
            if proof.fault is not None:
                break
        chunks_there = any(_continues(net) for nets in self.decoder.layers.values() for net in nets)
        compared = {
            case: layers
            for case, layers in results.items()
            if len(layers[0].ways) > 1 and (not chunks_there or any(way.startswith(CHUNKS) for way in layers[0].ways))
        }
        if not compared:
            raise ConfigError(
                "prove: two ways to the same tokens are required, such as a net for prefill and one for decode "
                f"with a history of {most} tokens; these nets give one"
            )
        self.found.cases = [_joined_case(case, layers) for case, layers in compared.items()]
        return self.found

    def _usual_chunks(self, most: int) -> tuple[int, ...]:
        rows = {net.rows for nets in self.decoder.layers.values() for net in nets if net.history and net.rows > 1}
        return tuple(sorted({c for r in rows for c in (r, r - 1, r // 2) if 1 < c <= most})) or (1,)

    def _block_edges(self) -> Iterator[int]:
        for found in self.attentions.values():
            for attention in found:
                yield from np.cumsum(attention.blocks).tolist()


@dataclass(frozen=True)
class _Layer:
    """A case in one layer."""

    ways: tuple[str, ...]
    equal: frozenset[int]
    apart: dict[int, str]
    fault: Fault | None


def _joined_case(case: tuple[int, int], layers: Sequence[_Layer]) -> Case:
    apart: dict[int, str] = {}
    for one in layers:
        apart |= {token: text for token, text in one.apart.items() if token not in apart}
    equal = frozenset[int].intersection(*(one.equal for one in layers)) if layers else frozenset[int]()
    fault = next((one.fault for one in layers if one.fault is not None), None)
    return Case(*case, layers[0].ways if layers else (), len(equal), apart, fault)


class _LayerProof:
    """The nets of one layer on one sequence of hidden states."""

    def __init__(self, proof: _Proof, layer: int, states: np.ndarray) -> None:
        self.decoder, self.session, self.attentions = proof.decoder, proof.session, proof.attentions
        self.random, self.found = proof.random, proof.found
        self.layer, self.states = layer, states
        self.nets = proof.decoder.layers[layer]
        self.tokens: dict[int, Token] = {}
        """The first way to each token, which the others are compared with."""
        self.keys: dict[str, list[np.ndarray]] = {cache: [] for cache in self.nets[0].caches}
        self.done: dict[tuple[str, int, int], tuple[dict[int, str], frozenset[int], Fault | None]] = {}
        self.fault: Fault | None = None

    def reference_states(self) -> np.ndarray:
        """The states after the block, on the first way to each token."""
        known = [self.tokens[t].states for t in range(len(self.tokens)) if t in self.tokens]
        return np.stack(known).astype(np.float32) if known else self.states

    def case(self, tokens: int, chunk: int) -> _Layer:
        """All ways to a sequence; the first one is what the others are compared with."""
        ways = {
            f"prefill of {tokens}": self._prefill(tokens),
            f"{CHUNKS}{chunk}": self._pieces(tokens, chunk, _continues),
            "decode": self._pieces(tokens, 1, _decodes),
        }
        apart, unequal, fault = dict[int, str](), set[int](), self.fault
        walked = {name: pieces for name, pieces in ways.items() if pieces}
        for name, pieces in walked.items():
            for net, at, count in pieces:
                if fault is not None:
                    break
                differ, other, fault = self._piece(name, net, at, count)
                apart |= differ
                unequal |= other
        self.fault = fault
        return _Layer(tuple(walked), frozenset(range(tokens)) - unequal, apart, fault)

    def _prefill(self, tokens: int) -> list[tuple[BlockNet, int, int]]:
        able = [net for net in self.nets if not net.history and net.rows >= tokens]
        return [(net, 0, tokens) for net in able]

    def _pieces(self, tokens: int, chunk: int, kind: Callable[[BlockNet], bool]) -> list[tuple[BlockNet, int, int]]:
        """Runs of the nets of a kind, for every chunk that a net can take; other chunks are left out."""
        found: list[tuple[BlockNet, int, int]] = []
        for at in range(0, tokens, chunk):
            count = min(chunk, tokens - at)
            found += [(net, at, count) for net in self.nets if kind(net) and net.takes(at, count) == count]
        return found

    def _piece(
        self, way: str, net: BlockNet, at: int, count: int
    ) -> tuple[dict[int, str], frozenset[int], Fault | None]:  # fmt: skip
        """Run a net on tokens of the sequence, and compare them with the first way to each."""
        key = net.name, at, count
        known = all(len(rows) >= at for rows in self.keys.values()) and at + count <= len(self.states)
        if not known:
            return {}, frozenset(), None  # the earlier tokens are not known yet; a longer prefill or decode gives them
        if key not in self.done:
            self.done[key] = self._compared(way, net, at, count)
        return self.done[key]

    def _compared(
        self, way: str, net: BlockNet, at: int, count: int
    ) -> tuple[dict[int, str], frozenset[int], Fault | None]:  # fmt: skip
        self._fill(net, at)
        padding = self.random.randn(net.rows, self.states.shape[-1])
        try:
            step = self.decoder.step(net, at, self.states[at : at + count], padding=padding)
        except SimulationError as error:  # the session's checks know more than a comparison would
            label = f"{way} ('{net.name}' after {at})"
            return {}, frozenset(), Fault(at, self.layer, "cached keys", label, "computed", str(error))
        apart, unequal = dict[int, str](), set[int]()
        for row in range(count):
            token = self._token(way, step, row)
            first = self.tokens.setdefault(at + row, token)
            if first is token:
                self._remember(step, row)
            fault, text = (None, "") if first is token else self._agree(at + row, first, token)
            self.found.compared += first is not token
            if fault is None and (first is token or text):
                fault = self._unlike_its_blocks(at + row, token)
            if fault is not None:
                return apart, frozenset(unequal), fault
            if text:
                unequal.add(at + row)
                apart[at + row] = text
        return apart, frozenset(unequal), self._cache_fault(way, step)

    def _fill(self, net: BlockNet, at: int) -> None:
        """The caches as they are after `at` tokens, and numbers of another sequence after them."""
        if not net.past:
            return
        for cache in net.caches:
            shape = self.session.shape(cache)
            self.decoder.written[cache] = 0
            stale = self.random.randn(*shape).astype(np.float32)
            self.session.write(cache, stale, 0, net.axis)
            if at:
                self.decoder.append(cache, np.stack(self.keys[cache][:at], axis=net.axis), 0, net.axis)
        self.decoder.length = at

    def _token(self, way: str, step: Step, row: int) -> Token:
        net = step.net
        names = (f"{kind}{i // 2 or ''}" for i, kind in enumerate(("keys", "values") * (len(step.new) // 2)))
        exact = {name: np.take(new, row, net.axis) for name, new in zip(names, step.new, strict=True)}
        found = self.attentions[net.name]
        mixed: list[np.ndarray | None] = []
        for number, one in enumerate(found):
            queries, result = (rows_of(step.tensors, name, net.rows) for name in (one.queries, one.result))
            if queries is not None:
                exact[f"queries{number or ''}"] = queries[row]
            mixed.append(None if result is None else result[row])
        blocks = [one.blocks for one in found] or [()]
        keys = tuple(partition(net, sizes, step.at, row) for sizes in blocks)
        return Token(f"{way} ('{net.name}' after {step.at})", net.name, exact, tuple(mixed), step.states[row], keys)

    def _remember(self, step: Step, row: int) -> None:
        for cache, new in zip(step.net.caches, step.new, strict=True):
            self.keys[cache].append(np.take(new, row, step.net.axis))

    def _agree(self, number: int, first: Token, other: Token) -> tuple[Fault | None, str]:
        """A fault, or how the blocks of keys differ where the bits do."""

        def fault(tensor: str, why: str) -> tuple[Fault, str]:
            return Fault(number, self.layer, tensor, other.way, first.way, why), ""

        pairs = list(zip(first.keys, other.keys, strict=False))
        text = "; ".join(f"{shown(a)} against {shown(b)}" for a, b in pairs if a != b)
        mixed = list(zip(first.attention, other.attention, strict=False))
        for index in range(len(self.keys) // 2):
            for name in (f"{kind}{index or ''}" for kind in ("keys", "values", "queries")):
                if name in first.exact and name in other.exact and not _same(first.exact[name], other.exact[name]):
                    return fault(name, f"{_difference(first.exact[name], other.exact[name])}, and must be equal")
            a, b = mixed[index] if index < len(mixed) else (None, None)
            if a is not None and b is not None and not _same(a, b):
                why = _difference(a, b)
                if not text:
                    return fault("attention", f"{why}, and must be equal: both add up keys {shown(first.keys[index])}")
                share = self._share(number, index, a, b, first.net)
                self.found.largest = max(self.found.largest, share)
                if not share <= 1:
                    return fault("attention", f"{why}, {share:.1f} times what other blocks of keys explain ({text})")
                break  # what follows in the net depends on it
            if (a is None or b is None) and text:
                break
        if _same(first.states, other.states):
            return None, ""
        known = [a is not None and b is not None for a, b in mixed]
        equal = bool(known) and all(known) and all(_same(a, b) for a, b in mixed if a is not None and b is not None)
        if not text or equal:
            why = "attention is equal" if equal else f"both add up keys {shown(first.keys[0])}"
            return fault("states", f"{_difference(first.states, other.states)}, and must be equal: {why}")
        share = self._share_of_states(first, other)
        if not share <= 1:
            why = _difference(first.states, other.states)
            return fault("states", f"{why}, {share:.1f} times what other blocks of keys explain ({text})")
        self.found.apart[" against ".join(map(self._blocks_of, (first.net, other.net)))] += 1
        return None, text

    def _share_of_states(self, first: Token, other: Token) -> float:
        """The relative difference of states as a share of `STATES` roundings."""
        units = [rounding(one.narrow) for net in (first.net, other.net) for one in self.attentions[net]]
        gap, size = (np.linalg.norm(x.astype(np.float64)) for x in (first.states - other.states, first.states))
        return float(np.nan_to_num(gap / (STATES * max(units, default=rounding("bf16")) * size), nan=np.inf))

    def _blocks_of(self, net: str) -> str:
        """A net with the blocks of keys of its attention."""
        blocks = [_counted(one.blocks) for one in self.attentions[net]]
        return f"'{net}' in key blocks {', '.join(blocks)}"

    def _unlike_its_blocks(self, number: int, token: Token) -> Fault | None:
        """The fault of a way whose attention is not what its blocks of keys give; None without one."""
        net = next(one for one in self.nets if one.name == token.net)
        for index, (attention, mixed) in enumerate(zip(self.attentions[net.name], token.attention, strict=True)):
            queries = token.exact.get(f"queries{index or ''}")
            names = zip(("keys", "values"), net.caches[2 * index : 2 * index + 2], strict=True)
            if not all(_same(token.exact[f"{kind}{index or ''}"], self.keys[cache][number]) for kind, cache in names):
                break  # an earlier attention of the net differs already
            if queries is None or mixed is None or not attention.blocks:
                continue
            shape = (-1, net.heads[-1])
            keys, values = (self._cached(net, 2 * index + i, number + 1) for i in (0, 1))
            expected = mixed_by(attention, queries.reshape(shape), keys, values, token.keys[index])
            got = mixed.astype(np.float32).reshape(shape)
            if not is_near(got, expected, values, attention.narrow):
                blocks = shown(token.keys[index])
                why = f"{_difference(expected, got)}, which these keys do not explain"
                return Fault(number, self.layer, "attention", token.way, f"that of keys {blocks}", why)
        return None

    def _cached(self, net: BlockNet, which: int, count: int) -> np.ndarray:
        """Keys or values of the first tokens, (count, heads, size)."""
        rows = self.keys[net.caches[which]][:count]
        return np.stack([_by_heads(one, net) for one in rows]).astype(np.float32)

    def _share(self, number: int, index: int, a: np.ndarray, b: np.ndarray, net: str) -> float:
        """The largest difference as a share of the bound."""
        of = next(one for one in self.nets if one.name == net)
        values = self._cached(of, 2 * index + 1, number + 1)
        heads = a.size // of.heads[-1]
        limit = bound(values, self.attentions[net][index].narrow, heads)
        gap = np.abs(a.astype(np.float64) - b.astype(np.float64)).reshape(limit.shape)
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.nan_to_num(np.where(gap == 0, 0, gap / limit), nan=np.inf).max())

    def _cache_fault(self, way: str, step: Step) -> Fault | None:
        """Whether the caches have the earlier keys and values, and the new ones after them."""
        net = step.net
        for index, (cache, new) in enumerate(zip(net.caches, step.new, strict=True)):
            if not self.decoder.keeps(cache):
                continue
            content = self.session.read(cache)
            wanted = [*self.keys[cache][: step.at], *(np.take(new, row, net.axis) for row in range(step.count))]
            for token, rows in enumerate(wanted):
                got = np.take(content, token, net.axis)
                if not _same(got, rows):
                    tensor = f"cached {('keys', 'values')[index % 2]}"
                    why = f"{_difference(rows, got)}: position {token} of '{cache}' has other numbers"
                    label = f"{way} ('{net.name}' after {step.at})"
                    return Fault(token, self.layer, tensor, label, "what it computed", why)
        return None


def _continues(net: BlockNet) -> bool:
    """Whether a net takes a chunk after cached tokens."""
    return net.history > 0 and net.rows > 1


def _decodes(net: BlockNet) -> bool:
    """Whether a net takes one token after cached ones."""
    return net.history > 0 and net.rows == 1


def _counted(blocks: Sequence[int]) -> str:
    """Sizes of blocks: "4x16+1"."""
    parts = [(size, len(list(same))) for size, same in groupby(blocks)]
    return "+".join(f"{count}x{size}" if count > 1 else str(size) for size, count in parts) or "of all keys"


def _by_heads(rows: np.ndarray, net: BlockNet) -> np.ndarray:
    return keys_first(net, np.expand_dims(rows, net.axis))[0]


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bits; zeros of both signs are equal."""
    return a.shape == b.shape and bool(np.array_equal(a, b))


def _difference(a: np.ndarray, b: np.ndarray) -> str:
    """How many numbers differ, and by how much."""
    gap = np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64))
    return f"{int(np.count_nonzero(a != b)):,} of {a.size:,} numbers differ, by up to {np.nanmax(gap):.3g}"
