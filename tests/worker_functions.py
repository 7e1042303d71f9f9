"""What processes of test_workers.py run: a separate module, which they import quickly."""

import os
from pathlib import Path


def square(number: int, folder: Path) -> int:
    """Number ** 2; the first process that is asked for 3 dies of it."""
    mark = folder / "died"
    if number == 3 and not mark.exists():
        mark.touch()
        os._exit(1)
    return number**2
