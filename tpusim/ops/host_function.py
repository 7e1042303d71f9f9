"""`tpu.GenericCpu`: a function of a chip's runtime, which the host's processor computes."""

from typing import cast

import numpy as np
from typing_extensions import override
from xdsl.dialects.builtin import DictionaryAttr, FloatAttr, IntegerAttr, IntegerType, StringAttr, TensorType, f32
from xdsl.ir import Operation
from xdsl.irdl import attr_def, irdl_op_definition, opt_attr_def, var_operand_def, var_result_def

from tpusim.errors import UnsupportedError
from tpusim.ir.attrs import flag, float_attr, int_attr, op_name, text
from tpusim.ir.opaque import replaced_by
from tpusim.ir.reading import take_op
from tpusim.ir.types import shape_of, uniform_of
from tpusim.ir.upstream import NOTES
from tpusim.ops.cast import TpuCast
from tpusim.ops.cumulate import TpuCumSum
from tpusim.ops.elements import TpuGatherElements
from tpusim.ops.framework.base import Shape, TpuOp
from tpusim.ops.groupnorm import TpuInstanceNorm
from tpusim.ops.resize.interp import TpuInterp

ALONG = {"cumsum": TpuCumSum, "gatherelements_pt": TpuGatherElements}
"""Functions along an axis -> their ops."""
INTERPOLATED = {
    **{name: ("linear", name) for name in ("align_corners", "half_pixel", "pytorch_half_pixel")},
    "nearest": ("nearest", "asymmetric"), "nearest_half_pixel": ("nearest", "half_pixel"),
}  # fmt: skip
"""The coordinates of the host's interpolation that are computed -> mode and coordinates of the op."""


@irdl_op_definition
class TpuGenericCpu(TpuOp):
    """`tpu.GenericCpu`: what the host computes, in the form of TPU-MLIR.

    Its "quant" is a `tpu.Cast` here, "instance_norm" a `tpu.InstanceNorm`, "interp" a `tpu.Interp`, "cumsum" a
    `tpu.CumSum` and "gatherelements_pt" a `tpu.GatherElements`. Other functions are known as ops here too (argmax ...);
    modules that state them this way are not computed.
    """

    name = "tpu.GenericCpu"

    inputs = var_operand_def(TensorType)
    outputs = var_result_def(TensorType)
    cpu_op_name = attr_def(StringAttr)
    param = opt_attr_def(DictionaryAttr)

    @override
    def infer(self) -> tuple[Shape, ...]:
        """The declared shapes: the table of functions is open."""
        return tuple(shape_of(result) for result in self.outputs)

    @override
    def take_form(self) -> str:
        """Become the op that computes this function; or say which function it is."""
        function, kept = self.cpu_op_name.data, {n: v for n, v in self.attributes.items() if n in NOTES}
        if function == "quant" and len(self.inputs) == 1 and uniform_of(self.outputs[0]) is not None:
            replaced_by(self, TpuCast, kept)
            return ""
        epsilon = self.param.data.get("variance_epsilon") if self.param else None
        if function == "instance_norm" and len(self.inputs) == 3 and isinstance(epsilon, FloatAttr):  # noqa: PLR2004
            stated = {"eps": float_attr(epsilon.value.data), "first_weight_divides": flag(True)}
            replaced_by(self, TpuInstanceNorm, kept | stated)
            return ""
        axis = self.param.data.get("axis") if self.param else None
        if function in ALONG and len(self.inputs) == 2 and isinstance(axis, IntegerAttr):  # noqa: PLR2004
            stated = {"axis": int_attr(cast("IntegerAttr[IntegerType]", axis).value.data)}
            return take_op(replaced_by(self, ALONG[function], kept | stated))
        places = self.param.data.get("coordinate_transformation_mode") if self.param else None
        if function == "interp" and isinstance(places, StringAttr) and places.data in INTERPOLATED:
            scales = {name: float_attr(-1.0) for name in ("scale_h", "scale_w")}
            mode, coordinates = INTERPOLATED[places.data]
            stated = {"mode": text(mode), "coord_mode": text(coordinates), "on_host": flag(True)}
            stated |= {"asymmetric": flag(True)} if coordinates == "asymmetric" else {}
            return take_op(replaced_by(self, TpuInterp, kept | scales | stated))
        return f"the host's function {function} is not computed in this form"


def state_host_function(op: Operation) -> TpuGenericCpu:
    """Replace an op that the host computes by the runtime's function. Raises UnsupportedError if none is known."""
    target = uniform_of(op.results[0]) if isinstance(op, TpuCast) else None
    if target is None:
        raise UnsupportedError(
            f"{op.name} '{op_name(op)}' runs on the host: a cast from f32 to 8 bits is required, for other ops tpusim "
            "states no function of the runtime; choose a mode in which the chip computes it"
        )
    scale = FloatAttr(float(1 / np.float32(target.scale.data)), f32)
    param = DictionaryAttr({"from": text("FP32"), "scale": scale, "to": text("INT8")})
    made = replaced_by(op, TpuGenericCpu, {**op.attributes, "cpu_op_name": text("quant"), "param": param})
    assert isinstance(made, TpuGenericCpu)
    return made
