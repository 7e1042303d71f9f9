"""Weight equalisation on request: the filters of two successive Convs get equal ranges, channel by channel.

For each channel of the tensor between them, r1 is the largest absolute weight of the first Conv that makes it and r2
the largest of the second that reads it. The filter and bias of the first are divided by s = r1 / sqrt(r1 * r2), and the
filter of the second is multiplied by s. The network computes the same but for rounding: relus commute with positive
factors.

`run_calibration.py --we` does this too (U-67): pairs in program order, each until its filters change by less than 1e-4.
Unlike in TPU-MLIR, two kinds of pairs stay: those with a relu that has an upper limit, since the results would
change, and those whose filters were imported with scales.
"""

import numpy as np
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint

from tpusim.ir.attrs import op_name, set_op_name
from tpusim.ir.imported_scales import imported_weight_scales
from tpusim.ops.conv.base import ConvTop
from tpusim.ops.framework.base import is_none
from tpusim.ops.framework.families import constant_of, only_user
from tpusim.ops.framework.rewriting import Requested
from tpusim.ops.relu import relu_limit_of
from tpusim.ops.structure import make_weight

STAY = 1e-4
"""The rounds of a pair end when the norms of the changes of its two filters sum to less than this."""
LEAST = 1e-6
"""Channels with a smaller range keep their weights."""
THROUGH = {"top.LeakyRelu", "top.PRelu"}
"""Ops between the two Convs that commute with positive factors."""
MOST = 1000
"""The most rounds of one pair; real pairs take two."""


class EqualiseConvs(Requested):
    """Conv -> [LeakyRelu | PRelu] -> Conv, each tensor used once: filters of equal ranges by channel."""

    ONCE = True

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The tensors in between are no longer those of the framework, so they lose its names."""
        if not isinstance(op, ConvTop) or op.name != "top.Conv" or relu_limit_of(op) > 0:
            return
        between, second = _reader(op)
        if second is None or imported_weight_scales(op.filter) or imported_weight_scales(second.filter):
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
    """Filter (c, ...) and bias of the first Conv, filter (oc, c / groups, ...) of the second; None if none changes."""
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
    """One round over all channels, in f32 (U-67)."""
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
    """The ops in between, and the Conv that is the only user of the result; None if another op reads it."""
    between: list[Operation] = []
    user = only_user(op.results[0])
    if user is not None and user.name in THROUGH:
        between.append(user)
        user = only_user(user.results[0])
    read = between[-1].results[0] if between else op.results[0]
    is_conv = isinstance(user, ConvTop) and user.name == "top.Conv" and user.operands[0] is read
    return between, user if is_conv else None  # pyright: ignore[reportReturnType]
