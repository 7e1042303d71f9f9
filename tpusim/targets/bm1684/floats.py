"""The float type of ops without scales."""

from tpusim.ops.framework.contexts import FloatMode
from tpusim.ops.interfaces import FloatRules
from tpusim.targets.bm1684.target import TARGET


@TARGET.provide(FloatRules)
class Floats(FloatRules):
    """An op that should be integer but has no scale is computed in f32."""

    FALLBACK: FloatMode = "f32"
