"""The samples by which `why`, `bisect` and the searches judge, and the lines that describe them."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from tpusim.calibration.samples import Samples
    from tpusim.cli.output import Output
    from tpusim.ir.module import Model
    from tpusim.running.network import Network
    from tpusim.studies.diagnosis import Judged, Measured


@dataclass(frozen=True)
class Evidence:
    """Samples, and their origin as text."""

    samples: "Samples"
    origin: str


def evidence(network: "Network", data: str | None, limit: int) -> Evidence:
    """Samples to judge a network by: of `data`, or of its run's calibration, or the run's first sample.

    limit: at most so many, 0: all. For a model alone, its calibration samples. Calibration samples keep the order of
    calibration.
    """
    from tpusim.calibration.samples import Samples
    from tpusim.images import images_of
    from tpusim.inference import input_specs
    from tpusim.running.persistence import data_of

    model, folder, config = network.judged, network.folder, network.config
    known = data_of(folder) if folder is not None else (config.data, config.calibration.max_samples)
    left = str((folder or Path()) / "inputs.npz")
    source, count, origin = data or left, limit, f"of {data}" if data else f"of {left} (--data gives others)"
    if data is None and known is not None:
        source, count = known[0], min(filter(None, (known[1], limit)), default=0)
        origin = f"of the {'network' if folder is None else 'run'}'s calibration ({source})"
    shuffled = data is None and known is not None
    return Evidence(Samples(source, input_specs(model), count, shuffled=shuffled, images=images_of(model)), origin)


def rests_on(halves: tuple[int, int], origin: str) -> str:
    """A line about the samples of a judgement. halves: the number of samples that choose, and of held-out samples."""
    judged, held_out = halves
    if not held_out:
        count = f"{judged} sample{'s' * (judged > 1)}"
        return f"judged on {count} {origin}; nothing was held out, so nothing here is sure to hold on another sample"
    return f"judged on {judged} sample{'s' * (judged > 1)}, {held_out} held out, {origin}"


def second_opinion_of(
    engine: str, lowered: "Model", samples: "Sequence[Mapping[str, np.ndarray]]", console: "Output"
) -> None:
    """Ask an engine, if one is named, for all tensors of a lowered network; print if flat inference has the same."""
    if not engine:
        console.result(engine=None)
        return
    from tpusim.studies.diagnosis import second_opinion

    found = second_opinion(engine, lowered, samples)
    console.result(engine=asdict(found))
    count = f"{found.tensors} tensor{'s' * (found.tensors != 1)}"
    where = f"on {found.samples} sample{'s' * (found.samples != 1)}"
    if not found.different:
        console.tell(
            f"{engine} computes the same {count} {where}: errors there are those of the network's types, not of kernels"
        )
        return
    first, more = found.different[0], len(found.different) - 1
    also = f", and {more} more of {count}" if more else f", of {count} this one"
    console.tell(
        f"WARNING: {engine} computes another {first.name}: {first.differ:,} of {first.elements:,} elements, by at most "
        f"{first.largest:.6g}{also}, {where}; one of the two is wrong, whatever the network"
    )


def measured_lines(what: str, found: "Judged") -> list[str]:
    """The error of the results on both halves."""
    if found.held_out is None:
        return [f"{what}: {found.judged}"]
    return [f"{what}, judged: {found.judged}", f"{what}, held out: {found.held_out}"]


def errors_of(found: "Judged") -> str:
    """The error of the results on both halves, in short."""
    judged = f"error {found.judged.error:.4g}"
    return judged if found.held_out is None else f"{judged} judged, {found.held_out.error:.4g} held out"


def scoring(count: int) -> int:
    """The number of samples that choose: upstream's 30, but at most half, so that others are held out."""
    return min((count + 1) // 2, 30)


def as_json(found: "Judged") -> dict[str, Any]:
    """The errors and similarities of the results, on the samples that chose and on those held out (null: none)."""
    halves = {"judged": found.judged, "held_out": found.held_out}
    return {name: None if half is None else _half(half) for name, half in halves.items()}


def _half(found: "Measured") -> dict[str, Any]:
    return {"samples": found.samples, "error": found.error, "deviation": found.deviation, "cosine": found.cosine,
            "least_cosine": found.least}  # fmt: skip
