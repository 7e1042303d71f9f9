"""Warnings about samples and thresholds that make useless integers, one line for each kind.

Properties of healthy networks give no warning: dead inner tensors, masks, indices, inputs of one number, one sample.
"""

from collections.abc import Iterator, Sequence
from math import prod

from tpusim.calibration.state import Taken
from tpusim.calibration.statistics import ActivationStatistics, TensorStatistics
from tpusim.calibration.thresholds import ALMOST_ZERO
from tpusim.images import Preprocess, images_of
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.module import Model
from tpusim.ir.types import shape_of
from tpusim.ops.framework.base import TopOp, holds
from tpusim.ops.structure import TopInput

FAR = 16
"""An input whose values differ from those of images by this factor was preprocessed differently.

Decision: dark and bright images differ from white by less than 16 times; a missing or double scale of 1/255 by 255
times.
"""
SHOWN = 4


def sample_warnings(model: Model, statistics: ActivationStatistics, taken: Taken) -> tuple[str, ...]:
    """One line for each kind of doubt about the measured samples of a network."""
    return tuple(_found(model, statistics.tensors, taken))


def _found(model: Model, seen: dict[str, TensorStatistics], taken: Taken) -> Iterator[str]:
    if taken.count > 1 and taken.equal:
        yield f"all {taken.count} samples are equal, so the table is that of one; give different samples"
    constant = [f"{name} ({seen[name].minimum:g})" for name in _constant_inputs(model, seen)]
    if constant:
        yield f"every value of an input is the same in all samples: {_some(constant)}; give real samples"
    results = [name for name in map(value_name, model.results) if name in seen and seen[name].absmax == 0]
    if results := _real(model, results):
        yield f"results are 0 in all samples: {_some(results)}; give samples for which they are not"
    small = [name for name, found in seen.items() if 0 < found.absmax <= ALMOST_ZERO]
    if small := _real(model, small):
        yield (
            f"no value exceeds {ALMOST_ZERO:g}, the least threshold: {_some(small)}; their integers are 0, so keep the "
            "ops that make and read them in float (--qtable), or scale the network"
        )
    images = images_of(model)
    far = [_range(name, images[name], seen[name]) for name in images if name in seen]
    if far := [text for text in far if text]:
        yield f"an input has other values than its preprocessing gives: {_some(far)}; correct --mean, --scale or data"


def _constant_inputs(model: Model, seen: dict[str, TensorStatistics]) -> list[str]:
    """Inputs with a single value, except 0 or 1 if another input varies: such an input may be a mask."""
    inputs = [op for op in model.ops if isinstance(op, TopInput) and op_name(op) in seen]
    real = [op_name(op) for op in inputs if op.result_holds() == "real" and prod(shape_of(op.output)) > 1]
    constant = [name for name in real if seen[name].minimum == seen[name].maximum]
    if len(constant) == len(real):
        return constant
    return [name for name in constant if seen[name].minimum not in (0, 1)]


def _real(model: Model, names: Sequence[str]) -> list[str]:
    """The tensors that are real numbers, not truth values, indices or integers."""
    ops = [op for op in model.ops if isinstance(op, TopOp) and op_name(op) in names]
    return [op_name(op) for op in ops if holds(op.results[0]) == "real"]


def _range(name: str, image: Preprocess, found: TensorStatistics) -> str:
    """A text with the possible and the measured range of an image if they are far apart, otherwise ""."""
    channels = zip(image.mean[: image.channels], image.scale[: image.channels], strict=True)
    ends = [(value - mean) * scale for mean, scale in channels for value in (0, 255)]
    due = max(map(abs, ends))
    if not found.absmax or due / FAR <= found.absmax <= due * FAR:
        return ""
    return f"{name} has {found.minimum:.4g} to {found.maximum:.4g}, images give {min(ends):.4g} to {max(ends):.4g}"


def _some(texts: Sequence[str]) -> str:
    return ", ".join(texts[:SHOWN]) + f" and {len(texts) - SHOWN} more" * (len(texts) > SHOWN)
