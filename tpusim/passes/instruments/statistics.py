"""How often patterns were tried and fired."""

from collections import Counter
from collections.abc import Iterator

from typing_extensions import override

from tpusim.passes.instruments.base import Instrument, Step


class PatternStatistics(Instrument):
    """Counts tries and firings by pass and pattern."""

    watches_patterns = True

    def __init__(self) -> None:
        self.tries: Counter[tuple[str, str]] = Counter()
        self.firings: Counter[tuple[str, str]] = Counter()

    @override
    def tried(self, pattern: str, step: Step, seconds: float, *, fired: bool) -> None:
        self.tries[step.name, pattern] += 1
        self.firings[step.name, pattern] += fired

    @override
    def report(self) -> Iterator[str]:
        yield "  fired    tried  pattern"
        fired = {key: count for key, count in self.firings.items() if count}
        for (step, pattern), count in fired.items():
            yield f"{count:7,} {self.tries[step, pattern]:8,}  {step}: {pattern}"
        others = self.tries.keys() - fired.keys()
        yield f"{0:7} {sum(self.tries[key] for key in others):8,}  {len(others)} others"
