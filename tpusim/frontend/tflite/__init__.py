"""From a TFLite file to an ONNX model of the same network, which the ONNX front end imports.

A quantised tensor becomes a QuantizeLinear and DequantizeLinear pair, constants their integers behind a
DequantizeLinear, so scales and integers are kept as those of any QDQ model. Inputs and results are the real numbers
that the file's integers stand for, in the file's own order of axes (images as NHWC); between them images are NCHW. The
schema comes from the package `tflite` (extra `tflite`).
"""

from tpusim.frontend.tflite.convert import OPS, onnx_of_tflite

__all__ = ["OPS", "onnx_of_tflite"]
