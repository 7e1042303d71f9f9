"""Run one ONNX node in ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnxruntime
from onnx import TensorProto, helper


def run_onnx(op: str, inputs: list[np.ndarray], opset: int = 19, **attributes) -> np.ndarray:
    names = [f"x{i}" for i in range(len(inputs))]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, x.shape) for n, x in zip(names, inputs, strict=True)]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    shape = {} if op not in ("Conv",) else {"kernel_shape": inputs[1].shape[2:]}
    node = helper.make_node(op, names, ["y"], **shape, **attributes)
    graph = helper.make_graph([node], "one", values, [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, dict(zip(names, inputs, strict=True)))[0])
