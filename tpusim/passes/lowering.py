"""Passes from a top module to a tpu module with its weights as the chip reads them."""

import json
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from tpusim import chips
from tpusim.chips import ChipSpec
from tpusim.errors import ConfigError
from tpusim.ir.formats import NumberFormat
from tpusim.ir.module import Model, State
from tpusim.lowering import LoweringConfig, lower, optimize_for_chip, reorder_weights
from tpusim.passes.base import Codec, Pass
from tpusim.passes.context import PassContext
from tpusim.registry import FORMATS


def read_chip(text: str) -> str | ChipSpec:
    """A chip's name or file, or what `write_chip` wrote of a chip that does not ship."""
    if not text.startswith("{"):
        return text
    try:
        found: dict[str, Any] = json.loads(text)
        return chips.resolve(str(found.pop("name")), json.dumps(found, sort_keys=True))
    except (ValueError, KeyError) as error:
        raise ConfigError(f"chip: a name, a TOML file or a JSON object with a name is required: {error}") from error


def write_chip(chip: str | ChipSpec) -> str:
    """The name of a chip that ships, or the path that was given; else its fields as JSON."""
    stated = chips.as_stated(chip)
    if isinstance(stated, str):
        return stated
    return json.dumps({"name": stated.name, **json.loads(chips.define(stated))}, sort_keys=True)


def write_mode(mode: str | NumberFormat) -> str:
    """The name of a mode. Raises ConfigError for a format that is not registered under its name."""
    if isinstance(mode, str):
        return mode
    if mode.name in FORMATS and FORMATS.get(mode.name) is mode:
        return mode.name
    raise ConfigError(
        f"convert-top-to-tpu: mode of a pipeline's text is a name, one of {', '.join(FORMATS)}, got the NumberFormat "
        f"'{mode}'; register it (entry point group {FORMATS.group})"
    )


@dataclass(frozen=True)
class ConvertTopToTpu(LoweringConfig, Pass):
    """Lower a top module for a chip and mode; the options are those of the lowering stage."""

    name = "convert-top-to-tpu"
    requires = frozenset({State.TOP, State.CALIBRATED})
    produces = State.LOWERED
    exact = False
    codecs = {"chip": Codec(read_chip, write_chip), "mode": Codec(str, write_mode)}

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        found, fallbacks = lower(model, self)
        ctx.fallbacks.extend(fallbacks)
        return found


@dataclass(frozen=True)
class ProcessorTpuOptimize(Pass):
    """Rewrite a lowered module by the patterns that ops have for its chip, before layer groups are formed."""

    name = "processor-tpu-optimize"
    requires = frozenset({State.LOWERED})

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        return optimize_for_chip(model)


@dataclass(frozen=True)
class WeightReorder(Pass):
    """Put constants into the layouts that the chip reads; done already in a module in state TPU_REORDERED."""

    name = "weight-reorder"
    requires = frozenset({State.LOWERED, State.REORDERED})
    produces = State.REORDERED

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        return model if model.state == State.REORDERED else reorder_weights(model)
