"""What `tpusim explore --through-upstream` prints: cuts on TPU-MLIR's tools, by network."""

from collections.abc import Iterator, Mapping, Sequence

from tpusim.host.tables import Table
from tpusim.studies.explore.front import Network, comparable
from tpusim.studies.explore.row import Row


def lines(rows: Sequence[Row], recommended: Mapping[Network, Row | None]) -> Iterator[Table | str]:
    """A table of the bmodels of each model, why others are missing, and the recommended cut of each network."""
    made = [row for row in rows if row.upstream_file]
    for (model, batch), numbers in comparable(made, range(len(made))):
        yield _table(f"{model}{f', batch {batch}' if batch else ''}", [made[i] for i in numbers])
    for row in rows:
        if row.upstream_first:
            yield f"results differ: {_name(row)}: {row.upstream_first}"
        if row.upstream_error:
            yield f"no bmodel or no results: {_name(row)}: {row.upstream_error}"
    refused = {row.compiler_error: row for row in rows if row.compiler_error}
    for error, row in refused.items():
        yield f"nothing to compare with: {row.model} on {row.chip} in {row.mode}: {error}"
    for key, row in recommended.items():
        yield f"recommended: {_network(key)}: {_advice(row)}"


def _table(model: str, rows: Sequence[Row]) -> Table:
    table = Table(f"{model} on TPU-MLIR's tools: cycles of the clock, of the real profile, and of the compiler's cut")
    cores = any(row.cores > 1 for row in rows)
    table.names("chip").words("mode").names("strategy").numbers(*["cores"] * cores)
    table.numbers("clock", "real", "clock / real", "TPU-MLIR's", "fewer", "KiB", "TPU-MLIR's").words("results")
    for row in rows:
        theirs, real = row.compiler_cycles, row.upstream_cycles
        cells = [
            row.chip, row.mode, row.strategy, *[str(row.cores)] * cores, count(row.cycles), count(real),
            ratio(row.cycles, real), count(theirs), fewer(real, theirs), _kib(row.upstream_bytes),
            _kib(row.compiler_bytes), results(row),
        ]  # fmt: skip
        table.row(*cells)
    return table


def results(row: Row) -> str:
    """How the simulator's results compare with flat inference and, if they differ, with TPU-MLIR's compile."""
    if row.upstream_differ is None:
        return "-"
    if not row.upstream_differ:
        return "equal"
    as_theirs = {None: "", 0: ", equal to TPU-MLIR's"}.get(
        row.compiler_differ, f", {row.compiler_differ} from TPU-MLIR's"
    )
    return f"{row.upstream_differ:,} differ{as_theirs}"


def _advice(row: Row | None) -> str:
    if row is None:
        return "none of these cuts, TPU-MLIR's has fewer cycles"
    saved = (row.compiler_cycles or 0) - (row.upstream_cycles or 0)
    than = f"{saved:,} ({fewer(row.upstream_cycles, row.compiler_cycles)}) fewer than" if saved else "as many as"
    return f"{row.strategy}, {count(row.upstream_cycles)} cycles, {than} with TPU-MLIR's cut: {row.upstream_file}"


def _network(key: Network) -> str:
    model, batch, chip, mode, cores = key
    return f"{model} on {chip} in {mode}{f', batch {batch}' * bool(batch)}{f', {cores} cores' * (cores > 1)}"


def _name(row: Row) -> str:
    return f"{_network((row.model, row.batch, row.chip, row.mode, row.cores))}, strategy {row.strategy}"


def count(value: int | None) -> str:
    """A number with commas; "-" for none."""
    return "-" if value is None else f"{value:,}"


def _kib(value: int | None) -> str:
    return "-" if value is None else f"{value / 1024:,.1f}"


def ratio(value: int | None, other: int | None) -> str:
    """The quotient of two numbers; "-" if one is missing."""
    return f"{value / other:.3f}" if value and other else "-"


def fewer(value: int | None, other: int | None) -> str:
    """The share of the second number that the first one saves; "-" if one is missing."""
    return f"{1 - value / other:.1%}" if value and other else "-"
