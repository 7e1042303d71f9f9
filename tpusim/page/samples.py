"""The page's picture of a result over samples: its cosine on each of them, from the worst to the best."""

from collections.abc import Iterator, Mapping
from typing import Any

from tpusim.page.pictures import CHART, LEFT, TOP, Dot, Line, Picture, Text

Json = Mapping[str, Any]


def over_samples(compare: Mapping[str, Json], titles: Mapping[str, str]) -> Iterator[tuple[str, Picture]]:
    """(title, picture) of every result that was compared on several samples; compare: as in `report.json`."""
    for label, comparison in compare.items():
        for found in comparison.get("over_samples", ()):
            if found["is_result"] and len(found["cosines"]) > 1:
                yield f"{found['name']}: {titles.get(label, label)}", _picture(found)


def _picture(found: Json) -> Picture:
    """Cosines in order, and their median; samples that are not judged or whose cosine is NaN are left out."""
    judged = [i for i, c in enumerate(found["cosines"]) if c is not None and i not in found["not_judged"]]
    ordered = sorted(judged, key=lambda i: found["cosines"][i])
    cosines = [found["cosines"][i] for i in ordered]
    low = min((*cosines, 1 - 1e-6))
    place = [LEFT + (CHART[0] - LEFT - 12) * (rank + 0.5) / max(len(ordered), 1) for rank in range(len(ordered))]
    dots = tuple(
        Dot(x, _height(cosine, low), "view1", f"sample {i}: {cosine:.6f}")
        for x, cosine, i in zip(place, cosines, ordered, strict=True)
    )
    middle = _height(found["median_cosine"], low) if found["median_cosine"] is not None else TOP
    ticks = [low + (1 - low) * i / 4 for i in range(5)]
    return Picture(
        CHART[0], CHART[1] + 30, f"Cosine of {found['name']} on {len(ordered)} samples, the worst first",
        lines=(
            *(Line(((LEFT, _height(t, low)), (CHART[0] - 12, _height(t, low)))) for t in ticks),
            Line(((LEFT, middle), (CHART[0] - 12, middle)), "limit"),
            *((Line(tuple((d.x, d.y) for d in dots), "view1"),) if dots else ()),
        ),
        dots=dots,
        texts=(
            *(Text(LEFT - 6, _height(t, low) + 4, f"{t:.6f}", "end") for t in ticks),
            Text(LEFT, CHART[1] + 22, f"sample {found['worst_sample']}, the worst"),
        ),
        legend={"view1": "cosine of a sample", "limit": "median"},
    )  # fmt: skip


def _height(cosine: float, low: float) -> float:
    return TOP + (CHART[1] - TOP) * (1 - (cosine - low) / (1 - low))
