"""The first op of a lowered network that is too far off by itself."""

from tpusim.diagnosis.losses import Tensors, isolated
from tpusim.ir.module import Model
from tpusim.verify.compare import Comparison, TensorResult, Tolerance, compare


def compare_isolated(top: Model, tpu: Model, inputs: Tensors, tolerance: Tolerance) -> Comparison:
    """Every op on ideal operands (`losses`) against the float op on the same, in program order."""
    computed, wanted = isolated(top, tpu, inputs)
    order = {name: wanted[name] for name in computed}
    return compare(computed, order, tolerance, label="isolated")


def first_broken(top: Model, tpu: Model, inputs: Tensors, tolerance: Tolerance) -> TensorResult | None:
    """The first tensor in program order whose op breaks the tolerance by itself; None if none does.

    top: a top module in any state; tpu: what it was lowered to, without layer groups. inputs: one sample by input name.
    """
    return next(iter(compare_isolated(top, tpu, inputs, tolerance).failures), None)
