"""What every subcommand is: options, and `execute`."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar

import tyro

from tpusim.cli.output import Output


@dataclass(kw_only=True)
class Command(ABC):
    """A subcommand that prints a result; its fields are its options."""

    says: ClassVar[str]
    """One line: what the JSON object has besides command, passed, wrote and error."""

    quiet: Annotated[bool, tyro.conf.arg(aliases=["-q"]), tyro.conf.FlagCreatePairsOff] = False
    """Print the result alone: no progress, no details, no names of written files."""
    verbose: Annotated[tyro.conf.UseCounterAction[int], tyro.conf.arg(aliases=["-v"])] = 0
    """Print names uncut, and more where a command has more to say; repeat for still more."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print the result as one JSON object, and nothing else on stdout; docs/cli.md says what is in it."""

    @abstractmethod
    def execute(self, console: Output) -> bool:
        """Do the work; whether it succeeded."""
