"""processor-tpu-optimize: the rewrites that the chip's compiler makes in a lowered module before layer groups."""

from tpusim import chips
from tpusim.interfaces import ask_classes
from tpusim.ir.module import Model
from tpusim.ir.rewriting import rewrite
from tpusim.ir.text import verify
from tpusim.ops import op_classes
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.interfaces import LoweredRewrites


def optimize_for_chip(model: Model) -> Model:
    """A copy of a lowered module, rewritten by each op's `lowered_patterns`; the same module if none matches.

    A pattern changes no value. Tensors that are stored in another way have other names.
    """
    model.require_state("TPU_LOWERED", stage="processor-tpu-optimize")
    chip = chips.of(model)
    work = model.clone()
    rewriting = ask_classes(op_classes(TpuOp, work.module), LoweredRewrites, chip)
    patterns = [p for rewrites in rewriting for p in rewrites.lowered_patterns(work.weights, chip)]
    if not patterns or not rewrite(work, patterns):
        return model
    verify(work.module, "after processor-tpu-optimize")
    return work
