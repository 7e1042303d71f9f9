"""`tpusim group --plot DIR`: local memory over the rows of a group, and its pipeline, as the page draws them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from tpusim.layer_group.files import GlobalView, GroupView, group_number
from tpusim.page.pictures import memory_map, pipeline
from tpusim.page.svg import write_svg


def plot(views: Sequence[GroupView | GlobalView], folder: Path, only: int | None = None) -> Iterator[Path]:
    """Write `group_NNN_lmem.svg` and `group_NNN_pipeline.svg` of every group, or of group `only`; yields the paths.

    Raises ConfigError if the module has no such group.
    """
    groups = [v for v in views if isinstance(v, GroupView)] if only is None else [group_number(views, only)]
    for view in groups:
        sections = " ".join(f"{axis}={count}" for axis, count in view.sections.items())
        head = f"type {view.kind}, sections {sections}, {len(view.ops)} ops, on {view.chip.name}"
        share = view.peak / view.chip.lmem_bytes
        peak = f"peak {view.peak:,} of {view.chip.lmem_bytes:,} bytes per lane ({share:.0%}); dotted lines are banks"
        for name, picture, says in (("lmem", memory_map(view), [peak]), ("pipeline", pipeline(view), [])):
            path = folder / f"group_{view.index:03}_{name}.svg"
            write_svg(path, picture, [picture.says, head, *says])
            yield path
