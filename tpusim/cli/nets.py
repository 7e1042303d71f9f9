"""`tpusim link` and `tpusim prove`: programs of several nets."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from tpusim.cli.command import Command
from tpusim.cli.options import (
    Calibration,
    CalibrationOptions,
    Grouping,
    GroupingOptions,
    Lowering,
    LoweringOptions,
    Network,
    NetworkOptions,
    Options,
    network_of,
)
from tpusim.cli.output import Output
from tpusim.errors import ConfigError

if TYPE_CHECKING:
    from tpusim.decoder.prove import Agreement
    from tpusim.isa.nets import Nets
    from tpusim.isa.stream import Program
    from tpusim.running.artefacts import RunConfig

Paths = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="NETS")]
_SHOWN = 12
"""At most so many faults, and pairs of nets, are printed."""


@dataclass(frozen=True)
class _Apart:
    """Inputs and results get bytes that nothing else uses."""

    def over(self, base: "RunConfig") -> "RunConfig":
        from dataclasses import replace

        from tpusim.compiled_nets import OF_ALL

        return replace(base, addr_mode=OF_ALL)


@dataclass
class Link(Command):
    """Compile several networks into one program: constants that several of them have are stored once.

    Takes networks, programs that were compiled with --addr-mode io_alone, or a folder of ONNX files, such as the blocks
    of a decoder. A net has the name of its file. Caches of keys and values of a decoder keep their bytes across runs.
    """

    says = "the `nets` with their inputs and results, and the `persistent` tensors"

    nets: Paths
    """Networks, programs, or one folder of ONNX files."""
    out: Path = Path("nets.tpusim")
    """Program to write."""
    network: Network = NetworkOptions()
    calibration: Calibration = CalibrationOptions()
    lowering: Lowering = LoweringOptions()
    grouping: Grouping = GroupingOptions()

    def execute(self, console: Output) -> bool:
        """Compile and link, and write the program."""
        from tpusim.isa.nets import save_nets

        nets = nets_of(self.nets, (self.network, self.calibration, self.lowering, self.grouping))
        save_nets(nets, self.out)
        show_nets(console, nets)
        console.wrote(self.out, _count(nets))
        return True


@dataclass
class Prove(Command):
    """Compare prefill, chunks and decode of a decoder on the machine: the same tokens must get the same bits.

    Takes the program that `tpusim link` wrote, or the same nets as `tpusim link`. Keys and values must be equal on all
    ways. Results of attention must be equal if its blocks of keys are; otherwise they may differ by roundings. Rows and
    cached positions without a token are filled with other numbers each time.
    """

    says = (
        "how many `cases` there were and tokens were `compared`, how many cases were `equal` and `failed`, what lies "
        "`apart` and why, and the `faults`"
    )

    nets: Paths
    """A program, networks, or one folder of ONNX files."""
    tokens: int = 0
    """The longest sequence; 0: as many as the caches have room for."""
    chunks: tuple[int, ...] = ()
    """Lengths of chunks; default: what the nets take, one less, and half."""
    seed: int = 0
    """Of the random hidden states."""
    network: Network = NetworkOptions()
    calibration: Calibration = CalibrationOptions()
    lowering: Lowering = LoweringOptions()
    grouping: Grouping = GroupingOptions()

    def execute(self, console: Output) -> bool:
        """Prove, and print the differences; True if no fault was observed."""
        from tpusim.decoder import Decoder
        from tpusim.decoder.prove import prove
        from tpusim.simulator.session import Session

        nets = nets_of(self.nets, (self.network, self.calibration, self.lowering, self.grouping))
        found = prove(Decoder(Session(nets)), seed=self.seed, most=self.tokens, chunks=self.chunks)
        console.result(**{name: value for name, value in found.to_json().items() if name != "passed"})
        for line in _lines(found):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
        return found.passed


def _lines(found: "Agreement") -> list[str]:
    """What a proof has shown, for the terminal."""
    said = found.to_json()
    lengths = sorted({case.tokens for case in found.cases})
    lines = [
        f"{len(found.cases)} cases of {lengths[0]} to {lengths[-1]} tokens: {said['equal']} equal in every bit, "
        f"{len(found.cases) - said['equal'] - said['failed']} but for other blocks of keys, {said['failed']} wrong"
    ]
    if found.apart:
        lines.append(f"attention differs by {100 * found.largest:.0f} % of what other blocks explain, at most:")
        lines += [f"  {count:,} tokens: {nets}" for nets, count in found.apart.most_common(_SHOWN)]
    if found.passed:
        lines.append("keys, values and queries are equal on all ways; no row or position without a token was seen")
    faults = found.faults
    lines += [f"wrong: {fault}" for fault in faults[:_SHOWN]]
    return lines + ([f"and {len(faults) - _SHOWN} more"] if len(faults) > _SHOWN else [])


def nets_of(paths: tuple[Path, ...], options: tuple[Options, ...]) -> "Nets":
    """The nets of a program file, or of networks, which are compiled. Raises ConfigError for two of one name."""
    from tpusim.compiled import Compiled
    from tpusim.compiled_nets import caches_of, compiled, models_of
    from tpusim.ir.content import is_program
    from tpusim.isa.linking import link
    from tpusim.isa.nets import load_nets
    from tpusim.running.asked import run_here

    if not paths:
        raise ConfigError("nets: a program, networks or a folder of ONNX files are required, got none")
    if len(paths) == 1 and is_program(paths[0]):
        return load_nets(paths[0])
    found: dict[str, Path] = {}
    for path in paths:
        run = run_here(path) if path.is_dir() else None
        named = models_of(path) if path.is_dir() and run is None else {(run.model if run else path).stem: path}
        for name, one in named.items():
            if name in found:
                raise ConfigError(f"{one}: nets of different names are required, {found[name]} is '{name}' already")
            found[name] = one
    if all(is_program(path) for path in found.values()):
        programs: dict[str, Program] = {name: network_of(path, ()).program for name, path in found.items()}
        return link(programs, caches_of(programs))

    def compile_one(name: str, path: Path) -> Compiled:
        del name
        network = network_of(path, () if is_program(path) else (*options, _Apart()))
        network.program  # noqa: B018  compiles it
        return Compiled(network)

    return compiled(found, compile_one).program


def show_nets(console: Output, nets: "Nets") -> None:
    """Print the nets with their inputs and results, and what they share."""
    from tpusim.isa.nets import shapes

    def listed(tensors: dict[str, tuple[str, tuple[int, ...]]]) -> dict[str, str]:
        return {name: f"{kind} {'x'.join(map(str, shape)) or 'scalar'}" for name, (kind, shape) in tensors.items()}

    console.print(
        f"{_count(nets)} for {nets.chip}, {nets.coefficients.nbytes:,} bytes of weights "
        f"({_apart_bytes(nets):,} in separate programs)",
        highlight=False, markup=False,
    )  # fmt: skip
    said: dict[str, object] = {}
    for name, program in nets.items():
        inputs, results = listed(shapes(program.inputs)), listed(shapes(program.outputs))
        said[name] = {
            "mode": program.header.mode, "inputs": inputs, "results": results, "commands": len(program.commands),
        }  # fmt: skip
        console.print(f"{name}: {program.header.mode}, {len(program.commands):,} commands", markup=False)
        for what, tensors in (("takes", inputs), ("gives", results)):
            console.print(f"  {what} {', '.join(f'{n} {text}' for n, text in tensors.items())}", markup=False)
    for one in nets.persistent:
        users = ", ".join(f"{net}.{tensor}" for net, tensor in one.tensors.items())
        console.print(f"{one.name} keeps {one.size:,} bytes across runs: {users}", markup=False)
    console.result(nets=said, persistent={one.name: one.tensors for one in nets.persistent})


def _count(nets: "Nets") -> str:
    return f"{len(nets)} net{'s' * (len(nets) > 1)}"


def _apart_bytes(nets: "Nets") -> int:
    return sum(entry.size for program in nets.values() for entry in program.constants)
