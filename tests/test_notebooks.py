"""The notebooks of the site have the outputs that they give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from notebooks import executed, paths, printed


def kept(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_every_cell_has_been_executed():
    assert len(paths()) == 2
    for path in paths():
        cells = [cell for cell in kept(path)["cells"] if cell["cell_type"] == "code"]
        assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)), path.name
        assert not [o for cell in cells for o in cell["outputs"] if o["output_type"] == "error"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Jupyter's packages; the kernel is another process
@pytest.mark.parametrize("path", paths(), ids=lambda path: path.stem)
def test_a_notebook_gives_the_outputs_that_it_shows(path: Path):
    pytest.importorskip("nbclient", reason="nbclient comes with the extra 'test'")
    assert printed(executed(path)) == printed(kept(path))
