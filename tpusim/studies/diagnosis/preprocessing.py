"""Usual mistakes of preprocessing, tried one by one: whether labelled samples fit better if prepared otherwise.

A float network that gets bytes but was trained on numbers from 0 to 1, or red for blue, is wrong before anything is
quantised. No tensor shows this, but labels do. Only an inverted scale (255 for 1/255) shows in the range of an input:
no image has such values.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from tpusim.images import Preprocess, images_of
from tpusim.inference import Gradual
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ir.types import shape_of
from tpusim.ops.structure import TopInput
from tpusim.studies.diagnosis.judge import Judge, Judged
from tpusim.studies.diagnosis.losses import Tensors, results_of
from tpusim.studies.diagnosis.remedies import Change, Remedies

BETTER = 0.05
"""Another preparation is a cause only if it gains at least this share of top-1."""
SURE = 2.5
"""Standard errors by which the gained samples must exceed the lost ones, because a dozen preparations are tried."""
IMAGENET = (np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225]))
"""Mean and deviation of red, green and blue from 0 to 1 that most classifiers were trained with."""

LARGEST = 255.0
"""The largest value of an image file."""
FAR = 1000.0
"""A magnitude beyond any usual preparation of an image: more than LARGEST divided by the smallest usual deviation."""
ENOUGH = 16
"""A scale is tried on so many samples."""

Undo = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Prepared:
    """A preparation and the float network's top-1 with it.

    what: a description for people. options: of `tpusim run`, for images; "" if arrays must be made again. top1: the
    share of samples that is classified as labelled.
    """

    what: str
    options: str
    top1: float


@dataclass(frozen=True)
class Mistaken:
    """An input whose scale is inverted. options: of `tpusim run`, "" for arrays. judged: the errors of the integers
    with correctly scaled samples and their ranges.
    """

    tensor: str
    evidence: str
    options: str
    judged: Judged


def mistaken_scales(remedies: Remedies, samples: Iterable[Tensors]) -> Iterator[Mistaken]:
    """Image inputs with values that no image has, and the errors of the integers with the intended scale."""
    for name, op in remedies.ops.items():
        if not isinstance(op, TopInput) or name not in remedies.seen:
            continue
        known, shape = images_of(remedies.model).get(name), shape_of(op.output)
        axis = 3 if known is not None and known.channel_format == "nhwc" else 1
        found = _upside_down(known, remedies.reach(name), shape, axis)
        if found is None:
            continue
        evidence, factor, options = found
        some = [{**s, name: (s[name] * factor).astype(s[name].dtype)} for s in islice(samples, ENOUGH)]
        judge = Judge(remedies.model, some)
        reaches = {one: judge.seen[one].reach for one in remedies.limits if one in judge.seen}
        changes = [Change(one, threshold=reach) for one, reach in reaches.items() if reach]
        [judged] = judge.judged([remedies.lowered(changes)])
        yield Mistaken(name, evidence, options, judged)


def _upside_down(
    known: Preprocess | None, reach: float, shape: Sequence[int], axis: int
) -> tuple[str, np.ndarray, str] | None:
    """(evidence, factor of the samples, options) of an image input with too large values; None otherwise."""
    if len(shape) != 4 or reach <= FAR or shape[axis] not in (1, 3, 4) and shape[3] not in (1, 3, 4):
        return None
    if known is None:
        square = LARGEST * LARGEST
        near = 0.5 < reach / square < 1.02
        named = "255 x 255 is 65,025: they were multiplied by 255 where 1/255 was meant" if near else "images do not"
        return f"its values reach {reach:,.0f}; {named}", np.array(1 / (square if near else reach)), ""
    mean, scale = _factors(known, axis, shape[axis])
    large = np.abs(scale) > 1
    if not np.any(large):
        return None
    meant = np.where(large, 1 / scale, scale)
    listed = ", ".join(f"{value:.4g}" for value in scale.ravel())
    evidence = f"its values reach {reach:,.0f}: pixels are multiplied by {listed} where one divided by that was meant"
    return evidence, meant / scale, _options(known, mean, meant)


def other_preprocessing(model: Model, samples: Sequence[Tensors], labels: np.ndarray) -> tuple[float, list[Prepared]]:
    """(top-1 of the float network, preparations with a higher top-1, the best first).

    model: a top module with an image as its first input, whose attributes may say how samples were prepared.
    """
    name, op = next((op_name(op), op) for op in model.ops if isinstance(op, TopInput))
    run, results = Gradual(model), results_of(model)[:1]

    def right(change: Undo) -> np.ndarray:
        changed = [{**sample, name: change(sample[name]).astype(sample[name].dtype)} for sample in samples]
        scores = [found[results[0]].reshape(len(sample[name]), -1) for sample, found in run.each(changed)]
        return np.concatenate(scores).argmax(axis=1) == labels

    before = right(lambda x: x)
    tried = _tried(images_of(model).get(name), shape_of(op.output))
    measured = ((what, options, right(change)) for what, options, change in tried)
    better = [
        Prepared(what, options, float(after.mean())) for what, options, after in measured if _gains(before, after)
    ]
    return float(before.mean()), sorted(better, key=lambda found: -found.top1)


def _gains(before: np.ndarray, after: np.ndarray) -> bool:
    """Whether more samples become right than by chance; only samples that change count."""
    gained, lost = int(np.count_nonzero(after & ~before)), int(np.count_nonzero(before & ~after))
    return gained - lost >= max(BETTER * len(before), SURE * (gained + lost) ** 0.5)


def _tried(known: Preprocess | None, shape: Sequence[int]) -> Iterator[tuple[str, str, Undo]]:
    """(description, options, function from the given array to the correctly preprocessed one)."""
    axis = 3 if known is not None and known.channel_format == "nhwc" else 1
    channels = shape[axis] if len(shape) == 4 else 0
    mean, scale = _factors(known, axis, channels)

    def anew(new_mean: np.ndarray, new_scale: np.ndarray, *, swapped: bool = False) -> Undo:
        def change(x: np.ndarray) -> np.ndarray:
            raw = x / scale + mean
            return ((np.flip(raw, axis) if swapped else raw) - new_mean) * new_scale

        return change

    yield "values divided by 255", _options(known, mean, scale / 255), anew(mean, scale / 255)
    squared = scale / LARGEST**2
    yield (
        "values divided by 65,025, for they were multiplied by 255",
        _options(known, mean, squared),
        anew(mean, squared),
    )
    yield "values multiplied by 255", _options(known, mean, scale * 255), anew(mean, scale * 255)
    if channels != 3:
        return
    other = {"rgb": "bgr", "bgr": "rgb"}.get(known.pixel_format, "") if known else ""
    yield "channels in reverse order", other and f"--pixel-format {other}", anew(mean, scale, swapped=True)
    backwards = np.flip(mean)
    yield "mean in reverse order", _options(known, backwards, scale), anew(backwards, scale)
    if np.any(mean):
        yield (
            "mean times 255, for it was of values from 0 to 1",
            _options(known, mean * 255, scale),
            anew(mean * 255, scale),
        )
        yield "no mean", _options(known, mean * 0, scale), anew(mean * 0, scale)
    for what, largest in (("ImageNet's mean and deviation", 255.0), ("ImageNet's mean and deviation, of 0 to 1", 1.0)):
        for order, flipped in (("red first", False), ("blue first", True)):
            new = [_shaped(part[::-1] if flipped else part, axis) * largest for part in IMAGENET]
            yield f"{what}, {order}", _options(known, new[0], 1 / new[1]), anew(new[0], 1 / new[1])


def _factors(known: Preprocess | None, axis: int, channels: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and scale of the samples' preprocessing, in a shape that broadcasts to an input."""
    if known is None:
        return _shaped(np.zeros(channels or 1), axis), _shaped(np.ones(channels or 1), axis)
    return _shaped(np.array(known.mean[:channels]), axis), _shaped(np.array(known.scale[:channels]), axis)


def _shaped(values: np.ndarray, axis: int) -> np.ndarray:
    """One value for each channel along an axis; a single one for any shape."""
    return values if axis == 3 or values.size == 1 else values[:, None, None]


def _options(known: Preprocess | None, mean: np.ndarray, scale: np.ndarray) -> str:
    if known is None:
        return ""
    listed = (",".join(f"{value:.6g}" for value in values.ravel()) for values in (mean, scale))
    return "--mean {} --scale {}".format(*listed)
