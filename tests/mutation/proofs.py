"""Proofs that a mutant is equivalent: for every input and every legal timing it leaves the same bytes."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from msgspec import structs

from mutation.judge import Judge
from mutation.mutant import Mutant, chip_of
from tpusim.errors import SimulationError
from tpusim.isa.blocks import offsets
from tpusim.isa.commands import (
    Arith,
    Command,
    Conv,
    Depthwise,
    GlobalKernel,
    Lut,
    Move,
    Pool,
    Rescale,
    SendMessage,
    WaitMessage,
)
from tpusim.isa.layout import extent
from tpusim.isa.region import View, itemsize, numpy_dtype
from tpusim.isa.stream import Program
from tpusim.simulator.conv import _finish, filter_rows
from tpusim.simulator.memory import Machine
from tpusim.simulator.metadata_checks import unconfirmed
from tpusim.simulator.run import execute
from tpusim.simulator.schedule import Queues, order
from tpusim.simulator.vector_clocks import Clocks

PROOFS = {
    "order": "every two commands that touch a common byte, one writing, are ordered as before (happens-before)",
    "bytes": "every operand covers the same bytes, element by element",
    "window": "every window meets the same rows, columns and padding, and what differs has no part in the result",
    "operands": "operands of a commutative operation are exchanged, or a copy became an op with 0 that keeps values",
    "coefficient": "the changed coefficient has no part in any product: it pads a packed filter",
    "thresholds": "accumulator to result is a rising step function per channel; both versions step at the same values "
    "inside the interval that the weights and the type of the input allow",
    "copy": "a copy moves the same bytes to the same places",
    "owned": "a tensor, for all that use it, or a work area lies where nothing lives: every read finds what it names",
    "counted": "no command depends on what a table says there; `tpusim simulate` counts it as confirmed by nothing",
    "exhaustive": "the same result for every value that the types of the operands have",
}
"""Name of a proof, and what it shows."""

CONSTANT = ("filter", "bias", "requant_table", "table", "mantissa", "scale", "rshift", "slope")
"""Operands that are coefficients."""


# -------------------------------------------------------------------------------------------------------------- order


def _content(command: Command) -> Command:
    return structs.replace(command, id=0, dep=0)


def _before(program: Program) -> np.ndarray:
    """before[a, b]: command a has surely finished when command b starts."""
    queues = Queues(program.commands)
    rows = Clocks(queues, order(queues, "early")).rows
    ids = np.array([command.id for command in program.commands])
    return ids[:, None] <= rows[:, queues.queue_of].T


def _bytes(view: View, chip: Any) -> np.ndarray:
    at = offsets(view, chip).reshape(-1, 1) + np.arange(itemsize(view.dtype))
    return np.unique(at)


def _conflict(one: Command, other: Command, chip: Any) -> bool:
    """Whether the two touch a common byte and one of them writes it."""
    near = one.core == other.core
    pairs = [(a, b) for a in one.writes() for b in (*other.reads(), *other.writes())]
    pairs += [(a, b) for a in one.reads() for b in other.writes()]
    return any(
        extent(a, chip).overlaps(extent(b, chip)) and np.intersect1d(_bytes(a, chip), _bytes(b, chip)).size > 0
        for a, b in pairs
        if near or a.memory == "gmem"
    )


def same_order(program: Program, mutant: Program) -> bool:
    """Every two conflicting commands are ordered as before; the commands themselves, but messages, are the same."""
    kept, left = (
        [i for i, c in enumerate(each.commands) if not isinstance(c, SendMessage | WaitMessage)]
        for each in (program, mutant)
    )
    if len(kept) != len(left) or program.coefficients is not mutant.coefficients:
        return False
    found: dict[Command, list[int]] = {}
    for index in left:
        found.setdefault(_hashable(mutant.commands[index]), []).append(index)
    place: list[int] = []
    for index in kept:
        there = found.get(_hashable(program.commands[index]))
        if not there:
            return False
        place.append(there.pop(0))
    chip = chip_of(program)
    old, new = _before(program)[np.ix_(kept, kept)], _before(mutant)[np.ix_(place, place)]
    return not any(
        _conflict(program.commands[kept[a]], program.commands[kept[b]], chip)
        for a, b in np.argwhere(old != new)
        if a != b
    )


def _hashable(command: Command) -> Any:
    return repr(_content(command))


# ------------------------------------------------------------------------------------------------------ one command


def _body(command: Command) -> Any:
    return command.body if isinstance(command, GlobalKernel) else command


def _same_view(one: Any, other: Any, chip: Any) -> bool:
    if not isinstance(one, View) or not isinstance(other, View):
        return one == other
    if (one.memory, one.shape, one.dtype) != (other.memory, other.shape, other.dtype):
        return False
    return bool(np.array_equal(offsets(one, chip), offsets(other, chip)))


def _differing(one: Any, other: Any, chip: Any) -> list[str]:
    """Fields in which two commands of one class differ, views of the same bytes not counted."""
    return [n for n in one.__struct_fields__ if not _same_view(getattr(one, n), getattr(other, n), chip)]


def _taps(command: Any, axis: int) -> np.ndarray:
    """(output position, kernel position) -> index of the input, -1 for padding and inserted values."""
    spatial = len(command.kernel)
    dilations = getattr(command, "dilations", (1,) * spatial)
    inserts = getattr(command, "inserts", (0,) * spatial)
    start = np.arange(command.output.shape[2 + axis]) * command.strides[axis] - command.pads[axis]
    at = start[:, None] + np.arange(command.kernel[axis]) * dilations[axis]
    step, size = inserts[axis] + 1, command.input.shape[2 + axis]
    inside = (at >= 0) & (at % step == 0) & (at // step < size)
    return np.where(inside, at // step, -1)


def same_window(one: Any, other: Any, fields: list[str]) -> bool:
    """The fields in which two window ops differ have no part in the result."""
    if not isinstance(one, Conv | Depthwise | Pool) or one.kernel != other.kernel:
        return False
    taps = [(_taps(one, axis), _taps(other, axis)) for axis in range(len(one.kernel))]
    if not all(np.array_equal(a, b) for a, b in taps):
        return False
    padded = any((a < 0).any() for a, _ in taps)
    harmless = {"strides", "pads"}
    if not padded:
        harmless |= {"pad_value", "count_include_pad"}
    if isinstance(one, Pool) and one.scale <= 0:
        harmless |= {"pad_value"}
    if isinstance(one, Pool) and one.mode == "max":
        harmless |= {"count_include_pad", "first_rounding"}
    if isinstance(one, Pool) and one.mode == "avg" and "pads" in fields and not one.count_include_pad:
        harmless -= {"pads"} if one.pads[: len(one.kernel)] != other.pads[: len(one.kernel)] else set()
    if prod(one.kernel) == 1:
        harmless |= {"rotate", "mode"} if isinstance(one, Conv | Depthwise) else set()
    return set(fields) <= harmless


def same_operands(one: Any, other: Any, fields: list[str]) -> bool:
    """A commutative operation of two operands that were exchanged."""
    commutes = isinstance(one, Arith) and one.kind in ("add", "mul", "max", "min")
    return commutes and set(fields) == {"a", "b"} and (one.a, one.b) == (other.b, other.a)


def nothing_added(one: Any, other: Any, fields: list[str]) -> bool:
    """A copy that became a difference to 0; before a relu, which takes the sign of a zero, also a sum or maximum."""
    if not isinstance(one, Arith) or set(fields) != {"kind"} or isinstance(one.b, View) or one.b != 0:
        return False
    kinds = {one.kind, other.kind}
    return kinds == {"copy", "sub"} or (one.relu and kinds <= {"copy", "sub", "add", "max"})


# ---------------------------------------------------------------------------------------------------------- values


def _loaded(judge: Judge, program: Program, index: int, views: list[View]) -> list[np.ndarray]:
    with judge.just_before(program, index) as memory:
        return [memory.read(view) for view in views]


def same_coefficients(judge: Judge, mutant: Mutant) -> bool:
    """The filter as the products use it is the same, and so are bias and table."""
    command = _body(judge.program.commands[mutant.index])
    if not isinstance(command, Conv) or command.filter.memory == "gmem":
        return False
    views = [v for v in (command.bias, command.requant_table) if v is not None]
    old = _loaded(judge, judge.program, mutant.index, [command.filter, *views])
    new = _loaded(judge, mutant.program, mutant.index, [command.filter, *views])
    old[0], new[0] = (filter_rows(command, each[0], chip_of(judge.program)) for each in (old, new))
    return all(np.array_equal(a, b) for a, b in zip(old, new, strict=True))


def _interval(command: Any, memory: Machine) -> tuple[np.ndarray, np.ndarray]:
    """(least, largest) accumulator per channel over all values of the input's type, and padding."""
    info = np.iinfo(numpy_dtype(command.input.dtype))
    low, high = min(info.min, command.pad_value), max(info.max, command.pad_value)
    packed = memory.load(command.filter)
    if isinstance(command, Depthwise):
        weights = packed.reshape(packed.shape[1], -1).astype(np.int64)
    else:
        weights = filter_rows(command, packed, memory.chip).astype(np.int64)
    ends = np.stack([weights * low, weights * high])
    return ends.min(0).sum(1), ends.max(0).sum(1)


def _steps(command: Any, memory: Machine, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Per channel and result: the least accumulator that gives at least it, one above `high` if none; and the result at
    `low`. For a rising function these are the function.
    """
    info = np.iinfo(numpy_dtype(command.output.dtype))
    wanted = np.arange(info.min, info.max + 1)[None, :]

    def result(acc: np.ndarray) -> np.ndarray:
        found = _finish(command, acc[None, :, None, :].astype(np.float64), memory)
        return found[0, :, 0, :].astype(np.int64)

    least, most = (np.broadcast_to(x[:, None], (len(x), wanted.size)).copy() for x in (low, high + 1))
    while (least < most).any():
        middle = (least + most) // 2
        reached = result(np.minimum(middle, high[:, None])) >= wanted
        live = least < most
        most = np.where(live & reached, middle, most)
        least = np.where(live & ~reached, middle + 1, least)
    return least, result(low[:, None])


def same_thresholds(judge: Judge, mutant: Mutant) -> bool:
    """Both versions of a convolution step at the same accumulators, within what can occur."""
    index = mutant.index
    old, new = _body(judge.program.commands[index]), _body(mutant.program.commands[index])
    if not isinstance(old, Conv | Depthwise) or old.filter.memory == "gmem" or old.input.dtype not in ("i8", "u8"):
        return False
    if old.output.dtype not in ("i8", "u8") or not _rising(old) or not _rising(new):
        return False
    fields = set(_differing(old, new, chip_of(judge.program)))
    if not fields <= {"relu", "requant", "bias", "sources"}:
        return False
    found: list[tuple[np.ndarray, ...]] = []
    for program, command in ((judge.program, old), (mutant.program, new)):
        with judge.just_before(program, index) as memory:
            if not _table_rises(command, memory):
                return False
            try:
                low, high = _interval(command, memory)
                found.append((*_steps(command, memory, low, high), low, high))
            except SimulationError:
                return False
    (steps, first, low, high), (other, other_first, other_low, other_high) = found
    if np.array_equal(low, other_low) and np.array_equal(high, other_high):
        return bool(np.array_equal(steps, other) and np.array_equal(first, other_first))
    return False


def _rising(command: Any) -> bool:
    return command.requant is None or command.requant.multiplier >= 0


def _table_rises(command: Any, memory: Machine) -> bool:
    view = command.requant_table
    if view is None:
        return True
    table = memory.load(view)
    if table.dtype == np.uint8:
        words = np.ascontiguousarray(table[0, :, 0, :-1]).copy().view("<i4")
        return bool((words[:, -1] >= 0).all())
    return bool((table.reshape(table.shape[1], -1)[:, 0] >= 0).all())


def same_everywhere(judge: Judge, mutant: Mutant) -> bool:
    """An element-wise command gives the same for every value of its operands' types."""
    old, new = _body(judge.program.commands[mutant.index]), _body(mutant.program.commands[mutant.index])
    fields = set(_differing(old, new, chip_of(judge.program))) - {"sources"}
    retyped = {n for n in fields if _retyped(getattr(old, n), getattr(new, n))}
    if not fields - retyped <= {"relu", "requant", "kind", "b", "mode"} or not isinstance(
        old, Rescale | Arith | Pool | Lut
    ):
        return False
    if isinstance(old, Pool):
        return _pool_values(old, new, fields)
    names = [n for n in old.inputs_ if isinstance(getattr(old, n), View) and n not in CONSTANT]
    types = [numpy_dtype(getattr(old, n).dtype) for n in names]
    if any(t.kind not in "iu" for t in types) or sum(8 * t.itemsize for t in types) > 16:
        return False
    axes = [np.arange(np.iinfo(t).min, np.iinfo(t).max + 1).astype(t) for t in types]
    grids = list(np.meshgrid(*axes, indexing="ij"))
    size = grids[0].size
    results = [_probe(judge, command, names, grids, size) for command in (old, new)]
    return results[0].tobytes() == results[1].tobytes()


def _retyped(one: Any, other: Any) -> bool:
    """Whether two views differ in the type of their elements only, of one size."""
    if not isinstance(one, View) or not isinstance(other, View) or itemsize(one.dtype) != itemsize(other.dtype):
        return False
    return structs.replace(one, dtype=other.dtype) == other


def _probe(judge: Judge, command: Any, names: list[str], values: list[np.ndarray], size: int) -> np.ndarray:
    """The command on new values, in an empty memory."""
    memory = Machine(judge.chip, (), np.zeros(0, np.uint8))
    side = 256 if size >= 256 else size
    shape = (1, 1, size // side, side)
    fields: dict[str, View] = {}
    at = 0
    for name in (*names, "output"):
        dtype = getattr(command, name).dtype
        rows = min(judge.chip.lanes, shape[2])
        fields[name] = View("lmem", at, (1, rows, shape[2] // rows, side), dtype, "compact")
        at += shape[2] // rows * side * itemsize(dtype)
    if at > judge.chip.lmem_bytes:
        raise ValueError(f"{at} bytes per lane do not fit")
    for name, array in zip(names, values, strict=True):
        memory.write(fields[name], array.view(numpy_dtype(fields[name].dtype)).reshape(fields[name].shape))
    execute(structs.replace(command, **fields), memory)
    return memory.read(fields["output"])


def _pool_values(old: Pool, new: Pool, fields: set[str]) -> bool:
    """Relu of results that are never negative, or of which saturation keeps no negative one."""
    unsigned = old.input.dtype == "u8" or old.output.dtype in ("u8", "u16")
    if fields == {"relu"}:
        rising = old.requant is None or (old.requant.multiplier >= 0 and old.requant.zero_point == 0)
        return unsigned and rising and old.zero_point == 0 and old.offset == 0
    return False


# ---------------------------------------------------------------------------------------------------------- tables

TABLES = ("wrong_scale", "wrong_shape", "wrong_macs")
"""Classes that change what a table says of a tensor or of the network; what `unconfirmed` calls it stands below."""
_COUNTED = {"wrong_scale": "scales", "wrong_shape": "shapes", "wrong_macs": "number of multiplications"}


def _same_commands(one: Program, other: Program) -> bool:
    return one.commands == other.commands and one.coefficients is other.coefficients


def _more_counted(program: Program, mutant: Mutant) -> bool:
    """Whether the machine says that nothing confirms this."""
    return unconfirmed(mutant.program).get(_COUNTED[mutant.kind], 0) > 0


def _copied(command: Move, chip: Any) -> bytes:
    """(from, to) of every byte, in the order of where they go."""
    ends = [
        (offsets(view, chip).reshape(-1, 1) + np.arange(itemsize(view.dtype))).reshape(-1)
        for view in (command.output, command.input)
    ]
    return np.stack(ends)[:, np.argsort(ends[0], kind="stable")].tobytes()


# --------------------------------------------------------------------------------------------------------- together


def proof(judge: Judge, mutant: Mutant) -> str:
    """The name of a proof that the mutant is equivalent; empty without one."""
    program = judge.program
    if same_order(program, mutant.program):
        return "order"
    if mutant.kind in TABLES and _same_commands(program, mutant.program):
        return "counted" if _more_counted(program, mutant) else ""
    if mutant.kind in ("moved_tensor", "work_over_tensor"):
        return "owned"  # nothing was found: bounds, races, initialised bytes and owners of all reads
    if len(program.commands) != len(mutant.program.commands):
        return ""
    others = [i for i, (a, b) in enumerate(zip(program.commands, mutant.program.commands, strict=True)) if a is not b]
    if program.coefficients is not mutant.program.coefficients:
        if not others and same_coefficients(judge, mutant):
            return "coefficient"
        return "thresholds" if not others and same_thresholds(judge, mutant) else ""
    return _of_one_command(judge, mutant) if others == [mutant.index] else ""


def _of_one_command(judge: Judge, mutant: Mutant) -> str:
    chip = chip_of(judge.program)
    old, new = _body(judge.program.commands[mutant.index]), _body(mutant.program.commands[mutant.index])
    fields = _differing(old, new, chip)
    if not fields:
        return "bytes"
    if isinstance(old, Move) and _copied(old, chip) == _copied(new, chip):
        return "copy"
    if same_window(old, new, fields):
        return "window"
    if same_operands(old, new, fields) or nothing_added(old, new, fields):
        return "operands"
    if same_thresholds(judge, mutant):
        return "thresholds"
    return "exhaustive" if same_everywhere(judge, mutant) else ""
