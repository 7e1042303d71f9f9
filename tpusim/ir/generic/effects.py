"""Effects and commutativity of ops, as xDSL's traits say them, and of the ops whose traits xDSL leaves out."""

from collections.abc import Set as AbstractSet

from xdsl.ir import Operation
from xdsl.traits import (
    Commutative,
    EffectInstance,
    IsTerminator,
    MemoryEffectKind,
    RecursiveMemoryEffect,
    SymbolOpInterface,
    get_effects,
)

FREE = frozenset({"arith", "math", "complex"})
"""Dialects all of whose ops are free of effects, which xDSL says of most of them."""

COMMUTATIVE = frozenset(
    f"arith.{name}"
    for name in (
        "addi", "muli", "andi", "ori", "xori", "maxsi", "minsi", "maxui", "minui", "addf", "mulf", "maximumf",
        "minimumf", "maxnumf", "minnumf", "addui_extended", "mulsi_extended", "mului_extended",
    )
)  # fmt: skip
"""Ops of arith that are commutative, which xDSL says of some of them."""


def is_commutative(op: Operation) -> bool:
    """Whether an op's operands may change places."""
    return op.name in COMMUTATIVE or op.has_trait(Commutative, value_if_unregistered=False)


def effects_of(op: Operation) -> AbstractSet[EffectInstance] | None:
    """An op's effects, None if they are unknown."""
    if op.dialect_name() in FREE:
        return frozenset()
    if not op.has_trait(RecursiveMemoryEffect, value_if_unregistered=False):
        return get_effects(op)
    found = set[EffectInstance]()
    for region in op.regions:
        for block in region.blocks:
            for inner in block.ops:
                effects = frozenset[EffectInstance]() if inner.has_trait(IsTerminator) else effects_of(inner)
                if effects is None:
                    return None
                found |= effects
    return found


def is_free(op: Operation) -> bool:
    """Whether an op surely has no effects."""
    return effects_of(op) == frozenset()


def only_reads(op: Operation) -> bool:
    """Whether an op has no effects but reading."""
    effects = effects_of(op)
    return effects is not None and all(effect.kind is MemoryEffectKind.READ for effect in effects)


def may_write(op: Operation) -> bool:
    """Whether an op may change memory."""
    effects = effects_of(op)
    return effects is None or any(effect.kind is MemoryEffectKind.WRITE for effect in effects)


def would_be_dead(op: Operation) -> bool:
    """Whether an op does nothing if nothing uses its results; the memory of a result is part of the result."""
    if op.has_trait(IsTerminator, value_if_unregistered=True) or op.has_trait(
        SymbolOpInterface, value_if_unregistered=True
    ):
        return False
    effects = effects_of(op)
    return effects is not None and all(
        effect.kind is MemoryEffectKind.READ or (effect.kind is MemoryEffectKind.ALLOC and effect.value in op.results)
        for effect in effects
    )


def is_dead(op: Operation) -> bool:
    """Whether an op does nothing, and nothing uses its results."""
    return all(result.first_use is None for result in op.results) and would_be_dead(op)
