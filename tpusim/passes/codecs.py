"""How options that are no number, bool or text are read from the text of a pipeline and written as text."""

import json
from typing import Any

from tpusim import chips
from tpusim.chips import ChipSpec
from tpusim.errors import ConfigError
from tpusim.ir.formats import NumberFormat
from tpusim.passes.base import Codec
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


CHIP = Codec(read_chip, write_chip)
MODE = Codec(str, write_mode)
