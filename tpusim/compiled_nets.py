"""`CompiledNets`: several networks in one program, such as the blocks of a decoder; `tpusim.compile_nets` gives it."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

from tpusim.compiled import Compiled, compile_network
from tpusim.decoder import Decoder, persistent_of
from tpusim.decoder.prove import Agreement, prove
from tpusim.errors import ConfigError, meant
from tpusim.inference.session import FlatSession
from tpusim.isa.linking import link
from tpusim.isa.nets import Nets, save_nets, shapes
from tpusim.isa.stream import Program
from tpusim.numbers.persistent import Signature
from tpusim.running.calling import configure
from tpusim.running.network import path_of
from tpusim.simulator import SimulatorOptions
from tpusim.simulator.session import Session

Level = Literal["tpu", "local"]
OF_ALL = "io_alone"
"""The address mode of nets: persistent inputs need bytes that nothing else uses."""


class CompiledNets(Mapping[str, Compiled]):
    """Networks compiled for one chip, by the name of their net.

    `program` has all of them with one weight store; `session()` runs them on memory that lives across runs, and
    `decoder()` is the runtime of a language model on it; `prove()` compares prefill, chunks and decode; `save(path)`
    writes the program.
    """

    def __init__(self, nets: Mapping[str, Compiled], persistent: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self._nets = dict(nets)
        programs = {name: net.program for name, net in self._nets.items()}
        self.program: Nets = link(programs, caches_of(programs) if persistent is None else persistent)

    def __repr__(self) -> str:
        """As the program shows itself."""
        return f"<CompiledNets {self.program!r}>"

    def __getitem__(self, name: str) -> Compiled:
        """A net as it was compiled. Raises KeyError."""
        return self._nets[name]

    def __iter__(self) -> Iterator[str]:
        """The names of the nets."""
        return iter(self._nets)

    def __len__(self) -> int:
        """The number of nets."""
        return len(self._nets)

    @cached_property
    def _flat(self) -> dict[str, dict[str, str]]:
        return {one.name: dict(one.tensors) for one in self.program.persistent}

    def session(self, level: Level = "local", options: SimulatorOptions | None = None) -> Session | FlatSession:
        """A session of the machine (local), or of flat inference (tpu)."""
        if level not in ("tpu", "local"):
            raise ConfigError(f"level={level!r}: tpu or local is required")
        if level == "local":
            return Session(self.program, options)
        return FlatSession({name: net.tpu for name, net in self._nets.items()}, self._flat)

    def decoder(self, level: Level = "local", options: SimulatorOptions | None = None) -> Decoder:
        """The nets as a language model, with empty caches. Raises ConfigError if they are none."""
        return Decoder(self.session(level, options))

    def prove(self, **options: Any) -> Agreement:
        """Compare prefill, chunks and decode on the machine; options as of `tpusim.decoder.prove.prove`."""
        return prove(self.decoder(), **options)

    def save(self, path: str | Path) -> Path:
        """Write the program with all nets; the path."""
        found = path_of("path", path)
        save_nets(self.program, found)
        return found


def caches_of(programs: Mapping[str, Program]) -> dict[str, dict[str, str]]:
    """The caches of the nets of a decoder; {} for other nets."""
    signatures: dict[str, Signature] = {n: (shapes(p.inputs), shapes(p.outputs)) for n, p in programs.items()}
    return persistent_of(signatures)


def models_of(given: object) -> dict[str, Any]:
    """Models by the name of their net: a mapping, or the ONNX files of a folder."""
    if isinstance(given, Mapping):
        found = {str(name): model for name, model in cast("Mapping[object, Any]", given).items()}
    else:
        folder = path_of("models", given)
        if not folder.is_dir():
            raise ConfigError(f"{folder}: a folder of ONNX files is required, one for each net")
        found = {path.stem: path for path in sorted(folder.glob("*.onnx"), key=_numbered)}
    if not found:
        raise ConfigError(f"{given}: a network or more is required, got none; their files end in .onnx")
    return found


def _numbered(path: Path) -> list[tuple[int, str]]:
    """A key that sorts block_2 before block_10."""
    parts = re.split(r"(\d+)", path.stem)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def compile_all(
    models: object, samples: object, persistent: Mapping[str, Mapping[str, str]] | None,
    options: Mapping[str, Any], arguments: Sequence[str],
) -> CompiledNets:  # fmt: skip
    """What `tpusim.compile_nets` does; arguments: those of `tpusim.compile`."""
    known = [name for name in arguments if name not in _OF_ONE]
    for name in options:
        if name not in known:
            raise ConfigError(f"{name}: an argument of tpusim.compile is required{meant(name, known)}")
    if samples is not None and not isinstance(samples, Mapping):
        raise ConfigError(f"samples: calibration samples by net are required, got {type(samples).__name__}")
    of_net = cast("Mapping[str, Any]", samples or {})
    put = configure({**options, "addr_mode": OF_ALL})
    return compiled(models_of(models), lambda name, model: compile_network(
        model, of_net.get(name), options.get("table"), put
    ), persistent)  # fmt: skip


_OF_ONE = ("model", "samples", "reference", "example", "addr_mode")
"""Arguments of `tpusim.compile` that differ between nets, or that all nets have in common."""


def compiled(
    models: Mapping[str, Any], compile_one: Callable[[str, Any], Compiled],
    persistent: Mapping[str, Mapping[str, str]] | None = None,
) -> CompiledNets:  # fmt: skip
    """Every model compiled, in one program; an error names the net."""
    nets: dict[str, Compiled] = {}
    for name, model in models.items():
        try:
            nets[name] = compile_one(name, model)
        except Exception as error:
            error.add_note(f"this was net '{name}'")
            raise
    return CompiledNets(nets, persistent)
