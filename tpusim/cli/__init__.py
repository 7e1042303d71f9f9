"""The command line: one subcommand per stage, `run` for all of them, and tools around artefacts.

`registry.CLI` names one dataclass per subcommand (its fields are the options), `output` is where they print, `progress`
what they say meanwhile, `help` and `words` are for what a user types, `entry` has the one rule about errors: a
TpusimError is one message on stderr and exit status 1.
"""

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; exit status 0 for success, 1 for a failed comparison or a TpusimError, 130 for Ctrl-C."""
    try:
        from tpusim.cli.entry import enter

        return enter(arguments)
    except KeyboardInterrupt:  # during the imports
        if "--debug" in (sys.argv if arguments is None else arguments):
            raise
        sys.stderr.write("tpusim: interrupted\n")
        return 130
