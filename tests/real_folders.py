"""Folders that the real compiler left for a small network of ours (tests/upstream/folders)."""

import shutil
from pathlib import Path

FOLDERS = Path(__file__).parent / "upstream" / "folders"
TRANSFORM = FOLDERS / "transform"
CELLS = sorted(p.name for p in FOLDERS.iterdir() if p.is_dir() and p != TRANSFORM)
"""Chips and modes, as in `bm1684x-INT8`."""


def folder_of(cell: str, place: Path) -> Path:
    """A copy of a whole folder: the files of the import and of the cell."""
    shutil.copytree(TRANSFORM, place, dirs_exist_ok=True)
    shutil.copytree(FOLDERS / cell, place, dirs_exist_ok=True)
    return place


def lowered(cell: str) -> Path:
    """The lowered module of a cell."""
    return next((FOLDERS / cell).glob("m_*_tpu.mlir"))


def final(cell: str) -> Path:
    """The final module of a cell."""
    return next((FOLDERS / cell).glob("m_*_final.mlir"))
