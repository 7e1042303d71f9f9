"""`tpusim fit`: whether a network fits a chip."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpusim.cli.command import Command
from tpusim.cli.options import (
    Lowering,
    LoweringOptions,
    Network,
    NetworkOptions,
    NetworkPath,
    Preprocessing,
    PreprocessOptions,
    network_of,
    require_count,
)
from tpusim.cli.output import Output

if TYPE_CHECKING:
    from tpusim.studies.prospect.fit import Fit


@dataclass
class FitCommand(Command):
    """Tell whether a network fits a chip: weights and activations in global memory, layer groups in local memory.

    Nothing runs, and no sample is needed. Tensors and ops that do not fit are named with the reason; status 1 if the
    network cannot be compiled or needs more global memory than the chip has.
    """

    says = "bytes of weights, activations and local memory, and what does not fit"

    model: NetworkPath
    lowering: Lowering = LoweringOptions()
    network: Network = NetworkOptions()
    preprocessing: Preprocessing = PreprocessOptions()
    memory: int = 0
    """MiB of global memory for the network; 0: the size in the chip's file."""

    def execute(self, console: Output) -> bool:
        """Print the memory of the network; False if it does not fit."""
        from tpusim.studies.prospect.fit import fit

        require_count("--memory", self.memory, "takes the chip's")
        given = network_of(self.model, (self.network, self.preprocessing, self.lowering), assume=True)
        found = fit(given.latest, given.lowering, room=self.memory << 20)
        console.result(**found.to_json())
        for line in lines_of(found):
            console.tell(line)
        return found.fits is not False


def lines_of(found: "Fit") -> Iterator[str]:
    """The result as text, line by line."""
    if found.refused:
        yield f"does not compile for {found.chip} in {found.mode}: {found.refused}"
        return
    room = f"of {_mib(found.room)}" if found.room else "(how much there is depends on the board: --memory MIB)"
    verdict = {True: "fits", False: "DOES NOT FIT", None: "takes"}[found.fits]
    yield f"{verdict} {found.chip} in {found.mode}: global memory {_mib(found.needed)} {room}"
    if found.fits is False:
        yield f"  too much by {_mib(found.needed - found.room)}: {_advice(found)}"
    yield f"  weights {_mib(found.weights)}, the largest {_named(found.constants)}"
    yield f"  activations {_mib(found.neurons)}, most of them alive at '{found.crowded}': {_named(found.crowd)}"
    if found.peaks:
        full = max(found.peaks)
        yield (
            f"local memory: {len(found.peaks)} layer groups, at most {full:,} of {found.lmem:,} bytes per lane "
            f"({full / found.lmem:.0%})"
        )
    for one in found.outside:
        yield f"  global layer '{one.op}' ({one.kind.removeprefix('tpu.')}), {one.cause}: {one.reason}"


def _advice(found: "Fit") -> str:
    """The most effective remedy."""
    if found.weights >= found.neurons:
        return "most are weights; 8-bit or 4-bit modes have smaller ones (`tpusim explore --modes`)"
    return f"most are activations, at '{found.crowded}'; a smaller batch or image, or fewer bits"


def _named(sizes: "tuple[tuple[str, int], ...]") -> str:
    return ", ".join(f"'{name}' {_mib(size)}" for name, size in sizes) or "none"


def _mib(count: int) -> str:
    return f"{count / 2**20:,.2f} MiB"
