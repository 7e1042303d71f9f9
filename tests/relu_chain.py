"""A network that costs nothing to compile, and samples that make its histograms grow."""

import numpy as np
from compiling import to_canonical
from op_row import network, node
from plain_names import import_onnx

from tpusim.ir.module import Model


def chain() -> Model:
    """Seven Relus; the last five tensors may be kept whole."""
    nodes = [node("Relu", "x" if i == 0 else f"r{i - 1}", f"r{i}" if i < 6 else "y") for i in range(7)]
    return to_canonical(import_onnx(network(nodes)({"x": (1, 4)}), name="chain"))


def growing(count: int) -> list[dict[str, np.ndarray]]:
    """Samples whose largest value grows, once so far that the histogram begins anew; zeros; values of one sign."""
    rng = np.random.default_rng(3)
    sizes = [1e-6, 0.0, 1e-6, *np.linspace(1, 3, count - 3)]
    return [{"x": (size * rng.standard_normal((1, 4))).astype(np.float32)} for size in sizes]
