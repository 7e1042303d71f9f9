"""The default tolerances (cosine, euclidean) of each comparison. Source: interface.md 6.3 (U-95)."""

from typing import Final

from tpusim.errors import ConfigError
from tpusim.verify.compare import Tolerance

F32_ABSOLUTE: Final = 2.0**-22
"""Two units in the last place of 1.0: the absolute accuracy in f32 of functions that saturate at 1 (sigmoid, tanh),
however small their result. ONNX Runtime's sigmoid is off by up to 1.7e-7, and gives 0 where 1e-9 is right."""

TOP_VS_ONNX: Final = Tolerance(0.99, 0.99, F32_ABSOLUTE)
"""The float top module against the framework (`model_transform`), and the absolute tolerance of f32."""
LOCAL_VS_TPU: Final = Tolerance(0.99, 0.90)
"""The executed command streams against the tpu module (`model_deploy --correctness`)."""
LOCAL_VS_TPU_QTABLE: Final = Tolerance(0.98, 0.80)
"""The same with a quantisation table."""
NPZ_TOOL: Final = Tolerance(0.99, 0.99)
"""The default of `npz_tool compare`."""

_INTEGER = Tolerance(0.90, 0.80)
_HALF = Tolerance(0.99, 0.90)
_F8 = Tolerance(0.80, 0.50)

TPU_VS_TOP: Final[dict[str, Tolerance]] = {
    "int8": _INTEGER,
    "w8f16": _INTEGER,
    "w8bf16": _INTEGER,
    "w4f16": _INTEGER,
    "w4bf16": _INTEGER,
    "f16": _HALF,
    "bf16": _HALF,
    "f32": Tolerance(0.99, 0.99),
    "f8e4m3": _F8,
    "f8e5m2": _F8,
}
"""The tpu module against the top module by mode (`model_deploy --tolerance`)."""


def tpu_vs_top(mode: str) -> Tolerance:
    """The default for a mode; for modes without one (int4, w4int8, qdq) the user must state it (U-95)."""
    found = TPU_VS_TOP.get(mode.lower())
    if found is None:
        known = ", ".join(TPU_VS_TOP)
        raise ConfigError(
            f"tolerance: mode '{mode}' has no default (modes with one: {known}); give one as cosine,euclidean"
        )
    return found


def local_vs_tpu(*, with_qtable: bool) -> Tolerance:
    """The default for command streams against the tpu module."""
    return LOCAL_VS_TPU_QTABLE if with_qtable else LOCAL_VS_TPU
