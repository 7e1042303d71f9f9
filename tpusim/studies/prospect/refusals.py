"""Errors of lowering and grouping that do not depend on samples, raised before samples are measured."""

import re
import warnings
from collections.abc import Sequence
from dataclasses import replace

from tpusim.errors import ConfigError, ModeWarning, TpusimError, UnsupportedError
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.layer_group import ForcedGroup, require_named
from tpusim.lowering import LoweringConfig
from tpusim.ops.framework.base import ShapedOp, TpuOp
from tpusim.studies.prospect.assumed import assumed_lowering
from tpusim.studies.prospect.compilation import imported_or_assumed


def require_lowerable(canonical: Model, config: LoweringConfig, forced: Sequence[ForcedGroup] = ()) -> list[str]:
    """Lower a canonical module with assumed ranges, drop the result, and return the names of its ops.

    Raises ConfigError for an impossible option and for names of the quantisation table or of a forced group that no op
    has, and UnsupportedError for anything that the chip lacks. Errors that may depend on ranges are left to the run:
    whether inputs can be integers, and names of casts.
    """
    names = [op_name(op) for op in canonical.ops if isinstance(op, ShapedOp)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModeWarning)  # the run's lowering warns
        try:
            tpu = assumed_lowering(canonical, replace(config, quant_input=False), imported_or_assumed(canonical))
        except (ConfigError, UnsupportedError):
            raise
        except TpusimError:  # caused by an assumed range
            return names
    known = [op_name(op) for op in tpu.ops if isinstance(op, TpuOp)]
    names = list(dict.fromkeys([*names, *known]))
    require_named([g for g in forced if not any(may_be_cast(name, names) for name in (g.first, g.last))], known)
    return names


def may_be_cast(name: str, known: Sequence[str]) -> bool:
    """Whether a name that no op has may be that of a cast, which starts with the name of the tensor that it casts."""
    return name not in known and any(name.startswith(other) for other in known)


def names_nothing(pattern: str, known: Sequence[str]) -> bool:
    """Whether neither an op nor a cast can match a name or pattern (`*`, `?`, `[abc]`)."""
    begin = re.split(r"[*?\[]", pattern)[0]
    return not any(begin.startswith(name) or (begin != pattern and name.startswith(begin)) for name in known)
