"""Weight equalisation on request: a Conv and the Conv that reads it get filters of equal ranges, channel by channel.

A channel of the tensor between them is divided by s = r1 / sqrt(r1 * r2), where r1 is the largest weight that makes it
and r2 the largest that reads it: the first Conv's filter and bias are divided by s, the second's filter is multiplied.
What the network computes stays but for rounding, since a relu and leaky relus let positive factors through.

As `run_calibration.py --we` (U-67): pairs in program order, each until its filters move by less than 1e-4.
Unlike there a pair is left alone whose relu has an upper limit, since the numbers would change, and one whose filters
have scales of their own.
"""

import numpy as np
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint

from tpusim.ir.attrs import op_name, set_op_name
from tpusim.ir.own_scales import own_weight_scales
from tpusim.ops.conv.base import ConvTop
from tpusim.ops.framework.base import is_none
from tpusim.ops.framework.families import constant_of, only_user
from tpusim.ops.framework.rewriting import Requested
from tpusim.ops.relu import relu_limit_of
from tpusim.ops.structure import make_weight

STAY = 1e-4
"""Filters that move by less, by the norm of the difference, are as equal as they get."""
LEAST = 1e-6
"""Ranges of channels below this count as none and are not equalised."""
THROUGH = {"top.LeakyRelu", "top.PRelu"}
"""Ops between the two that let positive factors through."""
MOST = 1000
"""Rounds of one pair; real pairs take two."""


class EqualiseConvs(Requested):
    """Conv -> [LeakyRelu | PRelu] -> Conv, nobody else reading between: filters of equal ranges by channel."""

    ONCE = True

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The tensors between are no longer those of the framework and lose its name."""
        if not isinstance(op, ConvTop) or op.name != "top.Conv" or relu_limit_of(op) > 0:
            return
        between, second = _reader(op)
        if second is None or own_weight_scales(op.filter) or own_weight_scales(second.filter):
            return
        found = [constant_of(value, self.weights) for value in (op.filter, op.bias, second.filter)]
        first, bias, other = found
        if first is None or other is None or (bias is None and not is_none(op.bias)):
            return
        new = equalised(first, bias, other)
        if new is None:
            return
        places = ((op, 1, new[0], "filter"), (op, 2, new[1], "bias"), (second, 1, new[2], "filter"))
        for owner, place, array, kind in places:
            if array is not None:
                weight = make_weight(self.weights, f"{op_name(owner)}_equalised_{kind}", array)
                rewriter.insert(weight, InsertPoint.before(owner))
                owner.operands[place] = weight.output
        for one in (op, *between):
            set_op_name(one, op_name(one))
        rewriter.notify_op_modified(op)
        rewriter.notify_op_modified(second)


def equalised(
    first: np.ndarray, bias: np.ndarray | None, second: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray] | None:
    """Filter (c, ...) and bias of the first Conv and filter (oc, c / groups, ...) of the second; None if they stay."""
    if len(first) % second.shape[1] or len(second) % (len(first) // second.shape[1]):
        return None
    found: tuple[np.ndarray, np.ndarray | None, np.ndarray] | None = None
    for _ in range(MOST):
        new = _once(first, bias, second)
        if float(np.linalg.norm(new[0] - first)) + float(np.linalg.norm(new[2] - second)) < STAY:
            break
        found = first, bias, second = new
    return found


def _once(
    first: np.ndarray, bias: np.ndarray | None, second: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """All channels once, in f32 (U-67)."""
    channels, groups = len(first), len(first) // second.shape[1]
    made = np.abs(first).reshape(channels, -1).max(axis=1)
    grouped = second.reshape(groups, -1, *second.shape[1:])
    read = np.abs(grouped).max(axis=(1, *range(3, grouped.ndim))).reshape(channels)
    with np.errstate(all="ignore"):
        factors = made / np.sqrt(made * read)
    factors[~np.isfinite(factors) | (made < LEAST) | (read < LEAST)] = 1
    along = factors.reshape(-1, *(1,) * (first.ndim - 1))
    of_second = factors.reshape(groups, 1, -1, *(1,) * (second.ndim - 2))
    return (
        first / along,
        None if bias is None else bias / factors,
        (grouped * of_second).reshape(second.shape),
    )


def _reader(op: ConvTop) -> tuple[list[Operation], ConvTop | None]:
    """What lies between, and the Conv that alone reads the result; None if that is not so."""
    between: list[Operation] = []
    user = only_user(op.results[0])
    if user is not None and user.name in THROUGH:
        between.append(user)
        user = only_user(user.results[0])
    read = between[-1].results[0] if between else op.results[0]
    is_conv = isinstance(user, ConvTop) and user.name == "top.Conv" and user.operands[0] is read
    return between, user if is_conv else None  # pyright: ignore[reportReturnType]
