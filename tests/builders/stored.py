"""Runs of a store with up to three stages of one text file each."""

from __future__ import annotations

from pathlib import Path

from tpusim.running.store import MANIFEST, Store

NAMES = ("a.txt", "b.txt", "c.txt")
KEYS = {"first": "k1", "second": "k2", "third": "k3"}


def keep(store: Store, stage: str, text: str, key: str = "") -> None:
    """A stage of one file."""
    name = dict(zip(KEYS, NAMES, strict=True))[stage]
    store.keep(stage, key or KEYS[stage], 1.0, (name,), lambda folder: (folder / name).write_text(text))


def run(
    out: Path, *texts: str, fail: BaseException | None = None, reuse: int = 0, keys: dict[str, str] | None = None
) -> None:
    """A run of as many stages as there are texts, after `reuse` complete ones."""
    with Store(out, NAMES, "1") as store:
        source, stages = store.completed(keys or KEYS) if reuse else (out, [])
        store.begin({"run": "test"}, source, stages[:reuse])
        for stage, text in zip(list(KEYS)[reuse:], texts, strict=False):
            keep(store, stage, text, (keys or KEYS)[stage])
        if fail is not None:
            raise fail
        store.publish(lambda path: False)


def content(out: Path) -> dict[str, str]:
    """The texts of a folder, but for the manifest."""
    return {p.name: p.read_text() for p in sorted(out.iterdir()) if p.is_file() and p.name != MANIFEST}
