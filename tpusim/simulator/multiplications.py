"""How many multiply-accumulates a program's commands do, to hold its header against."""

from collections import Counter
from math import prod

from tpusim.isa import functions
from tpusim.isa.commands import AnyCommand, ChannelScale, Conv, Depthwise, Fn, GlobalKernel, MatMul
from tpusim.isa.shapes import matrix_shape
from tpusim.isa.stream import Program


def multiplications(program: Program) -> tuple[int, int | None]:
    """(least, most) that the network may have: slices compute halos again, and inserted values are extra.

    least: what two-dimensional convolutions and matrix products do for distinct elements; of other commands nothing,
    nor of attention, of which every slice of rows has all keys and values.
    most: None if there are volumes in slices, which skip the depths that are padding, or transposed convolutions, of
    whose products, counted per input, padding may cut some off.
    """
    whole = {location.tensor: prod(location.shape) for location in program.locations}
    cut: Counter[str] = Counter()
    for location in program.locations:
        cut[location.tensor] += location.view.elements
    attention = {c.op for c in program.commands if isinstance(c, Fn) and _weighs(c)}
    least, most, volumes, transposed = 0, 0, False, False
    for command in program.commands:
        body = command.body if isinstance(command, GlobalKernel) else command
        made = _of(body)
        most += made
        volumes |= isinstance(body, Conv) and body.accumulate
        transposed |= isinstance(body, Conv | Depthwise) and (body.rotate or any(body.inserts))
        if made and not volumes and _is_plain(body) and command.op not in attention:
            share = (1, 1) if isinstance(command, GlobalKernel) else (whole.get(command.op, 0), cut[command.op])
            least += made * share[0] // max(share[1], 1)
    return least, None if volumes or transposed else most


def _of(command: AnyCommand) -> int:
    if isinstance(command, Conv):
        taps = prod(command.kernel) * command.input.shape[1] // command.groups
        return command.output.elements * taps
    if isinstance(command, Depthwise):
        return command.output.elements * prod(command.kernel)
    if isinstance(command, MatMul):
        return command.output.elements * matrix_shape(command.left, command.left_transpose)[1]
    if isinstance(command, Fn) and isinstance(command.function, functions.Attention):
        return _of_attention(command, command.function)
    return command.output.elements if isinstance(command, ChannelScale) else 0


def _weighs(command: Fn) -> bool:
    return isinstance(command.function, functions.AttentionWeights)


def _of_attention(command: Fn, function: functions.Attention) -> int:
    """Of its six products."""
    width, other, size, out = function.sizes
    batch, rows, _ = command.inputs[0].shape
    others = command.inputs[min(function.sources, 2) - 1].shape[1]
    return batch * (size * (rows * width + 2 * others * other) + 2 * rows * others * size + rows * size * out)


def _is_plain(command: AnyCommand) -> bool:
    """Whether each of its elements counts as often as the op says: no volume, no transposed convolution."""
    if isinstance(command, Conv | Depthwise):
        return not any(command.inserts) and len(command.kernel) == 2
    return isinstance(command, MatMul)
