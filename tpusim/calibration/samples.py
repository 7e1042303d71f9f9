"""Calibration samples in exactly the model's input shapes, from files or drawn at random.

A source is an `.npz` keyed by input name, a folder of `.npz` (or, for a model with one input, `.npy` or image) files, a
`.txt` list of such files, one sample a line, for several inputs separated by commas, or the text `random:N` or
`random:N:seed`. One array file may hold several samples: its leading dimension is then a multiple of the model's. An
image is one sample (all of a batch), made by the preprocessing of the model's input (`tpusim.images`).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpusim.errors import CalibrationError, option
from tpusim.host import arrays
from tpusim.host.files import files_in, opened, text
from tpusim.images import SUFFIXES, Preprocess, prepare
from tpusim.numbers.border import converts, is_integer

Tensor = NDArray[Any]
InputSpec = tuple[Sequence[int], np.dtype[Any]]
Images = Mapping[str, Preprocess]
"""The preprocessing of image inputs, by name."""
NO_IMAGES: Images = {}

KINDS = (".npz", ".npy", *SUFFIXES)
"""Suffixes of files with samples."""
SHUFFLE_SEED = 1684
"""The seed of U-61, so that the same files give the same table."""


class Sample(dict[str, Tensor]):
    """Arrays by input name; `origin` is how an error names the sample."""

    def __init__(self, arrays: Mapping[str, Tensor], origin: str) -> None:
        super().__init__(arrays)
        self.origin = origin


def origin_of(sample: Mapping[str, Tensor], number: int) -> str:
    """The name of a sample in an error: its file, or its number (from 1) among the given samples."""
    return sample.origin if isinstance(sample, Sample) else f"sample {number}"


def require_finite(sample: Mapping[str, Tensor], origin: str) -> None:
    """Raise CalibrationError if an input has a NaN or an infinity: no range could be measured with it."""
    for name, values in sample.items():
        wrong = values.size - int(np.count_nonzero(np.isfinite(values))) if values.dtype.kind == "f" else 0
        if wrong:
            nans = int(np.count_nonzero(np.isnan(values)))
            raise CalibrationError(
                f"samples: {origin}: input '{name}' must be finite, got {nans} NaN and {wrong - nans} infinite values "
                f"of {values.size}; correct the sample or leave it out"
            )


def load_samples(
    source: str | Path,
    inputs: Mapping[str, InputSpec],
    limit: int = 0,
    *,
    shuffled: bool = False,
    images: Images = NO_IMAGES,
) -> Iterator[Sample]:
    """The samples of a source, one at a time, at most `limit` if that is not 0.

    The source is examined at once, but each file only when it is read. shuffled: read the files of a folder in the
    order of U-61, otherwise in the order of their names.
    """
    text = str(source)
    if text.startswith("random:"):
        samples = _random(text, inputs)
    else:
        files = _files(Path(source), inputs)
        if shuffled and Path(source).is_dir():
            Random(SHUFFLE_SEED).shuffle(files)
        samples = _from_files(files, inputs, images)
    return islice(samples, limit) if limit > 0 else samples


class Samples:
    """The samples of a source, read again in every iteration; none is kept. Arguments as in `load_samples`."""

    def __init__(
        self,
        source: str | Path,
        inputs: Mapping[str, InputSpec],
        limit: int = 0,
        *,
        shuffled: bool = False,
        images: Images = NO_IMAGES,
    ) -> None:
        self.source = source
        self._inputs, self._limit, self._shuffled = dict(inputs), limit, shuffled
        self._images = dict(images)
        self._count: int | None = None

    def __iter__(self) -> Iterator[Sample]:
        return load_samples(self.source, self._inputs, self._limit, shuffled=self._shuffled, images=self._images)

    def __len__(self) -> int:
        """The number of samples; the source is read for it once."""
        if self._count is None:
            self._count = sum(1 for _ in self)
        return self._count


def require_source(source: str | Path) -> None:
    """Check the name of a source before its samples are read. Raises CalibrationError for what is none."""
    if str(source).startswith("random:"):
        _count_and_seed(str(source))
    else:
        _require_path(Path(source))


def _random(text: str, inputs: Mapping[str, InputSpec]) -> Iterator[Sample]:
    return _draw(*_count_and_seed(text), inputs)


def _count_and_seed(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"random:([0-9]{1,9})(?::([0-9]{1,18}))?", text)
    if match is None or int(match[1]) == 0:
        raise CalibrationError(f"samples: 'random:N' or 'random:N:seed' with N >= 1 is required, got '{text}'")
    return int(match[1]), int(match[2] or 0)


def _require_path(path: Path) -> None:
    if not (path.is_file() or path.is_dir()):
        raise CalibrationError(f"samples: {path} is neither a file nor a folder; give an .npz, a folder, or random:N")


def _draw(count: int, seed: int, inputs: Mapping[str, InputSpec]) -> Iterator[Sample]:
    """Standard normal numbers for float inputs, bytes for images, and 0 or 1 for other integers: valid as any index."""
    generator = np.random.default_rng(seed)
    for number in range(1, count + 1):
        sample = Sample({}, f"random sample {number}")
        for name, (shape, dtype) in inputs.items():
            if is_integer(dtype):
                sample[name] = generator.integers(0, 256 if dtype == np.uint8 else 2, tuple(shape)).astype(dtype)
            else:
                sample[name] = generator.standard_normal(tuple(shape), np.float32).astype(dtype)
        yield sample


def files_of(source: str | Path) -> list[Path]:
    """The files of a source, in order of their names, including the files of a list; none for random numbers."""
    path = Path(source)
    if path.is_dir():
        return [file for file in files_in(path) if file.suffix.lower() in KINDS]
    if path.suffix == ".txt" and path.is_file():
        return [path, *(file for files in _named(path) for file in files if file.is_file())]
    return [path] * path.is_file()


def _files(path: Path, inputs: Mapping[str, InputSpec]) -> list[tuple[Path, ...]]:
    """The files of every sample, in order of their names or of the list."""
    if path.is_file():
        return _listed(path, len(inputs)) if path.suffix == ".txt" else [(path,)]
    _require_path(path)
    suffixes = KINDS if len(inputs) == 1 else (".npz",)
    found = sorted((file for file in files_in(path) if file.suffix.lower() in suffixes), key=str)
    if not found:
        kinds = ".npz, .npy or image" if len(inputs) == 1 else ".npz"
        raise CalibrationError(f"samples: {path} must hold {kinds} files for this model, got none")
    return [(file,) for file in found]


def _listed(path: Path, count: int) -> list[tuple[Path, ...]]:
    """The files in a list, one or `count` a line."""
    found = _named(path)
    if not found:
        raise CalibrationError(f"samples: {path} must name files, one sample a line, got none")
    for files in found:
        if len(files) not in (1, count):
            raise CalibrationError(f"samples: {path}: 1 or {count} files a line are required, got {len(files)}")
    return found


def _named(path: Path) -> list[tuple[Path, ...]]:
    """The files in a list, relative to the working directory or else to the list's folder."""
    lines = [line.strip() for line in text(path).splitlines()]
    named = [[Path(part.strip()) for part in line.split(",")] for line in lines if line]
    return [tuple(file if file.exists() else path.parent / file for file in files) for files in named]


def _from_files(
    samples: Iterable[tuple[Path, ...]], inputs: Mapping[str, InputSpec], images: Images
) -> Iterator[Sample]:
    for files in samples:
        read = _read_each(files, inputs, images)
        yield from split(read, inputs, ", ".join(map(str, files)))


def split(arrays: Mapping[str, Tensor], inputs: Mapping[str, InputSpec], origin: str) -> Iterator[Sample]:
    """The samples of arrays by input name, in the network's types; each array may hold several, all the same number.

    origin: how errors call them. Raises CalibrationError for shapes and types that do not fit.
    """
    arrays = {name: _fit(origin, name, value, inputs[name]) for name, value in arrays.items()}
    counts = {name: _sample_count(value, inputs[name]) for name, value in arrays.items()}
    if len(set(counts.values())) > 1:
        raise CalibrationError(f"samples: {origin} must hold the same number of samples for every input, got {counts}")
    count = next(iter(counts.values()), 0)
    for index in range(count):
        where = origin if count == 1 else f"{origin}, sample {index + 1} of {count}"
        yield Sample({name: _part(value, inputs[name], index) for name, value in arrays.items()}, where)


def _read_each(files: Sequence[Path], inputs: Mapping[str, InputSpec], images: Images) -> dict[str, Tensor]:
    """The arrays of a sample that is one file, or one file per input in their order."""
    if len(files) == 1:
        return _read(files[0], inputs, images)
    pairs = zip(files, inputs.items(), strict=True)
    return {name: _read(file, {name: spec}, images)[name] for file, (name, spec) in pairs}


def _read(file: Path, inputs: Mapping[str, InputSpec], images: Images) -> dict[str, Tensor]:
    """The arrays of the model's inputs in a file; other arrays of an `.npz` (labels, say) are ignored."""
    if file.suffix.lower() in SUFFIXES:
        name = _only_input(file, inputs)
        return {name: _image(file, name, inputs[name], images)}
    try:
        with opened(file) as archive:
            loaded = arrays.load(archive)
            if isinstance(loaded, np.ndarray):
                return {_only_input(file, inputs): loaded}
            if not loaded:
                raise CalibrationError(f"samples: {file} has no arrays; one for every input is required")
            missing = [name for name in inputs if name not in loaded]
            if missing:
                needed, got = ", ".join(missing), ", ".join(list(loaded)[:10])
                raise CalibrationError(f"samples: {file} has no array for input {needed}; it has: {got}")
            return {name: loaded[name] for name in inputs}
    except arrays.UNREADABLE as error:
        reason = str(error).split("\n", 1)[0]
        raise CalibrationError(
            f"samples: {file} must be a readable .npz or .npy of plain numbers; {reason}; write it again"
        ) from error


def _image(file: Path, name: str, spec: InputSpec, images: Images) -> Tensor:
    if name not in images:
        raise CalibrationError(
            f"samples: {file} is an image, but input '{name}' has no preprocessing for images; import the model "
            f"with {option('pixel_format')}, {option('mean')} and {option('scale')}, or give arrays"
        )
    return prepare([file], images[name], spec[0])


def _only_input(file: Path, inputs: Mapping[str, InputSpec]) -> str:
    if len(inputs) != 1:
        names = ", ".join(inputs)
        raise CalibrationError(
            f"samples: {file} is one array, the model has {len(inputs)} inputs ({names}); use an .npz, or a .txt with "
            "a file for each a line"
        )
    return next(iter(inputs))


def _fit(file: str, name: str, value: Tensor, spec: InputSpec) -> Tensor:
    """The array in the input's dtype, after a check of its shape."""
    shape, dtype = tuple(spec[0]), spec[1]
    fits = value.shape == shape
    if shape and value.ndim == len(shape) and shape[0] > 0 and value.shape[1:] == shape[1:]:
        fits = value.shape[0] > 0 and value.shape[0] % shape[0] == 0
    if not fits:
        several = " (the first dimension may be a multiple)" if shape else ""
        raise CalibrationError(f"samples: {file}: input '{name}' must have shape {shape}{several}, got {value.shape}")
    if not converts(value, dtype):
        raise CalibrationError(
            f"samples: {file}: input '{name}' must be {dtype}, got {value.dtype} with values that {dtype} does not hold"
        )
    return value.astype(dtype, copy=False)


def _sample_count(value: Tensor, spec: InputSpec) -> int:
    return value.shape[0] // spec[0][0] if spec[0] and spec[0][0] else 1


def _part(value: Tensor, spec: InputSpec, index: int) -> Tensor:
    """Sample number `index` of an array of one or several."""
    if not spec[0]:
        return value
    batch = spec[0][0]
    return np.ascontiguousarray(value[index * batch : (index + 1) * batch])
