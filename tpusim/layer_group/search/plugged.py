"""Groups of a plug-in: accepted if they divide the ops into working groups."""

from collections.abc import Callable, Sequence
from typing import Any

from tpusim.chips import ChipSpec
from tpusim.errors import ConfigError
from tpusim.ir.attrs import op_name
from tpusim.layer_group.planning import Decided
from tpusim.layer_group.refinement import problem
from tpusim.ops.framework.base import TpuOp
from tpusim.schedule import GroupSchedule, Memo


def plugged(
    name: str, search: Callable[..., Any], ops: list[TpuOp], chip: ChipSpec, cores: int = 1, memo: Memo | None = None
) -> list[Decided]:
    """The plug-in's groups for a run of ops. Raises ConfigError that names the plug-in if they cannot be used."""
    try:
        answer = list(search(list(ops), chip, cores=cores, memo=memo))
    except Exception as error:  # somebody's code may raise anything
        raise _refused(name, f"raised {type(error).__name__}: {error}", ops) from error
    covered: list[TpuOp] = []
    for item in answer:
        if isinstance(item, GroupSchedule):
            covered += item.graph.ops
            wrong = problem(item)
            if wrong is not None:
                raise _refused(
                    name, f"gave a group from '{op_name(item.graph.ops[0])}' that does not work: {wrong}", ops
                )
        elif _is_global(item):
            covered.append(item[0])
        else:
            raise _refused(name, f"gave {item!r}; a GroupSchedule or a pair of op and reason is required", ops)
    if len(covered) != len(ops) or any(one is not other for one, other in zip(covered, ops, strict=True)):
        raise _refused(name, f"gave groups of {len(covered)} ops; all of the run are required, once and in order", ops)
    return answer


def _is_global(item: Any) -> bool:
    """Whether an item is a global layer: an op, and the reason why it is in no group."""
    match item:
        case (TpuOp(), str()):
            return True
        case _:
            return False


def _refused(name: str, why: str, ops: Sequence[TpuOp]) -> ConfigError:
    run = f"{len(ops)} ops, '{op_name(ops[0])}' to '{op_name(ops[-1])}'"
    return ConfigError(f"strategy '{name}': for the run of {run} it {why}")
