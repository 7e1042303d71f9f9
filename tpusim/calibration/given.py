"""Samples given by a caller: arrays, dicts of arrays, sequences and generators of these, or a source as text."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, cast

import numpy as np

from tpusim.calibration.samples import NO_IMAGES, Images, InputSpec, Sample, Samples, split
from tpusim.errors import CalibrationError

WANTED = (
    "a dict of arrays by input name, an array (of a network with one input), a sequence of these, or a source as text "
    "is required"
)


def given_samples(
    given: object, inputs: Mapping[str, InputSpec], images: Images = NO_IMAGES, *, limit: int = 0
) -> Iterable[Sample]:
    """Samples in the network's shapes and types; an array of several samples (along its first axis) is split.

    A generator is read lazily and once; anything else may be read again. Raises CalibrationError for anything that is
    not a sample of the network.
    """
    if isinstance(given, Samples):
        return given
    if isinstance(given, str | Path):
        return Samples(given, inputs, limit, shuffled=True, images=images)
    if isinstance(given, Mapping) or _is_array(given):
        return list(split(_named(cast("object", given), inputs, "samples"), inputs, "samples"))
    if not isinstance(given, Iterable):
        raise CalibrationError(f"samples: {WANTED}, got {type(given).__name__}")
    found = _each(cast("Iterable[object]", given), inputs)
    return list(found) if isinstance(given, Sized) else found


def one_sample(given: object, inputs: Mapping[str, InputSpec], images: Images = NO_IMAGES) -> Sample:
    """The given sample. Raises CalibrationError if it is no sample or several."""
    found = list(given_samples(given, inputs, images))
    if len(found) != 1:
        wanted = ", ".join(f"'{name}' of shape {tuple(shape)}" for name, (shape, _) in inputs.items())
        raise CalibrationError(
            f"inputs: one sample is required, {wanted}; got {len(found)} samples, give one at a time"
        )
    return found[0]


def _each(given: Iterable[object], inputs: Mapping[str, InputSpec]) -> Iterator[Sample]:
    for number, one in enumerate(given, 1):
        where = f"sample {number}"
        yield from split(_named(one, inputs, where), inputs, where)


def _named(given: object, inputs: Mapping[str, InputSpec], where: str) -> dict[str, np.ndarray]:
    """Arrays by input name."""
    if not isinstance(given, Mapping):
        if not _is_array(given):
            raise CalibrationError(f"{where}: {WANTED}, got {type(given).__name__}")
        if len(inputs) != 1:
            names = ", ".join(inputs)
            raise CalibrationError(f"{where}: a dict of arrays is required, by input name ({names}); got one array")
        return {next(iter(inputs)): np.asarray(cast("Any", given))}
    named = cast("Mapping[str, Any]", given)
    missing = [name for name in inputs if name not in named]
    if missing:
        got = ", ".join(map(str, list(named)[:10])) or "none"
        raise CalibrationError(f"{where}: an array for input {', '.join(missing)} is required; got {got}")
    return {name: np.asarray(named[name]) for name in inputs}


def _is_array(given: object) -> bool:
    """Whether NumPy can read it as an array: arrays of NumPy, JAX and PyTorch."""
    return hasattr(given, "__array__") and hasattr(given, "shape")


def first_given(given: object) -> object:
    """One sample, of arrays of several samples the first with an axis of extent 1; None if it cannot be looked at."""
    if _is_array(given):
        return cast("Any", given)[:1]
    if isinstance(given, Mapping):
        return {name: np.asarray(array)[:1] for name, array in cast("Mapping[str, Any]", given).items()}
    if isinstance(given, Sequence) and given and not isinstance(given, str):
        return cast("Sequence[object]", given)[0]
    return None
