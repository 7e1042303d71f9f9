"""Matrix product (MM2)."""

from tpusim.isa.commands.base import Command
from tpusim.isa.commands.requant import Requant
from tpusim.isa.region import View


class MatMul(Command, frozen=True, tag="matmul"):
    """Batched matrix product (MM2): left (..., M, K) x right (..., K, N), each transposed on request.

    GMEM operands have their own rank; an LMEM operand is (n, c, h, w) with batch n, and (c, h) = (rows, columns).
    Integers: sat(RSR(relu(acc + bias), requant)): relu BEFORE the requant (numerics.md 9.2). bias: N elements.
    requants: one requant per right matrix, in order, and N bias elements for each (CV18xx).
    multipliers: N int32, one per column, instead of the requant's (numerics.md 5.1).
    partial: f32 sums of the columns before these, as the output; the result may take their place.
    """

    inputs_ = ("left", "right", "bias", "multipliers", "partial")

    left: View
    right: View
    output: View
    bias: View | None = None
    left_transpose: bool = False
    right_transpose: bool = False
    requant: Requant | None = None
    requants: tuple[Requant, ...] = ()
    multipliers: View | None = None
    partial: View | None = None
    relu: bool = False
