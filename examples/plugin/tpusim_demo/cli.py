"""A subcommand: `tpusim count-ops NETWORK`."""

from collections import Counter
from dataclasses import dataclass

from tpusim.cli.command import Command
from tpusim.cli.options import NetworkPath
from tpusim.cli.output import Output


@dataclass
class CountOps(Command):
    """Count the ops of a network as it is imported, by name."""

    says = "`ops`: how many there are, by name"

    network: NetworkPath

    def execute(self, console: Output) -> bool:
        """Print a line for each name."""
        from tpusim.running.network import open_network

        counts = Counter(op.name for op in open_network(self.network, lambda config: config).earliest.ops)
        for name, count in counts.most_common():
            console.print(f"{count} {name}")
        console.result(ops=dict(counts))
        return True
