"""A module as TOSA 1.0: the dialect, the growing function, a form for each op, and what runs it.

Input: a top module, or a tpu module. Output: a function of TOSA ops. A lowered INT8 module is computed in the same
integers: RESCALE rounds halves up as fused requants do; where halves go away from zero, magnitudes are rescaled and
signs selected. Floats of a top module are the same up to rounding. Channels are last around convolutions and pools;
transposes that meet cancel, and others follow the ops of single elements that read them.

dialect, graph, walk: the ops, the function that grows, and the operands and requants that forms ask for. elements,
moves, convolutions, products, integers: the forms. A package adds the form of its op to `tpusim.registry.TOSA_FORMS`.
"""

from tpusim.studies.export.tosa import convolutions, elements, integers, moves, products
from tpusim.studies.export.tosa.export import Port, TosaModule, as_stored, to_tosa
from tpusim.studies.export.tosa.forms import FORMS, Form, writes
from tpusim.studies.export.tosa.graph import Tensor, as_given
from tpusim.studies.export.tosa.walk import Writer

__all__ = [
    "FORMS", "Form", "Port", "Tensor", "TosaModule", "Writer", "as_given", "as_stored", "convolutions", "elements",
    "integers", "moves", "products", "to_tosa", "writes",
]  # fmt: skip
