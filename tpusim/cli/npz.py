"""`tpusim npz`: the content of tensor files, and parts of them, as with TPU-MLIR's npz_tool."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from zipfile import is_zipfile

import tyro

from tpusim.cli.command import Command
from tpusim.cli.output import Output
from tpusim.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

    Tensors = Mapping[str, np.ndarray]

FORMS = "show FILE, dump FILE NAME, extract IN OUT NAME..., or rename IN OLD NEW"


@dataclass
class Npz(Command):
    """Show tensor files and extract parts of them.

    `show FILE` lists names, types, shapes and values in short; `dump FILE NAME` prints all values of a tensor;
    `extract IN OUT NAME...` writes some tensors, by names or patterns such as 'layer4*'; `rename IN OLD NEW` changes a
    name in the file itself. Metadata of scales and levels is kept. `tpusim compare` compares two files.
    """

    says = "the `lines` that are printed"

    words: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="VERB FILE [...]")] = ()
    """A verb, with files and tensors."""

    def execute(self, console: Output) -> bool:
        """Execute the verb. Raises ConfigError for an unknown one."""
        match self.words:
            case ("show", file):
                _print(console, shown(Path(file)))
            case ("dump", file, name):
                _print(console, dumped(Path(file), name))
            case ("extract", source, target, *names) if names:
                _print(console, [extract(Path(source), Path(target), names)])
            case ("rename", source, old, new):
                _print(console, [rename(Path(source), old, new)])
            case ("compare", *_):
                raise ConfigError(f"npz {' '.join(self.words)}: `tpusim compare` compares two files")
            case words:
                raise ConfigError(f"{' '.join(('npz', *words))}: {FORMS} is required")
        return True


def _print(console: Output, lines: Sequence[str] | Iterator[str]) -> None:
    said = list[str]()
    for line in lines:
        console.tell(line)
        said.append(line)
    console.result(lines=said)


def shown(path: Path) -> Iterator[str]:
    """A line for each tensor."""
    from tpusim.verify.about import read_about
    from tpusim.verify.npz import load_tensors

    tensors, scales = load_tensors(path), read_about(path).quantised
    width = max(map(len, tensors), default=0)
    for name, value in tensors.items():
        scale = f"; scale {scales[name][0]:.6g}, zero point {scales[name][1]}" if name in scales else ""
        yield f"{name:<{width}}  {_type(value)}: {_values(value)}{scale}"


def _type(value: "np.ndarray") -> str:
    return f"{value.dtype} {'x'.join(map(str, value.shape)) or 'scalar'}"


def _values(value: "np.ndarray") -> str:
    """The least, the greatest and the mean value, and how many are not finite."""
    import numpy as np

    if value.dtype.kind not in "biuf" or not value.size:
        return "no values" if not value.size else "values without an order"
    finite = value[np.isfinite(value)].astype(np.float64)
    wrong = f", {value.size - finite.size} of {value.size} not finite" if finite.size < value.size else ""
    return (
        f"{finite.min():.6g} to {finite.max():.6g}, mean {finite.mean():.6g}" if finite.size else "none finite"
    ) + wrong


def dumped(path: Path, name: str) -> Iterator[str]:
    """All values of a tensor. Raises ConfigError if the file has no such tensor."""
    import numpy as np

    value = _tensor(path, name)[name]
    yield f"{name}: {_type(value)}"
    yield from np.array2string(value, threshold=value.size + 1, max_line_width=100, precision=9).splitlines()


def extract(source: Path, target: Path, names: Sequence[str]) -> str:
    """Write some tensors of a file. Raises ConfigError for a name or pattern that names none."""
    from tpusim.verify.about import About, read_about
    from tpusim.verify.npz import load_tensors, save_tensors

    tensors, about = load_tensors(source), read_about(source)
    wanted = [part for name in names for part in name.split(",") if part]
    for word in wanted:
        if not any(_is(name, word) for name in tensors):
            raise _missing(source, word, tensors)
    found = {name: value for name, value in tensors.items() if any(_is(name, word) for word in wanted)}
    save_tensors(target, found, None if about == About() else replace(about, kept=" ".join(wanted)))
    return f"wrote {target}: {len(found)} of {len(tensors)} tensors"


def _is(name: str, word: str) -> bool:
    """Whether a name or a pattern of names means the tensor."""
    return name == word or fnmatchcase(name, word)


def rename(path: Path, old: str, new: str) -> str:
    """Give a tensor another name, in the same place. Raises ConfigError if the new name is taken."""
    from tpusim.verify.about import About, read_about
    from tpusim.verify.npz import save_tensors

    tensors, about = _tensor(path, old), read_about(path)
    if not is_zipfile(path):
        raise ConfigError(f"{path}: an .npz is required, the one array of an .npy has no name")
    if new in tensors:
        raise ConfigError(f"{path}: a name that no tensor has is required, but '{new}' is one; rename that one first")
    named = {new if name == old else name: value for name, value in tensors.items()}
    scales = {new if name == old else name: scale for name, scale in about.quantised.items()}
    save_tensors(path, named, None if about == About() else replace(about, quantised=scales))
    return f"wrote {path}: '{old}' is '{new}'"


def _tensor(path: Path, name: str) -> "Tensors":
    """All tensors of the file. Raises ConfigError if the name is none of theirs."""
    from tpusim.verify.npz import load_tensors

    tensors = load_tensors(path)
    if name not in tensors:
        raise _missing(path, name, tensors)
    return tensors


def _missing(path: Path, name: str, tensors: "Tensors") -> ConfigError:
    near = get_close_matches(name, tensors, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"`tpusim npz show {path}` lists them"
    return ConfigError(f"{path}: has no tensor '{name}'; {hint}")
