"""The what-if page: precomputed alternatives of one layer group, selected with a slider."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tpusim.layer_group.files import GroupView
from tpusim.page.pictures import memory_map, pipeline
from tpusim.page.render import environment, size
from tpusim.verify.npz import write_atomically

GOT = re.compile(r", got \w+ = \d+$")
"""The part of a rule's message that depends on the value."""


class Shown(Protocol):
    """An alternative as `tpusim.studies.explore.whatif` has it."""

    @property
    def knob(self) -> str: ...  # noqa: D102
    @property
    def value(self) -> str: ...  # noqa: D102
    @property
    def why(self) -> str: ...  # noqa: D102
    @property
    def change(self) -> str: ...  # noqa: D102
    @property
    def shipped(self) -> bool: ...  # noqa: D102
    @property
    def figures(self) -> Mapping[str, Any]: ...  # noqa: D102
    @property
    def view(self) -> GroupView | None: ...  # noqa: D102


class Found(Protocol):
    """A group with its alternatives, the shipped one first."""

    @property
    def alternatives(self) -> Sequence[Shown]: ...  # noqa: D102


def what_if_page(found: Found) -> str:
    """One page of HTML that needs no internet connection."""
    panels = [
        (one, None if one.view is None else memory_map(one.view), None if one.view is None else pipeline(one.view))
        for one in found.alternatives
    ]
    knobs = list(dict.fromkeys(one.knob for one in found.alternatives))
    return environment().get_template("whatif.html").render(
        found=found, panels=panels, knobs=knobs, cards=_cards, refused=refusals(found.alternatives),
        shipped=found.alternatives[0],
    )  # fmt: skip


def write_what_if(path: Path, found: Found) -> None:
    """Write the page; it appears whole or not at all."""
    text = what_if_page(found)
    write_atomically(path, lambda file: file.write(text.encode()))


def refusals(alternatives: Iterable[Shown]) -> list[tuple[str, list[str], str, str]]:
    """(knob, values, rule, nearest value that works) of refused alternatives; values with equal rest are merged."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for one in alternatives:
        if one.why:
            rule = GOT.sub("", one.why)
            found.setdefault((one.knob, rule, one.change), []).append(one.value)
    return [(knob, values, why, change) for (knob, why, change), values in found.items()]


def _cards(one: Shown) -> Iterable[tuple[str, str]]:
    figures, group = one.figures, one.figures["group"]
    yield "cycles of the program", f"{figures['cycles']:,}"
    yield "estimated time", f"{figures['milliseconds']:,.3f} ms"
    yield "cycles of the group", f"{group['cycles']:,}"
    yield "TIU cycles", f"{group['tiu_cycles']:,}"
    yield "GDMA cycles", f"{group['gdma_cycles']:,}"
    yield "loaded by the group", size(group["load_bytes"])
    yield "stored by the group", size(group["store_bytes"])
