"""The base class of every subcommand: options, and `execute`."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar

import tyro

from tpusim.cli.output import Output


@dataclass(kw_only=True)
class Command(ABC):
    """A subcommand that prints a result; its fields are its options."""

    says: ClassVar[str]
    """One line that describes the JSON object's fields in addition to command, passed, wrote and error."""

    quiet: Annotated[bool, tyro.conf.arg(aliases=["-q"]), tyro.conf.FlagCreatePairsOff] = False
    """Print only the result: no progress, no details, no names of written files."""
    verbose: Annotated[tyro.conf.UseCounterAction[int], tyro.conf.arg(aliases=["-v"])] = 0
    """Print full names, and more details if a command has them; repeat for still more."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print the result as one JSON object, and nothing else on stdout; docs/cli.md describes it."""

    @abstractmethod
    def execute(self, console: Output) -> bool:
        """Do the work and return whether it succeeded."""
