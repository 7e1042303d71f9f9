"""A wrapper of ONNX Runtime with two calls: open a model, run it. All untyped code is in this file."""

# onnxruntime has no type stubs:
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import os
from collections.abc import Mapping, Sequence

import numpy as np

from tpusim.errors import ImportModelError
from tpusim.frontend.onnx.model_file import first_line

_SILENT = 4


class Session:
    """A model loaded on the CPU. Raises ImportModelError with ONNX Runtime's reason.

    Args: content: a serialised model, or the path of one. threads: per operator, 0 for ONNX Runtime's default.
    integers: let ONNX Runtime fuse QuantizeLinear, an op and DequantizeLinear into an integer kernel. On processors
    without VNNI instructions such kernels saturate sums of two products to 16 bits.
    """

    def __init__(self, content: bytes | os.PathLike[str], *, threads: int, integers: bool = False) -> None:
        import onnxruntime as ort  # shape inference and constants of most models need none

        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = _SILENT
        options.add_session_config_entry("session.disable_quant_qdq", "0" if integers else "1")
        options.add_session_config_entry("session.force_spinning_stop", "1")  # otherwise its threads spin after a run
        try:
            self._session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  its exceptions share no base class
            raise ImportModelError(f"ONNX Runtime refuses it: {first_line(error)}") from error

    def run(self, names: Sequence[str], feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The named tensors; an output that is no tensor (a sequence, a map) is left out."""
        try:
            results = self._session.run(list(names), dict(feeds))
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  its exceptions share no base class
            raise ImportModelError(f"ONNX Runtime cannot run it: {first_line(error)}") from error
        return {n: r for n, r in zip(names, results, strict=True) if isinstance(r, np.ndarray)}
