"""All problems of a model in one message, with a line for all nodes of a type that are refused for the same reason."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from tpusim.errors import UnsupportedError, option


class NetworkRefused(UnsupportedError):
    """A model that cannot be imported; `wanted`: the inputs that would have to be constant."""

    def __init__(self, lines: Sequence[str], wanted: frozenset[str]) -> None:
        super().__init__(*lines)
        self.wanted = wanted


@dataclass
class Problems:
    """Problems in the order of the graph."""

    label: str
    nodes: dict[tuple[str, str, str], list[str]] = field(default_factory=dict[tuple[str, str, str], list[str]])
    """(op type, operator set, reason) -> names."""
    others: list[str] = field(default_factory=list[str])

    def __bool__(self) -> bool:
        """Whether any node or anything else was refused."""
        return bool(self.nodes or self.others)

    def of_model(self, line: str) -> None:
        """Note a problem of the model as a whole."""
        self.others.append(line)

    def of_node(self, op_type: str, name: str, operators: str, why: str) -> None:
        """Note why a node cannot be imported."""
        self.nodes.setdefault((op_type, operators, why.replace(f"'{name}'", "'{}'")), []).append(name)

    def refusal(self, wanted: frozenset[str], *, small: bool) -> NetworkRefused:
        """One error that lists everything refused in the model; small: whether `wanted` have few elements."""
        count = sum(map(len, self.nodes.values())) + len(self.others)
        lines = [*self.others, *(_line(*key, names) for key, names in self.nodes.items())]
        remedy = (
            "replace these nodes before the export, or run them outside the network: "
            f"{option('outputs')} ends it before them, {option('inputs')} begins it after them"
        )
        if wanted and small:
            names = sorted(wanted)
            typed = " ".join(shlex.quote(f"{name}=VALUE") for name in names)
            written = ", ".join(f"{name!r}: VALUE" for name in names)
            values = option("input_values", written=f"{{{written}}}", typed=typed)
            remedy = f"if {_listed(names)} always the same, give {values}; else {remedy}"
        head = f"model '{self.label}': {count} {'problem' if count == 1 else 'problems'} at import:"
        return NetworkRefused([head, *(f"  {line}" for line in lines), remedy], wanted)


def _listed(names: list[str]) -> str:
    """As the subject of a sentence."""
    several = len(names) > 1
    return f"{'inputs' if several else 'input'} {', '.join(map(repr, names))} {'are' if several else 'is'}"


def _line(op_type: str, operators: str, why: str, names: list[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{op_type} '{names[0]}'{more} ({operators}): " + why.replace("'{}'", f"'{names[0]}'")
