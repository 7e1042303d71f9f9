"""A picture of the page as a separate file: SVG for any viewer, with title and legend."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from tpusim.page.pictures import LETTER, Picture
from tpusim.page.render import TEMPLATES, environment
from tpusim.verify.npz import write_atomically

LEFT, LINE = 10.0, 16.0
"""The left margin of title and legend, and the height of their lines."""


def write_svg(path: Path, picture: Picture, title: Sequence[str]) -> None:
    """Write the picture with its title, the lines of a text; it appears whole or not at all."""
    text = svg_file(picture, title)
    write_atomically(path, lambda file: file.write(text.encode()))


def svg_file(picture: Picture, title: Sequence[str]) -> str:
    """The picture as SVG in the page's light colours, written as values: few viewers support CSS variables."""
    width = max([picture.width, *(1.3 * LETTER * len(line) for line in title)]) + 2 * LEFT
    first = 20 + LINE * len(title)
    legend = list(_legend(picture.legend, width, first))
    top = (legend[-1][1] if legend else first - LINE) + LINE
    text = environment().get_template("picture.svg").render(
        picture=picture, title=title, legend=legend, top=top, width=width, height=top + picture.height + LEFT
    )  # fmt: skip
    return re.sub(r"var\(--(\w+)\)", lambda found: light()[found[1]], text).lstrip()


def _legend(entries: Mapping[str, str], width: float, y: float) -> Iterator[tuple[float, float, str, str]]:
    """(x, y, class, words) of every entry, over as many lines as they need."""
    x = LEFT
    for kind, words in entries.items():
        room = 35 + LETTER * len(words)
        if x > LEFT and x + room > width:
            x, y = LEFT, y + LINE
        yield x, y, kind, words
        x += room


@cache
def light() -> Mapping[str, str]:
    """Name of a colour -> its value in the page's light scheme."""
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    return dict(re.findall(r"--(\w+): ([^;]+);", style[: style.index("@media")]))
