"""Merges nodes that compute the same as an earlier node.

The real front end merges them before it reads the graph, which affects fusion: a Relu is not fused into an Add that two
nodes read.
"""

import hashlib
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

import numpy as np
import onnx

from tpusim.frontend.onnx.model_file import LARGE

SOME = 1024
"""Number of elements of a large constant that are compared first."""


@dataclass
class Duplicates:
    """The nodes without attributes seen so far, and the outputs that stand for those of later equal ones.

    Equal nodes have the same op type and the same inputs: constants of equal content, or tensors of the same name.
    Names are those of the graph, so equal nodes after equal nodes are not merged here (canonicalisation merges them
    after its patterns, U-18). A node whose result the graph returns keeps its name and is not merged into
    another; later nodes may be merged into it.
    """

    returned: frozenset[str]
    merged: dict[str, str] = field(default_factory=dict[str, str])
    _seen: dict[Hashable, tuple[str, ...]] = field(default_factory=dict[Hashable, tuple[str, ...]])
    _large: dict[Hashable, list[np.ndarray]] = field(default_factory=dict[Hashable, list[np.ndarray]])

    def merge(self, node: onnx.NodeProto, constant: Callable[[str], np.ndarray | None], inputs: Iterable[str]) -> bool:
        """Merge a node into an earlier equal one if there is any, and return whether; inputs: names before Identity."""
        if node.attribute:
            return False
        key = (node.domain, node.op_type, len(node.output), *(self._content(name, constant) for name in inputs))
        kept = self._seen.setdefault(key, tuple(node.output))
        if kept == tuple(node.output) or not self.returned.isdisjoint(node.output):
            return False
        self.merged |= dict(zip(node.output, kept, strict=True))
        return True

    def _content(self, name: str, constant: Callable[[str], np.ndarray | None]) -> Hashable:
        """The name of a computed tensor, or the content of a constant."""
        array = constant(name) if name else None
        if array is None:
            return name
        kind = array.dtype.str, array.shape
        if array.nbytes < LARGE:
            return *kind, hashlib.blake2b(np.ascontiguousarray(array).tobytes()).digest()
        # some elements of a large constant: constants that have these in common are then compared
        part = *kind, array.reshape(-1)[:: array.size // SOME].tobytes()
        known = self._large.setdefault(part, [])
        number = next((i for i, other in enumerate(known) if _same(array, other)), len(known))
        if number == len(known):
            known.append(array)
        return *part, number


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether arrays of one type and shape have the same bytes."""
    one, other = (np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (a, b))
    return bool(np.array_equal(one, other))
