"""Spaces and their points: the product of models, chips, figures of chips, modes, strategies, batches and cores."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import product
from math import isfinite
from pathlib import Path
from typing import Any, TypeAlias

from tpusim import chips
from tpusim.calibration.stage import CalibrationConfig
from tpusim.chips import ChipSpec, flattened
from tpusim.errors import ConfigError, meant, option
from tpusim.frontend import WHOLE, Cut
from tpusim.host.documents import parse_json
from tpusim.images import Preprocess
from tpusim.ir.formats import number_format
from tpusim.layer_group import LayerGroupConfig, read_forced
from tpusim.registry import STRATEGIES
from tpusim.running.artefacts import RunConfig

Value: TypeAlias = int | float | str | bool
Settings: TypeAlias = tuple[tuple[str, Value], ...]
FIXED = ("name", "family", "extends")
"""Fields that identify a chip, which cannot be varied."""
VERIFIED = 8
"""Similarities are measured on so many samples; a single result that is near zero says nothing about a network."""


@dataclass(frozen=True)
class Point:
    """One design. batch: 0 is the batch of the model's file."""

    model: Path
    chip: ChipSpec
    settings: Settings
    mode: str
    strategy: str
    batch: int
    cores: int

    def spec(self) -> ChipSpec:
        """The chip with its settings. Raises ConfigError for impossible figures."""
        figures = flattened(self.chip)
        other = [(name, value) for name, value in self.settings if figures[name] != value]
        if not other:
            return self.chip
        return self.chip.replace(f"{self.chip.name} {settings_text(tuple(other))}", **_nested(other))


@dataclass(frozen=True)
class Space:
    """The varied options, and the options common to all points.

    chips: names, TOML files or chips. settings: field of a chip, as in "bandwidth.s2l", -> values. batches: 0 is that
    of the model's file. models: files of models and modules, folders of runs. data: samples for calibration and
    `verify`, as in `RunConfig`, which also has the fields from `table` on; an input shape applies to models with an
    input of that name. verify: also compare the results of the flat network with those of the top module, on VERIFIED
    samples. strategies: names, or files of pinned groups (`tpusim group --force`). through_upstream: the folder of an
    environment with TPU-MLIR, whose tools make and run a bmodel of every point; "auto": of TPUSIM_UPSTREAM.
    """

    models: Sequence[str | Path]
    chips: Sequence[str | Path | ChipSpec] = ("bm1684x",)
    modes: Sequence[str] = ("int8",)
    strategies: Sequence[str] = ("2",)
    batches: Sequence[int] = (0,)
    cores: Sequence[int] = (1,)
    settings: Mapping[str, Sequence[Value]] = field(default_factory=dict[str, Sequence[Value]])
    data: str = "random:8"
    calibration: CalibrationConfig = CalibrationConfig()
    asymmetric: bool = False
    verify: bool = False
    table: Path | None = None
    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    cut: Cut = WHOLE
    preprocess: Preprocess | None = None
    preprocess_list: tuple[int, ...] = ()
    through_upstream: str = ""

    def over(self, base: RunConfig) -> RunConfig:
        """A model's configuration, overridden by the space's options that differ from their defaults."""
        usual, names = (
            Space(()),
            ("data", "calibration", "table", "input_shapes", "cut", "preprocess", "preprocess_list"),
        )
        found = {name: getattr(self, name) for name in names if getattr(self, name) != getattr(usual, name)}
        return replace(base, **found)

    def points(self) -> list[Point]:
        """All points, ordered by model and batch, then by chip and mode.

        Raises ConfigError for options that no point can have: a model that is no file, an unknown chip, field, mode or
        strategy.
        """
        models, specs = [_file(model) for model in self.models], [chips.load(chip) for chip in self.chips]
        varied = {name: getattr(self, name) for name in ("models", "chips", "modes", "strategies", "batches", "cores")}
        for name, values in (varied | dict(self.settings)).items():
            if not values:
                raise ConfigError(f"{name}: at least one value is required")
        self._require_known(specs)
        settings = [tuple(zip(self.settings, one, strict=True)) for one in product(*self.settings.values())]
        order = product(models, self.batches, specs, settings, map(str.lower, self.modes), self.strategies, self.cores)
        found = [
            Point(model, spec, figures, mode, strategy, batch, cores)
            for model, batch, spec, figures, mode, strategy, cores in order
        ]
        return list(dict.fromkeys(found))

    def _require_known(self, specs: Sequence[ChipSpec]) -> None:
        for mode in self.modes:
            number_format(mode)
        for strategy in self.strategies:
            if is_file(strategy):
                read_forced(Path(strategy))
            elif strategy not in STRATEGIES:
                raise ConfigError(
                    f"{option('strategies', strategy)}: expected one of {', '.join(STRATEGIES)}, or a file of groups"
                    f"{meant(strategy, STRATEGIES)}"
                )
        for name, least, values in (("batches", 0, self.batches), ("cores", 1, self.cores)):
            for value in values:
                if value < least:
                    raise ConfigError(f"{option(name, value)}: {least} or more is required")
        for spec in specs:
            for name, values in self.settings.items():
                _require_field(spec, name, values)


def is_file(strategy: str) -> bool:
    """Whether a strategy is a file of pinned groups, and no name."""
    return strategy not in STRATEGIES and Path(strategy).is_file()


def grouping(strategy: str, cores: int) -> LayerGroupConfig:
    """The options of layer groups of a strategy; ops that a file does not pin are searched by "2"."""
    if not is_file(strategy):
        return LayerGroupConfig(strategy, cores=cores)
    forced = read_forced(Path(strategy))
    return LayerGroupConfig("2", forced.groups, "1" if forced.better_shapes else "0", cores)


def require_energies(flag: str, measures: Sequence[str], space: Space) -> None:
    """Raise ConfigError if energy is a measure and no chip of the space gives the energies of a byte and a product."""
    if "energy" not in measures:
        return
    for point in space.points():
        with suppress(ConfigError):
            if point.spec().energy_pj_per_byte:
                return
    raise ConfigError(
        f"{flag} energy: energy_pj_per_byte and energy_pj_per_mac are required, and none of the chips has them; "
        f"give both by {option('set')}, or in a TOML file that extends the chip"
    )


def parse_setting(text: str) -> tuple[str, tuple[Value, ...]]:
    """`lmem_bytes=131072,262144` -> ("lmem_bytes", (131072, 262144)); `chip.` in front may stay. Raises ConfigError."""
    name, equals, values = text.partition("=")
    found = tuple(_value(value.strip()) for value in values.split(",") if value.strip())
    if not equals or not name or not found:
        raise ConfigError(f"{option('set', text)}: FIELD=VALUE,VALUE is required, as in lmem_bytes=131072,262144")
    return name.strip().removeprefix("chip."), found


def settings_text(settings: Settings) -> str:
    """Fields and values for people, and for the name of the changed chip."""
    return " ".join(f"{name}={value}" for name, value in settings)


def _value(text: str) -> Value:
    """A number or truth value in JSON's form; any other text unchanged."""
    try:
        found: Any = parse_json(text)
    except ValueError:
        return text
    return found if isinstance(found, int | float | str) and (isinstance(found, str) or isfinite(found)) else text


def _nested(settings: Sequence[tuple[str, Value]]) -> dict[str, Any]:
    """Tables of fields whose names have dots."""
    found: dict[str, Any] = {}
    for name, value in settings:
        *tables, last = name.split(".")
        inner = found
        for table in tables:
            inner = inner.setdefault(table, {})
        inner[last] = value
    return found


def _file(model: str | Path) -> Path:
    path = Path(model)
    if not path.exists():
        raise ConfigError(f"model {path}: no such file")
    return path


def _require_field(chip: ChipSpec, name: str, values: Sequence[Value]) -> None:
    """Raise ConfigError unless a chip has the field, and the values are of its kind."""
    known = {key: value for key, value in flattened(chip).items() if key not in FIXED}
    if name not in known:
        close = get_close_matches(name, known, 3) or sorted(key for key in known if key.startswith(f"{name}."))
        hint = f"; did you mean {' or '.join(close)}?" if close else "; `tpusim chips show CHIP` lists them"
        raise ConfigError(f"{option('set', name)}: chip {chip.name} has no such field that can be varied{hint}")
    for value in values:
        if not _same_kind(known[name], value):
            wanted = f"a value like {known[name]!r} is required, got {value!r}"
            raise ConfigError(f"{option('set', name)}: {wanted}; give a chip of your own as a TOML file for lists")


def _same_kind(usual: object, value: Value) -> bool:
    """Whether a value is of the same kind as `usual`; None stands for a number that is not given."""
    if isinstance(usual, bool) or isinstance(value, bool):
        return type(usual) is type(value)
    if isinstance(usual, int):
        return isinstance(value, int)
    return isinstance(value, str) if isinstance(usual, str) else isinstance(value, int | float) and _is_number(usual)


def _is_number(usual: object) -> bool:
    return usual is None or isinstance(usual, float)
