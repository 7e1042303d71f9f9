"""The roofline as a picture: ops and layer groups under the roofs of the chip, on two logarithmic axes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil, floor, log10
from typing import Any, Final

from tpusim.host.labels import cut
from tpusim.page.pictures import CHART, LEFT, TOP, Dot, Line, Picture, Text
from tpusim.simulator.roofline import intensity

Json = Mapping[str, Any]
LIMITS: Final = {
    "tiu": "TIU, lanes filled",
    "lanes": "TIU, lanes not filled",
    "load": "loads",
    "store": "stores",
    "start-up": "start-up of transfers",
    "dependency": "waiting for the other engine",
    "sync": "synchronisation",
}
"""Limit -> its text in the legend."""
HEIGHT = 300
NAMED, LETTERS = 3, 24
"""So many of the longest groups are labelled with their first op, in so many letters."""
RADII = 3.0, 6.0
"""Radii of the dots of ops and of groups."""
Axis = tuple[float, float]
"""The logarithms of both ends."""


def roofs(roofline: Json) -> Picture | None:
    """The picture of ops and groups that multiply and move data; None without any. roofline: as in `report.json`.

    Colours are limits, small dots ops, large ones groups.
    """
    places = [(p, False) for p in roofline["ops"]] + [(p, True) for p in roofline["groups"]]
    drawn = [(p, group) for p, group in places if p["cycles"] and per_byte(p)]
    if not drawn:
        return None
    peak, rate = roofline["peak_macs"], roofline["load_rate"]
    ridge = peak / rate
    across = _axis([*(per_byte(p) for p, _ in drawn), ridge / 2, ridge * 2])
    up = _axis([*(p["macs"] / p["cycles"] for p, _ in drawn), peak * 1.05])
    left, right = 10 ** across[0], 10 ** across[1]
    lines = [Line(tuple(_grid(way, at, across, up))) for way, at in _decades(across, up)]
    lines.append(Line(tuple(_at(x, min(peak, x * rate), across, up) for x in (left, ridge, right)), "roof"))
    limits = {p["limit"] for p, _ in drawn}
    return Picture(
        CHART[0],
        HEIGHT + 34,
        f"Roofline: {len(drawn)} ops and groups below {peak:,} multiply-adds and {rate:.1f} loaded bytes per cycle",
        lines=tuple(lines),
        dots=tuple(_dots(drawn, across, up)),
        texts=(*_texts(across, up), *_said(roofline, across, up), *_names(drawn, across, up)),
        legend={_class(limit): says for limit, says in LIMITS.items() if limit in limits},
    )


def _class(limit: str) -> str:
    return f"view{list(LIMITS).index(limit)}"


def _said(roofline: Json, across: Axis, up: Axis) -> Iterator[Text]:
    """The labels of both roofs."""
    peak, rate = roofline["peak_macs"], roofline["load_rate"]
    x, y = _at(10 ** across[1], peak, across, up)
    yield Text(x - 4, y - 5, f"{peak:,} multiply-adds per cycle", "end")
    low = max(10 ** across[0], 10 ** up[0] / rate)
    x, y = _at(low * 1.3, low * 1.3 * rate, across, up)
    yield Text(x + 10, y + 14, f"{rate:.1f} loaded bytes per cycle")


def _names(drawn: Iterable[tuple[Json, bool]], across: Axis, up: Axis) -> Iterator[Text]:
    """The first ops of the groups that take longest."""
    groups = sorted((place for place, group in drawn if group), key=lambda place: -place["cycles"])
    for place in groups[:NAMED]:
        x, y = _at(per_byte(place), place["macs"] / place["cycles"], across, up)
        more = f", {place['ops']} ops" if place["ops"] > 1 else ""
        yield Text(x + 10, y + 4, f"group {place['group']}: {cut(place['name'], LETTERS)}{more}")


def per_byte(place: Json) -> float:
    """Multiply-accumulates of a group or op of `report.json` for each byte it moves."""
    return intensity(place["macs"], place["load_bytes"], place["store_bytes"])


def _axis(values: Sequence[float]) -> Axis:
    """An axis of whole decades that contains all values."""
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    return float(low), float(max(high, low + 1))


def _at(x: float, y: float, across: Axis, up: Axis) -> tuple[float, float]:
    """The place of a point in pixels; a point below an axis is drawn on it."""
    share = (log10(x) - across[0]) / (across[1] - across[0])
    rise = max((log10(y) - up[0]) / (up[1] - up[0]), 0.0)
    return LEFT + share * (CHART[0] - LEFT - 12), TOP + (1 - rise) * (HEIGHT - TOP)


def _decades(across: Axis, up: Axis) -> Iterator[tuple[str, float]]:
    yield from (("across", 10.0**i) for i in range(int(across[0]), int(across[1]) + 1))
    yield from (("up", 10.0**i) for i in range(int(up[0]), int(up[1]) + 1))


def _grid(way: str, at: float, across: Axis, up: Axis) -> Iterator[tuple[float, float]]:
    for end in (0, 1):
        yield _at(*((at, 10 ** up[end]) if way == "across" else (10 ** across[end], at)), across, up)


def _dots(drawn: Iterable[tuple[Json, bool]], across: Axis, up: Axis) -> Iterator[Dot]:
    for place, group in drawn:
        achieved = place["macs"] / place["cycles"]
        what = f"group {place['group']}, from {place['name']} on" if group else place["name"]
        says = f"{what}: {achieved:,.0f} multiply-adds per cycle, {per_byte(place):,.1f} per byte"
        yield Dot(
            *_at(per_byte(place), achieved, across, up), _class(place["limit"]) + " whole" * group,
            f"{says}; {LIMITS[place['limit']]}", RADII[group],
        )  # fmt: skip


def _texts(across: Axis, up: Axis) -> Iterator[Text]:
    for way, at in _decades(across, up):
        if way == "across":
            x, _ = _at(at, 10 ** up[0], across, up)
            yield Text(x, HEIGHT + 14, f"{at:,g}", "middle" if log10(at) < across[1] else "end")
        else:
            yield Text(LEFT - 6, _at(10 ** across[0], at, across, up)[1] + 4, f"{at:,g}", "end")
    yield Text((CHART[0] + LEFT) / 2, HEIGHT + 30, "multiply-adds per byte moved", "middle")
    yield Text(12, (HEIGHT + TOP) / 2, "multiply-adds per cycle", "middle", upright=True)
