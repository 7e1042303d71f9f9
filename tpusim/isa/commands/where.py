"""Choice between two tensors (AR select)."""

from tpusim.isa.commands.base import Command
from tpusim.isa.region import View


class Where(Command, frozen=True, tag="where"):
    """on_true where the condition is not 0, else on_false (AR select); numpy broadcasting of axes of length 1.

    A branch may be a constant; branches and output are of one type, the condition of any.
    """

    inputs_ = ("condition", "on_true", "on_false")

    condition: View
    output: View
    on_true: View | float = 0.0
    on_false: View | float = 0.0
