"""A strategy for layer groups: halve a run of ops as long as the halves are faster than the whole.

tpusim run MODEL.onnx --layer-group halves
"""

from tpusim import Chip
from tpusim.layer_group import CostModel, Decided, alone, plan
from tpusim.ops.framework.base import TpuOp
from tpusim.schedule import GroupSchedule, Memo


def halves(ops: list[TpuOp], chip: Chip, cores: int = 1, memo: Memo | None = None) -> list[Decided]:
    """The ops as one group if that is possible and its halves are not faster; otherwise the groups of the halves."""
    return _divided(ops, chip, CostModel(chip, cores), memo or Memo())


def _divided(ops: list[TpuOp], chip: Chip, model: CostModel, memo: Memo) -> list[Decided]:
    if len(ops) == 1:
        return [alone(ops[0], chip, memo)]
    middle = len(ops) // 2
    parts = [found for half in (ops[:middle], ops[middle:]) for found in _divided(half, chip, model, memo)]
    whole = plan(ops, chip, memo=memo)  # a schedule, or the reason why none is possible
    if isinstance(whole, GroupSchedule) and model.group_ns(whole) <= model.total_ns(parts):
        return [whole]
    return parts
