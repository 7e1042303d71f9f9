"""From a TFLite file to an ONNX model of the same network, which the ONNX front end imports.

A quantised tensor becomes a QuantizeLinear and DequantizeLinear pair, a constant becomes its integers and a
DequantizeLinear. So scales and integers are kept as in any QDQ model. Inputs and results are dequantised real numbers
in the file's order of axes (images as NHWC); inside the network images are NCHW. The package `tflite` (extra `tflite`)
has the schema.
"""

from tpusim.frontend.tflite.convert import OPS, onnx_of_tflite

__all__ = ["OPS", "onnx_of_tflite"]
