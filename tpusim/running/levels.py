"""The flat levels of a network: its framework, the top and the tpu module, for one sample and over several.

A verdict rests on several samples (interface.md DI-12). All tensors of the first one are compared as in U-92; the
similarity of every tensor is measured over all of them. One sample is in memory at a time.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import NamedTuple

import numpy as np

from tpusim.calibration.samples import Samples
from tpusim.frontend import Reference, as_called, front_end
from tpusim.host.heap import give_back
from tpusim.images import images_of, inputs_of
from tpusim.inference import Gradual, RealValues, input_specs, parts_of
from tpusim.inference import run as run_flat
from tpusim.ir.attrs import value_name
from tpusim.ir.imported_scales import imported_ranges
from tpusim.ir.module import Model
from tpusim.running.artefacts import Artefacts, Tensors, need
from tpusim.verify.compare import Comparison, Tolerance, compare
from tpusim.verify.dead_layers import with_channels
from tpusim.verify.lost import Parts
from tpusim.verify.over_samples import Collected
from tpusim.verify.tolerances import TOP_VS_ONNX, tpu_vs_top

FILE = "file"
"""The level of a quantised network's results, with Q and DQ computed as they are written."""
Levels = Mapping[str, Mapping[str, np.ndarray]]
"""Tensors of one sample by level, quantised ones as the real values they stand for."""
LevelsOf = Callable[[Mapping[str, np.ndarray]], Levels]


def samples_of(a: Artefacts, model: Model) -> Iterable[Tensors]:
    """The calibration samples of a run, in the order of U-61; those that were given in memory."""
    if a.given is not None:
        return a.given
    count, images = a.config.calibration.max_samples, images_of(model)
    return Samples(a.config.data, input_specs(model), count, shuffled=True, images=images)


def sample_for_chip(a: Artefacts, sample: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A sample as the lowered module takes it: frames of a camera and stored integers where it wants them."""
    images = images_of(need(a.canonical, "the canonical module"))
    return inputs_of(need(a.tpu, "the tpu module"), sample, images, nearest=a.config.data.startswith("random:"))


def reference_of(a: Artefacts) -> Reference | None:
    """The results of the network's framework; None for a module, which has no framework."""
    if a.reference is None and a.from_file:  # not kept: it has a copy of the weights
        path = a.config.model
        return front_end(path).reference(path, input_shapes=a.config.input_shapes, cut=a.config.cut)
    return a.reference


def float_levels(a: Artefacts) -> dict[str, Tensors]:
    """What the original model and the top module compute of the first sample."""
    top, reference = need(a.canonical, "the canonical module"), reference_of(a)
    found = {reference.level: as_called(top, reference.run(a.sample))} if reference is not None else {}
    del reference
    return {**found, "top": run_flat(top, a.sample)}


def tpu_level(a: Artefacts) -> dict[str, Tensors]:
    """What the tpu module computes of the first sample, as it is stored."""
    return {"tpu": run_flat(need(a.tpu, "the tpu module"), sample_for_chip(a, a.sample))}


class _Pair(NamedTuple):
    """Two levels to compare. decides: whether the run's verdict depends on it."""

    target: str
    reference: str
    tolerance: Tolerance
    decides: bool = True

    @property
    def label(self) -> str:
        """The name of the comparison."""
        return f"{self.target}_vs_{self.reference}"


def compared_levels(a: Artefacts, stored: Levels) -> dict[str, Comparison]:
    """The comparisons of the flat levels, by name. stored: tensors of the first sample by level, as they are stored."""
    top, tpu = need(a.canonical, "the canonical module"), need(a.tpu, "the tpu module")
    file = _file_results(a)
    first = {**stored, "tpu": RealValues(tpu, stored["tpu"]), **file(a.sample)}
    pairs = list(_pairs(a, first))
    results = [value_name(value) for value in top.results]
    parts = {name: Parts(*found) for name, found in parts_of(top).items()}
    found = {p: Collected(p.tolerance, results, parts if p.target == "tpu" else None) for p in pairs}

    def add(levels: Levels) -> None:
        for pair, collected in found.items():
            collected.add(levels[pair.target], levels[pair.reference])

    add(first)
    levels_of = _other_levels(a, file)
    for sample in _others(a, top):
        add(levels_of(sample))
        give_back()
    return {pair.label: collected.judged(_of_first(pair, first, stored)) for pair, collected in found.items()}


def _pairs(a: Artefacts, first: Levels) -> Iterator[_Pair]:
    """What is compared with what. The integers of a quantised network are compared with the network's results."""
    yield from (_Pair("top", level, TOP_VS_ONNX) for level in first.keys() - {"top", "tpu", FILE})
    format = a.config.lowering.format
    tolerance = tpu_vs_top(format.needs)
    yield _Pair("tpu", "top", tolerance, decides=FILE not in first)
    if FILE in first:
        yield _Pair("tpu", FILE, tolerance)


def _of_first(pair: _Pair, first: Levels, stored: Levels) -> Comparison:
    """All tensors of the first sample."""
    target, reference = first[pair.target], first[pair.reference]
    found = compare(target, reference, pair.tolerance, label=pair.label)
    if pair.target == "tpu":
        found = with_channels(found, stored["tpu"], target, reference)
    return replace(found, decides=pair.decides)


def _other_levels(a: Artefacts, file: LevelsOf) -> LevelsOf:
    """The levels of any sample after the first: of one sample nothing stays when the next one is computed."""
    top, tpu = need(a.canonical, "the canonical module"), need(a.tpu, "the tpu module")
    real, flat, opened = Gradual(top, "all"), Gradual(tpu, "all"), cache(lambda: reference_of(a))

    def levels(sample: Mapping[str, np.ndarray]) -> Levels:
        reference = opened()
        framework = {reference.level: as_called(top, reference.run(sample))} if reference is not None else {}
        stored = flat(sample_for_chip(a, sample))
        return {**framework, "top": real(sample), "tpu": RealValues(tpu, stored), **file(sample)}

    return levels


def _others(a: Artefacts, top: Model) -> Iterator[Mapping[str, np.ndarray]]:
    """The samples to compare after the first."""
    samples = a.others if a.others is not None else islice(samples_of(a, top), 1, None)
    return islice(samples, max(a.config.compare_samples - 1, 0))


def _file_results(a: Artefacts) -> LevelsOf:
    """The results of a quantised file, by the module's names; nothing for other files and modes."""
    top, config = need(a.canonical, "the canonical module"), a.config
    quantised = config.lowering.format.calibrated and imported_ranges(top)
    if not (a.from_file and quantised and front_end(config.model).through_onnx):
        return lambda sample: {}
    from tpusim.frontend.onnx import OnnxReference, cut_out, read_onnx

    proto = cut_out(config.cut, read_onnx(config.model), config.input_shapes, str(config.model))
    names = [output.name for output in proto.graph.output]
    reference = OnnxReference(config.model, names, input_shapes=config.input_shapes, cut=config.cut)
    called = dict(zip(names, (value_name(value) for value in top.results), strict=True))

    def results(sample: Mapping[str, np.ndarray]) -> Levels:
        found = {called[name]: array for name, array in reference.run(sample).items() if array.dtype.kind == "f"}
        return {FILE: found} if found else {}

    return results
