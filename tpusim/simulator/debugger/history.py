"""What commands overwrote, so that they can be undone."""

from collections import deque
from dataclasses import dataclass

import numpy as np

from tpusim.isa.region import View
from tpusim.simulator.memory import Machine


@dataclass(frozen=True)
class Undo:
    """The content of one command's output views before it ran."""

    memory: Machine
    before: tuple[tuple[View, np.ndarray], ...]

    @property
    def nbytes(self) -> int:
        """Bytes of memory that this entry keeps."""
        return sum(array.nbytes for _, array in self.before)

    def restore(self) -> None:
        """Put the kept bytes back, the last view first."""
        for view, array in reversed(self.before):
            self.memory.write(view, array)


def before(memory: Machine, views: tuple[View, ...]) -> Undo:
    """An entry with the present content of `views`."""
    return Undo(memory, tuple((view, memory.read(view)) for view in views))


class History:
    """The undo entries of the last commands, at most `limit` bytes of them; the oldest are dropped first."""

    def __init__(self, limit: int):
        self.nbytes = 0
        self._limit = limit
        self._entries: deque[Undo] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, entry: Undo) -> None:
        """Remember the newest command; the oldest are dropped if the limit is exceeded."""
        self._entries.append(entry)
        self.nbytes += entry.nbytes
        while self.nbytes > self._limit:
            self.nbytes -= self._entries.popleft().nbytes

    def undo(self) -> bool:
        """Undo the newest command; False if it is not remembered."""
        if not self._entries:
            return False
        entry = self._entries.pop()
        self.nbytes -= entry.nbytes
        entry.restore()
        return True

    def clear(self) -> None:
        """Forget every command, after which nothing can be undone."""
        self._entries.clear()
        self.nbytes = 0
