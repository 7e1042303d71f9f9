"""Host functions: adjacent ops of the host that are one function of arrays, with one result.

Every member states the function's name and the run mode CPU (`FUNCTION`). A constant of that name, which no op reads,
has the function's code. The last member's result is the result of the function; what the others compute exists in it
only. So memory, commands and proofs see one layer, that of the last member, which reads the function's operands.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from xdsl.ir import Block, Operation, SSAValue

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import op_name, texts_attr
from tpusim.ir.functions import HOST, function_of
from tpusim.ir.types import is_tensor
from tpusim.ir.upstream import FUNCTION
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.interfaces import is_in_place, on_host
from tpusim.ops.structure import TopNone, TopWeight


@dataclass(frozen=True)
class HostFunction:
    """One function of the host. code: its constant; None: it is not compiled yet."""

    name: str
    members: tuple[TpuOp, ...]
    code: TopWeight | None = None

    @property
    def last(self) -> TpuOp:
        """The member whose result is the function's."""
        return self.members[-1]

    @cached_property
    def arguments(self) -> tuple[SSAValue, ...]:
        """What members read from outside, each value once, in the order of reading; constants too."""
        made = {result for op in self.members for result in op.results}
        read = (value for op in self.members for value in op.operands if is_tensor(value) and value not in made)
        return tuple(dict.fromkeys(read))

    @property
    def operands(self) -> tuple[SSAValue, ...]:
        """What the call reads: the code, then the arguments."""
        assert self.code is not None
        return self.code.output, *self.arguments

    def mark(self) -> None:
        """State in every member which function it belongs to."""
        for op in self.members:
            op.attributes[FUNCTION] = texts_attr([self.name, HOST[1]])


def host_function_of(op: Operation) -> HostFunction | None:
    """The compiled function of an op of the host; None if it is called by itself."""
    name, mode = function_of(op)
    if mode != HOST[1] or not isinstance(op, TpuOp) or op.parent is None:
        return None
    code = next((w for w in op.parent.ops if isinstance(w, TopWeight) and op_name(w) == name), None)
    members = tuple(m for m in op.parent.ops if isinstance(m, TpuOp) and function_of(m) == (name, mode))
    return None if code is None else HostFunction(name, members, code)


def layer_of(op: Operation) -> Operation:
    """The op whose layer computes an op: the last of its host function, or the op itself."""
    function = host_function_of(op)
    return op if function is None else function.last


def layer_operands(op: Operation) -> Sequence[SSAValue]:
    """What the layer of an op reads: the operands of its host function, or its operands."""
    function = host_function_of(op)
    return op.operands if function is None else function.operands


def outlined(block: Block, chip: ChipSpec, named: Callable[[], str]) -> Iterator[HostFunction]:
    """The functions that the ops of a network's block make, in order, before they are marked. named: gives new names.

    Adjacent ops of the host are one function if ops outside read only the result of its last op. Casts and other ops
    that the host computes only because of their types make no function without an op of another kind.
    """
    for stretch in _stretches(block, chip):
        rest = stretch
        while rest:
            length = max(n for n in range(1, len(rest) + 1) if n == 1 or _ends_in_one_result(rest[:n]))
            members, rest = rest[:length], rest[length:]
            if any(_needs_host(op, chip) for op in members) and not is_in_place(members[-1]):
                yield HostFunction(named(), tuple(members))


def _stretches(block: Block, chip: ChipSpec) -> Iterator[list[TpuOp]]:
    """Ops of the host that follow one another, with views between them; constants do not count."""
    current: list[TpuOp] = []
    for op in block.ops:
        if isinstance(op, TopWeight | TopNone):
            continue
        if isinstance(op, TpuOp) and (on_host(op, chip) or (current and is_in_place(op))):
            current.append(op)
        else:
            yield _without_last_views(current)
            current = []
    yield _without_last_views(current)


def _without_last_views(ops: list[TpuOp]) -> list[TpuOp]:
    """The ops up to the last that computes; the views after it need no function."""
    while ops and is_in_place(ops[-1]):
        ops = ops[:-1]
    return ops


def _ends_in_one_result(ops: Sequence[TpuOp]) -> bool:
    """Whether ops outside read only the result of the last op."""
    inside = set[Operation](ops)
    kept = (use.operation in inside for op in ops[:-1] for value in op.results for use in value.uses)
    return len(ops[-1].results) == 1 and not is_in_place(ops[-1]) and all(kept)


def _needs_host(op: TpuOp, chip: ChipSpec) -> bool:
    """Whether the chip has no command for such an op, whatever its types."""
    return chip.is_on_host(op.name.replace("tpu.", "top.", 1)) or not has_commands(op)


def has_commands(op: TpuOp) -> bool:
    """Whether an op can be emitted as commands; if not, a host function must compute it."""
    return type(op).emit is not TpuOp.emit
