"""`top.GridSampler` and `tpu.GridSampler`: an image at computed places (numerics.md 12.1)."""

from collections.abc import Sequence
from typing import Any, ClassVar

from tpusim_kernels import grid as kernels
from xdsl.dialects.builtin import BoolAttr, IntegerAttr, StringAttr, TensorType
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import LayerGroupAttr, flag, text
from tpusim.ir.types import shape_of
from tpusim.isa import functions
from tpusim.ops.framework.base import Array, Builder, FloatMode, FloatRule, OpT, Shape
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.macro import MacroTop, MacroTpu


def _options(op: Operation) -> dict[str, Any]:
    mode, padding, corners = (op.attributes[key] for key in ("mode", "padding_mode", "align_corners"))
    assert isinstance(mode, StringAttr) and isinstance(padding, StringAttr) and isinstance(corners, IntegerAttr)
    return {"mode": mode.data, "padding": padding.data, "align_corners": bool(corners.value.data)}


def _sampled(op: Operation) -> tuple[Shape, ...]:
    x, grid = (shape_of(v) for v in op.operands)
    if len(x) < 3 or len(grid) != len(x) or grid[0] != x[0] or grid[-1] != len(x) - 2:
        raise ValueError(f"places (n, ..., {len(x) - 2}) for {x} are required, got {grid}")
    return ((*x[:2], *grid[1:-1]),)


@irdl_op_definition
class TpuGridSampler(MacroTpu):
    """`tpu.GridSampler`: sampling along a grid, in f32."""

    name = "tpu.GridSampler"

    input = operand_def(TensorType)
    grid = operand_def(TensorType)
    output = result_def(TensorType)
    mode = attr_def(StringAttr)
    padding_mode = attr_def(StringAttr)
    align_corners = attr_def(BoolAttr)
    group_info = opt_attr_def(LayerGroupAttr)

    def infer(self) -> tuple[Shape, ...]:
        """The result has the channels of the image and the extents of the grid."""
        return _sampled(self)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Compute it in float64 and round once, to the type of the result."""
        return (kernels.grid_sample(operands[0], operands[1], **_options(self)),)

    def function(self) -> functions.Function:
        """Sampling at the places that the grid names."""
        return functions.GridSample(**_options(self))


@irdl_op_definition
class TopGridSampler(MacroTop):
    """`top.GridSampler`: `input` (n, c, ...) at the places of `grid` (n, ..., coordinates in [-1, 1])."""

    name = "top.GridSampler"
    TPU: ClassVar[OpT] = TpuGridSampler
    FLOAT: ClassVar[FloatRule] = FloatRule(bf16="f32")

    input = operand_def(TensorType)
    grid = operand_def(TensorType)
    output = result_def(TensorType)
    mode = attr_def(StringAttr)
    padding_mode = attr_def(StringAttr)
    align_corners = attr_def(BoolAttr)

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, grid: SSAValue, *, mode: str = "linear", padding_mode: str = "zeros",
        align_corners: bool = False, name: str,
    ) -> SSAValue:  # fmt: skip
        """mode: nearest, linear or cubic. padding_mode: zeros, border or reflection."""
        if mode not in kernels.MODES or padding_mode not in kernels.PADDINGS:
            known = f"{', '.join(kernels.MODES)} with {', '.join(kernels.PADDINGS)}"
            raise ValueError(f"{known} are required, got {mode!r} with {padding_mode!r}")
        attributes = {
            "mode": text(mode), "padding_mode": text(padding_mode), "align_corners": flag(align_corners)
        }  # fmt: skip
        return builder.build(cls, [x, grid], attributes, name)

    def needs_f32(self, chip: ChipSpec, wanted: FloatMode) -> bool:
        """All but the linear mode (numerics.md 12.2)."""
        del chip, wanted
        return self.mode.data != "linear"

    def infer(self) -> tuple[Shape, ...]:
        """The result has the channels of the image and the extents of the grid."""
        return _sampled(self)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Compute it in float64 and round once, to the type of the result."""
        return (kernels.grid_sample(operands[0], operands[1], **_options(self)),)
