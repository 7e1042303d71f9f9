"""Machine against flat inference: when their tensors agree.

Integers are equal or wrong; where a float op stands upstream, they equal what the flat kernel computes from the
machine's inputs. Floats stay within a bound in units of the last place, of the flat kernel on the same inputs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from tpusim.inference import replay
from tpusim.ir.module import Model
from tpusim.numbers.closeness import bound_of, ulps_apart
from tpusim.verify.compare import Comparison, TensorResult, compare
from tpusim.verify.tolerances import local_vs_tpu


def compare_local(
    tpu: Model,
    sample: Mapping[str, np.ndarray],
    machine: Mapping[str, np.ndarray],
    flat: Mapping[str, np.ndarray],
    *,
    with_qtable: bool = False,
    excepts: Iterable[str] = (),
    upstream: bool = False,
) -> Comparison:
    """The machine's tensors against flat inference, by the rule of "bit-exact" (architecture section 5).

    tpu: the lowered module; sample: network inputs; machine, flat: tensors by name; excepts, upstream: as `compare`
    takes them.
    """
    own = replay(tpu, {**sample, **machine})
    reference = {name: own.get(name, flat[name]) for name in machine if name in flat}
    found = compare(
        machine,
        reference,
        local_vs_tpu(with_qtable=with_qtable),
        label="local_vs_tpu",
        excepts=excepts,
        upstream=upstream,
    )
    tensors = tuple(_bounded(t, machine[t.name], reference[t.name]) for t in found.tensors)
    return replace(found, tensors=tensors)


def _bounded(result: TensorResult, machine: np.ndarray, flat: np.ndarray) -> TensorResult:
    """Fail a float tensor that is further from the flat kernel's than its type allows."""
    if machine.dtype.kind in "iu" or result.bit_exact:
        return result
    bound = bound_of(machine.dtype)
    ulps = float(ulps_apart(machine, flat, flat, bound.fraction_bits).max(initial=0.0))
    if ulps <= bound.ulps:
        return result
    return replace(result, passed=False, note=f"differs by {ulps:.0f} ulp, the bound is {bound.ulps:.0f}")
