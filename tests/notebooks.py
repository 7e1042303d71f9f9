"""The notebooks of the site: `python -m notebooks` executes them and writes their outputs (`make notebooks`)."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "notebooks"
SECONDS = 120
"""For one cell at most."""


def paths() -> list[Path]:
    return sorted(FOLDER.glob("*.ipynb"))


def executed(path: Path) -> Any:
    """The notebook with new outputs, run in the folder of the notebooks. Raises CellExecutionError."""
    import nbformat
    from nbclient import NotebookClient

    book: Any = nbformat.read(path, as_version=4)
    NotebookClient(book, timeout=SECONDS, resources={"metadata": {"path": str(FOLDER)}}).execute()
    for cell in book.cells:
        cell.metadata.pop("execution", None)
    return book


def printed(book: Any) -> list[str]:
    """What the cells print and return as text; pictures and pages of HTML, and where an object lies, are left out."""
    outputs = [output for cell in book["cells"] if cell["cell_type"] == "code" for output in cell["outputs"]]
    texts = [o.get("text") or o.get("data", {}).get("text/plain", "") for o in outputs]
    return [re.sub(r"0x[0-9a-f]+", "0x", "".join(text)) for text in texts]


def main() -> None:
    """Execute all notebooks, or those named."""
    import nbformat

    for path in [Path(name) for name in sys.argv[1:]] or paths():
        nbformat.write(executed(path), path)
        sys.stdout.write(f"wrote {path.name}\n")


if __name__ == "__main__":
    main()
