"""Metadata of a tensor file: the level of its tensors, and the scale and zero point of its integers.

It is stored in the comments of the zip archive and of its members. `numpy.load` and other readers of `.npz` ignore
comments, so the metadata travels with the tensors and other programs see only arrays.
"""

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tpusim.host.documents import parse_json
from tpusim.host.files import opened
from tpusim.verify.compare import Tolerance
from tpusim.verify.similarity import Tensor, is_integer
from tpusim.verify.tolerances import NPZ_TOOL, TOP_VS_ONNX, TPU_VS_TOP, local_vs_tpu

Quantisation = tuple[float, int]
"""(scale, zero point)."""


@dataclass(frozen=True)
class About:
    """Metadata of a tensor file. level: onnx, top, tpu or local, "" if unknown; mode: the mode of the run.

    mixed: whether a quantisation table changed modes of ops. quantised: scale and zero point by tensor name: a stored q
    is the number scale * (q - zero point). kept: the `--keep` that left tensors out, or "".
    """

    level: str = ""
    mode: str = ""
    mixed: bool = False
    quantised: Mapping[str, Quantisation] = field(default_factory=dict[str, Quantisation])
    kept: str = ""

    def comment(self) -> bytes:
        """The comment of the whole archive."""
        kept = {"kept": self.kept} if self.kept else {}
        return _encoded({"level": self.level, "mode": self.mode, "mixed": self.mixed, **kept})

    def comment_of(self, name: str) -> bytes:
        """The zip comment of one member: its scale and zero point; empty if it is not quantised."""
        if name not in self.quantised:
            return b""
        scale, zero_point = self.quantised[name]
        return _encoded({"scale": scale, "zero_point": zero_point})

    def real(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors, dequantised to f32 where scale and zero point are known."""
        return {name: self._real(name, value) for name, value in tensors.items()}

    def renamed(self, names: Mapping[str, str]) -> "About":
        """The same metadata with some tensors renamed; names: old -> new."""
        return replace(self, quantised={names.get(name, name): found for name, found in self.quantised.items()})

    def _real(self, name: str, stored: Tensor) -> Tensor:
        if name not in self.quantised or not is_integer(stored.dtype):
            return stored
        scale, zero_point = self.quantised[name]
        return np.float32(scale) * (stored.astype(np.int32) - zero_point).astype(np.float32)


def read_about(path: Path) -> About:
    """The metadata of the file; empty if another program wrote it."""
    try:
        with opened(path) as file, zipfile.ZipFile(file) as archive:
            head = _decoded(archive.comment)
            members = {info.filename.removesuffix(".npy"): _decoded(info.comment) for info in archive.infolist()}
    except (OSError, zipfile.BadZipFile):
        return About()
    quantised = {name: found for name, said in members.items() if (found := _quantisation(said)) is not None}
    mixed = head.get("mixed") is True
    return About(_text(head, "level"), _text(head, "mode"), mixed, quantised, _text(head, "kept"))


def _encoded(content: Mapping[str, Any]) -> bytes:
    return json.dumps({"tpusim": content}).encode()


def _decoded(comment: bytes) -> dict[str, Any]:
    """A comment as JSON; empty if another program wrote it."""
    try:
        content: Any = parse_json(comment)
        return dict(content["tpusim"])
    except (ValueError, TypeError, KeyError):
        return {}


def _text(content: Mapping[str, Any], key: str) -> str:
    value = content.get(key)
    return value if isinstance(value, str) else ""


def _quantisation(content: Mapping[str, Any]) -> Quantisation | None:
    scale, zero_point = content.get("scale"), content.get("zero_point")
    if isinstance(scale, float) and isinstance(zero_point, int) and scale > 0:
        return scale, zero_point
    return None


def usual_tolerance(target: About, reference: About) -> Tolerance:
    """The tolerance of `tpusim run` for these two levels; for other pairs, that of `npz_tool.py compare`."""
    levels = (target.level, reference.level)
    if levels == ("top", "onnx"):
        return TOP_VS_ONNX
    if levels == ("local", "tpu"):
        return local_vs_tpu(with_qtable=target.mixed)
    lowered = target.level in ("tpu", "local") and reference.level in ("top", "onnx")
    return TPU_VS_TOP.get(target.mode.lower(), NPZ_TOOL) if lowered else NPZ_TOOL


def comparable(
    targets: Mapping[str, Tensor], references: Mapping[str, Tensor], target: About, reference: About
) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
    """Both sides; a tensor that is integer on one side only is dequantised."""
    mixed = {n for n in references if n in targets and is_integer(targets[n].dtype) != is_integer(references[n].dtype)}
    return (
        {**targets, **target.real({n: targets[n] for n in mixed})},
        {**references, **reference.real({n: references[n] for n in mixed})},
    )


def unknown_scale(targets: Mapping[str, Tensor], references: Mapping[str, Tensor]) -> str:
    """A warning about bytes of unknown scale that are compared with floats, or ""."""
    found = [n for n in references if n in targets and _bytes_and_floats(targets[n].dtype, references[n].dtype)]
    if not found:
        return ""
    return (
        f"WARNING: '{found[0]}' is bytes on one side and floats on the other ({len(found)} such tensors), and the file "
        "does not say what the bytes stand for; compare files that tpusim wrote"
    )


def _bytes_and_floats(one: np.dtype[Any], other: np.dtype[Any]) -> bool:
    return {one.kind, other.kind} in ({"i", "f"}, {"u", "f"}) and 1 in (one.itemsize, other.itemsize)
