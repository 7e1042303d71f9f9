"""From StableHLO, and so from JAX functions, to an ONNX model of the same network, which the ONNX front end imports.

MLIR as JAX brings it parses text, bytecode and portable artefacts; no other package is needed. The walk (`convert`)
goes through the main function with calls and loops of known length written out. A value is a constant, which NumPy
computes at once, or a *view* of a tensor (`values`): axes in any order, repeated or spare axes of extent 1. So NHWC
networks have no transposes between layers. Each file of forms (`elements`, `moves`, `places`, `products`) writes the
nodes of some instructions; `activations` and `norms` put together what libraries take apart, as Gelu or Softmax. What
cannot be converted is named in one error for the whole network. `calls` traces JAX functions.
"""

from tpusim.frontend.stablehlo.calls import Call, arguments_of, onnx_of_function
from tpusim.frontend.stablehlo.convert import onnx_of_stablehlo, onnx_of_stablehlo_file

__all__ = ["Call", "arguments_of", "onnx_of_function", "onnx_of_stablehlo", "onnx_of_stablehlo_file"]
