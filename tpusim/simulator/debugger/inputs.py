"""Default inputs of the debugger."""

import numpy as np

from tpusim.isa.region import numpy_dtype
from tpusim.isa.stream import Program


def random_inputs(program: Program, seed: int = 0) -> dict[str, np.ndarray]:
    """Seeded inputs in the stored dtype: integers over their whole range, floats normal with deviation 1."""
    found: dict[str, np.ndarray] = {}
    for number, entry in enumerate(program.inputs):
        rng = np.random.default_rng([seed, number])
        shape, dtype = entry.shape or entry.view.shape, numpy_dtype(entry.view.dtype)
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            found[entry.name] = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        else:
            found[entry.name] = rng.standard_normal(shape, np.float32).astype(dtype)
    return found
