"""Tensors of a board's or another tool's dump paired with tpusim's by names and shapes, and brought into its layout.

`npz_tool.py compare` pairs equal names only, and reads other shapes of as many elements in the order of their bytes.
`compare` always pairs a cast with the tensor that it casts (`renamed`), and the rest on request (`paired`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tpusim.verify.similarity import Tensor

CAST = re.compile(r"_(f32|f16|bf16|si8|ui8|si16|si32)$")
"""The suffix that the compiler appends to a tensor's name for its cast."""
ENDINGS = (CAST, re.compile(r"_[A-Z][A-Za-z0-9]*$"))
"""The suffixes that TPU-MLIR appends to a framework's tensor name: the type of a cast, the kind of an op."""
PACKED = 4
"""Samples in a word of the 4N layout."""


@dataclass(frozen=True)
class Pairs:
    """targets: paired tensors under their references' names and layouts, the others unchanged; notes: the changes.

    names: a target's name -> its reference's, if they differ.
    """

    targets: dict[str, Tensor]
    notes: tuple[str, ...]
    names: Mapping[str, str] = field(default_factory=dict[str, str])


def renamed(
    targets: Mapping[str, Tensor], references: Mapping[str, Tensor], endings: Sequence[re.Pattern[str]] = (CAST,)
) -> Pairs:
    """Give targets the names of references that differ only by one of the endings, if the pair is unique."""
    names = _names(targets, references, endings)
    notes = tuple(f"{name} is compared as {reference}" for name, reference in names.items())
    return Pairs({names.get(name, name): tensor for name, tensor in targets.items()}, notes, names)


def paired(targets: Mapping[str, Tensor], references: Mapping[str, Tensor]) -> Pairs:
    """Give targets the names and layouts of references wherever the pair is unambiguous.

    Two names are a pair if they are equal without upstream's suffixes, and no other tensor of either side equals them.
    Layouts: NHWC for NCHW and back, and 4N (batch / 4, c, h, w * 4 or w, 4) for n samples.
    """
    by_name = renamed(targets, references, ENDINGS)
    found: dict[str, Tensor] = {}
    notes = list(by_name.notes)
    for name, tensor in by_name.targets.items():
        if name in references:
            tensor, layout = _in_layout(tensor, references[name].shape)
            notes += [f"{name}: {layout} in the target"] * bool(layout)
        found[name] = tensor
    return Pairs(found, tuple(notes), by_name.names)


def _names(
    targets: Mapping[str, Tensor], references: Mapping[str, Tensor], endings: Sequence[re.Pattern[str]]
) -> dict[str, str]:
    """Target -> reference for names that are equal without suffixes, are unique, and have as many elements."""
    left, right = (
        [n for n in side if n not in other] for side, other in ((targets, references), (references, targets))
    )
    ours, theirs = (_by_stem(names, endings) for names in (left, right))
    pairs = {ours[stem][0]: theirs[stem][0] for stem in ours.keys() & theirs.keys() if _alone(ours, theirs, stem)}
    return {t: r for t, r in pairs.items() if _samples(targets[t].size, references[r])}


def _alone(ours: Mapping[str, Sequence[str]], theirs: Mapping[str, Sequence[str]], stem: str) -> bool:
    return len(ours[stem]) == len(theirs[stem]) == 1


def _by_stem(names: Sequence[str], endings: Sequence[re.Pattern[str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        stem = name
        for ending in endings:
            stem = ending.sub("", stem)
        found.setdefault(stem, []).append(name)
    return found


def _samples(size: int, reference: Tensor) -> bool:
    """Whether `size` is the reference's number of elements, with or without padding to whole 4N words."""
    batch = reference.shape[0] if reference.ndim else 1
    filled = reference.size // max(batch, 1) * -(-batch // PACKED) * PACKED
    return size in (reference.size, filled)


def _in_layout(tensor: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, str]:
    """The tensor in the layout of `shape`, and the name of its previous layout ("" if it was not changed)."""
    if tensor.shape == shape or len(shape) != 4:
        return tensor, ""
    n, c, h, w = shape
    if tensor.shape == (n, h, w, c):
        return np.ascontiguousarray(tensor.transpose(0, 3, 1, 2)), "NHWC"
    if tensor.shape == (n, w, c, h):  # the reference is NHWC: its (n, h, w, c) are called (n, c, h, w) here
        return np.ascontiguousarray(tensor.transpose(0, 2, 3, 1)), "NCHW"
    words = -(-n // PACKED)
    if tensor.shape in ((words, c, h, w * PACKED), (words, c, h, w, PACKED)):
        samples = tensor.reshape(words, c, h, w, PACKED).transpose(0, 4, 1, 2, 3).reshape(words * PACKED, c, h, w)
        return np.ascontiguousarray(samples[:n]), "4N"
    return tensor, ""
