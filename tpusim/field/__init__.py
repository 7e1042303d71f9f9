"""Numbers of a finite field in place of integers and floats, to prove that two computations are equal for all inputs.

An input, and every byte of a constant, is a random element of GF(p). Sums and products are those of the field. What is
no such operation (a requant, a table, a relu, a cast, an exponential) is an uninterpreted function: a hash of its
operands and its exact parameters. So is a sum over a window at first, because that is a fraction of the work
(`windows.convolved`); where both sides then differ, `algebra` makes it a sum of products. A maximum is a function of
the set of its operands (`extremes`). Two expressions that agree for random elements are equal as polynomials of
uninterpreted functions, but for a probability of at most degree / 2^49 for every operation (Schwartz and Zippel);
several seeds multiply it.

Input: arrays of elements (int64, 0 <= x < PRIME). Output: the same. `arithmetic` has the field, `constants` the
elements of the bytes of constants, `windows` the sums of convolutions and pools, `extremes` the largest and smallest of
several, `integers` what the chip does to integers, `selected` relations, selections and functions of places, in the
words that commands and ops share. Limits: intermediate integers of 16 and 32 bits do not saturate here; that they do
not on the chip is for legality and values.
"""

from tpusim.field.arithmetic import PRIME, SETS, Elements, Field, inverse, plus, product, summed, times
from tpusim.field.constants import stored
from tpusim.field.extremes import extreme, largest
from tpusim.field.integers import Scaling, requanted, saturated, shifted
from tpusim.field.windows import Sliding, convolved, seen

__all__ = [
    "PRIME",
    "SETS",
    "Elements",
    "Field",
    "Scaling",
    "Sliding",
    "convolved",
    "extreme",
    "inverse",
    "largest",
    "plus",
    "product",
    "requanted",
    "saturated",
    "seen",
    "shifted",
    "stored",
    "summed",
    "times",
]
