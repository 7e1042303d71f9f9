"""Patterns that put SiLU and, on request, GELU together from their parts, and read a quotient as a reciprocal."""

import math
from dataclasses import dataclass

from typing_extensions import override
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.ir.attrs import copy_name_as, text
from tpusim.ir.pdl import DataPattern, Drawing, one_use
from tpusim.ir.types import shape_of
from tpusim.ir.weights import WeightStore
from tpusim.ops.framework.base import OpT
from tpusim.ops.framework.families import constant_of, only_user, relu_of
from tpusim.ops.framework.rewriting import first_number, has_no_relu, keeps_shape, number_and_computed
from tpusim.ops.interfaces import number_of

TOLERANCE = 1e-4
"""How far a constant of an exported network may be from the exact one."""
TANH_SLOPE, TANH_CUBE = math.sqrt(2 / math.pi), 0.044715
"""Constants of the tanh form of GELU: sqrt(2/pi), and the factor of x^3."""


def _replace(
    op: Operation, cls: OpT, x: SSAValue, rewriter: PatternRewriter, kind: str = "Mul", **attributes: Attribute
) -> None:
    """Replace an op by cls(x) and keep its name, with `kind` instead of Mul as the kind of its node (U-33)."""
    new = cls.create(operands=[x], result_types=[op.results[0].type], attributes=attributes)
    copy_name_as(new, op, "Mul", kind)
    rewriter.replace(op, new)


def _factors(op: Operation) -> tuple[SSAValue, SSAValue] | None:
    """The two operands of a top.Mul without relu."""
    if op.name != "top.Mul" or len(op.operands) != 2 or relu_of(op):
        return None
    return op.operands[0], op.operands[1]


class MulToSiLU(DataPattern):
    """x * Sigmoid(x), the Sigmoid used only here -> SiLU."""

    @classmethod
    @override
    def draw(cls, p: Drawing) -> None:
        """Either operand may be the sigmoid."""
        x = p.operand()
        gate = p.op("top.Sigmoid", x)
        p.require(one_use, gate)
        product = p.op("top.Mul", *p.choice((x, gate), (gate, x)))
        p.require(has_no_relu, product)
        becomes = p.rewrite(product)
        becomes.replace_with("top.SiLU", x)
        becomes.erase(gate)


class DivToReciprocal(DataPattern):
    """Div of one constant number by a tensor, without relu -> Reciprocal with that numerator."""

    @classmethod
    @override
    def draw(cls, p: Drawing) -> None:
        """The divisor must have the result's shape."""
        numerator, x = p.operand(), p.operand()
        quotient = p.op("top.Div", numerator, x)
        p.require(has_no_relu, quotient)
        p.require(number_and_computed, numerator, x)
        p.require(keeps_shape, quotient, x)
        becomes = p.rewrite(quotient)
        becomes.replace_with("top.Reciprocal", x, const_val=becomes.attribute(first_number, numerator))


class DivToSoftSign(DataPattern):
    """x / (1 + |x|), the inner tensors used only here -> Softsign."""

    @classmethod
    @override
    def draw(cls, p: Drawing) -> None:
        x = p.operand()
        inside = p.op("top.Abs", x)
        above = p.op("top.AddConst", inside)
        quotient = p.op("top.Div", x, above)
        for op in (above, quotient):
            p.require(has_no_relu, op)
        for op in (inside, above):
            p.require(one_use, op)
        p.require(cls.adds_one, above)
        becomes = p.rewrite(quotient)
        becomes.replace_with("top.Softsign", x)
        becomes.erase(above)
        becomes.erase(inside)

    @classmethod
    def adds_one(cls, op: Operation) -> bool:
        """Whether an AddConst adds 1."""
        return number_of(op) == 1.0


@dataclass
class MergeGeluTanh(RewritePattern):
    """GELU by tanh in parts -> GELU of that form: a product of x, 1 + Tanh(p) and 1/2 in any order.

    p is sqrt(2/pi)*(x + 0.044715*x^3), or a product of x. The inner tensors must have no other users. Only on request:
    bytes of one table are not bytes of eight ops.
    """

    weights: WeightStore
    gelu: OpT

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the last product."""
        if op.name not in ("top.Mul", "top.MulConst") or relu_of(op):
            return
        parts = self._product(op.results[0], 1.0)
        if parts is None:
            return
        half, (first, second) = parts
        for x, gate in ((first, second), (second, first)):
            if abs(half - 0.5) < TOLERANCE and self._is_gate(gate, x) and shape_of(x) == shape_of(op.results[0]):
                _replace(op, self.gelu, x, rewriter, kind="GELU", approx_mode=text("tanh"))
                return

    def _scaled(self, value: SSAValue) -> tuple[SSAValue, float] | None:
        """(v, c) if `value` is v times the number c."""
        return self._with_number(
            value, {"top.Mul": False, "top.MulConst": False, "top.Div": True, "top.DivConst": True}
        )

    def _shifted(self, value: SSAValue) -> tuple[SSAValue, float] | None:
        """(v, c) if `value` is v plus the number c."""
        return self._with_number(value, {"top.Add": False, "top.AddConst": False})

    def _with_number(self, value: SSAValue, names: dict[str, bool]) -> tuple[SSAValue, float] | None:
        """(v, number) of an op of these names by one number, an operand or `const_val`; True: 1 / number."""
        op = value.owner
        if not isinstance(op, Operation) or op.name not in names or relu_of(op):
            return None
        inverse, attribute = names[op.name], op.attributes.get("const_val")
        found: tuple[SSAValue, float] | None = None
        if attribute is not None and len(op.operands) == 1 and "is_reverse" not in op.attributes:
            found = op.operands[0], float(attribute.value.data)  # type: ignore[attr-defined]
        elif len(op.operands) == 2:
            pairs = (tuple(op.operands), tuple(op.operands)[::-1])
            for source, other in pairs[:1] if inverse else pairs:
                constant = constant_of(other, self.weights)
                if constant is not None and constant.size == 1:
                    found = source, float(constant.reshape(-1)[0])
                    break
        if found is None or (inverse and found[1] == 0):
            return None
        return (found[0], 1 / found[1]) if inverse else found

    def _product(
        self, value: SSAValue, factor: float, depth: int = 0
    ) -> tuple[float, tuple[SSAValue, SSAValue]] | None:
        """(number, (a, b)) if `value` is number * a * b, the numbers anywhere in the product."""
        if depth and only_user(value) is None:
            return None
        scaled = self._scaled(value)
        if scaled is not None:
            return self._product(scaled[0], factor * scaled[1], depth + 1)
        owner = value.owner
        factors = _factors(owner) if isinstance(owner, Operation) else None
        if factors is None:
            return None
        found: list[SSAValue] = []
        for part in factors:
            inner = self._scaled(part) if only_user(part) is not None else None
            found.append(part if inner is None else inner[0])
            factor *= 1.0 if inner is None else inner[1]
        return factor, (found[0], found[1])

    def _under(self, gate: SSAValue, function: str) -> SSAValue | None:
        """The operand v if `gate` is 1 + function(v), each with one user."""
        shifted = self._shifted(gate)
        if shifted is None or abs(shifted[1] - 1.0) > TOLERANCE or only_user(gate) is None:
            return None
        op = shifted[0].owner
        if not isinstance(op, Operation) or op.name != function or only_user(shifted[0]) is None:
            return None
        return op.operands[0]

    def _is_gate(self, gate: SSAValue, x: SSAValue) -> bool:
        """Whether `gate` is 1 + Tanh of the polynomial."""
        argument = self._under(gate, "top.Tanh")
        if argument is None:
            return False
        scaled = self._scaled(argument)
        if scaled is not None and abs(scaled[1] - TANH_SLOPE) < TOLERANCE and self._is_sum_with_cube(scaled[0], x):
            return True
        parts = self._product(argument, 1.0, 1)
        if parts is None or abs(parts[0] - TANH_SLOPE) > TOLERANCE or x not in parts[1]:
            return False
        other = parts[1][1] if parts[1][0] == x else parts[1][0]
        return self._is_square_and_one(other, x)

    def _is_sum_with_cube(self, value: SSAValue, x: SSAValue) -> bool:
        """Whether the value is x + 0.044715*x^3."""
        op = value.owner
        if not isinstance(op, Operation) or op.name != "top.Add" or relu_of(op) or len(op.operands) != 2:
            return False
        cubes = [v for v in op.operands if v != x]
        return len(cubes) == 1 and self._is_scaled_power(cubes[0], x, 3)

    def _is_square_and_one(self, value: SSAValue, x: SSAValue) -> bool:
        """Whether the value is 1 + 0.044715*x^2."""
        shifted = self._shifted(value)
        return shifted is not None and abs(shifted[1] - 1.0) < TOLERANCE and self._is_scaled_power(shifted[0], x, 2)

    def _is_scaled_power(self, value: SSAValue, x: SSAValue, power: int) -> bool:
        factor, found = self._factors_of(value, x)
        return found == power and abs(factor - TANH_CUBE) < TOLERANCE

    def _factors_of(self, value: SSAValue, x: SSAValue) -> tuple[float, int]:
        """(c, n) if the value is c*x^n in any order, n 0 if it is not; tensors in between may have one user only."""
        op = value.owner
        if value == x:
            return 1.0, 1
        if not isinstance(op, Operation) or relu_of(op):
            return 1.0, 0
        if op.name == "top.Pow" and op.operands[0] == x:
            exponent = float(op.attributes["exponent"].value.data)  # type: ignore[attr-defined]
            return 1.0, int(exponent) if exponent in (2.0, 3.0) else 0
        scaled = self._scaled(value)
        if scaled is not None:
            factor, power = self._factors_of(scaled[0], x)
            return factor * scaled[1], power
        factors = _factors(op)
        if factors is None:
            return 1.0, 0
        (a, m), (b, n) = (self._factors_of(v, x) for v in factors)
        return a * b, m + n if m and n else 0
