"""`WeightStore`: the constants of a module by name, in one npz file next to the text."""

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import ml_dtypes
import numpy as np

from tpusim.errors import ImportModelError
from tpusim.host import arrays
from tpusim.host.files import opened, replacing
from tpusim.ir.names import unique_name


class WeightStore(Mapping[str, np.ndarray]):
    """Name -> read-only ndarray. A name is given once; `add` makes a new name unique when it is taken."""

    def __init__(self, arrays: Mapping[str, np.ndarray] | None = None) -> None:
        self._arrays: dict[str, np.ndarray] = {}
        for name, array in (arrays or {}).items():
            self._arrays[name] = _frozen(array)

    def __repr__(self) -> str:
        """Show how many arrays and bytes it holds."""
        return f"<WeightStore: {len(self)} arrays, {sum(a.nbytes for a in self.values()):,} bytes>"

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def add(self, name: str, array: np.ndarray) -> str:
        """Store `array` and return the name it got: `name`, or `name_1`, `name_2` ... if that is taken."""
        unique = unique_name(name, self._arrays)
        self._arrays[unique] = _frozen(array)
        return unique

    def replace(self, name: str, array: np.ndarray) -> None:
        """Store other data under a known name."""
        self._arrays[name] = _frozen(array)

    def copy(self) -> "WeightStore":
        """A store that can grow separately; arrays are shared (they are read-only)."""
        store = WeightStore()
        store._arrays = dict(self._arrays)
        return store

    def restricted(self, names: set[str]) -> "WeightStore":
        """A store of the named weights alone; the arrays are shared."""
        store = WeightStore()
        store._arrays = {k: v for k, v in self._arrays.items() if k in names}
        return store


def _frozen(array: np.ndarray) -> np.ndarray:
    view = np.ascontiguousarray(array).reshape(array.shape).view()
    view.flags.writeable = False
    return view


def save_weights(store: Mapping[str, np.ndarray], path: Path) -> None:
    """Write an npz atomically (uncompressed: weights do not compress, and loading stays fast).

    Narrow floats are written as their bits in uint16 and uint8, the form of TPU-MLIR; its tools read no other form.
    """
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in store.items():
            with archive.open(name + ".npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, _as_bits(np.asanyarray(array)), allow_pickle=False)


def _as_bits(array: np.ndarray) -> np.ndarray:
    if array.dtype.name.startswith("float8"):
        return array.view(np.uint8)
    return array.view(np.uint16) if array.dtype.name in ("float16", "bfloat16") else array


def _named_type(array: np.ndarray) -> np.ndarray:
    """An array as earlier releases stored it: the npy format has no name for bfloat16 and calls it two bytes (V2)."""
    return array.view(ml_dtypes.bfloat16) if array.dtype == np.dtype("V2") else array


def load_weights(path: Path) -> WeightStore:
    """Read an npz of weights; nothing is unpickled. Raises ImportModelError naming the file and the reason."""
    try:
        with opened(path) as file:
            archive = arrays.load(file)
            if isinstance(archive, np.ndarray):
                raise ValueError("it holds a single array without a name")
            return WeightStore({name: _named_type(array) for name, array in archive.items()})
    except arrays.UNREADABLE as error:
        raise ImportModelError(
            f"weight file '{path}': a readable npz without pickled objects is required, which this is not "
            f"({error}); write it again with the stage that made it"
        ) from error
