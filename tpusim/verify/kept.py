"""`--keep`: which of the computed tensors a command writes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tpusim.errors import ConfigError, option
from tpusim.verify.similarity import Tensor

WORDS = ("all", "outputs", "none")


@dataclass(frozen=True)
class Keep:
    """A selection of tensors. asked: "all", "none", or "outputs" (the network's results), names and patterns of names.

    Patterns are those of a shell (`*`, `?`, `[abc]`); a tensor that is called `all` is written `[a]ll`. Verdicts do not
    depend on the selection: only files get fewer tensors. Raises ConfigError if the words contradict each other.
    """

    asked: tuple[str, ...] = ("all",)

    def __post_init__(self) -> None:
        alone = [word for word in ("all", "none") if word in self.asked]
        if not self.asked or (alone and len(self.asked) > 1):
            got = ", with other words" if self.asked else " without a word"
            raise ConfigError(f"{self}{got}: all, none, or names of tensors, patterns and `outputs` are required")

    def __str__(self) -> str:
        return " ".join(["--keep", *self.asked])

    @property
    def everything(self) -> bool:
        """Whether no tensor is left out."""
        return self.asked == ("all",)

    @property
    def nothing(self) -> bool:
        """Whether no file of tensors is written at all."""
        return self.asked == ("none",)

    @property
    def patterns(self) -> tuple[str, ...]:
        """The names and patterns of the selection."""
        return tuple(word for word in self.asked if word not in WORDS)

    def of(self, tensors: Mapping[str, Tensor], outputs: Iterable[str]) -> dict[str, Tensor]:
        """The tensors to write. outputs: names of the network's results."""
        wanted = set(outputs) if "outputs" in self.asked else set[str]()
        return {name: value for name, value in tensors.items() if self.everything or self._takes(name, wanted)}

    def _takes(self, name: str, outputs: set[str]) -> bool:
        return name in outputs or any(name == word or fnmatchcase(name, word) for word in self.patterns)

    def require_tensors(self, names: Iterable[str]) -> None:
        """Raise ConfigError for a name or pattern that no tensor has."""
        known = list(dict.fromkeys(names))
        for word in self.patterns:
            if not any(name == word or fnmatchcase(name, word) for name in known):
                raise ConfigError(
                    f"{option('keep', word)}: the name of a tensor of the network or a pattern of names is "
                    "required, which none "
                    f"of {', '.join(known[:8])}{' ...' if len(known) > 8 else ''} is; or give all, outputs or none"
                )
