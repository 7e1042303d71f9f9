"""What the debugger shows of memory: a slice, a stored tensor, an operand, plain bytes. Each has a readable `repr`."""

from dataclasses import dataclass, field
from math import prod

import numpy as np

from tpusim.chips import ChipSpec
from tpusim.host.labels import one_line
from tpusim.isa.blocks import offsets
from tpusim.isa.layout import extent
from tpusim.isa.region import Memory as MemoryName
from tpusim.isa.region import View
from tpusim.isa.stream import Location
from tpusim.simulator.memory import span_text

WIDTH = 96
"""Most columns of a printed array."""
_CHANNELS = 4
_BYTES_PER_LINE = 16


def numbers(values: np.ndarray, planes: int = 2) -> str:
    """An array as text: large arrays abbreviated, axes of length 1 left out, only the first planes of more axes."""
    values = values.squeeze()
    if values.ndim <= 2:
        return np.array2string(values, max_line_width=WIDTH, threshold=256, edgeitems=4, separator=" ")
    leading = values.shape[:-2]
    lines: list[str] = []
    for index in list(np.ndindex(*leading))[:planes]:
        lines += [f"[{', '.join(map(str, index))}]", numbers(values[index])]
    left = prod(leading) - planes
    return "\n".join([*lines, f"... {left:,} more of {shape_text(leading)} planes"] if left > 0 else lines)


def shape_text(shape: tuple[int, ...]) -> str:
    """Extents as in `1x3x5x7`; `scalar` for none."""
    return "x".join(map(str, shape)) or "scalar"


@dataclass(frozen=True, eq=False)
class Operand:
    """One operand of a command: its field name, its view, and its present values."""

    name: str
    view: View
    values: np.ndarray
    chip: ChipSpec = field(repr=False)

    @property
    def title(self) -> str:
        """Name, shape, type, layout and place in one line."""
        view = self.view
        place = span_text(extent(view, self.chip))
        return f"{self.name}: {view.dtype} {shape_text(view.shape)} {view.layout}, {place}"

    def __repr__(self) -> str:
        return f"{self.title}\n{numbers(self.values)}"


@dataclass(frozen=True, eq=False)
class Slice:
    """One slice of a tensor in local memory.

    values: (n, c, d, h, w) of the slice; start: where it begins in the tensor; made_by: the command that completed it.
    """

    location: Location
    values: np.ndarray
    made_by: str
    chip: ChipSpec = field(repr=False)
    core: int = 0

    @property
    def tensor(self) -> str:
        """The name of the tensor at this place."""
        return self.location.tensor

    @property
    def start(self) -> tuple[int, ...]:
        """(n, c, d, h, w) of the first element in the tensor."""
        return self.location.start

    def place(self, n: int, c: int, h: int, w: int, d: int = 0) -> tuple[int, int]:
        """(lane, byte in the lane) of an element, its indices counted in the slice."""
        at = logical(offsets(self.location.view, self.chip), self.location.depth)
        lane, byte = divmod(int(at[n, c, d, h, w]), self.chip.lmem_bytes)
        return lane, byte

    @property
    def title(self) -> str:
        """Which part of which tensor, and where it is."""
        view = self.location.view
        parts = (f"{a} {_range(s, size)}" for a, s, size in zip("ncdhw", self.start, self.values.shape, strict=True))
        whole = self.location.whole[2] == 1
        axes = [part for part in parts if not (whole and part.startswith("d "))]
        return (
            f"slice of '{one_line(self.tensor)}': {', '.join(axes)}; {view.dtype} {view.layout}, "
            f"{span_text(extent(view, self.chip))}" + (f" of core {self.core}" if self.core else "")
        )

    def text(self, channels: int = _CHANNELS) -> str:
        """Title and the first channels, each with its lane and address."""
        lines = [self.title, f"made by {one_line(self.made_by)}"]
        n, c, d, h, w = self.values.shape
        if h * w == 1:
            at = [(i, slice(None), k) for i in range(n) for k in range(d)]
        else:
            at = [(i, j, k) for i in range(n) for j in range(c) for k in range(d)]
        for i, j, k in at[:channels]:
            channel = 0 if isinstance(j, slice) else j
            lane, byte = self.place(i, channel, 0, 0, k)
            first = f"{self.start[1]}:{self.start[1] + c}" if isinstance(j, slice) else str(self.start[1] + j)
            depth = f" d={self.start[2] + k}" if self.location.whole[2] > 1 else ""
            lanes = "from lane" if isinstance(j, slice) else "lane"
            lines.append(f"n={self.start[0] + i} c={first}{depth}  {lanes} {lane}, local byte {byte:#x}")
            lines.append(numbers(self.values[i, j, k]))
        if len(at) > channels:
            lines.append(f"... {len(at) - channels} more")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.text()


def _range(start: int, size: int) -> str:
    return str(start) if size == 1 else f"{start}:{start + size}"


def logical(part: np.ndarray, depth: int) -> np.ndarray:
    """The values of a local view as (n, c, d, h, w); its axis 0 counts d*n, d outside."""
    return part.reshape(depth, -1, *part.shape[1:]).transpose(1, 2, 0, 3, 4)


@dataclass(frozen=True, eq=False)
class Stored:
    """A tensor of the program's table in global memory, and how much of it is stored."""

    name: str
    view: View
    values: np.ndarray
    """In the network shape; empty if nothing of it is stored yet."""
    state: str
    chip: ChipSpec = field(repr=False)

    @property
    def title(self) -> str:
        """Name, type, shape, place and state."""
        place = span_text(extent(self.view, self.chip))
        shape = self.values.shape if self.values.size else self.view.shape
        return f"tensor '{one_line(self.name)}': {self.view.dtype} {shape_text(shape)}, {place}; {self.state}"

    def __repr__(self) -> str:
        return f"{self.title}\n{numbers(self.values)}" if self.values.size else self.title


@dataclass(frozen=True, eq=False)
class Bytes:
    """Bytes of global memory, or of one lane of local memory."""

    memory: MemoryName
    address: int
    values: np.ndarray
    lane: int = 0
    core: int = 0

    def __repr__(self) -> str:
        core = f" of core {self.core}" if self.core else ""
        place = f"lane {self.lane}{core}" if self.memory == "lmem" else "global memory"
        lines = [f"{self.values.size} bytes of {place}"]
        for at in range(0, self.values.size, _BYTES_PER_LINE):
            row = self.values[at : at + _BYTES_PER_LINE].tobytes()
            text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
            lines.append(f"{self.address + at:#010x}  {row.hex(' '):<{3 * _BYTES_PER_LINE}} {text}")
        return "\n".join(lines)
