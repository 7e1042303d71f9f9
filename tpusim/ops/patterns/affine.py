"""Scale and bias of a norm that are single numbers, which TPU-MLIR's importer leaves out (U-120)."""

import logging
from dataclasses import dataclass
from typing import ClassVar

from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint

from tpusim.compat import Quirk
from tpusim.ir.attrs import op_name
from tpusim.ir.weights import WeightStore
from tpusim.ops.framework.base import OpT
from tpusim.ops.framework.families import constant_of
from tpusim.ops.interfaces import QuirkRewrite
from tpusim.ops.structure import make_none

LOG = logging.getLogger(__name__)


@dataclass
class AffineOfOneElement(QuirkRewrite):
    """Norm with a constant of one element as scale or bias -> the norm without it (U-120)."""

    QUIRK: ClassVar[Quirk] = Quirk.AFFINE_OF_ONE_ELEMENT
    weights: WeightStore
    norm: OpT

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """A constant without effect is left out at the import."""
        if not isinstance(op, self.norm):
            return
        for index in (1, 2):
            constant = constant_of(op.operands[index], self.weights)
            if constant is not None and constant.size == 1:
                none = make_none()
                rewriter.insert(none, InsertPoint.before(op))
                op.operands[index] = none.output
                rewriter.notify_op_modified(op)
                told = f"'{op_name(op)}' has a {('scale', 'bias')[index - 1]} of one element, {constant.item():.6g}"
                rule = self.QUIRK.rule.number
                LOG.warning("%s %s, which is left out (%s); keep it by quirks_off=%s", op.name, told, rule, self.QUIRK)
