"""The command line: one subcommand per stage, `run` for all of them, and tools around artefacts.

`commands` holds one dataclass per subcommand (its fields are the options), `show` the tables a person reads, `main` the
entry point with its one rule about errors: a TpusimError is one message on stderr and exit status 1.
"""

from tpusim.cli.main import main

__all__ = ["main"]
