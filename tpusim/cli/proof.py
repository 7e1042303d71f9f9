"""What a proof has shown, for the terminal."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tpusim.cli.output import Output
from tpusim.errors import ConfigError

if TYPE_CHECKING:
    from tpusim.ir.module import Model
    from tpusim.proof import Proof
    from tpusim.running.network import Network
    from tpusim.simulator import Simulator

MODULE = "6_final.mlir"
"""The file of a program's module in the folder of a run."""
_NAMED = 8
"""How many names a line has before it says that there are more."""


def module_of(network: "Network", path: Path) -> "Model":
    """The module that a program was generated from: the network's, or the one next to the program's file.

    Raises ConfigError for a program without its module.
    """
    if network.has("final"):
        return network.final
    neighbour = path.parent / MODULE
    if not neighbour.is_file():
        raise ConfigError(f"--prove: the module of {path} is required, {MODULE} next to it; give the folder of the run")
    from tpusim.cli.options import load

    model = load(neighbour)
    model.require_state("TPU_ADDRESSED", stage="prove")
    return model


def proven(console: Output, model: "Model", machine: "Simulator") -> bool:
    """Prove a program against its module and say so; True if nothing wrong was found."""
    from tpusim.proof import prove

    return show_proof(console, prove(model, machine))


def show_proof(console: Output, proof: "Proof") -> bool:
    """Print what was proven, or the first wrong command; True if nothing wrong was found."""
    console.result(proof=proof.to_json())
    for line in proof_lines(proof):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    return proof.passed


def proof_lines(proof: "Proof") -> list[str]:
    """The result, then what was judged in a weaker way, or not at all."""
    if proof.wrong is not None:
        lines = [f"not proven: {proof.wrong.headline}", f"  {proof.why}"]
    else:
        lines = [
            f"proven for all inputs{' but for what is named below' if proof.unjudged else ''}: {proof.compared:,} "
            f"slices, stores and tensors are the module's expressions ({proof.seeds} x GF({proof.prime}); others would "
            f"agree with a chance below 2**-{int(proof.bits)})"
        ]
    if proof.declared:
        lines.append(f"declared otherwise than by the module: {'; '.join(proof.declared)}")
    if proof.uncut:
        kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(proof.uncut.values()).most_common())
        lines.append(f"judged by the commands of their whole tensors, which values alone compare with the op: {kinds}")
    if proof.unjudged:
        lines.append(f"not judged: {_some([f'{name} ({why})' for name, why in proof.unjudged.items()])}")
    if proof.unseen:
        lines.append(f"depend on these: {_some(list(proof.unseen))}")
    return lines


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
