"""Rewrites of single ops to the forms that a chip's lowering expects, and checks of the ops that its file names."""

from collections.abc import Sequence

from tpusim.chips import ChipSpec
from tpusim.errors import ConfigError
from tpusim.interfaces import ask_classes
from tpusim.ir.dialects import is_op
from tpusim.ir.module import Model
from tpusim.ir.rewriting import rewrite
from tpusim.ops import op_classes
from tpusim.ops.framework.base import TopOp, TpuOp
from tpusim.ops.interfaces import ChipRewrites, FusingRewrites, QuirkRewrite
from tpusim.ops.patterns.recurrent import TYPES, keep_parts, named_parts


def rewrite_for_chip(model: Model, chip: ChipSpec, quirks_off: Sequence[str] = ()) -> None:
    """Rewrite a top module in place by each op's `chip_patterns`; tensors keep their names, the store gains weights.

    quirks_off: quirks whose rewrites are left out.
    """
    parts = named_parts(model.ops)
    patterns = [
        pattern
        for rewrites in ask_classes(op_classes(TopOp, model.module), ChipRewrites, chip)
        for pattern in rewrites.chip_patterns(model.weights, chip)
        if not (isinstance(pattern, QuirkRewrite) and pattern.QUIRK in quirks_off)
    ]
    rewrite(model, patterns)
    keep_parts(model.ops, parts)


def fuse_for_chip(model: Model, chip: ChipSpec) -> None:
    """Rewrite a lowered module in place by each op's `fusing_patterns`."""
    fusing = ask_classes(op_classes(TpuOp, model.module), FusingRewrites, chip)
    patterns = [p for rewrites in fusing for p in rewrites.fusing_patterns(chip)]
    if patterns:
        rewrite(model, patterns)


def require_fitting_rules(chip: ChipSpec) -> None:
    """Check that the ops in the chip's file exist. Raises ConfigError."""
    named = {
        "integers.float_only": (TopOp, [rule.op for rule in chip.integers.float_only]),
        "float_exceptions": (TopOp, [rule.op for rule in chip.float_exceptions if rule.op not in TYPES]),
        "forms.on_host": (TopOp, chip.forms.on_host),
        "local.global_only": (TpuOp, chip.local.global_only),
    }
    for field, (kind, names) in named.items():
        unknown = sorted(name for name in set(names) if not is_op(name, kind))
        level = "top" if kind is TopOp else "tpu"
        if unknown:
            raise ConfigError(
                f"chip {chip.name}: {field}: an op of the {level} dialect is required, got {', '.join(unknown)}"
            )
