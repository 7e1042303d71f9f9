"""`--verify-passes`: the check of patterns and passes in `canonicalize` and `run`."""

from tpusim.cli.output import Output
from tpusim.passes.instruments.numbers import NumbersChanged


def show_check(console: Output, check: NumbersChanged) -> bool:
    """One line; True if no numbers changed."""
    console.result(checked=check.checked, changed=None if check.first is None else str(check.first))
    for line in check.report():
        console.tell(line, "" if check.first is None else "red")
    return check.first is None
