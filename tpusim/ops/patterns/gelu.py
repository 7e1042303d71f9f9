"""The parts of a GELU become one op, in the forms that TPU-MLIR recognises (U-24)."""

import logging
from dataclasses import dataclass

from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.compat import ERF_FOR_TANH
from tpusim.ir.attrs import copy_name, op_name, text
from tpusim.ir.types import shape_of
from tpusim.ops.framework.base import OpT
from tpusim.ops.framework.families import only_user, relu_of
from tpusim.ops.framework.rewriting import made_by, users
from tpusim.ops.interfaces import number_of

LOG = logging.getLogger(__name__)
TOLERANCE = 1e-4
"""How far a constant may be from the exact one."""
INVERSE_ROOT, TANH_SLOPE, TANH_CUBE = 0.5**0.5, 0.7978845608028654, 0.044715
"""1/sqrt 2; sqrt(2/pi), and the factor of x^3 in the tanh form."""
QUICK = 1.7020000219345093
"""The factor of the sigmoid form, 1.702 in f32."""


def _by_number(value: SSAValue, kind: str, number: float, tolerance: float = TOLERANCE) -> SSAValue | None:
    """The operand x of an op `kind` of x and a number near `number`, without relu and with one user; else None."""
    op = made_by(value, kind)
    if op is None or relu_of(op) or abs((number_of(op) or 0.0) - number) > tolerance:
        return None
    return op.operands[0]


def _halved_and_gate(op: Operation) -> tuple[SSAValue, SSAValue] | None:
    """(x, g) of a product of x/2 and g + 1."""
    if op.name != "top.Mul" or len(op.operands) != 2 or relu_of(op):
        return None
    for half, gate in (tuple(op.operands), tuple(op.operands)[::-1]):
        x, above = _by_number(half, "top.MulConst", 0.5), _by_number(gate, "top.AddConst", 1.0)
        if x is not None and above is not None:
            return x, above
    return None


def _put(gelu: OpT, op: Operation, x: SSAValue, rewriter: PatternRewriter, mode: str = "normal") -> None:
    """Replace an op by GELU(x); the canonicalizer removes the parts, which have no users then."""
    attributes: dict[str, Attribute] = {"approx_mode": text(mode)}
    new = gelu.create(operands=[x], result_types=[op.results[0].type], attributes=attributes)
    copy_name(new, op)
    rewriter.replace(op, new)


@dataclass
class MergeGelu(RewritePattern):
    """(x * 1/2) * (Erf(x * 1/sqrt 2) + 1), each tensor with one user -> GELU."""

    gelu: OpT

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the last product, whose result has one user, too."""
        parts = _halved_and_gate(op)
        erf = None if parts is None else made_by(parts[1], "top.Erf")
        if parts is None or erf is None or only_user(op.results[0]) is None:
            return
        if _by_number(erf.operands[0], "top.MulConst", INVERSE_ROOT) is parts[0]:
            _put(self.gelu, op, parts[0], rewriter)


@dataclass
class MergeGeluPattern(RewritePattern):
    """A Reshape, the parts of a GELU by tanh, and a Reshape back to the first shape -> GELU by the error function.

    The parts are (x * 1/2) * (Tanh((x + Pow(x, 3) * 0.044715) * sqrt(2/pi)) + 1); the GELU has the last Reshape's name.
    """

    gelu: OpT

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the last Reshape."""
        product = made_by(op.operands[0], "top.Mul") if op.name == "top.Reshape" else None
        parts = None if product is None else _halved_and_gate(product)
        tanh = None if parts is None else made_by(parts[1], "top.Tanh")
        if parts is None or tanh is None:
            return
        view = parts[0].owner
        total = _by_number(tanh.operands[0], "top.MulConst", TANH_SLOPE)
        if not isinstance(view, Operation) or view.name != "top.Reshape" or len(users(parts[0])) != 3:
            return
        if total is None or not _is_sum_with_cube(total, parts[0]):
            return
        if shape_of(view.operands[0]) == shape_of(op.results[0]):
            LOG.warning("%s: %s", op_name(op), ERF_FOR_TANH)
            _put(self.gelu, op, view.operands[0], rewriter)


@dataclass
class ConvertToQGELU(RewritePattern):
    """x * Sigmoid(x * 1.702), each tensor with one user -> GELU by that sigmoid; the factor is compared exactly."""

    gelu: OpT

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the last product."""
        if op.name != "top.Mul" or len(op.operands) != 2 or relu_of(op):
            return
        for x, gate in (tuple(op.operands), tuple(op.operands)[::-1]):
            sigmoid = made_by(gate, "top.Sigmoid")
            if sigmoid is None or _by_number(sigmoid.operands[0], "top.MulConst", QUICK, tolerance=0.0) is not x:
                continue
            scaled = sigmoid.operands[0].owner
            _put(self.gelu, op, x, rewriter, "sigm")
            rewriter.erase(sigmoid)
            assert isinstance(scaled, Operation)  # it gives the operand of the sigmoid
            rewriter.erase(scaled)
            return


def _is_sum_with_cube(value: SSAValue, x: SSAValue) -> bool:
    """Whether a value of one user is x + 0.044715*x^3."""
    total = made_by(value, "top.Add")
    others = [] if total is None or relu_of(total) else [v for v in total.operands if v is not x]
    if len(others) != 1:
        return False
    cube = _by_number(others[0], "top.MulConst", TANH_CUBE)
    power = None if cube is None else made_by(cube, "top.Pow")
    return power is not None and power.operands[0] is x and power.attributes["exponent"].value.data == 3.0  # type: ignore[attr-defined]
